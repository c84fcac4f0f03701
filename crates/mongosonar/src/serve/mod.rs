//! `mongosonar serve`: the history of an agent as a page, and as JSON for programs.

pub mod args;
mod disk_tests;
mod files;
pub mod place;
pub mod running_link;
pub mod stored_page;
pub mod tls_files;
pub mod token_file;

use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_serve::{AccessToken, PageLimits, PagePath, PageUrl};
use sonar_store::SqliteHistory;

pub use self::args::ServeArgs;
use self::files::ReplayedFiles;
use self::place::PagePlace;
use self::stored_page::{PageSource, StoredPage};
use self::tls_files::{TlsFiles, TlsPaths};
use crate::args::when;
use crate::confinement::privileges;
use crate::confinement::start_order::{self, StartStep};
use crate::exit::{self, OK, usage};
use crate::history::{StoreArgs, StoredHistory};
use crate::stop::{Signals, StopBehavior};

/// Runs the command; returns the exit code.
pub fn run(args: &ServeArgs) -> Result<u8> {
    let place = args.place();
    if let Some(why) = place.address_problem() {
        return Err(usage!("--listen: {why}"));
    }
    if let Some(why) = place.url_problem() {
        return Err(usage!("--url: {why}"));
    }
    // Before anything takes long, and while it may. They are read once the helper runs that removes what was replayed.
    let tls = place.tls.as_ref().map(TlsPaths::open).transpose()?;
    // A replay may take long.
    let signals = Signals::catch(StopBehavior::Prompt)?;
    let replayed = match args.files.is_empty() {
        true => None,
        false => ReplayedFiles::replay(&args.files, args.port, &signals)?,
    };
    if !args.files.is_empty() && replayed.is_none() {
        return interrupted(signals);
    }
    let tls = tls.as_ref().map(TlsFiles::read).transpose()?;
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
    let address = place.address;
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot serve at {address} (--listen 127.0.0.1:0 takes a free port)"))?;
    let place = PagePlace { address: listener.local_addr().context("cannot serve")?, ..place };
    SqliteHistory::prepare_reading(folder);
    let stop = signals.watch(|| {
        start_order::drop_privileges(true, || privileges::drop_privileges_but_serving(folder));
    })?;
    // What was replayed has ended; the history of an agent goes on.
    let shown = replayed.as_ref().map(|_| history.view().map(|view| view.extent())).transpose()?;
    drop(history);
    let source = PageSource { folder, running: None };
    let page = StoredPage::new(source, token.clone(), place.site(tls), PageLimits::default())?;
    eprintln!("mongosonar: serving the history in {} at {}", folder.display(), place.own_url());
    let open = open_command(&place, args.page.listen.is_some(), &store);
    eprintln!("mongosonar: `{open}` prints a link that opens it");
    if shown.is_some() || io::stdout().is_terminal() {
        println!("{}", link(&place.url(), &token, shown)?);
    }
    page.serve(listener, stop.flag().clone(), |_| {})?;
    Ok(OK)
}

/// The command that prints a link to a page; `is_named`: its address is not the usual one.
fn open_command(place: &PagePlace, is_named: bool, store: &StoreArgs) -> String {
    let (address, url) = (place.address, place.url());
    let listen = if is_named { format!(" --listen {address}") } else { String::new() };
    let url = match PageUrl::of(address, &PagePath::default(), false) {
        usual if usual == url => String::new(),
        _ => format!(" --url {url}"),
    };
    format!("mongosonar open{listen}{url}{}", store.suffix())
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
pub fn link(url: &PageUrl, token: &AccessToken, shown: Option<Span>) -> Result<String> {
    let seconds = |time: Timestamp| time.to_string().replace(".000000000", "");
    let parameters = shown
        .map_or_else(String::new, |span| format!("?from={}&to={}", seconds(span.from), seconds(span.to)));
    Ok(format!("{url}{parameters}#{}", token.link_code(when::now())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_for_a_link_names_what_open_cannot_know() {
        let store = StoreArgs { store: Some("./copy".into()) };
        let place = |url: Option<&str>, path: &str| PagePlace {
            address: "127.0.0.1:9000".parse().unwrap(),
            path: PagePath::parse(path).unwrap(),
            url: url.map(|url| PageUrl::parse(url).unwrap()),
            allow_host: Vec::new(),
            tls: None,
        };
        let usual = StoreArgs::default();
        assert_eq!(open_command(&place(None, ""), false, &usual), "mongosonar open");
        let named = open_command(&place(None, ""), true, &store);
        assert_eq!(named, "mongosonar open --listen 127.0.0.1:9000 --store ./copy");
        let below = open_command(&place(None, "/a"), false, &usual);
        assert_eq!(below, "mongosonar open --url http://127.0.0.1:9000/a/");
        let proxied = open_command(&place(Some("https://db1.example/a/"), "/a"), false, &usual);
        assert_eq!(proxied, "mongosonar open --url https://db1.example/a/");
        let tls = Some(TlsPaths { certificate: "page.pem".into(), key: "page.key".into() });
        let encrypted = open_command(&PagePlace { tls, ..place(None, "") }, false, &usual);
        assert_eq!(encrypted, "mongosonar open --url https://127.0.0.1:9000/");
    }
}
