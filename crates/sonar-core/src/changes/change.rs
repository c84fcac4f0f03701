//! What a change is, and its evidence.

use std::sync::Arc;

use crate::history::{Event, SeriesKey, Span};
use crate::internals::{Figure, FigureUnit, FigureVerdict};
use crate::time_split::{RowSplit, TimePart};
use crate::{Endpoint, ShapeInfo, Source, Timestamp};

/// Probability of a false alarm, over all tests of one comparison together. It is stricter than that of
/// [`significance`](crate::significance), because a history is compared again and again.
pub const ALPHA: f64 = 0.001;
/// A change of time counts from this share of all time that operations took.
pub(super) const MIN_SHARE: f64 = 0.01;
/// The smallest change of time that counts, in nanoseconds per second.
pub(super) const MIN_LOAD: f64 = 500_000.0;

/// One thing that changed.
#[derive(Clone, Debug)]
pub struct HistoryChange {
    /// The server; port 0 if it is not about one.
    pub server: Endpoint,
    /// When it began: exact for events and for shapes that are gone. For new shapes it is the start of their first
    /// operation, as far as the figures show it. For all others it is the start of a window.
    pub since: Timestamp,
    /// The start of the time that its figures cover; they are compared with the time before it.
    pub from: Timestamp,
    /// The end of the time that its figures cover.
    pub until: Timestamp,
    /// Time in nanoseconds that operations took beyond what they took before, effects included. Below 0: less time.
    pub cost_ns: f64,
    /// What changed.
    pub what: ChangeKind,
    /// What it caused, or what began with it, by cost.
    pub effects: Vec<HistoryChange>,
}

impl HistoryChange {
    /// A change without a cost and without effects. [`find`](super::find()) sets the time that its figures cover.
    pub const fn new(server: Endpoint, since: Timestamp, what: ChangeKind) -> Self {
        Self { server, since, from: since, until: since, cost_ns: 0.0, what, effects: Vec::new() }
    }

    /// Whether [`since`](Self::since) is the start of the first window of a shape that is unlike those before.
    pub fn is_dated_by_window(&self) -> bool {
        use ShapeWay::{Faster, Heavier, LessOften, Lighter, MoreOften, Plan, Slower};
        let is_of_windows = |way: &ShapeWay| {
            matches!(way, Slower | Faster | Plan | Heavier | Lighter | MoreOften | LessOften)
        };
        matches!(&self.what, ChangeKind::Shape(shape) if shape.ways.iter().all(is_of_windows))
    }

    /// The times in which a server wrote no samples, if the change is nothing else.
    pub(super) fn silences(&self) -> Option<&[Event]> {
        match &self.what {
            ChangeKind::Event(events) if events.iter().all(|event| event.silence_ns().is_some()) => {
                Some(events)
            }
            _ => None,
        }
    }

    /// Sets the time that its figures and those of its effects cover.
    pub(super) fn measured_in(&mut self, span: Span) {
        (self.from, self.until) = (span.from, span.to);
        self.effects.iter_mut().for_each(|effect| effect.measured_in(span));
    }
}

/// What changed, with its evidence.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// Events of one kind about one subject, by time; at least one.
    Event(Vec<Event>),
    /// An application that was not there before, or another version of its driver.
    Application(ApplicationChange),
    /// A query shape.
    Shape(Box<ShapeChange>),
    /// Errors that began, ended or became more frequent.
    Errors(ErrorChange),
    /// A collection or an index that grew.
    Growth(GrowthChange),
    /// A server as a whole.
    Server(ServerChange),
    /// What the machine, a control group or a member of the replica set denied a server.
    Machine(MachineChange),
    /// Something that the machine or the server measures of itself.
    Series(SeriesChange),
}

impl ChangeKind {
    /// The stable name in output.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Event(_) => "event",
            Self::Application(_) => "application",
            Self::Shape(_) => "shape",
            Self::Errors(_) => "errors",
            Self::Growth(_) => "growth",
            Self::Server(_) => "server",
            Self::Machine(_) => "machine",
            Self::Series(_) => "series",
        }
    }
}

/// How a query shape changed.
#[derive(Clone, Debug)]
pub struct ShapeChange {
    /// Its shape.
    pub shape: Arc<ShapeInfo>,
    /// The source of the latencies.
    pub source: Source,
    /// In which ways it changed, the most important first; at least one.
    pub ways: Vec<ShapeWay>,
    /// Before.
    pub before: ShapeFigures,
    /// After.
    pub after: ShapeFigures,
    /// Applications that ran it after, or before if it stopped, the busiest first.
    pub applications: Vec<Box<str>>,
    /// The application whose operations became more frequent than those of any other; `None` if none has.
    pub growth: Option<ApplicationGrowth>,
    /// How long it had not occurred before, in nanoseconds; `None` unless it is new again.
    pub pause_ns: Option<u64>,
    /// Where the time of its operations went, if that is known of enough of them on both sides.
    pub split: Option<Box<SplitChange>>,
}

/// How much more often an application runs a shape.
#[derive(Clone, PartialEq, Debug)]
pub struct ApplicationGrowth {
    /// Its name.
    pub application: Box<str>,
    /// Operations per second more than before; above 0.
    pub per_second: f64,
}

/// Where the time of a shape's operations went, before and after.
#[derive(Clone, PartialEq, Debug)]
pub struct SplitChange {
    /// Before.
    pub before: RowSplit,
    /// After.
    pub after: RowSplit,
    /// What grew beyond chance and has a good share of what the whole time grew, the most first.
    pub grown: Vec<SplitGrowth>,
}

/// A part of the time of operations.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum GrownTime {
    /// Measured at the thread.
    Part(TimePart),
    /// The request had arrived, but the thread had not read it.
    Unread,
}

impl GrownTime {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TimePart::ALL.into_iter().map(Self::Part).chain([Self::Unread])
    }

    /// How much of a split it is, in nanoseconds.
    pub fn ns(self, split: &RowSplit) -> u64 {
        match self {
            Self::Part(part) => split.split[part],
            Self::Unread => split.unread_ns,
        }
    }
}

/// A part of the time of operations that grew.
#[derive(Clone, PartialEq, Debug)]
pub struct SplitGrowth {
    /// Which.
    pub what: GrownTime,
    /// Nanoseconds per operation before.
    pub before_ns: f64,
    /// Nanoseconds per operation after.
    pub after_ns: f64,
    /// The class of most of the waits that are new; `None` if no class has most of them.
    pub class: Option<Arc<str>>,
    /// The file that most of the new waits were for; `None` if no file has most of them.
    pub file: Option<Arc<str>>,
    /// The shape whose operations ended most of the new waits, as they held what was waited for; `None` if no shape has
    /// most of them.
    pub blocker: Option<Arc<ShapeInfo>>,
}

/// In which way a query shape changed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ShapeWay {
    /// It did not occur before.
    New,
    /// It had not occurred for a long time.
    Again,
    /// It does not occur any more.
    Stopped,
    /// A few operations took longer than any before.
    Stalled,
    /// Its latencies grew.
    Slower,
    /// Its latencies fell.
    Faster,
    /// The server uses another plan.
    Plan,
    /// It examines more for each document returned.
    Heavier,
    /// It examines less for each document returned.
    Lighter,
    /// It runs more often.
    MoreOften,
    /// It runs less often.
    LessOften,
}

impl ShapeWay {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Again => "new_again",
            Self::Stopped => "stopped",
            Self::Stalled => "stalled",
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Plan => "plan",
            Self::Heavier => "heavier",
            Self::Lighter => "lighter",
            Self::MoreOften => "more_often",
            Self::LessOften => "less_often",
        }
    }
}

/// Figures of a shape on one side of a comparison.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ShapeFigures {
    /// Operations.
    pub calls: u64,
    /// Seconds in which they were observed.
    pub seconds: f64,
    /// Sum of their latencies, in nanoseconds.
    pub time_ns: f64,
    /// 50 % and 99 % quantiles and the largest latency, in nanoseconds; `None` without latencies.
    pub latency: Option<[u64; 3]>,
    /// Operations that stalled: that were held, or took longer than any before; and the sum of their latencies in
    /// nanoseconds. What was held in the span may have ended later.
    pub stalled: (u64, f64),
    /// Mean latency of the others in nanoseconds; `None` where none stalled.
    pub mean_of_others_ns: Option<f64>,
    /// Slow operations in the log.
    pub logged: u64,
    /// By plan summary, how many of those in the log; the most frequent first.
    pub plans: Vec<(Box<str>, u64)>,
    /// Documents or keys examined for each document returned, of those in the log.
    pub examined_per_returned: Option<f64>,
}

impl ShapeFigures {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.calls as f64 / self.seconds } else { 0.0 }
    }

    /// Mean latency in nanoseconds; 0 without operations.
    pub fn mean_ns(&self) -> f64 {
        if self.calls > 0 { self.time_ns / self.calls as f64 } else { 0.0 }
    }

    /// The same without operations that stalled.
    pub fn usual_mean_ns(&self) -> f64 {
        self.mean_of_others_ns.unwrap_or_else(|| self.mean_ns())
    }

    /// Time per second in nanoseconds.
    pub fn load(&self) -> f64 {
        if self.seconds > 0.0 { self.time_ns / self.seconds } else { 0.0 }
    }
}

/// How often an error occurs, before and after.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorChange {
    /// The code of the error.
    pub code: i32,
    /// `db.collection`, or the database alone.
    pub namespace: Box<str>,
    /// The commands that fail, by name.
    pub commands: Vec<Box<str>>,
    /// Applications whose operations fail, the one with most failures first.
    pub applications: Vec<Box<str>>,
    /// Errors and seconds, before and after.
    pub counts: [(u64, f64); 2],
    /// Whether they ended; otherwise they began or became more frequent.
    pub has_ended: bool,
}

/// An application that began to run operations, or ended.
#[derive(Clone, PartialEq, Debug)]
pub struct ApplicationChange {
    /// Its name.
    pub name: Box<str>,
    /// Its driver, and the version; empty if unknown.
    pub driver: (Box<str>, Box<str>),
    /// Versions of the same driver that the same application had before; empty if the application is new.
    pub versions_before: Vec<Box<str>>,
    /// Operations in the span; of one that has ended, in the time before.
    pub calls: u64,
    /// Sum of their latencies in nanoseconds.
    pub time_ns: f64,
    /// Whether it has ended: it ran all the time, and now no more.
    pub has_ended: bool,
    /// How long no operation of it was seen before, in nanoseconds; `None` unless it is new and known to have run earlier.
    pub pause_ns: Option<u64>,
}

/// A collection that grew, with its indexes.
#[derive(Clone, Debug)]
pub struct GrowthChange {
    /// Size of the documents; where that did not grow, of what grew most.
    pub grown: SeriesChange,
    /// What else of it grew: documents, its file, its indexes.
    pub parts: Vec<SeriesChange>,
}

/// What is measured of a server as a whole.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ServerMeasure {
    /// Operations of users a second.
    Queries,
    /// Operations of users in progress, mean.
    InProgress,
    /// Failed operations of users a second.
    Failed,
    /// Open connections, as the server counts them; where it does not tell, threads that serve one.
    Connections,
}

impl ServerMeasure {
    /// Every measure, in the order of display.
    pub const ALL: [Self; 4] = [Self::Queries, Self::InProgress, Self::Failed, Self::Connections];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queries => "queries_per_s",
            Self::InProgress => "in_progress",
            Self::Failed => "failed_per_s",
            Self::Connections => "connections",
        }
    }
}

/// A measure of a server on both sides.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct ServerLevel {
    /// What is measured.
    pub measure: ServerMeasure,
    /// The mean shortly before; of rates by the time that was observed.
    pub before: f64,
    /// The smallest and the largest window of all time before.
    pub range: (f64, f64),
    /// The mean after.
    pub after: f64,
}

/// A server that does something else as a whole.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerChange {
    /// What changed beyond chance, without what another change explains.
    pub levels: Vec<ServerLevel>,
    /// How many shapes were not there before.
    pub new_shapes: usize,
    /// Their share of the operations after, 0 to 1.
    pub new_share: f64,
    /// Whether these are more than usual, beyond chance.
    pub has_unusually_many_new_shapes: bool,
    /// Commands and namespaces of those with most operations.
    pub new_names: Vec<Box<str>>,
    /// The applications with most operations after.
    pub applications: Vec<Box<str>>,
}

/// What was denied.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MachineCause {
    /// Other processes took the processors.
    Processors,
    /// The page cache became smaller, so that files are read from the disk again.
    PageCache,
    /// The machine reads memory back from its swap space.
    Swap,
    /// The control group of the server stops its threads.
    Throttled,
    /// A member of the replica set stands still, so that writes that wait for it do, too.
    Lag,
}

impl MachineCause {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processors => "processors",
            Self::PageCache => "page_cache",
            Self::Swap => "swap",
            Self::Throttled => "throttled",
            Self::Lag => "lag",
        }
    }
}

/// What the machine, a control group or a member of the replica set denied a server.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineChange {
    /// What.
    pub cause: MachineCause,
    /// The member that stands still; empty of other causes.
    pub name: Box<str>,
    /// Servers of the same machine that it hinders, too.
    pub others: Vec<Endpoint>,
    /// The figures that show it, the most important first; at least one.
    pub figures: Vec<MachineFigure>,
}

/// A figure that shows what was denied.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineFigure {
    /// The stable name in output.
    pub what: &'static str,
    /// The unit of both values.
    pub unit: FigureUnit,
    /// The median of the windows right before.
    pub before: f64,
    /// The median of the windows after; of a lag the last value.
    pub after: f64,
}

/// A series whose level changed.
#[derive(Clone, Debug)]
pub struct SeriesChange {
    /// Which.
    pub key: SeriesKey,
    /// The median of its windows before.
    pub before: f64,
    /// The smallest and the largest window before.
    pub range: (f64, f64),
    /// The median of its windows after.
    pub after: f64,
    /// How far it moved, in units of how far it moves by itself.
    pub score: f64,
    /// The judged figure of a server's internals, if it is one, and its verdicts before and after.
    pub judged: Option<(&'static Figure, [FigureVerdict; 2])>,
}

/// Everything that changed.
#[derive(Clone, Debug, Default)]
pub struct HistoryChanges {
    /// What changed, by cost.
    pub changes: Vec<HistoryChange>,
    /// What the machine and the internals of the server did at the same time, the largest movement first.
    pub context: Vec<HistoryChange>,
    /// Changes that were left out because there were more than [`MAX_CHANGES`].
    pub left_out: usize,
}

/// The maximum number of changes, and of series beside them.
pub const MAX_CHANGES: usize = 50;

impl HistoryChanges {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.context.is_empty()
    }
}
