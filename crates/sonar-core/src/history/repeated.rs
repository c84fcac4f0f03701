//! What several sources say of the same start or end of a server: the process, its log, and its samples.

use super::{Event, EventKind};
use crate::Application;
use crate::time::NS_PER_S;

/// How far two sources may be apart that tell the same start, in nanoseconds: the first sample comes some seconds later.
const START_NS: u64 = 15 * NS_PER_S;
/// How much later than its log says it a process may have ended, in nanoseconds.
const END_NS: u64 = 15 * NS_PER_S;
/// How long a server may recover before its log says that it had to, in nanoseconds.
const RECOVERY_NS: u64 = 3_600 * NS_PER_S;

/// How far apart sources may tell the same, at most, in nanoseconds, besides recoveries that take long.
pub const REPEATED_REACH_NS: u64 = START_NS;

/// The number of the process that the text of a start names.
fn process(start: &Event) -> Option<u32> {
    let (_, rest) = start.text.split_once("process ")?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Whether the text of a start is that of its process, which says most.
fn is_of_process(start: &Event) -> bool {
    start.text.starts_with("process ")
}

fn is_same_start(one: &Event, other: &Event) -> bool {
    let is_near = one.at.since(other.at).max(other.at.since(one.at)) <= START_NS;
    one.kind == EventKind::ServerStart
        && one.server == other.server
        && is_near
        && match (process(one), process(other)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
}

/// Whether the end of a process tells what its log says of the same end.
fn tells_end(end: &Event, logged: &Event) -> bool {
    let is_near = end.at.since(logged.at).max(logged.at.since(end.at)) <= END_NS;
    let is_end = matches!(end.kind, EventKind::ServerStop | EventKind::ServerCrash);
    is_end && end.server == logged.server && is_near && end.text.starts_with("process ")
}

/// The events, each thing once, by time: a start as its process tells it; no end of the log that the end of the process
/// tells; and that a server had not shut down cleanly only where nothing says how it had ended, with its start. Connections
/// of mongosonar itself are left out.
pub fn each_event_once(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| event.at);
    let mut left: Vec<Event> = Vec::with_capacity(events.len());
    let (unclean, others): (Vec<Event>, Vec<Event>) = events.into_iter().partition(Event::is_unclean_end);
    let ends: Vec<Event> = others
        .iter()
        .filter(|one| one.server.port != 0 && one.text.starts_with("process "))
        .filter(|one| matches!(one.kind, EventKind::ServerStop | EventKind::ServerCrash))
        .cloned()
        .collect();
    let mut logged_ends = Vec::new();
    for event in others {
        match event.kind {
            EventKind::NewApplication if *event.subject == *Application::OWN => {}
            EventKind::ServerStop
                if event.text.starts_with("shut down") && ends.iter().any(|end| tells_end(end, &event)) =>
            {
                logged_ends.push(event);
            }
            EventKind::ServerStart if event.server.port != 0 => {
                match left.iter_mut().rev().find(|known| is_same_start(known, &event)) {
                    Some(known) if is_of_process(&event) && !is_of_process(known) => known.text = event.text,
                    Some(_) => {}
                    None => left.push(event),
                }
            }
            _ => left.push(event),
        }
    }
    for end in unclean {
        // What ended it, and its start, may be told a moment later.
        let is_before = |one: &Event| one.server == end.server && one.at <= end.at.plus_ns(NS_PER_S);
        let last_start = |events: &[Event]| {
            events.iter().rposition(|one| one.kind == EventKind::ServerStart && is_before(one))
        };
        let start = last_start(&left);
        let run_before = last_start(&left[..start.unwrap_or(0)]).map_or(0, |at| at + 1);
        let is_crash = |one: &Event| one.kind == EventKind::ServerCrash && is_before(one);
        if left[run_before..].iter().any(is_crash) {
            continue;
        }
        match start.filter(|start| end.at.since(left[*start].at) <= RECOVERY_NS) {
            Some(start) => {
                let Event { at, server, count, .. } = left[start];
                let text = format!("{}; it {}", left[start].text, Event::UNCLEAN);
                left[start] = Event { count, ..Event::new(at, EventKind::ServerStart, server, &text) };
            }
            None => left.push(end),
        }
    }
    // The agent notices the end of a process a moment later than its log says it.
    for end in &mut left {
        let logged = logged_ends.iter().filter(|logged| tells_end(end, logged)).map(|logged| logged.at).min();
        end.at = logged.map_or(end.at, |at| at.min(end.at));
    }
    left.sort_by_key(|event| event.at);
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Timestamp};

    const SERVER: Endpoint = Endpoint::v4([0; 4], 27_017);

    fn event(ms: u64, kind: EventKind, text: &str) -> Event {
        let at = Timestamp::from_unix_ns(1_795_296_000 * NS_PER_S + ms * 1_000_000);
        Event::new(at, kind, SERVER, text)
    }

    fn texts(events: &[Event]) -> Vec<String> {
        let left = each_event_once(events.to_vec());
        left.iter().map(|one| format!("{} {}", one.kind.name(), one.text)).collect()
    }

    const KILLED: &str = "process 6 (mongod), killed by signal 9 (SIGKILL)";
    const STARTED: &str = "process 105 (mongod), 3 seconds after process 6 had ended";

    #[test]
    fn a_crash_and_the_next_start_are_told_once_each() {
        let crash = event(1_000, EventKind::ServerCrash, KILLED);
        let start = event(4_000, EventKind::ServerStart, STARTED);
        let logged = event(4_300, EventKind::ServerStart, "started, process 105, version 4.4.6");
        let sampled =
            event(9_000, EventKind::ServerStart, "the server was started, 8.0s after the last sample");
        let unclean = event(4_600, EventKind::ServerStop, Event::UNCLEAN);
        let expected = [format!("server_crash {KILLED}"), format!("server_start {STARTED}")];
        assert_eq!(
            texts(&[crash.clone(), start.clone(), logged.clone(), unclean.clone(), sampled]),
            expected
        );
        // The times of both differ by a tick.
        let late = event(4_310, EventKind::ServerStart, STARTED);
        assert_eq!(texts(&[crash.clone(), logged.clone(), late, unclean.clone()]), expected);
        // It recovered for ten minutes.
        let unclean = event(600_000, EventKind::ServerStop, Event::UNCLEAN);
        assert_eq!(texts(&[crash, start, unclean]), expected);
    }

    #[test]
    fn that_it_had_not_shut_down_is_a_fact_where_nothing_else_says_so() {
        let start = event(4_000, EventKind::ServerStart, "started, process 105");
        let unclean = event(4_600, EventKind::ServerStop, Event::UNCLEAN);
        let expected = "server_start started, process 105; it had not shut down cleanly before this start";
        assert_eq!(texts(&[start.clone(), unclean.clone()]), [expected]);
        assert_eq!(texts(std::slice::from_ref(&unclean)).len(), 1);
        // The end of an earlier run does not tell it.
        let earlier =
            [event(0, EventKind::ServerCrash, KILLED), event(2_000, EventKind::ServerStart, "process 9")];
        let all = [&earlier[..], &[start, unclean]].concat();
        assert_eq!(texts(&all)[2], expected);
    }

    #[test]
    fn an_end_is_told_by_its_process_or_its_log() {
        let logged = event(1_000, EventKind::ServerStop, "shut down, exit code 0");
        let ended =
            event(1_200, EventKind::ServerStop, "process 6 (mongod), after it had shut down, exit code 0");
        assert_eq!(texts(&[logged.clone(), ended.clone()]), [format!("server_stop {}", ended.text)]);
        // It was started again before the agent had seen its end.
        let start = event(1_100, EventKind::ServerStart, "process 7 (mongod)");
        let left = each_event_once(vec![logged.clone(), start.clone(), ended.clone()]);
        assert_eq!(left, [Event { at: logged.at, ..ended.clone() }, start]);
        assert_eq!(texts(std::slice::from_ref(&logged)), ["server_stop shut down, exit code 0"]);
        let other = Event { server: Endpoint::v4([0; 4], 27_018), ..ended };
        assert_eq!(texts(&[logged, other]).len(), 2);
    }

    #[test]
    fn other_starts_stay() {
        let start = |ms, pid: u32| event(ms, EventKind::ServerStart, &format!("process {pid} (mongod)"));
        assert_eq!(
            texts(&[start(0, 1), start(2_000, 2), start(4_000, 3)]).len(),
            3,
            "it crashes again and again"
        );
        let samples =
            event(60_000, EventKind::ServerStart, "the server was started, 8.0s after the last sample");
        assert_eq!(texts(&[start(0, 1), samples]).len(), 2);
    }

    #[test]
    fn mongosonar_is_no_new_application() {
        let app = |name: &str| Event {
            subject: name.into(),
            ..event(0, EventKind::NewApplication, "first connection, by mongo-rust-driver 3.9.1")
        };
        let left = each_event_once(vec![app("mongosonar"), app("shop")]);
        assert_eq!(left, [app("shop")]);
    }
}
