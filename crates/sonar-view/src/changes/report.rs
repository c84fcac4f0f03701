//! The JSON document.

use std::collections::BTreeMap;

use serde::Serialize;
use sonar_core::changes::{HistoryChange, ScanMoment};
use sonar_core::history::Span;
use ts_rs::TS;

use super::figures::ChangeFiguresJson;
use super::gaps::{GapJson, SpanJson};
use super::seen::SeenSpan;
use super::sentence;
use crate::kit::{About, Zone, ZoneObject, plural, server_name};

/// Version of the schema.
const SCHEMA: u32 = 1;

/// What changed, at each moment of change.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ChangesReport {
    /// Version of the schema.
    pub schema: u32,
    /// `what-changed`.
    #[ts(type = "\"what-changed\"")]
    pub kind: &'static str,
    /// Where it comes from; its span is what was looked at.
    pub about: About,
    /// The zone of times in sentences.
    pub zone: ZoneObject,
    /// What the figures of the span were compared with; null if each moment was compared with the time before it.
    pub compared_with: Option<SpanJson>,
    /// The time before that shows what is usual; null unless it is longer than `compared_with`.
    pub usual: Option<SpanJson>,
    /// The answer in one sentence.
    pub summary: String,
    /// The moments at which something changed, by time.
    pub moments: Vec<MomentJson>,
    /// Times within the span that were not observed.
    pub gaps: Vec<GapJson>,
    /// What was lost in the span, by the name of its counter.
    pub lost: BTreeMap<&'static str, u64>,
    /// What a reader must know before the changes: what was lost, and what was not observed at all.
    pub notes: Vec<String>,
    /// Why nothing can be said about the span; it is one of the notes.
    #[serde(skip)]
    doubt: Option<String>,
}

/// A moment of change.
#[derive(Clone, Debug, Serialize, TS)]
pub struct MomentJson {
    /// The windows in which it began.
    #[serde(flatten)]
    pub span: SpanJson,
    /// What changed, the most important first.
    pub changes: Vec<ChangeJson>,
    /// What the machine and the server measured at the same time.
    pub context: Vec<ChangeJson>,
    /// Changes that were left out.
    pub left_out: usize,
    /// Over how long costs were measured, in nanoseconds: at least as long as the moment.
    pub measured_ns: u64,
}

/// One change.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ChangeJson {
    /// `event`, `application`, `shape`, `errors`, `growth`, `server`, `machine` or `series`.
    pub kind: &'static str,
    /// The server; null if it is not about one.
    pub server: Option<String>,
    /// When what the sentence says happened or began.
    pub since_ns: u64,
    /// The start of the time that its figures cover; they are compared with the time before it.
    pub from_ns: u64,
    /// The end of the time that its figures cover.
    pub until_ns: u64,
    /// Time that operations took beyond what they took before; below 0: less.
    pub cost_ns: i64,
    /// In words.
    pub sentence: String,
    /// The figures, a line each.
    pub evidence: Vec<String>,
    /// The arguments of the command that shows more; empty if there is none.
    pub command: Vec<String>,
    /// The same figures for programs.
    pub figures: ChangeFiguresJson,
    /// What it caused, or what began with it.
    pub effects: Vec<Self>,
}

/// What a report covers.
#[derive(Clone, Debug)]
pub struct ComparedSpans {
    /// What was looked at.
    pub span: Span,
    /// What it was compared with, if with one span.
    pub against: Option<Span>,
    /// The time before that shows what is usual, if that is longer.
    pub usual: Option<Span>,
    /// Where the history comes from.
    pub source: String,
    /// The zone of times.
    pub zone: Zone,
}

impl ChangesReport {
    /// A report of these moments.
    pub fn new(spans: &ComparedSpans, moments: &[ScanMoment], gaps: Vec<GapJson>) -> Self {
        let ends = [spans.span.from, spans.span.to];
        let moments = moments.iter().filter(|moment| !moment.changes.is_empty());
        let moments = moments.map(|moment| {
            // What began in a moment shows only later.
            let until = moment.span.from.plus_ns(moment.measured_ns).min(spans.span.to);
            let shown = Span { from: moment.span.from, to: until.max(moment.span.to) };
            let all = |changes: &[HistoryChange]| {
                changes.iter().map(|change| change_json(change, shown, &spans.zone)).collect()
            };
            let mut changes: Vec<ChangeJson> = all(&moment.changes.changes);
            for (change, shown) in moment.changes.changes.iter().zip(&mut changes) {
                let is_of_span = match spans.against {
                    Some(_) => change.from == spans.span.from,
                    // It may show only beside the windows before it.
                    None => !sentence::is_measured_earlier(change),
                };
                if !is_of_span {
                    shown.evidence.extend(sentence::measured(change, &spans.zone, spans.span));
                }
                if sentence::lacks_cause(change) {
                    shown.evidence.push(sentence::NO_CAUSE.to_owned());
                }
            }
            MomentJson {
                span: moment.span.into(),
                changes,
                context: all(&moment.changes.context),
                left_out: moment.changes.left_out,
                measured_ns: moment.measured_ns,
            }
        });
        let moments: Vec<MomentJson> = moments.collect();
        Self {
            schema: SCHEMA,
            summary: summary(&moments),
            kind: "what-changed",
            about: About::new(None, vec![spans.source.clone()], Some(spans.span)),
            zone: ZoneObject::new(&spans.zone, ends),
            compared_with: spans.against.map(SpanJson::from),
            usual: spans.usual.map(SpanJson::from),
            moments,
            gaps,
            lost: BTreeMap::new(),
            notes: Vec::new(),
            doubt: None,
        }
    }

    /// With what was seen of the span, what was lost, and why nothing can be said about it, if that is so.
    pub fn with_seen(mut self, seen: &SeenSpan, doubt: Option<String>) -> Self {
        self.lost = seen.lost().into_iter().collect();
        self.notes = seen.notes();
        let what = match self.has_changes() {
            true => "Only events are listed",
            false => "No change can be seen",
        };
        self.notes.extend(doubt.iter().map(|doubt| format!("{what}: {doubt}.")));
        self.doubt = doubt;
        self
    }

    /// Why nothing can be said about the span, if that is so.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// Whether anything changed.
    pub fn has_changes(&self) -> bool {
        !self.moments.is_empty()
    }
}

/// How many changes there are, and the one that cost most; of several without a cost the first. A crash of a server is
/// named in any case.
fn summary(moments: &[MomentJson]) -> String {
    let all = || moments.iter().flat_map(|moment| &moment.changes);
    let measured = |change: &ChangeJson| {
        let has = |moment: &&MomentJson| moment.changes.iter().any(|one| std::ptr::eq(one, change));
        moments.iter().find(has).map_or(1, |moment| moment.measured_ns)
    };
    let count = all().count() + moments.iter().map(|moment| moment.left_out).sum::<usize>();
    let costs = |change: &ChangeJson| change.cost_ns.unsigned_abs();
    let Some(largest) = all().reduce(|most, one| if costs(one) > costs(most) { one } else { most }) else {
        return match moments.is_empty() {
            true => "Nothing changed beyond chance.".to_owned(),
            false => {
                "No query changed beyond chance, but figures of the machine or the server did.".to_owned()
            }
        };
    };
    let cost = match largest.cost_ns {
        0 => String::new(),
        ns => format!(" ({})", sentence::cost_within(ns as f64, measured(largest))),
    };
    if count == 1 {
        return format!("1 change: {}{cost}", largest.sentence);
    }
    // That a server ended is the answer, even if hardly anybody waited.
    let above_all = match all().find(|change| change.figures.is_crash()) {
        Some(crash) if !std::ptr::eq(crash, largest) => format!("; above all: {}", crash.sentence),
        _ => String::new(),
    };
    let largest = match above_all.is_empty() || largest.cost_ns != 0 {
        true => format!("; the largest: {}{cost}", largest.sentence),
        false => String::new(),
    };
    format!("{}{above_all}{largest}", plural(count, "change"))
}

fn change_json(change: &HistoryChange, span: Span, zone: &Zone) -> ChangeJson {
    let server = (change.server.port != 0).then(|| server_name(change.server));
    ChangeJson {
        kind: change.what.name(),
        server,
        since_ns: sentence::since(change).unix_ns(),
        from_ns: change.from.unix_ns(),
        until_ns: change.until.unix_ns(),
        cost_ns: change.cost_ns as i64,
        sentence: sentence::sentence(change),
        evidence: sentence::evidence(change, zone),
        command: sentence::command(change, span),
        figures: ChangeFiguresJson::new(&change.what),
        effects: change.effects.iter().map(|effect| change_json(effect, span, zone)).collect(),
    }
}
