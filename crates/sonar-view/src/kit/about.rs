//! Where a JSON document comes from: every document of a whole run has it as `about`.

use serde::{Deserialize, Serialize};
use sonar_core::history::Span;
use ts_rs::TS;

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct About {
    /// The program that wrote it.
    #[serde(default)]
    pub tool: String,
    /// The version of the program.
    pub version: String,
    /// The host that the figures are of; null where nothing says which.
    pub host: Option<String>,
    /// Files, servers or interfaces that were read, by name.
    pub sources: Vec<String>,
    /// The start of the time that the figures cover, in nanoseconds since 1970; null where there is none, or two.
    #[serde(default)]
    pub start_ns: Option<u64>,
    /// Its end.
    #[serde(default)]
    pub end_ns: Option<u64>,
}

impl About {
    /// By this version.
    pub fn new(host: Option<String>, sources: Vec<String>, span: Option<Span>) -> Self {
        Self {
            tool: "mongosonar".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host,
            sources,
            start_ns: span.map(|span| span.from.unix_ns()),
            end_ns: span.map(|span| span.to.unix_ns()),
        }
    }

    /// Of two sides that are compared: names, and the hosts that are known of them, each once.
    pub fn of_sides(hosts: [Option<&str>; 2], names: Vec<String>) -> Self {
        let mut known: Vec<&str> = hosts.into_iter().flatten().collect();
        known.dedup();
        Self::new((!known.is_empty()).then(|| known.join(" and ")), names, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_names_the_hosts_of_its_sides() {
        let host = |hosts| About::of_sides(hosts, Vec::new()).host;
        assert_eq!(host([Some("db1"), Some("db1")]).as_deref(), Some("db1"));
        assert_eq!(host([Some("db1"), Some("db2")]).as_deref(), Some("db1 and db2"));
        assert_eq!(host([None, Some("db2")]).as_deref(), Some("db2"));
        assert_eq!(host([None, None]), None);
    }
}
