//! Captures from the network: a thread for each ring, windows handed over at the boundaries of intervals.

mod server_states;
mod show;
mod split;

use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use sonar_decode::{EndedServer, Settings, Shared};
use sonar_sys::geometry::block_bytes;
use sonar_sys::privileges::Duty;
use sonar_sys::resource::ResourceUsage;
use sonar_sys::tls::TlsRoom;
use sonar_sys::{Host, PacketFilter, RingConfig};
use sonar_view::queries::Selection;

use self::server_states::ServerStatesTask;
pub use self::show::{PastViews, WindowFeed, show_past, show_rest};
use self::split::{RowSplitTask, RunningSplits};
use super::args::{INTERVAL, QueriesArgs};
use super::key_log::{self, KeyLogFile};
use super::local_servers::{ListeningServers, LocalServerSearch, ServerNews};
use super::output::QueriesOutput;
use super::server_names::{ServerNames, ServerNamesUpdate};
pub use crate::args::when::now;
use crate::capture::applications::{self, Lookup};
use crate::capture::args::SourceArg;
use crate::capture::changes::{CaptureChange, ChangeSenders};
use crate::capture::notice::Notice;
use crate::capture::ports::Listened;
use crate::capture::rotate::{SeriesFiles, Started};
use crate::capture::splitting::{self, EncryptedSplit, SplitHelpers, SplitPlan};
use crate::capture::threads::{CaptureTask, LiveCapture, RETIRE, RETIRE_EACH};
use crate::capture::tls::{AttachedCapture, AttacherTask, TlsCapture};
use crate::capture::write::{FileHeader, PacketRecorder};
use crate::capture::{Joiner, OperationListener};
use crate::confinement::privileges;
use crate::confinement::start_gate::StartGate;
use crate::confinement::thread_starter::ThreadStarter;
use crate::exit::{FAILED, OK};
use crate::history::HistorySteps;
use crate::io::names::FileNamesQuestion;
use crate::servers::samples::ServerSamples;
use crate::stop::{Signals, StopBehavior};

/// Captures until it is stopped; returns the exit code.
pub fn run(args: &QueriesArgs, selection: &Selection) -> Result<u8> {
    // Rings are read in time also while all processors are busy.
    sonar_sys::resource::prefer_this_thread().ok();
    let confined = !args.keep_privileges;
    // It may ask for a password.
    let server = args.server.named(args.only_port())?;
    // A signal that comes while all is opened ends the command as one that comes later does.
    let signals = Signals::catch(StopBehavior::Prompt)?;
    // Helpers come first: no thread may run yet, and they get nothing that is opened later.
    let search = LocalServerSearch::start(confined);
    let screen = on_screen(args);
    let shows_servers = screen || QueriesOutput::shows_servers(args);
    let samples = if shows_servers { ServerSamples::start(confined) } else { None };
    let followed = args.split.unwrap_or_default();
    let helpers = match args.split {
        Some(_) => {
            let encrypted = EncryptedSplit::of(args.no_tls, args.tls_any_cost);
            let plan = SplitPlan::of_command(confined, args.pid.is_empty(), encrypted);
            Some(SplitHelpers::start(&splitting::processes(&args.pid, &[])?, None, followed, plan)?)
        }
        None => None,
    };
    // Before the rings: the bytes of a connection that opens from then on are seen from the first one on.
    let attacher_task = AttacherTask {
        ports: args.port.clone(),
        processes: Vec::new(),
        any_cost: args.tls_any_cost,
        confined,
        follows_later: true,
        room: TlsRoom::COMMAND,
    };
    let decrypts = args.tls_keylog.is_some();
    let tls = if args.no_tls || decrypts { None } else { TlsCapture::open(attacher_task.clone()) };
    let sockets = args.reads_sockets()?.then(|| TlsCapture::sockets(attacher_task)).transpose()?;
    let key_log = args.tls_keylog.as_deref().map(|log| KeyLogFile::open(log, true)).transpose()?;
    let header = FileHeader::new(&args.interface);
    let series = match (&args.write, args.rotate) {
        (Some(path), Some(rotation)) => {
            Some((rotation, SeriesFiles::prepare(path, args.keep, header.bytes(), confined)?))
        }
        _ => None,
    };
    let listened = Listened::choose(&args.port, &Host::live());
    let server_names = ServerNames::of(ListeningServers::here());
    let threads = usize::from(args.threads.unwrap_or(1));
    let size_bytes = (args.ring_mib.unwrap_or(32) as usize) << 20;
    let retire = if args.each { RETIRE_EACH } else { RETIRE };
    // Before the rings, because attaching programs to libraries may take seconds.
    let trace = helpers.map(SplitHelpers::trace);
    let names = FileNamesQuestion::to(server.clone().filter(|_| trace.is_some()), confined)?;
    let config = RingConfig {
        interfaces: args.interface.clone(),
        filter: PacketFilter {
            ports: listened.ranges(),
            sample: args.sample.and_then(NonZeroU32::new).filter(|n| n.get() > 1),
            snap_replies: args.snap_replies,
            tunnels: args.tunnels,
            ..PacketFilter::default()
        },
        size_bytes,
        block_bytes: block_bytes(size_bytes / threads, retire),
        retire,
        ..RingConfig::default()
    };
    // The helper that attaches ends with what is kept here.
    let (capture, _attaches) = match sockets {
        None => (LiveCapture::open(&config, threads)?, None),
        Some(sockets) => (LiveCapture::of_source(sockets.capture), Some(sockets.attacher)),
    };
    let (capture, attacher) = match tls {
        None => (capture, None),
        Some(AttachedCapture { capture: tls, attacher }) => {
            (capture.with_tls(tls, attacher.is_attached()), Some(attacher))
        }
    };
    let threads = capture.threads();
    let (say, news) = channel();
    let (recorder, making) = match (&args.write, series) {
        (None, _) => (None, None),
        (Some(path), None) => (Some(PacketRecorder::create(path, header, say.clone())?), None),
        (_, Some((rotation, series))) => {
            let Started { first: (file, path), files, work } = series.start()?;
            let recorder = PacketRecorder::of(file, path, header, say.clone());
            (Some(recorder.in_series(rotation, files)), Some(work))
        }
    };
    let keep = recorder.map(|recorder| Arc::new(Mutex::new(recorder)));
    let on = match (args.source, args.interface.as_slice()) {
        (Some(SourceArg::Process), _) => "sockets of processes".to_owned(),
        (_, []) => "all interfaces".to_owned(),
        (_, names) => names.join(" "),
    };
    let source = format!("{on}, {listened}");
    if !screen {
        eprintln!("mongosonar: listening on {source}");
    }
    let shared = Arc::new(Shared::default());
    let origin = listened.origin(&on, &Host::live());
    let mut output = QueriesOutput::new(args, selection, origin.clone())?;
    let each = match output.wants_each() {
        true => Some(Arc::new(Mutex::new(QueriesOutput::new(args, selection, origin.clone())?))),
        false => None,
    };
    // After the rings are open: a connection that opens from now on is seen from its beginning. Its thread may use
    // the network, and gives up the rest by itself.
    let gate = StartGate::default();
    let lookup = Lookup::open(&args.log, &Host::live(), confined)?.with_server(server);
    let lookup = lookup.start(shared.clone(), say.clone(), gate.clone())?;
    let steps = match screen && args.store.folder().is_dir() {
        true => Some(HistorySteps::start(&args.store, None, confined)?),
        false => None,
    };
    let key_log = key_log.map(|key_log| key_log.following(confined)).transpose()?;
    // From here on nothing is opened by this thread.
    ResourceUsage::now()?;
    let stop = signals.watch(|| match &trace {
        _ if !confined => {}
        Some(trace) => trace.give_up_privileges(),
        None => privileges::give_up(Duty::Showing, &[], &[]),
    })?;
    let stop = stop.flag().clone();
    if let Some(making) = making {
        std::thread::Builder::new()
            .name("files".to_owned())
            .spawn(making)
            .context("cannot start a thread")?;
    }
    gate.open();
    let names = names.ask(&stop)?;
    lookup.recv_timeout(applications::PATIENCE).ok();
    let interval = args.interval.unwrap_or(INTERVAL);
    let window = args.window_settings();
    let task = |names| RowSplitTask {
        interval,
        by: window.grouping(),
        sample: followed,
        names,
        follows: args.pid.is_empty(),
        say: say.clone(),
    };
    let splits = trace.map(|trace| RunningSplits::start(trace, task(names))).transpose()?;
    let task = CaptureTask {
        settings: Settings {
            ports: listened.ports(),
            snap_replies: args.snap_replies,
            verify_checksums: args.verify_checksums,
            show_values: args.show_values,
            sample: 0,
            keys: key_log.as_ref().map(KeyLogFile::keys),
            ..Settings::default()
        },
        shared: shared.clone(),
        interval,
        window,
        encrypted: args.encrypted,
        each: match &splits {
            Some(splits) => Some(splits.listener()),
            None => each.clone().map(|each| each as Arc<Mutex<dyn OperationListener>>),
        },
        keep: keep.clone(),
        stop: stop.clone(),
        confined,
        threads: ThreadStarter::Here,
    };
    let (capture, windows) = capture.start(&task, &say)?;
    drop(task);
    if let Some(attacher) = &attacher {
        attacher.follow(capture.changes.clone(), say.clone())?;
    }
    let states =
        samples.map(|samples| ServerStatesTask { samples, ports: args.port.clone(), say: say.clone() });
    let states = states.map(ServerStatesTask::start).transpose()?;
    let changes = Changes { threads: capture.changes.clone(), say, names: server_names.update() };
    let follower = follow(listened, search, on, changes)?;
    let feed = WindowFeed::new(Joiner::new(windows, threads), news, stop.clone(), args.duration);
    let mut feed = feed.with_steps(steps).with_splits(splits).with_servers(server_names);
    let total = if screen { feed.show(args, selection, &source, origin) } else { feed.print(&mut output) };
    capture.stop();
    drop((follower, states));
    // The last windows, of what came until the rings were closed.
    let rest = feed.rest();
    // Whatever went wrong, what was captured is written first.
    capture.join()?;
    let mut total = total?;
    show_rest((!screen).then_some(&mut output), rest, &mut total)?;
    if let (Some(total), Some(key_log)) = (&mut total, key_log) {
        key_log.finish(&mut total.coverage);
    }
    if let Some(total) = &total {
        let mut each = each.as_ref().map(|each| each.lock().unwrap_or_else(PoisonError::into_inner));
        let output = each.as_deref_mut().unwrap_or(&mut output);
        let late = total.coverage.streams_joined_late;
        if !args.log.is_empty() && late > 0 && !shared.has_named_clients() {
            output.note(applications::names_none(late));
        }
        key_log::undecrypted_note(&shared.undecrypted()).into_iter().for_each(|note| output.note(note));
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

/// Starts the thread that follows the servers of this host: those that start later are captured too, unless ports were
/// named, and what is in flight on one ends with its process. It ends when the returned sender is dropped.
fn follow(
    mut listened: Listened,
    search: Option<LocalServerSearch>,
    on: String,
    Changes { threads, say, names }: Changes,
) -> Result<Sender<()>> {
    let (keep, stop) = channel();
    let Some(search) = search else { return Ok(keep) };
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
        let origin = listened.origin_with_servers(&on);
        let source = format!("{on}, {listened}");
        say.send(Notice::Source { news, source, origin }).ok();
    };
    std::thread::Builder::new()
        .name("servers".to_owned())
        .spawn(move || search.follow(&stop, tell))
        .context("cannot start a thread")?;
    Ok(keep)
}

/// Where changes go.
struct Changes {
    /// To the capture threads.
    threads: ChangeSenders,
    say: Sender<Notice>,
    /// To the names of servers.
    names: ServerNamesUpdate,
}
