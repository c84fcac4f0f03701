//! What was done to files, as series.

use sonar_core::files::{AccessKind, FileUsage, IoAccess};
use sonar_core::history::metrics::{self, SeriesMetric};
use sonar_core::observation::WindowCutter;
use sonar_core::{Endpoint, Timestamp};

/// What was done to a file within a window.
#[derive(Copy, Clone, Default)]
pub struct FileWork {
    pub reads: u64,
    pub read_bytes: u64,
    pub read_ns: u64,
    pub device_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub write_ns: u64,
}

impl FileWork {
    /// What the kernel has added up.
    pub fn of(usage: &FileUsage) -> Self {
        Self {
            reads: usage.reads,
            read_bytes: usage.read_bytes,
            read_ns: usage.read_ns,
            device_bytes: usage.device_bytes,
            writes: usage.writes,
            written_bytes: usage.write_bytes,
            write_ns: usage.write_ns,
        }
    }

    /// Adds an access.
    pub fn add(&mut self, access: &IoAccess) {
        if access.kind.is_read() {
            self.reads += 1;
            self.read_bytes = self.read_bytes.saturating_add(access.given);
            self.read_ns = self.read_ns.saturating_add(access.latency_ns);
            self.device_bytes = self.device_bytes.saturating_add(access.device_bytes.unwrap_or(0));
        } else if access.kind == AccessKind::Write {
            self.writes += 1;
            self.written_bytes = self.written_bytes.saturating_add(access.given);
            self.write_ns = self.write_ns.saturating_add(access.latency_ns);
        }
    }
}

/// The time in which work was done.
#[derive(Copy, Clone)]
pub struct WorkTime {
    /// Its end.
    pub at: Timestamp,
    /// Its length.
    pub seconds: f64,
}

impl WorkTime {
    /// Adds what was done to a file in this time to the window of its end.
    pub fn add(self, windows: &mut WindowCutter, server: Endpoint, path: &str, work: &FileWork) {
        let Self { at, seconds } = self;
        let window = &mut windows.at(at).window;
        let mut rate = |metric: SeriesMetric, count: u64| {
            window.sample(&metric.key(server, path), at, count as f64 / seconds, seconds);
        };
        if work.reads > 0 {
            rate(metrics::FILE_READS, work.reads);
            rate(metrics::FILE_READ_BYTES, work.read_bytes);
            rate(metrics::FILE_DEVICE_READ_BYTES, work.device_bytes);
        }
        if work.writes > 0 {
            rate(metrics::FILE_WRITES, work.writes);
            rate(metrics::FILE_WRITTEN_BYTES, work.written_bytes);
        }
        // The mean time of an access speaks for as many of them, not for seconds.
        let mut mean = |metric: SeriesMetric, (ns, count): (u64, u64)| {
            if count > 0 {
                let value = ns as f64 / 1e6 / count as f64;
                window.sample(&metric.key(server, path), at, value, count as f64);
            }
        };
        mean(metrics::FILE_READ_TIME, (work.read_ns, work.reads));
        mean(metrics::FILE_WRITE_TIME, (work.write_ns, work.writes));
    }
}
