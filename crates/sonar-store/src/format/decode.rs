//! Reads windows.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use sonar_core::command_types::TypeCounts;
use sonar_core::execution::{ExecutionTotals, ServerSums};
use sonar_core::figures::{Apps, Clients, PlanUse, Share};
use sonar_core::histogram::{BUCKETS, DurationSummary};
use sonar_core::history::{CollectorKind, HistoryWindow, SeriesKey, SeriesValue, Span};
use sonar_core::operation::InFlightOperations;
use sonar_core::row::{Observed, UnfinishedOperations};
use sonar_core::table::{MAX_OTHER_ROWS, MAX_ROWS};
use sonar_core::{
    Class, Coverage, Endpoint, Figures, GroupBy, Histogram, Identity, Reading, Role, Row, ShapeId, ShapeInfo,
    Source, Subject, Sum, Table, Timestamp,
};
use zstd::bulk::Decompressor;

use super::blob::{BlobError, MAX_BODY, OpenedBlob, PLAIN, ZSTD, open};
use super::bytes::{BlobReader, MAX_COUNT};
use super::layout::{Layout, position};
use super::numbers::NumberLookup;
use super::split::{HAS_SPLIT, read_split};
use crate::stored_window::StoredWindow;

type Decoded<T> = Result<T, BlobError>;

/// Reads the blob of a window of this span and adds it to `into`, whose span grows to include it.
///
/// # Errors
/// The blob is damaged, of a newer version, or names something that is missing. `into` may then have a part of it.
pub fn decode(blob: &[u8], span: Span, lookup: &dyn NumberLookup, into: &mut StoredWindow) -> Decoded<()> {
    let (version, body) = unpack(blob)?;
    Decoder::of(version, &body, span.from, lookup)?.window(span, into)
}

/// How long each collector observed, in nanoseconds, in the order of [`CollectorKind::ALL`].
pub type ObservedNs = [u64; CollectorKind::ALL.len()];

/// Reads of the blob of a window only how long each collector observed.
///
/// # Errors
/// The blob is damaged, of a newer version, or names something that is missing.
pub fn decode_observed(blob: &[u8], lookup: &dyn NumberLookup) -> Decoded<ObservedNs> {
    let (version, body) = unpack(blob)?;
    Ok(Decoder::of(version, &body, Timestamp::default(), lookup)?.head()?.observed_ns)
}

/// The version and the body.
fn unpack(blob: &[u8]) -> Decoded<(u8, Vec<u8>)> {
    let OpenedBlob { version, packing, body } = open(blob)?;
    let body = match packing {
        PLAIN => body.to_vec(),
        ZSTD => unpack_zstd(body)?,
        _ => return Err(BlobError::Impossible("the packing")),
    };
    Ok((version, body))
}

fn unpack_zstd(body: &[u8]) -> Decoded<Vec<u8>> {
    thread_local! {
        static UNPACKER: RefCell<Decompressor<'static>> = RefCell::default();
    }
    let unpacked = UNPACKER.with_borrow_mut(|unpacker| unpacker.decompress(body, MAX_BODY));
    unpacked.map_err(|_| BlobError::Impossible("the compression"))
}

fn addresses(mut bytes: BlobReader<'_>) -> Decoded<Vec<IpAddr>> {
    let mut addresses = Vec::with_capacity(bytes.0.len() / 5);
    while !bytes.0.is_empty() {
        addresses.push(match bytes.byte()? {
            4 => IpAddr::from(bytes.array::<4>()?),
            16 => IpAddr::from(bytes.array::<16>()?),
            _ => return Err(BlobError::Impossible("an address")),
        });
    }
    Ok(addresses)
}

struct Decoder<'a> {
    version: u8,
    main: BlobReader<'a>,
    gaps: BlobReader<'a>,
    counts: BlobReader<'a>,
    addresses: Vec<IpAddr>,
    start: Timestamp,
    lookup: &'a dyn NumberLookup,
}

/// What a blob begins with.
struct Head {
    layout: Arc<Layout>,
    by: GroupBy,
    sample: u32,
    in_flight_at: Timestamp,
    observed_ns: ObservedNs,
}

impl<'a> Decoder<'a> {
    fn of(version: u8, body: &'a [u8], start: Timestamp, lookup: &'a dyn NumberLookup) -> Decoded<Self> {
        let mut sections = BlobReader(body);
        let addresses = addresses(sections.section()?)?;
        let (gaps, counts) = (sections.section()?, sections.section()?);
        let main = sections.section()?;
        Ok(Self { version, main, gaps, counts, addresses, start, lookup })
    }

    fn head(&mut self) -> Decoded<Head> {
        let number = self.number()?;
        let layout = self.lookup.layout(number).ok_or(BlobError::Missing("the layout"))?;
        let flags = self.main.byte()?;
        let sample = u32::try_from(self.main.varint()?).map_err(|_| BlobError::Impossible("the sample"))?;
        let in_flight_at = if flags & 2 != 0 { self.time()? } else { Timestamp::default() };
        let mut observed_ns = ObservedNs::default();
        for position in &layout.collectors {
            let ns = self.main.varint()?;
            if let Some(mine) = position.and_then(|at| observed_ns.get_mut(at)) {
                *mine = ns;
            }
        }
        let by = if flags & 1 != 0 { GroupBy::Order } else { GroupBy::Shape };
        Ok(Head { layout, by, sample, in_flight_at, observed_ns })
    }

    fn window(mut self, span: Span, into: &mut StoredWindow) -> Decoded<()> {
        let Head { layout, by, sample, in_flight_at, observed_ns } = self.head()?;
        let HistoryWindow { window, .. } = &mut into.window;
        if window.shapes.is_empty() && by == GroupBy::Order {
            window.shapes = Table::of_window(by);
        }
        (window.start, window.end) = (window.start.min(span.from), window.end.max(span.to));
        window.sample = window.sample.max(sample);
        let mut snapshot = StoredWindow { in_flight_at, ..StoredWindow::spanning(span) };
        into.window
            .observed_ns
            .iter_mut()
            .zip(observed_ns)
            .for_each(|(mine, ns)| *mine = mine.saturating_add(ns));
        into.cap_observed();
        let coverage = self.counters::<{ Coverage::COUNT }>(&layout.coverage)?;
        into.window.window.coverage.add(&Coverage::from_values(coverage));
        let reading = self.counters::<{ Reading::COUNT }>(&layout.reading)?;
        into.window.reading.add(&Reading::from_values(reading));
        self.types(into)?;
        let window = &mut into.window.window;
        let folded = self.rows(&mut window.shapes, &layout)?;
        window.coverage.shapes_folded = window.coverage.shapes_folded.saturating_add(folded);
        let folded = self.rows(&mut window.apps, &layout)?;
        window.coverage.apps_folded = window.coverage.apps_folded.saturating_add(folded);
        for _ in 0..self.main.len()? {
            let one = self.in_flight()?;
            snapshot.window.window.in_flight.push(one);
        }
        into.take_in_flight(&snapshot);
        self.series(into)?;
        into.window.series_left_out = into.window.series_left_out.saturating_add(self.main.count()?);
        if [&self.main, &self.gaps, &self.counts].iter().all(|rest| rest.0.is_empty()) {
            Ok(())
        } else {
            Err(BlobError::Impossible("the length"))
        }
    }

    fn number(&mut self) -> Decoded<u32> {
        u32::try_from(self.main.varint()?).map_err(|_| BlobError::Impossible("a number"))
    }

    fn time(&mut self) -> Decoded<Timestamp> {
        self.after(self.start)
    }

    fn after(&mut self, start: Timestamp) -> Decoded<Timestamp> {
        Ok(Timestamp::from_unix_ns(start.unix_ns().wrapping_add(self.main.zigzag()? as u64)))
    }

    fn counters<const N: usize>(&mut self, layout: &[Option<usize>]) -> Decoded<[u64; N]> {
        let mut values = [0; N];
        for _ in 0..self.main.len()? {
            let position = position(layout, self.main.varint()?)?;
            let value = self.main.count()?;
            if let Some(mine) = position.and_then(|at| values.get_mut(at)) {
                *mine = value;
            }
        }
        Ok(values)
    }

    fn types(&mut self, into: &mut StoredWindow) -> Decoded<()> {
        for _ in 0..self.main.len()? {
            let (role, class) = self.role_and_class()?;
            let mut counts = TypeCounts::default();
            for count in &mut counts {
                *count = self.main.varint()?;
            }
            into.window.window.types.add(role, class, counts);
        }
        Ok(())
    }

    fn role_and_class(&mut self) -> Decoded<(Role, Class)> {
        let byte = self.main.byte()?;
        Ok((Role::ALL[usize::from(byte & 1)], class_of(byte >> 1)?))
    }

    fn address(&mut self) -> Decoded<IpAddr> {
        let at = usize::try_from(self.main.varint()?).unwrap_or(usize::MAX);
        self.addresses.get(at).copied().ok_or(BlobError::Missing("an address"))
    }

    fn endpoint(&mut self) -> Decoded<Endpoint> {
        let ip = self.address()?;
        let port = u16::try_from(self.main.varint()?).map_err(|_| BlobError::Impossible("a port"))?;
        Ok(Endpoint::from(std::net::SocketAddr::new(ip, port)))
    }

    /// Returns the number of operations that were counted under `other`.
    fn rows(&mut self, into: &mut Table, layout: &Layout) -> Decoded<u64> {
        let mut folded = 0u64;
        let len = self.main.len()?;
        if len > MAX_ROWS + MAX_OTHER_ROWS {
            return Err(BlobError::Impossible("the number of rows"));
        }
        into.reserve(len);
        for _ in 0..len {
            let row = self.row(layout)?;
            let calls = row.figures().calls;
            if into.add_owned(row).1 {
                folded = folded.saturating_add(calls);
            }
        }
        Ok(folded)
    }

    fn shape(&mut self) -> Decoded<Arc<ShapeInfo>> {
        let number = self.number()?;
        self.lookup.shape(number).ok_or(BlobError::Missing("a shape"))
    }

    fn order(&mut self) -> Decoded<ShapeId> {
        let number = self.number()?;
        self.lookup.order(number).ok_or(BlobError::Missing("an ordered id"))
    }

    fn row(&mut self, layout: &Layout) -> Decoded<Row> {
        let flags = self.main.byte()?;
        let class = class_of(self.main.byte()?)?;
        let server = self.endpoint()?;
        let subject = match flags & 3 {
            0 => {
                let identity = Identity::ALL[usize::from(flags >> 3 & 3)];
                let shape = self.shape()?;
                let order = if flags & 32 != 0 { self.order()? } else { ShapeId(0) };
                Subject::Shape { identity, shape, order }
            }
            1 => {
                let number = self.number()?;
                Subject::App(self.lookup.application(number).ok_or(BlobError::Missing("an application"))?)
            }
            2 => Subject::Other,
            _ => return Err(BlobError::Impossible("the subject of a row")),
        };
        let mut row = Row::new(subject, class);
        (row.server, row.role) = (server, Role::ALL[usize::from(flags >> 2 & 1)]);
        for _ in 0..self.main.len()? {
            let order = self.order()?;
            row.add_ordered_id(order);
        }
        match flags >> 6 {
            0 => {}
            1 => row.add_query_hash(""),
            2 => {
                let hash = self.text()?;
                row.add_query_hash(&hash);
            }
            _ => return Err(BlobError::Impossible("the queryHash of a row")),
        }
        let sources = self.main.byte()?;
        let has_split = sources & HAS_SPLIT != 0;
        if (sources & !HAS_SPLIT) >> Source::ALL.len() != 0 {
            return Err(BlobError::Impossible("a source"));
        }
        for source in Source::ALL {
            if sources & 1 << source as u8 != 0 {
                row.set_observed(source, Box::new(self.observed(layout)?));
            }
        }
        if has_split {
            row.split = Some(Box::new(read_split(&mut self.main, self.version, layout, self.lookup)?));
        }
        Ok(row)
    }

    fn text(&mut self) -> Decoded<Arc<str>> {
        let number = self.number()?;
        self.lookup.text(number).ok_or(BlobError::Missing("a text"))
    }

    fn observed(&mut self, layout: &Layout) -> Decoded<Observed> {
        let figures = self.figures(layout)?;
        let latency_ns = u64::try_from(figures.latency.sum_ns()).unwrap_or(u64::MAX);
        let all = Share { calls: figures.calls, failed: figures.failed, latency_ns };
        let lookup = self.lookup;
        let application = |decoder: &mut Self| {
            let number = decoder.number()?;
            lookup.application(number).ok_or(BlobError::Missing("an application"))
        };
        let (apps, other) = self.shares(all, application)?;
        let apps = Apps::from_parts(apps, other);
        let (clients, other) = self.shares(all, Self::address)?;
        let clients = Clients::from_parts(clients, other);
        let in_flight = UnfinishedOperations { count: self.main.count()?, oldest_ns: self.main.varint()? };
        Ok(Observed { figures, apps, clients, in_flight })
    }

    fn figures(&mut self, layout: &Layout) -> Decoded<Figures> {
        let calls = self.main.count()?;
        let mut figures = Figures { calls, ..Figures::default() };
        figures.entries = self.main.near(calls)?;
        figures.statements = self.main.near(calls)?;
        figures.failed = self.main.count()?;
        figures.unanswered = self.main.count()?;
        figures.unacknowledged = self.main.count()?;
        figures.outcome_unknown = self.main.count()?;
        for _ in 0..self.main.len()? {
            let code =
                i32::try_from(self.main.zigzag()?).map_err(|_| BlobError::Impossible("an error code"))?;
            let count = self.main.count()?;
            figures.errors.add(&code, count, || code);
        }
        figures.errors.other += self.main.count()?;
        figures.latency = self.histogram()?;
        figures.transfer_ns = self.main.varint()?;
        figures.request_bytes = self.main.count()?;
        figures.response_bytes = self.sum()?;
        figures.returned = self.sum()?;
        figures.affected = self.sum()?;
        figures.first_seen = self.time()?;
        figures.last_seen = self.after(figures.first_seen)?;
        match self.main.byte()? {
            0 => {}
            1 => self.execution(&mut figures, layout)?,
            _ => return Err(BlobError::Impossible("the execution of a row")),
        }
        Ok(figures)
    }

    fn sum(&mut self) -> Decoded<Sum> {
        Ok(Sum { known: self.main.count()?, total: self.main.varint()? })
    }

    fn histogram(&mut self) -> Decoded<Histogram> {
        let zero = self.main.count()?;
        let buckets = self.main.varint()?;
        let sum_ns = self.main.wide()?;
        let min_ns = self.main.varint()?;
        let max_ns = min_ns.saturating_add(self.main.varint()?);
        let (first, counts) = self.buckets(buckets)?;
        Histogram::from_counts(zero, first, counts, DurationSummary { sum_ns, min_ns, max_ns })
            .filter(|histogram| histogram.count() <= MAX_COUNT)
            .ok_or(BlobError::Impossible("a histogram"))
    }

    /// Reads a run of `buckets` non-empty buckets: the index of the first one, and the counts of all buckets from the
    /// first to the last, empty ones included. This is the hot path: most of a blob is histograms.
    fn buckets(&mut self, buckets: u64) -> Decoded<(i32, Vec<u64>)> {
        let Some(others) = buckets.checked_sub(1) else { return Ok((0, Vec::new())) };
        let others = usize::try_from(others).ok().filter(|others| *others < BUCKETS);
        let others = others.ok_or(BlobError::Impossible("a histogram"))?;
        let first = i32::try_from(self.gaps.zigzag()?).map_err(|_| BlobError::Impossible("a bucket"))?;
        let room = |gaps: u64| match usize::try_from(gaps.saturating_add(others as u64)) {
            Ok(last) if last < BUCKETS => Ok(vec![0; last + 1]),
            _ => Err(BlobError::Impossible("a bucket")),
        };
        let mut at = 0;
        // Gaps and counts are nearly always small.
        if let (Some(gaps), Some(bytes)) =
            (self.gaps.single_bytes(others), self.counts.single_bytes(others + 1))
        {
            (self.gaps, self.counts) = (self.gaps.after(others), self.counts.after(others + 1));
            let mut counts = room(gaps.iter().map(|gap| u64::from(*gap)).sum())?;
            counts[0] = u64::from(bytes[0]) + 1;
            for (gap, count) in gaps.iter().zip(&bytes[1..]) {
                at += usize::from(*gap) + 1;
                counts[at] = u64::from(*count) + 1;
            }
            return Ok((first, counts));
        }
        let (mut gaps, mut sum) = (BlobReader(self.gaps.0), 0u64);
        for _ in 0..others {
            sum = sum.saturating_add(gaps.varint()?);
        }
        let mut counts = room(sum)?;
        counts[0] = self.counts.count()? + 1;
        for _ in 0..others {
            // Their sum has been checked.
            at += self.gaps.varint()? as usize + 1;
            counts[at] = self.counts.count()? + 1;
        }
        Ok((first, counts))
    }

    fn execution(&mut self, figures: &mut Figures, layout: &Layout) -> Decoded<()> {
        let mut sums = [Sum::default(); ServerSums::COUNT];
        for _ in 0..self.main.len()? {
            let position = position(&layout.sums, self.main.varint()?)?;
            let sum = self.sum()?;
            if let Some(mine) = position.and_then(|at| sums.get_mut(at)) {
                *mine = sum;
            }
        }
        let server = figures.server_mut();
        server.totals = ExecutionTotals {
            sums: ServerSums::from_values(sums),
            collection_scans: self.main.count()?,
            memory_sorts: self.main.count()?,
            used_disk: self.main.count()?,
            replanned: self.main.count()?,
        };
        for _ in 0..self.main.len()? {
            let plan = self.text()?;
            let used = self.plan_use()?;
            server.add_plan(&plan, used);
        }
        server.plans.other += self.plan_use()?;
        Ok(())
    }

    fn plan_use(&mut self) -> Decoded<PlanUse> {
        Ok(PlanUse { calls: self.main.count()?, memory_sorts: self.main.count()? })
    }

    /// Shares by key, and that of others.
    fn shares<K>(
        &mut self,
        all: Share,
        mut key: impl FnMut(&mut Self) -> Decoded<K>,
    ) -> Decoded<(Vec<(K, Share)>, Share)> {
        let len = self.main.len()?;
        let mut shares: Vec<(K, Share)> = Vec::with_capacity(len.min(64));
        let mut last = None;
        for at in 0..len {
            let key = key(self)?;
            if at + 1 < len {
                shares.push((key, self.share()?));
            } else {
                last = Some((key, [self.main.zigzag()?, self.main.zigzag()?, self.main.zigzag()?]));
            }
        }
        let other = self.share()?;
        if let Some((key, differences)) = last {
            let left = |of: fn(&Share) -> u64, difference: i64| {
                let taken = shares.iter().fold(of(&other), |sum, (_, share)| sum.wrapping_add(of(share)));
                of(&all).wrapping_sub(taken).wrapping_sub(difference as u64)
            };
            let [calls, failed, latency_ns] = differences;
            let (calls, failed) = (left(|share| share.calls, calls), left(|share| share.failed, failed));
            if calls.max(failed) > 1 << 50 {
                return Err(BlobError::Impossible("a share"));
            }
            let share = Share { calls, failed, latency_ns: left(|share| share.latency_ns, latency_ns) };
            shares.push((key, share));
        }
        Ok((shares, other))
    }

    fn share(&mut self) -> Decoded<Share> {
        Ok(Share { calls: self.main.count()?, failed: self.main.count()?, latency_ns: self.main.varint()? })
    }

    fn in_flight(&mut self) -> Decoded<InFlightOperations> {
        let server = self.endpoint()?;
        let (role, class) = self.role_and_class()?;
        let number = self.number()?;
        let shape = match number {
            0 => Arc::new(ShapeInfo::other()),
            _ => self.lookup.shape(number).ok_or(BlobError::Missing("a shape"))?,
        };
        let (count, oldest_ns) = (self.main.count()?, self.main.varint()?);
        Ok(InFlightOperations { server, role, class, shape, count, oldest_ns, oldest: Vec::new() })
    }

    fn series(&mut self, into: &mut StoredWindow) -> Decoded<()> {
        let mut value = SeriesValue::default();
        let len = self.main.len()?;
        let mut all: Vec<(Arc<SeriesKey>, SeriesValue)> =
            Vec::with_capacity(len.min(HistoryWindow::MAX_SERIES));
        for _ in 0..len {
            let number = self.number()?;
            let key = self.lookup.series(number).ok_or(BlobError::Missing("a series"))?;
            value = self.value(&value)?;
            all.push((key, value));
        }
        into.window.merge_series(all.iter().map(|(key, value)| (&**key, value)));
        Ok(())
    }

    fn value(&mut self, before: &SeriesValue) -> Decoded<SeriesValue> {
        let flags = self.main.byte()?;
        let mut value = *before;
        if flags & 1 != 0 {
            value.seconds = self.fixed()?;
        }
        if flags & 2 != 0 {
            value.last_at = self.time()?;
        }
        value.last = self.main.float()?;
        value.weighted = if flags & 4 != 0 { self.fixed()? } else { value.last * value.seconds };
        value.min = if flags & 8 != 0 { self.main.float()? } else { value.last };
        value.max = if flags & 16 != 0 { self.main.float()? } else { value.last };
        Ok(value)
    }

    fn fixed(&mut self) -> Decoded<f64> {
        Ok(f64::from_bits(u64::from_le_bytes(self.main.array()?)))
    }
}

fn class_of(number: u8) -> Decoded<Class> {
    Class::ALL.get(usize::from(number)).copied().ok_or(BlobError::Impossible("a class"))
}
