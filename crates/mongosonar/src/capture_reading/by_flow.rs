//! Reads a capture file on several threads: one reads and puts the streams of all connections in order, some decode
//! connections, each its own, and the calling one takes the operations of all in their order.
//!
//! No thread waits for one that waits for it: batches go from the reader over a worker to the caller, who takes those
//! of one round from each worker in turn. Each round has a batch for each worker, and the reader sends all of them
//! before those of the next.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use anyhow::Result;
use sonar_core::{Coverage, InFlightOperations, Packet, Timestamp};
use sonar_decode::{
    EndedClient, FlowBatch, FlowMerger, FlowSplitter, FlowWorker, FlowWorkers, KeyLog, Settings,
};

use super::capture_file::read as read_packets;
use super::packet_times::{PacketReading, PacketTarget, ReadingShare};
use super::plan::{CapturePlan, CaptureRead, CaptureSink, IntervalEnd};

/// Rounds that wait at each place.
const AHEAD: usize = 2;
/// Bytes of a round for all workers, and steps: enough to make waking up a thread cheap.
const ROUND_BYTES: usize = 512 << 10;
const ROUND_STEPS: usize = 4_096;

/// What follows the operations of a round.
#[derive(Copy, Clone)]
enum RoundMark {
    Nothing,
    /// The first interval begins.
    Begin(Timestamp),
    Interval {
        end: Timestamp,
        next: Timestamp,
    },
    /// The last packet has been read.
    LastPacket(Timestamp),
    /// All connections have ended.
    End(Timestamp),
}

/// What the reader tells the caller of a round.
struct FlowRound {
    own: FlowBatch,
    mark: RoundMark,
}

/// Where the batches of one worker go, and where used ones come back.
struct WorkerLine {
    batches: SyncSender<FlowBatch>,
    used: Receiver<FlowBatch>,
}

/// Divides packets among workers.
struct RoundSender {
    splitter: FlowSplitter,
    workers: Vec<WorkerLine>,
    rounds: SyncSender<FlowRound>,
    /// Nobody takes what is sent.
    is_orphaned: bool,
}

impl RoundSender {
    /// Sends what there is as a round.
    fn send(&mut self, mark: RoundMark) {
        let used = self.workers.iter().map(|worker| worker.used.try_recv().unwrap_or_default());
        let mut batches: Vec<FlowBatch> = used.collect();
        let own =
            self.splitter.exchange(&mut batches, !matches!(mark, RoundMark::Nothing | RoundMark::Begin(_)));
        for (worker, batch) in self.workers.iter().zip(batches) {
            self.is_orphaned |= worker.batches.send(batch).is_err();
        }
        self.is_orphaned |= self.rounds.send(FlowRound { own, mark }).is_err();
    }
}

impl PacketTarget for RoundSender {
    fn begin(&mut self, start: Timestamp) -> Result<()> {
        self.send(RoundMark::Begin(start));
        Ok(())
    }

    fn interval(&mut self, end: Timestamp, next: Timestamp) -> Result<()> {
        self.send(RoundMark::Interval { end, next });
        Ok(())
    }

    fn clients_ended(&mut self, clients: Vec<EndedClient>) {
        self.splitter.clients_ended(clients);
    }

    fn tick(&mut self, now: Timestamp) {
        self.splitter.tick(now);
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>> {
        self.splitter.packet(packet);
        let (bytes, steps) = self.splitter.work();
        if bytes >= ROUND_BYTES || steps >= ROUND_STEPS {
            self.send(RoundMark::Nothing);
        }
        Ok(if self.is_orphaned { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn waiting(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Reads the packets of a file.
fn split(
    path: &Path,
    plan: &CapturePlan<'_>,
    share: ReadingShare,
    target: RoundSender,
) -> Result<CaptureRead> {
    let mut reading = PacketReading::new(plan, share, target);
    let end = read_packets(path, plan.stop, &mut reading)?;
    let (read, mut target) = reading.split(end);
    let last = read.span.1;
    target.splitter.close_gaps(last);
    target.send(RoundMark::LastPacket(last));
    target.splitter.finish(last);
    target.send(RoundMark::End(last));
    Ok(read)
}

/// Where the decoded batches of one worker come from, and where used ones go.
struct DecodedLine {
    batches: Receiver<FlowBatch>,
    used: Sender<FlowBatch>,
}

/// Takes the operations of all rounds.
struct RoundMerger<'a, S> {
    merger: FlowMerger,
    workers: Vec<DecodedLine>,
    sink: &'a mut S,
    in_flight: Vec<InFlightOperations>,
    coverage: Coverage,
}

/// What becomes of the rounds.
#[derive(PartialEq, Eq)]
enum MergeOutcome {
    All,
    /// From here on the outcome depends on which thread comes first.
    DependsOnOrder,
}

impl<S: CaptureSink> RoundMerger<'_, S> {
    fn run(&mut self, rounds: &Receiver<FlowRound>) -> Result<MergeOutcome> {
        for FlowRound { own, mark } in rounds {
            let mut batches: Vec<_> =
                self.workers.iter().filter_map(|worker| worker.batches.recv().ok()).collect();
            // A worker that is gone has panicked, which the scope reports.
            if batches.len() < self.workers.len() {
                break;
            }
            batches.push(own);
            if FlowMerger::depends_on_order(&batches) {
                return Ok(MergeOutcome::DependsOnOrder);
            }
            self.merger.merge(&batches, self.sink);
            self.sink.check()?;
            self.mark(mark, &mut batches)?;
            for (worker, batch) in self.workers.iter().zip(batches) {
                // The reader may have ended.
                let _ = worker.used.send(batch);
            }
        }
        Ok(MergeOutcome::All)
    }

    fn mark(&mut self, mark: RoundMark, batches: &mut [FlowBatch]) -> Result<()> {
        match mark {
            RoundMark::Nothing => {}
            RoundMark::Begin(start) => self.sink.begin(start),
            RoundMark::Interval { end, next } => {
                let (coverage, in_flight) = self.merger.snapshot(batches, end);
                self.sink.interval(IntervalEnd { end, next, coverage, in_flight })?;
            }
            RoundMark::LastPacket(last) => self.in_flight = self.merger.snapshot(batches, last).1,
            RoundMark::End(last) => self.coverage = self.merger.snapshot(batches, last).0,
        }
        Ok(())
    }
}

/// Reads a capture file with `threads` workers. Returns `None` if the outcome would depend on which of them comes first
/// from some packet on; `sink` has received everything up to there.
pub fn read<S: CaptureSink>(
    path: &Path,
    plan: &CapturePlan<'_>,
    sink: &mut S,
    threads: usize,
) -> Result<Option<CaptureRead>> {
    // Of its own, because the file may be read again, and brings its secrets again.
    let keys = Arc::new(plan.settings.keys.as_deref().map(KeyLog::copy).unwrap_or_default());
    let workers = FlowWorkers::new(Settings { keys: Some(keys.clone()), ..plan.settings.clone() }, threads);
    let share = ReadingShare { shared: workers.shared().clone(), keys };
    let read = thread::scope(|scope| {
        let (mut to_workers, mut from_workers) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (to_worker, batches) = sync_channel::<FlowBatch>(AHEAD);
            let (decoded, from_worker) = sync_channel(AHEAD);
            let (give_back, used) = channel();
            let mut worker = FlowWorker::new(&workers);
            scope.spawn(move || {
                for mut batch in batches {
                    worker.decode(&mut batch);
                    if decoded.send(batch).is_err() {
                        return;
                    }
                }
            });
            to_workers.push(WorkerLine { batches: to_worker, used });
            from_workers.push(DecodedLine { batches: from_worker, used: give_back });
        }
        let (rounds, from_splitter) = sync_channel(AHEAD);
        let splitter = FlowSplitter::new(&workers);
        let target = RoundSender { splitter, workers: to_workers, rounds, is_orphaned: false };
        let reader = scope.spawn(|| split(path, plan, share, target));
        let merger = FlowMerger::new(&workers);
        let (in_flight, coverage) = (Vec::new(), Coverage::default());
        let mut merging = RoundMerger { merger, workers: from_workers, sink, in_flight, coverage };
        let merged = merging.run(&from_splitter);
        let RoundMerger { workers, in_flight, coverage, .. } = merging;
        // Whoever still sends notices that nobody takes it.
        drop((from_splitter, workers));
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if merged? == MergeOutcome::DependsOnOrder {
            return Ok(None);
        }
        let read = read?;
        let mut all = coverage;
        all.add(&read.coverage);
        anyhow::Ok(Some(CaptureRead { coverage: all, in_flight, ..read }))
    })?;
    // All workers have ended.
    Ok(read.map(|read| CaptureRead { undecrypted: workers.shared().undecrypted(), ..read }))
}
