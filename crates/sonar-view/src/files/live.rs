//! `io live`: files as `top` shows processes, one interval as text or as JSON.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::files::{FileUsage, IoLosses};

use super::SCHEMA;
use crate::disk::run::DeviceRates;
use crate::kit::json::NamedCounts;
use crate::kit::{
    Bytes, Count, Fitting, Grouped, Heading, Nanos, Percent, Ratio, TextTable, escape, or_unknown,
};

/// One row: a file, or the files of a namespace together.
#[derive(Clone, Debug)]
pub struct ActiveFile {
    /// Its name.
    pub name: String,
    /// What was done in the interval.
    pub usage: FileUsage,
    /// Bytes read for each byte of the file that was touched, since counting began: an estimate.
    pub amplification: Option<f64>,
}

impl ActiveFile {
    /// A file, from its figures up to now and up to the start of the interval.
    pub fn new(name: String, now: &FileUsage, before: Option<&FileUsage>) -> Self {
        let usage = before.map_or_else(|| now.clone(), |before| now.since(before));
        Self { name, usage, amplification: amplification(std::slice::from_ref(now)) }
    }
}

/// Bytes read for each byte touched, of files together: each place at which a read began touches at least a block of
/// 4 KiB, and as much as the average read.
pub fn amplification(files: &[FileUsage]) -> Option<f64> {
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
pub struct FileInterval {
    /// Its end, nanoseconds since 1970.
    pub end_ns: u64,
    /// Its length, seconds.
    pub seconds: f64,
    /// The rows, in no order.
    pub rows: Vec<ActiveFile>,
    /// What a row stands for: `files` or `namespaces`.
    pub what: &'static str,
    /// The devices below the files.
    pub devices: Vec<DeviceRates>,
    /// What was lost since counting began.
    pub losses: IoLosses,
}

/// Columns that a name gets before other columns give way.
const MOST_FOR_NAME: usize = 40;

/// The figures of a row, equally wide in each interval.
const FIGURES: [Heading; 13] = [
    Heading::figure("r/s", 0).wide(6),
    Heading::figure("rB/s", 3).wide(6),
    Heading::figure("p50", 8).wide(6),
    Heading::figure("p99", 1).wide(6),
    Heading::figure("max", 12).wide(6),
    Heading::figure("cached", 4).wide(6),
    Heading::figure("seq", 9).wide(6),
    Heading::figure("random", 2).wide(6),
    Heading::figure("amplif", 6).wide(6),
    Heading::figure("dev/B", 10).wide(6),
    Heading::figure("w/s", 5).wide(6),
    Heading::figure("wB/s", 7).wide(6),
    Heading::figure("f/s", 11).wide(6),
];

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

impl FileInterval {
    /// Rows by the time that was spent in them, the most first; idle ones last.
    fn ranked(&self) -> Vec<&ActiveFile> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|a, b| {
            let weight = |row: &ActiveFile| {
                let usage = &row.usage;
                (usage.read_ns + usage.write_ns + usage.sync_ns, usage.reads + usage.writes)
            };
            weight(b).cmp(&weight(a)).then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    /// The cells below [`FIGURES`].
    fn figures(&self, row: &ActiveFile) -> [String; 13] {
        let (usage, latency) = (&row.usage, row.usage.histogram());
        let rate = |count: u64| self.per_second(count).to_string();
        [
            rate(usage.reads),
            rate(usage.read_bytes),
            or_unknown(latency.quantile_ns(0.5).map(Nanos)),
            or_unknown(latency.quantile_ns(0.99).map(Nanos)),
            or_unknown(latency.max_ns().map(Nanos)),
            or_unknown(usage.cached_share().map(Percent)),
            or_unknown(usage.sequential_share().map(Percent)),
            or_unknown(usage.randomness().map(Ratio)),
            or_unknown(row.amplification.map(Ratio)),
            or_unknown(usage.device_per_byte().map(Ratio)),
            rate(usage.writes),
            rate(usage.write_bytes),
            rate(usage.syncs),
        ]
    }

    /// What was lost since the start, to be added to the totals.
    fn lost(&self) -> String {
        let each = |(what, count): (&str, u64)| format!("{what}: {}", Grouped(count));
        let lost: Vec<_> = self.losses.in_words().map(each).collect();
        if lost.is_empty() { String::new() } else { format!("; LOST: {}", lost.join(", ")) }
    }

    fn per_second(&self, count: u64) -> Count {
        Count(count as f64 / self.seconds.max(1e-9))
    }

    /// Writes totals, devices and at most `limit` rows.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, limit: usize, out: &mut Fitting<W>) -> io::Result<()> {
        let rows = self.ranked();
        let busy = rows.iter().filter(|row| !row.usage.is_idle()).count();
        let mut total = FileUsage::default();
        rows.iter().for_each(|row| total.add(&row.usage));
        writeln!(
            out,
            "{busy} of {} {} busy; reads {}/s {}B/s, writes {}/s {}B/s, flushes {}/s{}",
            rows.len(),
            self.what,
            self.per_second(total.reads),
            self.per_second(total.read_bytes),
            self.per_second(total.writes),
            self.per_second(total.write_bytes),
            self.per_second(total.syncs),
            self.lost(),
        )?;
        for device in &self.devices {
            writeln!(
                out,
                "{}: {}/s {}/s read in {:.2} ms, {}/s {}/s written, {:.1} in flight, {} busy",
                escape(&device.device),
                Count(device.r),
                Bytes(device.rkb * 1024.0),
                device.r_await,
                Count(device.w),
                Bytes(device.wkb * 1024.0),
                device.aqu,
                Percent(device.util / 100.0),
            )?;
        }
        writeln!(out)?;
        let shown: Vec<_> = rows.iter().take(limit).filter(|row| !row.usage.is_idle()).collect();
        let folder = common_folder(shown.iter().map(|row| row.name.as_str()));
        let what = self.what.strip_suffix('s').unwrap_or(self.what);
        let (heading, title) = match folder {
            "" => (Heading::text("", 0, MOST_FOR_NAME), what.to_owned()),
            folder => (Heading::path("", 0, MOST_FOR_NAME), format!("{what} in {}", escape(folder))),
        };
        let mut table = TextTable::new(&[&FIGURES[..], &[heading]].concat()).titled("", title);
        for row in shown {
            let name = row.name.get(folder.len()..).unwrap_or(&row.name).to_owned();
            table.row(self.figures(row).into_iter().chain([name]));
        }
        let laid = table.lay(out.width());
        std::iter::once(&laid.head).chain(&laid.rows).try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()
    }

    /// As one line of JSON; what is not known is null.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, limit: usize, out: impl Write) -> io::Result<()> {
        let rows = self.ranked();
        let files = rows.iter().take(limit).filter(|row| !row.usage.is_idle());
        let document = IoLiveDocument {
            schema: SCHEMA,
            kind: "io_live",
            end_ns: self.end_ns,
            seconds: self.seconds,
            files: files.map(|row| ActiveFileJson::new(row)).collect(),
            devices: &self.devices,
            lost: self.losses.iter().map(|(_, name, count)| (name, count)).collect(),
        };
        crate::kit::json::line(&document, out)
    }
}

#[derive(Serialize)]
struct IoLiveDocument<'a> {
    schema: u32,
    kind: &'static str,
    end_ns: u64,
    seconds: f64,
    files: Vec<ActiveFileJson<'a>>,
    devices: &'a [DeviceRates],
    lost: NamedCounts,
}

#[derive(Serialize)]
struct ActiveFileJson<'a> {
    name: &'a str,
    reads: u64,
    read_bytes: u64,
    read_ns: u64,
    latency_ns: ReadLatencyJson,
    cached_share: Option<f64>,
    sequential_share: Option<f64>,
    randomness: Option<f64>,
    contiguous: u64,
    skips: u64,
    jumps: u64,
    back: u64,
    amplification: Option<f64>,
    device_bytes_per_byte: Option<f64>,
    faults: u64,
    errors: u64,
    writes: u64,
    write_bytes: u64,
    write_ns: u64,
    syncs: u64,
    sync_ns: u64,
}

#[derive(Serialize)]
struct ReadLatencyJson {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

impl<'a> ActiveFileJson<'a> {
    fn new(row: &'a ActiveFile) -> Self {
        let (usage, latency) = (&row.usage, row.usage.histogram());
        Self {
            name: &row.name,
            reads: usage.reads,
            read_bytes: usage.read_bytes,
            read_ns: usage.read_ns,
            latency_ns: ReadLatencyJson {
                p50: latency.quantile_ns(0.5),
                p90: latency.quantile_ns(0.9),
                p99: latency.quantile_ns(0.99),
                max: latency.max_ns(),
            },
            cached_share: usage.cached_share(),
            sequential_share: usage.sequential_share(),
            randomness: usage.randomness(),
            contiguous: usage.contiguous,
            skips: usage.near,
            jumps: usage.jumps,
            back: usage.back,
            amplification: row.amplification,
            device_bytes_per_byte: usage.device_per_byte(),
            faults: usage.faults,
            errors: usage.errors,
            writes: usage.writes,
            write_bytes: usage.write_bytes,
            write_ns: usage.write_ns,
            syncs: usage.syncs,
            sync_ns: usage.sync_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::kit::width;

    fn usage(reads: u64, jumps: u64) -> FileUsage {
        let mut usage = FileUsage {
            reads,
            read_bytes: reads * 8_192,
            read_ns: reads * 1_000,
            known: reads,
            cached: reads / 2,
            known_bytes: reads * 8_192,
            device_bytes: reads * 4_096,
            contiguous: reads - jumps,
            jumps,
            ..FileUsage::default()
        };
        usage.latency[70] = reads as u32;
        usage.places = [1; 256];
        usage
    }

    fn lines(interval: &FileInterval, room: usize) -> Vec<String> {
        let mut out = Vec::new();
        interval.text(10, &mut Fitting::new(&mut out, Some(room))).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_name_is_seen_on_every_screen() {
        let row = |name: &str| ActiveFile::new(name.into(), &usage(100, 3), None);
        let mut interval = FileInterval {
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
            let lines = lines(&interval, room);
            assert!(lines.iter().all(|line| width(line) <= room), "{lines:?}");
            let [.., titles, first, second] = lines.as_slice() else { panic!("{lines:?}") };
            let figures = titles.split_whitespace().take_while(|title| *title != "file").count();
            assert_eq!(figures, columns, "{lines:?}");
            if room >= 80 {
                assert!(titles.ends_with("file in /data/db/"), "{lines:?}");
                assert!(first.ends_with(" index-8-4596081763205983475.wt"), "{lines:?}");
            }
            // Its end distinguishes a file from another.
            assert!(first.ends_with("3475.wt") && second.ends_with("3475.wt"), "{lines:?}");
        }
        // What the server calls it is no path, and is not cut at its beginning.
        interval.rows = vec![row("shop.orders index {customer: 1}"), row("/data/db/collection-1-2.wt")];
        let lines = lines(&interval, 200);
        assert!(lines[2].ends_with(" file"), "{lines:?}");
        assert!(lines.iter().any(|line| line.ends_with(" /data/db/collection-1-2.wt")), "{lines:?}");
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
    }

    #[test]
    fn the_busiest_stands_first_and_idle_files_are_left_out() {
        let before = usage(100, 0);
        let interval = FileInterval {
            end_ns: 1,
            seconds: 2.0,
            rows: vec![
                ActiveFile::new("idle.wt".into(), &before, Some(&before)),
                ActiveFile::new("little.wt".into(), &usage(110, 10), Some(&before)),
                ActiveFile::new("much\u{1b}.wt".into(), &usage(4_000, 3_000), None),
            ],
            what: "files",
            devices: Vec::new(),
            losses: IoLosses { ring_full: 2, ..IoLosses::default() },
        };
        let lines = lines(&interval, 200);
        assert!(
            lines[0].starts_with("2 of 3 files busy; reads ")
                && lines[0].ends_with("; LOST: accesses that found the ring to the program full: 2"),
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
