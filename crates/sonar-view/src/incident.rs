//! What `report --from --to` shows: everything about an incident, from the history.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use sonar_core::HistoryWindow;
use sonar_core::history::{SeriesSubject, Span};
use sonar_core::internals::{FIGURES, FigureVerdict};
use ts_rs::TS;

use crate::changes::words::metric;
use crate::changes::{ChangesReport, GapJson};
use crate::kit::json::name;
use crate::kit::{About, Fitting, Zone, ZoneObject, server_address};
use crate::queries::json::ObjectKind;
use crate::queries::{Selection, ServerState, WindowReport, json, text};
use crate::timeline::TimelineReport;

/// Version of the schema.
const SCHEMA: u32 = 1;
/// The most rows of queries in text.
const ROWS: usize = 10;

/// A report about an incident. It is the JSON document in memory; text and the web page are made from it.
#[derive(Clone, Debug, Serialize, TS)]
pub struct IncidentReport {
    /// Version of the schema.
    pub schema: u32,
    /// `incident`.
    #[ts(type = "\"incident\"")]
    pub kind: &'static str,
    /// Where it comes from.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// What changed.
    pub changes: ChangesReport,
    /// Queries, internals, machine and events over time.
    pub timeline: TimelineReport,
    /// The queries of the whole span, as `queries --json` writes them.
    #[ts(as = "json::QueriesDocument<'static>")]
    pub queries: Value,
    /// What the machine and the servers measured of themselves.
    pub figures: Vec<SeriesFigureJson>,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

/// A series over the whole span.
#[derive(Clone, Debug, Serialize, TS)]
pub struct SeriesFigureJson {
    /// `internals`, `collections` or `machine`.
    pub group: &'static str,
    /// What it is about: `server`, `machine`, `device` …
    pub subject: &'static str,
    /// The port of the server; null if it is not about one.
    pub server: Option<u16>,
    /// Its address with the port, if the port alone is not its name; else missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub address: Option<String>,
    /// Which device, file system …; null if there is only one.
    pub name: Option<String>,
    /// Stable name of the metric.
    pub metric: String,
    /// Name for people.
    pub title: String,
    /// Unit.
    pub unit: &'static str,
    /// Mean over time.
    pub mean: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// How its mean is judged; null for a figure without limits.
    pub verdict: Option<&'static str>,
}

/// The parts of a report about an incident.
pub struct IncidentParts<'a> {
    /// What changed.
    pub changes: ChangesReport,
    /// Figures and events over time.
    pub timeline: TimelineReport,
    /// Everything within the span.
    pub window: &'a HistoryWindow,
    /// Which queries, in which order; at most as many as it says.
    pub selection: &'a Selection,
}

impl IncidentReport {
    /// Joins the parts.
    ///
    /// # Errors
    /// The queries cannot be written as JSON.
    pub fn new(span: Span, parts: IncidentParts<'_>, zone: &Zone) -> io::Result<Self> {
        let IncidentParts { changes, timeline, window, selection } = parts;
        let mut queries = Vec::new();
        let mut report = WindowReport::new(&window.window, selection).with_unread(&window.window.coverage);
        report.servers = ServerState::at_end_of(window);
        json::report(&report, ObjectKind::Summary, &mut queries)?;
        let ends = [span.from, span.to];
        Ok(Self {
            schema: SCHEMA,
            kind: "incident",
            about: About::new(changes.about.host.clone(), changes.about.sources.clone(), Some(span)),
            zone: ZoneObject::new(zone, ends),
            gaps: changes.gaps.clone(),
            changes,
            timeline,
            queries: serde_json::from_slice(&queries)?,
            figures: figures(window),
        })
    }

    /// As text: what changed, the timeline, and the queries of `window`. `suffix` is what to write after the arguments of
    /// a command that shows more.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(
        &self,
        out: &mut Fitting<W>,
        window: &HistoryWindow,
        selection: &Selection,
        suffix: &str,
    ) -> io::Result<()> {
        let zone = &selection.zone;
        writeln!(out, "WHAT CHANGED")?;
        self.changes.text(out, zone, suffix)?;
        writeln!(out, "\nTIMELINE")?;
        // What was not observed has been said.
        let timeline = TimelineReport { gaps: Vec::new(), ..self.timeline.clone() };
        timeline.text(out, zone)?;
        writeln!(out, "\nQUERIES")?;
        let selection = Selection { limit: selection.limit.or(Some(ROWS)), ..selection.clone() };
        let width = out.width();
        let mut report = WindowReport::new(&window.window, &selection).with_unread(&window.window.coverage);
        report.servers = ServerState::at_end_of(window);
        text::summary(&report, width, out)
    }
}

/// All series but those of single files and threads, the judged ones first.
fn figures(window: &HistoryWindow) -> Vec<SeriesFigureJson> {
    let mut figures: Vec<SeriesFigureJson> = Vec::new();
    for (key, value) in &window.series {
        let group = match key.subject {
            SeriesSubject::Server | SeriesSubject::Member => "internals",
            SeriesSubject::Collection | SeriesSubject::Index => "collections",
            SeriesSubject::File | SeriesSubject::ThreadRole => continue,
            _ => "machine",
        };
        let Some(mean) = value.mean() else { continue };
        let (title, unit) = metric(key);
        let figure = FIGURES.iter().find(|figure| group == "internals" && *figure.id == *key.metric);
        let verdict = figure.and_then(|figure| figure.limits).map(|limits| {
            let verdict = match (limits.is_passed(limits.red, mean), limits.is_passed(limits.amber, mean)) {
                (true, _) => FigureVerdict::Red,
                (_, true) => FigureVerdict::Amber,
                _ => FigureVerdict::Ok,
            };
            verdict.name()
        });
        figures.push(SeriesFigureJson {
            group,
            subject: key.subject.name(),
            server: (key.server.port != 0).then_some(key.server.port),
            address: server_address(key.server),
            name: name(&key.name).map(str::to_owned),
            metric: key.metric.to_string(),
            title,
            unit,
            mean,
            min: value.min,
            max: value.max,
            verdict,
        });
    }
    let rank = |figure: &SeriesFigureJson| match figure.verdict {
        Some("red") => 0,
        Some("amber") => 1,
        _ => 2,
    };
    figures.sort_by_key(|figure| (figure.group, rank(figure)));
    figures
}
