//! `mongosonar serve`: the history of an agent as a page, and as JSON for programs.

pub mod args;
mod disk_tests;
mod files;
pub mod running_link;
pub mod stored_page;
pub mod token_file;

use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_serve::{AccessToken, AllowedHosts, PageLimits};
use sonar_store::SqliteHistory;

pub use self::args::ServeArgs;
use self::files::ReplayedFiles;
use self::stored_page::{PageSource, StoredPage};
use crate::args::when;
use crate::confinement::privileges;
use crate::confinement::start_order::{self, StartStep};
use crate::exit::{self, OK};
use crate::history::{StoreArgs, StoredHistory};
use crate::stop::{Signals, StopBehavior};

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
    let hosts = AllowedHosts::new(args.allow_host.clone());
    let source = PageSource { folder, running: None };
    let page = StoredPage::new(source, token.clone(), hosts, PageLimits::default())?;
    eprintln!("mongosonar: serving the history in {} at http://{address}/", folder.display());
    let listen = args.page.listen.map_or_else(String::new, |_| format!(" --listen {address}"));
    eprintln!("mongosonar: `mongosonar open{listen}{}` prints a link that opens it", store.suffix());
    if shown.is_some() || io::stdout().is_terminal() {
        println!("{}", link(address, &token, shown)?);
    }
    page.serve(listener, stop.flag().clone(), |_| {})?;
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
