//! In what some operations of a span differ from the rest: those that took longest, or those of some minutes.

mod asked;
mod counter;
mod dimension;
mod picture;

use serde::Serialize;
use sonar_core::differences::{DimensionDifference, LatencyBand, ValueDifference};
use sonar_core::history::{Resolution, Span};
use sonar_core::significance::MIN_CALLS;
use sonar_core::words::plural;
use sonar_core::{ShapeInfo, Source};
use ts_rs::TS;

pub use self::asked::AskedDifference;
use self::counter::{DifferenceCounter, SelectedOperations};
use self::dimension::{Dimension, DimensionValue, EndedAs};
use self::picture::LatencyPicture;
use super::{HistoryView, PastError};
use crate::changes::GapJson;
use crate::kit::{About, Grouped, Zone, ZoneObject, server_name};
use crate::timeline::TimeAxis;

/// Version of the schema.
const SCHEMA: u32 = 1;
/// The most parts of the axis of the heat map.
const PARTS: usize = 240;
/// The most parts of the time of the selected operations.
const TIMES: usize = 60;
/// The slowest twentieth is selected where nothing else is.
const SLOWEST: f64 = 0.95;

/// In what some operations differ from the rest of the same span.
#[derive(Clone, Debug, Serialize, TS)]
pub struct DifferentReport {
    /// Version of the schema.
    pub schema: u32,
    /// `different`.
    #[ts(type = "\"different\"")]
    pub kind: &'static str,
    /// Where it comes from; its span is the axis.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// `wire`, `log` or `profile`: what the operations come from.
    pub source: &'static str,
    /// The shape whose operations are compared with each other; null if they are of all shapes.
    pub shape: Option<ComparedShapeJson>,
    /// Likewise the namespace.
    pub namespace: Option<String>,
    /// Which operations are compared with the rest.
    pub selected: SelectedOperationsJson,
    /// How many these are.
    pub these: u64,
    /// How many the rest are.
    pub rest: u64,
    /// What all of this was counted in, and what it leaves out.
    pub notes: Vec<String>,
    /// What they can differ in, first what differs most.
    pub dimensions: Vec<DimensionJson>,
    /// The upper bounds of the rows of latencies, in nanoseconds, ascending; a row is a quarter of an octave.
    pub bounds_ns: Vec<u64>,
    /// In each of the equal parts of the axis: the number of a row, and how many operations are in it.
    pub latencies: Vec<Vec<[u64; 2]>>,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

/// A shape whose operations are compared with each other.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ComparedShapeJson {
    /// Its id.
    pub shape_id: String,
    /// The command.
    pub command: String,
    /// The namespace; empty if the command names none.
    pub namespace: String,
    /// Its text with typed placeholders.
    pub typed: String,
}

/// Which operations are compared with the rest: whole windows of time, and whole buckets of latency.
#[derive(Clone, Debug, Serialize, TS)]
pub struct SelectedOperationsJson {
    /// The start of their time, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// All of them took longer than so many nanoseconds; null without a bound.
    pub low_ns: Option<u64>,
    /// None of them took longer than so many nanoseconds; null without a bound.
    pub high_ns: Option<u64>,
    /// Nothing was selected: they are the slowest twentieth of all.
    pub is_default: bool,
}

/// How a dimension differs.
#[derive(Clone, Debug, Serialize, TS)]
pub struct DimensionJson {
    /// `shape`, `namespace`, `command`, `application`, `client`, `server`, `plan`, `outcome`, `part` or `time`.
    pub dimension: &'static str,
    /// The same in words.
    pub words: &'static str,
    /// What values are counted in: `operations`, or `ns` of their time.
    pub unit: &'static str,
    /// The largest difference of shares that is more than chance, 0 to 1; 0 if there is none.
    pub difference: f64,
    /// How much of these operations is known in this dimension, in its unit.
    pub these: f64,
    /// The same of the rest.
    pub rest: f64,
    /// How much of `these` is estimated, not counted.
    pub estimated: f64,
    /// How it is estimated, or of which operations it speaks; null where all are counted.
    pub basis: Option<&'static str>,
    /// The values: first those that differ, by how much they do, then the most frequent ones; last all others together.
    pub values: Vec<DimensionValueJson>,
    /// How many values the last one stands for.
    pub left_out: usize,
}

/// How a value differs.
#[derive(Clone, Debug, Serialize, TS)]
pub struct DimensionValueJson {
    /// Its name; null for all others.
    pub name: Option<String>,
    /// Of a shape, its id; else null.
    pub shape_id: Option<String>,
    /// Of a shape, its text with typed placeholders; else null.
    pub typed: Option<String>,
    /// Of a part of the time, its start in nanoseconds since 1970; else null.
    pub start_ns: Option<u64>,
    /// How many of these operations have it, or how much of their time it is.
    pub these: f64,
    /// The same of the rest.
    pub rest: f64,
    /// The share of these, 0 to 1.
    pub these_share: f64,
    /// The share of the rest.
    pub rest_share: f64,
    /// Whether the shares differ by more than chance, and noticeably.
    pub differs: bool,
}

/// In what the operations that were asked for differ from the rest of the span; times in text are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read, or has no such operation; or no latency or time is selected.
pub fn report(
    history: &HistoryView<'_>,
    span: Span,
    asked: &AskedDifference,
    zone: &Zone,
) -> Result<DifferentReport, PastError> {
    let (span, resolution) = history.in_whole_windows(span);
    let filter = asked.filter();
    let axis = TimeAxis::new(span, PARTS, resolution.width_ns());
    let mut picture = LatencyPicture::new(axis, &filter, asked.time(span, resolution)?);
    history.visit_operations(span, resolution, &mut |window| picture.add(&window))?;
    let Some(source) = picture.source() else {
        let of = match (asked.shape, asked.namespace.as_deref()) {
            (Some(id), _) => format!(" of the shape {id}"),
            (None, Some(namespace)) => format!(" of {namespace}"),
            (None, None) => String::new(),
        };
        return Err(PastError::NothingStored(format!("no operation{of} is stored in this span")));
    };
    let band = if asked.is_open() {
        LatencyBand::from_quantile(picture.latency(source), SLOWEST)
    } else {
        LatencyBand::between(asked.low_ns, asked.high_ns).ok_or_else(|| {
            PastError::WrongQuestion("no latency is longer than low and not longer than high".to_owned())
        })?
    };
    let selected = SelectedOperations { source, time: picture.time, band };
    let times = TimeAxis::new(selected.time, TIMES, resolution.width_ns());
    let mut counter = DifferenceCounter::new(&filter, selected, times);
    history.visit_operations(span, resolution, &mut |window| counter.add(&window))?;
    let rows = picture.rows(source);
    let mut about = About::new(None, vec![history.name().to_owned()], Some(span));
    about.host = history.host()?;
    let namer = ValueNamer { times, zone };
    Ok(DifferentReport {
        schema: SCHEMA,
        kind: "different",
        about,
        zone: ZoneObject::new(zone, [span.from, span.to]),
        source: source.name(),
        shape: picture.shape.as_deref().filter(|_| asked.shape.is_some()).map(ComparedShapeJson::of),
        namespace: asked.namespace.clone(),
        selected: SelectedOperationsJson {
            start_ns: selected.time.from.unix_ns(),
            end_ns: selected.time.to.unix_ns(),
            low_ns: band.low_ns(),
            high_ns: band.high_ns(),
            is_default: asked.is_open(),
        },
        these: counter.these,
        rest: counter.rest,
        notes: notes(&counter, source, picture.windows, resolution),
        bounds_ns: rows.bounds_ns(),
        latencies: picture.cells(source, &rows),
        gaps: history.gaps(span)?.iter().map(GapJson::from).collect(),
        dimensions: counter
            .finish()
            .into_iter()
            .map(|(dimension, found)| namer.dimension(dimension, found))
            .collect(),
    })
}

/// What all of it was counted in, and what it leaves out.
fn notes(
    counter: &DifferenceCounter<'_>,
    source: Source,
    windows: u64,
    resolution: Resolution,
) -> Vec<String> {
    let width = match resolution {
        Resolution::TenSeconds => "ten seconds",
        Resolution::Minute => "a minute",
        Resolution::Hour => "an hour",
    };
    let mut notes = vec![format!(
        "Counted from {} of at least {width}, in buckets of latency that are 2.2 % wide: the selection is as wide as the \
         windows and buckets that it touches. Single operations are not stored, nor are their users.",
        plural(Grouped(windows), "window"),
    )];
    if source != Source::Wire {
        notes.push(format!(
            "Nothing was captured on the wire: these are the operations that a {} has, usually only slow ones.",
            source.name()
        ));
    }
    if counter.these < MIN_CALLS || counter.rest < MIN_CALLS {
        notes.push(format!(
            "With fewer than {MIN_CALLS} operations on a side, nothing is more than chance: choose a wider selection or a \
             longer time."
        ));
    }
    if counter.without_latency > 0 {
        let count = plural(Grouped(counter.without_latency), "operation");
        notes.push(format!("{count} without a latency, such as those without a reply, do not count."));
    }
    notes
}

impl ComparedShapeJson {
    fn of(shape: &ShapeInfo) -> Self {
        Self {
            shape_id: shape.id.to_string(),
            command: shape.command.to_string(),
            namespace: shape.namespace(),
            typed: shape.typed.to_string(),
        }
    }
}

/// Names values for people.
struct ValueNamer<'a> {
    times: TimeAxis,
    zone: &'a Zone,
}

impl ValueNamer<'_> {
    fn dimension(&self, dimension: Dimension, found: DimensionDifference<DimensionValue>) -> DimensionJson {
        let [name, words] = dimension.names();
        DimensionJson {
            dimension: name,
            words,
            unit: dimension.unit(),
            difference: found.difference,
            these: found.total.these,
            rest: found.total.rest,
            estimated: found.estimated,
            basis: dimension.basis(found.estimated > 0.0),
            values: found.values.iter().map(|value| self.value(value)).collect(),
            left_out: found.left_out,
        }
    }

    fn value(&self, found: &ValueDifference<DimensionValue>) -> DimensionValueJson {
        let shape = match &found.value {
            Some(DimensionValue::Shape(shape)) => Some(shape),
            _ => None,
        };
        let place = match &found.value {
            Some(DimensionValue::Time(place)) => Some(*place),
            _ => None,
        };
        DimensionValueJson {
            name: found.value.as_ref().map(|value| self.name(value)),
            shape_id: shape.map(|shape| shape.id.to_string()),
            typed: shape.map(|shape| shape.typed.to_string()),
            start_ns: place.map(|place| self.times.start(place).unix_ns()),
            these: found.count.these,
            rest: found.count.rest,
            these_share: found.share.these,
            rest_share: found.share.rest,
            differs: found.differs,
        }
    }

    fn name(&self, value: &DimensionValue) -> String {
        match value {
            DimensionValue::Shape(shape) => {
                format!("{} {}", shape.command, shape.namespace()).trim().to_owned()
            }
            DimensionValue::Namespace(shape) => named(&shape.namespace(), "(no namespace)"),
            DimensionValue::Command(shape) => named(&shape.command, "(no command)"),
            DimensionValue::Application(app) => app.label(),
            DimensionValue::Client(ip) => ip.to_string(),
            DimensionValue::Server(server) => server_name(*server),
            DimensionValue::Plan(plan) => plan.to_string(),
            DimensionValue::Outcome(EndedAs::Succeeded) => "succeeded".to_owned(),
            DimensionValue::Outcome(EndedAs::Error(0)) => "an error without a code".to_owned(),
            DimensionValue::Outcome(EndedAs::Error(code)) => format!("error {code}"),
            DimensionValue::Outcome(EndedAs::Unknown) => "not known".to_owned(),
            DimensionValue::Part(part) => part.words().to_owned(),
            DimensionValue::Time(place) => self.zone.show_seconds(self.times.start(*place)).to_string(),
        }
    }
}

/// A name, or what stands where there is none.
fn named(name: &str, without: &str) -> String {
    if name.is_empty() { without.to_owned() } else { name.to_owned() }
}
