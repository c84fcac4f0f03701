//! Captures what passes now, and shows it: starts the capture, its helpers and its threads.

mod server_states;
mod show;
mod split;

use std::num::NonZeroU32;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use sonar_core::time_split::ConnectionSample;
use sonar_decode::{EndedServer, KeyLog, Settings, Shared};
use sonar_sys::resource::ResourceUsage;
use sonar_sys::{Host, PacketFilter, RingConfig};
use sonar_view::queries::Selection;

use self::server_states::ServerStatesTask;
pub use self::show::{CaptureView, PastViews, WindowFeed, on_screen, show_past};
use self::split::{RowSplitTask, RunningSplits};
use super::args::{INTERVAL, QueriesArgs};
use super::local_servers::{ListeningServers, LocalServerSearch, ServerNews};
use super::output::QueriesOutput;
use super::server_names::{ServerNames, ServerNamesUpdate};
use crate::args::values::only_port;
use crate::capture::args::SourceArg;
use crate::capture::changes::{CaptureChange, ChangeSenders};
use crate::capture::notice::Notice;
use crate::capture::ports::CapturedPorts;
use crate::capture::rotate::{Preparation, SeriesFiles, SeriesWork, Started};
use crate::capture::session::SessionPlan;
use crate::capture::splitting::{self, SplitHelpers, SplitPlan};
use crate::capture::threads::{CaptureTask, RETIRE, RETIRE_EACH, RunningCapture};
use crate::capture::tls::EncryptedAccess;
use crate::capture::write::{FileHeader, PacketRecorder, SharedRecorder};
use crate::capture::{Joiner, applications};
use crate::capture_reading::key_log::{self, KeyLogFile};
use crate::confinement::start_order::{StartStep, start_thread};
use crate::exit::{FAILED, OK};
use crate::history::HistorySteps;
use crate::locking::lock;
use crate::servers::file_names::FileNames;
use crate::servers::samples::ServerSamples;
use crate::servers::tracing::warn_of_process_namespace;
use crate::stop::{Signals, StopBehavior};

/// Captures until it is stopped; returns the exit code.
pub fn run(args: &QueriesArgs, selection: &Selection) -> Result<u8> {
    // Rings are read in time also while all processors are busy.
    sonar_sys::resource::prefer_this_thread().ok();
    let confined = args.privileges.are_dropped();
    // It may ask for a password.
    let server = args.server.named(only_port(&args.port))?;
    // A signal that comes while all is opened ends the command between two steps, before there is anything to show.
    let signals = Signals::catch(StopBehavior::Prompt)?;
    // Helpers come first: no thread may run yet, and they get nothing that is opened later.
    let search = LocalServerSearch::start(confined);
    let screen = on_screen(args);
    let shows_servers = screen || QueriesOutput::shows_servers(args);
    let samples = if shows_servers { ServerSamples::start(confined) } else { None };
    let plan = plan(args)?;
    if signals.have_come() {
        return Ok(OK);
    }
    let split = args.split.map(|sample| split_helpers(args, sample, plan.encrypted)).transpose()?;
    if signals.have_come() {
        return Ok(OK);
    }
    let helpers = plan.start_helpers(split)?;
    if signals.have_come() {
        return Ok(OK);
    }
    let key_log = args.tls_keylog.as_deref().map(|log| KeyLogFile::open(log, true)).transpose()?;
    let header = FileHeader::new(&args.interface);
    let series = match (&args.write, args.rotate) {
        (Some(path), Some(_)) => Some(SeriesFiles::prepare(path, args.keep, header.bytes(), confined)?),
        _ => None,
    };
    let server_names = ServerNames::of(ListeningServers::here());
    let mut session = helpers.open(server)?;
    if signals.have_come() {
        return Ok(OK);
    }
    let notices_to = session.notices_to.clone();
    let (recorder, making) = recorder(args, header, series, notices_to.clone())?;
    let interfaces = captured_interfaces(args);
    let source = format!("{interfaces}, {}", session.listened);
    if !screen {
        eprintln!("mongosonar: listening on {source}");
    }
    let origin = session.listened.origin(&interfaces, &Host::live());
    let view = CaptureView::new(args, selection, source, origin)?;
    session.look_up()?;
    let has_steps = screen && args.store.folder().is_dir();
    let steps =
        has_steps.then(|| HistorySteps::start(&args.store, None, confined, &session.gate)).transpose()?;
    let key_log = key_log.map(|key_log| key_log.following(confined, &session.gate)).transpose()?;
    // From here on nothing is opened by this thread.
    ResourceUsage::now()?;
    let stop = session.drop_privileges(signals)?;
    making.map(|making| start_thread(StartStep::Thread, "files", making)).transpose()?;
    let names = session.names(&stop)?;
    let trace = session.trace.take();
    let splits = trace.map(|trace| RunningSplits::start(trace, split_task(args, names, notices_to.clone())));
    let splits = splits.transpose()?;
    let each = splits.as_ref().map_or_else(|| view.listener(), |splits| Some(splits.listener()));
    let keys = key_log.as_ref().map(KeyLogFile::keys);
    let task = CaptureTask { each, keep: recorder.clone(), stop: stop.clone(), ..task(args, keys) };
    let (capture, windows) = session.start(task)?;
    let states =
        samples.map(|samples| ServerStatesTask::start(samples, args.port.clone(), notices_to.clone()));
    let states = states.transpose()?;
    let changes =
        Changes { threads: capture.changes.clone(), notices_to, names: server_names.update(), interfaces };
    let follower = search.map(|search| follow(search, session.listened, changes)).transpose()?;
    let feed = WindowFeed::new(Joiner::new(windows, capture.threads()), session.notices, stop, args.duration);
    let feed = feed.with_steps(steps).with_splits(splits).with_servers(server_names);
    let (threads, shared) = ([states, follower], session.shared);
    LiveQueries { args, view, feed, capture, threads, shared, key_log, recorder }.show()
}

/// What to capture.
fn plan(args: &QueriesArgs) -> Result<SessionPlan> {
    let access = &args.encrypted_access;
    Ok(SessionPlan {
        confined: args.privileges.are_dropped(),
        ports: args.port.clone(),
        processes: Vec::new(),
        encrypted: EncryptedAccess::of(access.no_tls || args.tls_keylog.is_some(), access.tls_any_cost),
        logs: args.log.clone(),
        reads_sockets: args.reads_sockets()?,
        rings: RingConfig {
            interfaces: args.interface.clone(),
            filter: PacketFilter {
                sample: args.sample.and_then(NonZeroU32::new).filter(|n| n.get() > 1),
                snap_replies: args.snap_replies,
                tunnels: args.tunnels,
                ..PacketFilter::default()
            },
            size_bytes: (args.ring_mib.unwrap_or(32) as usize) << 20,
            retire: if args.each { RETIRE_EACH } else { RETIRE },
            ..RingConfig::default()
        },
        threads: usize::from(args.threads.unwrap_or(1)),
    })
}

/// What traces the threads of servers.
fn split_helpers(
    args: &QueriesArgs,
    sample: ConnectionSample,
    encrypted: EncryptedAccess,
) -> Result<SplitHelpers> {
    warn_of_process_namespace();
    let plan = SplitPlan::of_command(args.privileges.are_dropped(), args.pid.is_empty(), encrypted);
    let plan = SplitPlan { ports: args.port.clone(), ..plan };
    SplitHelpers::start(&splitting::processes(&args.pid, &args.port)?, None, sample, plan)
}

/// What writes packets, if that was asked for; and what creates the files after the first one, in a thread of its own.
fn recorder(
    args: &QueriesArgs,
    header: FileHeader,
    series: Option<Preparation>,
    notices_to: Sender<Notice>,
) -> Result<(Option<SharedRecorder>, Option<SeriesWork>)> {
    let (recorder, making) = match (&args.write, args.rotate.zip(series)) {
        (None, _) => return Ok((None, None)),
        (Some(path), None) => (PacketRecorder::create(path, header, notices_to)?, None),
        (_, Some((rotation, series))) => {
            let Started { first: (file, path), files, work } = series.start()?;
            let recorder = PacketRecorder::of(file, path, header, notices_to);
            (recorder.in_series(rotation, files), Some(work))
        }
    };
    Ok((Some(Arc::new(Mutex::new(recorder))), making))
}

/// Where packets come from, in words.
fn captured_interfaces(args: &QueriesArgs) -> String {
    match (args.source.source, args.interface.as_slice()) {
        (Some(SourceArg::Process), _) => "sockets of processes".to_owned(),
        (_, []) => "all interfaces".to_owned(),
        (_, names) => names.join(" "),
    }
}

/// What decoders do; `keys` are those of a key log.
fn task(args: &QueriesArgs, keys: Option<Arc<KeyLog>>) -> CaptureTask {
    CaptureTask {
        settings: Settings {
            snap_replies: args.snap_replies,
            verify_checksums: args.verify_checksums,
            show_values: args.show_values,
            keys,
            ..Settings::default()
        },
        interval: args.interval.unwrap_or(INTERVAL),
        window: args.window_settings(),
        encrypted: args.encrypted,
        ..CaptureTask::default()
    }
}

/// How the threads of servers are traced; `names` are those of their files.
fn split_task(args: &QueriesArgs, names: FileNames, notices_to: Sender<Notice>) -> RowSplitTask {
    RowSplitTask {
        interval: args.interval.unwrap_or(INTERVAL),
        by: args.window_settings().grouping(),
        sample: args.split.unwrap_or_default(),
        names,
        follows: args.pid.is_empty(),
        notices_to,
    }
}

/// Where changes go.
struct Changes {
    /// To the capture threads.
    threads: ChangeSenders,
    notices_to: Sender<Notice>,
    /// To the names of servers.
    names: ServerNamesUpdate,
    /// What is captured, in words.
    interfaces: String,
}

/// Starts the thread that follows the servers of this host: those that start later are captured too, unless ports were
/// named, and what is in flight on one ends with its process. It ends when the returned sender is dropped.
fn follow(search: LocalServerSearch, mut listened: CapturedPorts, changes: Changes) -> Result<Sender<()>> {
    let Changes { threads, notices_to, names, interfaces } = changes;
    let (keep, stop) = channel();
    let tell = move |news: ServerNews, ended: Vec<EndedServer>| {
        if let Some(found) = news.found {
            names.tell(found);
        }
        for server in ended {
            threads.tell(|| CaptureChange::ServerEnded(server.clone()));
        }
        let Some(news) = listened.follow(news.ports) else { return };
        let now = Arc::new(listened.clone());
        threads.tell(|| CaptureChange::Ports(now.clone()));
        let origin = listened.origin_with_servers(&interfaces);
        let source = format!("{interfaces}, {listened}");
        notices_to.send(Notice::Source { news, source, origin }).ok();
    };
    start_thread(StartStep::Thread, "servers", move || search.follow(&stop, tell))?;
    Ok(keep)
}

/// A capture that runs.
struct LiveQueries<'a> {
    args: &'a QueriesArgs,
    view: CaptureView<'a>,
    feed: WindowFeed,
    capture: RunningCapture,
    /// End other threads when they are dropped.
    threads: [Option<Sender<()>>; 2],
    shared: Arc<Shared>,
    key_log: Option<KeyLogFile>,
    recorder: Option<SharedRecorder>,
}

impl LiveQueries<'_> {
    /// Shows it until it is to stop; returns the exit code.
    fn show(self) -> Result<u8> {
        let Self { args, view, mut feed, capture, threads, shared, key_log, recorder } = self;
        let total = view.show(&mut feed);
        capture.stop();
        drop(threads);
        // The last windows, of what came until the rings were closed.
        let rest = feed.rest();
        // Whatever went wrong, what was captured is written first.
        capture.join()?;
        let mut total = total?;
        view.show_rest(rest, &mut total)?;
        if let Some(total) = &mut total {
            if let Some(key_log) = key_log {
                key_log.finish(&mut total.coverage);
            }
            let late = total.coverage.streams_joined_late;
            let is_of_no_use = !args.log.is_empty() && late > 0 && !shared.has_named_clients();
            let names_none = is_of_no_use.then(|| applications::names_none(late));
            view.summary(
                total,
                names_none.into_iter().chain(key_log::undecrypted_note(&shared.undecrypted())),
            )?;
        }
        let failed = recorder.and_then(|recorder| lock(&recorder).failed().map(str::to_owned));
        let Some(failed) = failed else { return Ok(OK) };
        eprintln!("mongosonar: {failed}");
        Ok(FAILED)
    }
}
