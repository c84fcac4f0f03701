//! The rows of a report, and the derived figures in them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use sonar_core::baseline::BaselineResult;
use sonar_core::figures::{Breakdown, Figures, Share};
use sonar_core::operation::{InFlightOperations, WaitingOperation};
use sonar_core::row::{Row, RowKey};
use sonar_core::time::NS_PER_S;
use sonar_core::time_split::{RowSplit, TimePart};
use sonar_core::{Application, Class, Endpoint, ShapeId, ShapeInfo, Source, Window};

/// Rates of one row over one span, scaled up from a sample. A rate is `None` if it is unknown: its source was not observed,
/// or does not have the figure, or not the direction of the wire that shows it.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Rates {
    /// Operations that ended, per second.
    pub calls: Option<f64>,
    /// Seconds of latency per second: how many clients were waiting, on average.
    pub load: Option<f64>,
    /// Errors of all codes, per second.
    pub errors: Option<f64>,
    /// Bytes of requests on the wire, per second.
    pub request_bytes: Option<f64>,
    /// Bytes of replies on the wire, per second.
    pub response_bytes: Option<f64>,
    /// Documents returned per call, over the calls of which that is known; `None` when it is known of
    /// none. Not scaled.
    pub returned_per_call: Option<f64>,
    /// Documents inserted, changed or deleted per call, likewise.
    pub affected_per_call: Option<f64>,
}

impl Rates {
    /// The rates of `figures`, which were gathered in `elapsed_ns` (0: nothing was observed, and no rate is known) from
    /// one connection in `sample`.
    pub fn of(figures: &Figures, elapsed_ns: u64, sample: u32) -> Self {
        let per_second =
            (elapsed_ns > 0).then(|| f64::from(sample.max(1)) * NS_PER_S as f64 / elapsed_ns as f64);
        let rate = |count: Option<f64>| Some(count? * per_second?);
        let whole = |count: Option<u64>| rate(count.map(|count| count as f64));
        Self {
            calls: whole(Some(figures.calls)),
            load: rate(figures.known_latency_ns().map(|ns| ns as f64 / NS_PER_S as f64)),
            errors: whole(figures.known_errors()),
            request_bytes: whole(figures.known_request_bytes()),
            response_bytes: whole(figures.known_response_bytes()),
            returned_per_call: figures.returned.mean(),
            affected_per_call: figures.affected.mean(),
        }
    }

    /// Adds the rates of other operations, as far as they are known. Documents per call stay those of the first.
    fn add(&mut self, other: Self) {
        let add = |mine: &mut Option<f64>, theirs: Option<f64>| {
            if let Some(theirs) = theirs {
                *mine = Some(mine.unwrap_or(0.0) + theirs);
            }
        };
        add(&mut self.calls, other.calls);
        add(&mut self.load, other.load);
        add(&mut self.errors, other.errors);
        add(&mut self.request_bytes, other.request_bytes);
        add(&mut self.response_bytes, other.response_bytes);
    }

    /// The rates of rows, each of which counts by the time that its own source was observed.
    pub(super) fn of_rows<'r>(
        rows: impl Iterator<Item = &'r Row> + Clone,
        all: &Figures,
        window: &Window,
    ) -> Self {
        let source = |row: &Row| row.sources().next().unwrap_or(Source::Wire);
        let first = rows.clone().next().map_or(Source::Wire, source);
        if rows.clone().all(|row| source(row) == first) {
            // Of no operation there is no source: it is known of any that was observed.
            let observed = |source: &Source| window.observed_ns(*source) > 0;
            let first = match rows.clone().next() {
                None => Source::ALL.into_iter().find(observed).unwrap_or(first),
                Some(_) => first,
            };
            return Self::of(all, window.observed_ns(first), window.sample);
        }
        let mut rates = Self {
            returned_per_call: all.returned.mean(),
            affected_per_call: all.affected.mean(),
            ..Self::default()
        };
        for row in rows {
            rates.add(Self::of(row.figures(), window.observed_ns(source(row)), window.sample));
        }
        rates
    }

    /// Documents per call for a column that has room for one figure: those returned, and where
    /// nothing is, those affected.
    pub fn docs_per_call(&self) -> Option<f64> {
        self.returned_per_call.or(self.affected_per_call)
    }
}

/// Quantiles of latency in nanoseconds; each `None` when no operation had a latency.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Quantiles {
    /// Median.
    pub p50: Option<u64>,
    /// 95th percentile.
    pub p95: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    pub p999: Option<u64>,
    /// The longest, exact.
    pub max: Option<u64>,
}

impl Quantiles {
    /// The quantiles of `figures`: at most one bucket (2.2 %) above the truth, never below it.
    pub fn of(figures: &Figures) -> Self {
        let at = |q| figures.latency.quantile_ns(q);
        Self { p50: at(0.50), p95: at(0.95), p99: at(0.99), p999: at(0.999), max: figures.latency.max_ns() }
    }
}

/// Operations that have not ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct InFlightRow {
    /// How many; not scaled.
    pub count: u64,
    /// Age of the oldest in nanoseconds; `None` when there is none.
    pub oldest_ns: Option<u64>,
}

impl InFlightRow {
    pub(super) fn add(&mut self, more: &InFlightOperations) {
        self.count += more.count;
        if more.count > 0 {
            self.oldest_ns = self.oldest_ns.max(Some(more.oldest_ns));
        }
    }
}

/// The figures of a row, or of all rows together.
#[derive(Clone, Debug)]
pub struct Stats<'a> {
    /// What was counted; not scaled.
    pub figures: Cow<'a, Figures>,
    /// Rates, scaled.
    pub rates: Rates,
    /// Quantiles of latency.
    pub quantiles: Quantiles,
    /// What had not ended at the end of the span; `None` where that is not known (by application, by
    /// client).
    pub in_flight: Option<InFlightRow>,
}

impl<'a> Stats<'a> {
    pub(super) fn new(figures: Cow<'a, Figures>, in_flight: Option<InFlightRow>, rates: Rates) -> Self {
        let quantiles = Quantiles::of(&figures);
        Self { figures, rates, quantiles, in_flight }
    }
}

/// Whose figures a row holds.
#[derive(Clone, Debug)]
pub enum ReportKey<'a> {
    /// A shape on a server.
    Shape {
        /// Server, role, class, shape, and order where rows are split by it. In [`Form::Plain`](super::Form::Plain)
        /// this is the first of the shapes of equal text.
        key: RowKey,
        /// The shape.
        shape: &'a Arc<ShapeInfo>,
    },
    /// A namespace.
    Namespace {
        /// Database; empty where messages named none.
        database: &'a str,
        /// Collection; empty for commands on a database or on the server.
        collection: &'a str,
    },
    /// An application.
    App(&'a Arc<Application>),
    /// A client address.
    Client(IpAddr),
    /// Applications or clients that did not fit into their table.
    Other,
}

/// One row of a report.
#[derive(Clone, Debug)]
pub struct ReportRow<'a> {
    /// Whose figures these are.
    pub key: ReportKey<'a>,
    /// The same for the same row in any report of the same kind, and most likely in no other.
    pub identity: u64,
    /// The figures.
    pub stats: Stats<'a>,
    /// How it compares with the baseline; `None` without a baseline, and where it cannot be judged.
    pub against: Option<BaselineResult>,
    /// Where the time of its operations went; `None` if no thread of the server was traced.
    pub split: Option<Cow<'a, RowSplit>>,
    /// Its oldest operations in flight whose threads were seen, the oldest first; at most four.
    pub in_progress: Vec<&'a WaitingOperation>,
    /// The rows of the window that it was made of.
    pub(super) members: Vec<&'a Row>,
    /// Classes and numbers of its operations in flight.
    pub(super) in_flight: Vec<(Class, u64)>,
}

impl<'a> ReportRow<'a> {
    /// The command, for rows by shape.
    pub fn command(&self) -> Option<&'a str> {
        match &self.key {
            ReportKey::Shape { shape, .. } => Some(&shape.command),
            _ => None,
        }
    }

    /// `db.collection`, for rows by shape and by namespace.
    pub fn namespace(&self) -> Option<String> {
        match &self.key {
            ReportKey::Shape { shape, .. } => Some(shape.namespace()),
            ReportKey::Namespace { database, collection: "" } => Some((*database).to_string()),
            ReportKey::Namespace { database, collection } => Some(format!("{database}.{collection}")),
            _ => None,
        }
    }

    /// The shape, for rows by shape.
    pub fn shape(&self) -> Option<&'a Arc<ShapeInfo>> {
        match &self.key {
            ReportKey::Shape { shape, .. } => Some(shape),
            _ => None,
        }
    }

    /// The distinct ordered ids seen. There may be more when this is at its cap
    /// ([`sonar_core::row::MAX_ORDERED_IDS`] for each shape).
    pub fn ordered_ids(&self) -> Vec<ShapeId> {
        let mut ids: Vec<_> = self.members.iter().flat_map(|row| row.ordered_ids.iter().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The distinct servers.
    pub fn servers(&self) -> Vec<Endpoint> {
        let members = self.members.iter().filter(|_| self.knows_members());
        let mut servers: Vec<_> = members.map(|row| row.server).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// The applications that called; `None` where it is not known.
    pub fn apps(&self) -> Option<Callers<'a, Arc<Application>>> {
        self.knows_members().then(|| Callers::of(self.members.iter().map(|row| &row.observed().apps)))
    }

    /// The client addresses that called, likewise.
    pub fn clients(&self) -> Option<Callers<'a, IpAddr>> {
        self.knows_members().then(|| Callers::of(self.members.iter().map(|row| &row.observed().clients)))
    }

    /// Calls `add` with the number of its operations of each class: those that ended and those in flight.
    pub(super) fn count_by_class(&self, mut add: impl FnMut(Class, u64)) {
        self.members.iter().for_each(|row| add(row.class, row.figures().calls));
        self.in_flight.iter().for_each(|(class, count)| add(*class, *count));
    }

    fn knows_members(&self) -> bool {
        matches!(self.key, ReportKey::Shape { .. } | ReportKey::Namespace { .. })
    }

    /// Seconds per second that its operations waited inside the server, scaled; `None` if that is not known.
    pub fn waited(&self) -> Option<f64> {
        let split = self.split.as_deref().filter(|split| split.operations > 0)?;
        let waited_ns = split.total_ns().saturating_sub(split.split[TimePart::Cpu]);
        let mean_ns = waited_ns as f64 / split.operations as f64;
        Some(self.stats.rates.calls? * mean_ns / NS_PER_S as f64)
    }

    /// Load for the order of rows: an operation in flight counts as if it ended now, as far as it lies
    /// within the span, so that what hangs is not at the bottom for not having ended. `None` if neither is known.
    pub(crate) fn load_with_waiting(&self, elapsed_ns: u64) -> Option<f64> {
        let oldest = self.stats.in_flight.and_then(|waiting| waiting.oldest_ns);
        let waiting = oldest.map(|ns| ns.min(elapsed_ns) as f64 / elapsed_ns.max(1) as f64);
        match (self.stats.rates.load, waiting) {
            (None, None) => None,
            (load, waiting) => Some(load.unwrap_or(0.0) + waiting.unwrap_or(0.0)),
        }
    }
}

/// Who called, with how much each.
#[derive(Clone, Debug)]
pub struct Callers<'a, K> {
    /// Callers by name: the most calls first, then in the order in which they appeared.
    pub entries: Vec<(&'a K, Share)>,
    /// Callers that a row has no room for, together.
    pub other: Share,
}

impl<'a, K: Hash + Eq> Callers<'a, K> {
    fn of<const CAP: usize>(members: impl Iterator<Item = &'a Breakdown<K, Share, CAP>>) -> Self {
        let (mut callers, mut index) =
            (Self { entries: Vec::new(), other: Share::default() }, HashMap::new());
        for shares in members {
            for (key, share) in shares.iter() {
                let at = *index.entry(key).or_insert(callers.entries.len());
                match callers.entries.get_mut(at) {
                    Some((_, sum)) => *sum += *share,
                    None => callers.entries.push((key, *share)),
                }
            }
            callers.other += shares.other;
        }
        callers.entries.sort_by_key(|(_, share)| std::cmp::Reverse(share.calls));
        callers
    }
}
