//! What `bench/store.py` measures: fills a store with 30 days of 200 shapes, 50 of them active per window, and reads it.
//!
//! - `store_bench fill DIR [splits]`: prints the number of windows and the seconds of processor time it took. With
//!   `splits`, each row says where the time of a tenth of its operations went, as the agent's collector of that name does.
//! - `store_bench read DIR [VIEW]`: prints the median time of each view, or of this one, in milliseconds, and under
//!   `NAME_processors` the processor time of all threads.
//!
//! Before the last two days, for which windows of 10 s are kept, each minute is added as one window: its minute and its
//! hour are the same as those of six.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use sonar_core::history::{
    CollectorKind, HistoryReader, HistoryWindow, HistoryWriter, Resolution, SeriesKey, SeriesSubject,
    SeriesValue, Span,
};
use sonar_core::impact::SplitMix64;
use sonar_core::operation::{Application, Operation};
use sonar_core::testing::operation;
use sonar_core::time::NS_PER_S;
use sonar_core::time_split::{FileTotal, RowSplit, TimePart, WaitTotal};
use sonar_core::{Endpoint, GroupBy, Record, Row, ShapeId, ShapeInfo, Source, Table, Timestamp};
use sonar_store::{SqliteHistory, StoreSettings};

const DAYS: u64 = 30;
const SHAPES: u64 = 200;
/// Shapes that are always active; the others take turns.
const HOT: u64 = 35;
const ACTIVE: u64 = 50;
const SERIES: u64 = 200;
/// Different figures of 10 s for each shape.
const VARIANTS: u64 = 24;
/// 2026-10-22 in UTC.
const START: u64 = 1_792_627_200;

/// Nearly normal, with mean 0 and variance 1.
fn normal(random: &mut SplitMix64) -> f64 {
    (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0
}

/// Where the time of a tenth of the operations of a row went: five parts, two wait classes, and a collection with two
/// indexes.
fn split(row: &Row, collection: u64, random: &mut SplitMix64) -> RowSplit {
    let mut split = RowSplit { operations: row.figures().calls / 10 + 1, ..RowSplit::default() };
    split.unread_ns = split.operations * (20_000 + random.below(10_000));
    for (part, typical) in [
        (TimePart::Cpu, 200_000),
        (TimePart::RunQueue, 20_000),
        (TimePart::Read, 100_000),
        (TimePart::Futex, 50_000),
        (TimePart::Send, 5_000),
    ] {
        split.split[part] = split.operations * (typical + random.below(typical));
    }
    split.duration_ns = split.split.total_ns() + random.below(1_000_000);
    split.device_bytes = split.operations * random.below(10) * 4_096;
    for class in ["execution ticket", "cache eviction"] {
        let waits = WaitTotal { waits: 1 + random.below(20), wait_ns: 1_000_000 + random.below(1 << 24) };
        split.add_wait(TimePart::Futex, &class.into(), waits);
    }
    for index in ["", " customer_1", " _id_"] {
        let reads = 1 + random.below(50);
        let reads = FileTotal { reads, bytes: reads * 28_672, wait_ns: random.below(1 << 25) };
        split.add_file(&format!("shop.collection_{collection}{index}").into(), reads);
    }
    split
}

/// Rows of 10 s, by shape and variant.
fn rows(random: &mut SplitMix64, has_splits: bool) -> Vec<Vec<Row>> {
    let apps: Vec<_> = (0..16)
        .map(|number| {
            Arc::new(Application {
                name: format!("service-{number}").into(),
                driver: "nodejs".into(),
                driver_version: "6.3.0".into(),
                ..Application::default()
            })
        })
        .collect();
    (0..SHAPES)
        .map(|number| {
            let shape = Arc::new(ShapeInfo {
                id: ShapeId((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                command: "find".into(),
                database: "shop".into(),
                collection: format!("collection_{}", number % 20).into(),
                typed: format!("{{filter: {{customer: ?objectId, status_{number}: ?string, created: {{$gte: ?date}}}}, sort: {{created: -1}}, limit: ?}}").into(),
                plain: format!("{{customer: ?, status_{number}: ?, created: ?}}").into(),
                ..ShapeInfo::default()
            });
            // From 0.1 ms to 100 ms, and from 10 to 1,000 calls in 10 s: 7,000 a second in total.
            let typical = 1e5 * 10f64.powf(random.below(3_000) as f64 / 1e3);
            let calls = (10.0 * 10f64.powf(random.below(2_000) as f64 / 1e3)) as u64;
            (0..VARIANTS).map(|_| {
                let mut table = Table::of_window(GroupBy::Shape);
                for _ in 0..calls * (80 + random.below(40)) / 100 + 1 {
                    let op = Operation {
                        latency_ns: Some((typical * (normal(random) * 0.4).exp()) as u64),
                        transfer_ns: Some(random.below(100_000)),
                        client: Endpoint::v4([10, 0, 0, ((number + random.below(6)) % 32) as u8], 40_000),
                        server: Endpoint::v4([0, 0, 0, 0], 27017),
                        app: &apps[((number + random.below(2)) % 16) as usize],
                        request_bytes: 200 + random.below(50),
                        response_bytes: 500 + random.below(5_000),
                        docs_returned: Some(random.below(20)),
                        ..operation(&shape, &apps[0])
                    };
                    table.record(&Record::wire(&op));
                }
                let mut row = table.rows()[0].clone();
                row.split = has_splits.then(|| Box::new(split(&row, number % 20, random)));
                row
            }).collect()
        })
        .collect()
}

fn series() -> BTreeMap<SeriesKey, SeriesValue> {
    let key = |number: u64| SeriesKey {
        subject: SeriesSubject::Server,
        server: Endpoint::v4([0, 0, 0, 0], 27017),
        name: "".into(),
        metric: format!("metric_{number}").into(),
    };
    (0..SERIES).map(|number| (key(number), SeriesValue::default())).collect()
}

/// Rows of a minute, by shape and variant: each of six rows of 10 s.
fn minute_rows(rows: &[Vec<Row>], random: &mut SplitMix64) -> Vec<Vec<Row>> {
    let mut minute = |variants: &Vec<Row>| -> Row {
        let mut table = Table::of_window(GroupBy::Shape);
        for _ in 0..6 {
            table.add(&variants[random.below(VARIANTS) as usize]);
        }
        table.rows()[0].clone()
    };
    rows.iter().map(|variants| (0..VARIANTS).map(|_| minute(variants)).collect()).collect()
}

struct Workload {
    /// Of 10 s, and of minutes.
    rows: [Vec<Vec<Row>>; 2],
    series: BTreeMap<SeriesKey, SeriesValue>,
    random: SplitMix64,
}

impl Workload {
    /// A window of 10 s, with the figures of a minute if `rows` is 1.
    fn window(&mut self, start: u64, rows: usize) -> HistoryWindow {
        let start = Timestamp::from_unix(start, 0);
        let mut history = HistoryWindow::new(start, Resolution::TenSeconds);
        let minute = start.unix_ns() / NS_PER_S / 60;
        for number in 0..ACTIVE {
            let others = SHAPES - HOT;
            let shape =
                if number < HOT { number } else { HOT + (minute * 31 + (number - HOT) * 11) % others };
            let mut row = self.rows[rows][shape as usize][self.random.below(VARIANTS) as usize].clone();
            let figures = &mut row.observed_by_mut(Source::Wire).figures;
            figures.first_seen = start.plus_ns(self.random.below(NS_PER_S / 10));
            figures.last_seen = start.plus_ns(10 * NS_PER_S - self.random.below(NS_PER_S / 10) - 1);
            history.window.shapes.add_owned(row);
        }
        history.series.clone_from(&self.series);
        for (number, value) in history.series.values_mut().enumerate() {
            // Of ten samples; a third never changes, a third are whole numbers, a third are rates.
            for second in 0..10 {
                let sample = match number % 3 {
                    0 => number as f64,
                    1 => (1_000 + self.random.below(500)) as f64,
                    _ => self.random.below(1 << 20) as f64 / 1e3,
                };
                value.add(start.plus_ns(second * NS_PER_S), sample, 1.0);
            }
        }
        for collector in [CollectorKind::Queries, CollectorKind::Internals, CollectorKind::Machine] {
            history.observe(collector, 10 * NS_PER_S);
        }
        history
    }
}

fn fill(dir: &Path, has_splits: bool) {
    let settings = StoreSettings {
        durable: false,
        max_bytes: u64::MAX,
        min_free_bytes: Some(0),
        ..StoreSettings::default()
    };
    let mut store = SqliteHistory::create(dir, settings).expect("a new store");
    let mut random = SplitMix64(1);
    let seconds = rows(&mut random, has_splits);
    let minutes = minute_rows(&seconds, &mut random);
    let mut work = Workload { rows: [seconds, minutes], series: series(), random };
    let (mut windows, mut seconds) = (0u64, 0.0);
    let mut append = |start, rows| {
        let window = work.window(start, rows);
        let began = processor_seconds();
        store.append(&window, &[]).expect("room for a window");
        seconds += processor_seconds() - began;
        windows += 1;
    };
    let recent = START + (DAYS - 2) * 86_400;
    (START..recent).step_by(60).for_each(|start| append(start, 1));
    (recent..recent + 2 * 86_400).step_by(10).for_each(|start| append(start, 0));
    println!("windows {windows}");
    println!("seconds {seconds}");
}

fn read(dir: &Path, only: Option<&str>) {
    let store = SqliteHistory::open(dir).expect("a filled store");
    let end = store.extent().expect("a readable store").expect("windows").to;
    let last = |seconds: u64| Span { from: end.minus_ns(seconds * NS_PER_S), to: end };
    // Neither begins at a full hour.
    let (day, month) = (last(86_400 + 1_230), last(30 * 86_400 - 1_230));
    let merged = |span| store.read(span).expect("readable").map_or(0, |window| window.window.shapes.len());
    let each = |span, resolution| {
        let mut rows = 0;
        store.windows(span, resolution, &mut |window| rows += window.window.shapes.len()).expect("readable");
        rows
    };
    let observed = |span, resolution| {
        let mut windows = 0;
        store.observed(span, resolution, &mut |_| windows += 1).expect("readable");
        windows
    };
    let measure = |name: &str, view: &dyn Fn() -> usize| {
        if only.is_none_or(|only| only == name) {
            measure(name, view);
        }
    };
    measure("day", &|| merged(day));
    measure("month", &|| merged(month));
    measure("day_by_hour", &|| each(day, Resolution::Hour));
    measure("day_by_minute", &|| each(day, Resolution::Minute));
    measure("month_by_hour", &|| each(month, Resolution::Hour));
    measure("month_observed", &|| observed(month, Resolution::Hour));
}

/// Processor time of this process.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(name: &str, view: impl Fn() -> usize) {
    let (mut times, mut processors): (Vec<f64>, Vec<f64>) = (0..7)
        .map(|_| {
            let (began, used) = (Instant::now(), processor_seconds());
            assert!(view() > 0, "{name} has no rows");
            (began.elapsed().as_secs_f64() * 1e3, (processor_seconds() - used) * 1e3)
        })
        .unzip();
    for (name, values) in [(name.to_owned(), &mut times), (format!("{name}_processors"), &mut processors)] {
        values.sort_by(f64::total_cmp);
        println!("{name} {}", values[values.len() / 2]);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [command, dir] if command == "fill" => fill(Path::new(dir), false),
        [command, dir, splits] if command == "fill" && splits == "splits" => fill(Path::new(dir), true),
        [command, dir] if command == "read" => read(Path::new(dir), None),
        [command, dir, view] if command == "read" => read(Path::new(dir), Some(view)),
        _ => {
            eprintln!("usage: store_bench fill DIR [splits] | read DIR [VIEW]");
            std::process::exit(2);
        }
    }
}
