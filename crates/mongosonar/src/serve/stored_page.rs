//! The page of a history in a folder, as `serve` and the agent serve it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use sonar_core::{HistoryReader, Timestamp};
use sonar_serve::{
    AccessToken, PageAccess, PageApp, PageDoor, PageHistory, PageLimits, PageProblem, PageSite,
    RefusalCounts, ServedPage,
};
use sonar_store::SqliteHistory;
use sonar_view::agent::AgentStatus;
use sonar_view::now::ListedOperations;
use sonar_view::past::storage::DiskTests;

use super::running_link::RunningLink;
use super::{disk_tests, token_file};
use crate::agent::status_file;
use crate::args::when;
use crate::confinement::start_order::{StartStep, start_thread};
use crate::exit;
use crate::page;

/// How often the token is read again: sessions of an old token end this soon after a new one was made.
const READ_TOKEN_EVERY: Duration = Duration::from_millis(500);

/// What a page shows.
pub struct PageSource<'a> {
    /// The folder of the history.
    pub folder: &'a Path,
    /// Where the agent that writes it lists the operations that run; `None` for a page of no agent.
    pub running: Option<Arc<RunningLink>>,
}

/// The page of a history in a folder.
pub struct StoredPage {
    page: Arc<ServedPage>,
    folder: PathBuf,
}

impl StoredPage {
    /// A page for whoever has the token, where `site` says.
    ///
    /// # Errors
    /// The web app of this program cannot be served.
    pub fn new(
        source: PageSource<'_>,
        token: AccessToken,
        site: PageSite,
        limits: PageLimits,
    ) -> Result<Self> {
        let PageSource { folder, running } = source;
        let (html, policy) = page::live();
        let app = PageApp::new(&html, &policy).context("the web app cannot be served")?;
        let history = ServedStore { folder: folder.to_owned(), name: folder.display().to_string(), running };
        let door = PageDoor { access: PageAccess::new(token, when::now()), site };
        let page = Arc::new(ServedPage::new(Box::new(history), app, door, limits));
        Ok(Self { page, folder: folder.to_owned() })
    }

    /// Serves it until `stop` is set, in a thread of its own. Meanwhile each new token takes effect, and every half second
    /// `counted` gets what was refused so far.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn serve(
        &self,
        listener: TcpListener,
        stop: Arc<AtomicBool>,
        mut counted: impl FnMut(&RefusalCounts),
    ) -> Result<()> {
        let served = self.page.clone();
        let thread =
            start_thread(StartStep::Thread, "page", move || sonar_serve::serve(listener, &served, &stop))?;
        let mut is_known = true;
        while !thread.is_finished() {
            let read = token_file::read(&self.folder);
            // Where none can be read, nobody may ask.
            if let Err(error) = &read
                && is_known
            {
                eprintln!("mongosonar: nobody may read the page: {}", exit::message(error));
            }
            is_known = read.is_ok();
            self.page.access().replace(read.ok().flatten());
            counted(self.page.refused());
            std::thread::sleep(READ_TOKEN_EVERY);
        }
        let ended = thread.join().map_err(|_| anyhow!("the thread that serves the page has failed"))?;
        ended.context("cannot serve")
    }
}

/// The history in a folder, for a thread that may read nothing else.
struct ServedStore {
    folder: PathBuf,
    name: String,
    running: Option<Arc<RunningLink>>,
}

impl PageHistory for ServedStore {
    fn open(&self) -> Result<Box<dyn HistoryReader>, PageProblem> {
        let store = SqliteHistory::open(&self.folder).map_err(|error| PageProblem::failed(&error))?;
        Ok(Box::new(store))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn now(&self) -> Timestamp {
        when::now()
    }

    fn agent(&self) -> Result<Option<AgentStatus>, String> {
        status_file::read_recent(&self.folder, self.now()).map_err(|error| exit::message(&error))
    }

    fn running(&self) -> ListedOperations {
        self.running.as_ref().map_or(ListedOperations::NoAgent, |link| link.look())
    }

    fn disk_tests(&self) -> DiskTests {
        disk_tests::read(&self.folder)
    }
}
