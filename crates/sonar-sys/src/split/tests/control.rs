//! What a process can still make the programs do once it has given up control.

use super::*;
use crate::executing_shell::ExecutingShell;

/// `None` where programs cannot run. They follow no process.
fn start_for_nobody() -> Option<SplitTracer> {
    let tracer = start()?;
    tracer.leave(std::process::id()).unwrap();
    Some(tracer)
}

/// Tries to make the programs take this thread, whose process is not followed, for one in the middle of an operation that
/// has waited for a second.
fn forge(tracer: &SplitTracer) {
    let maps = &tracer.skeleton.maps;
    let (process, thread) = (std::process::id(), own_thread());
    let generation = 1_u32;
    let control = types::split_control { some: [u64::MAX; 4], generation, ..Default::default() };
    let operation = types::split_operation { thread, process, start: 1, ..Default::default() };
    let state = types::split_thread {
        owner: thread,
        process,
        generation,
        phase: 3,
        wait_ns: 1 << 30,
        operation,
        ..Default::default()
    };
    // What is refused is refused.
    let _ = update(&maps.split_processes, &process.to_ne_bytes(), &generation.to_ne_bytes());
    let _ = update(&maps.data_control, &0_u32.to_ne_bytes(), sys_bpf::bytes_of(&control));
    let place = thread & (MAX_THREADS - 1);
    let _ = update(&maps.split_threads, &place.to_ne_bytes(), sys_bpf::bytes_of(&state));
}

#[test]
fn without_control_no_stack_of_another_process_is_reported() {
    let Some(tracer) = start_for_nobody() else { return };
    tracer.give_up_control().unwrap();
    forge(&tracer);
    let mut events = 0;
    tracer.run(|_| events += 1, || false).unwrap();
    assert_eq!(events, 0, "it has made system calls meanwhile");
    let own = std::process::id();
    assert!(tracer.follow(own).is_err() && tracer.leave(own).is_err() && tracer.followed().is_empty());
    // Even if what it says were believed.
    tracer.note_followed(&[FollowedProcess { process: own, since: 1 }]);
    assert!(tracer.threads().unwrap().is_empty());
}

#[test]
fn without_control_no_map_can_be_written_and_what_was_chosen_is_still_traced() {
    let Some(tracer) = start() else { return };
    const MAPPABLE: u32 = 0x400;
    let control = tracer.skeleton.maps.data_control.info().unwrap();
    assert_eq!(control.info.map_flags & MAPPABLE, 0, "it cannot be written past the descriptor");
    tracer.give_up_control().unwrap();
    for map in tracer.skeleton.object().maps() {
        let (key, value) = (vec![0; map.key_size() as usize], vec![0; map.value_size() as usize]);
        assert!(map.update(&key, &value, MapFlags::ANY).is_err(), "{:?}", map.name());
        assert!(map.delete(&key).is_err(), "{:?}", map.name());
    }
    let (server, address, mut stream) = connect();
    ask(&mut stream, 1, &command(LOCK, 10));
    server.wait_until_it_receives();
    assert!(tracer.is_readable() && !tracer.threads().unwrap().is_empty());
    drop(stream);
    server.join();
    let (operations, waits) = events_of(&tracer, address);
    assert_eq!(operations.len(), 1);
    assert!(waits.iter().any(|wait| wait.part == TimePart::Futex && !wait.sample.stack.is_empty()));
    assert_nothing_lost(&tracer);
}

#[test]
fn a_process_is_followed_once_it_is_proven_and_not_if_it_executes_another_program_meanwhile() {
    let Some(tracer) = start_for_nobody() else { return };
    let mut shell = ExecutingShell::start();
    let process = shell.id();
    // Until then it is watched, and not followed.
    assert!(!tracer.follow_if(process, || tracer.follows(process)).unwrap());
    assert!(tracer.followed().is_empty());
    let meanwhile = || {
        shell.execute();
        true
    };
    assert!(!tracer.follow_if(process, meanwhile).unwrap());
    assert!(!tracer.follows(process) && tracer.followed().is_empty());
    assert!(tracer.follow_if(process, || true).unwrap());
    assert!(tracer.follows(process));
    shell.end();
    assert!(!tracer.follows(process));
}

#[test]
fn a_process_that_executes_another_program_or_ends_is_not_followed_any_more() {
    let Some(tracer) = start_for_nobody() else { return };
    let mut shell = ExecutingShell::start();
    let process = shell.id();
    tracer.follow(process).unwrap();
    assert!(tracer.follows(process) && !tracer.follows(std::process::id()));
    shell.execute();
    assert!(!tracer.follows(process));
    // It is what it is now that is followed.
    tracer.follow(process).unwrap();
    assert!(tracer.follows(process));
    shell.end();
    assert!(!tracer.follows(process));
    tracer.leave(process).unwrap();
    assert!(tracer.followed().is_empty());
}
