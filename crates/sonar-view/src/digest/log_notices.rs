//! What a log tells beside operations, as JSON.

use serde::Serialize;
use sonar_core::{LogNotices, Timestamp};
use ts_rs::TS;

/// Nanoseconds since the Unix epoch, if the time is known.
pub(super) fn known(at: Timestamp) -> Option<u64> {
    at.is_known().then_some(at.unix_ns())
}

/// What a log tells beside operations.
#[derive(Serialize, Debug, TS)]
pub(crate) struct NoticesJson {
    accepted: u64,
    ended: u64,
    most_open: Option<u64>,
    versions: Vec<String>,
    starts: Vec<ServerStartJson>,
    clients: Vec<LogClientJson>,
    slow_replies: SlowRepliesJson,
    messages: Vec<LogMessageJson>,
    messages_other: u64,
}

#[derive(Serialize, Debug, TS)]
struct ServerStartJson {
    at: u64,
    version: String,
    pid: Option<u32>,
    port: Option<u16>,
    host: String,
}

#[derive(Serialize, Debug, TS)]
struct LogClientJson {
    app: String,
    driver: String,
    driver_version: String,
    connections: u64,
}

#[derive(Serialize, Debug, TS)]
struct SlowRepliesJson {
    count: u64,
    total_ms: u64,
    longest_ms: u64,
    first: Option<u64>,
    last: Option<u64>,
}

#[derive(Serialize, Debug, TS)]
struct LogMessageJson {
    severity: &'static str,
    component: String,
    id: Option<u32>,
    text: String,
    count: u64,
    first: u64,
    last: u64,
}

impl From<&LogNotices> for NoticesJson {
    fn from(notices: &LogNotices) -> Self {
        let starts = notices.starts.iter().map(|start| ServerStartJson {
            at: start.at.unix_ns(),
            version: start.version.to_string(),
            pid: start.pid,
            port: start.port,
            host: start.host.to_string(),
        });
        let clients = notices.clients.iter().map(|(app, connections)| LogClientJson {
            app: app.name.to_string(),
            driver: app.driver.to_string(),
            driver_version: app.driver_version.to_string(),
            connections: *connections,
        });
        let slow = &notices.slow_replies;
        let messages = notices.messages.iter().map(|(kind, seen)| LogMessageJson {
            severity: kind.severity.name(),
            component: kind.component.to_string(),
            id: kind.id,
            text: kind.text.to_string(),
            count: seen.count,
            first: seen.first.unix_ns(),
            last: seen.last.unix_ns(),
        });
        Self {
            accepted: notices.accepted,
            ended: notices.ended,
            most_open: notices.most_open,
            versions: notices.versions().into_iter().map(str::to_owned).collect(),
            starts: starts.collect(),
            clients: clients.collect(),
            slow_replies: SlowRepliesJson {
                count: slow.seen.count,
                total_ms: slow.total_ms,
                longest_ms: slow.longest_ms,
                first: known(slow.seen.first),
                last: known(slow.seen.last),
            },
            messages: messages.collect(),
            messages_other: notices.messages_other,
        }
    }
}
