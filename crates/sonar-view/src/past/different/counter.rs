//! Counts the values of all dimensions in the windows of a span.

use std::ops::RangeInclusive;
use std::sync::Arc;

use sonar_core::differences::{
    DimensionDifference, DividedLatencies, LatencyBand, LatencySums, TheseAndRest, ValueTally, ValueTime,
    compare, inside_by_mean,
};
use sonar_core::figures::{Breakdown, Figures, Share};
use sonar_core::history::{HistoryWindow, Span};
use sonar_core::time_split::RowSplit;
use sonar_core::{Row, ShapeId, Source, Subject, Table};

use super::asked::OperationFilter;
use super::dimension::{Dimension, DimensionValue, EndedAs};
use super::picture::touches;
use crate::shown_part;
use crate::timeline::TimeAxis;

/// The most values of a dimension that are shown by themselves.
const MAX_SHOWN: usize = 8;

/// Which operations are compared with the rest.
#[derive(Copy, Clone, Debug)]
pub(super) struct SelectedOperations {
    /// The source that they are of.
    pub source: Source,
    /// Their time: whole windows.
    pub time: Span,
    /// Their latencies.
    pub band: LatencyBand,
}

/// How many operations of which values there are.
pub(super) struct DifferenceCounter<'a> {
    filter: &'a OperationFilter,
    selected: SelectedOperations,
    /// The parts of the time of the selected operations.
    times: TimeAxis,
    /// In the order of [`Dimension::ALL`].
    tallies: [ValueTally<DimensionValue>; Dimension::ALL.len()],
    /// The time of operations that were traced, of the selected ones and of the rest.
    traced: [TracedTime; 2],
    /// The selected operations.
    pub these: u64,
    /// All others.
    pub rest: u64,
    /// Operations without a latency, which are in neither.
    pub without_latency: u64,
}

/// What the operations of a row have in common beside their values.
struct RowContext {
    is_selected: bool,
    /// The parts of the time of the selected operations in which they lie.
    times: Option<RangeInclusive<usize>>,
    /// Applications, or clients, have been counted by rows of their own.
    has_applications: bool,
    has_clients: bool,
}

/// A value of a row, and its operations. `None`: all others.
struct PartOfRow {
    value: Option<DimensionValue>,
    time: ValueTime,
}

/// The time of some operations, and how unequally it is divided among them.
#[derive(Copy, Clone, Default)]
struct TracedTime {
    ns: f64,
    square: f64,
}

impl TracedTime {
    fn add(&mut self, sums: LatencySums, share: f64) {
        self.ns += sums.ns * share;
        self.square += sums.square * share;
    }

    /// How many operations of equal length tell as much of the time (Kish's effective size).
    fn operations(self) -> f64 {
        if self.square > 0.0 { self.ns * self.ns / self.square } else { 0.0 }
    }
}

fn counted(divided: &DividedLatencies) -> TheseAndRest {
    TheseAndRest { these: divided.inside.operations as f64, rest: divided.outside.operations as f64 }
}

impl<'a> DifferenceCounter<'a> {
    /// Without windows. The time of the selected operations is divided into `times`.
    pub fn new(filter: &'a OperationFilter, selected: SelectedOperations, times: TimeAxis) -> Self {
        Self {
            filter,
            selected,
            times,
            tallies: Default::default(),
            traced: Default::default(),
            these: 0,
            rest: 0,
            without_latency: 0,
        }
    }

    /// Adds a window.
    pub fn add(&mut self, window: &HistoryWindow) {
        let is_selected = touches(self.selected.time, window);
        let times = if is_selected { self.times.places(window) } else { None };
        let is_of_all = self.filter.is_of_all();
        let place = RowContext {
            is_selected,
            times,
            has_applications: is_of_all
                && self.groups(Dimension::Application, &window.window.apps, is_selected),
            has_clients: is_of_all && self.groups(Dimension::Client, &window.window.clients, is_selected),
        };
        let filter = self.filter;
        for row in window.window.shapes.iter().filter(|row| filter.wants(row)) {
            self.row(row, &place);
        }
    }

    /// All dimensions that have any value: those first that differ most.
    pub fn finish(mut self) -> Vec<(Dimension, DimensionDifference<DimensionValue>)> {
        let [these, rest] = self.traced.map(TracedTime::operations);
        self.tallies[Dimension::SplitPart as usize].set_operations(TheseAndRest { these, rest });
        let found = compare(&self.tallies, MAX_SHOWN);
        let mut found: Vec<_> =
            Dimension::ALL.into_iter().zip(found).filter(|(_, one)| !one.values.is_empty()).collect();
        found.sort_by(|(_, a), (_, b)| b.difference.total_cmp(&a.difference));
        found
    }

    fn divide(&self, figures: &Figures, is_selected: bool) -> DividedLatencies {
        DividedLatencies::new(&figures.latency, is_selected.then_some(self.selected.band))
    }

    fn tally(&mut self, dimension: Dimension) -> &mut ValueTally<DimensionValue> {
        &mut self.tallies[dimension as usize]
    }

    fn add_value(&mut self, dimension: Dimension, value: Option<&DimensionValue>, count: TheseAndRest) {
        match value {
            Some(value) => self.tally(dimension).add(value, count),
            None => self.tally(dimension).add_others(count),
        }
    }

    /// Counts rows that are about an application or a client each; returns whether there are any.
    fn groups(&mut self, dimension: Dimension, table: &Table, is_selected: bool) -> bool {
        let mut has_any = false;
        for row in table.iter().filter(|row| OperationFilter::wants_group(row)) {
            let Some(observed) = row.observed_by(self.selected.source) else { continue };
            let count = counted(&self.divide(&observed.figures, is_selected));
            let value = match &row.subject {
                Subject::App(app) => Some(DimensionValue::Application(Arc::clone(app))),
                Subject::Client(ip) => Some(DimensionValue::Client(*ip)),
                _ => None,
            };
            self.add_value(dimension, value.as_ref(), count);
            has_any = true;
        }
        has_any
    }

    fn row(&mut self, row: &Row, place: &RowContext) {
        if let Some((_, figures)) = row.executed() {
            self.plans(figures, place.is_selected);
        }
        let Some(observed) = row.observed_by(self.selected.source) else { return };
        let figures = &observed.figures;
        let divided = self.divide(figures, place.is_selected);
        let count = counted(&divided);
        self.these += divided.inside.operations;
        self.rest += divided.outside.operations;
        self.without_latency += figures.calls.saturating_sub(divided.operations());
        if divided.operations() == 0 {
            return;
        }
        // 0 stands for all shapes that did not fit.
        let shape = Some(row.shape()).filter(|shape| shape.id != ShapeId(0));
        for (dimension, value) in [
            (Dimension::Shape, shape.map(|shape| DimensionValue::Shape(Arc::clone(shape)))),
            (Dimension::Namespace, shape.map(|shape| DimensionValue::Namespace(Arc::clone(shape)))),
            (Dimension::Command, shape.map(|shape| DimensionValue::Command(Arc::clone(shape)))),
            (Dimension::Server, (row.server.port != 0).then_some(DimensionValue::Server(row.server))),
        ] {
            self.add_value(dimension, value.as_ref(), count);
        }
        if place.is_selected {
            // Of a window that is longer than a part it is not known in which of them its operations were.
            let one = place.times.as_ref().filter(|times| times.start() == times.end());
            let value = one.map(|times| DimensionValue::Time(*times.start()));
            self.add_value(Dimension::Time, value.as_ref(), count);
        }
        self.outcomes(figures, &divided);
        if !place.has_applications {
            let parts = shares(&observed.apps, |app| DimensionValue::Application(Arc::clone(app)));
            self.by_mean(Dimension::Application, &divided, &parts);
        }
        if !place.has_clients {
            let parts = shares(&observed.clients, |ip| DimensionValue::Client(*ip));
            self.by_mean(Dimension::Client, &divided, &parts);
        }
        if let Some(split) = row.split.as_deref().filter(|_| self.selected.source == Source::Wire) {
            self.split(split, &divided);
        }
    }

    /// The plans of a row, by a source that knows them.
    fn plans(&mut self, figures: &Figures, is_selected: bool) {
        let divided = self.divide(figures, is_selected);
        if divided.operations() == 0 {
            return;
        }
        let plans = &figures.server().plans;
        let part = |value, calls| PartOfRow { value, time: ValueTime { calls, latency_ns: 0 } };
        let mut parts: Vec<PartOfRow> = plans
            .iter()
            .map(|(plan, used)| part(Some(DimensionValue::Plan(plan.clone())), used.calls))
            .collect();
        parts.push(part(None, plans.other.calls));
        self.in_proportion(Dimension::Plan, &divided, &parts);
    }

    fn outcomes(&mut self, figures: &Figures, divided: &DividedLatencies) {
        // What has no answer has no latency.
        let ended = figures.calls.saturating_sub(figures.unanswered.saturating_add(figures.unacknowledged));
        let (failed, unknown) = (figures.failed, figures.outcome_unknown);
        let part = |ended, calls| PartOfRow {
            value: Some(DimensionValue::Outcome(ended)),
            time: ValueTime { calls, latency_ns: 0 },
        };
        let succeeded = ended.saturating_sub(failed.saturating_add(unknown));
        let mut parts = vec![part(EndedAs::Succeeded, succeeded), part(EndedAs::Unknown, unknown)];
        // An operation may have several errors, and counts once.
        let errors = figures.error_count().max(1);
        let of_errors = |count: u64| (u128::from(failed) * u128::from(count) / u128::from(errors)) as u64;
        let mut left = failed;
        for (code, count) in figures.errors.iter() {
            let calls = of_errors(*count).min(left);
            left -= calls;
            parts.push(part(EndedAs::Error(*code), calls));
        }
        parts.push(PartOfRow { value: None, time: ValueTime { calls: left, latency_ns: 0 } });
        self.in_proportion(Dimension::Outcome, divided, &parts);
    }

    /// Adds values for which only the number of operations is known, so that the same share of each is taken as selected.
    fn in_proportion(&mut self, dimension: Dimension, divided: &DividedLatencies, parts: &[PartOfRow]) {
        let share = divided.share();
        let inside: Vec<f64> = parts.iter().map(|part| part.time.calls as f64 * share).collect();
        self.estimated(dimension, divided, parts, &inside);
    }

    /// Adds values of which it is known, too, how long their operations took together.
    fn by_mean(&mut self, dimension: Dimension, divided: &DividedLatencies, parts: &[PartOfRow]) {
        let times: Vec<ValueTime> = parts.iter().map(|part| part.time).collect();
        self.estimated(dimension, divided, parts, &inside_by_mean(divided, &times));
    }

    /// Adds values of which so many operations are probably inside.
    fn estimated(
        &mut self,
        dimension: Dimension,
        divided: &DividedLatencies,
        parts: &[PartOfRow],
        inside: &[f64],
    ) {
        let values = parts.iter().filter(|part| part.time.calls > 0).count();
        for (part, these) in parts.iter().zip(inside) {
            let rest = (part.time.calls as f64 - these).max(0.0);
            self.add_value(dimension, part.value.as_ref(), TheseAndRest { these: *these, rest });
        }
        if divided.is_mixed() && values > 1 {
            self.tally(dimension).add_estimated(inside.iter().sum());
        }
    }

    /// Adds where the time of operations went, by how long those inside and outside took.
    fn split(&mut self, split: &RowSplit, divided: &DividedLatencies) {
        let time_ns = divided.inside.ns + divided.outside.ns;
        if time_ns <= 0.0 {
            return;
        }
        let share = divided.inside.ns / time_ns;
        for (part, ns) in shown_part::of_row(split) {
            let ns = ns as f64;
            let count = TheseAndRest { these: ns * share, rest: ns * (1.0 - share) };
            self.add_value(Dimension::SplitPart, Some(&DimensionValue::Part(part)), count);
        }
        if divided.is_mixed() {
            self.tally(Dimension::SplitPart).add_estimated(split.total_ns() as f64 * share);
        }
        let traced = split.operations as f64 / divided.operations() as f64;
        self.traced[0].add(divided.inside, traced);
        self.traced[1].add(divided.outside, traced);
    }
}

/// The applications or clients of a row.
fn shares<K, const CAP: usize>(
    known: &Breakdown<K, Share, CAP>,
    value: impl Fn(&K) -> DimensionValue,
) -> Vec<PartOfRow> {
    let time = |share: Share| ValueTime { calls: share.calls, latency_ns: share.latency_ns };
    let mut parts: Vec<PartOfRow> =
        known.iter().map(|(key, share)| PartOfRow { value: Some(value(key)), time: time(*share) }).collect();
    parts.push(PartOfRow { value: None, time: time(known.other) });
    parts
}
