//! Files as `top` shows processes: one interval, as a table or as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::{Value, json};
use sonar_core::files::{IoLosses, Usage};

use super::{SCHEMA, percent, score};
use crate::disk::run::DeviceRates;
use crate::kit::{Count, Nanos, escape, fit, or_unknown, width};

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
    /// What a row stands for: `files` or `namespaces`.
    pub what: &'static str,
    /// The devices below the files.
    pub devices: Vec<DeviceRates>,
    /// What was lost since counting began.
    pub losses: IoLosses,
}

/// Columns that a name gets before others have to go for it.
const MOST_FOR_NAME: usize = 40;

struct Column {
    title: &'static str,
    /// Those with the highest number go first where there is no room for all.
    spare: u8,
    value: fn(&Row, f64) -> String,
}

/// A column, its importance, and its figure of a row in so many seconds.
macro_rules! column {
    ($title:literal, $spare:literal, |$usage:ident, $seconds:ident, $row:ident| $value:expr) => {
        Column {
            title: $title,
            spare: $spare,
            value: |$row, $seconds| {
                let $usage = &$row.usage;
                let _ = ($usage, $seconds);
                $value.to_string()
            },
        }
    };
}

/// The columns for which there is room, at least the first.
fn columns(room: usize) -> Vec<Column> {
    let mut columns = vec![
        column!("r/s", 0, |usage, seconds, row| Count(usage.reads as f64 / seconds)),
        column!("rB/s", 3, |usage, seconds, row| Count(usage.read_bytes as f64 / seconds)),
        column!("p50", 8, |usage, s, row| or_unknown(usage.histogram().quantile_ns(0.5).map(Nanos))),
        column!("p99", 1, |usage, s, row| or_unknown(usage.histogram().quantile_ns(0.99).map(Nanos))),
        column!("max", 12, |usage, s, row| or_unknown(usage.histogram().max_ns().map(Nanos))),
        column!("cached", 4, |usage, s, row| percent(usage.cached_share())),
        column!("seq", 9, |usage, s, row| percent(usage.sequential_share())),
        column!("random", 2, |usage, s, row| score(usage.randomness())),
        column!("amplif", 6, |usage, s, row| score(row.amplification)),
        column!("dev/B", 10, |usage, s, row| score(usage.device_per_byte())),
        column!("w/s", 5, |usage, seconds, row| Count(usage.writes as f64 / seconds)),
        column!("wB/s", 7, |usage, seconds, row| Count(usage.write_bytes as f64 / seconds)),
        column!("f/s", 11, |usage, seconds, row| Count(usage.syncs as f64 / seconds)),
    ];
    while columns.len() > 1 && columns.len() * 7 > room {
        let most = columns.iter().map(|column| column.spare).max();
        columns.retain(|column| Some(column.spare) != most);
    }
    columns
}

/// The folder that all paths lie in, with its last slash; empty where one of the names is no path.
fn common_folder<'a>(mut names: impl Iterator<Item = &'a str>) -> &'a str {
    let Some(first) = names.next().filter(|name| name.starts_with('/')) else { return "" };
    let mut folder = &first[..first.rfind('/').map_or(0, |at| at + 1)];
    for name in names {
        while !name.starts_with(folder) {
            let above = folder.trim_end_matches('/');
            folder = &first[..above.rfind('/').map_or(0, |at| at + 1)];
        }
    }
    folder
}

/// A name in so many columns: of a file's name the end, which distinguishes it from others.
fn shortened(name: &str, room: usize) -> String {
    if width(name) <= room || !name.ends_with(".wt") || room < 2 {
        return fit(name, room);
    }
    let mut start = name.len();
    for (at, _) in name.char_indices().rev() {
        if width(&name[at..]) > room - 1 {
            break;
        }
        start = at;
    }
    format!("…{}", &name[start..])
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

    /// The lines of the table, each at most `room` columns, at most `limit` rows.
    pub fn lines(&self, limit: usize, room: usize) -> Vec<String> {
        let per_second = |count: u64| Count(count as f64 / self.seconds.max(1e-9));
        let rows = self.ranked();
        let busy = rows.iter().filter(|row| !row.usage.is_idle()).count();
        let mut total = Usage::default();
        rows.iter().for_each(|row| total.add(&row.usage));
        let mut lines = vec![format!(
            "{busy} of {} {} busy; reads {}/s {}B/s, writes {}/s {}B/s, flushes {}/s{}",
            rows.len(),
            self.what,
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
        let shown: Vec<_> = rows.iter().take(limit).filter(|row| !row.usage.is_idle()).collect();
        let folder = common_folder(shown.iter().map(|row| row.name.as_str()));
        let named = |row: &Row| escape(row.name.get(folder.len()..).unwrap_or(&row.name)).into_owned();
        let longest = shown.iter().map(|row| width(&named(row))).max().unwrap_or(0);
        let shown_columns = columns(room.saturating_sub(longest.min(MOST_FOR_NAME) + 2));
        let mut heading = String::new();
        shown_columns.iter().for_each(|column| {
            let _ = write!(heading, "{:>7}", column.title);
        });
        let what = self.what.strip_suffix('s').unwrap_or(self.what);
        match folder {
            "" => lines.push(format!("{heading}  {what}")),
            folder => lines.push(format!("{heading}  {what} in {}", escape(folder))),
        }
        for row in shown {
            let mut line = String::new();
            for column in &shown_columns {
                let _ = write!(line, "{:>7}", (column.value)(row, self.seconds.max(1e-9)));
            }
            line.push_str("  ");
            let room = room.saturating_sub(width(&line));
            line.push_str(&shortened(&named(row), room));
            lines.push(line);
        }
        lines.iter().map(|line| fit(line, room)).collect()
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
        crate::kit::json::line(&value, out)
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
    fn a_name_is_seen_on_every_screen() {
        let row = |name: &str| Row::new(name.into(), &usage(100, 3), None);
        let mut interval = Interval {
            end_ns: 1,
            seconds: 1.0,
            rows: vec![
                row("/data/db/shop/collection-7-4596081763205983475.wt"),
                row("/data/db/index-8-4596081763205983475.wt"),
            ],
            what: "files",
            devices: Vec::new(),
            losses: IoLosses::default(),
        };
        for (room, columns) in [(200, 13), (120, 11), (80, 5), (44, 1), (20, 1)] {
            let lines = interval.lines(10, room);
            assert!(lines.iter().all(|line| width(line) <= room), "{lines:?}");
            let heading: Vec<_> = lines[2].split_whitespace().take_while(|title| *title != "file").collect();
            assert_eq!(heading.len(), columns, "{lines:?}");
            if room >= 80 {
                assert!(lines[2].ends_with("file in /data/db/"), "{lines:?}");
                assert!(
                    lines.iter().any(|line| line.ends_with("  index-8-4596081763205983475.wt")),
                    "{lines:?}"
                );
            }
            // Its end distinguishes a file from another.
            assert!(lines[3].ends_with("3475.wt") && lines[4].ends_with("3475.wt"), "{lines:?}");
        }
        // What the server calls it is no path, and is not cut at its beginning.
        interval.rows = vec![row("shop.orders index {customer: 1}"), row("/data/db/collection-1-2.wt")];
        let lines = interval.lines(10, 200);
        assert!(lines[2].ends_with("  file"), "{lines:?}");
        assert!(lines.iter().any(|line| line.ends_with("  /data/db/collection-1-2.wt")), "{lines:?}");
    }

    #[test]
    fn folders_are_shared_whole() {
        let of = |names: &[&'static str]| common_folder(names.iter().copied());
        assert_eq!(of(&["/a/bc/x", "/a/bd/y"]), "/a/");
        assert_eq!(of(&["/a/b", "/c"]), "/");
        assert_eq!(
            (of(&["/a/b"]), of(&["x", "/a"]), of(&["/a", "x"]), of(&[])),
            ("/a/".trim_end_matches('x'), "", "", "")
        );
        assert_eq!(shortened("é€collection-1.wt", 9), "…ion-1.wt");
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
            what: "files",
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
