//! The page of the agent: a helper process that serves its history, and does nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sonar_serve::{PageLimits, PageRefusal, PageSite, PageUrl, RefusalCounts};
use sonar_store::SqliteHistory;
use sonar_sys::helper::{Helper, InheritedDescriptors};
use sonar_sys::privileges::{Duty, limit_files};
use sonar_sys::trust;
use sonar_view::agent::ServedPageStatus;
use sonar_view::now::NowSnapshot;

use super::now::channel::RunningChannel;
use super::plan::LivePlan;
use crate::confinement::helper_capabilities::READING;
use crate::confinement::privileges::{HelperTask, PAGE_HELPER_BYTES};
use crate::confinement::start_order::{StartStep, start_thread};
use crate::exit;
use crate::serve::place::PagePlace;
use crate::serve::running_link::RunningLink;
use crate::serve::stored_page::{PageSource, StoredPage};
use crate::serve::tls_files::{TlsFiles, TlsPaths};
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
/// The most bytes of why the helper cannot serve.
const MAX_PROBLEM: usize = 4 << 10;

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
    Served(Box<PageHelper>),
}

/// The helper process that serves the page.
pub struct PageHelper {
    place: PagePlace,
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
        let Some(place) = plan.settings.page.place() else { return Self::Off };
        Self::of(place.address, PageHelper::start(place, plan.folder))
    }

    /// Lets it serve the store in this folder, which exists by now.
    pub fn begin(self, folder: &Path) -> Self {
        let Self::Served(helper) = self else { return self };
        let (address, begun) = (helper.place.address, helper.begin(folder));
        Self::of(address, begun.map(|()| *helper))
    }

    /// What links to it begin with; `None` if it is not served.
    pub fn url(&self) -> Option<PageUrl> {
        match self {
            Self::Served(helper) => Some(helper.place.url()),
            Self::Off | Self::NotServed { .. } => None,
        }
    }

    fn of(address: SocketAddr, helper: Result<PageHelper>) -> Self {
        match helper {
            Ok(helper) => Self::Served(Box::new(helper)),
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
    fn start(place: PagePlace, folder: &Path) -> Result<Self> {
        // With the privileges of this process. The helper reads them, so that this one never has the key.
        let files = place.tls.as_ref().map(TlsPaths::open).transpose()?;
        let address = place.address;
        let listener = TcpListener::bind(address).with_context(|| {
            format!("cannot serve at {address} ([page] in the configuration names another address)")
        })?;
        let place = PagePlace { address: listener.local_addr().context("cannot serve")?, ..place };
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
            let tls = files.as_ref().map(TlsFiles::read).transpose();
            send_problem(&agent, tls.as_ref().err())?;
            // The agent says why not.
            let Ok(tls) = tls else { return Ok(()) };
            let sockets =
                HelperSockets { agent, listener: listener.try_clone()?, running: running.try_clone()? };
            let served = serve(sockets, folder, place.site(tls));
            served.map_err(|error| {
                eprintln!("mongosonar: the page is not served any more: {}", exit::message(&error));
                io::Error::other(error)
            })
        };
        let mut kept = vec![listener.as_fd(), running.as_fd()];
        kept.extend(files.iter().flat_map(TlsFiles::descriptors));
        let helper = task.start_with(&InheritedDescriptors::These(&kept), serve);
        let helper = helper.ok_or_else(|| anyhow!("its process cannot be started"))?;
        let socket = helper.socket().context("cannot serve")?;
        if let Some(problem) = receive_problem(&socket).context("its process does not answer")? {
            bail!(problem);
        }
        let running = RunningChannel::new(ours).context("cannot serve")?;
        let refused = RefusedRequests::default();
        Ok(Self { place, socket, running, refused, problem: None, _helper: helper })
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
            address: self.place.address.to_string(),
            url: Some(self.place.url().to_string()),
            problem: self.problem.clone(),
            refused: refused.map(|(kind, count)| (kind.name().to_owned(), count)).collect(),
        }
    }
}

/// Tells the agent whether the helper can serve: the length of the reason why not, 0 if it can, and the reason.
fn send_problem(mut agent: &UnixStream, problem: Option<&anyhow::Error>) -> io::Result<()> {
    let text = problem.map(exit::message).unwrap_or_default();
    let text = text.as_bytes().get(..MAX_PROBLEM).unwrap_or(text.as_bytes());
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    agent.write_all(&[&length.to_le_bytes()[..], text].concat())
}

/// Why the helper cannot serve; `None` if it can.
fn receive_problem(mut helper: impl Read) -> io::Result<Option<String>> {
    let mut length = [0; 2];
    helper.read_exact(&mut length)?;
    let mut text = vec![0; usize::from(u16::from_le_bytes(length)).min(MAX_PROBLEM)];
    helper.read_exact(&mut text)?;
    Ok((!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned()))
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
fn serve(sockets: HelperSockets, folder: &Path, site: PageSite) -> Result<()> {
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
    let page = StoredPage::new(source, token, site, PageLimits::default())?;
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
    fn the_agent_learns_why_the_helper_cannot_serve() {
        let (agent, helper) = UnixStream::pair().unwrap();
        let learns = |problem: Option<anyhow::Error>| {
            send_problem(&helper, problem.as_ref()).unwrap();
            receive_problem(&agent).unwrap()
        };
        assert_eq!(learns(None), None);
        let problem = anyhow!("its key is damaged").context("cannot serve");
        assert_eq!(learns(Some(problem)).as_deref(), Some("cannot serve: its key is damaged"));
        assert_eq!(learns(Some(anyhow!("x".repeat(2 * MAX_PROBLEM)))), Some("x".repeat(MAX_PROBLEM)));
        drop(helper);
        assert!(receive_problem(&agent).is_err());
    }

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
