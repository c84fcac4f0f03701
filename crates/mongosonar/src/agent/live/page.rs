//! The page of the agent: a helper process that serves its history, and does nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use sonar_serve::{AllowedHosts, PageLimits, PageRefusal, RefusalCounts};
use sonar_store::SqliteHistory;
use sonar_sys::helper::Helper;
use sonar_sys::privileges::{Duty, limit_files};
use sonar_sys::trust;
use sonar_view::agent::ServedPageStatus;
use sonar_view::now::NowSnapshot;

use super::now::channel::RunningChannel;
use super::plan::LivePlan;
use crate::agent::settings::PageTable;
use crate::confinement::helper_capabilities::READING;
use crate::confinement::privileges::{self, HelperTask, PAGE_HELPER_BYTES};
use crate::confinement::start_order::{StartStep, start_thread};
use crate::exit;
use crate::serve::running_link::RunningLink;
use crate::serve::stored_page::{PageSource, StoredPage};
use crate::serve::token_file;

/// The name of the helper process.
pub const HELPER: &str = "sonar-page";
/// The bytes of a message: how many requests were refused for each reason.
const COUNTS_BYTES: usize = 8 * PageRefusal::ALL.len();
/// The most messages that are read at once.
const MAX_MESSAGES: usize = 64;
/// How long the helper waits for the agent to take a message.
const MAX_WRITE: Duration = Duration::from_millis(10);
/// Tells the helper that the store is there.
const BEGIN: u8 = 1;

/// The page of the agent.
pub enum AgentPage {
    /// The configuration wants none.
    Off,
    /// It is not served, for this reason.
    NotServed {
        /// Where it would be.
        address: SocketAddr,
        /// Why.
        problem: String,
    },
    /// A helper serves it.
    Served(PageHelper),
}

/// The helper process that serves the page.
pub struct PageHelper {
    address: SocketAddr,
    socket: UnixStream,
    running: RunningChannel,
    refused: RefusedRequests,
    /// Why it serves nothing, if that is so.
    problem: Option<String>,
    /// It ends with this.
    _helper: Helper,
}

impl AgentPage {
    /// Takes the address, and starts the helper, which serves nothing yet. Call it before any thread is started.
    pub fn start(plan: &LivePlan<'_>) -> Self {
        let table = &plan.settings.page;
        let Some(address) = table.listen.0 else { return Self::Off };
        Self::of(address, PageHelper::start(address, table, plan.folder))
    }

    /// Lets it serve the store in this folder, which exists by now.
    pub fn begin(self, folder: &Path) -> Self {
        let Self::Served(helper) = self else { return self };
        let (address, begun) = (helper.address, helper.begin(folder));
        Self::of(address, begun.map(|()| helper))
    }

    /// Where it is served; `None` if it is not.
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Served(helper) => Some(helper.address),
            Self::Off | Self::NotServed { .. } => None,
        }
    }

    fn of(address: SocketAddr, helper: Result<PageHelper>) -> Self {
        match helper {
            Ok(helper) => Self::Served(helper),
            Err(error) => {
                let problem = exit::message(&error);
                eprintln!("mongosonar: the page is not served: {problem}");
                Self::NotServed { address, problem }
            }
        }
    }

    /// Notes why the helper does not work; `None` if it does.
    pub fn note(&mut self, problem: Option<String>) {
        if let Self::Served(helper) = self {
            helper.problem = problem;
        }
    }

    /// Whether it has asked which operations run since this was last called.
    pub fn asks_for_running(&mut self) -> bool {
        self.running_channel().is_some_and(RunningChannel::is_asked)
    }

    /// Hands over which operations run.
    pub fn send_running(&mut self, snapshot: NowSnapshot) {
        if let Some(channel) = self.running_channel() {
            channel.send(snapshot);
        }
    }

    /// Sends on what the socket had no room for.
    pub fn flush_running(&mut self) {
        if let Some(channel) = self.running_channel() {
            channel.flush();
        }
    }

    /// The bytes of a list that is being sent.
    pub fn running_memory(&self) -> usize {
        match self {
            Self::Served(helper) => helper.running.memory(),
            Self::Off | Self::NotServed { .. } => 0,
        }
    }

    fn running_channel(&mut self) -> Option<&mut RunningChannel> {
        match self {
            Self::Served(helper) => Some(&mut helper.running),
            Self::Off | Self::NotServed { .. } => None,
        }
    }

    /// What the status says of it; `None` if it is off.
    pub fn status(&mut self) -> Option<ServedPageStatus> {
        match self {
            Self::Off => None,
            Self::NotServed { address, problem } => Some(ServedPageStatus {
                address: address.to_string(),
                problem: Some(problem.clone()),
                ..ServedPageStatus::default()
            }),
            Self::Served(helper) => Some(helper.status()),
        }
    }
}

impl PageHelper {
    fn start(address: SocketAddr, table: &PageTable, folder: &Path) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| {
            format!("cannot serve at {address} ([page] in the configuration names another address)")
        })?;
        let address = listener.local_addr().context("cannot serve")?;
        let task = HelperTask {
            name: HELPER,
            what: "serving the page",
            memory: PAGE_HELPER_BYTES,
            // Nobody else can write to the store, so it is the user's own.
            keep: if trust::is_root() { READING } else { &[] },
            duty: Duty::Serving,
        };
        let (ours, running) = UnixStream::pair().context("cannot serve")?;
        let serve = |agent: UnixStream| {
            let hosts = AllowedHosts::new(table.allow_host.clone());
            let sockets =
                HelperSockets { agent, listener: listener.try_clone()?, running: running.try_clone()? };
            let served = serve(sockets, folder, hosts);
            served.map_err(|error| {
                eprintln!("mongosonar: the page is not served any more: {}", exit::message(&error));
                io::Error::other(error)
            })
        };
        let helper = privileges::helper_with(task, &[listener.as_fd(), running.as_fd()], serve);
        let helper = helper.ok_or_else(|| anyhow!("its process cannot be started"))?;
        let socket = helper.socket().context("cannot serve")?;
        let running = RunningChannel::new(ours).context("cannot serve")?;
        let refused = RefusedRequests::default();
        Ok(Self { address, socket, running, refused, problem: None, _helper: helper })
    }

    /// Lets it serve the store in this folder.
    fn begin(&self, folder: &Path) -> Result<()> {
        token_file::obtain(folder)?;
        SqliteHistory::prepare_reading(folder);
        (&self.socket).write_all(&[BEGIN]).context("its process has ended")?;
        self.socket.set_nonblocking(true).context("cannot serve")
    }

    fn status(&mut self) -> ServedPageStatus {
        self.refused.read(&self.socket);
        let refused = PageRefusal::ALL.into_iter().zip(self.refused.counts).filter(|(_, count)| *count > 0);
        ServedPageStatus {
            address: self.address.to_string(),
            problem: self.problem.clone(),
            refused: refused.map(|(kind, count)| (kind.name().to_owned(), count)).collect(),
        }
    }
}

/// How many requests the helper has refused, by reason.
#[derive(Default)]
struct RefusedRequests {
    counts: [u64; PageRefusal::ALL.len()],
    /// The beginning of its next message.
    partial: Vec<u8>,
}

impl RefusedRequests {
    /// Reads what has come by now.
    fn read(&mut self, mut from: impl Read) {
        let mut space = [0; COUNTS_BYTES];
        for _ in 0..MAX_MESSAGES {
            let room = COUNTS_BYTES - self.partial.len();
            match from.read(&mut space[..room]) {
                Ok(0) | Err(_) => return,
                Ok(length) => self.partial.extend_from_slice(&space[..length]),
            }
            if self.partial.len() == COUNTS_BYTES {
                let numbers =
                    self.partial.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
                self.counts.iter_mut().zip(numbers).for_each(|(count, number)| *count = number);
                self.partial.clear();
            }
        }
    }
}

/// What the helper works with.
struct HelperSockets {
    /// To the agent: it says when to begin, and hears what was refused.
    agent: UnixStream,
    listener: TcpListener,
    /// To the agent, which is asked there for the operations that run.
    running: UnixStream,
}

/// In the helper: serves the history in `folder` once it is there. The process ends when the agent does.
fn serve(sockets: HelperSockets, folder: &Path, hosts: AllowedHosts) -> Result<()> {
    let HelperSockets { agent, listener, running } = sockets;
    let mut agent_end = agent.try_clone()?;
    if agent_end.read_exact(&mut [0]).is_err() {
        // The agent could not begin, and says why.
        return Ok(());
    }
    match limit_files(&[folder], &[]) {
        // The agent reports a kernel without Landlock where it drops its own privileges.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error.into()),
        _ => {}
    }
    let token = token_file::read(folder)?.context("the token of the page has gone")?;
    let source = PageSource { folder, running: Some(RunningLink::start(running)?) };
    let page = StoredPage::new(source, token, hosts, PageLimits::default())?;
    start_thread(StartStep::Thread, "page-end", move || {
        // Nothing more is ever sent.
        let _ = agent_end.read(&mut [0]);
        std::process::exit(0)
    })?;
    // An agent that stands still does not hold up the page; a later message has all counts.
    agent.set_write_timeout(Some(MAX_WRITE))?;
    let mut stated = [0; COUNTS_BYTES];
    page.serve(listener, Arc::default(), |counts| {
        let now = counts_message(counts);
        if now != stated && (&agent).write_all(&now).is_ok() {
            stated = now;
        }
    })
}

fn counts_message(counts: &RefusalCounts) -> [u8; COUNTS_BYTES] {
    let mut message = [0; COUNTS_BYTES];
    for (place, kind) in message.chunks_exact_mut(8).zip(PageRefusal::ALL) {
        place.copy_from_slice(&counts.get(kind).to_le_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_counts_of_refused_requests_are_known_however_they_arrive() {
        let message = |access: u64| {
            let counts = PageRefusal::ALL.map(|kind| if kind == PageRefusal::Access { access } else { 0 });
            counts.map(u64::to_le_bytes).concat()
        };
        let (mut to, from) = UnixStream::pair().unwrap();
        from.set_nonblocking(true).unwrap();
        let mut refused = RefusedRequests::default();
        let mut after = |bytes: &[u8]| {
            to.write_all(bytes).unwrap();
            refused.read(&from);
            refused.counts[PageRefusal::Access as usize]
        };
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&[message(1), message(2)].concat()), 2);
        let next = message(7);
        assert_eq!(after(&next[..COUNTS_BYTES - 1]), 2, "not all of it has come");
        assert_eq!(after(&next[COUNTS_BYTES - 1..]), 7);
    }
}
