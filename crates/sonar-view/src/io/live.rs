//! Files as `top` shows processes: one interval, as a table or as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::{Value, json};
use sonar_core::io::{IoLosses, Usage};

use super::{SCHEMA, percent, score};
use crate::disk::run::DeviceRates;
use crate::text::{escape, fit};
use crate::units::{Count, Nanos, or_unknown};

/// One row: a file, or the files of a namespace together.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What was done in the interval.
    pub usage: Usage,
    /// Bytes read for each byte of the file that was touched, since counting began: an estimate.
    pub amplification: Option<f64>,
}

impl Row {
    /// Of a file, from its figures up to now and up to the interval's beginning.
    pub fn new(name: String, now: &Usage, before: Option<&Usage>) -> Self {
        let usage = before.map_or_else(|| now.clone(), |before| now.since(before));
        Self { name, usage, amplification: amplification(std::slice::from_ref(now)) }
    }
}

/// Bytes read for each byte touched, of files together: at least a block of 4 KiB is touched by each place
/// at which a read began, and as much as a read is long on average.
pub fn amplification(files: &[Usage]) -> Option<f64> {
    let (mut read, mut touched) = (0.0, 0.0);
    for usage in files.iter().filter(|usage| usage.reads > 0 && usage.read_bytes > 0) {
        let bytes = usage.read_bytes as f64;
        read += bytes;
        touched += usage.blocks().max(1.0) * (bytes / usage.reads as f64).max(4096.0);
    }
    // Where reads are shorter than a block, fewer bytes were read than blocks were touched.
    (touched > 0.0).then(|| (read / touched).max(1.0))
}

/// An interval.
#[derive(Debug)]
pub struct Interval {
    /// Its end, nanoseconds since 1970.
    pub end_ns: u64,
    /// Its length, seconds.
    pub seconds: f64,
    /// The rows, in no order.
    pub rows: Vec<Row>,
    /// The devices below the files.
    pub devices: Vec<DeviceRates>,
    /// What was lost since counting began.
    pub losses: IoLosses,
}

impl Interval {
    /// Rows by the time that was spent in them, the most first; idle ones last.
    fn ranked(&self) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|a, b| {
            let weight = |row: &Row| {
                let usage = &row.usage;
                (usage.read_ns + usage.write_ns + usage.sync_ns, usage.reads + usage.writes)
            };
            weight(b).cmp(&weight(a)).then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    /// The lines of the table, each at most `width` columns, at most `limit` rows.
    pub fn lines(&self, limit: usize, width: usize) -> Vec<String> {
        let per_second = |count: u64| Count(count as f64 / self.seconds.max(1e-9));
        let rows = self.ranked();
        let busy = rows.iter().filter(|row| !row.usage.is_idle()).count();
        let mut total = Usage::default();
        rows.iter().for_each(|row| total.add(&row.usage));
        let mut lines = vec![format!(
            "{busy} of {} files busy; reads {}/s {}B/s, writes {}/s {}B/s, flushes {}/s{}",
            rows.len(),
            per_second(total.reads),
            per_second(total.read_bytes),
            per_second(total.writes),
            per_second(total.write_bytes),
            per_second(total.syncs),
            match self.losses.total() {
                0 => String::new(),
                lost => format!("; LOST {lost}"),
            }
        )];
        for device in &self.devices {
            lines.push(format!(
                "{}: {}/s {}B/s read in {:.2} ms, {}/s {}B/s written, {:.1} in flight, {:.0} % busy",
                escape(&device.device),
                Count(device.r),
                Count(device.rkb * 1024.0),
                device.r_await,
                Count(device.w),
                Count(device.wkb * 1024.0),
                device.aqu,
                device.util,
            ));
        }
        lines.push(String::new());
        lines.push(
            "    r/s   rB/s    p50    p99    max cached   seq   rnd amplif dev/B    w/s   wB/s    f/s  file"
                .to_string(),
        );
        for row in rows.iter().take(limit).filter(|row| !row.usage.is_idle()) {
            let usage = &row.usage;
            let latency = usage.histogram();
            let mut line = String::new();
            let _ = write!(
                line,
                "{:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>5} {:>5} {:>6} {:>5} {:>6} {:>6} {:>6}  ",
                per_second(usage.reads),
                per_second(usage.read_bytes),
                or_unknown(latency.quantile_ns(0.5).map(Nanos)),
                or_unknown(latency.quantile_ns(0.99).map(Nanos)),
                or_unknown(latency.max_ns().map(Nanos)),
                percent(usage.cached_share()),
                percent(usage.sequential_share()),
                score(usage.randomness()),
                score(row.amplification),
                score(usage.device_per_byte()),
                per_second(usage.writes),
                per_second(usage.write_bytes),
                per_second(usage.syncs),
            );
            line.push_str(&row.name);
            lines.push(line);
        }
        lines.iter().map(|line| fit(line, width)).collect()
    }

    /// As one line of JSON; what is not known is null.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, limit: usize, out: impl Write) -> io::Result<()> {
        let files: Vec<_> = self
            .ranked()
            .into_iter()
            .take(limit)
            .filter(|row| !row.usage.is_idle())
            .map(|row| {
                let usage = &row.usage;
                let latency = usage.histogram();
                json!({
                    "name": row.name,
                    "reads": usage.reads,
                    "read_bytes": usage.read_bytes,
                    "read_ns": usage.read_ns,
                    "latency_ns": {
                        "p50": latency.quantile_ns(0.5), "p90": latency.quantile_ns(0.9),
                        "p99": latency.quantile_ns(0.99), "max": latency.max_ns(),
                    },
                    "cached_share": usage.cached_share(),
                    "sequential_share": usage.sequential_share(),
                    "randomness": usage.randomness(),
                    "contiguous": usage.contiguous,
                    "skips": usage.near,
                    "jumps": usage.jumps,
                    "back": usage.back,
                    "amplification": row.amplification,
                    "device_bytes_per_byte": usage.device_per_byte(),
                    "faults": usage.faults,
                    "errors": usage.errors,
                    "writes": usage.writes,
                    "write_bytes": usage.write_bytes,
                    "write_ns": usage.write_ns,
                    "syncs": usage.syncs,
                    "sync_ns": usage.sync_ns,
                })
            })
            .collect();
        let lost: serde_json::Map<_, _> =
            self.losses.iter().map(|(_, name, count)| (name.to_string(), Value::from(count))).collect();
        let value = json!({
            "schema": SCHEMA,
            "kind": "io_live",
            "end_ns": self.end_ns,
            "seconds": self.seconds,
            "files": files,
            "devices": self.devices,
            "lost": lost,
        });
        crate::json::line(&value, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(reads: u64, jumps: u64) -> Usage {
        let mut usage = Usage {
            reads,
            read_bytes: reads * 8_192,
            read_ns: reads * 1_000,
            known: reads,
            cached: reads / 2,
            known_bytes: reads * 8_192,
            device_bytes: reads * 4_096,
            contiguous: reads - jumps,
            jumps,
            ..Usage::default()
        };
        usage.latency[70] = reads as u32;
        usage.places = [1; 256];
        usage
    }

    #[test]
    fn the_busiest_stands_first_and_idle_files_are_left_out() {
        let before = usage(100, 0);
        let interval = Interval {
            end_ns: 1,
            seconds: 2.0,
            rows: vec![
                Row::new("idle.wt".into(), &before, Some(&before)),
                Row::new("little.wt".into(), &usage(110, 10), Some(&before)),
                Row::new("much\u{1b}.wt".into(), &usage(4_000, 3_000), None),
            ],
            devices: Vec::new(),
            losses: IoLosses { ring_full: 2, ..IoLosses::default() },
        };
        let lines = interval.lines(10, 200);
        assert!(
            lines[0].starts_with("2 of 3 files busy; reads ") && lines[0].ends_with("LOST 2"),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines[3].contains("much") && !lines[3].contains('\u{1b}'), "{lines:?}");
        assert!(lines[3].contains("0.75") && lines[4].contains("little"), "{lines:?}");
        let mut out = Vec::new();
        interval.json(1, &mut out).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["files"].as_array().unwrap().len(), 1);
        assert_eq!(value["files"][0]["randomness"], 0.75);
        assert_eq!(value["files"][0]["cached_share"], 0.5);
        assert_eq!(value["lost"]["ring_full"], 2);
    }
}
