//! The JSON document.

use serde::Serialize;
use sonar_core::history::{Event, EventKind};
use ts_rs::TS;

use crate::changes::GapJson;
use crate::changes::words::event as event_words;
use crate::kit::{About, ZoneObject, server_address};

/// Figures and events on one axis of time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct TimelineReport {
    /// Version of the schema.
    pub schema: u32,
    /// `timeline`.
    #[ts(type = "\"timeline\"")]
    pub kind: &'static str,
    /// Where it comes from; its span is the axis.
    pub about: About,
    /// The zone of times in text.
    pub zone: ZoneObject,
    /// The number of equal parts of the axis: each lane has a value for each.
    pub parts: usize,
    /// The lanes, from top to bottom.
    pub lanes: Vec<LaneJson>,
    /// The number of figures of the internals of servers that have limits and were observed, over them or not.
    pub internals_judged: usize,
    /// The events, by time.
    pub events: Vec<EventJson>,
    /// Events that were left out because there are too many: the less important and the older ones.
    pub events_left_out: usize,
    /// Times that were not observed.
    pub gaps: Vec<GapJson>,
}

/// One figure over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct LaneJson {
    /// `queries`, `internals` or `machine`.
    pub group: &'static str,
    /// Stable name for programs.
    pub id: &'static str,
    /// Name for people.
    pub title: String,
    /// The unit of the values.
    pub unit: &'static str,
    /// The port of the server; null for all servers, and for the machine.
    pub server: Option<u16>,
    /// Its address with the port, if the port alone is not its name; else missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub address: Option<String>,
    /// `amber` or `red` if it is over a limit somewhere, for figures with limits.
    pub verdict: Option<&'static str>,
    /// That limit.
    pub limit: Option<f64>,
    /// The values; null where nothing was observed.
    pub values: Vec<Option<f64>>,
}

/// One event.
#[derive(Clone, Debug, Serialize, TS)]
pub struct EventJson {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// What kind of event.
    pub kind: &'static str,
    /// The port of the server; null if it is not about one.
    pub server: Option<u16>,
    /// Its address with the port, if the port alone is not its name; else missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub address: Option<String>,
    /// In words.
    pub sentence: String,
}

impl EventJson {
    /// Of this event.
    pub(crate) fn of(event: &Event) -> Self {
        Self {
            time_ns: event.at.unix_ns(),
            kind: event.kind.name(),
            server: (event.server.port != 0).then_some(event.server.port),
            address: server_address(event.server),
            sentence: event_words(event),
        }
    }

    /// What kind of event.
    pub(super) fn event_kind(&self) -> EventKind {
        EventKind::from_name(self.kind).unwrap_or(EventKind::CollectorFailed)
    }
}
