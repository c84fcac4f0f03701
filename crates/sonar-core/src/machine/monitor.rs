//! Goes from one reading of a machine to the next.

use super::group_watch::GroupWatch;
use super::rates;
use super::reading::{MachineClocks, MachineReading};
use super::space::SpaceWatch;
use super::values::Values;
use crate::counter::growth;
use crate::history::{Event, EventKind, SeriesKey};
use crate::time::NS_PER_S;
use crate::{Endpoint, Timestamp};

/// A change of the clock by less is adjustment, not a step: daemons that keep the time also speed it up or slow it down.
const MIN_STEP_NS: u64 = NS_PER_S / 2;
/// A shorter suspension is not worth an event.
const MIN_SUSPENSION_NS: u64 = NS_PER_S;

/// What two readings in a row say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineStep {
    /// The time of the later reading.
    pub at: Timestamp,
    /// Values of series, each with the seconds that it speaks for.
    pub values: Vec<(SeriesKey, f64, f64)>,
    /// What happened between the readings.
    pub events: Vec<Event>,
}

/// Makes values and events of readings, which must come in order.
#[derive(Debug, Default)]
pub struct MachineMonitor {
    before: Option<MachineReading>,
    space: SpaceWatch,
    groups: GroupWatch,
}

impl MachineMonitor {
    /// Adds a reading. The first one, and the first one after a start of the machine, has no values.
    pub fn step(&mut self, now: MachineReading) -> MachineStep {
        let mut step = MachineStep { at: now.clocks.realtime, ..MachineStep::default() };
        self.space.add(&now, &mut step.events);
        if let Some(before) = self.before.take() {
            let same_boot = before.clocks.boot_ns <= now.clocks.boot_ns;
            let elapsed_ns = now.clocks.monotonic_ns.saturating_sub(before.clocks.monotonic_ns);
            if same_boot && elapsed_ns > 0 {
                let mut values = Values::new(elapsed_ns as f64 / NS_PER_S as f64);
                rates::add_values(&before, &now, &mut values);
                step.values = values.into_vec();
                step.events.extend(clock_step(&before.clocks, &now.clocks));
                step.events.extend(suspension(&before.clocks, &now.clocks));
                let killed = self.groups.add(&before, &now, &mut step.events);
                step.events.extend(out_of_memory(&before, &now, killed));
            }
        }
        self.before = Some(now);
        step
    }
}

fn machine_event(at: Timestamp, kind: EventKind, text: &str) -> Event {
    Event::new(at, kind, Endpoint::default(), text)
}

/// The clock was set, if it went another way than the time since boot.
fn clock_step(before: &MachineClocks, now: &MachineClocks) -> Option<Event> {
    let offset = |clocks: &MachineClocks| i128::from(clocks.realtime.unix_ns()) - i128::from(clocks.boot_ns);
    let step = offset(now) - offset(before);
    if step.unsigned_abs() < u128::from(MIN_STEP_NS) {
        return None;
    }
    let direction = if step > 0 { "forward" } else { "back" };
    let seconds = step.unsigned_abs() as f64 / NS_PER_S as f64;
    let text = format!("the clock was set {direction} by {seconds:.1} s");
    Some(machine_event(now.realtime, EventKind::ClockStep, &text))
}

/// The machine was suspended, or a hypervisor stopped it and set the clocks right.
fn suspension(before: &MachineClocks, now: &MachineClocks) -> Option<Event> {
    let asleep = |clocks: &MachineClocks| clocks.boot_ns.saturating_sub(clocks.monotonic_ns);
    let length = asleep(now).saturating_sub(asleep(before));
    if length < MIN_SUSPENSION_NS {
        return None;
    }
    let text = format!("the machine was suspended for {:.0} s", length as f64 / NS_PER_S as f64);
    Some(machine_event(before.realtime, EventKind::Gap, &text))
}

/// The kernel killed processes, and does not count which ones; `of_groups` of them have their event.
fn out_of_memory(before: &MachineReading, now: &MachineReading, of_groups: u64) -> Option<Event> {
    let killed = growth(now.vm.out_of_memory_kills, before.vm.out_of_memory_kills)?.saturating_sub(of_groups);
    if killed == 0 {
        return None;
    }
    let event = machine_event(now.clocks.realtime, EventKind::OutOfMemory, "");
    Some(Event { count: killed, ..event })
}
