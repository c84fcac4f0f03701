//! Lines of 4.2 and earlier, by the beginning of their message.

use sonar_core::history::EventKind;

use super::attributes::EventAttributes;
use super::json::reconfigured;
use super::{
    LineEvent, begins_shutdown, build_begins, build_done, build_failed, checkpoint, collection_dropped,
    database_dropped, election_began, election_lost, election_won, host, index_dropped, index_name,
    log_rotated, member_change, namespace, setting_changed, slow_status, state, state_change, stopped,
    unclean, word, writes_locked, writes_unlocked,
};
use crate::syntax::shell;

/// The most bytes of a message that are looked at; the documents in it may be long.
const MAX_MESSAGE: usize = 16 << 10;

/// The event of a message that the thread with this number wrote.
pub(in crate::log) fn of_text(message: &[u8], thread: u64) -> Option<LineEvent> {
    let message = &message[..message.len().min(MAX_MESSAGE)];
    // One byte says for most messages that they are about something else.
    if !matches!(message.first()?, b'a'..=b'z' | b'A'..=b'Z' | b'*') {
        return None;
    }
    let text = String::from_utf8_lossy(message);
    let text = text.trim_end();
    of_server(text).or_else(|| of_replication(text)).or_else(|| of_catalog(text, thread))
}

/// Starts, stops, settings.
fn of_server(text: &str) -> Option<LineEvent> {
    if let Some(code) = text.strip_prefix("shutting down with code:") {
        return Some(stopped(word(code)));
    }
    if let Some(rest) = text.strip_prefix("dbexit: ") {
        let code = rest.split_once("rc: ").map(|(_, code)| word(code));
        return code.or_else(|| (rest == "really exiting now").then_some("")).map(stopped);
    }
    let is_signal = text.starts_with("got signal ") && text.contains("will terminate");
    if is_signal || text.starts_with("shutdown: going to close ") {
        return Some(begins_shutdown());
    }
    if text.starts_with("Detected unclean shutdown") || text.starts_with("old lock file: ") {
        return Some(unclean());
    }
    if let Some(rest) = text.strip_prefix("successfully set parameter ") {
        let (name, values) = rest.split_once(" to ")?;
        let (new, old) = values.split_once(" (was ").unwrap_or((values, ""));
        let name = word(name);
        let old = old.strip_suffix(')').unwrap_or("");
        return (!name.is_empty()).then(|| setting_changed(name, new, old));
    }
    if text.starts_with("Log rotation initiated") {
        return Some(log_rotated());
    }
    if text.starts_with("serverStatus was very slow") {
        return Some(slow_status());
    }
    if text.starts_with("db is now locked") || text.starts_with("mongod is locked and no writes are allowed")
    {
        return Some(writes_locked());
    }
    if text.starts_with("fsyncUnlock completed. mongod is now unlocked") {
        return Some(writes_unlocked());
    }
    text.starts_with("WiredTiger message").then(|| checkpoint(text))?
}

/// States, elections and the configuration of the replica set.
fn of_replication(text: &str) -> Option<LineEvent> {
    if let Some(rest) = text.strip_prefix("transition to ") {
        let (new, old) = rest.split_once(" from ").map_or((rest, None), |(new, old)| (new, Some(old)));
        return Some(state_change(old.and_then(state), state(new)?));
    }
    if let Some(rest) = text.strip_prefix("New replica set config in use: ") {
        let mut found = EventAttributes::default();
        let _ = shell::walk(rest.as_bytes(), 0, &mut found);
        return rest
            .starts_with('{')
            .then(|| reconfigured(found.get("version"), found.get("term"), found.members));
    }
    if let Some(reason) = text.strip_prefix("Starting an election") {
        return Some(election_began(match reason {
            _ if reason.contains("no PRIMARY") => "no primary was seen in time",
            _ if reason.contains("priority takeover") => "it has a higher priority",
            _ if reason.contains("step up request") => "it was asked to",
            _ if reason.contains("catchup takeover") => "the new primary catches up too slowly",
            _ => "it is the only member",
        }));
    }
    if let Some(term) = text.strip_prefix("election succeeded, assuming primary role") {
        return Some(election_won(word(term.strip_prefix(" in term ").unwrap_or(""))));
    }
    if let Some(reason) = text.strip_prefix("not becoming primary, we ") {
        let votes = reason.starts_with("received insufficient votes");
        return Some(election_lost(if votes { "too few votes" } else { "another member was faster" }));
    }
    if let Some(rest) = text.strip_prefix("Member ") {
        return member(rest);
    }
    let rest = text.strip_prefix("replSet ")?;
    if let Some(found) = state(rest) {
        return Some(state_change(None, found));
    }
    if let Some(rest) = rest.strip_prefix("member ") {
        return member(rest);
    }
    match rest {
        "relinquishing primary state" => Some(state_change(Some("PRIMARY"), "SECONDARY")),
        "election succeeded, assuming primary role" => Some(election_won("")),
        "replSetReconfig new config saved locally" => {
            Some(LineEvent::server(EventKind::Reconfiguration, "a new configuration"))
        }
        _ => rest.starts_with("info electSelf ").then(|| election_began("no primary was seen")),
    }
}

/// `HOST:PORT is now in state STATE`.
fn member(rest: &str) -> Option<LineEvent> {
    let (name, found) = rest.split_once(" is now in state ")?;
    // The reason may follow, after ` - ` or ` due to `.
    let end = found.find(' ').unwrap_or(found.len());
    Some(member_change(host(name)?, state(&found[..end])?))
}

/// Index builds and drops.
fn of_catalog(text: &str, thread: u64) -> Option<LineEvent> {
    if let Some(rest) = text.strip_prefix("build index on: ") {
        return begins(rest, " properties: ", thread);
    }
    if let Some(rest) = text.strip_prefix("index build: starting on ") {
        return begins(rest, " properties: ", thread);
    }
    if text.starts_with("build index done.") {
        return Some(build_done("", thread, ""));
    }
    if let Some(rest) = text.strip_prefix("index build: done building index ") {
        let (index, name) = rest.rsplit_once(" on ns ")?;
        return (index != "_id_").then_some(build_done(namespace(name)?, thread, index_name(index)));
    }
    if let Some(rest) = text.strip_prefix("Index build failed: ") {
        // `UUID: NAMESPACE ( UUID ): CODE: MESSAGE`
        let (name, error) = rest.split_once(": ")?.1.split_once(" ( ")?;
        let error = error.split_once(" ): ").map_or("", |(_, error)| word(error));
        return Some(build_failed(namespace(name)?, thread, error));
    }
    if let Some(rest) = text.strip_prefix("build index ") {
        // 2.4: `build index shop.carts { user: 1 }`
        return begins(rest, " ", thread);
    }
    if let Some(rest) = text.strip_prefix("CMD: dropIndexes ") {
        let (name, index) = rest.split_once(": ").unwrap_or((rest, ""));
        return Some(index_dropped(namespace(name)?, index_name(index.trim_matches('"'))));
    }
    if let Some(name) = text.strip_prefix("CMD: drop ") {
        return Some(collection_dropped(namespace(name)?));
    }
    let rest = text.strip_prefix("dropDatabase ")?;
    let name = rest.strip_suffix(" - starting").or_else(|| rest.strip_suffix(" starting"))?;
    Some(database_dropped(namespace(name)?))
}

/// The beginning of an index build: a namespace, and a document that may have the name of the index.
fn begins(rest: &str, separator: &str, thread: u64) -> Option<LineEvent> {
    let (name, document) = rest.split_once(separator)?;
    let mut found = EventAttributes::default();
    if document.starts_with('{') && shell::walk(document.as_bytes(), 0, &mut found).is_err() {
        // What the filter of an index contains may look like its name.
        found = EventAttributes::default();
    }
    let index = if separator == " " { "" } else { found.get("name") };
    (index != "_id_").then_some(build_begins(namespace(name)?, thread, index_name(index)))
}
