//! Where the time of operations went over a span of time.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;
use sonar_core::history::{CollectorKind, HistoryWindow, Span, metrics};
use sonar_core::time_split::{FileTotal, RowBlocker, RowSplit, TimePart, WaitTotal};
use sonar_core::{Endpoint, Role, ShapeId};
use ts_rs::TS;

use super::{HistoryView, PastError};
use crate::changes::GapJson;
use crate::kit::json::line;
use crate::kit::{About, Zone, ZoneObject};
use crate::shown_part::{self, ShownPart};
use crate::timeline::TimeAxis;

/// Version of the schema.
const SCHEMA: u32 = 1;
/// The most parts of the axis.
const PARTS: usize = 240;
/// The most classes of waits, blockers and files that are shown.
const MAX_SHOWN: usize = 12;
/// The most that are told apart while windows are added up; further ones are left out.
const MAX_KEPT: usize = 1_000;

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
    /// In which part of the time.
    pub part: ShownPart,
    /// Its name, as in `mongosonar stacks`.
    pub class: String,
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
    /// Its id.
    pub shape_id: String,
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
    /// What it holds, or its path.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
    /// How long they lasted, in nanoseconds.
    pub wait_ns: u64,
}

impl WaitsReport {
    /// Writes the document as one line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: impl Write) -> io::Result<()> {
        line(self, out)
    }
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
    parts: BTreeMap<ShownPart, LaneSum<u64>>,
    classes: BTreeMap<(TimePart, Arc<str>), LaneSum<WaitTotal>>,
    operations: u64,
    processors: Option<f64>,
    blockers: BTreeMap<ShapeId, RowBlocker>,
    files: BTreeMap<Arc<str>, FileTotal>,
}

/// What a lane has, in all and in each part of the axis in nanoseconds.
struct LaneSum<T> {
    total: T,
    ns: Vec<u64>,
}

impl<T: Default> LaneSum<T> {
    fn new(parts: usize) -> Self {
        Self { total: T::default(), ns: vec![0; parts] }
    }
}

impl WaitSums {
    fn new(axis: TimeAxis) -> Self {
        Self {
            axis,
            observed_ns: vec![0; axis.parts],
            parts: BTreeMap::new(),
            classes: BTreeMap::new(),
            operations: 0,
            processors: None,
            blockers: BTreeMap::new(),
            files: BTreeMap::new(),
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
            self.row(split, places.clone());
        }
    }

    fn row(&mut self, split: &RowSplit, places: std::ops::RangeInclusive<usize>) {
        let count = self.axis.parts;
        self.operations += split.operations;
        for (part, ns) in shown_part::of_row(split).filter(|(_, ns)| *ns > 0) {
            let lane = self.parts.entry(part).or_insert_with(|| LaneSum::new(count));
            lane.total += ns;
            places.clone().for_each(|at| lane.ns[at] += ns);
        }
        for (key, waits) in &split.waits {
            if self.classes.len() >= MAX_KEPT && !self.classes.contains_key(key) {
                continue;
            }
            let lane = self.classes.entry(key.clone()).or_insert_with(|| LaneSum::new(count));
            lane.total.add(*waits);
            places.clone().for_each(|at| lane.ns[at] += waits.wait_ns);
        }
        for (id, blocker) in &split.blockers {
            if self.blockers.len() >= MAX_KEPT && !self.blockers.contains_key(id) {
                continue;
            }
            let new = || RowBlocker { shape: Arc::clone(&blocker.shape), waits: WaitTotal::default() };
            self.blockers.entry(*id).or_insert_with(new).waits.add(blocker.waits);
        }
        for (name, total) in &split.files {
            if self.files.len() >= MAX_KEPT && !self.files.contains_key(name) {
                continue;
            }
            self.files.entry(Arc::clone(name)).or_default().add(*total);
        }
    }

    fn finish(self, about: About, zone: ZoneObject, gaps: Vec<GapJson>) -> WaitsReport {
        let observed_ns = self.observed_ns;
        let means = |ns: &[u64]| -> Vec<Option<f64>> {
            let of = |(ns, observed): (&u64, &u64)| (*observed > 0).then(|| *ns as f64 / *observed as f64);
            ns.iter().zip(&observed_ns).map(of).collect()
        };
        let mut lanes: Vec<PartLaneJson> = self
            .parts
            .iter()
            .map(|(part, lane)| PartLaneJson {
                part: *part,
                words: part.words(),
                ns: lane.total,
                values: means(&lane.ns),
            })
            .collect();
        lanes.sort_by_key(|lane| std::cmp::Reverse(lane.ns));
        let mut classes: Vec<ClassLaneJson> = self
            .classes
            .iter()
            .map(|((part, class), lane)| ClassLaneJson {
                part: ShownPart::Measured(*part),
                class: class.to_string(),
                waits: lane.total.waits,
                wait_ns: lane.total.wait_ns,
                values: means(&lane.ns),
            })
            .collect();
        classes.sort_by_key(|lane| std::cmp::Reverse(lane.wait_ns));
        classes.truncate(MAX_SHOWN);
        let mut blockers: Vec<WaitBlockerJson> = self.blockers.values().map(WaitBlockerJson::of).collect();
        blockers.sort_by_key(|one| std::cmp::Reverse(one.wait_ns));
        blockers.truncate(MAX_SHOWN);
        let mut files: Vec<WaitFileJson> = self
            .files
            .iter()
            .map(|(name, total)| WaitFileJson {
                name: name.to_string(),
                reads: total.reads,
                bytes: total.bytes,
                wait_ns: total.wait_ns,
            })
            .collect();
        files.sort_by_key(|one| std::cmp::Reverse(one.wait_ns));
        files.truncate(MAX_SHOWN);
        WaitsReport {
            schema: SCHEMA,
            kind: "waits",
            about,
            zone,
            operations: self.operations,
            processors: self.processors,
            lanes,
            classes,
            blockers,
            files,
            gaps,
        }
    }
}

impl WaitBlockerJson {
    fn of(blocker: &RowBlocker) -> Self {
        let RowBlocker { shape, waits } = blocker;
        Self {
            shape_id: shape.id.to_string(),
            command: shape.command.to_string(),
            namespace: shape.namespace(),
            typed: shape.typed.to_string(),
            waits: waits.waits,
            wait_ns: waits.wait_ns,
        }
    }
}
