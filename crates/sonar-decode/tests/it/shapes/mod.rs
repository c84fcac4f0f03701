//! Operations on the wire of a recording, by shape, for tests of other sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use sonar_core::{Execution, Identity, Operation};
use sonar_decode::capture_file::{CaptureParser, Step};
use sonar_decode::entry;
use sonar_decode::testing::fixtures::inflated;
use sonar_decode::{Decoder, Settings, Shared, Sink};

/// Statements by shape id and, for commands that are no bulk of several shapes, by ordered id.
#[derive(Default)]
pub struct Shapes {
    pub counts: BTreeMap<u64, u64>,
    pub ordered: BTreeMap<(u64, u64), u64>,
    pub texts: BTreeMap<u64, String>,
    /// Commands whose statements the source leaves out.
    pub unsaid: BTreeMap<String, u64>,
    /// Begin of the first operation and end of the last, in nanoseconds.
    pub first: u64,
    pub last: u64,
    /// On the wire, only operations on this database and port; empty for all.
    pub database: &'static str,
    pub port: u16,
}

impl Shapes {
    fn add(&mut self, op: &Operation<'_>, identity: Identity) {
        if identity == Identity::Unknown {
            let key = format!("{} {}", op.shape.command, op.shape.namespace());
            *self.unsaid.entry(key).or_default() += 1;
            return;
        }
        assert_eq!(identity, Identity::Exact, "{} {}", op.command, op.shape.typed);
        self.first = self.first.min(op.start.unix_ns());
        self.last = self.last.max(op.end.unix_ns());
        let text = format!("{} {} {}", op.shape.command, op.shape.namespace(), op.shape.typed);
        self.texts.insert(op.shape.id.0, text);
        for statement in op.statements {
            *self.counts.entry(statement.shape.0).or_default() += u64::from(statement.count);
        }
        if op.statements.is_empty() {
            let count = u64::from(op.statement_count);
            *self.counts.entry(op.shape.id.0).or_default() += count;
            *self.ordered.entry((op.shape.id.0, op.ordered_id.0)).or_default() += count;
        }
    }
}

impl Sink for Shapes {
    fn operation(&mut self, op: &Operation<'_>) {
        if (self.database.is_empty() || &*op.shape.database == self.database) && op.server.port == self.port {
            self.add(op, Identity::Exact);
        }
    }
}

impl entry::EntrySink for Shapes {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, _: &Execution<'_>, _: u64) {
        self.add(op, identity);
    }
}

pub fn wire(name: &str, database: &'static str, port: u16) -> Shapes {
    let mut shapes = Shapes { database, port, first: u64::MAX, ..Shapes::default() };
    decode(name, &mut shapes);
    shapes
}

/// Decodes the capture of a recording.
pub fn decode(name: &str, sink: &mut impl Sink) {
    let bytes = inflated(&format!("{name}/wire.pcap.gz"));
    let (mut parser, mut at) = (CaptureParser::new(), 0);
    let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
    let mut last = Default::default();
    loop {
        match parser.next(&bytes[at..]).unwrap() {
            Step::Packet { packet, consumed } => {
                last = packet.time;
                decoder.packet(&packet, sink);
                at += consumed;
            }
            Step::Skip { consumed } | Step::Secrets { consumed, .. } => at += consumed,
            Step::Need { .. } => break,
        }
    }
    decoder.finish(last, sink);
}

/// Drops everything.
pub struct Nobody;

impl entry::EntrySink for Nobody {
    fn operation(&mut self, _: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {}
}
