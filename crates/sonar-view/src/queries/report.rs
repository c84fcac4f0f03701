//! Derived figures, from the raw counters of a [`Window`].
//!
//! Raw and derived figures are different types: [`Figures`] only grow and merge, a [`WindowReport`] is made
//! of them for one look and thrown away. Every rate and quantile that any view shows comes from
//! [`Rates::of`] and [`Quantiles::of`].

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use sonar_core::baseline::{BaselineKey, BaselineQuery};
use sonar_core::figures::Figures;
use sonar_core::operation::{InFlightOperations, MAX_OLDEST, WaitingOperation};
use sonar_core::row::{Row, RowKey};
use sonar_core::shape::UNKNOWN;
use sonar_core::time_split::RowSplit;
use sonar_core::{
    Application, Baseline, Class, CommandType, Coverage, Endpoint, Role, ShapeId, ShapeInfo, Source, Subject,
    Timestamp, Window,
};

use super::grouping::{Form, Grouping};
use super::row::{InFlightRow, Rates, ReportKey, ReportRow, Stats};
use super::selection::{Selection, holds};
use super::server_state::ServerState;
use super::silence::{PacketOrigin, Silence, has_unread};
use crate::kit::{Count, Hidden, Reason, or_unknown};

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
    in_progress: Vec<&'a WaitingOperation>,
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
                in_progress: Vec::new(),
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
    /// How much of the span was observed, in nanoseconds; 0 if nothing was, and then no rate is known.
    pub elapsed_ns: u64,
    /// Length of the span in nanoseconds, at least 1.
    pub length_ns: u64,
    /// One connection in this many was captured, and rates are scaled by it.
    pub sample: u32,
    /// What was asked for.
    pub selection: &'a Selection,
    /// All rows of the chosen classes and role together, whatever the filters.
    pub totals: Stats<'a>,
    /// Of the same operations, how many of each type of command, in the order of [`CommandType::ALL`]. Not scaled. `None`
    /// if they are not known of the selected server alone, or the wire, which alone shows them, was not observed or could
    /// not be read.
    pub types: Option<[u64; CommandType::ALL.len()]>,
    /// Operations of the same that are of no type because their command was not captured. Not scaled.
    pub commands_unknown: u64,
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
    /// Operations that two rows count, because the log names their application otherwise than the wire does.
    pub named_twice: u64,
    /// Why there is nothing to show, where there is no row and nothing is left out; see [`WindowReport::explained`].
    pub silence: Option<Silence>,
    /// What a reader must know about the input: why it was not read in full, which log was of no use.
    pub notes: Vec<String>,
    /// The state of the servers of this host, by port; empty where it is not known.
    pub servers: Vec<ServerState>,
    /// It is an interval that is shorter than was asked for: the capture began or ended within it.
    pub is_partial: bool,
    /// It is of a history, not of a capture.
    pub is_stored: bool,
    /// The wire was observed.
    has_wire: bool,
}

impl<'a> WindowReport<'a> {
    /// Derives the figures of `window` that `selection` asks for, as if all operations could be read; see
    /// [`with_unread`](Self::with_unread).
    pub fn new(window: &'a Window, selection: &'a Selection) -> Self {
        let first = Source::ALL.into_iter().find(|source| window.observed_ns(*source) > 0);
        let elapsed_ns = first.map_or(0, |source| window.observed_ns(source));
        let sample = window.sample.max(1);
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

        let of_apps = || {
            let wanted = window.apps.iter().filter(|row| selection.wants(row.role, row.class));
            wanted.map(|row| row.figures().calls).sum::<u64>()
        };
        let named_twice =
            if selection.by == Grouping::App { of_apps().saturating_sub(totals.calls) } else { 0 };
        let gathered = match selection.by {
            Grouping::Shape | Grouping::Order | Grouping::Namespace => {
                gather_shapes(window, selection, &mut hidden)
            }
            Grouping::App => gather_groups(window.apps.iter(), selection, &mut hidden),
            Grouping::Client => gather_groups(window.clients.iter(), selection, &mut hidden),
        };
        let mut rows: Vec<ReportRow<'a>> =
            gathered.into_iter().filter(RowDraft::is_shown).map(|gathered| gathered.finish(window)).collect();
        if let Some(baseline) = &selection.baseline {
            compare_with(baseline, &mut rows);
        }
        selection.sort.apply(&mut rows, selection.form, elapsed_ns);
        let rows_total = rows.len();
        for row in rows.drain(selection.limit.unwrap_or(usize::MAX).min(rows_total)..) {
            row.count_by_class(|class, operations| hidden.add(Reason::Limit, class, operations));
        }
        let shown = window.shapes.iter().filter(|row| selection.hides(row.role, row.class).is_none());
        let rates = Rates::of_rows(shown.clone(), &totals, window);
        let without_command = shown.filter(|row| &*row.shape().command == UNKNOWN);
        let commands_unknown = without_command.map(|row| row.figures().calls).sum();
        let has_wire = window.is_observed(Source::Wire);
        Self {
            start: window.start,
            end: window.end,
            elapsed_ns,
            length_ns: window.length_ns(),
            sample,
            selection,
            totals: Stats::new(Cow::Owned(totals), Some(waiting), rates),
            types: (!selection.is_one_server && has_wire)
                .then(|| window.types.totals(|role, class| selection.wants(role, class))),
            commands_unknown,
            longest_waiting: wanted().filter(|more| more.count > 0).max_by_key(|more| more.oldest_ns),
            coverage: &window.coverage,
            rows,
            rows_total,
            hidden,
            named_twice,
            silence: None,
            notes: Vec::new(),
            servers: Vec::new(),
            is_partial: false,
            is_stored: window.observed.is_some(),
            has_wire,
        }
    }

    /// Where there are no operations, but some that could not be read by the counters since the start, that there were
    /// none is not known: no rate is.
    pub fn with_unread(mut self, since_start: &Coverage) -> Self {
        if self.has_wire && self.totals.figures.calls == 0 && has_unread(since_start) {
            self.totals.rates = Rates::default();
            self.types = None;
        }
        self
    }

    /// Where there is nothing to show, adds the reason, from the counters since the start; see
    /// [`with_unread`](Self::with_unread), too.
    pub fn explained(self, since_start: &Coverage, origin: &PacketOrigin) -> Self {
        let mut report = self.with_unread(since_start);
        if report.rows.is_empty() && report.hidden.operations() == 0 {
            report.silence = Some(Silence::explain(since_start, origin));
        }
        report
    }

    /// `~` before figures that are scaled up from a sample, nothing otherwise.
    pub const fn mark(&self) -> &'static str {
        if self.sample > 1 { "~" } else { "" }
    }

    /// A rate with its unit, marked if it is scaled up; `-` without either if it is unknown.
    pub(super) fn rate(&self, rate: Option<f64>, unit: &str) -> String {
        or_unknown(rate.map(|rate| format!("{}{}{unit}", self.mark(), Count(rate))))
    }

    /// Whether the servers, the roles and the classes of the rows differ, or operations were encrypted, so that a view
    /// has to show it.
    pub fn differing(&self) -> Differing {
        let tls = self.totals.figures.tls.total > 0;
        let mut keys = self.rows.iter().filter_map(|row| match &row.key {
            ReportKey::Shape { key, .. } => Some(key),
            _ => None,
        });
        let Some(first) = keys.next() else { return Differing { tls, ..Differing::default() } };
        keys.fold(Differing { tls, ..Differing::default() }, |differing, key| Differing {
            servers: differing.servers || key.server != first.server,
            roles: differing.roles || key.role != first.role,
            classes: differing.classes || key.class != first.class,
            tls,
        })
    }
}

/// In what rows differ.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Differing {
    /// Several servers.
    pub servers: bool,
    /// Both roles.
    pub roles: bool,
    /// Several classes.
    pub classes: bool,
    /// There are operations that were encrypted with TLS.
    pub tls: bool,
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
        row.in_progress.extend(waiting.oldest.iter().filter(|one| one.now.is_some()));
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

/// Where the time of all operations of these rows went.
fn split_of<'a>(members: &[&'a Row]) -> Option<Cow<'a, RowSplit>> {
    let mut splits = members.iter().filter_map(|row| row.split.as_deref());
    let mut sum = Cow::Borrowed(splits.next()?);
    splits.for_each(|more| sum.to_mut().merge(more));
    Some(sum)
}

impl<'a> RowDraft<'a> {
    /// Whether it has something to show. Where the time went may be known only after the window of its operations.
    fn is_shown(&self) -> bool {
        let has_split_alone = |row: &&Row| row.split.is_some() && row.figures().calls == 0;
        self.waiting.count > 0 || self.members.is_empty() || !self.members.iter().all(has_split_alone)
    }

    fn finish(self, window: &Window) -> ReportRow<'a> {
        let Self { key, identity, members, waiting, in_flight, mut in_progress } = self;
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
        let rates = Rates::of_rows(members.iter().copied(), &figures, window);
        let stats = Stats::new(figures, known.then_some(waiting), rates);
        let split = split_of(&members);
        in_progress.sort_by_key(|one| Reverse(one.age_ns));
        in_progress.truncate(MAX_OLDEST);
        ReportRow { key, identity, stats, against: None, split, in_progress, members, in_flight }
    }
}
