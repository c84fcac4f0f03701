//! Writes windows.

use std::collections::HashMap;
use std::net::IpAddr;

use sonar_core::execution::ExecutionTotals;
use sonar_core::figures::{PlanUse, ServerFigures, Share};
use sonar_core::history::SeriesValue;
use sonar_core::operation::InFlightOperations;
use sonar_core::row::Observed;
use sonar_core::{
    Class, Endpoint, Figures, GroupBy, Histogram, Identity, Role, Row, ShapeId, Source, Subject, Sum, Table,
    Timestamp,
};

use super::blob::{BlobError, MAX_BODY, PLAIN, ZSTD, seal};
use super::bytes::BlobWriter;
use super::numbers::Numbering;
use super::split::{HAS_SPLIT, write_split};
use crate::stored_window::StoredWindow;

/// A shape that is not in the table of shapes.
const OTHER: u32 = 0;

/// The blob of a window. Operations of shapes without a number are counted under `other`, and by
/// [`Coverage::shapes_folded`](sonar_core::Coverage).
///
/// # Errors
/// [`BlobError::TooLarge`].
pub fn encode(part: &StoredWindow, numbering: &mut dyn Numbering, level: i32) -> Result<Vec<u8>, BlobError> {
    let mut encoder = Encoder {
        main: BlobWriter::default(),
        gaps: BlobWriter::default(),
        counts: BlobWriter::default(),
        addresses: Addresses::default(),
        start: part.window.window.start,
        numbering,
    };
    encoder.window(part);
    let mut body = BlobWriter::default();
    for section in [&encoder.addresses.bytes, &encoder.gaps, &encoder.counts, &encoder.main] {
        body.section(section);
    }
    if body.0.len() > MAX_BODY {
        return Err(BlobError::TooLarge);
    }
    let packed = zstd::bulk::compress(&body.0, level).ok().filter(|packed| packed.len() < body.0.len());
    let (packing, body) = packed.map_or((PLAIN, body.0), |packed| (ZSTD, packed));
    Ok(seal(packing, &body))
}

/// The distinct addresses of a window.
#[derive(Default)]
struct Addresses {
    numbers: HashMap<IpAddr, u64>,
    bytes: BlobWriter,
}

impl Addresses {
    fn number(&mut self, ip: IpAddr) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(ip).or_insert_with(|| {
            match ip {
                IpAddr::V4(ip) => {
                    self.bytes.byte(4);
                    self.bytes.bytes(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    self.bytes.byte(16);
                    self.bytes.bytes(&ip.octets());
                }
            }
            next
        })
    }
}

struct Encoder<'a> {
    main: BlobWriter,
    gaps: BlobWriter,
    counts: BlobWriter,
    addresses: Addresses,
    start: Timestamp,
    numbering: &'a mut dyn Numbering,
}

impl Encoder<'_> {
    fn window(&mut self, part: &StoredWindow) {
        let (history, window) = (&part.window, &part.window.window);
        let has_snapshot = part.in_flight_at > Timestamp::default();
        self.main.varint(u64::from(self.numbering.layout()));
        self.main.byte(u8::from(window.shapes.by == GroupBy::Order) | u8::from(has_snapshot) << 1);
        self.main.varint(u64::from(window.sample));
        if has_snapshot {
            self.time(part.in_flight_at);
        }
        history.observed_ns.iter().for_each(|ns| self.main.varint(*ns));
        let mut coverage = window.coverage;
        coverage.shapes_folded += self.folded(&window.shapes);
        self.counters(&coverage.values());
        self.counters(&history.reading.values());
        self.types(window);
        self.rows(&window.shapes);
        self.rows(&window.apps);
        self.main.varint(window.in_flight.len() as u64);
        window.in_flight.iter().for_each(|one| self.in_flight(one));
        let left_out = self.series(part);
        self.main.count(history.series_left_out + left_out);
    }

    /// Operations of shapes without a number.
    fn folded(&mut self, shapes: &Table) -> u64 {
        let mut folded = 0;
        for row in shapes.iter() {
            if let Subject::Shape { shape, .. } = &row.subject
                && self.numbering.shape(shape).is_none()
            {
                folded += row.figures().calls;
            }
        }
        folded
    }

    fn time(&mut self, at: Timestamp) {
        self.main.zigzag(at.unix_ns().wrapping_sub(self.start.unix_ns()) as i64);
    }

    fn counters(&mut self, values: &[u64]) {
        let above = || values.iter().enumerate().filter(|(_, value)| **value > 0);
        self.main.varint(above().count() as u64);
        for (at, value) in above() {
            self.main.varint(at as u64);
            self.main.count(*value);
        }
    }

    fn types(&mut self, window: &sonar_core::Window) {
        let places = || Role::ALL.into_iter().flat_map(|role| Class::ALL.map(|class| (role, class)));
        let all: Vec<_> = places()
            .map(|(role, class)| (role, class, window.types.get(role, class)))
            .filter(|(.., counts)| counts.iter().any(|count| *count > 0))
            .collect();
        self.main.varint(all.len() as u64);
        for (role, class, counts) in all {
            self.role_and_class(role, class);
            counts.iter().for_each(|count| self.main.varint(*count));
        }
    }

    fn role_and_class(&mut self, role: Role, class: Class) {
        self.main.byte((class as u8) << 1 | role as u8);
    }

    fn endpoint(&mut self, endpoint: Endpoint) {
        let number = self.addresses.number(endpoint.ip());
        self.main.varint(number);
        self.main.varint(u64::from(endpoint.port));
    }

    fn rows(&mut self, table: &Table) {
        self.main.varint(table.len() as u64);
        table.iter().for_each(|row| self.row(row));
    }

    fn row(&mut self, row: &Row) {
        let (kind, identity, number, order) = match &row.subject {
            Subject::Shape { identity, shape, order } => match self.numbering.shape(shape) {
                Some(number) => (0, *identity, number, *order),
                None => (2, Identity::default(), OTHER, ShapeId(0)),
            },
            Subject::App(application) => match self.numbering.application(application) {
                Some(number) => (1, Identity::default(), number, ShapeId(0)),
                None => (2, Identity::default(), OTHER, ShapeId(0)),
            },
            _ => (2, Identity::default(), OTHER, ShapeId(0)),
        };
        let order = Some(order).filter(|order| order.0 != 0).and_then(|order| self.numbering.order(order));
        let hash = row.query_hash_or_mixed();
        // Without a number for its text it is as if there were several.
        let hash_number = hash.filter(|hash| !hash.is_empty()).and_then(|hash| self.numbering.text(hash));
        let hash_state = if hash_number.is_some() { 2 } else { u8::from(hash.is_some()) };
        let placed = kind | (row.role as u8) << 2 | (identity as u8) << 3;
        self.main.byte(placed | u8::from(order.is_some()) << 5 | hash_state << 6);
        self.main.byte(row.class as u8);
        self.endpoint(row.server);
        if kind != 2 {
            self.main.varint(u64::from(number));
        }
        if let Some(order) = order {
            self.main.varint(u64::from(order));
        }
        let orders: Vec<u32> = row.ordered_ids.iter().filter_map(|id| self.numbering.order(*id)).collect();
        self.main.varint(orders.len() as u64);
        orders.iter().for_each(|order| self.main.varint(u64::from(*order)));
        if let Some(number) = hash_number {
            self.main.varint(u64::from(number));
        }
        let sources = row.sources().fold(0, |bits, source| bits | 1 << source as u8);
        self.main.byte(sources | if row.split.is_some() { HAS_SPLIT } else { 0 });
        for source in Source::ALL {
            if let Some(observed) = row.observed_by(source) {
                self.observed(observed);
            }
        }
        if let Some(split) = &row.split {
            write_split(split, &mut self.main, self.numbering);
        }
    }

    fn observed(&mut self, observed: &Observed) {
        let figures = &observed.figures;
        self.figures(figures);
        let latency_ns = u64::try_from(figures.latency.sum_ns()).unwrap_or(u64::MAX);
        let all = Share { calls: figures.calls, failed: figures.failed, latency_ns };
        // An application without a number is one of the others.
        let mut other = observed.apps.other;
        let mut apps = Vec::with_capacity(observed.apps.len());
        for (app, share) in observed.apps.iter() {
            match self.numbering.application(app) {
                Some(number) => apps.push((u64::from(number), *share)),
                None => other += *share,
            }
        }
        self.shares(&apps, other, all);
        let clients: Vec<_> =
            observed.clients.iter().map(|(ip, share)| (self.addresses.number(*ip), *share)).collect();
        self.shares(&clients, observed.clients.other, all);
        self.main.count(observed.in_flight.count);
        self.main.varint(observed.in_flight.oldest_ns);
    }

    fn figures(&mut self, figures: &Figures) {
        let calls = figures.calls;
        self.main.count(calls);
        self.main.near(figures.entries, calls);
        self.main.near(figures.statements, calls);
        for count in [figures.failed, figures.unanswered, figures.unacknowledged, figures.outcome_unknown] {
            self.main.count(count);
        }
        self.main.varint(figures.errors.len() as u64);
        for (code, count) in figures.errors.iter() {
            self.main.zigzag(i64::from(*code));
            self.main.count(*count);
        }
        self.main.count(figures.errors.other);
        self.histogram(&figures.latency);
        self.main.varint(figures.transfer_ns);
        self.main.count(figures.request_bytes);
        for sum in [figures.response_bytes, figures.returned, figures.affected] {
            self.sum(sum);
        }
        self.time(figures.first_seen);
        self.main.zigzag(figures.last_seen.unix_ns().wrapping_sub(figures.first_seen.unix_ns()) as i64);
        self.main.byte(u8::from(figures.knows_execution()));
        if let Some(server) = &figures.server {
            self.execution(server);
        }
    }

    fn sum(&mut self, sum: Sum) {
        self.main.count(sum.known);
        self.main.varint(sum.total);
    }

    fn histogram(&mut self, histogram: &Histogram) {
        self.main.count(histogram.zero_count());
        self.main.varint(histogram.buckets().count() as u64);
        self.main.wide(histogram.sum_ns());
        let shortest = histogram.min_ns().unwrap_or(0);
        self.main.varint(shortest);
        self.main.varint(histogram.max_ns().unwrap_or(0) - shortest);
        let mut before = None;
        for (index, count) in histogram.buckets() {
            match before {
                None => self.gaps.zigzag(i64::from(index)),
                Some(before) => self.gaps.varint((index - before - 1) as u64),
            }
            before = Some(index);
            self.counts.count(count - 1);
        }
    }

    fn execution(&mut self, server: &ServerFigures) {
        let ExecutionTotals { sums, collection_scans, memory_sorts, used_disk, replanned } = server.totals;
        let sums = sums.iter();
        let known = || sums.iter().enumerate().filter(|(_, (_, sum))| *sum != Sum::default());
        self.main.varint(known().count() as u64);
        for (at, (_, sum)) in known() {
            self.main.varint(at as u64);
            self.sum(*sum);
        }
        for count in [collection_scans, memory_sorts, used_disk, replanned] {
            self.main.count(count);
        }
        let mut other = server.plans.other;
        let mut plans: Vec<(u32, PlanUse)> = Vec::with_capacity(server.plans.len());
        for (plan, used) in server.plans.iter() {
            match self.numbering.text(plan) {
                Some(number) => plans.push((number, *used)),
                None => other += *used,
            }
        }
        self.main.varint(plans.len() as u64);
        for (number, used) in plans {
            self.main.varint(u64::from(number));
            self.main.count(used.calls);
            self.main.count(used.memory_sorts);
        }
        self.main.count(other.calls);
        self.main.count(other.memory_sorts);
    }

    /// Usually the shares add up to all operations, so that the last one is three zeros.
    fn shares(&mut self, shares: &[(u64, Share)], other: Share, all: Share) {
        let mut left = minus(all, other);
        self.main.varint(shares.len() as u64);
        for (at, (key, share)) in shares.iter().enumerate() {
            self.main.varint(*key);
            if at + 1 < shares.len() {
                self.share(*share);
                left = minus(left, *share);
            } else {
                let Share { calls, failed, latency_ns } = minus(left, *share);
                [calls, failed, latency_ns].into_iter().for_each(|left| self.main.zigzag(left as i64));
            }
        }
        self.share(other);
    }

    fn share(&mut self, share: Share) {
        self.main.count(share.calls);
        self.main.count(share.failed);
        self.main.varint(share.latency_ns);
    }

    fn in_flight(&mut self, one: &InFlightOperations) {
        self.endpoint(one.server);
        self.role_and_class(one.role, one.class);
        let number = self.numbering.shape(&one.shape).unwrap_or(OTHER);
        self.main.varint(u64::from(number));
        self.main.count(one.count);
        self.main.varint(one.oldest_ns);
    }

    /// Returns the number of series without a number.
    fn series(&mut self, part: &StoredWindow) -> u64 {
        let numbered: Vec<_> = part
            .window
            .series
            .iter()
            .filter_map(|(key, value)| Some((self.numbering.series(key)?, *value)))
            .collect();
        let left_out = part.window.series.len() - numbered.len();
        self.main.varint(numbered.len() as u64);
        let mut before = SeriesValue::default();
        for (number, value) in numbered {
            self.main.varint(u64::from(number));
            self.value(&value, &before);
            before = value;
        }
        left_out as u64
    }

    fn value(&mut self, value: &SeriesValue, before: &SeriesValue) {
        let SeriesValue { seconds, weighted, min, max, last, last_at } = *value;
        let differs = |one: f64, other: f64| one.to_bits() != other.to_bits();
        let flags = [
            differs(seconds, before.seconds),
            last_at != before.last_at,
            differs(weighted, last * seconds),
            differs(min, last),
            differs(max, last),
        ];
        self.main.byte(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
        let main = &mut self.main;
        if flags[0] {
            main.bytes(&seconds.to_bits().to_le_bytes());
        }
        if flags[1] {
            main.zigzag(last_at.unix_ns().wrapping_sub(self.start.unix_ns()) as i64);
        }
        main.float(last);
        if flags[2] {
            main.bytes(&weighted.to_bits().to_le_bytes());
        }
        if flags[3] {
            main.float(min);
        }
        if flags[4] {
            main.float(max);
        }
    }
}

fn minus(one: Share, other: Share) -> Share {
    Share {
        calls: one.calls.wrapping_sub(other.calls),
        failed: one.failed.wrapping_sub(other.failed),
        latency_ns: one.latency_ns.wrapping_sub(other.latency_ns),
    }
}
