//! Where the time of operations went over a span of time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use sonar_core::history::{CollectorKind, HistoryWindow, Span, metrics};
use sonar_core::time_split::{FileTotal, OTHER, RowBlocker, RowSplit, TimePart, WaitTotal};
use sonar_core::{Endpoint, Role, ShapeId, ShapeInfo};
use ts_rs::TS;

use super::bounded_sums::{BoundedSum, BoundedSums};
use super::{HistoryView, PastError};
use crate::changes::GapJson;
use crate::kit::{About, Zone, ZoneObject};
use crate::shown_part::{self, ShownPart};
use crate::timeline::TimeAxis;

/// Version of the schema.
const SCHEMA: u32 = 1;
/// The most parts of the axis.
const PARTS: usize = 240;
/// The most classes of waits, blockers and files that are shown by name; all others are added up.
const MAX_SHOWN: usize = 12;

/// Where the time of operations went over time, as far as the threads of servers were traced.
#[derive(Clone, Debug, Serialize, TS)]
pub struct WaitsReport {
    /// Version of the schema.
    pub schema: u32,
    /// `waits`.
    #[ts(type = "\"waits\"")]
    pub kind: &'static str,
    /// Where it comes from; its span is the axis.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// Operations whose time is known.
    pub operations: u64,
    /// The number of processors of the machine, if it is known.
    pub processors: Option<f64>,
    /// The parts of their time, the largest first.
    pub lanes: Vec<PartLaneJson>,
    /// The long waits by class, those first that lasted longest.
    pub classes: Vec<ClassLaneJson>,
    /// The shapes whose operations ended waits of others, those first for which operations waited longest.
    pub blockers: Vec<WaitBlockerJson>,
    /// The files that operations waited for, likewise.
    pub files: Vec<WaitFileJson>,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

/// A part of the time of operations, over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct PartLaneJson {
    /// Which part.
    pub part: ShownPart,
    /// What operations did meanwhile, in words.
    pub words: &'static str,
    /// Nanoseconds, of all operations.
    pub ns: u64,
    /// How many operations were in this part at once, on average, in each part of the axis; null where nothing was
    /// observed.
    pub values: Vec<Option<f64>>,
}

/// Long waits of one class, over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ClassLaneJson {
    /// In which part of the time; null for all others.
    pub part: Option<ShownPart>,
    /// Its name, as in `mongosonar stacks`; null for all others.
    pub class: Option<String>,
    /// How many.
    pub waits: u64,
    /// How long they lasted, in nanoseconds.
    pub wait_ns: u64,
    /// How many operations waited at once, on average.
    pub values: Vec<Option<f64>>,
}

/// A shape whose operations ended waits of others: they held what was waited for.
#[derive(Clone, Debug, Serialize, TS)]
pub struct WaitBlockerJson {
    /// Its id; null for all others.
    pub shape_id: Option<String>,
    /// The command.
    pub command: String,
    /// The namespace.
    pub namespace: String,
    /// Its text with typed placeholders.
    pub typed: String,
    /// Waits that it ended.
    pub waits: u64,
    /// How long they lasted, in nanoseconds.
    pub wait_ns: u64,
}

/// A file that operations waited for.
#[derive(Clone, Debug, Serialize, TS)]
pub struct WaitFileJson {
    /// What it holds, or its path; null for all others.
    pub name: Option<String>,
    /// Reads.
    pub reads: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// How long they lasted, in nanoseconds.
    pub wait_ns: u64,
}

/// Where the time of the operations of a span went, in at most 240 parts; times in text are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read.
pub fn report(history: &HistoryView<'_>, span: Span, zone: &Zone) -> Result<WaitsReport, PastError> {
    let (span, resolution) = history.in_whole_windows(span);
    let mut sums = WaitSums::new(TimeAxis::new(span, PARTS, resolution.width_ns()));
    history.visit(span, resolution, &mut |window| sums.add(&window))?;
    let mut about = About::new(None, vec![history.name().to_owned()], Some(span));
    about.host = history.host()?;
    let gaps = history.gaps(span)?.iter().map(GapJson::from).collect();
    Ok(sums.finish(about, ZoneObject::new(zone, [span.from, span.to]), gaps))
}

/// Sums of the windows of a span.
struct WaitSums {
    axis: TimeAxis,
    observed_ns: Vec<u64>,
    parts: BTreeMap<ShownPart, LaneSum>,
    classes: BoundedSums<(TimePart, Arc<str>), LaneSum>,
    operations: u64,
    processors: Option<f64>,
    blockers: BoundedSums<ShapeId, BlockerSum>,
    files: BoundedSums<Arc<str>, FileTotal>,
}

/// Waits, or the time in a part, in all and in each part of the axis.
#[derive(Default)]
struct LaneSum {
    total: WaitTotal,
    /// In nanoseconds.
    by_place: BTreeMap<usize, u64>,
}

impl LaneSum {
    /// Adds waits, which count in each of these places.
    fn add(&mut self, waits: WaitTotal, places: RangeInclusive<usize>) {
        self.total.add(waits);
        places.for_each(|at| *self.by_place.entry(at).or_default() += waits.wait_ns);
    }

    /// How many were there at once in each part of the axis, by how long that was observed.
    fn means(&self, observed_ns: &[u64]) -> Vec<Option<f64>> {
        let of = |(at, observed): (usize, &u64)| {
            let ns = self.by_place.get(&at).copied().unwrap_or(0);
            (*observed > 0).then(|| ns as f64 / *observed as f64)
        };
        observed_ns.iter().enumerate().map(of).collect()
    }
}

impl BoundedSum for LaneSum {
    fn join(&mut self, other: Self) {
        self.total.add(other.total);
        other.by_place.into_iter().for_each(|(at, ns)| *self.by_place.entry(at).or_default() += ns);
    }

    fn size(&self) -> u64 {
        self.total.wait_ns
    }
}

/// Waits that operations of a shape ended.
#[derive(Default)]
struct BlockerSum {
    /// `None` for all others.
    shape: Option<Arc<ShapeInfo>>,
    waits: WaitTotal,
}

impl BoundedSum for BlockerSum {
    fn join(&mut self, other: Self) {
        self.waits.add(other.waits);
    }

    fn size(&self) -> u64 {
        self.waits.wait_ns
    }
}

impl BoundedSum for FileTotal {
    fn join(&mut self, other: Self) {
        self.add(other);
    }

    fn size(&self) -> u64 {
        self.wait_ns
    }
}

impl WaitSums {
    fn new(axis: TimeAxis) -> Self {
        Self {
            axis,
            observed_ns: vec![0; axis.parts],
            parts: BTreeMap::new(),
            classes: BoundedSums::default(),
            operations: 0,
            processors: None,
            blockers: BoundedSums::default(),
            files: BoundedSums::default(),
        }
    }

    /// Adds a window; one that is wider than a part counts for each part that it covers.
    fn add(&mut self, window: &HistoryWindow) {
        let Some(places) = self.axis.places(window) else { return };
        let observed_ns = window.observed_ns(CollectorKind::Split);
        places.clone().for_each(|at| self.observed_ns[at] += observed_ns);
        let processors = window.series.get(&metrics::CPU_COUNT.key(Endpoint::default(), ""));
        self.processors = processors.and_then(|value| value.mean()).or(self.processors);
        let rows = window.window.shapes.iter().filter(|row| row.role == Role::Served);
        for split in rows.filter_map(|row| row.split.as_deref()) {
            self.row(split, &places);
        }
    }

    fn row(&mut self, split: &RowSplit, places: &RangeInclusive<usize>) {
        self.operations += split.operations;
        for (part, wait_ns) in shown_part::of_row(split).filter(|(_, ns)| *ns > 0) {
            self.parts.entry(part).or_default().add(WaitTotal { waits: 0, wait_ns }, places.clone());
        }
        for ((part, class), waits) in &split.waits {
            let key = (**class != *OTHER).then(|| (*part, Arc::clone(class)));
            self.classes.of(key).add(*waits, places.clone());
        }
        for RowBlocker { shape, waits } in split.blockers.values() {
            let key = Some(shape.id).filter(|id| *id != ShapeInfo::other().id);
            let is_named = key.is_some();
            let sum = self.blockers.of(key);
            sum.waits.add(*waits);
            sum.shape = Some(Arc::clone(shape)).filter(|_| is_named);
        }
        for (name, total) in &split.files {
            self.files.of((**name != *OTHER).then(|| Arc::clone(name))).add(*total);
        }
    }

    fn finish(self, about: About, zone: ZoneObject, gaps: Vec<GapJson>) -> WaitsReport {
        let observed_ns = self.observed_ns;
        let mut lanes: Vec<PartLaneJson> = self
            .parts
            .iter()
            .map(|(part, lane)| PartLaneJson {
                part: *part,
                words: part.words(),
                ns: lane.total.wait_ns,
                values: lane.means(&observed_ns),
            })
            .collect();
        lanes.sort_by_key(|lane| Reverse(lane.ns));
        let classes = self.classes.largest(MAX_SHOWN).into_iter().map(|(key, lane)| {
            let (part, class) = key.unzip();
            ClassLaneJson {
                part: part.map(ShownPart::Measured),
                class: class.map(|class| class.to_string()),
                waits: lane.total.waits,
                wait_ns: lane.total.wait_ns,
                values: lane.means(&observed_ns),
            }
        });
        let blockers =
            self.blockers.largest(MAX_SHOWN).into_iter().map(|(id, sum)| WaitBlockerJson::new(id, &sum));
        let files = self.files.largest(MAX_SHOWN).into_iter().map(|(name, total)| WaitFileJson {
            name: name.map(|name| name.to_string()),
            reads: total.reads,
            bytes: total.bytes,
            wait_ns: total.wait_ns,
        });
        WaitsReport {
            schema: SCHEMA,
            kind: "waits",
            about,
            zone,
            operations: self.operations,
            processors: self.processors,
            lanes,
            classes: classes.collect(),
            blockers: blockers.collect(),
            files: files.collect(),
            gaps,
        }
    }
}

impl WaitBlockerJson {
    fn new(id: Option<ShapeId>, BlockerSum { shape, waits }: &BlockerSum) -> Self {
        let shape = shape.as_deref().cloned().unwrap_or_else(ShapeInfo::other);
        Self {
            shape_id: id.map(|id| id.to_string()),
            command: shape.command.to_string(),
            namespace: shape.namespace(),
            typed: shape.typed.to_string(),
            waits: waits.waits,
            wait_ns: waits.wait_ns,
        }
    }
}
