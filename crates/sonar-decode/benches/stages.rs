//! The cost of each stage: the shape of a known find, and a recording's frames from packet to figures, one stage more
//! at a time.
//!
//! `cargo bench -p sonar-decode --bench stages`

use std::hint::black_box;
use std::sync::Arc;

use bson::doc;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sonar_core::operation::Opcode;
use sonar_core::window::WindowSettings;
use sonar_core::{Coverage, Operation, Packet, Timestamp, Window};
use sonar_decode::capture_file::{CaptureParser, Step};
use sonar_decode::message::{MessageBody, MessageSource, Request, Template, TemplateMatch, Templates};
use sonar_decode::shape::Text;
use sonar_decode::tcp::{Chunk, Close, Flow, FlowTable, Gap, Side, StreamHandler, Verdict};
use sonar_decode::testing::fixtures::inflated;
use sonar_decode::{Decoder, Settings, Shared, Sink, frame};

fn find_of_ten_fields() -> Vec<u8> {
    let filter = doc! {"customer": 17, "status": "open", "total": {"$gt": 5.0}, "city": "Oslo", "country": "NO",
    "tags": {"$in": ["a", "b"]}, "paid": true, "created": bson::DateTime::from_millis(0), "items.sku": "x", "n": 3};
    let command = doc! {"find": "orders", "filter": filter, "sort": {"created": -1}, "limit": 10, "$db": "shop",
    "lsid": {"id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] }}};
    let bytes = command.to_vec().expect("a document");
    [&[0u8; 5], bytes.as_slice()].concat()
}

fn skim<T: Text>(request: &mut Request<T>, body: &mut MessageBody, bytes: &[u8]) -> u64 {
    request.reset(Opcode::Msg);
    body.begin(Opcode::Msg, bytes.len() as u64);
    let used = body.feed(bytes, &mut MessageSource::Request(request)).expect("a message");
    let ids = request.builder.finish();
    ids.unordered ^ ids.ordered ^ used as u64
}

fn shape(criterion: &mut Criterion) {
    let bytes = find_of_ten_fields();
    let (mut request, mut body) = (Request::<()>::default(), MessageBody::default());
    let mut group = criterion.benchmark_group("find of 10 fields");
    let mut templates = Templates::default();
    let TemplateMatch::Wanted(place) = templates.find(&bytes) else { panic!("known before it was seen") };
    let ids = skim(&mut request, &mut body, &bytes);
    let (template, _) = Template::new(&bytes, &mut request, ids).expect("a template");
    templates.add(place, template);
    group.bench_function("known layout: skim and both ids", |bencher| {
        bencher.iter(|| match templates.find(black_box(&bytes)) {
            TemplateMatch::Known(ids, _) => *ids,
            _ => panic!("not recognised"),
        });
    });
    group.bench_function("new layout: walk and both ids", |bencher| {
        bencher.iter(|| skim(&mut request, &mut body, black_box(&bytes)));
    });
    group.bench_function("bson: decode in full", |bencher| {
        bencher.iter(|| bson::Document::from_reader(black_box(&bytes[5..])).expect("a document"));
    });
    group.finish();
}

/// Drops everything.
struct Nothing(u64);

impl StreamHandler for Nothing {
    type Connection = ();
    fn open(&mut self, _: &Flow) {}
    fn data(&mut self, _: &Flow, (): &mut (), chunk: Chunk<'_>) -> Verdict {
        self.0 += chunk.bytes.len() as u64;
        Verdict::Continue
    }
    fn gap(&mut self, _: &Flow, (): &mut (), _: Gap) {}
    fn fin(&mut self, _: &Flow, (): &mut (), _: Side, _: Timestamp) {}
    fn close(&mut self, _: &Flow, (): (), _: Timestamp, _: Close) {}
}

impl Sink for Nothing {
    fn operation(&mut self, op: &Operation<'_>) {
        self.0 += op.request_bytes;
    }
}

struct Figures(Window);

impl Sink for Figures {
    fn operation(&mut self, op: &Operation<'_>) {
        self.0.record(op);
    }
}

/// The frames of small operations of the recording, as packets.
fn recording() -> Vec<u8> {
    inflated("mongod-4.0-mixed/wire.pcap.gz")
}

fn packets(bytes: &[u8]) -> Vec<Packet<'_>> {
    let (mut parser, mut at, mut packets) = (CaptureParser::new(), 0, Vec::new());
    while let Ok(step) = parser.next(&bytes[at..]) {
        match step {
            Step::Packet { packet, consumed } => {
                packets.push(packet);
                at += consumed;
            }
            Step::Skip { consumed } | Step::Secrets { consumed, .. } => at += consumed,
            Step::Need { .. } => break,
        }
    }
    packets.retain(|packet| packet.data.len() < 2_000);
    packets
}

fn stages(criterion: &mut Criterion) {
    let bytes = recording();
    let packets = packets(&bytes);
    let mut group = criterion.benchmark_group("frames of small operations");
    group.throughput(Throughput::Elements(packets.len() as u64)).sample_size(30);
    group.bench_function("1 headers", |bencher| {
        bencher.iter(|| {
            packets
                .iter()
                .filter_map(|packet| frame::decode(packet).ok())
                .map(|s| s.payload.len())
                .sum::<usize>()
        });
    });
    group.bench_function("2 and streams", |bencher| {
        bencher.iter(|| {
            let (mut flows, mut coverage, mut nothing) =
                (FlowTable::default(), Coverage::default(), Nothing(0));
            for packet in &packets {
                if let Ok(segment) = frame::decode(packet) {
                    flows.segment(&segment, &mut coverage, &mut nothing);
                }
            }
            nothing.0
        });
    });
    group.bench_function("3 and messages, shapes, pairs", |bencher| {
        bencher.iter(|| {
            let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
            let mut nothing = Nothing(0);
            packets.iter().for_each(|packet| decoder.packet(packet, &mut nothing));
            nothing.0
        });
    });
    group.bench_function("4 and figures", |bencher| {
        bencher.iter(|| {
            let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
            let mut figures = Figures(Window::new(Timestamp::default(), WindowSettings::default()));
            packets.iter().for_each(|packet| decoder.packet(packet, &mut figures));
            figures.0.shapes.len()
        });
    });
    group.finish();
}

criterion_group!(benches, shape, stages);
criterion_main!(benches);
