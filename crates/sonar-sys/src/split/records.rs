//! What the programs in the kernel report.

use std::mem::offset_of;

use sonar_core::Timestamp;
use sonar_core::stacks::{Registers, ThreadSample, ThreadState};
use sonar_core::time_split::{
    FileWait, InFlightOperation, ThreadOperation, TimePart, TimeSplit, WaitSample, Waker,
};

use crate::addresses::endpoint;
use crate::clock_offsets::ClockOffsets;
use crate::skeletons::split::types;
use crate::sys_bpf;

const EXHAUST: u32 = 1;
const NO_REPLY: u32 = 2;
const PIPELINED: u32 = 4;
const FILES_CUT: u32 = 8;
const WAKERS_CUT: u32 = 16;
const WOKE: u32 = 32;
/// `PHASE_RUNNING`.
const RUNNING: u8 = 3;
/// States of a thread.
const ON_PROCESSOR: u8 = 0;
const BLOCKED: u8 = 2;
/// `PART_IDLE`.
const IDLE: usize = 14;

/// Parts of the kernel's table, and the time between operations.
pub(super) fn split_of(parts: &[u64; 16]) -> (TimeSplit, u64) {
    let mut split = TimeSplit::default();
    for (part, ns) in TimePart::ALL.into_iter().zip(parts) {
        split[part] = *ns;
    }
    (split, parts[IDLE])
}

/// Parses a record of the ring of waits.
pub(super) fn parse_wait(bytes: &[u8], clock: &ClockOffsets) -> Option<WaitSample> {
    let record: types::split_wait = sys_bpf::read(bytes)?;
    let part = *TimePart::ALL.get(record.part as usize)?;
    let stack = record.stack.get(..record.length as usize)?;
    Some(WaitSample {
        process: record.process,
        operation: (record.thread, clock.time(record.start)),
        part,
        wait_ns: record.ns,
        sample: ThreadSample {
            thread: record.thread,
            name: String::new(),
            state: if part == TimePart::Cpu { ThreadState::OnCpu } else { ThreadState::Sleeping },
            call: u32::try_from(record.call).ok(),
            registers: Some(Registers { ip: record.ip, sp: record.sp, fp: record.fp, lr: record.lr }),
            stack: stack.to_vec(),
            changed: false,
        },
    })
}

/// Parses a record of the ring of operations.
pub(super) fn parse(bytes: &[u8], clock: &ClockOffsets) -> Option<ThreadOperation> {
    // Without files and wakers it is shorter.
    let mut whole = [0; size_of::<types::split_operation>()];
    if bytes.len() < offset_of!(types::split_operation, files) {
        return None;
    }
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let record: types::split_operation = sys_bpf::read(&whole)?;
    Some(operation(&record, clock))
}

/// What a thread executes now; `None` if it is in no operation. `now` is a reading of the monotonic clock.
pub(super) fn in_flight(
    state: &types::split_thread,
    now: u64,
    clock: &ClockOffsets,
) -> Option<InFlightOperation> {
    if state.phase < RUNNING || state.operation.thread != state.owner {
        return None;
    }
    let now = now.max(state.since);
    // An operation has one clock, even if that is set while it runs.
    let offset = clock.at(state.operation.start);
    let at = |ns: u64| Timestamp::from_unix_ns(ns.wrapping_add(offset));
    let (doing, since) = match state.state {
        ON_PROCESSOR => (TimePart::Cpu, state.since),
        // It was woken, but has no processor yet.
        BLOCKED if state.woken > 0 => (TimePart::RunQueue, state.woken.clamp(state.since, now)),
        _ => (*TimePart::ALL.get(state.part as usize)?, state.since),
    };
    let mut operation = operation(&state.operation, clock);
    operation.end = at(now);
    operation.duration_ns = now.saturating_sub(state.operation.start);
    operation.split[doing] += now - since;
    if let Some(part) = TimePart::ALL.get(state.part as usize) {
        operation.split[*part] += since - state.since;
    }
    Some(InFlightOperation { operation, doing, since: at(since) })
}

fn operation(record: &types::split_operation, clock: &ClockOffsets) -> ThreadOperation {
    // An operation has one clock, even if that is set while it runs.
    let offset = clock.at(record.start);
    let at = |ns: u64| Timestamp::from_unix_ns(ns.wrapping_add(offset));
    let addresses = &record.addresses;
    let server = endpoint(addresses.family, addresses.server, addresses.server_port);
    let client = endpoint(addresses.family, addresses.client, addresses.client_port);
    let name = record.name.split(|byte| *byte == 0).next().unwrap_or_default();
    let (split, _) = split_of(&record.parts);
    ThreadOperation {
        process: record.process,
        thread: record.thread,
        thread_name: String::from_utf8_lossy(name).into_owned(),
        connection: server.zip(client),
        request_id: record.request.cast_unsigned(),
        opcode: record.opcode.cast_unsigned(),
        received_from: at(record.received_from),
        start: at(record.start),
        end: at(record.end),
        preempted: (record.preempted != 0).then(|| (at(record.preempted), at(record.resumed))),
        queued_before_ns: 0,
        duration_ns: record.end.saturating_sub(record.start),
        split,
        switches: record.switches.into(),
        reads: record.reads,
        read_bytes: record.read_bytes,
        write_bytes: record.write_bytes,
        device_bytes: record.device_bytes,
        faults: record.faults,
        request_bytes: record.request_bytes,
        reply_bytes: record.reply_bytes,
        is_exhaust: record.flags & EXHAUST != 0,
        is_unacknowledged: record.flags & NO_REPLY != 0,
        is_pipelined: record.flags & PIPELINED != 0,
        files: record
            .files
            .iter()
            .filter(|file| file.reads > 0)
            .map(|file| FileWait {
                inode: file.inode,
                device: file.device,
                reads: file.reads,
                in_order: file.in_order,
                bytes: file.bytes,
                wait_ns: file.wait_ns,
            })
            .collect(),
        has_all_files: record.flags & FILES_CUT == 0,
        wakers: record
            .wakers
            .iter()
            .filter(|waker| waker.thread != 0)
            .map(|waker| Waker {
                thread: waker.thread,
                operation_start: (waker.start != 0).then(|| clock.time(waker.start)),
                count: waker.count,
                wait_ns: waker.wait_ns,
            })
            .collect(),
        has_all_wakers: record.flags & WAKERS_CUT == 0,
        woke_others: record.flags & WOKE != 0,
    }
}
