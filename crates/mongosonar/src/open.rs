//! `mongosonar open`: prints a link that opens the page of `mongosonar serve`.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;

use crate::exit::OK;
use crate::history::StoredHistory;
use crate::serve::args::PageArgs;
use crate::serve::{link, token_file};

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  sudo mongosonar open                prints a link, which works once and for five minutes
  sudo mongosonar open --new-token    the same, and ends all sessions and links of before";

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
}

/// Runs the command; returns the exit code.
pub fn run(args: &OpenArgs) -> Result<u8> {
    let (folder, address) = (args.page.store.folder(), args.page.address());
    // If there is none, that is said here.
    StoredHistory::open(&args.page.store)?;
    let token = if args.new_token { token_file::make(folder)? } else { token_file::obtain(folder)? };
    TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| {
        let suffix = args.page.store.suffix();
        anyhow!(
            "no page is served at {address} ({error}): start `mongosonar serve{suffix}`, or name its --listen"
        )
    })?;
    println!("{}", link(address, &token, None)?);
    Ok(OK)
}
