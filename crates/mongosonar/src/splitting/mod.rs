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

/// The ports to capture for these processes: those that were named, else those on which they listen if they were named
/// themselves. Empty: those of every server here.
///
/// # Errors
/// A named process listens on none that can be seen.
pub fn ports(asked: &[u32], named: &[Range]) -> Result<Vec<Range>> {
    if asked.is_empty() || !named.is_empty() {
        return Ok(named.to_vec());
    }
    let host = Host::live();
    if let Some(deaf) = asked.iter().find(|process| host.ports_of(&[**process]).is_empty()) {
        bail!("process {deaf} listens on no TCP port that can be seen from here: name its port with --port");
    }
    Ok(host.ports_of(asked).into_iter().map(|port| Range(port, port)).collect())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_named_process_has_the_ports_it_listens_on_and_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = ports(&[std::process::id()], &[]).unwrap();
        assert!(own.contains(&Range(port, port)), "{own:?}");
        let other = ports(&[1], &[]).map(|found| found.contains(&Range(port, port)));
        assert!(!other.unwrap_or(false));
        assert_eq!(ports(&[1], &[Range(5, 6)]).unwrap(), [Range(5, 6)]);
        assert_eq!(ports(&[], &[]).unwrap(), []);
    }
}
