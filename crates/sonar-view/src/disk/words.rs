//! What a test means, in sentences.

use sonar_core::disk::DiskStep;
use sonar_core::disk::verdict::{CLASSES, Knee, Limit, ProcessorLimit, Volume, class};

use crate::kit::{Count, Nanos, plural};

fn p99(step: &DiskStep) -> Option<Nanos> {
    let kinds = [&step.reads, &step.writes];
    kinds.into_iter().filter_map(|kind| kind.latency.quantile_ns(0.99)).max().map(Nanos)
}

/// The sentences that follow the table.
pub fn verdict(steps: &[DiskStep], knee: &Knee, limit: &Limit, volume: Option<&Volume>) -> Vec<String> {
    let mut words = vec![scaling(steps, knee), self::limit(limit)];
    if matches!(limit, Limit::Processor { .. }) {
        // What the test could not reach says nothing of the disk.
        words.rotate_right(1);
        return words;
    }
    words.extend(volume.map(self::volume));
    words.push(beside(knee.best_per_second));
    words
}

fn scaling(steps: &[DiskStep], knee: &Knee) -> String {
    let at = steps.iter().find(|step| step.in_flight == knee.in_flight);
    let rate = Count(knee.operations_per_second);
    let waits = at.and_then(p99).map_or_else(String::new, |p99| format!(" with a p99 of {p99}"));
    if knee.still_scaling {
        return match steps.len() {
            1 => format!("One step only: {rate} operations/s{waits} with {} in flight.", knee.in_flight),
            _ => format!(
                "It still scaled at the last step: {rate} operations/s{waits} with {} in flight. A larger nThreads shows \
                 where it ends.",
                knee.in_flight
            ),
        };
    }
    let mut text = format!(
        "It stops scaling at {} in flight: {rate} operations/s{waits}, and no more than {} at best.",
        knee.in_flight,
        Count(knee.best_per_second)
    );
    let beyond = steps.last().filter(|last| last.in_flight > knee.in_flight);
    if let Some((last, p99)) = beyond.and_then(|last| Some((last, p99(last)?))) {
        let (n, rate) = (last.in_flight, Count(last.operations_per_second()));
        text.push_str(&format!(
            " Beyond, requests only wait: {n} in flight give {rate} with a p99 of {p99}."
        ));
    }
    text
}

fn limit(limit: &Limit) -> String {
    match limit {
        Limit::NotReached => "No limit was reached: each step did more than the one before.".to_owned(),
        Limit::Cap { per_second } => format!(
            "The limit is a number: about {} operations/s are let through, whatever is asked and however. That \
             is what provisioned volumes and limited containers do; buy more, or raise the limit.",
            Count(*per_second)
        ),
        Limit::Processor { of, own } => processor(*of, *own),
        Limit::Device { queue, in_flight } => format!(
            "The limit is the device: of {in_flight} requests in flight it had {queue:.1} on average. More \
             requests at once bring nothing but waiting."
        ),
        Limit::FileSystem { queue, in_flight } => format!(
            "The limit lies above the device: of {in_flight} requests in flight it had only {queue:.1} on \
             average. The others waited in the file system: for its journal, a flush, or a lock of the file."
        ),
        Limit::Memory => {
            "The device had next to nothing to do: these figures are of memory (the page cache), \
                          not of the disk. Use a file larger than memory to measure the disk."
                .to_owned()
        }
        Limit::Unknown => "The limit is not known: the kernel has no counters for the device.".to_owned(),
    }
}

/// Which processor time was used up, and what helps.
fn processor(of: ProcessorLimit, own: f64) -> String {
    let (what, remedy) = match of {
        ProcessorLimit::Quota { throttled } => (
            format!(
                "the processor quota of this control group stopped the test in {:.0} % of its periods, and left it \
                 {own:.2} processors",
                throttled * 100.0
            ),
            "measure again with a larger quota, or outside of the container",
        ),
        ProcessorLimit::Usable { processors } => (
            format!("the test used {own:.2} of the {} that it may use", processors_text(processors)),
            "measure again with more processors",
        ),
        ProcessorLimit::Machine { busy } => (
            format!(
                "{:.0} % of the time of all processors of this machine was taken, and the test used {own:.1} of them",
                busy * 100.0
            ),
            "measure again when nothing else runs",
        ),
        ProcessorLimit::Threads => (
            format!("the threads that make the requests used {own:.2} processors, all that they can"),
            "measure again with --engine threads, which has one for each request",
        ),
    };
    format!(
        "The processor was the limit, not the disk: {what}. So these figures do not judge the disk; {remedy}."
    )
}

fn processors_text(count: f64) -> String {
    if count.fract() == 0.0 { plural(count as u64, "processor") } else { format!("{count:.2} processors") }
}

fn volume(volume: &Volume) -> String {
    match volume {
        Volume::Capped { per_second } => format!(
            "Probes: at random as in order, with one in flight as with many, always about {} operations/s. A \
             capped volume, not a slow device.",
            Count(*per_second)
        ),
        Volume::Seeks { ratio } => format!(
            "Probes: in order it is {} times as quick as at random: a disk that turns, or one that reads ahead. \
             The order of documents matters here.",
            Count(*ratio)
        ),
        Volume::Parallel { ratio } => format!(
            "Probes: no cap; many in flight give {} times what one gives. One query that reads document after \
             document sees the rate of one in flight.",
            Count(*ratio)
        ),
        Volume::Flat => {
            "Probes: many in flight give little more than one, at no even rate: a slow or a busy \
                         device rather than a cap."
                .to_owned()
        }
    }
}

fn beside(best: f64) -> String {
    let known: Vec<String> =
        CLASSES.iter().skip(1).map(|class| format!("{} {}", class.name, Count(class.per_second))).collect();
    format!(
        "{} operations/s are about what {} gives. For scale (random reads of 4 KiB): {}.",
        Count(best),
        class(best).name,
        known.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_lacked_processor_time_does_not_judge_the_disk() {
        let knee = Knee {
            in_flight: 4,
            operations_per_second: 900.0,
            best_per_second: 1_000.0,
            still_scaling: false,
        };
        for (of, what) in [
            (ProcessorLimit::Quota { throttled: 0.87 }, "stopped the test in 87 % of its periods"),
            (ProcessorLimit::Usable { processors: 1.0 }, "used 0.50 of the 1 processor that it may use"),
            (ProcessorLimit::Usable { processors: 0.5 }, "used 0.50 of the 0.50 processors that it may use"),
            (ProcessorLimit::Machine { busy: 0.99 }, "99 % of the time of all processors"),
            (ProcessorLimit::Threads, "the threads that make the requests used 0.50 processors"),
        ] {
            let limit = Limit::Processor { of, own: 0.5 };
            let words = verdict(&[], &knee, &limit, Some(&Volume::Capped { per_second: 1_000.0 }));
            assert_eq!(words.len(), 2, "{words:?}");
            assert!(words[0].starts_with("The processor was the limit, not the disk: "), "{words:?}");
            assert!(words[0].contains(what), "{words:?}");
            assert!(!words.iter().any(|line| line.contains("SSD") || line.contains("volume")), "{words:?}");
        }
    }
}
