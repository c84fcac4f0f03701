//! `mongosonar serve`: the history of an agent as a page, and as JSON for programs.

pub mod args;
mod files;
pub mod token_file;

use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use sonar_core::history::Span;
use sonar_core::{HistoryReader, Timestamp};
use sonar_serve::{
    AccessToken, AllowedHosts, PageAccess, PageApp, PageDoor, PageHistory, PageLimits, PageProblem,
    ServedPage,
};
use sonar_store::SqliteHistory;
use sonar_view::agent::AgentStatus;

pub use self::args::ServeArgs;
use self::files::ReplayedFiles;
use crate::agent;
use crate::args::when;
use crate::confinement::privileges;
use crate::confinement::start_order::{self, StartStep, start_thread};
use crate::exit::{self, OK};
use crate::history::{StoreArgs, StoredHistory};
use crate::page;
use crate::stop::{Signals, StopBehavior};

/// How often the token is read again: after a new one was made, sessions of the one before last no longer than that.
const READ_TOKEN_EVERY: Duration = Duration::from_millis(500);

/// Runs the command; returns the exit code.
pub fn run(args: &ServeArgs) -> Result<u8> {
    // A replay may take long.
    let signals = Signals::catch(StopBehavior::Prompt)?;
    let replayed = match args.files.is_empty() {
        true => None,
        false => ReplayedFiles::replay(&args.files, args.port, &signals)?,
    };
    if !args.files.is_empty() && replayed.is_none() {
        return interrupted(signals);
    }
    let store = match &replayed {
        Some(replayed) => StoreArgs { store: Some(replayed.folder().to_owned()) },
        None => args.page.store.clone(),
    };
    let folder = store.folder();
    // If there is none, that is said here.
    let history = StoredHistory::open(&store)?;
    // Nothing that the replay may have left there is a token.
    let token = if replayed.is_some() { token_file::make(folder)? } else { token_file::obtain(folder)? };
    start_order::take(StartStep::Opened);
    let address = args.page.address();
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot serve at {address} (--listen 127.0.0.1:0 takes a free port)"))?;
    let address = listener.local_addr().context("cannot serve")?;
    SqliteHistory::prepare_reading(folder);
    let stop = signals.watch(|| {
        start_order::drop_privileges(true, || privileges::drop_privileges_but_serving(folder));
    })?;
    // What was replayed has ended; the history of an agent goes on.
    let shown = replayed.as_ref().map(|_| history.view().map(|view| view.extent())).transpose()?;
    drop(history);
    let (html, policy) = page::live();
    let app = PageApp::new(html, &policy).context("the web app cannot be served")?;
    let page = Arc::new(ServedPage::new(
        Box::new(ServedStore { folder: folder.to_owned(), name: folder.display().to_string() }),
        app,
        PageDoor {
            access: PageAccess::new(token.clone(), when::now()),
            hosts: AllowedHosts::new(args.allow_host.clone()),
        },
        PageLimits::default(),
    ));
    eprintln!("mongosonar: serving the history in {} at http://{address}/", folder.display());
    let listen = args.page.listen.map_or_else(String::new, |_| format!(" --listen {address}"));
    eprintln!("mongosonar: `mongosonar open{listen}{}` prints a link that opens it", store.suffix());
    if shown.is_some() || io::stdout().is_terminal() {
        println!("{}", link(address, &token, shown)?);
    }
    let (served, flag) = (page.clone(), stop.flag().clone());
    let thread =
        start_thread(StartStep::Thread, "page", move || sonar_serve::serve(listener, &served, &flag))?;
    follow_token(&page, folder, || thread.is_finished());
    thread
        .join()
        .map_err(|_| anyhow!("the thread that serves the page has failed"))?
        .context("cannot serve")?;
    Ok(OK)
}

/// Ends with the exit code of the signal that came before the page was served.
fn interrupted(signals: Signals) -> Result<u8> {
    let stop = signals.watch(|| start_order::drop_privileges(false, || {}))?;
    // A thread of its own sets the flag.
    while !stop.flag().load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(exit::Interrupted("stopped before the files were read to their end".to_owned()).into())
}

/// The address that opens a page once, at this span or, without one, at the time that the page chooses.
///
/// # Errors
/// This system has no random bytes.
pub fn link(address: SocketAddr, token: &AccessToken, shown: Option<Span>) -> Result<String> {
    let seconds = |time: Timestamp| time.to_string().replace(".000000000", "");
    let parameters = shown
        .map_or_else(String::new, |span| format!("?from={}&to={}", seconds(span.from), seconds(span.to)));
    Ok(format!("http://{address}/{parameters}#{}", token.link_code(when::now())?))
}

/// Gives a page each new token, until it has ended. Where none can be read, nobody may ask.
fn follow_token(page: &ServedPage, folder: &Path, has_ended: impl Fn() -> bool) {
    let mut is_known = true;
    while !has_ended() {
        let read = token_file::read(folder);
        if let Err(error) = &read
            && is_known
        {
            eprintln!("mongosonar: nobody may read the page: {}", exit::message(error));
        }
        is_known = read.is_ok();
        page.access().replace(read.ok().flatten());
        std::thread::sleep(READ_TOKEN_EVERY);
    }
}

/// The history in a folder, for a thread that may read nothing else.
struct ServedStore {
    folder: PathBuf,
    name: String,
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
        agent::recent_status(&self.folder, self.now()).map_err(|error| exit::message(&error))
    }
}
