//! The columns: their names and titles, and the order of rows by each.

use std::cmp::Ordering;

use sonar_core::baseline::BaselineStatus;
use sonar_core::row::RowKey;

use super::grouping::Form;
use super::row::{InFlightRow, ReportKey, ReportRow};
use crate::kit::{UNKNOWN, server_name};

/// A column of the table and of the live view; rows can be sorted by each.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Column {
    Count,
    Calls,
    Load,
    P50,
    P95,
    P99,
    P999,
    Max,
    In,
    Out,
    Docs,
    Errors,
    InFlight,
    Oldest,
    Tls,
    Split,
    Wait,
    Since,
    Server,
    Role,
    Class,
    Command,
    Namespace,
    Shape,
    App,
    Client,
}

/// The fixed properties of a column.
pub(super) struct Spec {
    column: Column,
    name: &'static str,
    title: &'static str,
    /// The fewest terminal columns that it takes.
    pub(super) width: usize,
    meaning: &'static str,
}

const fn spec(column: Column, name: &'static str, title: &'static str, width: usize) -> Spec {
    Spec { column, name, title, width, meaning: "" }
}

impl Spec {
    const fn means(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }
}

/// All columns, in the order of display and of [`Column`].
const SPECS: [Spec; 26] = [
    spec(Column::Count, "count", "calls", 7).means("operations that ended, where the whole run is summed up"),
    spec(Column::Calls, "calls", "calls/s", 8).means("operations that ended, per second: queries per second"),
    spec(Column::Load, "load", "load", 6).means("seconds of latency per second: how many clients were waiting on average"),
    spec(Column::P50, "p50", "p50", 6).means("median latency: last byte of the request to first byte of the reply"),
    spec(Column::P95, "p95", "p95", 6).means("95th percentile of latency"),
    spec(Column::P99, "p99", "p99", 6).means("99th percentile of latency"),
    spec(Column::P999, "p99.9", "p99.9", 6).means("99.9th percentile of latency"),
    spec(Column::Max, "max", "max", 6).means("longest latency"),
    spec(Column::In, "in", "in/s", 6).means("bytes of requests on the wire, per second"),
    spec(Column::Out, "out", "out/s", 6).means("bytes of replies on the wire, per second"),
    spec(Column::Docs, "docs", "docs", 5).means("documents returned per call; of writes, documents affected"),
    spec(Column::Errors, "errors", "errors", 7).means("errors in the span shown, write errors one by one"),
    spec(Column::InFlight, "in-flight", "fly", 5).means("operations in flight: started and not ended"),
    spec(Column::Oldest, "oldest", "oldest", 6).means("age of the oldest operation in flight"),
    spec(Column::Tls, "tls", "tls", 5).means("share of operations on connections encrypted with TLS"),
    spec(Column::Split, "split", "split", 10).means("where the time went inside the server (--split): C on a processor, Q waiting for one, D disk, L lock, ticket or condition, O other"),
    spec(Column::Wait, "wait", "wait", 6).means("seconds per second that operations waited inside the server, for a processor, the disk, a lock (--split)"),
    spec(Column::Since, "since", "since", 12).means("against the baseline: new, or slower and by how much"),
    spec(Column::Server, "server", "server", 21).means("server that received the operation"),
    spec(Column::Role, "role", "role", 7).means("served: a client asked; issued: another server did"),
    spec(Column::Class, "class", "class", 11).means("user, internal, monitoring, replication or waiting"),
    spec(Column::Command, "command", "command", 11).means("command"),
    spec(Column::Namespace, "namespace", "namespace", 14).means("database and collection"),
    spec(Column::Shape, "shape", "shape", 16).means("query shape: the query without its values"),
    spec(Column::App, "app", "application", 20).means("application, as the client's hello names it"),
    spec(Column::Client, "client", "client", 20).means("client address: where the connection comes from"),
];

impl Column {
    /// All columns, in the order of display.
    pub const ALL: [Self; SPECS.len()] = {
        let mut all = [Self::Count; SPECS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = SPECS[at].column;
            at += 1;
        }
        all
    };

    pub(super) const fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    /// The stable name, as `--sort` takes it.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The column of that name, or with that heading. Case does not matter, nor `_` for `-`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase().replace('_', "-");
        let named = Self::ALL.into_iter().find(|column| column.name() == name);
        named.or_else(|| Self::ALL.into_iter().find(|column| column.title() == name))
    }

    /// The heading.
    pub const fn title(self) -> &'static str {
        self.spec().title
    }

    /// What it means, for help and documentation.
    pub const fn meaning(self) -> &'static str {
        self.spec().meaning
    }

    /// Whether it holds figures, which stand at the right and are sorted with the largest first.
    pub const fn is_figure(self) -> bool {
        self as usize <= Self::Since as usize
    }

    /// Whether the figure is scaled up from a sample.
    pub const fn is_scaled(self) -> bool {
        matches!(
            self,
            Self::Count
                | Self::Calls
                | Self::Load
                | Self::In
                | Self::Out
                | Self::Errors
                | Self::InFlight
                | Self::Wait
        )
    }

    /// The cell of a column that holds a name.
    pub(super) fn label(self, row: &ReportRow<'_>, form: Form) -> String {
        let key = |of: fn(&RowKey) -> String| match &row.key {
            ReportKey::Shape { key, .. } => of(key),
            _ => UNKNOWN.to_string(),
        };
        match self {
            Self::Server => key(|key| server_name(key.server)),
            Self::Role => key(|key| key.role.name().to_string()),
            Self::Class => key(|key| key.class.name().to_string()),
            Self::Command => row.command().unwrap_or(UNKNOWN).to_string(),
            Self::Namespace => row.namespace().unwrap_or_else(|| UNKNOWN.to_string()),
            Self::Shape => row.shape().map_or_else(
                || UNKNOWN.to_string(),
                |shape| {
                    let (text, cut) = (form.of(shape), if shape.cut { "…" } else { "" });
                    match &row.key {
                        ReportKey::Shape { key, .. } if key.order.0 != 0 => {
                            format!("{text}{cut} [{}]", key.order)
                        }
                        _ => format!("{text}{cut}"),
                    }
                },
            ),
            Self::App => match &row.key {
                ReportKey::App(app) if app.driver.is_empty() => app.label(),
                ReportKey::App(app) => format!("{}  {} {}", app.label(), app.driver, app.driver_version),
                _ => "other".to_string(),
            },
            Self::Client => match &row.key {
                ReportKey::Client(ip) => ip.to_string(),
                _ => "other".to_string(),
            },
            _ => String::new(),
        }
    }

    /// The figure by which rows are sorted; `None` when it is not known.
    fn figure(self, row: &ReportRow<'_>, elapsed_ns: u64) -> Option<f64> {
        let stats = &row.stats;
        let ns = |ns: Option<u64>| ns.map(|ns| ns as f64);
        match self {
            Self::Count => Some(stats.figures.calls as f64),
            Self::Calls => stats.rates.calls,
            Self::Load => row.load_with_waiting(elapsed_ns),
            Self::P50 => ns(stats.quantiles.p50),
            Self::P95 => ns(stats.quantiles.p95),
            Self::P99 => ns(stats.quantiles.p99),
            Self::P999 => ns(stats.quantiles.p999),
            Self::Max => ns(stats.quantiles.max),
            Self::In => stats.rates.request_bytes,
            Self::Out => stats.rates.response_bytes,
            Self::Docs => stats.rates.docs_per_call(),
            Self::Errors => stats.figures.known_errors().map(|count| count as f64),
            Self::InFlight => stats.in_flight.map(|InFlightRow { count, .. }| count as f64),
            Self::Oldest => ns(stats.in_flight.and_then(|waiting| waiting.oldest_ns)),
            Self::Tls => stats.figures.tls.mean(),
            Self::Split | Self::Wait => row.waited(),
            Self::Since => row.against.and_then(|against| match against.status {
                BaselineStatus::New => Some(f64::MAX),
                BaselineStatus::Slower => against.shift.map(|shift| shift.factor()),
                BaselineStatus::Same => Some(0.0),
                BaselineStatus::Known => None,
            }),
            _ => None,
        }
    }
}

/// The order of rows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sort {
    /// The column: figures with the largest first, names by alphabet. Unknown values come last.
    pub column: Column,
    /// In reverse order; unknown values stay last.
    pub reverse: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Self { column: Column::Load, reverse: false }
    }
}

impl Sort {
    /// Sorts rows; those that are equal by calls, then by name, so that the order does not depend on
    /// how they were gathered.
    pub(crate) fn apply(self, rows: &mut [ReportRow<'_>], form: Form, elapsed_ns: u64) {
        let Self { column, reverse } = self;
        let turn = |order: Ordering| if reverse { order.reverse() } else { order };
        let name = |row: &ReportRow<'_>| {
            let labels = [Column::Namespace, Column::Command, Column::Shape, Column::App, Column::Client];
            labels.map(|column| column.label(row, form))
        };
        if column.is_figure() {
            rows.sort_by(|a, b| {
                match (column.figure(a, elapsed_ns), column.figure(b, elapsed_ns)) {
                    (Some(a), Some(b)) => turn(b.total_cmp(&a)),
                    (a, b) => b.is_some().cmp(&a.is_some()),
                }
                .then_with(|| b.stats.figures.calls.cmp(&a.stats.figures.calls))
                .then_with(|| name(a).cmp(&name(b)))
                .then(a.identity.cmp(&b.identity))
            });
        } else {
            rows.sort_by_cached_key(|row| (name(row), row.identity));
            rows.sort_by(|a, b| turn(column.label(a, form).cmp(&column.label(b, form))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name_and_by_its_heading() {
        for column in Column::ALL {
            assert_eq!(column.spec().column, column);
            assert_eq!(Column::from_name(column.name()), Some(column));
            assert_eq!(Column::from_name(&column.name().to_uppercase()), Some(column));
            // `calls` heads the count of a summary and names the rate.
            let by_title = Column::from_name(column.title());
            assert!(by_title == Some(column) || column == Column::Count, "{}", column.title());
        }
        assert_eq!(Column::from_name("in_flight"), Some(Column::InFlight));
        assert_eq!(Column::from_name("unknown"), None);
    }
}
