//! `mongosonar open`: prints a link that opens the page of the agent, or of `mongosonar serve`, and opens one in a browser.

mod desktop;

use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use sonar_serve::{PagePath, PageUrl};
use sonar_sys::host::user_listening_at;
use sonar_sys::trust;

use self::desktop::Desktop;
use crate::agent::status_file;
use crate::args::when;
use crate::exit::OK;
use crate::history::StoredHistory;
use crate::serve::args::PageArgs;
use crate::serve::{link, token_file};

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar open                prints a link, which works once and for five minutes, and on a
                                      desktop opens the page in the browser
  sudo mongosonar open --new-token    the same, and ends all sessions and links of before
  sudo mongosonar open --print        prints a link only";

/// How long this machine may take to connect to itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// The arguments of `open`.
#[derive(Args, Debug, Clone)]
pub struct OpenArgs {
    #[command(flatten)]
    pub page: PageArgs,
    /// Make a new token first, which ends all sessions and links of the one before
    #[arg(long)]
    pub new_token: bool,
    /// Print a link only, and open no browser, as where standard output is no terminal or there is no desktop
    #[arg(long)]
    pub print: bool,
}

/// Runs the command; returns the exit code.
pub fn run(args: &OpenArgs) -> Result<u8> {
    let folder = args.page.store.folder();
    let OpenedPage { address, url } = match args.page.listen {
        Some(address) => OpenedPage::at(address),
        None => of_agent(folder)?.unwrap_or_else(|| OpenedPage::at(args.page.address())),
    };
    let url = args.page.url.clone().unwrap_or(url);
    // If there is none, that is said here.
    StoredHistory::open(&args.page.store)?;
    let token = if args.new_token { token_file::make(folder)? } else { token_file::obtain(folder)? };
    TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| {
        let suffix = args.page.store.suffix();
        anyhow!(
            "no page is served at {address} ({error}): start the agent or `mongosonar serve{suffix}`, or name its --listen"
        )
    })?;
    check_listener(address, folder)?;
    println!("{}", link(&url, &token, None)?);
    if !args.print
        && io::stdout().is_terminal()
        && let Some(desktop) = Desktop::find()
    {
        // One of its own: the printed one stays good for another browser.
        match desktop.open(&link(&url, &token, None)?) {
            Ok(()) => eprintln!("mongosonar: the page opens in the browser (--print only prints a link)"),
            Err(error) => eprintln!("mongosonar: the page is not opened in the browser: {error}"),
        }
    }
    Ok(OK)
}

/// The page to which a link leads.
struct OpenedPage {
    /// Where it listens.
    address: SocketAddr,
    /// What links to it begin with.
    url: PageUrl,
}

impl OpenedPage {
    /// One that is reached where it listens, below no path.
    fn at(address: SocketAddr) -> Self {
        Self { address, url: PageUrl::of(address, &PagePath::default(), false) }
    }
}

/// The page of the agent that stores in this folder; `None` if none runs, or its configuration wants no page.
///
/// # Errors
/// It cannot serve it.
fn of_agent(folder: &Path) -> Result<Option<OpenedPage>> {
    let Some(page) =
        status_file::read_recent(folder, when::now()).ok().flatten().and_then(|status| status.page)
    else {
        return Ok(None);
    };
    if let Some(problem) = page.problem {
        bail!("the agent does not serve the page: {problem}");
    }
    let at = |address| match page.url.as_deref().map(PageUrl::parse) {
        Some(Ok(url)) => OpenedPage { address, url },
        // An agent of an older version states none.
        _ => OpenedPage::at(address),
    };
    Ok(page.address.parse().ok().map(at))
}

/// Another user's program may listen there: it would get the link, or the token.
///
/// # Errors
/// It does, or that cannot be found out.
fn check_listener(address: SocketAddr, folder: &Path) -> Result<()> {
    let user = user_listening_at(address).context("cannot find out who listens there")?;
    let owner = std::fs::metadata(folder).ok().map(|found| found.uid());
    match user {
        Some(user) if trust::has_user(user) || owner == Some(user) => Ok(()),
        Some(user) => bail!(
            "a program of user {user} listens at {address}, which is not the page of this history: end it, or serve the \
             page elsewhere (--listen, or [page] in the configuration of the agent)"
        ),
        None => bail!("it is not known whose program listens at {address}"),
    }
}
