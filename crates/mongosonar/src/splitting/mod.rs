//! Follows where the time of operations goes inside the servers, for as long as a command runs.
//!
//! Two sources see each operation: the wire, which knows its shape, and the thread that executes it, of which the
//! kernel knows where its time goes. They meet in a [`SplitMeeting`] by connection and request id. A [`SplitSink`]
//! receives what both saw.

mod in_progress;
mod meeting;
mod open_files;
mod rows;
mod trace;
mod wait_problems;
mod waits;

pub use self::meeting::{SplitMeeting, SplitSink, WireSide, lock};
pub use self::open_files::FileId;
pub use self::rows::WindowSplits;
pub use self::trace::{EncryptedSplit, SplitHelpers, SplitPlan, SplitTrace};

use anyhow::{Result, bail};
use sonar_sys::Host;

use crate::queries::args::Range;
use crate::queries::ports::Listened;
use crate::servers;

/// The processes to trace: those that were asked for, else each mongod and mongos of this machine, or only those that
/// listen on the named ports.
///
/// # Errors
/// A named process does not exist, no mongod or mongos runs here, or none listens on `ports`.
pub fn processes(asked: &[u32], ports: &[Range]) -> Result<Vec<u32>> {
    let host = Host::live();
    if let Some(none) = asked.iter().find(|process| host.stat(**process).is_none()) {
        bail!("there is no process {none}");
    }
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    let found: Vec<u32> = servers::mongodb(&host).iter().map(|process| process.pid).collect();
    if found.is_empty() {
        bail!("no mongod or mongos runs here: name a process with --pid");
    }
    if ports.is_empty() {
        return Ok(found);
    }
    let listened = Listened::of(ports, Vec::new());
    let serving = host.serving(&found, &|port| listened.has(port));
    if serving.is_empty() {
        bail!("no mongod or mongos listens on {listened} here: name another port, or a process with --pid");
    }
    Ok(serving)
}
