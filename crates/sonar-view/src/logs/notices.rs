//! What a log tells beside operations, as JSON.

use serde_json::{Value, json};
use sonar_core::notices::Start;
use sonar_core::{Notices, Timestamp};

/// Nanoseconds since the Unix epoch, if the time is known.
pub(super) fn known(at: Timestamp) -> Option<u64> {
    at.is_known().then_some(at.unix_ns())
}

/// What a log tells beside operations.
pub(super) fn notices(notices: &Notices) -> Value {
    let start = |start: &Start| {
        json!({
            "at": start.at.unix_ns(),
            "version": start.version,
            "pid": start.pid,
            "port": start.port,
            "host": start.host,
        })
    };
    let clients = notices.clients.iter().map(|(app, count)| {
        json!({
            "app": app.name,
            "driver": app.driver,
            "driver_version": app.driver_version,
            "connections": count,
        })
    });
    let messages = notices.messages.iter().map(|(kind, seen)| {
        json!({
            "severity": kind.severity.name(),
            "component": kind.component,
            "id": kind.id,
            "text": kind.text,
            "count": seen.count,
            "first": seen.first.unix_ns(),
            "last": seen.last.unix_ns(),
        })
    });
    json!({
        "accepted": notices.accepted,
        "ended": notices.ended,
        "most_open": notices.most_open,
        "versions": notices.versions(),
        "starts": notices.starts.iter().map(start).collect::<Vec<_>>(),
        "clients": clients.collect::<Vec<_>>(),
        "slow_replies": {
            "count": notices.slow_replies.seen.count,
            "total_ms": notices.slow_replies.total_ms,
            "longest_ms": notices.slow_replies.longest_ms,
            "first": known(notices.slow_replies.seen.first),
            "last": known(notices.slow_replies.seen.last),
        },
        "messages": messages.collect::<Vec<_>>(),
        "messages_other": notices.messages_other,
    })
}
