//! What was read of files and written to them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;
use sonar_core::Endpoint;
use sonar_core::files::FileRole;
use sonar_core::history::{CollectorKind, HistoryWindow, SeriesSubject, SeriesValue, metrics};
use sonar_core::time::NS_PER_S;
use ts_rs::TS;

use crate::kit::server_address;
use crate::past::bounded_sums::{BoundedSum, BoundedSums};
use crate::timeline::TimeAxis;

/// The most files that are shown by name; all others are added up.
const MAX_SHOWN: usize = 50;
const NS_PER_MS: f64 = 1e6;

/// A file over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StorageFileJson {
    /// Its path; null for all others.
    pub name: Option<String>,
    /// The port of its server; null if it is of none.
    pub server: Option<u16>,
    /// The address of its server with the port, if the port alone is not its name; else missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub address: Option<String>,
    /// What it holds, by its name: `collection`, `index`, `journal` …; empty if that does not say it.
    pub role: &'static str,
    /// What was done to it.
    pub usage: FileUseJson,
    /// The same of the time before; null if that is not known.
    pub before: Option<FileUseJson>,
    /// How many reads and writes of it were in progress at once, on average, in each part of the axis; null where files were
    /// not observed.
    pub values: Vec<Option<f64>>,
}

/// Files that hold the same over time.
#[derive(Clone, Debug, Serialize, TS)]
pub struct FileRoleLaneJson {
    /// What they hold; empty for files whose names do not say it.
    pub role: &'static str,
    /// How many reads and writes were in progress at once, on average.
    pub at_once: f64,
    /// The same in each part of the axis; null where files were not observed.
    pub values: Vec<Option<f64>>,
}

/// What was done to a file, by the time that files were observed.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, TS)]
pub struct FileUseJson {
    /// Reads per second.
    pub reads_per_second: f64,
    /// Bytes that they returned, per second.
    pub read_bytes_per_second: f64,
    /// Bytes of the file that were read from the device, per second. Without reading ahead, the rest was in the page cache.
    pub device_bytes_per_second: f64,
    /// Mean time of a read, in milliseconds; null if there was none.
    pub read_ms: Option<f64>,
    /// Writes per second.
    pub writes_per_second: f64,
    /// Bytes that they wrote, per second.
    pub written_bytes_per_second: f64,
    /// Mean time of a write, in milliseconds; null if there was none.
    pub write_ms: Option<f64>,
    /// How many reads and writes were in progress at once, on average.
    pub at_once: f64,
}

/// What was done to a file, in all.
#[derive(Copy, Clone, Default, Debug)]
struct FileUseSum {
    reads: f64,
    read_bytes: f64,
    device_bytes: f64,
    read_ms: f64,
    writes: f64,
    written_bytes: f64,
    write_ms: f64,
}

impl FileUseSum {
    /// Adds the value of a metric: the sum of all that it speaks for.
    fn take(&mut self, metric: &str, value: &SeriesValue) {
        let sums = [
            (metrics::FILE_READS, &mut self.reads),
            (metrics::FILE_READ_BYTES, &mut self.read_bytes),
            (metrics::FILE_DEVICE_READ_BYTES, &mut self.device_bytes),
            // The mean time of an access speaks for as many of them.
            (metrics::FILE_READ_TIME, &mut self.read_ms),
            (metrics::FILE_WRITES, &mut self.writes),
            (metrics::FILE_WRITTEN_BYTES, &mut self.written_bytes),
            (metrics::FILE_WRITE_TIME, &mut self.write_ms),
        ];
        if let Some((_, sum)) = sums.into_iter().find(|(one, _)| one.name == metric) {
            *sum += value.weighted;
        }
    }

    fn add(&mut self, other: &Self) {
        let Self { reads, read_bytes, device_bytes, read_ms, writes, written_bytes, write_ms } = *other;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.device_bytes += device_bytes;
        self.read_ms += read_ms;
        self.writes += writes;
        self.written_bytes += written_bytes;
        self.write_ms += write_ms;
    }

    /// How long reads and writes took together, in nanoseconds.
    fn busy_ns(&self) -> f64 {
        (self.read_ms + self.write_ms) * NS_PER_MS
    }
}

impl FileUseJson {
    /// In so many nanoseconds, more than none.
    fn new(sum: &FileUseSum, observed_ns: u64) -> Self {
        let seconds = observed_ns.max(1) as f64 / NS_PER_S as f64;
        let mean = |ms: f64, count: f64| (count > 0.0).then(|| ms / count);
        Self {
            reads_per_second: sum.reads / seconds,
            read_bytes_per_second: sum.read_bytes / seconds,
            device_bytes_per_second: sum.device_bytes / seconds,
            read_ms: mean(sum.read_ms, sum.reads),
            writes_per_second: sum.writes / seconds,
            written_bytes_per_second: sum.written_bytes / seconds,
            write_ms: mean(sum.write_ms, sum.writes),
            at_once: sum.busy_ns() / observed_ns.max(1) as f64,
        }
    }
}

/// What was done to a file, in all and in each part of the axis.
#[derive(Default)]
struct FileSum {
    whole: FileUseSum,
    /// How long reads and writes took, in nanoseconds.
    busy_ns: BTreeMap<usize, f64>,
}

impl FileSum {
    /// Adds what was done in a window, which counts in each of these places.
    fn add(&mut self, work: &FileUseSum, places: RangeInclusive<usize>) {
        self.whole.add(work);
        places.for_each(|at| *self.busy_ns.entry(at).or_default() += work.busy_ns());
    }

    fn values(&self, observed_ns: &[u64]) -> Vec<Option<f64>> {
        let of = |(at, observed): (usize, &u64)| {
            (*observed > 0).then(|| self.busy_ns.get(&at).copied().unwrap_or(0.0) / *observed as f64)
        };
        observed_ns.iter().enumerate().map(of).collect()
    }
}

impl BoundedSum for FileSum {
    fn join(&mut self, other: Self) {
        self.whole.add(&other.whole);
        other.busy_ns.into_iter().for_each(|(at, ns)| *self.busy_ns.entry(at).or_default() += ns);
    }

    fn size(&self) -> u64 {
        self.whole.busy_ns() as u64
    }
}

/// Sums of the files of all windows.
pub(super) struct FileSums {
    axis: TimeAxis,
    observed_ns: Vec<u64>,
    all_observed_ns: u64,
    files: BoundedSums<(Endpoint, Box<str>), FileSum>,
    roles: BTreeMap<&'static str, FileSum>,
}

impl FileSums {
    pub fn new(axis: TimeAxis) -> Self {
        Self {
            axis,
            observed_ns: vec![0; axis.parts],
            all_observed_ns: 0,
            files: BoundedSums::default(),
            roles: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, window: &HistoryWindow) {
        let Some(places) = self.axis.places(window) else { return };
        let observed_ns = window.observed_ns(CollectorKind::Files);
        self.all_observed_ns += observed_ns;
        places.clone().for_each(|at| self.observed_ns[at] += observed_ns);
        for ((server, name), work) in in_window(window) {
            self.roles.entry(FileRole::of(name).name()).or_default().add(&work, places.clone());
            self.files.of(Some((server, name.into()))).add(&work, places.clone());
        }
    }

    /// Files and what they hold, with what was done to files in the time before.
    pub fn finish(self, before: Option<&HistoryWindow>) -> (Vec<StorageFileJson>, Vec<FileRoleLaneJson>) {
        let Self { observed_ns, all_observed_ns, files, roles, .. } = self;
        let before = before.map(|window| (in_window(window), window.observed_ns(CollectorKind::Files)));
        let before = before.filter(|(_, observed_ns)| *observed_ns > 0);
        let use_before = |server: Endpoint, name: &str| {
            let (files, observed_ns) = before.as_ref()?;
            let sum = files.get(&(server, name)).copied().unwrap_or_default();
            Some(FileUseJson::new(&sum, *observed_ns))
        };
        let files = files.largest(MAX_SHOWN).into_iter().map(|(key, sum)| {
            let (server, name) = key.unzip();
            let server = server.unwrap_or_default();
            StorageFileJson {
                server: (server.port != 0).then_some(server.port),
                address: server_address(server),
                role: name.as_deref().map_or("", |name| FileRole::of(name).name()),
                usage: FileUseJson::new(&sum.whole, all_observed_ns),
                before: name.as_deref().and_then(|name| use_before(server, name)),
                values: sum.values(&observed_ns),
                name: name.map(String::from),
            }
        });
        let roles = roles.into_iter().map(|(role, sum)| FileRoleLaneJson {
            role,
            at_once: sum.whole.busy_ns() / all_observed_ns.max(1) as f64,
            values: sum.values(&observed_ns),
        });
        let mut roles: Vec<_> = roles.collect();
        roles.sort_by_key(|lane| Reverse((lane.at_once * NS_PER_S as f64) as u64));
        (files.collect(), roles)
    }
}

/// What was done to each file in a window.
fn in_window(window: &HistoryWindow) -> BTreeMap<(Endpoint, &str), FileUseSum> {
    let mut files: BTreeMap<(Endpoint, &str), FileUseSum> = BTreeMap::new();
    for (key, value) in window.series.iter().filter(|(key, _)| key.subject == SeriesSubject::File) {
        files.entry((key.server, &key.name)).or_default().take(&key.metric, value);
    }
    files
}
