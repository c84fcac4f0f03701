use super::*;
use crate::agent::servers::local;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix(1_000_000 + seconds, 0)
}

fn server(pid: u32) -> FoundServer {
    FoundServer {
        port: 27_017,
        pid,
        started: 1,
        name: "mongod".to_owned(),
        log: Some("/log".into()),
        ..FoundServer::default()
    }
}

/// How process 7 ended, which did at second 100, as `prepare` has it.
fn end_of(is_logged: bool, prepare: impl Fn(&mut ServerLives)) -> (EventKind, String) {
    let mut lives = ServerLives::default();
    lives.ended(&server(7), is_logged, at(100));
    prepare(&mut lives);
    let early = lives.decided(at(101));
    let late = lives.decided(at(113));
    let [event] = [early, late].concat().try_into().unwrap();
    assert_eq!(lives.rest(), [], "an end is one event");
    let event: Event = event;
    assert_eq!((event.at, event.server), (at(100), local(27_017)));
    (event.kind, event.text.into())
}

fn end(is_logged: bool, events: &[Event]) -> (EventKind, String) {
    end_of(is_logged, |lives| events.iter().for_each(|event| lives.see(event)))
}

/// The same if the kernel says how it ended.
fn end_as(how: ProcessEnd, events: &[Event]) -> (EventKind, String) {
    end_of(true, |lives| {
        lives.undecided[0].how = Some(how);
        events.iter().for_each(|event| lives.see(event));
    })
}

fn shutdown(seconds: u64, text: &str) -> Event {
    Event::new(at(seconds), EventKind::ServerStop, local(27_017), text)
}

#[test]
fn a_process_that_is_killed_is_told_from_one_that_shuts_down() {
    let (kind, text) = end(true, &[]);
    assert_eq!(
        (kind, &*text),
        (EventKind::ServerCrash, "process 7 (mongod); its log has no shutdown: killed, or crashed")
    );
    let (kind, text) = end(true, &[shutdown(98, "shut down, exit code 0")]);
    assert_eq!(
        (kind, &*text),
        (EventKind::ServerStop, "process 7 (mongod), after it had shut down, exit code 0")
    );
    // An earlier life, and what the next start says of this one.
    for other in [shutdown(10, "had not shut down cleanly before this start"), shutdown(0, "")] {
        assert_eq!(end(true, &[other]).0, EventKind::ServerCrash);
    }
    let mut lives = ServerLives::default();
    lives.see(&shutdown(0, "shut down"));
    lives.ended(&server(7), true, at(500));
    assert_eq!(lives.rest()[0].kind, EventKind::ServerCrash, "another life shut down");
    lives.see(&shutdown(600, "shut down"));
    lives.ended(&server(8), true, at(601));
    lives.ended(&server(9), true, at(660));
    let kinds: Vec<_> = lives.rest().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::ServerStop, EventKind::ServerCrash], "killed soon after a restart");
}

#[test]
fn the_signal_or_the_exit_code_is_named() {
    let killed = |signal, has_core| ProcessEnd::Killed { signal, has_core };
    assert_eq!(
        end_as(killed(9, false), &[]),
        (EventKind::ServerCrash, "process 7 (mongod), killed by signal 9 (SIGKILL)".to_owned())
    );
    let (kind, text) = end_as(killed(11, true), &[]);
    assert_eq!(kind, EventKind::ServerCrash);
    assert!(text.ends_with("signal 11 (SIGSEGV), with a core dump"), "{text}");
    assert_eq!(
        end_as(ProcessEnd::Exited(100), &[]),
        (EventKind::ServerCrash, "process 7 (mongod), exit code 100".to_owned())
    );
    assert_eq!(
        end_as(ProcessEnd::Exited(0), &[]),
        (EventKind::ServerStop, "process 7 (mongod), exit code 0".to_owned())
    );
    // A service manager loses its patience.
    let (kind, text) = end_as(killed(9, false), &[shutdown(98, "shut down, exit code 0")]);
    assert_eq!(kind, EventKind::ServerCrash);
    assert!(text.contains("SIGKILL"), "{text}");
}

#[test]
fn a_kill_for_lack_of_memory_is_named() {
    let killed = |seconds| Event::new(at(seconds), EventKind::OutOfMemory, Endpoint::default(), "");
    let (kind, text) = end(true, &[killed(103)]);
    assert_eq!(kind, EventKind::ServerCrash);
    assert!(text.contains("the kernel killed 1 process at that time for lack of memory"), "{text}");
    assert!(!end(true, &[killed(20)]).1.contains("memory"));
}

#[test]
fn the_kernels_count_of_kills_gets_the_names_that_its_log_has() {
    let mut lives = ServerLives::default();
    lives.killed(7, at(95), "Memory cgroup out of memory: Killed process 7 (java) total-vm:5kB".to_owned());
    lives.killed(8, at(20), "Out of memory: Killed process 8 (ruby) total-vm:5kB".to_owned());
    let named = |lives: &ServerLives, count, server| {
        let event = Event::new(at(100), EventKind::OutOfMemory, server, "");
        let mut event = Event { count, ..event };
        lives.name_killed(&mut event);
        assert_eq!(event.count, count);
        event.text.into_string()
    };
    let machine = Endpoint::default();
    let java = "process 7 (java) in a control group that had run out of memory";
    assert_eq!(named(&lives, 1, machine), java);
    assert_eq!(named(&lives, 2, machine), "", "the log has only one of them");
    assert_eq!(named(&lives, 1, local(27_017)), "", "that of a server's own group is known");
    lives.killed(9, at(99), "Out of memory: Killed process 9 (ruby) total-vm:5kB".to_owned());
    assert_eq!(named(&lives, 1, machine), "", "it may be either");
    assert_eq!(named(&lives, 2, machine), format!("{java}, process 9 (ruby)"));
}

#[test]
fn the_kernels_line_about_a_kill_is_that_of_the_process() {
    let line = "Memory cgroup out of memory: Killed process 7 (mongod) total-vm:5kB, anon-rss:4kB";
    let (kind, text) = end_of(true, |lives| {
        lives.undecided[0].how = Some(ProcessEnd::Killed { signal: 9, has_core: false });
        lives.killed(7, at(99), line.to_owned());
        lives.killed(8, at(99), "another process".to_owned());
    });
    assert_eq!(kind, EventKind::ServerCrash);
    assert_eq!(text, format!("process 7 (mongod), killed by signal 9 (SIGKILL); the kernel says: {line}"));
    // Its number was that of another process long ago.
    let (_, text) = end_of(true, |lives| lives.killed(7, at(0), line.to_owned()));
    assert!(!text.contains("kernel"), "{text}");
    let mut lives = ServerLives::default();
    (0..1_000).for_each(|pid| lives.killed(pid, at(u64::from(pid)), String::new()));
    assert!(lives.kills.len() <= MAX_KILLS && lives.kills.contains_key(&999));
}

#[test]
fn without_a_log_it_is_not_known_how_a_process_ended() {
    let (kind, text) = end(false, &[]);
    assert_eq!(kind, EventKind::ServerStop);
    assert!(text.ends_with("it is not known how"), "{text}");
}

fn texts(events: &[Event]) -> Vec<(EventKind, &str)> {
    events.iter().map(|event| (event.kind, &*event.text)).collect()
}

fn with_options(pid: u32, options: &[(&str, &str)]) -> FoundServer {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FoundServer { options, ..server(pid) }
}

#[test]
fn a_restart_names_the_process_before_and_the_settings_that_differ() {
    let mut lives = ServerLives::default();
    let first = with_options(7, &[("cacheSizeGB", "2"), ("port", "27017"), ("quiet", "true")]);
    assert_eq!(texts(&lives.started(&first, at(0))), [(EventKind::ServerStart, "process 7 (mongod)")]);
    lives.ended(&first, true, at(100));
    let second = with_options(9, &[("cacheSizeGB", "1"), ("port", "27017")]);
    assert_eq!(
        texts(&lives.started(&second, at(103))),
        [
            (EventKind::ServerStart, "process 9 (mongod), 3 seconds after process 7 had ended"),
            (EventKind::SettingChange, "since this start cacheSizeGB 1, was 2; quiet is not set, was true"),
        ]
    );
    lives.ended(&second, true, at(200));
    let third = FoundServer { options: second.options.clone(), ..server(11) };
    assert_eq!(lives.started(&third, at(201)).len(), 1, "the same settings");
    // Whose settings cannot be read.
    lives.ended(&third, true, at(300));
    assert_eq!(lives.started(&server(12), at(301)).len(), 1);
}

#[test]
fn a_server_that_takes_the_name_of_one_that_runs_on_has_changed_no_settings() {
    let mut lives = ServerLives::default();
    let contained = with_options(std::process::id(), &[("cacheSizeGB", "2")]);
    lives.watch(std::slice::from_ref(&contained));
    // A server of this host, which has the port alone as its name.
    assert_eq!(lives.started(&with_options(9, &[("cacheSizeGB", "1")]), at(103)).len(), 1);
    let renamed = FoundServer { address: Some("10.0.0.2".parse().unwrap()), ..contained };
    lives.watch(std::slice::from_ref(&renamed));
    lives.ended(&renamed, true, at(200));
    let again = FoundServer { address: renamed.address, ..with_options(11, &[("cacheSizeGB", "3")]) };
    let events = lives.started(&again, at(203));
    assert!(events.iter().all(|event| event.server == again.endpoint()), "{events:?}");
    let expected = (EventKind::SettingChange, "since this start cacheSizeGB 3, was 2");
    assert_eq!(texts(&events).last(), Some(&expected));
}

const STOPPED: ProcessState = ProcessState::Silent(NotServing::Stopped);
const CLOSED: ProcessState = ProcessState::Silent(NotServing::NotListening);

/// What is said at this second of process 7, which is in this state.
fn told(lives: &mut ServerLives, state: ProcessState, second: u64) -> Vec<(EventKind, String)> {
    let events = lives.silent(&[(server(7), state)], at(second));
    events.into_iter().map(|event| (event.kind, event.text.into())).collect()
}

#[test]
fn a_process_that_does_not_answer_is_told_once_and_so_is_its_return() {
    let mut lives = ServerLives::default();
    let said = |kind, text: &str| vec![(kind, text.to_owned())];
    assert_eq!(
        told(&mut lives, STOPPED, 0),
        said(EventKind::ServerUnreachable, "process 7 (mongod) was stopped by a signal or a debugger")
    );
    assert_eq!(told(&mut lives, STOPPED, 5), []);
    assert_eq!(told(&mut lives, ProcessState::Serves, 8), []);
    assert_eq!(told(&mut lives, STOPPED, 10), [], "for a moment only");
    assert_eq!(told(&mut lives, ProcessState::Serves, 12), []);
    assert_eq!(
        told(&mut lives, ProcessState::Serves, 14),
        said(EventKind::ServerReachable, "process 7 runs again, after 12 seconds")
    );
    assert_eq!(told(&mut lives, ProcessState::Serves, 15), []);
}

#[test]
fn a_process_that_has_ended_does_not_answer_again() {
    let mut lives = ServerLives::default();
    assert_eq!(told(&mut lives, STOPPED, 0).len(), 1);
    assert_eq!(told(&mut lives, ProcessState::Serves, 4), [], "it runs for a moment before it has ended");
    assert_eq!(told(&mut lives, ProcessState::Ended, 5), [], "SIGKILL after SIGSTOP");
    assert_eq!(lives.silent(&[], at(6)), [], "it is gone from the list");
    lives.ended(&server(7), true, at(6));
    assert_eq!(lives.silent(&[(server(8), ProcessState::Serves)], at(7)), [], "the next one is another");
    assert!(lives.silent.is_empty());
}

#[test]
fn a_server_that_shuts_down_is_not_unreachable() {
    // It closes its port, and logs its end last.
    let mut lives = ServerLives::default();
    assert_eq!(told(&mut lives, CLOSED, 0), []);
    assert_eq!(told(&mut lives, CLOSED, 8), []);
    assert_eq!(told(&mut lives, ProcessState::Ended, 9), []);
    lives.ended(&server(7), true, at(9));
    lives.see(&shutdown(9, "shut down, exit code 0"));
    let kinds: Vec<_> = lives.decided(at(10)).iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::ServerStop]);
    // It takes minutes, and what it logs at the beginning is read a moment later.
    let mut lives = ServerLives::default();
    assert_eq!(told(&mut lives, CLOSED, 101), []);
    lives.begins_shutdown(local(27_017), at(100));
    assert_eq!(told(&mut lives, CLOSED, 120), []);
    assert_eq!(told(&mut lives, CLOSED, 700), []);
    assert_eq!(told(&mut lives, ProcessState::Ended, 701), []);
}

#[test]
fn a_server_that_only_closes_its_port_is_unreachable() {
    let mut lives = ServerLives::default();
    assert_eq!(told(&mut lives, CLOSED, 0), []);
    let events = lives.silent(&[(server(7), CLOSED)], at(12));
    assert_eq!(
        texts(&events),
        [(EventKind::ServerUnreachable, "process 7 (mongod) runs, but does not listen on its port any more")]
    );
    assert_eq!(events[0].at, at(0), "since when");
    assert_eq!(told(&mut lives, ProcessState::Serves, 20), []);
    assert_eq!(
        told(&mut lives, ProcessState::Serves, 22),
        [(EventKind::ServerReachable, "process 7 listens again, after 20 seconds".to_owned())]
    );
    // Shorter than the patience.
    assert_eq!(told(&mut lives, CLOSED, 30), []);
    assert_eq!(told(&mut lives, ProcessState::Serves, 31), []);
    // What a process before it logged.
    let now = crate::args::when::now();
    let started = sonar_sys::Host::live().stat(std::process::id()).unwrap().started;
    let next = FoundServer { started, ..server(8) };
    lives.begins_shutdown(local(27_017), at(25));
    assert_eq!(lives.silent(&[(next.clone(), CLOSED)], now), []);
    assert_eq!(lives.silent(&[(next, CLOSED)], now.plus_ns(PATIENCE_NS)).len(), 1);
}

#[test]
fn what_happened_while_no_agent_ran_is_told_at_the_next_start() {
    let known = |servers: Vec<FoundServer>| KnownServers { at: at(100), is_other_boot: false, servers };
    let mut lives = ServerLives::default();
    // It still runs.
    assert_eq!(lives.meanwhile(known(vec![server(7)]), &[server(7)], at(1_000)), []);
    assert_eq!(lives.meanwhile(known(vec![server(7)]), &[], at(1_000)), []);
    assert_eq!(lives.decided(at(1_011)), [], "its log is being read");
    let events = lives.decided(at(1_012));
    assert_eq!(
        texts(&events),
        [(
            EventKind::ServerStop,
            "process 7 (mongod), in the next 15 minutes, while no agent ran; it is not known how"
        )]
    );
    assert_eq!(events[0].at, at(100), "when it was last seen");
    lives.killed(7, at(400), "Out of memory: Killed process 7 (mongod)".to_owned());
    let events = lives.meanwhile(known(vec![server(7)]), &[], at(1_000));
    assert_eq!((events[0].kind, events[0].at), (EventKind::ServerCrash, at(400)));
    let reboot = KnownServers { is_other_boot: true, ..known(vec![server(8)]) };
    assert!(lives.meanwhile(reboot, &[], at(1_000))[0].text.ends_with("the machine was restarted"));
}

#[test]
fn the_resumed_log_says_how_a_process_ended_while_no_agent_ran() {
    let decided = |logged: &[Event]| {
        let known = KnownServers { at: at(100), is_other_boot: false, servers: vec![server(7)] };
        let mut lives = ServerLives::default();
        assert_eq!(lives.meanwhile(known, &[], at(130)), []);
        logged.iter().for_each(|event| lives.see(event));
        let [event] = lives.decided(at(131)).try_into().unwrap();
        assert_eq!(lives.rest(), []);
        let event: Event = event;
        (event.at, event.kind, event.text.into_string())
    };
    let said = |text| format!("process 7 (mongod), in the next 30 seconds, while no agent ran; {text}");
    // Its own end, and not that of a process after it.
    let stops = [shutdown(104, "shut down, exit code 0"), shutdown(120, "shut down, exit code 1")];
    assert_eq!(decided(&stops), (at(104), EventKind::ServerStop, said("it had shut down, exit code 0")));
    let unclean = [shutdown(110, "had not shut down cleanly before this start")];
    assert_eq!(
        decided(&unclean),
        (at(100), EventKind::ServerCrash, said("the next start found that it had not shut down cleanly"))
    );
    // What was logged before it was last seen is of another process.
    let known = KnownServers { at: at(100), is_other_boot: false, servers: vec![server(7)] };
    let mut lives = ServerLives::default();
    lives.meanwhile(known, &[], at(130));
    lives.see(&shutdown(99, "shut down"));
    assert_eq!(lives.decided(at(131)), []);
    assert!(lives.rest()[0].text.ends_with("it is not known how"));
}

#[test]
fn a_restart_while_no_agent_ran_is_an_end_and_a_start() {
    let own = std::process::id();
    let started = sonar_sys::Host::live().stat(own).unwrap().started;
    let now = crate::args::when::now();
    let is = FoundServer { started, ..with_options(own, &[("cacheSizeGB", "1")]) };
    let known = KnownServers {
        at: Timestamp::from_unix_ns(1),
        is_other_boot: false,
        servers: vec![with_options(7, &[("cacheSizeGB", "2")])],
    };
    let mut lives = ServerLives::default();
    let events = lives.meanwhile(known, std::slice::from_ref(&is), now);
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::ServerStart, EventKind::SettingChange]);
    assert!(events[0].at <= now && events[0].text.contains("while no agent ran"), "{events:?}");
    assert!(events[1].text.contains("cacheSizeGB 1, was 2"), "{events:?}");
    assert_eq!(lives.rest().len(), 1, "the end");
    // One that ran at the end of the last run already.
    let known = KnownServers { at: now.plus_ns(1), is_other_boot: false, servers: Vec::new() };
    assert_eq!(ServerLives::default().meanwhile(known, &[is], now.plus_ns(2)), []);
}

#[test]
fn a_server_has_started_when_its_process_did_and_not_when_it_was_found() {
    const AGO_S: u64 = 5;
    let (before, now) = (sonar_sys::clock::since_boot(), crate::args::when::now());
    let ticks = before.saturating_sub(std::time::Duration::from_secs(AGO_S)).as_millis() as u64 / 10;
    let found = FoundServer { started: ticks, ..server(7) };
    let [start] = ServerLives::default().appeared(&found, now).try_into().unwrap();
    let start: Event = start;
    let passed = (sonar_sys::clock::since_boot() - before).as_nanos() as u64;
    let ago = now.since(start.at);
    assert_eq!(start.kind, EventKind::ServerStart);
    // A clock tick is 10 ms.
    let expected = AGO_S * NS_PER_S..=AGO_S * NS_PER_S + passed + 10_000_000;
    assert!(expected.contains(&ago), "{ago} ns ago, {passed} ns of the test");
}

#[test]
fn a_process_that_is_found_long_after_its_start_has_not_started_now() {
    let found = |seconds| ServerLives::default().found(&server(7), at(0), at(seconds)).len();
    // A server that recovers listens late.
    assert_eq!((found(0), found(1_200), found(7_200)), (1, 1, 0));
}
