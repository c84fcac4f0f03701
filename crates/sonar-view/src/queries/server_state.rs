//! The state of the servers of this host, beside their queries.

use serde::Serialize;
use sonar_core::history::HistoryWindow;
use sonar_core::internals::{GlanceFigure, ServerGlance};
use sonar_core::time::NS_PER_S;
use sonar_core::{Timestamp, Window};
use ts_rs::TS;

use crate::kit::{Bytes, Count, Nanos, Percent, escape};

/// A younger sample is as good as one of now; the age of an older one is shown, in seconds.
const RECENT_S: u64 = 3;
/// Servers write their samples every ten seconds: from this age on something is wrong, in seconds.
const STALE_S: u64 = 30;

/// The state of a server of this host.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// Its program: `mongod` or `mongos`; `None` if it is not known.
    pub program: Option<String>,
    /// The port that it listens on.
    pub port: u16,
    /// Its figures.
    pub glance: ServerGlance,
}

/// A server as last sampled; what is not known is null.
#[derive(Serialize, TS)]
pub(crate) struct ServerStateJson<'a> {
    program: Option<&'a str>,
    port: u16,
    sampled_ns: u64,
    connections: Option<u64>,
    queued_reads: Option<u64>,
    queued_writes: Option<u64>,
    cache_used_percent: Option<f64>,
    cache_dirty_percent: Option<f64>,
    resident_bytes: Option<u64>,
    lag_ms: Option<u64>,
}

impl<'a> From<&'a ServerState> for ServerStateJson<'a> {
    fn from(ServerState { program, port, glance }: &'a ServerState) -> Self {
        Self {
            program: program.as_deref(),
            port: *port,
            sampled_ns: glance.at.unix_ns(),
            connections: glance.connections,
            queued_reads: glance.queued_reads,
            queued_writes: glance.queued_writes,
            cache_used_percent: glance.cache_used_percent,
            cache_dirty_percent: glance.cache_dirty_percent,
            resident_bytes: glance.resident_bytes,
            lag_ms: glance.lag_ms,
        }
    }
}

/// A stored window, and the state of the servers at its end.
#[derive(Clone, Debug)]
pub struct PastWindow {
    /// The operations.
    pub window: Window,
    /// The servers, by port.
    pub servers: Vec<ServerState>,
}

impl From<HistoryWindow> for PastWindow {
    fn from(stored: HistoryWindow) -> Self {
        let servers = ServerState::at_end_of(&stored);
        Self { window: stored.window, servers }
    }
}

/// How a figure of a server is to be taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum StateTone {
    Plain,
    /// It deserves attention.
    Notable,
    /// It is less important than the others.
    Dim,
}

/// A figure with what stands before and after it.
pub(crate) struct StateFigure {
    /// Where there is room, around the value.
    pub wide: [String; 3],
    /// Where there is little, in the words of `mongostat`.
    pub narrow: [String; 3],
    pub tone: StateTone,
    /// Figures with less go first where there is no room.
    pub importance: u8,
}

/// The time to which ages refer.
#[derive(Copy, Clone, Debug)]
pub(crate) enum StateTime {
    /// The time up to which operations are shown; `None` if that is not known.
    Now(Option<Timestamp>),
    /// The end of a span of the past.
    Past(Timestamp),
}

impl ServerState {
    /// Those of the servers of the agent's host at the end of a stored window, by port, as far as it has their figures.
    pub fn at_end_of(stored: &HistoryWindow) -> Vec<Self> {
        let own = stored.last_states().into_iter().filter(|(server, _)| server.ip().is_unspecified());
        own.map(|(server, glance)| Self { program: None, port: server.port, glance }).collect()
    }

    /// Its program and its port.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", escape(self.program.as_deref().unwrap_or("server")), self.port)
    }

    /// Its name and its figures in one line.
    pub(crate) fn line(&self, time: StateTime) -> String {
        let figures = self.figures(time).into_iter().map(|figure| figure.wide.concat());
        std::iter::once(self.name()).chain(figures).collect::<Vec<_>>().join("  ")
    }

    /// The figures that are known, and how old they are.
    pub(crate) fn figures(&self, time: StateTime) -> Vec<StateFigure> {
        let glance = &self.glance;
        let notable = |is_notable| if is_notable { StateTone::Notable } else { StateTone::Plain };
        let judged = |figure: GlanceFigure, value: f64| notable(figure.is_notable(value));
        let mut figures = Vec::new();
        if let Some(connections) = glance.connections {
            let value = Count(connections as f64).to_string();
            figures.push(figure(2, StateTone::Plain, [["connections ", ""], ["conn ", ""]], value));
        }
        if let (Some(reads), Some(writes)) = (glance.queued_reads, glance.queued_writes) {
            let tone = notable(reads + writes > 0);
            let [reads, writes] = [reads, writes].map(|count| Count(count as f64).to_string());
            figures.push(StateFigure {
                wide: ["queued ".to_owned(), format!("{reads} read {writes} write"), String::new()],
                narrow: ["qrw ".to_owned(), format!("{reads}|{writes}"), String::new()],
                tone,
                importance: 5,
            });
        }
        if let Some(used) = glance.cache_used_percent {
            let (tone, value) = (judged(GlanceFigure::CacheUsed, used), Percent(used / 100.0).to_string());
            figures.push(figure(3, tone, [["cache ", " used"], ["used ", ""]], value));
        }
        if let Some(dirty) = glance.cache_dirty_percent {
            let (tone, value) =
                (judged(GlanceFigure::CacheDirty, dirty), format!("{:.1}", Percent(dirty / 100.0)));
            figures.push(figure(4, tone, [["", " dirty"], ["dirty ", ""]], value));
        }
        if let Some(bytes) = glance.resident_bytes {
            let value = Bytes(bytes as f64).to_string();
            figures.push(figure(0, StateTone::Plain, [["resident ", ""], ["res ", ""]], value));
        }
        if let Some(lag) = glance.lag_ms {
            let value = Nanos(lag.saturating_mul(1_000_000)).to_string();
            let value = if lag == 0 { "0s".to_owned() } else { value };
            figures.push(figure(1, judged(GlanceFigure::Lag, lag as f64), [["lag ", ""]; 2], value));
        }
        figures.extend(self.age(time));
        figures
    }

    /// A figure that is not of now must not look as if it were.
    fn age(&self, time: StateTime) -> Option<StateFigure> {
        let (at, after) = match time {
            StateTime::Now(at) => (at?, " ago"),
            StateTime::Past(at) => (at, " earlier"),
        };
        let age_s = at.since(self.glance.at) / NS_PER_S;
        if age_s <= RECENT_S {
            return None;
        }
        let tone = if age_s >= STALE_S { StateTone::Notable } else { StateTone::Dim };
        let value = if age_s < 60 { format!("{age_s}s") } else { Nanos(age_s * NS_PER_S).to_string() };
        Some(figure(6, tone, [["", after]; 2], value))
    }
}

fn figure(importance: u8, tone: StateTone, [wide, narrow]: [[&str; 2]; 2], value: String) -> StateFigure {
    let around = |[before, after]: [&str; 2]| [before.to_owned(), value.clone(), after.to_owned()];
    StateFigure { wide: around(wide), narrow: around(narrow), tone, importance }
}
