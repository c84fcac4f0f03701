//! The documents of the API. Those that a command writes too are the same as with `--json`.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use sonar_core::history::{EventKind, SeriesSubject, Span};
use sonar_core::time::NS_PER_S;
use sonar_core::{Coverage, Role, ShapeId, Timestamp};
use sonar_view::kit::Zone;
use sonar_view::kit::json::line;
use sonar_view::now::NowReport;
use sonar_view::page::{PageStatus, SCHEMA};
use sonar_view::past::all_series::{self, SeriesFilter};
use sonar_view::past::different::{self, AskedDifference};
use sonar_view::past::events::{self, EventFilter};
use sonar_view::past::queries::{IntervalWidth, intervals, whole};
use sonar_view::past::what_changed::{self, AskedChanges, AskedTime};
use sonar_view::past::{ComparedTime, HistoryView, PastError, PastIncident, shape, storage, timeline, waits};
use sonar_view::queries::json::{ObjectKind, report};
use sonar_view::queries::{Column, Grouping, PacketOrigin, PastWindow, Selection, Sort, WindowReport};

use crate::answer::{AnswerBytes, AnswerForm, MadeAnswer};
use crate::limits::PageRefusal;
use crate::page::ServedPage;
use crate::parameters::Parameters;
use crate::problem::PageProblem;
use crate::reading::{BoundedReader, ReadingStopped};

/// Rows of queries in an answer, without `limit`.
const ROWS: usize = 200;
/// Series in an answer, without `limit`; the most that it may be.
const SERIES: usize = 100;
const MAX_SERIES: usize = 1_000;
/// Events in an answer, without `limit`; the most that it may be.
const EVENTS: usize = 500;
const MAX_EVENTS: usize = 5_000;
/// The most intervals in an answer.
const MAX_INTERVALS: u64 = 1_000;
/// The length of an interval, without `width`, in seconds; the most that it may be.
const INTERVAL_S: u64 = 60;
const MAX_INTERVAL_S: u64 = 86_400;
/// The longest latency that may be asked for, in nanoseconds: eleven days.
const MAX_LATENCY_NS: u64 = 1_000_000_000_000_000;

/// A document of the API.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum DocumentKind {
    /// What the history has, and what the agent does.
    Status,
    /// The operations that run now.
    Now,
    /// The queries of a span.
    Queries,
    /// The queries of each interval of a span.
    Intervals,
    /// One query shape over a span.
    Shape,
    /// A span on one axis of time.
    Timeline,
    /// What changed at a moment or in a span.
    Changes,
    /// All three of a span: what changed, on one axis of time, and its queries.
    Incident,
    /// Where the time of operations went over a span.
    Waits,
    /// Files, disks and space over a span.
    Storage,
    /// In what some operations differ from the rest of a span.
    Different,
    /// Every stored series over a span.
    Series,
    /// The events of a span.
    Events,
}

impl DocumentKind {
    pub const ALL: [Self; 13] = [
        Self::Status,
        Self::Now,
        Self::Queries,
        Self::Intervals,
        Self::Shape,
        Self::Timeline,
        Self::Changes,
        Self::Incident,
        Self::Waits,
        Self::Storage,
        Self::Different,
        Self::Series,
        Self::Events,
    ];

    /// Its address.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Status => "/api/v1/status",
            Self::Now => "/api/v1/now",
            Self::Queries => "/api/v1/queries",
            Self::Intervals => "/api/v1/queries/intervals",
            Self::Shape => "/api/v1/shape",
            Self::Timeline => "/api/v1/timeline",
            Self::Changes => "/api/v1/what-changed",
            Self::Incident => "/api/v1/incident",
            Self::Waits => "/api/v1/waits",
            Self::Storage => "/api/v1/storage",
            Self::Different => "/api/v1/different",
            Self::Series => "/api/v1/series",
            Self::Events => "/api/v1/events",
        }
    }

    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Intervals => "application/x-ndjson",
            _ => "application/json",
        }
    }
}

/// Makes a document; this takes as long as the history is read.
///
/// # Errors
/// The parameters are wrong, or ask for too much; or the history cannot be read.
pub(crate) fn make(
    page: &ServedPage,
    kind: DocumentKind,
    parameters: Parameters,
    form: AnswerForm,
) -> Result<MadeAnswer, PageProblem> {
    let until = Instant::now() + page.limits.answer_time;
    let reader = page.history.open()?;
    let reader = BoundedReader::new(&*reader, page.limits.windows, until)
        .map_err(|error| PageProblem::failed(&error))?;
    let mut out = AnswerBytes::new(page.limits.answer_bytes, form);
    let asked = AskedDocument { page, reader: &reader, now: page.history.now() };
    let written = match kind {
        DocumentKind::Status => asked.status(parameters, &mut out),
        DocumentKind::Now => asked.now(parameters, &mut out),
        DocumentKind::Queries => asked.queries(parameters, &mut out),
        DocumentKind::Intervals => asked.intervals(parameters, &mut out),
        DocumentKind::Shape => asked.shape(parameters, &mut out),
        DocumentKind::Timeline => asked.timeline(parameters, &mut out),
        DocumentKind::Changes => asked.changes(parameters, &mut out),
        DocumentKind::Incident => asked.incident(parameters, &mut out),
        DocumentKind::Waits => asked.waits(parameters, &mut out),
        DocumentKind::Storage => asked.storage(parameters, &mut out),
        DocumentKind::Different => asked.different(parameters, &mut out),
        DocumentKind::Series => asked.series(parameters, &mut out),
        DocumentKind::Events => asked.events(parameters, &mut out),
    };
    match reader.stopped() {
        Some(ReadingStopped::TooMuch) => Err(PageProblem::new(
            PageRefusal::TooMuch,
            "the answer would read too much of the history: choose from and to closer together",
        )
        .of_parameter("from")),
        Some(ReadingStopped::Late) => Err(late()),
        None if out.is_full() => Err(PageProblem::new(
            PageRefusal::TooMuch,
            "the answer is too long: choose from and to closer together, or a smaller limit",
        )),
        None => {
            written?;
            out.finish().map_err(|error| PageProblem::failed(&error))
        }
    }
}

/// That an answer took too long.
pub(crate) fn late() -> PageProblem {
    PageProblem::new(
        PageRefusal::Late,
        "the answer took too long: choose from and to closer together, or try again later",
    )
}

/// What a document is made of.
struct AskedDocument<'a> {
    page: &'a ServedPage,
    reader: &'a BoundedReader<'a>,
    now: Timestamp,
}

impl<'a> AskedDocument<'a> {
    /// The history of the server at this port, or of all.
    fn history(&self, port: Option<u16>, zone: &Zone) -> Result<HistoryView<'a>, PageProblem> {
        let history = HistoryView::new(self.reader, self.page.history.name(), self.now)?;
        Ok(history.of_server(port)?.in_zone(zone).with_scanned_parts(&self.page.scanned))
    }

    /// The span that is asked for, as far as it is not still to come.
    fn span(
        &self,
        parameters: &mut Parameters,
        history: &HistoryView<'_>,
        zone: &Zone,
    ) -> Result<Span, PageProblem> {
        let span = parameters.span(history, self.now, &self.page.limits)?;
        Ok(history.asked(span, zone)?)
    }

    fn status(&self, parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        parameters.finish()?;
        let history = match HistoryView::new(self.reader, self.page.history.name(), self.now) {
            Ok(history) => Some(history),
            // It is empty.
            Err(PastError::NothingStored(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let (host, gaps, extent) = match &history {
            Some(history) => (history.host()?, history.gaps(history.last_hour())?, Some(history.extent())),
            None => (None, Vec::new(), None),
        };
        let (agent, agent_problem) = match self.page.history.agent() {
            Ok(agent) => (agent, None),
            Err(why) => (None, Some(why)),
        };
        let refused = PageRefusal::ALL.map(|kind| (kind.name(), self.page.refused.get(kind)));
        let status = PageStatus {
            schema: SCHEMA,
            kind: "page_status",
            version: env!("CARGO_PKG_VERSION"),
            history: self.page.history.name().to_owned(),
            now_ns: self.now.unix_ns(),
            host,
            start_ns: extent.map(|extent| extent.from.unix_ns()),
            end_ns: extent.map(|extent| extent.to.unix_ns()),
            gaps: gaps.iter().map(Into::into).collect(),
            agent,
            agent_problem,
            refused: BTreeMap::from(refused),
        };
        written(line(&status, out))
    }

    fn now(&self, parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        parameters.finish()?;
        let listed = self.page.history.running();
        // Without it, the list has no word of its sources; the status says why.
        let agent = self.page.history.agent().ok().flatten();
        written(line(&NowReport::new(&listed, agent.as_ref(), self.now), out))
    }

    fn queries(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let port = port(&mut parameters)?;
        let selection = self.selection(&mut parameters, port, zone)?;
        let history = self.history(port, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        parameters.finish()?;
        let PastWindow { window, servers } = whole(&history, span, zone)?;
        let mut shown =
            WindowReport::new(&window, &selection).explained(&window.coverage, &PacketOrigin::History);
        shown.notes.extend(history.operations_gap_note(span, zone)?);
        shown.notes.extend(
            port.map(|port| {
                format!("only the server at port {port}; what was lost is counted for all servers")
            }),
        );
        shown.servers = servers;
        written(report(&shown, ObjectKind::Summary, out))
    }

    fn intervals(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let port = port(&mut parameters)?;
        let selection = self.selection(&mut parameters, port, zone)?;
        let history = self.history(port, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        let width_s = parameters.number("width", 1..=MAX_INTERVAL_S)?.unwrap_or(INTERVAL_S);
        parameters.finish()?;
        let width_ns = width_s * NS_PER_S;
        let Some(width) = IntervalWidth::new(width_ns) else {
            let words = format!("width is a number of seconds that windows of 10 s fill, not {width_s}");
            return Err(PageProblem::wrong("width", words));
        };
        if span.length_ns() / width_ns >= MAX_INTERVALS {
            let words = format!(
                "there would be more than {MAX_INTERVALS} intervals: choose a larger width, or from and to closer together"
            );
            return Err(PageProblem::new(PageRefusal::TooMuch, words).of_parameter("width"));
        }
        let (mut seen, mut result) = (Coverage::default(), Ok(()));
        intervals(&history, span, width, &mut |PastWindow { window, servers }| {
            if result.is_ok() {
                seen.add(&window.coverage);
                let mut shown =
                    WindowReport::new(&window, &selection).explained(&seen, &PacketOrigin::History);
                shown.is_partial = window.length_ns() < width_ns;
                shown.servers = servers;
                result = report(&shown, ObjectKind::Interval, &mut *out);
            }
        })?;
        written(result)
    }

    fn shape(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let id = parameters.text("id").and_then(|text| shape_id(&text)).ok_or_else(wrong_id)?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        parameters.finish()?;
        written(line(&shape::report(&history, id, span, zone)?, out))
    }

    /// Which rows are asked for, of the server at this port or of all.
    fn selection(
        &self,
        parameters: &mut Parameters,
        port: Option<u16>,
        zone: &Zone,
    ) -> Result<Selection, PageProblem> {
        let most = self.page.limits.rows;
        let stored = Grouping::ALL.into_iter().filter(|by| *by != Grouping::Order);
        let by = parameters.one_of("by", stored, Grouping::name)?.unwrap_or(Grouping::Shape);
        if port.is_some() && matches!(by, Grouping::App | Grouping::Client) {
            let words = format!("rows by {} are of all servers together: leave out port, or by", by.name());
            return Err(PageProblem::wrong("port", words));
        }
        let column = parameters.text("sort").map_or(Ok(Column::Load), |name| {
            Column::from_name(&name).ok_or_else(|| {
                let names: Vec<_> = Column::ALL.into_iter().map(Column::name).collect();
                PageProblem::wrong("sort", format!("sort is one of {}, not {name:?}", names.join(" ")))
            })
        })?;
        Ok(Selection {
            by,
            role: Some(Role::Served),
            text: parameters.text("filter").unwrap_or_default(),
            sort: Sort { column, reverse: false },
            limit: Some(parameters.number("limit", 1..=most)?.unwrap_or(ROWS.min(most))),
            is_one_server: port.is_some(),
            zone: zone.clone(),
            ..Selection::default()
        })
    }

    fn timeline(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        parameters.finish()?;
        written(line(&timeline::report(&history, span, timeline::PARTS, zone)?, out))
    }

    fn waits(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        parameters.finish()?;
        written(line(&waits::report(&history, span, zone)?, out))
    }

    fn storage(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        parameters.finish()?;
        let tests = self.page.history.disk_tests();
        written(line(&storage::report(&history, span, &tests, zone)?, out))
    }

    fn different(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        let shape = match parameters.text("id") {
            Some(text) => Some(shape_id(&text).ok_or_else(wrong_id)?),
            None => None,
        };
        let asked = AskedDifference {
            start: parameters.time("start", self.now)?,
            end: parameters.time("end", self.now)?,
            low_ns: parameters.number("low", 0..=MAX_LATENCY_NS)?,
            high_ns: parameters.number("high", 1..=MAX_LATENCY_NS)?,
            shape,
            namespace: parameters.text("namespace").filter(|text| !text.is_empty()),
        };
        parameters.finish()?;
        if asked.start.zip(asked.end).is_some_and(|(start, end)| end <= start) {
            return Err(PageProblem::wrong("end", "end is not later than start"));
        }
        if asked.low_ns.zip(asked.high_ns).is_some_and(|(low, high)| high <= low) {
            return Err(PageProblem::wrong("high", "high is not more than low"));
        }
        written(line(&different::report(&history, span, &asked, zone)?, out))
    }

    fn series(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        let subject = parameters.one_of("subject", SeriesSubject::ALL, SeriesSubject::name)?;
        let filter = SeriesFilter {
            subject,
            text: parameters.text("filter").unwrap_or_default(),
            limit: parameters.number("limit", 1..=MAX_SERIES)?.unwrap_or(SERIES),
        };
        parameters.finish()?;
        written(line(&all_series::report(&history, span, &filter, zone)?, out))
    }

    fn events(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let span = self.span(&mut parameters, &history, zone)?;
        let filter = EventFilter {
            kind: parameters.one_of("kind", EventKind::ALL.iter().copied(), EventKind::name)?,
            text: parameters.text("filter").unwrap_or_default(),
            limit: parameters.number("limit", 1..=MAX_EVENTS)?.unwrap_or(EVENTS),
        };
        parameters.finish()?;
        written(line(&events::report(&history, span, &filter, zone)?, out))
    }

    fn incident(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = parameters.zone()?;
        let history = self.history(port(&mut parameters)?, &zone)?;
        let span = self.span(&mut parameters, &history, &zone)?;
        parameters.finish()?;
        let selection = Selection { role: Some(Role::Served), zone, ..Selection::default() };
        written(line(&PastIncident::of(&history, span, &selection)?.report, out))
    }

    fn changes(&self, mut parameters: Parameters, out: &mut AnswerBytes) -> Result<(), PageProblem> {
        let zone = &parameters.zone()?;
        let history = self.history(port(&mut parameters)?, zone)?;
        let when = match parameters.time("at", self.now)? {
            Some(at) => {
                let precision_s = parameters.number("precision", 1..=60_u64)?.unwrap_or(1);
                AskedTime::Moment { at, precision_ns: precision_s * NS_PER_S }
            }
            None => AskedTime::Span(self.span(&mut parameters, &history, zone)?),
        };
        let against = match parameters.text("against").as_deref() {
            None => None,
            Some("yesterday") => Some(ComparedTime::DaysEarlier(1)),
            Some("last-week") => Some(ComparedTime::DaysEarlier(7)),
            Some(other) => {
                let words = format!("against is yesterday or last-week, not {other:?}");
                return Err(PageProblem::wrong("against", words));
            }
        };
        parameters.finish()?;
        written(line(&what_changed::report(&history, &AskedChanges { when, against }, zone)?, out))
    }
}

/// The id of a shape, of this text; `None` if it is none.
fn shape_id(text: &str) -> Option<ShapeId> {
    let is_hex = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(text, 16).ok().map(ShapeId)).flatten()
}

/// That the id of a shape is none.
fn wrong_id() -> PageProblem {
    PageProblem::wrong("id", "id is the id of a shape, as documents have it: up to 16 digits, 0 to f")
}

/// The port of the server that is asked for.
fn port(parameters: &mut Parameters) -> Result<Option<u16>, PageProblem> {
    parameters.number("port", 1..=u16::MAX)
}

/// A document in memory fails only where it is too long, which `make` says.
fn written(result: io::Result<()>) -> Result<(), PageProblem> {
    result.map_err(|error| PageProblem::failed(&error))
}
