//! Decodes the packets of a file by flow, so that several threads can share the work.
//!
//! A [`FlowSplitter`] takes the packets and puts their streams in order. What comes of each connection it hands to
//! one of several [`FlowWorker`]s, in [`FlowBatch`]es. A [`FlowMerger`] hands on the operations of all of them in the
//! order in which one [`Decoder`](super::Decoder) does: for each step that the splitter makes, in the order of flows.
//!
//! A connection stays with the splitter until it is known to be MongoDB's, because the flow table has to know of one
//! that is not. Where the outcome could depend on which worker comes first, [`FlowMerger::depends_on_order`] says so,
//! and nothing of that batch must be used: a table is full, or its share of memory is used up, which is an equal one
//! for each thread.

use std::sync::Arc;

use sonar_core::{Application, Coverage, Endpoint, InFlightOperations, Packet, Role, Timestamp, TlsSuite};

use super::connection::Connection;
use super::emission::{Emitter, EndedSink, OperationParties, WaitingRequest};
use super::ended_clients::{EndedClient, EndedClients};
use super::exchange::EndedOperation;
use super::intake::PacketIntake;
use super::settings::{Settings, Sink};
use super::stages::Stages;
use crate::identity::Shared;
use crate::tcp::{Chunk, Close, Flow, FlowLimits, FlowTable, Gap, Side, StreamHandler, Unheard, Verdict};

/// What a connection goes through.
enum FlowEvent {
    /// A worker decodes the connection from now on.
    Begin(Box<Connection>),
    /// `length` bytes from one side.
    Data { side: Side, time: Timestamp, length: usize },
    /// Bytes of one side are missing.
    Gap(Gap),
    /// One side has sent all that it will send.
    Fin(Side, Timestamp),
    /// Its server refuses connections.
    Refused(Timestamp),
    /// One of its directions is not captured, or is after all.
    Unheard(Unheard),
    /// It ends.
    Close(Timestamp, Close),
}

/// What happens at a step.
enum FlowStep {
    /// To one flow.
    Flow(u32, FlowEvent),
    /// To all flows: see [`Decoder::tick`](super::Decoder::tick).
    Tick(Timestamp),
}

/// An operation that has ended.
struct FlowOperation {
    /// At which step, and in which flow.
    order: (u64, u32),
    client: Endpoint,
    server: Endpoint,
    role: Role,
    app: Arc<Application>,
    suite: Option<TlsSuite>,
    ended: EndedOperation,
}

/// Work for one worker, and what it came to.
#[derive(Default)]
pub struct FlowBatch {
    steps: Vec<(u64, FlowStep)>,
    /// The bytes of all data, one after another.
    bytes: Vec<u8>,
    operations: Vec<FlowOperation>,
    /// The counters after it, and the requests that wait then, by flow; where the splitter wants to know.
    snapshot: Option<Box<FlowSnapshot>>,
    wants_snapshot: bool,
    depends_on_order: bool,
}

#[derive(Default)]
struct FlowSnapshot {
    coverage: Coverage,
    waiting: Vec<(u32, WaitingRequest)>,
}

impl FlowSnapshot {
    fn of<'a>(stages: &Stages, connections: impl Iterator<Item = &'a Connection>) -> Self {
        let waiting = connections.flat_map(|conn| WaitingRequest::all_of(conn).map(|one| (conn.flow, one)));
        Self { coverage: stages.coverage(), waiting: waiting.collect() }
    }
}

/// Collects the operations that end at one step.
struct FlowCollector<'a> {
    step: u64,
    operations: &'a mut Vec<FlowOperation>,
}

impl EndedSink for FlowCollector<'_> {
    fn take(&mut self, parties: OperationParties<'_>, ended: &mut Vec<EndedOperation>) {
        let OperationParties { flow, client, server, role, app, suite } = parties;
        let order = (self.step, flow);
        let each = |ended| FlowOperation { order, client, server, role, app: app.clone(), suite, ended };
        self.operations.extend(ended.drain(..).map(each));
    }
}

/// What the threads that decode one file have in common.
#[derive(Clone)]
pub struct FlowWorkers {
    settings: Settings,
    shared: Arc<Shared>,
    count: usize,
}

impl FlowWorkers {
    /// `count` workers, at least one.
    pub fn new(settings: Settings, count: usize) -> Self {
        Self { settings, shared: Arc::new(Shared::by_flow()), count: count.max(1) }
    }

    /// What they share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn stages(&self) -> Stages {
        // The splitter has a share too.
        Stages::new(self.settings.clone(), self.shared.clone()).with_share(self.count + 1)
    }
}

/// Divides what packets bring among workers.
pub struct FlowSplitter {
    intake: PacketIntake,
    /// With the connections that no worker has yet.
    flows: FlowTable<Option<Box<Connection>>>,
    division: FlowDivision,
    ended_clients: EndedClients,
}

/// The steps of the workers.
struct FlowDivision {
    shared: Arc<Shared>,
    stages: Stages,
    step: u64,
    batches: Vec<FlowBatch>,
    /// Its own operations.
    operations: Vec<FlowOperation>,
    /// Bytes and steps since the last exchange.
    bytes: usize,
    steps: usize,
}

impl FlowDivision {
    fn next_step(&mut self) {
        self.step += 1;
        self.steps += 1;
    }

    fn push(&mut self, flow: &Flow, event: FlowEvent) {
        let worker = flow.number as usize % self.batches.len();
        self.batches[worker].steps.push((self.step, FlowStep::Flow(flow.number, event)));
    }
}

impl StreamHandler for FlowDivision {
    type Connection = Option<Box<Connection>>;

    fn open(&mut self, flow: &Flow) -> Self::Connection {
        Some(Box::new(self.stages.open(flow)))
    }

    fn data(&mut self, flow: &Flow, conn: &mut Self::Connection, chunk: Chunk<'_>) -> Verdict {
        self.next_step();
        let Some(own) = conn else {
            let Chunk { side, time, bytes } = chunk;
            let worker = flow.number as usize % self.batches.len();
            self.batches[worker].bytes.extend_from_slice(bytes);
            self.bytes += bytes.len();
            self.push(flow, FlowEvent::Data { side, time, length: bytes.len() });
            return Verdict::Continue;
        };
        let mut out = FlowCollector { step: self.step, operations: &mut self.operations };
        let verdict = self.stages.data(own, chunk, &mut out);
        if own.facts.is_mongodb
            && let Some(conn) = conn.take()
        {
            self.stages.hand_over(&conn);
            self.push(flow, FlowEvent::Begin(conn));
        }
        verdict
    }

    fn gap(&mut self, flow: &Flow, conn: &mut Self::Connection, gap: Gap) {
        self.next_step();
        match conn {
            Some(own) => {
                let mut out = FlowCollector { step: self.step, operations: &mut self.operations };
                self.stages.gap(own, &gap, &mut out);
            }
            None => self.push(flow, FlowEvent::Gap(gap)),
        }
    }

    fn fin(&mut self, flow: &Flow, conn: &mut Self::Connection, side: Side, time: Timestamp) {
        self.next_step();
        match conn {
            Some(own) => {
                let mut out = FlowCollector { step: self.step, operations: &mut self.operations };
                self.stages.fin(own, side, time, &mut out);
            }
            None => self.push(flow, FlowEvent::Fin(side, time)),
        }
    }

    fn refused(&mut self, flow: &Flow, conn: &mut Self::Connection, time: Timestamp) {
        self.next_step();
        match conn {
            Some(own) => own.exchange.refused = Some(time),
            None => self.push(flow, FlowEvent::Refused(time)),
        }
    }

    fn unheard(&mut self, flow: &Flow, conn: &mut Self::Connection, unheard: Unheard) {
        self.next_step();
        match conn {
            Some(own) => self.stages.unheard(own, unheard),
            None => self.push(flow, FlowEvent::Unheard(unheard)),
        }
    }

    fn close(&mut self, flow: &Flow, conn: Self::Connection, time: Timestamp, how: Close) {
        self.next_step();
        match conn {
            Some(own) => {
                let mut out = FlowCollector { step: self.step, operations: &mut self.operations };
                self.stages.close(*own, time, how, &mut out);
            }
            None => self.push(flow, FlowEvent::Close(time, how)),
        }
    }
}

impl FlowSplitter {
    /// Divides among these workers.
    pub fn new(workers: &FlowWorkers) -> Self {
        let division = FlowDivision {
            shared: workers.shared.clone(),
            stages: workers.stages(),
            step: 0,
            batches: (0..workers.count).map(|_| FlowBatch::default()).collect(),
            operations: Vec::new(),
            bytes: 0,
            steps: 0,
        };
        let flows = FlowTable::new(FlowLimits::default(), workers.shared.twins());
        let ended_clients = EndedClients::share(1);
        Self { intake: PacketIntake::new(&workers.settings), flows, division, ended_clients }
    }

    /// Takes one packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let Self { intake, flows, division, .. } = self;
        if let Some(segment) = intake.segment(packet, &division.stages.ports) {
            flows.segment(&segment, &mut intake.coverage, division);
            division.stages.note_caps();
        }
    }

    /// As [`Decoder::clients_ended`](super::Decoder::clients_ended).
    pub fn clients_ended(&mut self, clients: impl IntoIterator<Item = EndedClient>) {
        self.intake.coverage.ends_left_out += self.ended_clients.add(clients);
    }

    /// As [`Decoder::tick`](super::Decoder::tick).
    pub fn tick(&mut self, now: Timestamp) {
        let Self { intake, flows, division, ended_clients } = self;
        let clients = ended_clients.take_until(now, flows.ends());
        flows.tick(now, &mut intake.coverage, division);
        if !clients.is_empty() {
            flows.end_where(|flow, _| clients.end_of(flow), &mut intake.coverage, division);
        }
        division.next_step();
        let FlowDivision { stages, step, operations, batches, .. } = division;
        let own = flows.iter_mut().filter_map(|(_, conn)| conn.as_deref_mut());
        stages.tick(own, now, &mut FlowCollector { step: *step, operations });
        batches.iter_mut().for_each(|batch| batch.steps.push((*step, FlowStep::Tick(now))));
    }

    /// Gives up what the capture has lost at its end. What is in flight after it is so in the end.
    pub fn close_gaps(&mut self, now: Timestamp) {
        let Self { intake, flows, division, .. } = self;
        flows.close_gaps(now, &mut intake.coverage, division);
    }

    /// As [`Decoder::finish`](super::Decoder::finish).
    pub fn finish(&mut self, now: Timestamp) {
        let Self { intake, flows, division, .. } = self;
        flows.finish(now, &mut intake.coverage, division);
    }

    /// How much work for the workers there is: bytes, and steps.
    pub fn work(&self) -> (usize, usize) {
        (self.division.bytes, self.division.steps)
    }

    /// Exchanges the batch of each worker for one that has been used. Returns a batch of its own, with what it has
    /// decoded itself. With `snapshot` the counters and waiting requests after them can be merged, too.
    pub fn exchange(&mut self, batches: &mut [FlowBatch], snapshot: bool) -> FlowBatch {
        let Self { intake, flows, division, .. } = self;
        (division.bytes, division.steps) = (0, 0);
        for (batch, other) in division.batches.iter_mut().zip(batches) {
            batch.wants_snapshot = snapshot;
            std::mem::swap(batch, other);
            batch.steps.clear();
            batch.bytes.clear();
        }
        let snapshot = snapshot.then(|| {
            let own = flows.iter().filter_map(|(_, conn)| conn.as_deref());
            let mut snapshot = FlowSnapshot::of(&division.stages, own);
            snapshot.coverage.add(&intake.coverage);
            Box::new(snapshot)
        });
        let operations = std::mem::take(&mut division.operations);
        let depends_on_order = division.stages.depends_on_order() || division.shared.depends_on_order();
        FlowBatch { operations, snapshot, depends_on_order, ..FlowBatch::default() }
    }
}

/// Decodes some of the connections.
pub struct FlowWorker {
    shared: Arc<Shared>,
    stages: Stages,
    /// By the number of their flow.
    connections: Vec<Option<Box<Connection>>>,
}

impl FlowWorker {
    /// One of these workers.
    pub fn new(workers: &FlowWorkers) -> Self {
        Self { shared: workers.shared.clone(), stages: workers.stages(), connections: Vec::new() }
    }

    /// Decodes a batch. Batches come in the order in which the splitter made them.
    pub fn decode(&mut self, batch: &mut FlowBatch) {
        // What the merger has used is freed by the thread that has made it.
        batch.operations.clear();
        let mut rest = batch.bytes.as_slice();
        for (step, what) in batch.steps.drain(..) {
            let mut out = FlowCollector { step, operations: &mut batch.operations };
            match what {
                FlowStep::Flow(flow, event) => {
                    let bytes = match event {
                        FlowEvent::Data { length, .. } => rest.split_off(..length).unwrap_or_default(),
                        _ => &[],
                    };
                    self.event(flow, event, bytes, &mut out);
                }
                FlowStep::Tick(now) => {
                    let connections = self.connections.iter_mut().flatten().map(|conn| &mut **conn);
                    self.stages.tick(connections, now, &mut out);
                }
            }
        }
        batch.snapshot = batch.wants_snapshot.then(|| {
            let connections = self.connections.iter().flatten().map(|conn| &**conn);
            Box::new(FlowSnapshot::of(&self.stages, connections))
        });
        batch.depends_on_order = self.stages.depends_on_order() || self.shared.depends_on_order();
    }

    fn event(&mut self, flow: u32, event: FlowEvent, bytes: &[u8], out: &mut FlowCollector<'_>) {
        let at = flow as usize;
        if let FlowEvent::Begin(mut conn) = event {
            self.stages.take_over(&mut conn);
            if self.connections.len() <= at {
                self.connections.resize_with(at + 1, || None);
            }
            self.connections[at] = Some(conn);
            return self.stages.note_caps();
        }
        let Some(slot) = self.connections.get_mut(at) else { return };
        let Some(conn) = slot else { return };
        match event {
            FlowEvent::Begin(_) => {}
            FlowEvent::Data { side, time, .. } => {
                // The flow table knows already that this stream is MongoDB's.
                let _ = self.stages.data(conn, Chunk { side, time, bytes }, out);
            }
            FlowEvent::Gap(gap) => self.stages.gap(conn, &gap, out),
            FlowEvent::Fin(side, time) => self.stages.fin(conn, side, time, out),
            FlowEvent::Refused(time) => conn.exchange.refused = Some(time),
            FlowEvent::Unheard(unheard) => self.stages.unheard(conn, unheard),
            FlowEvent::Close(time, how) => {
                if let Some(conn) = slot.take() {
                    self.stages.close(*conn, time, how, out);
                }
            }
        }
        self.stages.note_caps();
    }
}

/// Hands on the operations of all flows in their order.
pub struct FlowMerger {
    emitter: Emitter,
}

impl FlowMerger {
    /// Merges what these workers and their splitter have decoded.
    pub fn new(workers: &FlowWorkers) -> Self {
        Self { emitter: Emitter::new(workers.shared.clone(), false) }
    }

    /// Whether one decoder might not come to the same as these batches.
    pub fn depends_on_order(batches: &[FlowBatch]) -> bool {
        batches.iter().any(|batch| batch.depends_on_order)
    }

    /// Emits the operations of the batches that were exchanged at one time, that of the splitter among them.
    pub fn merge(&mut self, batches: &[FlowBatch], sink: &mut impl Sink) {
        let mut lists: Vec<&[FlowOperation]> = batches.iter().map(|batch| &*batch.operations).collect();
        loop {
            lists.retain(|list| !list.is_empty());
            lists.sort_unstable_by_key(|list| list.first().map(|operation| operation.order));
            let until = lists.get(1).and_then(|list| list.first()).map(|operation| operation.order);
            let Some(list) = lists.first_mut() else { return };
            while let Some((operation, rest)) = list.split_first()
                && until.is_none_or(|until| operation.order <= until)
            {
                let FlowOperation { order, client, server, role, app, suite, ended } = operation;
                let (flow, client, server, role, suite) = (order.1, *client, *server, *role, *suite);
                self.emitter.emit(OperationParties { flow, client, server, role, app, suite }, ended, sink);
                *list = rest;
            }
        }
    }

    /// The counters after these batches, and the operations in flight at `now`; nothing if no snapshot was asked for.
    pub fn snapshot(&self, batches: &mut [FlowBatch], now: Timestamp) -> (Coverage, Vec<InFlightOperations>) {
        let mut coverage = self.emitter.coverage;
        let mut waiting = Vec::new();
        for snapshot in batches.iter_mut().filter_map(|batch| batch.snapshot.take()) {
            coverage.add(&snapshot.coverage);
            waiting.extend(snapshot.waiting);
        }
        waiting.sort_by_key(|(flow, _)| *flow);
        (coverage, self.emitter.in_flight(waiting.into_iter().map(|(_, request)| request), now))
    }
}

#[cfg(test)]
mod tests;
