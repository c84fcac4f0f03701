//! The report of logs, profiles and captures: text, JSON (which the web page draws) and CSV.
//!
//! A [`DigestView`] chooses and sorts the rows of a [`Digest`]; every share, mean and quantile comes from it.

mod answer;
mod csv;
mod index_fields;
pub mod index_hint;
pub(crate) mod json;
mod log_notices;
pub mod remarks;
pub mod saved;
mod text;

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};

pub use csv::csv;
pub use json::json;
use serde::Serialize;
pub use sonar_core::Source;
use sonar_core::Sum;
use sonar_core::figures::Figures;
use sonar_core::history::Span;
use sonar_core::{Coverage, Digest, Identity, LogNotices, Reading, Role, Row, RowTotals, Subject, Timestamp};
pub use text::text;
use ts_rs::TS;

use crate::kit::{self, About, Count, Hidden, Percent, Reason, Zone, plural, sparkline};
use crate::queries::Form;

/// The figure by which rows are sorted, the largest first.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum RowOrder {
    #[default]
    Time,
    Calls,
    Mean,
    P50,
    P95,
    P99,
    Max,
    Keys,
    Examined,
    Returned,
    Ratio,
    Yields,
    Locks,
    Conflicts,
    Read,
    Bytes,
    Errors,
    First,
    Last,
    Waits,
    Queued,
    Concern,
    Shards,
    Spilled,
}

/// All orders with their stable names, in the order of [`RowOrder`].
const ORDERS: [(RowOrder, &str); 24] = [
    (RowOrder::Time, "time"),
    (RowOrder::Calls, "calls"),
    (RowOrder::Mean, "mean"),
    (RowOrder::P50, "p50"),
    (RowOrder::P95, "p95"),
    (RowOrder::P99, "p99"),
    (RowOrder::Max, "max"),
    (RowOrder::Keys, "keys"),
    (RowOrder::Examined, "examined"),
    (RowOrder::Returned, "returned"),
    (RowOrder::Ratio, "ratio"),
    (RowOrder::Yields, "yields"),
    (RowOrder::Locks, "locks"),
    (RowOrder::Conflicts, "conflicts"),
    (RowOrder::Read, "read"),
    (RowOrder::Bytes, "bytes"),
    (RowOrder::Errors, "errors"),
    (RowOrder::First, "first"),
    (RowOrder::Last, "last"),
    (RowOrder::Waits, "waits"),
    (RowOrder::Queued, "queued"),
    (RowOrder::Concern, "concern"),
    (RowOrder::Shards, "shards"),
    (RowOrder::Spilled, "spilled"),
];

impl RowOrder {
    /// The stable names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ORDERS.iter().map(|(_, name)| *name)
    }

    /// The stable name.
    pub const fn name(self) -> &'static str {
        ORDERS[self as usize].1
    }

    /// From its stable name or the other one. Case does not matter.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        ORDERS.iter().map(|(one, _)| *one).find(|one| one.name() == name || one.other_name() == Some(&name))
    }

    /// Another name: the heading of its column in the text report, or an earlier name.
    const fn other_name(self) -> Option<&'static str> {
        match self {
            Self::Examined => Some("docs"),
            Self::Returned => Some("ret"),
            Self::Ratio => Some("ex/ret"),
            Self::Errors => Some("err"),
            _ => None,
        }
    }

    fn figure(self, row: &Row) -> Option<f64> {
        let (figures, server) = (row.figures(), &row.server().totals.sums);
        let quantile = |q| figures.latency.quantile_ns(q).map(|ns| ns as f64);
        let total = |sum: Sum| sum.get().map(|total| total as f64);
        let known = |at: Timestamp| at.is_known().then_some(at.unix_ns() as f64);
        match self {
            Self::Time => Some(figures.latency.sum_ns() as f64),
            Self::Calls => Some(figures.calls as f64),
            Self::Mean => mean_ns(figures),
            Self::P50 => quantile(0.5),
            Self::P95 => quantile(0.95),
            Self::P99 => quantile(0.99),
            Self::Max => figures.latency.max_ns().map(|ns| ns as f64),
            Self::Keys => total(server.keys_examined),
            Self::Examined => total(server.docs_examined),
            Self::Returned => total(figures.returned),
            Self::Ratio => row.examined_per_returned(),
            Self::Yields => total(server.yields),
            Self::Locks => total(server.lock_wait_us),
            Self::Conflicts => total(server.write_conflicts),
            Self::Read => total(server.storage_read_bytes),
            Self::Bytes => total(figures.response_bytes),
            Self::Errors => figures.known_errors().map(|count| count.max(figures.failed) as f64),
            // The earliest first.
            Self::First => known(figures.first_seen).map(|at| -at),
            Self::Last => known(figures.last_seen),
            Self::Waits => {
                let waits = server.waits();
                (!waits.is_empty()).then(|| waits.iter().map(|wait| wait.total_ns as f64).sum())
            }
            Self::Queued => total(server.queued_us),
            Self::Concern => total(server.write_concern_us),
            Self::Shards => total(server.remote_wait_us),
            Self::Spilled => total(server.spilled_bytes),
        }
    }
}

/// Mean latency in nanoseconds; `None` when there is none.
pub fn mean_ns(figures: &Figures) -> Option<f64> {
    crate::kit::mean_ns(&figures.latency)
}

/// Which rows of a digest are shown, and how.
#[derive(Clone, Debug, Default)]
pub struct ViewOptions {
    /// The order of rows.
    pub sort: RowOrder,
    /// The most rows.
    pub limit: Option<usize>,
    /// Rows that do not hold this are left out; case does not matter. Empty for all.
    pub filter: String,
    /// Which text of a shape.
    pub form: Form,
    /// In which zone times are shown.
    pub zone: Zone,
}

/// What was read of one source, where a report has several.
#[derive(Clone, Debug)]
pub struct SourceSummary {
    /// Which.
    pub source: Source,
    /// The names of its files.
    pub files: Vec<String>,
    /// Each counter that is not zero: its name, and what it counts.
    pub counters: Vec<(&'static str, u64)>,
    /// What could not be shown in full, likewise.
    pub losses: Vec<(&'static str, u64)>,
    /// The same in words.
    pub losses_in_words: Vec<String>,
    /// What was recognised as something else, or left out as asked, in words.
    pub unread: Vec<String>,
    /// What was read but is not known in full, in words.
    pub in_part: Vec<String>,
    /// A file was cut or damaged.
    pub damaged: bool,
}

impl SourceSummary {
    /// Of a source that counts these: name, meaning, value.
    pub fn new<'c>(
        source: Source,
        files: Vec<String>,
        counters: impl Iterator<Item = (&'static str, &'c str, u64)>,
        losses: impl Iterator<Item = (&'static str, &'c str, u64)>,
    ) -> Self {
        let counters = counters.filter(|(_, _, count)| *count > 0);
        let losses: Vec<_> = losses.collect();
        Self {
            losses_in_words: kit::counted_in_words(losses.iter().copied()),
            source,
            files,
            counters: counters.map(|(name, _, count)| (name, count)).collect(),
            losses: losses.into_iter().map(|(name, _, count)| (name, count)).collect(),
            unread: Vec::new(),
            in_part: Vec::new(),
            damaged: false,
        }
    }
}

/// What was not read, or is not known in full.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, TS)]
pub struct IncompletePart {
    /// `not read`, `left out as asked`, or `known in part`.
    pub way: &'static str,
    /// What, in words, one counter each.
    pub what: Vec<String>,
}

/// Indexes that exist, by namespace: fields and directions of each. A namespace that is not in it is not
/// known.
pub type Indexes = HashMap<String, Vec<Vec<(String, i8)>>>;

/// A digest, ready to be written.
pub struct DigestView<'a> {
    /// The digest.
    pub digest: &'a Digest,
    /// Where it came from; of several, the source that knows latencies best.
    pub source: Source,
    /// What was read of each source, where there are several; empty otherwise.
    pub summaries: &'a [SourceSummary],
    /// What was read, and what was not; `None` where the source counts otherwise.
    pub reading: Option<&'a Reading>,
    /// What was captured, and what was lost; `None` except for the wire.
    pub coverage: Option<&'a Coverage>,
    /// What a log tells beside operations.
    pub notices: Option<&'a LogNotices>,
    /// Indexes that exist, where a server was asked; no index is hinted at where one of them serves.
    pub indexes: Option<&'a Indexes>,
    /// Which text of a shape.
    pub form: Form,
    /// In which zone times are shown.
    pub zone: Zone,
    /// What a reader must know before the figures, in sentences.
    pub notes: Vec<String>,
    /// Files, servers or interfaces that were read.
    pub sources: Vec<String>,
    /// The host of the operations, where the reader knows it; else what a log says of it.
    pub host: Option<String>,
    /// Rows that do not hold this are left out; empty for all.
    pub filter: String,
    /// Operations that are not in the digest, because their class or role is not selected.
    pub hidden: Hidden,
    /// How many operations each sampled one stands for.
    pub sample: u32,
    /// The rows that are shown, in order, each with its index in the digest.
    pub rows: Vec<(usize, &'a Row)>,
    /// The same before the limit.
    pub matching: Vec<(usize, &'a Row)>,
    /// How many there were before the limit.
    pub rows_total: usize,
    /// What all rows of the digest add up to.
    pub totals: RowTotals,
}

impl<'a> DigestView<'a> {
    /// Chooses and sorts rows.
    pub fn new(digest: &'a Digest, source: Source, wanted: &ViewOptions) -> Self {
        let needle = wanted.filter.to_lowercase();
        let mut rows: Vec<_> = digest
            .rows()
            .iter()
            .enumerate()
            .filter(|(_, row)| needle.is_empty() || holds(row, &needle))
            .collect();
        rows.sort_by(|(_, a), (_, b)| {
            let by = match (wanted.sort.figure(a), wanted.sort.figure(b)) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            };
            // Equal ones in an order that does not depend on how they were gathered.
            let then =
                || b.figures().calls.cmp(&a.figures().calls).then_with(|| identity(a).cmp(&identity(b)));
            if by == Ordering::Equal { then() } else { by }
        });
        let rows_total = rows.len();
        let matching = rows.clone();
        rows.truncate(wanted.limit.unwrap_or(usize::MAX));
        Self {
            digest,
            source,
            summaries: &[],
            reading: None,
            coverage: None,
            notices: None,
            indexes: None,
            form: wanted.form,
            zone: wanted.zone.clone(),
            notes: Vec::new(),
            sources: Vec::new(),
            host: None,
            filter: wanted.filter.clone(),
            hidden: Hidden::default(),
            sample: 1,
            rows,
            matching,
            rows_total,
            totals: RowTotals::of(digest),
        }
    }

    /// With what was read and what was not, and the notes about that.
    pub fn with_reading(mut self, reading: Option<&'a Reading>) -> Self {
        self.reading = reading;
        self.notes.extend(reading.into_iter().flat_map(notes));
        self
    }

    /// All operations that the rows do not show, not scaled.
    pub fn left_out(&self) -> Hidden {
        let mut hidden = self.hidden.clone();
        let matching: HashSet<usize> = self.matching.iter().map(|(at, _)| *at).collect();
        let filtered = self.digest.rows().iter().enumerate().filter(|(at, _)| !matching.contains(at));
        let beyond = self.matching.iter().skip(self.rows.len());
        let parts = filtered
            .map(|(_, row)| (Reason::Filter, row))
            .chain(beyond.map(|(_, row)| (Reason::Limit, *row)));
        for (reason, row) in parts {
            let class = matches!(row.subject, Subject::Shape { .. }).then_some(row.class);
            hidden.add(reason, class, row.figures().calls / u64::from(self.sample.max(1)));
        }
        hidden
    }

    /// Where it comes from.
    pub fn about(&self) -> About {
        let host = self.host.clone().or_else(|| self.notices.and_then(hosts));
        let totals = &self.totals.figures;
        let span =
            totals.first_seen.is_known().then_some(Span { from: totals.first_seen, to: totals.last_seen });
        About::new(host, self.sources.clone(), span)
    }

    /// What could not be shown in full, by reason: names and counts.
    pub fn losses(&self) -> Vec<(&'static str, u64)> {
        let reading = self.reading.into_iter().flat_map(|reading| reading.losses());
        let coverage = self.coverage.into_iter().flat_map(|coverage| coverage.losses());
        let sources = self.summaries.iter().flat_map(|source| source.losses.iter().copied());
        reading.chain(coverage).map(|(name, _, count)| (name, count)).chain(sources).collect()
    }

    /// The same in words.
    pub fn losses_in_words(&self) -> Vec<String> {
        let reading = self.reading.into_iter().flat_map(|reading| kit::counted_in_words(reading.losses()));
        let coverage = self.coverage.into_iter().flat_map(kit::losses);
        let sources = self.summaries.iter().flat_map(|source| source.losses_in_words.iter().cloned());
        reading.chain(coverage).chain(sources).collect()
    }

    /// What was not read, although nothing of it was lost, and what is not known in full. Logs and profiles count nothing of
    /// that kind.
    pub fn incomplete(&self) -> Vec<IncompletePart> {
        let parts = match self.coverage {
            Some(coverage) => {
                let words = |counters: Vec<_>| kit::in_words(coverage, counters.into_iter());
                vec![
                    ("not read", words(coverage.unread().collect())),
                    ("left out as asked", words(coverage.skipped().collect())),
                    ("known in part", words(coverage.in_part().collect())),
                ]
            }
            None => {
                let words = |of: fn(&SourceSummary) -> &[String]| self.summaries.iter().flat_map(of).cloned();
                vec![
                    ("not read", words(|source| &source.unread).collect()),
                    ("known in part", words(|source| &source.in_part).collect()),
                ]
            }
        };
        let has_any = |(_, what): &(&str, Vec<String>)| !what.is_empty();
        parts.into_iter().filter(has_any).map(|(way, what)| IncompletePart { way, what }).collect()
    }

    /// Whether a row is in no total.
    fn is_beside(&self, row: &Row) -> bool {
        self.totals.leaves_out(row, self.digest.settings.by)
    }

    /// Share of the time of all operations, 0 to 1; for a row that is in no total, of those of its source.
    pub fn share(&self, row: &Row) -> f64 {
        let all = match row.sources().next().and_then(|source| self.digest.total.observed_by(source)) {
            Some(of) if self.is_beside(row) => of.figures.latency.sum_ns(),
            _ => self.totals.figures.latency.sum_ns(),
        };
        if all == 0 { 0.0 } else { row.figures().latency.sum_ns() as f64 / all as f64 }
    }

    /// The same to be shown; `None` if the latency of no operation of the row is known.
    pub fn known_share(&self, row: &Row) -> Option<f64> {
        row.figures().known_latency_ns().map(|_| self.share(row))
    }
}

/// The hosts that a log says its servers started on.
pub fn hosts(notices: &LogNotices) -> Option<String> {
    let hosts: BTreeSet<&str> =
        notices.starts.iter().map(|start| &*start.host).filter(|host| !host.is_empty()).collect();
    (!hosts.is_empty()).then(|| hosts.into_iter().collect::<Vec<_>>().join(", "))
}

/// From this share of unrecognised lines on, a note stands above the report.
const LARGE_UNKNOWN: f64 = 0.01;

/// What a reader must know about the input before believing the figures.
pub fn notes(reading: &Reading) -> Vec<String> {
    let lines = reading.lines - reading.lines_empty.min(reading.lines);
    let share = |count: u64, all: u64| count as f64 / all.max(1) as f64;
    let note = |count: u64, all: u64, what: &str| {
        format!(
            "{} of {} {what} ({:.1}): the figures below are of the others.",
            Count(count as f64),
            Count(all as f64),
            Percent(share(count, all))
        )
    };
    let mut notes = Vec::new();
    if reading.lines_malformed > 0 {
        notes.push(note(reading.lines_malformed, lines, "lines look like MongoDB's but could not be parsed"));
    }
    let unknown = reading.lines_unknown + reading.lines_too_long;
    if share(unknown, lines) >= LARGE_UNKNOWN {
        notes.push(note(unknown, lines, "lines are not lines of a log"));
    }
    if reading.documents_malformed > 0 {
        notes.push(note(reading.documents_malformed, reading.documents, "documents could not be parsed"));
    }
    notes
}

/// What a reader must know about weights from a file whose server is not known.
pub fn assumed_weights(reading: &Reading) -> Option<String> {
    (reading.entries_weighted > 0).then(|| {
        format!(
            "Percona Server's rateLimit is in {}, and each of them counts for as many operations. That is assumed: \
             Percona Server 4.4 before 4.4.8-9 writes it but profiles every operation (PSMDB-876), and then these \
             figures are too high.",
            plural(Count(reading.entries_weighted as f64), "entry")
        )
    })
}

fn holds(row: &Row, needle: &str) -> bool {
    let (command, namespace, text) = names(row, Form::Typed);
    let id = match &row.subject {
        Subject::Shape { shape, .. } => shape.id.to_string(),
        _ => String::new(),
    };
    [command, namespace, text, id].iter().any(|text| text.to_lowercase().contains(needle))
}

fn identity(row: &Row) -> (String, String, String, u64) {
    let (command, namespace, text) = names(row, Form::Typed);
    let id = match &row.subject {
        Subject::Shape { shape, order, .. } => shape.id.0 ^ order.0.rotate_left(1),
        _ => 0,
    };
    (namespace, command, text, id)
}

/// What the application of a connection is called that was open before the capture.
const JOINED_LATE: &str = "application unknown (connected before the capture)";

/// Command, namespace and text of a row; empty where it has none.
pub fn names(row: &Row, form: Form) -> (String, String, String) {
    match &row.subject {
        Subject::Shape { identity, shape, .. } => {
            let text = form.of(shape);
            let text = match identity {
                Identity::Exact => text.to_owned(),
                Identity::Partial => format!("(partial) {text}"),
                Identity::Ambiguous => "(ambiguous)".to_owned(),
                Identity::Unknown => "(statements not said)".to_owned(),
            };
            let text = match row.role {
                Role::Served => text,
                Role::Issued => format!("(sent by a router) {text}"),
            };
            (shape.command.to_string(), shape.namespace(), text)
        }
        Subject::Namespace(database, collection) => {
            (String::new(), sonar_core::shape::namespace(database, collection), String::new())
        }
        Subject::App(app) if app.name.is_empty() && app.joined_late => {
            (String::new(), String::new(), JOINED_LATE.to_owned())
        }
        Subject::App(app) => (String::new(), String::new(), app.label()),
        Subject::Plan(plan) if plan.is_empty() => (String::new(), String::new(), "(no plan)".to_owned()),
        Subject::Plan(plan) => (String::new(), String::new(), plan.to_string()),
        Subject::Client(ip) if ip.is_unspecified() => {
            (String::new(), String::new(), "(client unknown)".to_owned())
        }
        Subject::Client(ip) => (String::new(), String::new(), ip.to_string()),
        Subject::User(user) if user.is_empty() => (String::new(), String::new(), "(no user)".to_owned()),
        Subject::Comment(text) if text.is_empty() => {
            (String::new(), String::new(), "(no comment)".to_owned())
        }
        Subject::User(text) | Subject::Comment(text) => (String::new(), String::new(), text.to_string()),
        Subject::Other => (String::new(), String::new(), "other".to_owned()),
    }
}

/// Calls over the span of the whole digest, in at most `columns` characters.
fn calls_over_time(view: &DigestView<'_>, row: &Row, columns: usize) -> String {
    let Some((from, to)) = view.totals.figures.timeline().span() else { return String::new() };
    let parts = row.figures().timeline().resampled(from, to, columns);
    let most = parts.iter().map(|part| part.calls).max().unwrap_or(0);
    sparkline(parts.iter().map(|part| part.calls as f64), most as f64)
}

/// The plan that most operations of a row had; empty where none is known.
pub fn main_plan(row: &Row) -> &str {
    let most = row.server().plans.iter().max_by_key(|(_, used)| used.calls);
    most.map_or("", |(summary, _)| summary)
}

/// What the operations of a row waited for longest, as its share of their time: `write concern 99.6%`. Empty where
/// that is below one percent.
pub fn main_wait(row: &Row) -> String {
    let time_ns = row.executed().map_or(row.figures(), |(_, figures)| figures).latency.sum_ns();
    match row.server().totals.sums.waits().first() {
        Some(wait) if time_ns > 0 && u128::from(wait.total_ns) * 100 >= time_ns => {
            let share = (wait.total_ns as f64 / time_ns as f64).min(1.0);
            format!("{} {:.1}", wait.words, Percent(share))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ORDERS, RowOrder};

    #[test]
    fn an_order_is_found_by_its_name_and_by_its_heading() {
        for (order, name) in ORDERS {
            assert_eq!((order.name(), RowOrder::from_name(name)), (name, Some(order)));
        }
        for (heading, by) in [
            ("docs", RowOrder::Examined),
            ("ret", RowOrder::Returned),
            ("ex/ret", RowOrder::Ratio),
            ("ERR", RowOrder::Errors),
        ] {
            assert_eq!(RowOrder::from_name(heading), Some(by));
        }
        assert_eq!(RowOrder::from_name("taste"), None);
    }
}
