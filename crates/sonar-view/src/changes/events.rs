//! Events in words.

use std::collections::HashSet;

use sonar_core::Timestamp;
use sonar_core::history::{Event, EventKind};

use crate::kit::{Grouped, Zone, plural};

/// A sentence, and the time at which that happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Headline {
    pub at: Timestamp,
    pub text: String,
}

/// What happened, of events that are stages of one thing: the one that says most of it, with its time.
pub(super) fn headline(events: &[Event]) -> Headline {
    use EventKind as Kind;
    let of = |kind: EventKind| events.iter().find(|event| event.kind == kind);
    let told = |one: &Event, text: String| Headline { at: one.at, text };
    let settings = events.iter().find_map(|one| Some((one, one.changed_since_start()?)));
    if let Some(crash) = of(Kind::ServerCrash) {
        let (first, text) = match of(Kind::OutOfMemory) {
            Some(memory) => {
                let why = with("the server ran out of memory, and the kernel killed it", &memory.text);
                (memory, with(&why, &crash.text))
            }
            None => (crash, event(crash)),
        };
        return told(first, format!("{text}{}", after_crash(events)));
    }
    if let Some(upgrade) = of(Kind::ServerUpgrade) {
        let more =
            settings.map_or_else(String::new, |(_, settings)| format!("; {}", other_settings(settings)));
        return told(upgrade, format!("{}{more}", event(upgrade)));
    }
    if let Some((one, settings)) = settings {
        return told(one, format!("the server was restarted with {}", other_settings(settings)));
    }
    if let (Some(storm), Some(app)) = (of(Kind::ConnectionStorm), of(Kind::NewApplication)) {
        return told(storm, format!("{}; the application {} is new", event(storm), app.subject));
    }
    if let Some(one) = of(Kind::CpuThrottled) {
        return told(one, event(one));
    }
    match (of(Kind::ServerStop), of(Kind::ServerStart)) {
        (Some(stop), Some(start)) if stop.at <= start.at || pause(start).is_some() => {
            told(start, with("the server was restarted", start_text(start)))
        }
        _ => match events.iter().rev().max_by_key(|event| event.silence_ns()) {
            Some(first) => told(first, event(first)),
            None => Headline { at: Timestamp::default(), text: String::new() },
        },
    }
}

fn other_settings(settings: &str) -> String {
    format!("other settings: {settings}")
}

/// What followed the crash of a server: more crashes, its start, and what is different since then.
fn after_crash(events: &[Event]) -> String {
    use EventKind as Kind;
    let crashes = events.iter().filter(|one| one.kind == Kind::ServerCrash).map(|one| one.count).sum::<u64>();
    let mut parts = Vec::new();
    if crashes > 1 {
        parts.push(format!("it ended so {} in all", plural(Grouped(crashes), "time")));
    }
    let last = |kind: EventKind| events.iter().rposition(|one| one.kind == kind);
    // The start may have been seen a moment before the end that it followed.
    let end = last(Kind::ServerCrash).max(last(Kind::ServerStop));
    let start = last(Kind::ServerStart).filter(|at| crashes == 1 || Some(*at) > end);
    if let Some(start) = start.map(|at| &events[at]) {
        parts.push(match (pause(start), start_text(start)) {
            (Some((process, pause)), _) => format!("restarted after {pause} as {process}"),
            (None, "") => "restarted".to_owned(),
            (None, text) => format!("restarted: {text}"),
        });
    }
    parts.extend(events.iter().find(|one| one.kind == Kind::ServerUpgrade).map(|one| one.text.to_string()));
    parts.extend(events.iter().find_map(|one| Some(other_settings(one.changed_since_start()?))));
    parts.iter().map(|part| format!("; {part}")).collect()
}

/// The process of a start, and how long after the end of the one before it that was: `process 7 (mongod)`, `4 seconds`;
/// `None` if the event does not tell it.
fn pause(start: &Event) -> Option<(&str, &str)> {
    let (process, rest) = start.text.split_once(", ")?;
    Some((process, rest.split_once(" after process ")?.0))
}

/// What is known of a start. A log, or samples, say that the server started, which the sentence says too.
fn start_text(start: &Event) -> &str {
    let said =
        ["the server was started", "started"].into_iter().find_map(|said| start.text.strip_prefix(said));
    said.map_or(&*start.text, |rest| rest.trim_start_matches(", "))
}

/// Whether a sentence tells all that one of its events says.
fn is_told(told: &str, one: &Event) -> bool {
    let has = |text: &str| !text.is_empty() && told.contains(text);
    let details = match one.kind {
        EventKind::ServerStart => match pause(one) {
            Some((process, pause)) => has(&format!("restarted after {pause} as {process}")) || has(&one.text),
            None => has(start_text(one)),
        },
        EventKind::SettingChange => one.changed_since_start().is_some_and(has),
        EventKind::ServerCrash | EventKind::OutOfMemory | EventKind::ServerUpgrade => has(&one.text),
        _ => false,
    };
    details || told.contains(&event(one))
}

/// All events that the sentence does not tell in full, a line each. Of several that say the same it tells the first.
pub(super) fn evidence(events: &[Event], zone: &Zone) -> Vec<String> {
    let told = headline(events).text;
    let mut known = HashSet::new();
    let others = events.iter().filter(|one| !is_told(&told, one) || !known.insert(event(one)));
    others.map(|one| format!("{} {}", zone.show_seconds(one.at), event(one))).collect()
}

/// What is known of a member, with its name.
fn of_member(name: &str, text: &str) -> String {
    match text.strip_prefix("the member ").filter(|_| !name.is_empty()) {
        Some(state) => format!("the member {name} {state}"),
        None => text.to_owned(),
    }
}

/// What happened, in words.
pub(crate) fn event(event: &Event) -> String {
    let (subject, text) = (&*event.subject, &*event.text);
    // What the log says is a sentence, or an addition to one; a command on the wire has only its name.
    let is_sentence = !text.is_empty() && !text.starts_with("command ");
    let of_log = |what: &str| match (is_sentence, subject.is_empty()) {
        (true, true) => text.to_owned(),
        (true, false) => format!("{text} on {subject}"),
        (false, true) => with(what, text),
        (false, false) => with(&format!("{what} on {subject}"), text),
    };
    let about = |what: &str| match subject {
        "" => with(what, text),
        subject => with(&format!("{what}: {subject}"), text),
    };
    let what = match event.kind {
        EventKind::ServerStart => with("the server started", start_text(event)),
        EventKind::ServerStop => with("the server stopped", text),
        EventKind::ServerCrash => with("the server ended without shutting down", text),
        EventKind::ServerUnreachable => with("the server cannot be reached", text),
        EventKind::ServerReachable => with("the server can be reached again", text),
        EventKind::ServerUpgrade => with("the server was upgraded or downgraded", text),
        EventKind::StateChange => with("the replica set", &of_member(subject, text)),
        EventKind::Election => with("an election", text),
        EventKind::Reconfiguration => with("the replica set was reconfigured", text),
        EventKind::Stall => with("the server stalled", text),
        EventKind::OutOfMemory => killed(event),
        EventKind::CpuThrottled => with("the control group of the server throttled it", text),
        EventKind::IndexBuildBegin => of_log("the build of an index began"),
        EventKind::IndexBuildEnd => of_log("an index was built"),
        EventKind::IndexDrop => of_log("an index was dropped"),
        EventKind::CollectionDrop if subject.is_empty() => of_log("a collection was dropped"),
        EventKind::CollectionDrop => {
            let what = if is_of_database(event) { "database" } else { "collection" };
            format!("{what} {subject} was dropped")
        }
        EventKind::WritesLock => of_log("writes were locked or unlocked"),
        EventKind::LogRotation => of_log("the log was rotated"),
        EventKind::SettingChange if let Some(changed) = event.changed_since_start() => {
            format!("the server was started with {}", other_settings(changed))
        }
        EventKind::SettingChange => about("a setting was changed"),
        EventKind::ProfilerChange => about("the profiler was set"),
        EventKind::LongCheckpoint => with("a checkpoint took long", text),
        EventKind::ConnectionStorm => with("many connections were opened", text),
        EventKind::NewApplication => about("a new application connected"),
        EventKind::LogError => with("the log has an error", text),
        EventKind::LogFatal => with("the log has a fatal error", text),
        EventKind::ClockStep if !text.is_empty() => text.to_owned(),
        EventKind::ClockStep => "the clock was set".to_owned(),
        EventKind::FileSystemFull => about("a file system is nearly full"),
        EventKind::Gap if !text.is_empty() => text.to_owned(),
        EventKind::Gap => "samples are missing".to_owned(),
        other => with(&other.name().replace('_', " "), text),
    };
    let is_counted = matches!(event.kind, EventKind::LogError | EventKind::LogFatal | EventKind::Stall);
    match event.count {
        2.. if is_counted => format!("{what} ({} times)", Grouped(event.count)),
        _ => what,
    }
}

/// That the kernel killed processes. It counts those of the machine without their names, and agents wrote a sentence for
/// that before.
fn killed(event: &Event) -> String {
    let processes = match event.count {
        0 | 1 => "a process".to_owned(),
        count => format!("{} processes", Grouped(count)),
    };
    let what = format!("the kernel killed {processes} for lack of memory");
    let is_named = !event.text.is_empty() && !event.text.starts_with("the kernel killed ");
    match (event.server.port, is_named) {
        (0, false) if event.count > 1 => format!("{what} (which ones is unknown)"),
        (0, false) => format!("{what} (which one is unknown)"),
        _ => with(&what, &event.text),
    }
}

/// Whether a database was dropped: the name of one has no dot, and that of a collection has one.
fn is_of_database(drop: &Event) -> bool {
    !drop.subject.contains('.')
}

fn with(what: &str, text: &str) -> String {
    if text.is_empty() { what.to_owned() } else { format!("{what}: {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonar_core::Endpoint;

    fn sentence(events: &[Event]) -> String {
        headline(events).text
    }

    fn at(second: u64, kind: EventKind, subject: &str, text: &str) -> Event {
        Event::new(Timestamp::from_unix(second, 0), kind, Endpoint::default(), text).about(subject)
    }

    #[test]
    fn the_member_whose_state_changed_is_named() {
        let down = at(1, EventKind::StateChange, "db2:27118", "the member is now DOWN");
        assert_eq!(sentence(&[down]), "the replica set: the member db2:27118 is now DOWN");
        let own = at(1, EventKind::StateChange, "", "the state changed from SECONDARY to PRIMARY");
        assert_eq!(sentence(&[own]), "the replica set: the state changed from SECONDARY to PRIMARY");
    }

    #[test]
    fn a_restart_names_what_is_different_since_then() {
        let stop = at(1, EventKind::ServerStop, "", "process 5 (mongod), exit code 0");
        let start = at(4, EventKind::ServerStart, "", "process 7 (mongod)");
        let again = [stop.clone(), start.clone()];
        assert_eq!(sentence(&again), "the server was restarted: process 7 (mongod)");
        assert_eq!(evidence(&again, &Zone::utc()).len(), 1, "the end; the sentence tells the start");
        let settings =
            Event::settings_of_start(Timestamp::from_unix(4, 0), Endpoint::default(), "cacheSizeGB 1, was 2");
        let other = [stop.clone(), start.clone(), settings.clone()];
        assert_eq!(sentence(&other), "the server was restarted with other settings: cacheSizeGB 1, was 2");
        let upgrade = at(5, EventKind::ServerUpgrade, "", "version 5.0.9, before 4.4.6");
        let text = sentence(&[stop, start, settings, upgrade]);
        let expected = "the server was upgraded or downgraded: version 5.0.9, before 4.4.6; other settings: cacheSizeGB 1";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn a_kill_for_lack_of_memory_and_the_end_of_the_server_are_one_sentence() {
        let memory =
            at(1, EventKind::OutOfMemory, "", "its control group had reached its limit of memory (90.0 MiB)");
        let crash = at(2, EventKind::ServerCrash, "", "process 5 (mongod), killed by signal 9 (SIGKILL)");
        let text = sentence(&[memory, crash]);
        assert!(
            text.starts_with("the server ran out of memory, and the kernel killed it: its control group"),
            "{text}"
        );
        assert!(text.ends_with("killed by signal 9 (SIGKILL)"), "{text}");
    }

    #[test]
    fn a_crash_is_the_headline_of_what_followed_it_and_each_fact_is_told_once() {
        let crash = at(1, EventKind::ServerCrash, "", "process 6 (mongod), killed by signal 9 (SIGKILL)");
        let start =
            at(4, EventKind::ServerStart, "", "process 105 (mongod), 3 seconds after process 6 had ended");
        let settings =
            Event::settings_of_start(Timestamp::from_unix(4, 0), Endpoint::default(), "cacheSizeGB 1, was 2");
        let upgrade = at(5, EventKind::ServerUpgrade, "", "version 5.0.9, before 4.4.6");
        let begin =
            "the server ended without shutting down: process 6 (mongod), killed by signal 9 (SIGKILL)";
        let restarted = "; restarted after 3 seconds as process 105 (mongod)";
        let all = [crash.clone(), start.clone(), settings, upgrade];
        let more = "; version 5.0.9, before 4.4.6; other settings: cacheSizeGB 1, was 2";
        assert_eq!(sentence(&all), format!("{begin}{restarted}{more}"));
        assert_eq!(headline(&all).at, crash.at);
        assert_eq!(evidence(&all, &Zone::utc()), [""; 0]);
        // A supervisor started it again before its end had been seen.
        let fast = at(1, EventKind::ServerStart, "", "process 105 (mongod)");
        assert_eq!(sentence(&[fast, crash.clone()]), format!("{begin}; restarted: process 105 (mongod)"));
        assert_eq!(sentence(std::slice::from_ref(&crash)), begin);
        let again = at(6, EventKind::ServerCrash, "", "process 105 (mongod), killed by signal 9 (SIGKILL)");
        let twice = [crash, start, again];
        assert_eq!(sentence(&twice), format!("{begin}; it ended so 2 times in all"));
        assert_eq!(evidence(&twice, &Zone::utc()).len(), 2);
    }

    #[test]
    fn of_a_kill_it_is_said_which_process_it_was_or_that_it_is_unknown() {
        let unknown = "the kernel killed a process for lack of memory (which one is unknown)";
        for text in ["", "the kernel killed a process because memory had run out"] {
            let kill = at(1, EventKind::OutOfMemory, "", text);
            assert_eq!(event(&kill), unknown);
            assert_eq!(
                event(&Event { count: 2, ..kill }),
                "the kernel killed 2 processes for lack of memory (which ones is unknown)"
            );
        }
        let server = Endpoint::v4([0; 4], 27_017);
        for (server, text) in
            [(Endpoint::default(), "process 7 (java)"), (server, "its control group had ended it")]
        {
            let kill = Event { server, ..at(1, EventKind::OutOfMemory, "", text) };
            assert_eq!(event(&kill), format!("the kernel killed a process for lack of memory: {text}"));
        }
    }

    #[test]
    fn samples_that_are_missing_are_told_in_one_plain_sentence() {
        for text in [
            "the server wrote no sample for 10.9s: it stalled, or the machine slept",
            "no sample for 10.9s: the server stalled, or the machine slept",
            "samples of 5.00s are lost: a part of a file is damaged",
            "the machine was suspended for 30 s",
        ] {
            assert_eq!(event(&at(1, EventKind::Gap, "", text)), text);
        }
        assert_eq!(event(&at(1, EventKind::Gap, "", "")), "samples are missing");
        let server = Endpoint::v4([0; 4], 27_017);
        let silences = ["4.67s", "10.9s", "6.33s"].map(|length| {
            let text = format!("the server wrote no sample for {length}: it stalled, or the machine slept");
            Event { server, ..at(1, EventKind::Gap, "", &text) }
        });
        assert!(sentence(&silences).contains("10.9s"), "it names the longest");
    }

    #[test]
    fn a_limit_is_evidence_of_what_it_denies() {
        let limit =
            at(1, EventKind::SettingChange, "limit of processor time", "0.01 processors, was unlimited");
        let throttled = at(3, EventKind::CpuThrottled, "", "its threads were stopped in 90 % of the periods");
        let all = [limit, throttled];
        assert!(sentence(&all).starts_with("the control group of the server throttled it: its threads"));
        assert!(
            evidence(&all, &Zone::utc())[0]
                .ends_with("limit of processor time: 0.01 processors, was unlimited")
        );
    }

    #[test]
    fn a_storm_names_the_application_that_came_with_it() {
        let storm =
            at(7, EventKind::ConnectionStorm, "", "225 connections within 2 s, usually 0.2 per second");
        let app = at(7, EventKind::NewApplication, "storm", "first connection, by PyMongo");
        let text = sentence(&[storm, app]);
        assert!(text.starts_with("many connections were opened: 225"), "{text}");
        assert!(text.ends_with("; the application storm is new"), "{text}");
    }

    #[test]
    fn a_sentence_has_the_time_of_the_event_that_it_tells() {
        let second = |events: &[Event]| headline(events).at.unix_ns() / 1_000_000_000;
        let stop = at(1, EventKind::ServerStop, "", "process 5 (mongod), exit code 0");
        let start = at(4, EventKind::ServerStart, "", "process 7 (mongod)");
        assert_eq!(second(std::slice::from_ref(&stop)), 1);
        assert_eq!(second(&[stop.clone(), start.clone()]), 4);
        let settings =
            Event::settings_of_start(Timestamp::from_unix(5, 0), Endpoint::default(), "cacheSizeGB 1, was 2");
        assert_eq!(second(&[stop.clone(), start.clone(), settings]), 5);
        let limit =
            at(1, EventKind::SettingChange, "limit of processor time", "0.01 processors, was unlimited");
        let throttled = at(3, EventKind::CpuThrottled, "", "its threads were stopped in 90 % of the periods");
        assert_eq!(second(&[limit, throttled]), 3);
        let memory = at(1, EventKind::OutOfMemory, "", "its control group had reached its limit of memory");
        let crash = at(2, EventKind::ServerCrash, "", "process 5 (mongod), killed by signal 9 (SIGKILL)");
        assert_eq!(second(&[memory, crash]), 1);
        assert_eq!(headline(&[]).text, "");
    }

    #[test]
    fn what_was_dropped_is_named() {
        for (subject, text, expected) in [
            ("shop", "command dropDatabase", "database shop was dropped"),
            ("shop", "the database was dropped", "database shop was dropped"),
            ("shop.carts", "the collection was dropped", "collection shop.carts was dropped"),
            ("shop.carts", "command drop", "collection shop.carts was dropped"),
            ("", "command drop", "a collection was dropped: command drop"),
        ] {
            assert_eq!(event(&at(1, EventKind::CollectionDrop, subject, text)), expected);
        }
    }

    #[test]
    fn a_start_that_a_log_tells_is_told_once() {
        for (text, expected) in [
            ("started", "the server started"),
            ("started, process 7", "the server started: process 7"),
            ("process 7 (mongod)", "the server started: process 7 (mongod)"),
        ] {
            assert_eq!(event(&at(1, EventKind::ServerStart, "", text)), expected);
        }
    }
}
