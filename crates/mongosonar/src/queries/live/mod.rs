//! Captures from the network: a thread for each ring, windows handed over at the boundaries of intervals.

mod joiner;
mod pipeline;
mod show;

use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use sonar_core::{Coverage, Timestamp, Window};
use sonar_decode::{Decoder, Settings, Shared};
use sonar_sys::helper::Helper;
use sonar_sys::privileges::Duty;
use sonar_sys::resource::ResourceUsage;
use sonar_sys::{Host, PacketFilter, Ring, RingConfig, Wake};
use sonar_view::queries::Selection;

pub use self::pipeline::{LiveSink, Pipeline};
pub use self::show::{WindowFeed, add};
use super::applications::{self, Lookup};
use super::args::{QueriesArgs, Range};
use super::notice::Notice;
use super::output::QueriesOutput;
use super::ports::{self, Listened};
use super::rotate::{SeriesFiles, Started};
use super::write::{FileHeader, PacketRecorder};
use crate::exit::{FAILED, OK};
use crate::privileges;
use crate::stop::{Signals, StopBehavior};

/// The longest sleep of a capture thread, so that it soon captures other ports.
const LONG_NAP: Duration = Duration::from_secs(1);
/// When the kernel hands over a block that is not full. Fewer wake-ups cost less, because each one finds the
/// processor's caches cold.
const RETIRE: Duration = Duration::from_millis(250);
/// The same where each operation is written as it ends.
const RETIRE_EACH: Duration = Duration::from_millis(100);
/// The fewest blocks of a ring: the kernel fills one while others are read.
const MIN_BLOCKS: usize = 8;
/// The largest block, in bytes. A block that fills before its time costs one more wake-up.
const MAX_BLOCK_BYTES: usize = 4 << 20;
/// The smallest block, in bytes. Only a frame that fits in a block is captured whole, and segmentation offload makes
/// long frames.
const MIN_BLOCK_BYTES: usize = 512 << 10;

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(since.as_secs(), since.subsec_nanos())
}

/// One capture thread.
struct CaptureThread {
    ring: Ring,
    filter: PacketFilter,
    /// Changes of the ports to capture.
    ports: Receiver<Arc<Listened>>,
    /// Where failures to apply them go.
    complaints: Sender<Notice>,
    pipeline: Pipeline,
    /// How long after its arrival a packet may be handed over.
    delay: Duration,
    stop: Arc<AtomicBool>,
    /// Whether the thread drops everything that decoding does not need.
    confined: bool,
}

impl CaptureThread {
    fn run(mut self) -> Result<()> {
        if self.confined {
            privileges::confine_decoder();
        }
        let captured = self.capture();
        // Whatever went wrong, what was captured is shown, and the other threads go on.
        self.count_drops();
        self.pipeline.finish(now());
        captured
    }

    /// Captures until it is to stop.
    fn capture(&mut self) -> Result<()> {
        while !self.pipeline.orphaned {
            let until = self.pipeline.boundary.plus_ns(self.delay.as_nanos() as u64);
            let wait = Duration::from_nanos(until.since(now())).clamp(Duration::from_millis(1), LONG_NAP);
            let wake = self.ring.poll(wait)?;
            if wake == Wake::InterfaceDown {
                let text = "an interface went down; capture resumes once it is up, but not if it is removed \
                            and created again: then restart mongosonar"
                    .into();
                self.complaints.send(Notice::Complaint(text)).ok();
            }
            self.count_drops();
            self.read();
            self.follow();
            let time = now();
            // The clock was set back.
            if self.pipeline.boundary.since(time) > self.pipeline.interval_ns {
                self.pipeline.rotate(time);
            } else if time >= until {
                // Packets of the intervals after that may still come.
                let over = self.pipeline.boundary.plus_ns(time.since(until));
                self.pipeline.rotate(over);
            }
            if wake == Wake::Stopped || self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let pipeline = &mut self.pipeline;
        self.ring.finish(|packet| pipeline.packet(&packet))?;
        Ok(())
    }

    /// Applies changes of the ports.
    fn follow(&mut self) {
        for listened in self.ports.try_iter() {
            let filter = PacketFilter { ports: listened.ranges(), ..self.filter.clone() };
            match self.ring.set_filter(&filter) {
                Ok(()) => {
                    self.filter = filter;
                    self.pipeline.decoder.set_ports(listened.ports());
                }
                Err(error) => {
                    let text = format!("cannot listen on {listened}: {error}");
                    self.complaints.send(Notice::Complaint(text)).ok();
                }
            }
        }
    }

    /// Reads the packets in the ring.
    fn read(&mut self) {
        let pipeline = &mut self.pipeline;
        self.ring.for_each(|packet| pipeline.packet(&packet));
        let sink = &self.pipeline.sink;
        if let Some(output) = &sink.each
            && output.lock().unwrap_or_else(PoisonError::into_inner).flush().is_err()
        {
            sink.broken.store(true, Ordering::Relaxed);
        }
    }

    fn count_drops(&mut self) {
        if let Ok(statistics) = self.ring.statistics() {
            let kernel = &mut self.pipeline.kernel;
            kernel.kernel_drops = statistics.drops;
            kernel.kernel_freezes = statistics.freezes;
            kernel.kernel_blocks_malformed = statistics.malformed_blocks;
        }
    }
}

/// Captures until it is stopped; returns the exit code.
pub fn run(args: &QueriesArgs, selection: &Selection) -> Result<u8> {
    let confined = !args.keep_privileges;
    // It may ask for a password.
    let server = args.server.named(only_port(args))?;
    // A signal that comes while all is opened ends the command as one that comes later does.
    let signals = Signals::catch(StopBehavior::Prompt)?;
    // Helpers come first: no thread may run yet, and they get nothing that is opened later.
    let finder = if listened_later(args) && confined { ports::helper() } else { None };
    let header = FileHeader::new(&args.interface);
    let series = match (&args.write, args.rotate) {
        (Some(path), Some(rotation)) => {
            Some((rotation, SeriesFiles::prepare(path, args.keep, header.bytes(), confined)?))
        }
        _ => None,
    };
    let listened = Listened::choose(&args.port, &Host::live());
    let threads = usize::from(args.threads.unwrap_or(1));
    let size_bytes = (args.ring_mib.unwrap_or(32) as usize) << 20;
    let config = RingConfig {
        interfaces: args.interface.clone(),
        filter: PacketFilter {
            ports: listened.ranges(),
            sample: args.sample.and_then(NonZeroU32::new).filter(|n| n.get() > 1),
            snap_replies: args.snap_replies,
            ..PacketFilter::default()
        },
        size_bytes,
        block_bytes: block_bytes(size_bytes / threads),
        retire: if args.each { RETIRE_EACH } else { RETIRE },
        ..RingConfig::default()
    };
    let rings = if threads == 1 { vec![Ring::open(&config)?] } else { Ring::open_group(&config, threads)? };
    let (say, news) = channel();
    let (recorder, making) = match (&args.write, series) {
        (None, _) => (None, None),
        (Some(path), None) => (Some(PacketRecorder::create(path, header, say.clone())?), None),
        (_, Some((rotation, series))) => {
            let Started { first, files, work } = series.start()?;
            (Some(PacketRecorder::series(first, (rotation, files), header, say.clone())), Some(work))
        }
    };
    let keep = recorder.map(|recorder| Arc::new(Mutex::new(recorder)));
    let on = if args.interface.is_empty() { "all interfaces".to_owned() } else { args.interface.join(" ") };
    let source = format!("{on}, {listened}");
    let screen = on_screen(args);
    if !screen {
        eprintln!("mongosonar: listening on {source}");
    }
    let interval = args.interval.unwrap_or(Duration::from_secs(1));
    let interval_ns = interval.as_nanos() as u64;
    let settings = args.window_settings();
    let shared = Arc::new(Shared::default());
    let origin = listened.origin(&on, &Host::live());
    let mut output = QueriesOutput::new(args, selection, origin.clone())?;
    let each = match output.wants_each() {
        true => Some(Arc::new(Mutex::new(QueriesOutput::new(args, selection, origin.clone())?))),
        false => None,
    };
    // After the rings are open: a connection that opens from now on is seen from its beginning. Its thread may use
    // the network, and gives up the rest by itself.
    let complaints = say.clone();
    let complain = move |what| drop(complaints.send(Notice::Complaint(what)));
    let lookup = Lookup::open(args, &Host::live())?.with_server(server).start(shared.clone(), complain)?;
    // From here on nothing is opened.
    ResourceUsage::now()?;
    let stop = signals.watch(|| {
        if confined {
            privileges::give_up(Duty::Showing, &[], &[]);
        }
    })?;
    let stop = stop.flag().clone();
    if let Some(making) = making {
        std::thread::Builder::new()
            .name("files".to_owned())
            .spawn(making)
            .context("cannot start a thread")?;
    }
    let (to, from) = sync_channel(4 * threads);
    let start = now();
    let stoppers: Vec<_> = rings.iter().map(Ring::stopper).collect();
    let mut handles = Vec::new();
    lookup.recv_timeout(applications::PATIENCE).ok();
    let mut port_changes = Vec::new();
    for (number, ring) in rings.into_iter().enumerate() {
        let decoder_settings = Settings {
            ports: listened.ports(),
            snap_replies: args.snap_replies,
            verify_checksums: args.verify_checksums,
            show_values: args.show_values,
            sample: 0,
        };
        let first = Window::new(start.floor_to(interval_ns), settings);
        let (change, changes) = channel();
        port_changes.push(change);
        let pipeline = Pipeline {
            decoder: Decoder::new(decoder_settings, shared.clone()),
            boundary: first.start.plus_ns(interval_ns),
            sink: LiveSink { window: Window { start, ..first }, each: each.clone(), broken: stop.clone() },
            keep: keep.clone(),
            counted: Coverage::default(),
            kernel: Coverage::default(),
            interval_ns,
            settings,
            to: to.clone(),
            thread: number,
            orphaned: false,
        };
        let capture = CaptureThread {
            ring,
            filter: config.filter.clone(),
            ports: changes,
            complaints: say.clone(),
            pipeline,
            // The kernel looks at a block twice before it takes it for one that does not fill.
            delay: 2 * config.retire + Duration::from_millis(50),
            stop: stop.clone(),
            confined,
        };
        let builder = std::thread::Builder::new().name(format!("capture-{number}"));
        handles.push(builder.spawn(move || capture.run()).context("cannot start a capture thread")?);
    }
    drop(to);
    let follower = follow(listened, finder, on, Changes { ports: port_changes, say })?;
    let mut feed = WindowFeed::new((from, threads), news, stop.clone(), args.duration);
    let total = if screen { feed.show(args, selection, (&source, origin)) } else { feed.print(&mut output) };
    stop.store(true, Ordering::Relaxed);
    stoppers.iter().for_each(sonar_sys::Stopper::stop);
    drop(follower);
    // The last windows, of what came until the rings were closed.
    let rest = feed.rest();
    // Whatever went wrong, what was captured is written first.
    for handle in handles {
        handle.join().map_err(|_| anyhow::anyhow!("a capture thread has failed"))??;
    }
    let mut total = total?;
    if let Some(rest) = rest {
        add(&mut total, rest);
    }
    if let Some(total) = &total {
        let mut each = each.as_ref().map(|each| each.lock().unwrap_or_else(PoisonError::into_inner));
        let output = each.as_deref_mut().unwrap_or(&mut output);
        let late = total.coverage.streams_joined_late;
        if !args.log.is_empty() && late > 0 && !shared.has_named_clients() {
            output.note(applications::names_none(late));
        }
        output.summary(total)?;
    }
    let failed =
        keep.and_then(|keep| keep.lock().unwrap_or_else(PoisonError::into_inner).failed().map(str::to_owned));
    if let Some(failed) = failed {
        eprintln!("mongosonar: {failed}");
        return Ok(FAILED);
    }
    Ok(OK)
}

/// Whether to show the live view rather than a text for each interval.
pub fn on_screen(args: &QueriesArgs) -> bool {
    !args.each
        && !args.makes_digest()
        && !args.json
        && !args.csv
        && std::io::stdout().is_terminal()
        && std::io::stdin().is_terminal()
}

/// The port to capture, where it is a single one.
fn only_port(args: &QueriesArgs) -> Option<u16> {
    match args.port.as_slice() {
        [Range(first, last)] if first == last => Some(*first),
        _ => None,
    }
}

/// Bytes of a block of a ring of `ring_bytes`.
fn block_bytes(ring_bytes: usize) -> usize {
    let most = (ring_bytes / MIN_BLOCKS).clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
    1 << most.ilog2()
}

/// Starts the thread that finds servers that start later, if no port was named. It ends when the returned sender is
/// dropped.
fn follow(
    listened: Listened,
    finder: Option<Helper>,
    on: String,
    Changes { ports, say }: Changes,
) -> Result<Sender<()>> {
    let (keep, stop) = channel();
    let find = move || match &finder {
        Some(helper) => ports::ask(helper),
        None => ports::find(&Host::live()),
    };
    if listened.follows() {
        let changed = move |listened: &Listened, news| {
            let listened = Arc::new(listened.clone());
            for thread in &ports {
                thread.send(listened.clone()).ok();
            }
            let origin = listened.origin_with_servers(&on);
            let source = format!("{on}, {listened}");
            say.send(Notice::Source { news, source, origin }).ok();
        };
        std::thread::Builder::new()
            .name("ports".to_owned())
            .spawn(move || listened.follow(find, &stop, changed))
            .context("cannot start a thread")?;
    }
    Ok(keep)
}

/// Receivers of changes of the ports.
struct Changes {
    /// The capture threads.
    ports: Vec<Sender<Arc<Listened>>>,
    say: Sender<Notice>,
}

/// Whether the ports of servers that start later are captured too.
fn listened_later(args: &QueriesArgs) -> bool {
    args.port.is_empty()
}
