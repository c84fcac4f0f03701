//! Replays a capture file in the live view, at its own speed and again and again.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

use anyhow::Result;
use sonar_core::{Coverage, Packet, Timestamp, TlsSuite};
use sonar_decode::{Decoder, KeyLogReader, Settings, Shared};
use sonar_view::queries::{PacketOrigin, Selection};

use super::args::{INTERVAL, QueriesArgs};
use super::live::{CaptureView, WindowFeed, on_screen};
use crate::args::when::now;
use crate::capture::{Joiner, Pipeline, WindowLayout};
use crate::capture_reading::capture_file::{self, CaptureEnd, PacketSink};
use crate::capture_reading::key_log::{self, KeyLogFile};
use crate::confinement::start_order::{StartStep, start_thread};
use crate::exit::OK;
use crate::exit::usage;
use crate::stop;

/// The longest sleep, so that the replay ends soon after Ctrl-C.
const NAP: Duration = Duration::from_millis(100);
/// The pause before the recording begins again, so that its parts do not run into each other.
const PAUSE_NS: u64 = 200_000_000;

/// One capture file, played in a loop.
struct Replay {
    path: PathBuf,
    settings: Settings,
    pipeline: Pipeline,
    stop: Arc<AtomicBool>,
    /// When the first packet of this pass was recorded, and when it is played.
    first: Option<(Timestamp, Timestamp)>,
    /// What the connections of this pass have in common.
    shared: Arc<Shared>,
    /// What could not be decrypted.
    encrypted: EncryptedRest,
}

/// What could not be decrypted of a capture.
#[derive(Default)]
struct EncryptedRest {
    /// Versions and cipher suites, with their connections in all passes.
    suites: Vec<(TlsSuite, u64)>,
    /// What is of no use of the secrets in the file, in the first pass: the others have the same.
    key_counts: Coverage,
    passes: u64,
}

impl PacketSink for Replay {
    // It would spoil the live view.
    const PROGRESS: bool = false;

    fn secrets(&mut self, key_log: &[u8]) {
        if let Some(keys) = &self.settings.keys {
            let mut reader = KeyLogReader::default();
            keys.set_growing();
            reader.read(key_log, keys);
            reader.finish(keys);
            if self.encrypted.passes == 0 {
                self.encrypted.key_counts.add(&reader.coverage);
            }
        }
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Result<ControlFlow<()>> {
        let (recorded, played) = *self.first.get_or_insert_with(|| (packet.time, now()));
        let due = played.plus_ns(packet.time.since(recorded));
        self.wait_until(due);
        if self.is_over() {
            return Ok(ControlFlow::Break(()));
        }
        self.pipeline.packet(&Packet { time: due, ..*packet });
        Ok(ControlFlow::Continue(()))
    }
}

impl Replay {
    fn is_over(&self) -> bool {
        self.pipeline.orphaned || self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps until `due`; intervals that pass meanwhile are handed over.
    fn wait_until(&mut self, due: Timestamp) {
        loop {
            let time = now();
            if time >= due || self.is_over() {
                return;
            }
            if time >= self.pipeline.boundary {
                self.pipeline.rotate(time);
            }
            std::thread::sleep(Duration::from_nanos(due.since(time)).min(NAP));
        }
    }

    /// A decoder for the next pass.
    fn decoder(&mut self) -> Decoder {
        self.shared = Arc::new(Shared::default());
        Decoder::new(self.settings.clone(), self.shared.clone())
    }

    /// Plays until told to stop; tells what could not be decrypted.
    fn run(mut self) -> Result<EncryptedRest> {
        while !self.is_over() {
            self.first = None;
            let path = self.path.clone();
            let stop = self.stop.clone();
            let end = capture_file::read(&path, &stop, &mut self)?;
            // Ctrl-C may come before the first packet.
            if self.is_over() {
                break;
            }
            if self.first.is_none() {
                anyhow::bail!("{}: this capture file holds no packets to replay", path.display());
            }
            if let CaptureEnd::Damaged(what) = end {
                anyhow::bail!(
                    "{}: {what}; `mongosonar queries --read` shows what comes before",
                    path.display()
                );
            }
            self.wait_until(now().plus_ns(PAUSE_NS));
            // The same connections come again from their beginning.
            let ended = self.shared.clone();
            let next = self.decoder();
            self.pipeline.restart(next, now());
            key_log::add_suites(&mut self.encrypted.suites, &ended.undecrypted());
            self.encrypted.passes += 1;
        }
        let Self { mut pipeline, shared, mut encrypted, .. } = self;
        pipeline.finish(now());
        key_log::add_suites(&mut encrypted.suites, &shared.undecrypted());
        Ok(encrypted)
    }
}

/// Replays `path` until told to stop; gives the exit code.
///
/// # Errors
/// When the file cannot be opened, is damaged, is none that can be read twice, or holds no packets.
pub fn run(args: &QueriesArgs, selection: &Selection, path: &Path) -> Result<u8> {
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
        || path == Path::new("-")
    {
        return Err(usage!("--replay reads its file again and again, so that it must be a file, not a pipe"));
    }
    let stop = stop::flag()?;
    let open = |log| KeyLogFile::open(log, false);
    let key_log = args.tls_keylog.as_deref().map(open).transpose()?;
    let keys = key_log.as_ref().map(KeyLogFile::keys).unwrap_or_default();
    let settings = Settings { keys: Some(keys), ..args.file_settings() };
    let windows = WindowLayout {
        start: now(),
        interval: args.interval.unwrap_or(INTERVAL),
        settings: args.window_settings(),
    };
    let (to, from) = sync_channel(4);
    let (_say, news) = channel();
    let shared = Arc::new(Shared::default());
    let replay = Replay {
        path: path.to_owned(),
        settings: settings.clone(),
        pipeline: Pipeline::new(Decoder::new(settings, shared.clone()), windows, to),
        stop: stop.clone(),
        first: None,
        shared,
        encrypted: EncryptedRest::default(),
    };
    let source = format!("replay of {}", crate::input::name(path));
    if !on_screen(args) {
        eprintln!("mongosonar: {source}; Ctrl-C ends it");
    }
    let view = CaptureView::new(args, selection, source, PacketOrigin::File)?;
    let thread = start_thread(StartStep::Thread, "replay", move || replay.run())?;
    let mut feed = WindowFeed::new(Joiner::new(from, 1), news, stop.clone(), args.duration);
    let total = view.show(&mut feed);
    stop.store(true, Ordering::Relaxed);
    let rest = feed.rest();
    let failed = |_| anyhow::anyhow!("the thread of the replay has failed");
    let EncryptedRest { suites, key_counts, .. } = thread.join().map_err(failed)??;
    let mut total = total?;
    view.show_rest(rest, &mut total)?;
    if let Some(total) = &mut total {
        total.coverage.add(&key_counts);
        if let Some(key_log) = key_log {
            key_log.finish(&mut total.coverage);
        }
        view.summary(total, key_log::undecrypted_note(&suites))?;
    }
    Ok(OK)
}
