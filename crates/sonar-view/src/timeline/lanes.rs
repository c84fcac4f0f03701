//! Collects the figures of windows on an axis of equal parts.

use std::collections::{BTreeMap, BTreeSet};

use sonar_core::changes::CommandEvents;
use sonar_core::figures::Figures;
use sonar_core::history::{
    CollectorKind, Event, EventKind, HistoryGap, HistoryWindow, SeriesKey, SeriesSubject, SeriesValue, Span,
};
use sonar_core::internals::{FIGURES, Figure, FigureVerdict};
use sonar_core::{Class, Endpoint, Histogram, Role, Source};

use super::axis::TimeAxis;
use super::choice::chosen;
use super::report::{EventJson, LaneJson, TimelineReport};
use crate::changes::GapJson;
use crate::changes::words::metric as metric_words;
use crate::kit::{About, Zone, ZoneObject, server_address};

/// The most figures of the internals that are shown, the worst first.
const MAX_JUDGED: usize = 8;
/// The most events of a timeline; others are counted.
const MAX_EVENTS: usize = 500;
/// Version of the schema.
const SCHEMA: u32 = 1;

/// What the machine is shown by: the metrics of the agent and, where it did not observe the machine, those of the server
/// itself; of several devices the largest value counts.
const MACHINE: [(&str, &str); 5] = [
    ("cpu.busy_percent", "processor.user"),
    ("pressure.cpu_some_percent", "pressure.cpu"),
    ("pressure.io_some_percent", "pressure.io"),
    ("pressure.memory_some_percent", "pressure.memory"),
    ("disk.busy_percent", "disk.busy"),
];

/// One part of the axis.
#[derive(Clone, Default)]
struct TimelinePart {
    /// What each source saw, in the order of [`Source::ALL`].
    figures: [Figures; Source::ALL.len()],
    /// The latencies that each source saw, by server.
    latencies: BTreeMap<Endpoint, [Histogram; Source::ALL.len()]>,
    /// Seconds in which each source was observed, in the same order.
    seconds: [f64; Source::ALL.len()],
    series: BTreeMap<SeriesKey, SeriesValue>,
}

/// Collects windows on an axis.
pub struct TimelineBuilder {
    axis: TimeAxis,
    parts: Vec<TimelinePart>,
    commands: CommandEvents,
}

impl TimelineBuilder {
    /// An axis of at most `columns` equal parts, none narrower than `width_ns`, the width of the windows.
    pub fn new(span: Span, columns: usize, width_ns: u64) -> Self {
        let axis = TimeAxis::new(span, columns, width_ns);
        Self { axis, parts: vec![TimelinePart::default(); axis.parts], commands: CommandEvents::default() }
    }

    /// Adds a window; one that is wider than a part counts for each part that it covers.
    pub fn add(&mut self, window: &HistoryWindow) {
        let Some(places) = self.axis.places(window) else { return };
        self.commands.add(window);
        for place in places {
            let part = &mut self.parts[place];
            let rows = window.window.shapes.iter();
            for row in rows.filter(|row| row.class == Class::User && row.role == Role::Served) {
                let latencies = part.latencies.entry(row.server).or_default();
                let of_sources = Source::ALL.into_iter().zip(&mut part.figures).zip(latencies);
                for ((source, figures), latency) in of_sources {
                    if let Some(observed) = row.observed_by(source) {
                        figures.merge(&observed.figures);
                        latency.merge(&observed.figures.latency);
                    }
                }
            }
            for (source, seconds) in Source::ALL.into_iter().zip(&mut part.seconds) {
                let collector = CollectorKind::of(source);
                *seconds += collector.map_or(0.0, |collector| window.observed_ns(collector) as f64 / 1e9);
            }
            for (key, value) in &window.series {
                part.series.entry(key.clone()).or_default().merge(value);
            }
        }
    }

    /// The report.
    pub fn finish(
        mut self,
        events: &[Event],
        gaps: &[HistoryGap],
        source: &str,
        zone: &Zone,
    ) -> TimelineReport {
        let ends = [self.axis.span.from, self.axis.span.to];
        let mut lanes = self.queries();
        let (internals, internals_judged) = self.internals();
        lanes.extend(internals);
        lanes.extend(self.machine());
        let mut events = events.to_vec();
        events.extend(std::mem::take(&mut self.commands).finish(&events));
        events.sort_by_key(|event| event.at);
        let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
        let shown = chosen(&kinds, MAX_EVENTS).into_iter().map(|at| EventJson::of(&events[at]));
        TimelineReport {
            schema: SCHEMA,
            kind: "timeline",
            about: About::new(None, vec![source.to_owned()], Some(self.axis.span)),
            zone: ZoneObject::new(zone, ends),
            parts: self.parts.len(),
            lanes,
            internals_judged,
            events: shown.collect(),
            events_left_out: events.len().saturating_sub(MAX_EVENTS),
            gaps: gaps.iter().map(GapJson::from).collect(),
        }
    }

    /// What the wire shows of queries; their slow operations in the log where the wire was not observed at all.
    fn queries(&self) -> Vec<LaneJson> {
        let is_observed =
            |source: &Source| self.parts.iter().any(|part| part.seconds[*source as usize] > 0.0);
        let Some(source) = Source::ALL.into_iter().find(is_observed) else { return Vec::new() };
        let at = source as usize;
        let (calls, p99) = match source {
            Source::Wire => ("queries", "p99 latency"),
            _ => ("slow queries in the log", "their p99 latency"),
        };
        let lane = |id, title: &str, unit, value: &dyn Fn(&Figures, f64) -> Option<f64>| LaneJson {
            group: "queries",
            id,
            title: title.to_owned(),
            unit,
            server: None,
            address: None,
            verdict: None,
            limit: None,
            values: self
                .parts
                .iter()
                .map(|part| match part.seconds[at] {
                    seconds if seconds > 0.0 => value(&part.figures[at], seconds),
                    _ => None,
                })
                .collect(),
        };
        let rate = |count: u64, seconds: f64| Some(count as f64 / seconds);
        let quantile = |latency: &Histogram| latency.quantile_ns(0.99).map(|ns| ns as f64 / 1e6);
        let has_latencies = |server: &Endpoint| {
            let mut all = self.parts.iter().filter_map(|part| part.latencies.get(server));
            all.any(|latencies| latencies[at].count() > 0)
        };
        let servers: BTreeSet<Endpoint> =
            self.parts.iter().flat_map(|part| part.latencies.keys().copied()).filter(has_latencies).collect();
        let mut lanes =
            vec![lane("calls", calls, "per_second", &|figures, seconds| rate(figures.calls, seconds))];
        // A quantile over several servers says nothing of any: it falls when a fast one starts.
        for server in &servers {
            let of_part = |part: &TimelinePart| quantile(&part.latencies.get(server)?[at]);
            let named = (servers.len() > 1).then_some(*server);
            lanes.push(LaneJson {
                server: named.map(|server| server.port),
                address: named.and_then(server_address),
                values: self.parts.iter().map(of_part).collect(),
                ..lane("p99", p99, "milliseconds", &|_, _| None)
            });
        }
        if servers.is_empty() {
            lanes.push(lane("p99", p99, "milliseconds", &|_, _| None));
        }
        lanes.extend([
            lane("load", "operations in progress", "ratio", &|figures, seconds| {
                Some(figures.known_latency_ns()? as f64 / 1e9 / seconds)
            }),
            lane("errors", "failed operations", "per_second", &|figures, seconds| {
                figures.known_failed().and_then(|failed| rate(failed, seconds))
            }),
        ]);
        lanes
    }

    /// The judged figures that are over a limit somewhere in the span, the worst first.
    fn internals(&self) -> (Vec<LaneJson>, usize) {
        let mut judged = 0;
        let mut found: Vec<(FigureVerdict, usize, SeriesKey, &'static Figure)> = Vec::new();
        for key in self.keys(|key| key.subject == SeriesSubject::Server) {
            let Some(figure) = FIGURES.iter().find(|figure| *figure.id == *key.metric) else { continue };
            let Some(limits) = figure.limits else { continue };
            judged += 1;
            let over = |limit| {
                let values = self.parts.iter().filter_map(|part| part.series.get(key)?.mean());
                values.filter(|value| limits.is_passed(limit, *value)).count()
            };
            match (over(limits.red), over(limits.amber)) {
                (0, 0) => {}
                (0, amber) => found.push((FigureVerdict::Amber, amber, key.clone(), figure)),
                (red, _) => found.push((FigureVerdict::Red, red, key.clone(), figure)),
            }
        }
        found.sort_by(|a, b| (b.0, b.1).cmp(&(a.0, a.1)).then_with(|| a.2.cmp(&b.2)));
        found.truncate(MAX_JUDGED);
        let lane = |(verdict, _, key, figure): (FigureVerdict, usize, SeriesKey, &'static Figure)| LaneJson {
            group: "internals",
            id: figure.id,
            title: figure.title.to_owned(),
            unit: figure.unit.name(),
            server: (key.server.port != 0).then_some(key.server.port),
            address: server_address(key.server),
            verdict: Some(verdict.name()),
            limit: figure.limits.map(|limits| match verdict {
                FigureVerdict::Red => limits.red,
                _ => limits.amber,
            }),
            values: self.parts.iter().map(|part| part.series.get(&key)?.mean()).collect(),
        };
        (found.into_iter().map(lane).collect(), judged)
    }

    fn machine(&self) -> Vec<LaneJson> {
        let lane = |id: &'static str| {
            let keys: Vec<&SeriesKey> = self.keys(|key| *key.metric == *id).collect();
            let (title, unit) = metric_words(&SeriesKey { name: Box::default(), ..(*keys.first()?).clone() });
            let value = |part: &TimelinePart| {
                keys.iter().filter_map(|key| part.series.get(*key)?.mean()).reduce(f64::max)
            };
            let values = self.parts.iter().map(value).collect();
            let (group, server, address, verdict, limit) = ("machine", None, None, None, None);
            Some(LaneJson { group, id, title, unit, server, address, verdict, limit, values })
        };
        MACHINE.iter().filter_map(|(own, of_server)| lane(own).or_else(|| lane(of_server))).collect()
    }

    /// The distinct keys of series.
    fn keys(&self, wants: impl Fn(&SeriesKey) -> bool) -> impl Iterator<Item = &SeriesKey> {
        let all = self.parts.iter().flat_map(|part| part.series.keys()).filter(move |key| wants(key));
        all.collect::<std::collections::BTreeSet<_>>().into_iter()
    }
}
