//! What the tests share: windows of all kinds, and comparing them.

use std::sync::Arc;

use sonar_core::coverage::Coverage;
use sonar_core::execution::{Execution, PlanFlags};
use sonar_core::history::{
    CollectorKind, HistoryReader, HistoryWindow, Resolution, SeriesKey, SeriesSubject, SeriesValue, Span,
};
pub use sonar_core::impact::SplitMix64 as Random;
use sonar_core::operation::{Application, ErrorCodes, InFlightOperations, Operation};
use sonar_core::testing::operation;
use sonar_core::time_split::{FileTotal, RowSplit, TimePart, WaitTotal, WireOperation};
use sonar_core::{
    Class, Endpoint, Identity, Outcome, Reading, Record, Role, Row, ShapeId, ShapeInfo, Source, Sum, Table,
    Timestamp,
};
use sonar_store::SqliteHistory;

/// Midnight of 2026-11-21 in UTC.
pub const DAY: u64 = 1_795_219_200;

pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix(seconds, 0)
}

pub fn span(from: u64, to: u64) -> Span {
    Span { from: at(from), to: at(to) }
}

fn maybe(random: &mut Random, end: u64) -> Option<u64> {
    let value = random.below(end);
    (random.below(3) > 0).then_some(value)
}

pub fn shape(number: u64) -> Arc<ShapeInfo> {
    Arc::new(ShapeInfo {
        id: ShapeId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        command: "find".into(),
        database: "shop".into(),
        collection: format!("c{}", number % 7).into(),
        typed: format!("{{filter: {{field{number}: ?string}}}}").into(),
        plain: format!("{{field{number}: ?}}").into(),
        cut: number.is_multiple_of(5),
        statements: if number.is_multiple_of(4) {
            Box::new([ShapeId(1), ShapeId(number)])
        } else {
            Box::default()
        },
    })
}

pub fn application(number: u64) -> Arc<Application> {
    Arc::new(Application {
        name: format!("app {number}").into(),
        driver: "nodejs".into(),
        driver_version: format!("6.{number}").into(),
        joined_late: number == 3,
    })
}

/// Adds an operation that ended at `end` to a window: of the wire, or of a log.
pub fn record(window: &mut HistoryWindow, end: Timestamp, random: &mut Random) {
    let (shape, app) = (shape(1 + random.below(12)), application(random.below(5)));
    let codes = [(11_000, 1 + random.below(3) as i32 as u32), (-3, 1)];
    let outcome = match random.below(8) {
        0 => Outcome::Failed(ErrorCodes { codes: &codes[..1 + random.below(2) as usize] }),
        1 => Outcome::Unanswered,
        2 => Outcome::Unacknowledged,
        3 => Outcome::Unknown,
        _ => Outcome::Ok,
    };
    let latency_ns = (random.below(9) > 0).then(|| random.next() >> (20 + random.below(44)));
    let v6 = random.below(4) == 0;
    let host = random.below(40) as u8;
    let client = if v6 { Endpoint::v6([host; 16], 5_000) } else { Endpoint::v4([10, 0, 0, host], 5_000) };
    let op = Operation {
        start: end,
        end,
        latency_ns,
        transfer_ns: maybe(random, 1 << 20),
        client,
        server: Endpoint::v4([0, 0, 0, 0], 27017 + random.below(2) as u16),
        role: Role::ALL[random.below(2) as usize],
        class: Class::ALL[random.below(5) as usize],
        command: ["find", "insert", "update", "aggregate"][random.below(4) as usize],
        ordered_id: ShapeId(1 + random.below(12)),
        statement_count: 1 + random.below(3) as u32,
        request_bytes: random.below(5_000),
        response_bytes: random.below(1 << 24),
        docs_returned: maybe(random, 1_000),
        docs_affected: maybe(random, 10),
        outcome,
        ..operation(&shape, &app)
    };
    if random.below(3) > 0 {
        if random.below(2) == 0
            && let Some((split, _)) = window.window.shapes.split_of(&WireOperation::from(&op))
        {
            add_split(split, random);
        }
        return window.window.record(&op);
    }
    let plan = ["", "COLLSCAN", "IXSCAN { a: 1 }", "IXSCAN { b: -1 }"][random.below(4) as usize];
    let execution = Execution {
        keys_examined: maybe(random, 1 << 30),
        docs_examined: maybe(random, 1 << 40),
        write_concern_us: maybe(random, 1 << 20),
        spilled_bytes: maybe(random, 1 << 35),
        plan,
        other_plans: if random.below(5) == 0 { &["IDHACK"] } else { &[] },
        flags: PlanFlags {
            collection_scan: plan == "COLLSCAN",
            memory_sort: random.below(3) == 0,
            ..PlanFlags::default()
        },
        query_hash: ["", "0A1B2C3D", "99FF00AA"][random.below(3) as usize],
        weight: random.below(3) as u32,
        ..Execution::default()
    };
    let source = if random.below(2) == 0 { Source::Log } else { Source::Profile };
    let identity = Identity::ALL[random.below(4) as usize];
    let record = Record::server(source, &op, &execution).read_as(identity, 1 + random.below(2));
    window.window.shapes.record(&record);
    window.window.apps.record(&record);
}

/// Adds an operation of a thread, with waits of more classes and files than a row has.
pub fn add_split(split: &mut RowSplit, random: &mut Random) {
    let wait_ns = random.below(1 << 33);
    let part = TimePart::ALL[random.below(14) as usize];
    split.operations += 1;
    split.unread_ns += random.below(1 << 20);
    split.duration_ns += wait_ns + random.below(1 << 20);
    split.split[part] += wait_ns;
    split.device_bytes += random.below(1 << 30);
    split.add_wait(part, &format!("class {}", random.below(9)).into(), WaitTotal { waits: 1, wait_ns });
    let reads = FileTotal { reads: 1 + random.below(9), bytes: random.below(1 << 20), wait_ns };
    split.add_file(&format!("shop.c{}", random.below(30)).into(), reads);
    let number = random.below(12);
    let holder = ShapeInfo {
        id: ShapeId(9_000_000 + number),
        command: "update".into(),
        database: "shop".into(),
        ..ShapeInfo::default()
    };
    let holder = if number == 0 { ShapeInfo::other() } else { holder };
    split.add_blocker(&Arc::new(holder), WaitTotal { waits: 1, wait_ns });
}

pub fn key(number: u64) -> SeriesKey {
    SeriesKey {
        subject: SeriesSubject::ALL[number as usize % SeriesSubject::ALL.len()],
        server: Endpoint::v4([0, 0, 0, 0], (number % 2) as u16 * 27_017),
        name: if number.is_multiple_of(3) { "".into() } else { format!("sd{number}").into() },
        metric: format!("disk.metric_{number}").into(),
    }
}

/// Adds everything except operations. All values are multiples of 1/64, so floating-point sums are exact.
pub fn fill(window: &mut HistoryWindow, random: &mut Random) {
    let start = window.window.start;
    for _ in 0..random.below(20) {
        let value = random.below(1 << 20) as f64 / [1.0, 4.0, 64.0][random.below(3) as usize];
        let when = start.plus_ns(random.below(10_000_000_000));
        window.sample(&key(random.below(30)), when, value, 1.0);
    }
    window.observe(CollectorKind::ALL[random.below(6) as usize], random.below(10_000_000_000));
    window.observe(CollectorKind::Queries, 5_000_000_000);
    let mut counters = [0; Coverage::COUNT];
    counters[random.below(40) as usize] = random.below(1 << 30);
    counters[3] = random.below(100);
    window.window.coverage.add(&Coverage::from_values(counters));
    let mut counters = [0; Reading::COUNT];
    counters[random.below(20) as usize] = random.below(1 << 30);
    window.reading.add(&Reading::from_values(counters));
    window.series_left_out += random.below(2);
    for _ in 0..random.below(3) {
        window.window.in_flight.push(InFlightOperations {
            server: Endpoint::v4([0, 0, 0, 0], 27017),
            role: Role::Issued,
            class: Class::Waiting,
            shape: if random.below(4) == 0 {
                Arc::new(ShapeInfo::other())
            } else {
                shape(1 + random.below(30))
            },
            count: 1 + random.below(9),
            oldest_ns: random.next() >> 20,
            oldest: Vec::new(),
        });
    }
}

/// A window of 10 s with `operations` and everything else.
pub fn window(start: u64, operations: u64, random: &mut Random) -> HistoryWindow {
    let mut window = HistoryWindow::new(at(start), Resolution::TenSeconds);
    for _ in 0..operations {
        let end = window.window.start.plus_ns(random.below(10_000_000_000));
        record(&mut window, end, random);
    }
    fill(&mut window, random);
    window.window.end = window.window.start.plus_ns(Resolution::TenSeconds.width_ns());
    window
}

/// A window with one operation of the wire.
pub fn small(start: u64) -> HistoryWindow {
    small_of(start, &shape(1))
}

/// The same, of this shape.
pub fn small_of(start: u64, shape: &Arc<ShapeInfo>) -> HistoryWindow {
    let mut window = HistoryWindow::new(at(start), Resolution::TenSeconds);
    let app = application(1);
    let op = Operation {
        start: at(start),
        end: at(start).plus_ns(5),
        latency_ns: Some(1_000_000),
        client: Endpoint::v4([10, 0, 0, 1], 5_000),
        server: Endpoint::v4([0, 0, 0, 0], 27017),
        ordered_id: ShapeId(9),
        ..operation(shape, &app)
    };
    window.window.record(&op);
    window.window.end = at(start).plus_ns(Resolution::TenSeconds.width_ns());
    window.observe(CollectorKind::Queries, 10_000_000_000);
    window
}

/// The number of operations in a window, of all sources.
pub fn calls(window: &HistoryWindow) -> u64 {
    let of = |row: &Row| {
        row.sources().filter_map(|source| row.observed_by(source)).map(|one| one.figures.calls).sum::<u64>()
    };
    window.window.shapes.iter().map(of).sum()
}

/// The number of operations that each resolution has within a span.
pub fn calls_by_level(store: &SqliteHistory, span: Span) -> [u64; 3] {
    Resolution::ALL.map(|resolution| {
        let mut sum = 0;
        store.windows(span, resolution, &mut |window| sum += calls(&window)).unwrap();
        sum
    })
}

/// Everything in a window in an order that does not depend on that of additions, without the table of clients.
#[derive(PartialEq, Debug)]
pub struct Comparable {
    span: (Timestamp, Timestamp),
    sample: u32,
    rows: Vec<Row>,
    apps: Vec<Row>,
    types: sonar_core::CommandTypes,
    coverage: Coverage,
    reading: Reading,
    pub in_flight: Vec<String>,
    pub observed_ns: [u64; CollectorKind::ALL.len()],
    series: Vec<(SeriesKey, SeriesValue)>,
    series_left_out: u64,
}

impl Comparable {
    pub fn starts_before(&self, seconds: u64) -> bool {
        self.span.0 < at(seconds)
    }
}

pub fn comparable(history: &HistoryWindow) -> Comparable {
    let window = &history.window;
    let mut in_flight: Vec<_> = window.in_flight.iter().map(|one| format!("{one:?}")).collect();
    in_flight.sort();
    Comparable {
        span: (window.start, window.end),
        sample: window.sample,
        rows: sorted(&window.shapes),
        apps: sorted(&window.apps),
        types: window.types.clone(),
        coverage: window.coverage,
        reading: history.reading,
        in_flight,
        observed_ns: history.observed_ns,
        series: history.series.iter().map(|(key, value)| (key.clone(), *value)).collect(),
        series_left_out: history.series_left_out,
    }
}

fn sorted(table: &Table) -> Vec<Row> {
    let mut rows = table.rows().to_vec();
    rows.iter_mut().for_each(|row| row.ordered_ids.sort_unstable());
    // Not stored.
    for row in rows.iter_mut().filter(|row| row.observed_by(Source::Wire).is_some()) {
        row.observed_by_mut(Source::Wire).figures.tls = Sum::default();
    }
    rows.sort_by_key(|row| format!("{:?} {:?} {:?} {:?}", row.server, row.role, row.class, row.subject));
    rows
}
