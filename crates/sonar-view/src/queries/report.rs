//! Derived figures, from the raw counters of a [`Window`].
//!
//! Raw and derived figures are different types: [`Figures`] only grow and merge, a [`WindowReport`] is made
//! of them for one look and thrown away. Every rate and quantile that any view shows comes from
//! [`Rates::of`] and [`Quantiles::of`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use sonar_core::baseline::{BaselineKey, BaselineQuery, BaselineResult};
use sonar_core::figures::{Breakdown, Figures, Share};
use sonar_core::operation::InFlightOperations;
use sonar_core::row::{Row, RowKey};
use sonar_core::time::NS_PER_S;
use sonar_core::{
    Application, Baseline, Class, CommandType, Coverage, Endpoint, Role, ShapeId, ShapeInfo, Subject,
    Timestamp, Window,
};

use super::selection::holds;
use super::{Form, Grouping, PacketOrigin, Selection, Silence};
use crate::kit::{Hidden, Reason};

/// `count` scaled up from a sample of one connection in `sample`.
pub const fn scaled(count: u64, sample: u32) -> u64 {
    count.saturating_mul(sample as u64)
}

/// Rates of one row over one span, scaled up from a sample.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Rates {
    /// Operations that ended, per second.
    pub calls: f64,
    /// Seconds of latency per second: how many clients were waiting, on average.
    pub load: f64,
    /// Errors of all codes, per second.
    pub errors: f64,
    /// Bytes of requests on the wire, per second.
    pub request_bytes: f64,
    /// Bytes of replies on the wire, per second.
    pub response_bytes: f64,
    /// Documents returned per call, over the calls of which that is known; `None` when it is known of
    /// none. Not scaled.
    pub returned_per_call: Option<f64>,
    /// Documents inserted, changed or deleted per call, likewise.
    pub affected_per_call: Option<f64>,
}

impl Rates {
    /// The rates of `figures`, which were gathered in `elapsed_ns` (0 is taken as 1) from one
    /// connection in `sample`.
    pub fn of(figures: &Figures, elapsed_ns: u64, sample: u32) -> Self {
        let per_second = f64::from(sample.max(1)) * NS_PER_S as f64 / elapsed_ns.max(1) as f64;
        Self {
            calls: figures.calls as f64 * per_second,
            load: figures.latency.sum_ns() as f64 / NS_PER_S as f64 * per_second,
            errors: figures.error_count() as f64 * per_second,
            request_bytes: figures.request_bytes as f64 * per_second,
            response_bytes: figures.response_bytes.total as f64 * per_second,
            returned_per_call: figures.returned.mean(),
            affected_per_call: figures.affected.mean(),
        }
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
    fn add(&mut self, more: &InFlightOperations) {
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
    fn new(figures: Cow<'a, Figures>, in_flight: Option<InFlightRow>, elapsed_ns: u64, sample: u32) -> Self {
        let rates = Rates::of(&figures, elapsed_ns, sample);
        let quantiles = Quantiles::of(&figures);
        Self { figures, rates, quantiles, in_flight }
    }
}

/// Whose figures a row holds.
#[derive(Clone, Debug)]
pub enum ReportKey<'a> {
    /// A shape on a server.
    Shape {
        /// Server, role, class, shape, and order where rows are split by it. In [`Form::Plain`]
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
    /// The rows of the window that it was made of.
    members: Vec<&'a Row>,
    /// Classes and numbers of its operations in flight.
    in_flight: Vec<(Class, u64)>,
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
    fn count_by_class(&self, mut add: impl FnMut(Class, u64)) {
        self.members.iter().for_each(|row| add(row.class, row.figures().calls));
        self.in_flight.iter().for_each(|(class, count)| add(*class, *count));
    }

    fn knows_members(&self) -> bool {
        matches!(self.key, ReportKey::Shape { .. } | ReportKey::Namespace { .. })
    }

    /// Load for the order of rows: an operation in flight counts as if it ended now, as far as it lies
    /// within the span, so that what hangs is not at the bottom for not having ended.
    pub(crate) fn load_with_waiting(&self, elapsed_ns: u64) -> f64 {
        let oldest = self.stats.in_flight.and_then(|waiting| waiting.oldest_ns).unwrap_or(0);
        self.stats.rates.load + oldest.min(elapsed_ns) as f64 / elapsed_ns.max(1) as f64
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

/// What the members of one row have in common.
#[derive(PartialEq, Eq, Hash)]
enum Alike<'a> {
    Shape(RowKey),
    Text {
        server: Endpoint,
        role: Role,
        class: Class,
        order: ShapeId,
        command: &'a str,
        namespace: (&'a str, &'a str),
        text: &'a str,
    },
    Namespace(&'a str, &'a str),
    App(&'a Arc<Application>),
    Client(IpAddr),
    Other,
}

/// A row while it is being gathered.
struct RowDraft<'a> {
    key: ReportKey<'a>,
    identity: u64,
    members: Vec<&'a Row>,
    waiting: InFlightRow,
    /// Classes and numbers of what `waiting` sums up.
    in_flight: Vec<(Class, u64)>,
}

#[derive(Default)]
struct ReportDraft<'a> {
    rows: Vec<RowDraft<'a>>,
    index: HashMap<Alike<'a>, usize>,
}

impl<'a> ReportDraft<'a> {
    fn row(&mut self, alike: Alike<'a>, key: impl FnOnce() -> ReportKey<'a>) -> &mut RowDraft<'a> {
        let Self { rows, index } = self;
        let mut hasher = DefaultHasher::new();
        alike.hash(&mut hasher);
        let at = *index.entry(alike).or_insert_with(|| {
            rows.push(RowDraft {
                key: key(),
                identity: hasher.finish(),
                members: Vec::new(),
                waiting: InFlightRow::default(),
                in_flight: Vec::new(),
            });
            rows.len() - 1
        });
        &mut rows[at]
    }

    /// The row of a shape on a server, under any grouping but by application and by client.
    fn shape_row(
        &mut self,
        by: Grouping,
        form: Form,
        key: RowKey,
        shape: &'a Arc<ShapeInfo>,
    ) -> &mut RowDraft<'a> {
        let order = if by == Grouping::Order { key.order } else { ShapeId(0) };
        let key = RowKey { order, ..key };
        let (database, collection) = (&*shape.database, &*shape.collection);
        match (by, form) {
            (Grouping::Namespace, _) => self.row(Alike::Namespace(database, collection), || {
                ReportKey::Namespace { database, collection }
            }),
            (_, Form::Typed) => self.row(Alike::Shape(key), || ReportKey::Shape { key, shape }),
            (_, Form::Plain) => {
                let RowKey { server, role, class, .. } = key;
                let namespace = (database, collection);
                let alike = Alike::Text {
                    server,
                    role,
                    class,
                    order,
                    command: &shape.command,
                    namespace,
                    text: &shape.plain,
                };
                self.row(alike, || ReportKey::Shape { key, shape })
            }
        }
    }
}

/// Derived figures of one window, for one look.
#[derive(Clone, Debug)]
pub struct WindowReport<'a> {
    /// Begin of the span.
    pub start: Timestamp,
    /// End of the span.
    pub end: Timestamp,
    /// Length of the span in nanoseconds, at least 1.
    pub elapsed_ns: u64,
    /// One connection in this many was captured, and rates are scaled by it.
    pub sample: u32,
    /// What was asked for.
    pub selection: &'a Selection,
    /// All rows of the chosen classes and role together, whatever the filters.
    pub totals: Stats<'a>,
    /// Of the same operations, how many of each type of command, in the order of [`CommandType::ALL`]. Not scaled.
    pub types: [u64; CommandType::ALL.len()],
    /// Of what is in flight in the chosen classes and role, what waits longest.
    pub longest_waiting: Option<&'a InFlightOperations>,
    /// What was lost or skipped in the span.
    pub coverage: &'a Coverage,
    /// The rows, sorted, at most the limit.
    pub rows: Vec<ReportRow<'a>>,
    /// How many rows there would be without the limit.
    pub rows_total: usize,
    /// What the selection leaves out.
    pub hidden: Hidden,
    /// Why there is nothing to show, where there is no row and nothing is left out; see [`WindowReport::explained`].
    pub silence: Option<Silence>,
    /// What a reader must know about the input: why it was not read in full, which log was of no use.
    pub notes: Vec<String>,
}

impl<'a> WindowReport<'a> {
    /// Derives the figures of `window` that `selection` asks for.
    pub fn new(window: &'a Window, selection: &'a Selection) -> Self {
        let (elapsed_ns, sample) = (window.length_ns(), window.sample.max(1));
        let wanted =
            || window.in_flight.iter().filter(|waiting| selection.wants(waiting.role, waiting.class));
        let mut totals = Figures::default();
        let mut waiting = InFlightRow::default();
        let mut hidden = Hidden::new(selection.role);
        hidden.snapped = window.coverage.messages_snapped;
        for row in window.shapes.iter() {
            match selection.hides(row.role, row.class) {
                None => totals.merge(row.figures()),
                Some(reason) => hidden.add(reason, row.class, row.figures().calls),
            }
        }
        for more in &window.in_flight {
            match selection.hides(more.role, more.class) {
                None => waiting.add(more),
                Some(reason) => hidden.add(reason, more.class, more.count),
            }
        }

        let gathered = match selection.by {
            Grouping::Shape | Grouping::Order | Grouping::Namespace => {
                gather_shapes(window, selection, &mut hidden)
            }
            Grouping::App => gather_groups(window.apps.iter(), selection, &mut hidden),
            Grouping::Client => gather_groups(window.clients.iter(), selection, &mut hidden),
        };
        let mut rows: Vec<ReportRow<'a>> =
            gathered.into_iter().map(|gathered| gathered.finish(elapsed_ns, sample)).collect();
        if let Some(baseline) = &selection.baseline {
            compare_with(baseline, &mut rows);
        }
        selection.sort.apply(&mut rows, selection.form, elapsed_ns);
        let rows_total = rows.len();
        for row in rows.drain(selection.limit.unwrap_or(usize::MAX).min(rows_total)..) {
            row.count_by_class(|class, operations| hidden.add(Reason::Limit, class, operations));
        }
        Self {
            start: window.start,
            end: window.end,
            elapsed_ns,
            sample,
            selection,
            totals: Stats::new(Cow::Owned(totals), Some(waiting), elapsed_ns, sample),
            types: window.types.totals(|role, class| selection.wants(role, class)),
            longest_waiting: wanted().filter(|more| more.count > 0).max_by_key(|more| more.oldest_ns),
            coverage: &window.coverage,
            rows,
            rows_total,
            hidden,
            silence: None,
            notes: Vec::new(),
        }
    }

    /// Where there is nothing to show, adds the reason, from the counters since the start.
    pub fn explained(mut self, since_start: &Coverage, origin: &PacketOrigin) -> Self {
        if self.rows.is_empty() && self.hidden.operations() == 0 {
            self.silence = Some(Silence::explain(since_start, origin));
        }
        self
    }

    /// `~` before figures that are scaled up from a sample, nothing otherwise.
    pub const fn mark(&self) -> &'static str {
        if self.sample > 1 { "~" } else { "" }
    }

    /// Whether the servers, the roles and the classes of the rows differ, so that a view has to show
    /// them.
    pub fn differing(&self) -> Differing {
        let mut keys = self.rows.iter().filter_map(|row| match &row.key {
            ReportKey::Shape { key, .. } => Some(key),
            _ => None,
        });
        let Some(first) = keys.next() else { return Differing::default() };
        keys.fold(Differing::default(), |differing, key| Differing {
            servers: differing.servers || key.server != first.server,
            roles: differing.roles || key.role != first.role,
            classes: differing.classes || key.class != first.class,
        })
    }
}

/// In what the keys of rows differ.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Differing {
    /// Several servers.
    pub servers: bool,
    /// Both roles.
    pub roles: bool,
    /// Several classes.
    pub classes: bool,
}

/// Compares all rows with the baseline at once, before a limit removes some: the test corrects for their number.
fn compare_with(baseline: &Baseline, rows: &mut [ReportRow<'_>]) {
    let names: Vec<Option<String>> = rows
        .iter()
        .map(|row| matches!(row.key, ReportKey::Namespace { .. }).then(|| row.namespace())?)
        .collect();
    let asked: Vec<_> = rows
        .iter()
        .zip(&names)
        .map(|(row, name)| {
            let which = match (&row.key, name) {
                (ReportKey::Shape { key, .. }, _) => BaselineKey::Shape(key.class, key.shape),
                (ReportKey::Namespace { .. }, Some(name)) => BaselineKey::Namespace(name),
                _ => return None,
            };
            // The row of a full table stands for many shapes.
            let is_other = matches!(which, BaselineKey::Shape(_, ShapeId(0)));
            (!is_other).then_some(BaselineQuery {
                which,
                latency: &row.stats.figures.latency,
                waiting_ns: row.stats.in_flight.and_then(|waiting| waiting.oldest_ns),
            })
        })
        .collect();
    let compared = baseline.compare(&asked);
    for (row, against) in rows.iter_mut().zip(compared) {
        row.against = against;
    }
}

fn gather_shapes<'a>(window: &'a Window, selection: &Selection, hidden: &mut Hidden) -> Vec<RowDraft<'a>> {
    let Selection { by, form, .. } = *selection;
    let mut gathering = ReportDraft::default();
    for row in window.shapes.iter().filter(|row| selection.wants(row.role, row.class)) {
        match selection.refuses_shape(row.shape()) {
            None => gathering.shape_row(by, form, row.key(), row.shape()).members.push(row),
            Some(reason) => hidden.add(reason, row.class, row.figures().calls),
        }
    }
    for waiting in window.in_flight.iter().filter(|waiting| selection.wants(waiting.role, waiting.class)) {
        let InFlightOperations { server, role, class, ref shape, .. } = *waiting;
        if let Some(reason) = selection.refuses_shape(shape) {
            hidden.add(reason, class, waiting.count);
            continue;
        }
        // Its order is not known: by order it has a row of its own, with no order.
        let key = RowKey { server, role, class, shape: shape.id, order: ShapeId(0) };
        let row = gathering.shape_row(by, form, key, shape);
        row.waiting.add(waiting);
        row.in_flight.push((class, waiting.count));
    }
    gathering.rows
}

fn gather_groups<'a>(
    groups: impl Iterator<Item = &'a Row>,
    selection: &Selection,
    hidden: &mut Hidden,
) -> Vec<RowDraft<'a>> {
    let mut gathering = ReportDraft::default();
    for group in groups {
        let name = || match &group.subject {
            Subject::App(app) => format!("{} {} {}", app.label(), app.driver, app.driver_version),
            Subject::Client(ip) => ip.to_string(),
            _ => "other".to_string(),
        };
        if !selection.wants(group.role, group.class) {
            continue;
        }
        if !selection.text.is_empty() && !holds(&name(), &selection.text) {
            hidden.add(Reason::Filter, group.class, group.figures().calls);
            continue;
        }
        let (alike, key) = match &group.subject {
            Subject::App(app) => (Alike::App(app), ReportKey::App(app)),
            Subject::Client(ip) => (Alike::Client(*ip), ReportKey::Client(*ip)),
            _ => (Alike::Other, ReportKey::Other),
        };
        gathering.row(alike, || key).members.push(group);
    }
    gathering.rows
}

impl<'a> RowDraft<'a> {
    fn finish(self, elapsed_ns: u64, sample: u32) -> ReportRow<'a> {
        let Self { key, identity, members, waiting, in_flight } = self;
        let mut parts = members.iter().map(|row| row.figures());
        let figures = match (parts.next(), parts.next()) {
            (None, _) => Cow::Owned(Figures::default()),
            (Some(only), None) => Cow::Borrowed(only),
            (Some(first), Some(second)) => {
                let mut sum = first.clone();
                [second].into_iter().chain(parts).for_each(|more| sum.merge(more));
                Cow::Owned(sum)
            }
        };
        let known = matches!(key, ReportKey::Shape { .. } | ReportKey::Namespace { .. });
        let stats = Stats::new(figures, known.then_some(waiting), elapsed_ns, sample);
        ReportRow { key, identity, stats, against: None, members, in_flight }
    }
}
