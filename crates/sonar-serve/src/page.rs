//! A page: the history that it shows, who may read it, and how much.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use sonar_core::{HistoryReader, Timestamp};
use sonar_view::agent::AgentStatus;
use sonar_view::now::ListedOperations;
use sonar_view::past::ScannedParts;
use sonar_view::past::storage::DiskTests;
use tokio::sync::Semaphore;

use crate::access::PageAccess;
use crate::answer::StaticAnswer;
use crate::limits::{PageLimits, RefusalCounts, RequestBudget};
use crate::newest::NewestWindow;
use crate::problem::PageProblem;
use crate::recent::RecentAnswers;
use crate::site::PageSite;

/// How often the history is looked at for a new window while somebody waits for one.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// The history that a page shows.
pub trait PageHistory: Send + Sync {
    /// Opens it for one answer.
    ///
    /// # Errors
    /// It cannot be read.
    fn open(&self) -> Result<Box<dyn HistoryReader>, PageProblem>;

    /// Where it is.
    fn name(&self) -> &str;

    /// The time now.
    fn now(&self) -> Timestamp;

    /// What the agent does that writes it; `None` if none runs.
    ///
    /// # Errors
    /// Why it is not known, in words.
    fn agent(&self) -> Result<Option<AgentStatus>, String>;

    /// The operations that run now, as the agent that writes it lists them as long as somebody asks.
    fn running(&self) -> ListedOperations {
        ListedOperations::NoAgent
    }

    /// Results of `disk bench` that are kept beside it.
    fn disk_tests(&self) -> DiskTests {
        DiskTests::default()
    }
}

/// The web app that draws the documents.
#[derive(Clone, Debug)]
pub struct PageApp {
    pub(crate) html: StaticAnswer,
    pub(crate) policy: HeaderValue,
}

impl PageApp {
    /// An app in one file, with the content security policy that lets its script run and ask this page.
    ///
    /// # Errors
    /// The policy has characters that no header may have.
    pub fn new(html: &str, policy: &str) -> io::Result<Self> {
        let policy = HeaderValue::from_str(policy).map_err(io::Error::other)?;
        Ok(Self { html: StaticAnswer::new(html)?, policy })
    }
}

/// Who may ask, and where.
pub struct PageDoor {
    /// Who has the token, or a session.
    pub access: PageAccess,
    /// Where the page is reached.
    pub site: PageSite,
}

/// A page that is served.
pub struct ServedPage {
    pub(crate) app: PageApp,
    pub(crate) history: Box<dyn PageHistory>,
    pub(crate) access: PageAccess,
    pub(crate) site: PageSite,
    pub(crate) limits: PageLimits,
    pub(crate) refused: RefusalCounts,
    /// Requests of those who may read.
    pub(crate) budget: RequestBudget,
    /// Attempts to get a session, which anybody can make.
    pub(crate) sessions: RequestBudget,
    /// How many handshakes of TLS may begin.
    pub(crate) handshakes: RequestBudget,
    /// Places for requests that wait or are answered.
    pub(crate) places: Arc<Semaphore>,
    /// Turns to read the history.
    pub(crate) turns: Arc<Semaphore>,
    /// Places for those who follow it.
    pub(crate) viewers: Arc<Semaphore>,
    newest: NewestWindow,
    pub(crate) recent: RecentAnswers,
    /// What is known of parts of the history.
    pub(crate) scanned: ScannedParts,
    /// The description of the API, once somebody has asked for it.
    pub(crate) description: OnceLock<StaticAnswer>,
}

impl ServedPage {
    /// Shows a history to those who have access.
    pub fn new(
        history: Box<dyn PageHistory>,
        app: PageApp,
        PageDoor { access, site }: PageDoor,
        limits: PageLimits,
    ) -> Self {
        Self {
            app,
            history,
            access,
            site,
            refused: RefusalCounts::default(),
            budget: RequestBudget::new(limits.rate, Instant::now()),
            sessions: RequestBudget::new(limits.rate, Instant::now()),
            handshakes: RequestBudget::new(limits.rate, Instant::now()),
            places: Arc::new(Semaphore::new(limits.answers + limits.waiting)),
            turns: Arc::new(Semaphore::new(limits.answers)),
            viewers: Arc::new(Semaphore::new(limits.viewers)),
            newest: NewestWindow::default(),
            recent: RecentAnswers::default(),
            scanned: ScannedParts::default(),
            description: OnceLock::new(),
            limits,
        }
    }

    /// The end of the newest window in nanoseconds since 1970, as it was read within the last second or is read now; `None` if
    /// nothing is stored.
    pub(crate) async fn newest_end_ns(self: &Arc<Self>) -> Option<u64> {
        let page = Arc::clone(self);
        let read = move || Some(page.history.open().ok()?.extent().ok()??.to.unix_ns());
        self.newest.end_ns(LOOK, read).await
    }

    /// Who may ask.
    pub const fn access(&self) -> &PageAccess {
        &self.access
    }

    /// What was refused.
    pub const fn refused(&self) -> &RefusalCounts {
        &self.refused
    }
}
