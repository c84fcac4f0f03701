//! What `disk bench` measured, beside what the disks do now.

use serde::Serialize;
use ts_rs::TS;

use crate::disk::BenchReport;
use crate::disk::estimate::best_random_reads;
use crate::disk::run::{LatencyQuantiles, StepJson};

const NS_PER_MS: f64 = 1e6;

/// Results of `disk bench` that are kept beside a history.
#[derive(Clone, Debug, Default)]
pub struct DiskTests {
    /// Those that can be used.
    pub kept: Vec<KeptDiskTest>,
    /// Why others cannot, a sentence each.
    pub problems: Vec<String>,
}

/// A result of `disk bench`.
#[derive(Clone, Debug)]
pub struct KeptDiskTest {
    /// The name of its file.
    pub file: String,
    /// The result.
    pub run: BenchReport,
}

/// What `disk bench` measured on a disk.
#[derive(Clone, Debug, PartialEq, Serialize, TS)]
pub struct DiskTestJson {
    /// The name of the file with its result, in the folder of the history.
    pub file: String,
    /// When it began, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// The most reads at random per second; null if it did not read at random.
    pub reads_per_second: Option<f64>,
    /// Requests in flight meanwhile.
    pub reads_in_flight: Option<u32>,
    /// Mean time of such a read, in milliseconds.
    pub read_ms: Option<f64>,
    /// The same with one request in flight.
    pub read_alone_ms: Option<f64>,
    /// The most writes per second; null if it did not write.
    pub writes_per_second: Option<f64>,
    /// Mean time of such a write, in milliseconds.
    pub write_ms: Option<f64>,
}

impl DiskTests {
    /// The latest test of the disk with this name; those of another host are those of other disks.
    pub(super) fn newest_of(&self, disk: &str, host: Option<&str>) -> Option<DiskTestJson> {
        let is_its = |one: &&KeptDiskTest| {
            let place = &one.run.place;
            let is_other_host = place.host.as_deref().zip(host).is_some_and(|(tested, own)| tested != own);
            let mut disks = place.device.iter().chain(&place.disks);
            !is_other_host && disks.any(|one| one == disk)
        };
        let newest = self.kept.iter().filter(is_its).max_by_key(|one| one.run.started_ns);
        newest.map(DiskTestJson::new)
    }
}

impl DiskTestJson {
    fn new(KeptDiskTest { file, run }: &KeptDiskTest) -> Self {
        let is_random = run.settings.access == "random";
        let record_bytes = u64::from(run.settings.rec_size_kb) << 10;
        let best = best_random_reads(run);
        let step = |in_flight: u32| run.steps.iter().find(|step| step.in_flight == in_flight);
        let read_time = |step: &StepJson| mean_ms(&step.reads.as_ref()?.latency_ns);
        let alone = run.probes.iter().find(|probe| {
            !probe.sequential && probe.in_flight == 1 && u64::from(probe.record_bytes) == record_bytes
        });
        let alone_in_ramp = || step(1).filter(|_| is_random && run.settings.r).and_then(read_time);
        let writes = run.steps.iter().filter_map(|step| {
            let writes = step.writes.as_ref()?;
            (step.seconds > 0.0).then(|| (writes.count as f64 / step.seconds, mean_ms(&writes.latency_ns)))
        });
        let writes = writes.max_by(|one, other| one.0.total_cmp(&other.0));
        Self {
            file: file.clone(),
            started_ns: run.started_ns,
            record_bytes,
            reads_per_second: best.map(|(_, rate)| rate),
            reads_in_flight: best.map(|(in_flight, _)| in_flight),
            read_ms: best.and_then(|(in_flight, _)| step(in_flight)).and_then(read_time),
            read_alone_ms: alone
                .filter(|_| run.settings.r)
                .and_then(|probe| mean_ms(&probe.latency_ns))
                .or_else(alone_in_ramp),
            writes_per_second: writes.map(|(rate, _)| rate),
            write_ms: writes.and_then(|(_, ms)| ms),
        }
    }
}

fn mean_ms(latency: &LatencyQuantiles) -> Option<f64> {
    latency.mean.map(|ns| ns as f64 / NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(file: &str, started_ns: u64) -> KeptDiskTest {
        let bytes = include_bytes!("../../../../../fixtures/disk-bench.json");
        let mut run = BenchReport::read(bytes).expect("a result");
        run.started_ns = started_ns;
        KeptDiskTest { file: file.to_owned(), run }
    }

    #[test]
    fn a_disk_has_the_latest_test_of_its_own_host() {
        let mut other = kept("other.json", 9);
        other.run.place.host = Some("db2".to_owned());
        let tests =
            DiskTests { kept: vec![kept("a.json", 5), kept("b.json", 7), other], problems: Vec::new() };
        let file = |disk: &str, host| tests.newest_of(disk, host).map(|one| one.file);
        assert_eq!(file("vda", Some("db1")).as_deref(), Some("b.json"));
        assert_eq!(file("vda", Some("db2")).as_deref(), Some("other.json"));
        assert_eq!(file("vda", None).as_deref(), Some("other.json"), "the host is not known");
        assert_eq!(file("sda", Some("db1")), None);
        let mut below = kept("below.json", 1);
        (below.run.place.device, below.run.place.disks) = (Some("dm-0".into()), vec!["sdb".into()]);
        let tests = DiskTests { kept: vec![below], problems: Vec::new() };
        assert!(tests.newest_of("sdb", None).is_some() && tests.newest_of("dm-0", None).is_some());
    }

    #[test]
    fn a_test_says_how_fast_the_disk_reads_alone_and_at_its_best() {
        let test = DiskTestJson::new(&kept("a.json", 5));
        assert_eq!(test.record_bytes, 4_096);
        assert_eq!(test.read_alone_ms, Some(0.031_520), "the probe");
        let best = test.reads_per_second.zip(test.read_ms);
        assert!(best.is_some_and(|(rate, ms)| rate > 30_000.0 && ms > 0.0), "{test:?}");
        assert_eq!((test.writes_per_second, test.write_ms), (None, None), "it only read");
    }
}
