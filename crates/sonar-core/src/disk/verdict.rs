//! Evaluates a disk test: where it stops scaling, what limits it, and which kind of disk it resembles.

use super::step::DiskStep;

/// A step counts as having reached the best rate from this share of it on.
const REACHED: f64 = 0.9;
/// Growth from one step to the next above which the rate still scales.
const STILL_SCALING: f64 = 1.1;
/// Busy share of the processors, or of the threads that make requests, from which on they are the limit.
const PROCESSOR_BUSY: f64 = 0.9;
/// Share of the periods in which the control group stopped threads, from which on its quota is the limit.
const THROTTLED: f64 = 0.1;
/// Share of the requests in flight that are in the device, from which on the device is the limit.
const IN_DEVICE: f64 = 0.5;

/// The numbers in flight of a ramp: 1, 2, 4 … and `most`, which need not be a power of two.
pub fn ramp(most: u32) -> impl Iterator<Item = u32> {
    let powers = (0..32).map(|bit| 1u32 << bit).take_while(move |n| *n < most);
    powers.chain(std::iter::once(most.max(1)))
}

/// The knee: where throughput stops growing.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Knee {
    /// The lowest number in flight that reaches nine tenths of the best rate.
    pub in_flight: u32,
    /// Reads and writes per second at the knee.
    pub operations_per_second: f64,
    /// The best rate of any step.
    pub best_per_second: f64,
    /// Whether the last step was still more than a tenth better than the one before, or there is only one step: the
    /// real knee may be further on.
    pub still_scaling: bool,
}

/// The knee of the steps of one ramp, in order; `None` if no request was completed.
pub fn knee(steps: &[DiskStep]) -> Option<Knee> {
    let rates: Vec<(u32, f64)> = steps.iter().map(|s| (s.in_flight, s.operations_per_second())).collect();
    let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if best <= 0.0 {
        return None;
    }
    let at = rates.iter().position(|(_, rate)| *rate >= REACHED * best)?;
    let last = rates.len() - 1;
    let still_scaling = at == last && (last == 0 || rates[last].1 > STILL_SCALING * rates[last - 1].1);
    Some(Knee {
        in_flight: rates[at].0,
        operations_per_second: rates[at].1,
        best_per_second: best,
        still_scaling,
    })
}

/// A short test in addition to the ramp.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskProbe {
    /// Whether records were read in order.
    pub sequential: bool,
    /// Record size in bytes.
    pub record_bytes: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests per second.
    pub operations_per_second: f64,
}

/// The kind of a volume, from the probes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Volume {
    /// A limit on requests: the rate is the same at random and in order, with one and with many in flight. The volume
    /// has provisioned IOPS, or a cgroup has a limit.
    Capped {
        /// The limit in requests per second.
        per_second: f64,
    },
    /// Requests in order are much faster than random ones: a rotating disk, or readahead.
    Seeks {
        /// Rate of requests in order divided by the rate of random ones.
        ratio: f64,
    },
    /// Random requests are as fast as those in order, and more in flight give a higher rate.
    Parallel {
        /// Rate with many in flight divided by the rate with one.
        ratio: f64,
    },
    /// The same rate at random and in order, with one and with many in flight, but not steady enough for a limit.
    Flat,
}

/// Classifies a volume by random and sequential probes of the same record size with one and with many in
/// flight; `None` if one of them is missing or completed no request.
pub fn volume(probes: &[DiskProbe]) -> Option<Volume> {
    let record = probes.iter().find(|p| !p.sequential && p.in_flight == 1)?.record_bytes;
    let rate = |sequential: bool, many: bool| {
        probes
            .iter()
            .find(|p| p.record_bytes == record && p.sequential == sequential && (p.in_flight > 1) == many)
            .map(|p| p.operations_per_second)
            .filter(|rate| *rate > 0.0)
    };
    let (one, many) = (rate(false, false)?, rate(false, true)?);
    let (one_ordered, many_ordered) = (rate(true, false)?, rate(true, true)?);
    let close = |a: f64, b: f64| a / b < 1.15 && b / a < 1.15;
    if close(one, many) && close(many, many_ordered) && close(one, one_ordered) {
        return Some(Volume::Capped { per_second: many });
    }
    let seeks = (one_ordered / one).max(many_ordered / many);
    if seeks > 3.0 {
        return Some(Volume::Seeks { ratio: seeks });
    }
    Some(if many / one > 1.3 { Volume::Parallel { ratio: many / one } } else { Volume::Flat })
}

/// What limits the throughput.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Limit {
    /// The last step was still better than the one before, so no limit was reached.
    NotReached,
    /// A limit on requests per second.
    Cap {
        /// The limit.
        per_second: f64,
    },
    /// Processor time, so nothing is known of the disk.
    Processor {
        /// Whose.
        of: ProcessorLimit,
        /// Number of processors that this process kept busy: 1.0 is one processor.
        own: f64,
    },
    /// Requests wait in the device.
    Device {
        /// Mean number of requests in the device (`aqu-sz`).
        queue: f64,
        /// Number of requests in flight.
        in_flight: u32,
    },
    /// Requests wait above the device: in the file system, its journal or its locks.
    FileSystem {
        /// Mean number of requests in the device.
        queue: f64,
        /// Number of requests in flight.
        in_flight: u32,
    },
    /// The device was nearly idle: the page cache, or memory, served the requests.
    Memory,
    /// Unknown, because there are no counters.
    Unknown,
}

/// Which processor time was used up.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum ProcessorLimit {
    /// That of the control group: its threads were stopped.
    Quota {
        /// Share of the periods in which that happened, 0 to 1.
        throttled: f64,
    },
    /// That of the processors that this process may use.
    Usable {
        /// How many.
        processors: f64,
    },
    /// That of the machine.
    Machine {
        /// Busy share of its processors, 0 to 1.
        busy: f64,
    },
    /// That of the threads that make requests.
    Threads,
}

/// The processor time that a step used up; `None` if none was.
fn processor_limit(step: &DiskStep, threads_each: bool) -> Option<ProcessorLimit> {
    if let Some(throttled) = step.throttled.filter(|share| *share >= THROTTLED) {
        return Some(ProcessorLimit::Quota { throttled });
    }
    let own = step.processors();
    if let Some(processors) = step.usable_processors.filter(|usable| own >= PROCESSOR_BUSY * usable) {
        return Some(ProcessorLimit::Usable { processors });
    }
    if let Some(busy) = step.machine_busy.filter(|busy| *busy >= PROCESSOR_BUSY) {
        return Some(ProcessorLimit::Machine { busy });
    }
    // Where each request has its own thread, no thread waits for another one.
    let are_few = !threads_each && own >= PROCESSOR_BUSY * f64::from(step.threads.max(1));
    are_few.then_some(ProcessorLimit::Threads)
}

/// What limits the steps of a ramp. `threads_each` is true if each request in flight has its own thread.
pub fn limit(steps: &[DiskStep], volume: Option<Volume>, threads_each: bool) -> Option<Limit> {
    let knee = knee(steps)?;
    // The first step with twice as many in flight as needed shows best what they wait for. At the far end of
    // the ramp it may be the queue length of the device.
    let step = steps.iter().find(|s| s.in_flight >= 2 * knee.in_flight).or_else(|| steps.last())?;
    let moved = step.reads.bytes + step.writes.bytes;
    let from_memory = step.kernel.is_some_and(|k| (k.read + k.written) as f64 <= 0.1 * moved as f64);
    if from_memory {
        return Some(Limit::Memory);
    }
    // Before the others: without processor time the rate is even, and few requests are in the device.
    let at_knee = steps.iter().find(|s| s.in_flight == knee.in_flight);
    let bound = [Some(step), at_knee].into_iter().flatten().find_map(|step| {
        Some(Limit::Processor { of: processor_limit(step, threads_each)?, own: step.processors() })
    });
    if bound.is_some() {
        return bound;
    }
    if let Some(Volume::Capped { per_second }) = volume {
        return Some(Limit::Cap { per_second });
    }
    if knee.still_scaling {
        return Some(Limit::NotReached);
    }
    let Some(device) = &step.device else { return Some(Limit::Unknown) };
    let (queue, in_flight) = (device.queue, step.in_flight);
    Some(if queue >= IN_DEVICE * f64::from(in_flight) {
        Limit::Device { queue, in_flight }
    } else {
        Limit::FileSystem { queue, in_flight }
    })
}

/// A well-known kind of disk, with its random 4 KiB reads per second.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct DiskClass {
    /// Approximate requests per second.
    pub per_second: f64,
    /// Its name, as in "about what … gives".
    pub name: &'static str,
}

/// Known kinds, slowest first. The first three are from mongoperf's manual.
pub const CLASSES: [DiskClass; 7] = [
    DiskClass { per_second: 100.0, name: "a slow hard disk" },
    DiskClass { per_second: 250.0, name: "a hard disk" },
    DiskClass { per_second: 3_000.0, name: "a RAID of ten hard disks, or a small cloud volume" },
    DiskClass { per_second: 12_000.0, name: "an old SSD" },
    DiskClass { per_second: 75_000.0, name: "a SATA SSD" },
    DiskClass { per_second: 400_000.0, name: "an NVMe drive" },
    DiskClass { per_second: 1_500_000.0, name: "several NVMe drives" },
];

/// The nearest kind, by ratio.
pub fn class(per_second: f64) -> DiskClass {
    let far = |class: &DiskClass| (per_second.max(1.0) / class.per_second).ln().abs();
    CLASSES.into_iter().min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(CLASSES[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskRates, KernelBytes};

    fn step(in_flight: u32, per_second: u64) -> DiskStep {
        let mut step = DiskStep { in_flight, threads: 1, elapsed_ns: 1_000_000_000, ..DiskStep::default() };
        for _ in 0..per_second {
            step.reads.latency.record(1_000_000);
        }
        step.reads.bytes = per_second * 4_096;
        step.kernel = Some(KernelBytes { read: per_second * 4_096, written: 0 });
        step
    }

    fn with_queue(mut step: DiskStep, queue: f64) -> DiskStep {
        step.device = Some(DiskRates { queue, ..DiskRates::default() });
        step
    }

    #[test]
    fn a_ramp_doubles_up_to_the_last() {
        assert_eq!(ramp(16).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        assert_eq!(ramp(6).collect::<Vec<_>>(), [1, 2, 4, 6]);
        assert_eq!(ramp(1).collect::<Vec<_>>(), [1]);
        assert_eq!(ramp(u32::MAX).count(), 33);
    }

    #[test]
    fn the_knee_is_the_lowest_number_in_flight_near_the_best_rate() {
        let steps = [(1, 100), (2, 200), (4, 380), (8, 400), (16, 396)].map(|(n, ops)| step(n, ops));
        let found = knee(&steps).unwrap();
        assert_eq!((found.in_flight, found.best_per_second, found.still_scaling), (4, 400.0, false));
        let rising = [(1, 100), (2, 200), (4, 400)].map(|(n, ops)| step(n, ops));
        assert!(knee(&rising).unwrap().still_scaling && knee(&rising[..1]).unwrap().still_scaling);
        assert_eq!(knee(&[step(1, 0)]), None);
        assert_eq!(knee(&[]), None);
    }

    fn probes(rates: [f64; 4]) -> Vec<DiskProbe> {
        let kinds = [(false, 1), (true, 1), (false, 32), (true, 32)];
        let mut probes: Vec<DiskProbe> = kinds
            .into_iter()
            .zip(rates)
            .map(|((sequential, in_flight), operations_per_second)| DiskProbe {
                sequential,
                record_bytes: 4_096,
                in_flight,
                operations_per_second,
            })
            .collect();
        // A bandwidth probe is ignored.
        probes.push(DiskProbe {
            sequential: true,
            record_bytes: 1 << 20,
            in_flight: 4,
            operations_per_second: 7.0,
        });
        probes
    }

    #[test]
    fn a_cap_differs_from_a_slow_device() {
        assert_eq!(volume(&probes([500.0, 502.0, 498.0, 499.0])), Some(Volume::Capped { per_second: 498.0 }));
        assert!(matches!(volume(&probes([120.0, 9_000.0, 250.0, 20_000.0])), Some(Volume::Seeks { .. })));
        assert!(matches!(
            volume(&probes([9_000.0, 10_000.0, 90_000.0, 95_000.0])),
            Some(Volume::Parallel { .. })
        ));
        assert_eq!(volume(&probes([500.0, 800.0, 550.0, 700.0])), Some(Volume::Flat));
        assert_eq!(volume(&probes([500.0, 0.0, 550.0, 700.0])), None);
        assert_eq!(volume(&[]), None);
    }

    #[test]
    fn the_limit_is_what_requests_wait_for() {
        let ramp = |queue: fn(u32) -> f64| {
            [(1, 100), (2, 190), (4, 200), (8, 200)]
                .map(|(n, ops)| with_queue(step(n, ops), queue(n)))
                .to_vec()
        };
        let device = limit(&ramp(|n| f64::from(n) * 0.95), None, true).unwrap();
        assert_eq!(device, Limit::Device { queue: 3.8, in_flight: 4 });
        let above = limit(&ramp(|_| 1.0), None, true).unwrap();
        assert_eq!(above, Limit::FileSystem { queue: 1.0, in_flight: 4 });
        let capped = Some(Volume::Capped { per_second: 200.0 });
        assert_eq!(limit(&ramp(|_| 4.0), capped, true), Some(Limit::Cap { per_second: 200.0 }));

        let mut busy = ramp(f64::from);
        busy.iter_mut().for_each(|step| step.machine_busy = Some(0.97));
        let machine = ProcessorLimit::Machine { busy: 0.97 };
        assert_eq!(limit(&busy, None, true), Some(Limit::Processor { of: machine, own: 0.0 }));
        let mut thread = ramp(f64::from);
        thread.iter_mut().for_each(|step| step.system_ns = 990_000_000);
        let threads = ProcessorLimit::Threads;
        assert_eq!(limit(&thread, None, false), Some(Limit::Processor { of: threads, own: 0.99 }));
        // With a thread for each request there is nothing to gain from the other engine.
        thread.iter_mut().for_each(|step| step.system_ns = 990_000_000 * u64::from(step.in_flight));
        assert!(matches!(limit(&thread, None, true), Some(Limit::Device { .. })));
        // What looks like a cap, or like a lock above the device, while the quota of a container is used up.
        let mut stopped = ramp(|_| 1.0);
        stopped.iter_mut().for_each(|step| (step.system_ns, step.throttled) = (250_000_000, Some(0.8)));
        let quota = Limit::Processor { of: ProcessorLimit::Quota { throttled: 0.8 }, own: 0.25 };
        assert_eq!(limit(&stopped, capped, true), Some(quota));
        stopped.iter_mut().for_each(|step| step.throttled = Some(0.02));
        assert_eq!(limit(&stopped, capped, true), Some(Limit::Cap { per_second: 200.0 }));
        stopped.iter_mut().for_each(|step| step.usable_processors = Some(0.25));
        let usable = Limit::Processor { of: ProcessorLimit::Usable { processors: 0.25 }, own: 0.25 };
        assert_eq!(limit(&stopped, capped, true), Some(usable));

        let mut cached = ramp(|_| 0.0);
        cached.iter_mut().for_each(|step| step.kernel = Some(KernelBytes { read: 4_096, written: 0 }));
        assert_eq!(limit(&cached, None, true), Some(Limit::Memory));
        assert_eq!(limit(&[step(1, 5)], None, true), Some(Limit::NotReached));
        let unknown = [step(1, 100), step(2, 100)];
        assert_eq!(limit(&unknown, None, true), Some(Limit::Unknown));
    }

    #[test]
    fn a_rate_has_the_nearest_class() {
        for (rate, name) in [
            (0.0, "a slow hard disk"),
            (240.0, "a hard disk"),
            (2_500.0, "a RAID of ten hard disks, or a small cloud volume"),
            (15_000.0, "an old SSD"),
            (60_000.0, "a SATA SSD"),
            (600_000.0, "an NVMe drive"),
            (9e9, "several NVMe drives"),
        ] {
            assert_eq!(class(rate).name, name, "{rate}");
        }
    }
}
