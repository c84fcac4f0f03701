//! Capture threads: each reads a ring, decodes its packets and hands over windows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::Coverage;
use sonar_core::window::WindowSettings;
use sonar_decode::{Decoder, Settings, Shared, TlsSource};
use sonar_sys::{PacketFilter, Ring, RingConfig, Stopper, Wake};

use super::changes::{CaptureChange, ChangeSenders};
use super::joiner::ThreadWindow;
use super::pipeline::{OperationListener, Pipeline, WindowLayout};
use super::source::{CaptureSource, CaptureWork};
use super::tls::TlsCapture;
use crate::args::when::now;
use crate::capture::args::EncryptedArg;
use crate::capture::notice::Notice;
use crate::capture::ports::CapturedPorts;
use crate::capture::write::SharedRecorder;
use crate::confinement::privileges;
use crate::confinement::start_order::{self, StartStep};
use crate::confinement::thread_starter::ThreadStarter;

/// When the kernel hands over a block that is not full. Fewer wake-ups cost less, because each one finds the
/// processor's caches cold.
pub const RETIRE: Duration = Duration::from_millis(250);
/// The same where each operation is written as it ends.
pub const RETIRE_EACH: Duration = Duration::from_millis(100);
/// The longest sleep of a capture thread, so that it soon captures other ports.
const LONG_NAP: Duration = Duration::from_secs(1);

/// A ring of packets.
struct RingSource {
    ring: Ring,
    filter: PacketFilter,
    /// How long after its arrival a packet may be handed over.
    delay: Duration,
}

impl CaptureSource for RingSource {
    fn thread_name(&self, number: usize) -> String {
        format!("capture-{number}")
    }

    fn tls(&self) -> Option<TlsSource> {
        None
    }

    fn stopper(&self) -> Option<Stopper> {
        Some(self.ring.stopper())
    }

    fn run(self: Box<Self>, work: CaptureWork) -> Result<()> {
        let Self { ring, filter, delay } = *self;
        CaptureThread { ring, filter, delay, before: Coverage::default(), work }.run()
    }
}

/// The thread of a ring.
struct CaptureThread {
    ring: Ring,
    filter: PacketFilter,
    delay: Duration,
    /// What the kernel lost of earlier rings.
    before: Coverage,
    work: CaptureWork,
}

impl CaptureThread {
    fn run(mut self) -> Result<()> {
        if self.work.confined {
            privileges::confine_decoder();
        }
        let captured = self.capture();
        // Whatever went wrong, what was captured is shown.
        self.count_drops();
        self.work.pipeline.finish(now());
        captured
    }

    /// Captures until it is to stop.
    fn capture(&mut self) -> Result<()> {
        while !self.work.pipeline.orphaned {
            let delay_ns = self.delay.as_nanos() as u64;
            let until = self.work.pipeline.boundary.plus_ns(delay_ns);
            let wait = Duration::from_nanos(until.since(now())).clamp(Duration::from_millis(1), LONG_NAP);
            let wake = self.ring.poll(wait)?;
            if wake == Wake::InterfaceDown {
                self.work.complaints.send(Notice::InterfaceDown).ok();
            }
            self.count_drops();
            self.read();
            self.follow();
            self.work.pipeline.look_at_clock(now(), delay_ns);
            if wake == Wake::Stopped || self.work.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let pipeline = &mut self.work.pipeline;
        self.ring.finish(|packet| pipeline.packet(&packet))?;
        Ok(())
    }

    /// Applies changes.
    fn follow(&mut self) {
        while let Ok(change) = self.work.changes.try_recv() {
            match change {
                CaptureChange::Ports(listened) => {
                    let filter = PacketFilter { ports: listened.ranges(), ..self.filter.clone() };
                    match self.ring.set_filter(&filter) {
                        Ok(()) => self.set_ports(&listened),
                        Err(error) => {
                            let text = format!("cannot listen on {listened}: {error}");
                            self.work.complaints.send(Notice::Complaint(text)).ok();
                        }
                    }
                }
                CaptureChange::Ring { ring, filter, listened } => {
                    self.filter = filter;
                    self.set_ports(&listened);
                    self.replace_ring(*ring);
                }
                CaptureChange::EncryptedRead => self.work.pipeline.decoder.set_tls(TlsSource::Process),
                change => self.work.pipeline.follow(change),
            }
        }
    }

    fn set_ports(&mut self, listened: &CapturedPorts) {
        self.filter.ports = listened.ranges();
        self.work.pipeline.decoder.set_ports(listened.ports());
    }

    /// Reads the old ring to its end and goes on with the new one, which has been capturing for a moment.
    fn replace_ring(&mut self, mut ring: Ring) {
        ring.replace(&self.ring);
        let pipeline = &mut self.work.pipeline;
        let finished = self.ring.finish(|packet| pipeline.packet(&packet));
        self.count_drops();
        self.before = self.work.pipeline.kernel;
        self.ring = ring;
        if let Err(error) = finished {
            let text = format!("the rest of the old ring is lost: {error}");
            self.work.complaints.send(Notice::Complaint(text)).ok();
        }
    }

    /// Reads the packets in the ring.
    fn read(&mut self) {
        let pipeline = &mut self.work.pipeline;
        self.ring.for_each(|packet| pipeline.packet(&packet));
        self.work.pipeline.sink.flush();
    }

    fn count_drops(&mut self) {
        if let Ok(statistics) = self.ring.statistics() {
            self.work.pipeline.kernel = self.before;
            self.work.pipeline.kernel.add(&Coverage {
                kernel_drops: statistics.drops,
                kernel_freezes: statistics.freezes,
                kernel_blocks_malformed: statistics.malformed_blocks,
                ..Coverage::default()
            });
        }
    }
}

/// Sources that are open.
#[derive(Default)]
pub struct LiveCapture {
    sources: Vec<Box<dyn CaptureSource>>,
    /// Encrypted connections of some servers are read inside their processes.
    is_tls_read: bool,
}

/// What capture threads do.
#[derive(Default)]
pub struct CaptureTask {
    /// How they decode.
    pub settings: Settings,
    /// What all of them know.
    pub shared: Arc<Shared>,
    /// The width of their windows; not zero.
    pub interval: Duration,
    /// The settings of their windows.
    pub window: WindowSettings,
    /// Whether encrypted or plain operations are left out; `None` takes both.
    pub encrypted: Option<EncryptedArg>,
    /// Receives each operation.
    pub each: Option<Arc<Mutex<dyn OperationListener>>>,
    /// Writes each packet.
    pub keep: Option<SharedRecorder>,
    /// Ends them.
    pub stop: Arc<AtomicBool>,
    /// Whether they drop everything that decoding does not need.
    pub confined: bool,
    /// What starts them.
    pub threads: ThreadStarter,
}

/// Capture threads that run.
#[derive(Default)]
pub struct RunningCapture {
    /// Takes changes for all of them.
    pub changes: ChangeSenders,
    stop: Arc<AtomicBool>,
    stoppers: Vec<Stopper>,
    handles: Vec<JoinHandle<Result<()>>>,
}

impl LiveCapture {
    /// Opens a ring for each of `threads` threads.
    ///
    /// # Errors
    /// A permission or an interface is missing.
    pub fn open(config: &RingConfig, threads: usize) -> Result<Self> {
        start_order::take(StartStep::Opened);
        let rings = if threads == 1 { vec![Ring::open(config)?] } else { Ring::open_group(config, threads)? };
        Ok(Self::of(rings, &config.filter, config.retire))
    }

    /// Takes rings that are open, whose filter keeps the packets of `filter`.
    pub fn of(rings: Vec<Ring>, filter: &PacketFilter, retire: Duration) -> Self {
        // The kernel looks at a block twice before it takes it for one that does not fill.
        let delay = 2 * retire + Duration::from_millis(50);
        let source =
            |ring| -> Box<dyn CaptureSource> { Box::new(RingSource { ring, filter: filter.clone(), delay }) };
        Self { sources: rings.into_iter().map(source).collect(), is_tls_read: false }
    }

    /// Reads this source alone.
    pub fn of_source(source: impl CaptureSource + 'static) -> Self {
        Self { sources: vec![Box::new(source)], is_tls_read: false }
    }

    /// Reads encrypted connections, too. `is_attached`: those of some servers are read from the beginning on.
    pub fn with_tls(mut self, tls: TlsCapture, is_attached: bool) -> Self {
        self.sources.push(Box::new(tls));
        Self { is_tls_read: is_attached, ..self }
    }

    /// Starts the threads, whose messages go to `notices`; gives their windows too. The first one begins now.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        self,
        task: &CaptureTask,
        notices: &Sender<Notice>,
    ) -> Result<(RunningCapture, Receiver<ThreadWindow>)> {
        start_order::take(StartStep::Thread);
        let (to, windows) = sync_channel(4 * self.sources.len());
        let other = if self.is_tls_read { TlsSource::Process } else { TlsSource::None };
        let mut running = RunningCapture { stop: task.stop.clone(), ..RunningCapture::default() };
        // Windows that begin at the same time are joined.
        let layout = WindowLayout { start: now(), interval: task.interval, settings: task.window };
        for (number, source) in self.sources.into_iter().enumerate() {
            running.stoppers.extend(source.stopper());
            let tls = source.tls().unwrap_or(other);
            let decoder = Decoder::new(Settings { tls, ..task.settings.clone() }, task.shared.clone());
            let mut pipeline = Pipeline::new(decoder, layout, to.clone());
            pipeline.sink.each = task.each.clone();
            pipeline.sink.broken = task.stop.clone();
            pipeline.sink.encrypted = task.encrypted;
            pipeline.tls = tls == TlsSource::This;
            pipeline.keep = task.keep.clone();
            (pipeline.seen, pipeline.thread) = (Some(layout.start), number);
            let work = CaptureWork {
                pipeline,
                changes: running.changes.add(),
                complaints: notices.clone(),
                stop: task.stop.clone(),
                confined: task.confined,
            };
            let (name, stop) = (source.thread_name(number), task.stop.clone());
            let run = move || ending_all(&stop, source.run(work));
            let handle = task.threads.spawn_preferred(name, run).context("cannot start a capture thread")?;
            running.handles.push(handle);
        }
        Ok((running, windows))
    }
}

/// A thread that fails ends the others: what they capture without it would be taken for all there is.
fn ending_all(stop: &AtomicBool, result: Result<()>) -> Result<()> {
    if result.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    result
}

impl RunningCapture {
    /// How many there are, each with windows of its own.
    pub fn threads(&self) -> usize {
        self.handles.len()
    }

    /// Tells the threads to stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.stoppers.iter().for_each(Stopper::stop);
    }

    /// Whether they are to stop: they were told to, or one of them has failed.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for the threads. Take their last windows first.
    ///
    /// # Errors
    /// A thread could not capture, or has panicked.
    pub fn join(self) -> Result<()> {
        for handle in self.handles {
            handle.join().map_err(|_| anyhow::anyhow!("a capture thread has failed"))??;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use sonar_core::Timestamp;
    use sonar_sys::geometry::{block_bytes, tolerated_stall};

    use super::*;

    /// What a source without packets does.
    #[derive(Copy, Clone, PartialEq)]
    enum FakeSource {
        /// It fails at once.
        Fails,
        /// It hands its first window over, and ends.
        Ends,
        /// It runs until it is to stop.
        Runs,
    }

    impl CaptureSource for FakeSource {
        fn thread_name(&self, number: usize) -> String {
            format!("fake-{number}")
        }

        fn tls(&self) -> Option<TlsSource> {
            None
        }

        fn stopper(&self) -> Option<Stopper> {
            None
        }

        fn run(self: Box<Self>, mut work: CaptureWork) -> Result<()> {
            anyhow::ensure!(*self != Self::Fails, "the kernel refuses");
            if *self == Self::Ends {
                work.pipeline.finish(now());
                return Ok(());
            }
            let begun = Instant::now();
            while !work.stop.load(Ordering::Relaxed) {
                anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "nobody ended it");
                // span: between two looks
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
    }

    #[test]
    fn a_program_that_stands_still_for_seconds_loses_no_packet_at_a_low_rate() {
        let ring_bytes = 32 << 20;
        for retire in [RETIRE, RETIRE_EACH] {
            let blocks = ring_bytes / block_bytes(ring_bytes, retire);
            assert!(tolerated_stall(blocks, retire) >= Duration::from_secs(6), "{blocks} blocks, {retire:?}");
        }
    }

    fn capture(sources: &[FakeSource]) -> LiveCapture {
        let boxed = |source: &FakeSource| -> Box<dyn CaptureSource> { Box::new(*source) };
        LiveCapture { sources: sources.iter().map(boxed).collect(), is_tls_read: false }
    }

    fn task() -> CaptureTask {
        CaptureTask { interval: Duration::from_secs(1), ..CaptureTask::default() }
    }

    #[test]
    fn the_first_windows_of_all_threads_begin_at_the_same_time() {
        let capture = capture(&[FakeSource::Ends; 2]);
        let (running, windows) = capture.start(&task(), &channel().0).expect("threads");
        let starts: Vec<Timestamp> = windows.iter().map(|part| part.window.start).collect();
        assert!(starts.len() == 2 && starts[0] == starts[1], "{starts:?}");
        running.join().expect("none failed");
    }

    #[test]
    fn a_source_that_fails_ends_the_others() {
        let task = task();
        let capture = capture(&[FakeSource::Runs, FakeSource::Fails, FakeSource::Runs]);
        let (running, windows) = capture.start(&task, &channel().0).expect("threads");
        assert_eq!(windows.iter().count(), 0, "the threads end, and hand over no window");
        assert!(task.stop.load(Ordering::Relaxed));
        assert_eq!(running.join().expect_err("one failed").to_string(), "the kernel refuses");
    }
}
