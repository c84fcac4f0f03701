//! The figures of changes, for programs.

use serde::Serialize;
use sonar_core::ShapeInfo;
use sonar_core::changes::{
    ChangeKind, GrownTime, MachineChange, SeriesChange, ServerChange, ShapeChange, ShapeFigures, SplitChange,
};
use sonar_core::history::EventKind;
use sonar_core::time_split::RowSplit;
use ts_rs::TS;

use super::level;
use crate::kit::json::{NamedCounts, name};
use crate::shown_part::{ShownPart, of_row};

/// The figures of one change; those of each kind of change have a form of their own.
#[derive(Clone, Debug, Serialize, TS)]
#[serde(untagged)]
pub enum ChangeFiguresJson {
    /// `event`: events of one kind.
    Events(Vec<ChangeEventJson>),
    /// `application`.
    Application(NewApplicationJson),
    /// `shape`.
    Shape(Box<ShapeChangeJson>),
    /// `errors`.
    Errors(ErrorChangeJson),
    /// `growth`.
    Growth(GrowthJson),
    /// `server`.
    Server(ServerChangeJson),
    /// `machine`.
    Machine(MachineChangeJson),
    /// `series`.
    Series(SeriesChangeJson),
}

#[derive(Clone, Debug, Serialize, TS)]
pub struct ChangeEventJson {
    kind: &'static str,
    time_ns: u64,
    subject: Option<String>,
    text: String,
    count: u64,
}

#[derive(Clone, Debug, Serialize, TS)]
pub struct NewApplicationJson {
    name: String,
    driver: Option<String>,
    version: Option<String>,
    versions_before: Vec<String>,
    calls: u64,
    time_ns: u64,
    has_ended: bool,
    pause_ns: Option<u64>,
}

#[derive(Clone, Debug, Serialize, TS)]
pub struct ShapeChangeJson {
    #[serde(flatten)]
    shape: NamedShapeJson,
    source: &'static str,
    ways: Vec<&'static str>,
    applications: Vec<String>,
    before: ShapeSideJson,
    after: ShapeSideJson,
    pause_ns: Option<u64>,
    split: Option<SplitChangeJson>,
}

/// A shape before or after a change.
#[derive(Clone, Debug, Serialize, TS)]
struct ShapeSideJson {
    calls: u64,
    seconds: f64,
    time_ns: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    max_ns: Option<u64>,
    stalled: u64,
    logged: u64,
    plans: NamedCounts,
    examined_per_returned: Option<f64>,
}

/// Where the time of a shape went before and after, and which parts of it grew.
#[derive(Clone, Debug, Serialize, TS)]
pub(super) struct SplitChangeJson {
    before: SplitSideJson,
    after: SplitSideJson,
    grown: Vec<GrownPartJson>,
}

#[derive(Clone, Debug, Serialize, TS)]
struct SplitSideJson {
    operations: u64,
    total_ns: u64,
    /// Nanoseconds of each part.
    parts: NamedCounts,
}

#[derive(Clone, Debug, Serialize, TS)]
struct GrownPartJson {
    part: ShownPart,
    before_ns: u64,
    after_ns: u64,
    class: Option<String>,
    file: Option<String>,
    /// The shape whose operations ended its waits.
    ended_by: Option<NamedShapeJson>,
}

/// Which shape it is.
#[derive(Clone, Debug, Serialize, TS)]
struct NamedShapeJson {
    shape_id: String,
    command: String,
    namespace: String,
    shape: String,
}

#[derive(Clone, Debug, Serialize, TS)]
pub struct ErrorChangeJson {
    code: i32,
    namespace: String,
    commands: Vec<String>,
    applications: Vec<String>,
    before: ErrorCountJson,
    after: ErrorCountJson,
}

#[derive(Clone, Debug, Serialize, TS)]
struct ErrorCountJson {
    errors: u64,
    seconds: f64,
}

/// A figure that grew with others, which are its parts.
#[derive(Clone, Debug, Serialize, TS)]
pub struct GrowthJson {
    #[serde(flatten)]
    grown: SeriesChangeJson,
    parts: Vec<SeriesChangeJson>,
}

#[derive(Clone, Debug, Serialize, TS)]
pub struct ServerChangeJson {
    levels: Vec<ServerLevelJson>,
    new_shapes: usize,
    new_shapes_share: f64,
    applications: Vec<String>,
}

#[derive(Clone, Debug, Serialize, TS)]
struct ServerLevelJson {
    measure: &'static str,
    before: f64,
    lowest_before: f64,
    highest_before: f64,
    after: f64,
}

#[derive(Clone, Debug, Serialize, TS)]
pub struct MachineChangeJson {
    cause: &'static str,
    /// The member of the replica set; null if it is not about one.
    member: Option<String>,
    figures: Vec<MachineFigureJson>,
}

#[derive(Clone, Debug, Serialize, TS)]
struct MachineFigureJson {
    figure: &'static str,
    unit: &'static str,
    before: f64,
    after: f64,
}

#[derive(Clone, Debug, Serialize, TS)]
pub struct SeriesChangeJson {
    subject: &'static str,
    name: Option<String>,
    metric: String,
    title: String,
    unit: &'static str,
    before: f64,
    lowest_before: f64,
    highest_before: f64,
    after: f64,
    /// Before and after; null for a figure without limits.
    verdicts: Option<[&'static str; 2]>,
}

impl ChangeFiguresJson {
    pub(super) fn new(what: &ChangeKind) -> Self {
        match what {
            ChangeKind::Event(events) => Self::Events(
                events
                    .iter()
                    .map(|event| ChangeEventJson {
                        kind: event.kind.name(),
                        time_ns: event.at.unix_ns(),
                        subject: owned_name(&event.subject),
                        text: event.text.to_string(),
                        count: event.count,
                    })
                    .collect(),
            ),
            ChangeKind::Application(app) => Self::Application(NewApplicationJson {
                name: app.name.to_string(),
                driver: owned_name(&app.driver.0),
                version: owned_name(&app.driver.1),
                versions_before: all(&app.versions_before),
                calls: app.calls,
                time_ns: app.time_ns as u64,
                has_ended: app.has_ended,
                pause_ns: app.pause_ns,
            }),
            ChangeKind::Shape(shape) => Self::Shape(Box::new(ShapeChangeJson::new(shape))),
            ChangeKind::Errors(errors) => {
                let [before, after] =
                    errors.counts.map(|(errors, seconds)| ErrorCountJson { errors, seconds });
                Self::Errors(ErrorChangeJson {
                    code: errors.code,
                    namespace: errors.namespace.to_string(),
                    commands: all(&errors.commands),
                    applications: all(&errors.applications),
                    before,
                    after,
                })
            }
            ChangeKind::Growth(growth) => Self::Growth(GrowthJson {
                grown: SeriesChangeJson::new(&growth.grown),
                parts: growth.parts.iter().map(SeriesChangeJson::new).collect(),
            }),
            ChangeKind::Server(change) => Self::Server(ServerChangeJson::new(change)),
            ChangeKind::Machine(change) => Self::Machine(MachineChangeJson::new(change)),
            ChangeKind::Series(series) => Self::Series(SeriesChangeJson::new(series)),
        }
    }

    /// Whether it is the crash of a server.
    pub(super) fn is_crash(&self) -> bool {
        let Self::Events(events) = self else { return false };
        events.iter().any(|event| event.kind == EventKind::ServerCrash.name())
    }
}

impl ShapeChangeJson {
    fn new(change: &ShapeChange) -> Self {
        Self {
            shape: NamedShapeJson::new(&change.shape),
            source: change.source.name(),
            ways: change.ways.iter().map(|way| way.name()).collect(),
            applications: all(&change.applications),
            before: ShapeSideJson::new(&change.before),
            after: ShapeSideJson::new(&change.after),
            pause_ns: change.pause_ns,
            split: change.split.as_deref().map(SplitChangeJson::new),
        }
    }
}

impl NamedShapeJson {
    fn new(shape: &ShapeInfo) -> Self {
        Self {
            shape_id: shape.id.to_string(),
            command: shape.command.to_string(),
            namespace: shape.namespace(),
            shape: shape.typed.to_string(),
        }
    }
}

impl ShapeSideJson {
    fn new(figures: &ShapeFigures) -> Self {
        let [p50_ns, p99_ns, max_ns] = figures.latency.map_or([None; 3], |latency| latency.map(Some));
        Self {
            calls: figures.calls,
            seconds: figures.seconds,
            time_ns: figures.time_ns as u64,
            p50_ns,
            p99_ns,
            max_ns,
            stalled: figures.stalled.0,
            logged: figures.logged,
            plans: figures.plans.iter().map(|(plan, count)| (plan.to_string(), *count)).collect(),
            examined_per_returned: figures.examined_per_returned,
        }
    }
}

impl SplitChangeJson {
    pub(super) fn new(change: &SplitChange) -> Self {
        let side = |row: &RowSplit| SplitSideJson {
            operations: row.operations,
            total_ns: row.total_ns(),
            parts: of_row(row).filter(|(_, ns)| *ns > 0).map(|(part, ns)| (part.name(), ns)).collect(),
        };
        let grown = change.grown.iter().map(|grown| GrownPartJson {
            part: match grown.what {
                GrownTime::Part(part) => ShownPart::Measured(part),
                GrownTime::Unread => ShownPart::Unread,
            },
            before_ns: grown.before_ns as u64,
            after_ns: grown.after_ns as u64,
            class: grown.class.as_deref().map(str::to_owned),
            file: grown.file.as_deref().map(str::to_owned),
            ended_by: grown.blocker.as_deref().map(NamedShapeJson::new),
        });
        Self { before: side(&change.before), after: side(&change.after), grown: grown.collect() }
    }
}

impl ServerChangeJson {
    fn new(change: &ServerChange) -> Self {
        let levels = change.levels.iter().map(|level| ServerLevelJson {
            measure: level.measure.name(),
            before: level.before,
            lowest_before: level.range.0,
            highest_before: level.range.1,
            after: level.after,
        });
        Self {
            levels: levels.collect(),
            new_shapes: change.new_shapes,
            new_shapes_share: change.new_share,
            applications: all(&change.applications),
        }
    }
}

impl MachineChangeJson {
    fn new(change: &MachineChange) -> Self {
        let figures = change.figures.iter().map(|figure| MachineFigureJson {
            figure: figure.what,
            unit: figure.unit.name(),
            before: figure.before,
            after: figure.after,
        });
        Self { cause: change.cause.name(), member: owned_name(&change.name), figures: figures.collect() }
    }
}

impl SeriesChangeJson {
    fn new(series: &SeriesChange) -> Self {
        let (title, unit) = level::metric(&series.key);
        Self {
            subject: series.key.subject.name(),
            name: owned_name(&series.key.name),
            metric: series.key.metric.to_string(),
            title,
            unit,
            before: series.before,
            lowest_before: series.range.0,
            highest_before: series.range.1,
            after: series.after,
            verdicts: series.judged.map(|(_, verdicts)| verdicts.map(|verdict| verdict.name())),
        }
    }
}

/// `None` for an empty name.
fn owned_name(text: &str) -> Option<String> {
    name(text).map(str::to_owned)
}

fn all(names: &[Box<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
