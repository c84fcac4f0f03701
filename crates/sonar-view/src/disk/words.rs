//! What a test means, in sentences.

use sonar_core::disk::DiskStep;
use sonar_core::disk::verdict::{CLASSES, Knee, Limit, Volume, class};

use crate::kit::{Count, Nanos};

fn p99(step: &DiskStep) -> Option<Nanos> {
    let kinds = [&step.reads, &step.writes];
    kinds.into_iter().filter_map(|kind| kind.latency.quantile_ns(0.99)).max().map(Nanos)
}

/// The sentences that follow the table.
pub fn verdict(steps: &[DiskStep], knee: &Knee, limit: &Limit, volume: Option<&Volume>) -> Vec<String> {
    let mut words = vec![scaling(steps, knee), self::limit(limit)];
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
        Limit::Processor { machine: Some(busy), own } if *busy >= 0.9 => format!(
            "The limit is the processors of this machine: {:.0} % of their time was taken, and this test used \
             {own:.1} of them. The disk may be able to do more; measure again when nothing else runs.",
            busy * 100.0
        ),
        Limit::Processor { .. } => {
            "The limit is the processor time of the thread that makes the requests; the \
                                    disk may be able to do more."
                .to_owned()
        }
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
