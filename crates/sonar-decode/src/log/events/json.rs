//! Lines of 4.4 and later, by the id of their message.

use memchr::memmem;
use sonar_core::history::EventKind;

use super::attributes::EventAttributes;
use super::options;
use super::{
    LineEvent, begins_shutdown, build_begins, build_done, build_failed, checkpoint, collection_dropped,
    database_dropped, election_began, election_lost, election_won, host, index_dropped, index_name,
    log_rotated, member_change, namespace, setting_changed, slow_status, state, state_change, stopped,
    unclean, word, writes_locked, writes_unlocked,
};
use crate::shape::hash;
use crate::syntax::json;

/// "Options set by command line": those of the configuration file are among them.
const OPTIONS: u32 = 21_951;

/// The event of a line with this id, whose attributes begin at `attributes`.
pub(in crate::log) fn of_json(id: u32, line: &[u8], attributes: Option<usize>) -> Option<LineEvent> {
    // Elections and rotations may have no attributes.
    match id {
        23_166 => return Some(log_rotated()),
        4_615_652 => return Some(election_began("no primary was seen in time")),
        4_615_660 => return Some(election_began("it has a higher priority")),
        4_615_661 => return Some(election_began("it was asked to")),
        4_615_662 => return Some(election_began("the new primary catches up too slowly")),
        4_615_663 => return Some(election_began("it is the only member")),
        21_448 => return Some(election_lost("too few votes")),
        21_447 | 21_449 => return Some(election_lost("another member was faster")),
        20_499 => return Some(slow_status()),
        22_271 => return Some(unclean()),
        // A signal; the steps of a shutdown of any cause before the port is closed. "Received signal" (23377) is also
        // logged for the signal that rotates the log.
        23_381 | 4_784_900 | 4_784_901 | 20_562 => return Some(begins_shutdown()),
        OPTIONS => return Some(LineEvent::options(options::of_attributes(line, attributes?))),
        _ => {}
    }
    let event: fn(&EventAttributes, &[u8]) -> Option<LineEvent> = match id {
        23_138 => |of, _| Some(stopped(word(of.get("exitCode").trim_start_matches('-')))),
        21_358 => |of, _| Some(state_change(state(of.get("oldState")), state(of.get("newState"))?)),
        21_215 => |of, _| Some(member_change(host(of.get("hostAndPort"))?, state(of.get("newState"))?)),
        21_216 => |of, _| Some(member_change(host(of.get("hostAndPort"))?, "DOWN")),
        21_217 => |of, _| Some(member_change(host(of.get("hostAndPort"))?, "UNKNOWN")),
        21_450 => |of, _| Some(election_won(word(of.get("term")))),
        21_392 => |of, _| Some(reconfigured(of.get("config.version"), of.get("config.term"), of.members)),
        20_384 => |of, text| {
            let index = index_name(of.get("properties.name"));
            let namespace = namespace(of.get("namespace"))?;
            (index != "_id_").then(|| build_begins(namespace, build_key(text).unwrap_or(0), index))
        },
        20_345 => |of, text| {
            // The index of each new collection, and those of an empty one, have no build.
            let index = index_name(of.get("index"));
            let namespace = namespace(of.get("namespace"))?;
            (index != "_id_").then(|| build_done(namespace, build_key(text).unwrap_or(0), index))
        },
        20_649 => |of, text| {
            let error = [word(of.get("error.codeName")), word(of.get("error"))];
            let error = error.into_iter().find(|error| !error.is_empty()).unwrap_or("");
            Some(build_failed(namespace(of.get("namespace"))?, build_key(text).unwrap_or(0), error))
        },
        465_611 => |_, text| Some(build_failed("", build_key(text)?, "IndexBuildAborted")),
        51_806 | 20_344 => |of, _| {
            let indexes = [of.get("indexes"), of.get("indexes.0")];
            let indexes = indexes.into_iter().find(|name| !name.is_empty()).unwrap_or("");
            Some(index_dropped(namespace(of.get("namespace"))?, index_name(indexes.trim_matches('"'))))
        },
        22_206 => |of, _| {
            let index = index_name(of.get("index"));
            let namespace = namespace(of.get("namespace"))?;
            (index != "_id_").then(|| index_dropped(namespace, index))
        },
        518_070 | 20_332 | 20_318 => |of, _| Some(collection_dropped(namespace(of.get("namespace"))?)),
        20_337 => |of, _| Some(database_dropped(namespace(of.get("db"))?)),
        20_462 => |_, _| Some(writes_locked()),
        20_466 => |of, _| (of.get("lockCount") == "0").then(writes_unlocked),
        23_435 | 23_436 => |of, _| {
            let name = word(of.get("parameterName"));
            (!name.is_empty()).then(|| setting_changed(name, of.get("newValue"), of.get("oldValue")))
        },
        48_742 => |of, _| Some(profiler_changed(of)),
        22_430 => |of, _| checkpoint(of.get("message")).or_else(|| checkpoint(of.get("message.msg"))),
        _ => return None,
    };
    let at = attributes?;
    let mut found = EventAttributes::default();
    // Those before the damage count.
    let _ = json::walk(line, at, &mut found);
    event(&found, line.get(at..).unwrap_or_default())
}

/// A number for the UUID of an index build; `None` if there is none, as for the indexes of an empty collection.
fn build_key(attributes: &[u8]) -> Option<u64> {
    const UUID: usize = 36;
    let at = memmem::find(attributes, b"\"buildUUID\":{\"uuid\":{\"$uuid\":\"")? + 30;
    let uuid = attributes.get(at..at + UUID)?;
    uuid.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-').then(|| hash::bytes(uuid))
}

/// Version and term of a configuration, and how many members it has.
pub(super) fn reconfigured(version: &str, term: &str, members: u64) -> LineEvent {
    let mut text = format!("version {} of the configuration", word(version));
    if !term.is_empty() && term != "-1" {
        text += &format!(", term {}", word(term));
    }
    text += &format!(", {members} {}", if members == 1 { "member" } else { "members" });
    LineEvent::server(EventKind::Reconfiguration, text)
}

fn profiler_changed(found: &EventAttributes) -> LineEvent {
    let mut parts = Vec::new();
    for (name, from, to) in [
        ("level", "from.level", "to.level"),
        ("slowms", "from.slowms", "to.slowms"),
        ("sampleRate", "from.sampleRate", "to.sampleRate"),
    ] {
        let (from, to) = (found.get(from), found.get(to));
        if from != to {
            parts.push(format!("{name} {to}, was {from}"));
        }
    }
    // The filter may have values.
    let text = if parts.is_empty() { "changed".to_owned() } else { parts.join("; ") };
    LineEvent::new(EventKind::ProfilerChange, namespace(found.get("db")).unwrap_or(""), text)
}
