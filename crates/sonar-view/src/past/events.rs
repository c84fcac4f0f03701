//! What happened in a span of time: the events of servers, of the machine and of the agent.

use std::collections::BTreeMap;

use serde::Serialize;
use sonar_core::history::{Event, EventKind, Span};
use ts_rs::TS;

use super::{HistoryView, PastError};
use crate::changes::GapJson;
use crate::changes::words::event as in_words;
use crate::kit::{About, Zone, ZoneObject};
use crate::timeline::EventJson;

/// Version of the schema.
const SCHEMA: u32 = 1;

/// Which events are shown.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only those of this kind.
    pub kind: Option<EventKind>,
    /// Only those whose sentence has each of these words, whatever their case; empty for all.
    pub text: String,
    /// The most events: the latest.
    pub limit: usize,
}

/// What happened.
#[derive(Clone, Debug, Serialize, TS)]
pub struct EventsReport {
    /// Version of the schema.
    pub schema: u32,
    /// `events`.
    #[ts(type = "\"events\"")]
    pub kind: &'static str,
    /// Where it comes from.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// How many events there are of each kind, without the filter.
    pub kinds: BTreeMap<&'static str, usize>,
    /// The events, by time.
    pub events: Vec<EventJson>,
    /// Earlier ones that the filter lets pass, and that were left out because there are too many.
    pub left_out: usize,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

fn has_all(sentence: &str, words: &[String]) -> bool {
    words.iter().all(|word| sentence.contains(word.as_str()))
}

/// The events of a span; times in text are those of a clock in `zone`.
///
/// # Errors
/// The history cannot be read.
pub fn report(
    history: &HistoryView<'_>,
    span: Span,
    filter: &EventFilter,
    zone: &Zone,
) -> Result<EventsReport, PastError> {
    let span = history.until_now(span);
    let all = history.events(span)?;
    let mut kinds = BTreeMap::new();
    all.iter().for_each(|event| *kinds.entry(event.kind.name()).or_default() += 1);
    let words: Vec<String> = filter.text.split_whitespace().map(str::to_lowercase).collect();
    let is_wanted = |event: &&Event| {
        let sentence = || in_words(event).to_lowercase();
        filter.kind.is_none_or(|kind| kind == event.kind)
            && (words.is_empty() || has_all(&sentence(), &words))
    };
    // The latest stay.
    let mut wanted = all.iter().rev().filter(is_wanted);
    let mut events: Vec<EventJson> = wanted.by_ref().take(filter.limit).map(EventJson::of).collect();
    let left_out = wanted.count();
    events.reverse();
    let mut about = About::new(None, vec![history.name().to_owned()], Some(span));
    about.host = history.host()?;
    Ok(EventsReport {
        schema: SCHEMA,
        kind: "events",
        about,
        zone: ZoneObject::new(zone, [span.from, span.to]),
        kinds,
        events,
        left_out,
        gaps: history.gaps(span)?.iter().map(GapJson::from).collect(),
    })
}
