//! The cost of following TCP streams, per segment: in order, across one flow and many, and out of order.
//!
//! The segments carry 200 bytes and alternate between the two directions, each acknowledging the other.
//! With many flows the next segment is hardly ever of the same flow as the last.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use sonar_core::{Coverage, Endpoint, Timestamp};
use sonar_decode::frame::{Segment, TcpFlags};
use sonar_decode::tcp::{Chunk, Close, Flow, FlowTable, Gap, Lost, Side, StreamHandler, Verdict};

const PAYLOAD: usize = 200;
const ACK: u8 = 0x10;
const BATCH: usize = 40_000;

/// Adds up what it gets.
#[derive(Default)]
struct Sum(u64);

impl StreamHandler for Sum {
    type Connection = u64;

    fn open(&mut self, _: &Flow) -> u64 {
        0
    }

    fn data(&mut self, _: &Flow, conn: &mut u64, chunk: Chunk<'_>) -> Verdict {
        *conn += chunk.bytes.len() as u64;
        self.0 += 1;
        Verdict::Continue
    }

    fn gap(&mut self, _: &Flow, _: &mut u64, gap: Gap) {
        assert_eq!(gap.lost, Lost::Unknown);
    }

    fn fin(&mut self, _: &Flow, _: &mut u64, _: Side, _: Timestamp) {}

    fn close(&mut self, _: &Flow, _: u64, _: Timestamp, _: Close) {}
}

/// Sends segments of this many flows in turn, at one time per second for all, as on a busy server.
struct Wire {
    table: FlowTable<u64>,
    coverage: Coverage,
    sum: Sum,
    clients: Vec<Endpoint>,
    next: Vec<[u32; 2]>,
    turn: usize,
    now: u64,
}

const SERVER: Endpoint = Endpoint::v4([10, 0, 0, 1], 27017);
const BYTES: [u8; PAYLOAD] = [7; PAYLOAD];

impl Wire {
    fn new(flows: usize) -> Self {
        let clients = (0..flows).map(|i| {
            let address = 0x0a01_0000 + (i % 997) as u32;
            Endpoint::v4(address.to_be_bytes(), 20_000 + (i / 997) as u16)
        });
        let mut wire = Self {
            table: FlowTable::default(),
            coverage: Coverage::default(),
            sum: Sum::default(),
            clients: clients.collect(),
            next: vec![[1, 1]; flows],
            turn: 0,
            now: 1_700_000_000_000_000_000,
        };
        // After the first segments of each flow, which are noted for twins.
        (0..flows * 2 * 10).for_each(|_| wire.segment(0));
        wire
    }

    #[inline]
    fn segment(&mut self, ahead: u32) {
        let flow = self.turn % self.clients.len();
        let from_client = (self.turn / self.clients.len()).is_multiple_of(2);
        self.turn += 1;
        let client = self.clients[flow];
        let (source, destination) = if from_client { (client, SERVER) } else { (SERVER, client) };
        let seq = self.next[flow][usize::from(from_client)];
        let ack = self.next[flow][usize::from(!from_client)];
        self.now += 1_000;
        let segment = Segment {
            time: Timestamp::from_unix_ns(self.now),
            place: 1,
            source,
            destination,
            seq: seq.wrapping_add(ahead),
            ack,
            flags: TcpFlags::from_byte(ACK),
            payload: black_box(&BYTES),
            missing: 0,
        };
        if ahead == 0 {
            self.next[flow][usize::from(from_client)] = seq.wrapping_add(PAYLOAD as u32);
        }
        self.table.segment(&segment, &mut self.coverage, &mut self.sum);
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    let mut group = criterion.benchmark_group("tcp");
    group.throughput(Throughput::Elements(BATCH as u64));
    for flows in [1, 100, 10_000] {
        let mut wire = Wire::new(flows);
        let before = wire.coverage;
        group.bench_function(BenchmarkId::new("in order, flows", flows), |bencher| {
            bencher.iter(|| (0..BATCH).for_each(|_| wire.segment(0)));
        });
        let counted = wire.coverage.since(&before);
        assert_eq!((counted.segments_data, counted.gaps), (counted.frames_decoded, 0));
        println!("  {flows} flows take {} KiB", wire.table.heap_bytes() / 1024);
    }
    // In each flow the client's segments come in pairs in the wrong order.
    let mut wire = Wire::new(1);
    let before = wire.coverage;
    group.bench_function("client's segments swapped, flows/1", |bencher| {
        bencher.iter(|| {
            for _ in 0..BATCH / 3 {
                wire.segment(PAYLOAD as u32);
                wire.turn -= 1;
                wire.segment(0);
                wire.next[0][1] = wire.next[0][1].wrapping_add(PAYLOAD as u32);
                wire.segment(0);
            }
        });
    });
    let counted = wire.coverage.since(&before);
    assert_eq!((counted.segments_reordered * 3, counted.gaps), (counted.segments_data, 0));
    group.finish();
}
