//! What a server is: product, version, role, and what follows from the version.

use bson::Document;
use sonar_core::ServerVersion;

/// Identity and version of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// `host:port` as in the replica set's configuration or the connection string.
    pub address: String,
    /// `version` of `buildInfo`, like `7.0.5`; empty if unknown.
    pub version: String,
    /// The version as numbers.
    pub numbers: ServerVersion,
    /// The name of the product if it is not MongoDB's own: `Percona Server for MongoDB`, `FerretDB`.
    pub product: String,
    /// Name of its replica set.
    pub replica_set: Option<String>,
    /// It is a secondary.
    pub secondary: bool,
    /// It is a mongos.
    pub mongos: bool,
}

impl ServerInfo {
    /// `MongoDB 7.0.5 at host:27017`.
    pub fn label(&self) -> String {
        let product = if self.product.is_empty() { "MongoDB" } else { &self.product };
        let role = if self.secondary { ", a secondary" } else { "" };
        format!("{product} {} at {}{role}", self.version, self.address)
    }

    /// Whether it writes `rateLimit` into profile documents but profiles every operation: Percona Server 4.4
    /// before 4.4.8-9 (<https://perconadev.atlassian.net/browse/PSMDB-876>).
    pub fn ignores_rate_limit(&self) -> bool {
        let build = self.version.split_once('-').and_then(|(_, build)| build.parse::<u32>().ok());
        let is_percona = self.product.starts_with("Percona");
        is_percona
            && (self.numbers.major, self.numbers.minor) == (4, 4)
            && (self.numbers.patch, build.unwrap_or(0)) < (8, 9)
    }

    /// Whether its version is this one or newer.
    pub fn at_least(&self, version: ServerVersion) -> bool {
        self.numbers >= version
    }
}

/// A product that speaks MongoDB's protocol.
pub(crate) const FERRETDB: &str = "FerretDB";

/// The name of a server's product as `buildInfo` shows it; empty if it is MongoDB's own.
pub(crate) fn product(build: &Document) -> &'static str {
    if build.contains_key("ferretdb") || build.contains_key("ferretdbVersion") {
        FERRETDB
    } else if build.contains_key("psmdbVersion") {
        "Percona Server for MongoDB"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        let info = ServerInfo { numbers: ServerVersion::new(4, 4, 1), ..ServerInfo::default() };
        assert!(!info.at_least(ServerVersion::new(4, 4, 2)) && info.at_least(ServerVersion::new(4, 2, 9)));
    }

    #[test]
    fn percona_4_4_before_4_4_8_9_ignores_its_rate_limit() {
        let info = |product: &str, version: &str| ServerInfo {
            product: product.to_owned(),
            version: version.to_owned(),
            numbers: ServerVersion::parse(version),
            ..ServerInfo::default()
        };
        for version in ["4.4.0-1", "4.4.6-8", "4.4.8-8", "4.4.2"] {
            assert!(info("Percona Server for MongoDB", version).ignores_rate_limit(), "{version}");
        }
        for version in ["4.4.8-9", "4.4.9-10", "4.4.10-11", "4.2.14-15", "5.0.2-1", ""] {
            assert!(!info("Percona Server for MongoDB", version).ignores_rate_limit(), "{version}");
        }
        assert!(!info("", "4.4.6").ignores_rate_limit(), "only Percona's has a rate limit");
    }
}
