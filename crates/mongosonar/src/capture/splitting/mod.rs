//! Follows where the time of operations goes inside the servers, for as long as a command runs.
//!
//! Two sources see each operation: the wire, which knows its shape, and the thread that executes it, of which the
//! kernel knows where its time goes. They meet in a [`OperationMatcher`] by connection and request id. A [`SplitSink`]
//! receives what both saw.

mod file_labels;
mod in_progress;
mod loaded_symbols;
mod open_files;
mod operation_matcher;
mod plan;
mod rows;
mod trace;
mod wait_problems;
mod waits;

pub use self::file_labels::{ClosedFiles, FileLabels};
pub use self::open_files::OpenFilesRoom;
pub use self::operation_matcher::{OperationMatcher, SplitSink, WireSide};
pub use self::plan::SplitPlan;
pub use self::rows::WindowSplits;
pub use self::trace::{SplitHelpers, SplitTrace};

use anyhow::{Result, anyhow, bail};
use sonar_sys::Host;
use sonar_sys::host::process::RunningProgram;
use sonar_sys::split::MAX_PROCESSES;

use crate::args::values::PortRange;
use crate::capture::ports::CapturedPorts;
use crate::exit::usage;
use crate::servers;

/// The processes to trace: those that were asked for, else each mongod and mongos of this machine that proves to be one, or
/// only those that listen on the named ports. Where there are more than can be traced, those that get a place come first.
/// Each has the program for which it was chosen: once it executes another one, or has ended, it is not traced.
///
/// # Errors
/// A named process does not exist, no mongod or mongos runs here, or none listens on `ports`.
pub fn processes(asked: &[u32], ports: &[PortRange]) -> Result<Vec<RunningProgram>> {
    let host = Host::live();
    if !asked.is_empty() {
        let running = |process: &u32| {
            RunningProgram::now(*process).map_err(|_| anyhow!("there is no process {process}"))
        };
        return asked.iter().map(running).collect();
    }
    let found = servers::in_order_of_places(servers::proven_or_hidden(&host), MAX_PROCESSES);
    if found.is_empty() {
        bail!("no mongod or mongos runs here: name a process with --pid");
    }
    if ports.is_empty() {
        return Ok(servers::proven_again(&host, &found));
    }
    let listened = CapturedPorts::of(ports, Vec::new());
    let serving = host.serving(&found, &|port| listened.has(port));
    if serving.is_empty() {
        return Err(usage!(
            "no mongod or mongos listens on {listened} here: name another port, or a process with --pid"
        ));
    }
    Ok(servers::proven_again(&host, &serving))
}

/// The numbers of these processes.
pub fn numbers(processes: &[RunningProgram]) -> Vec<u32> {
    processes.iter().map(|process| process.pid).collect()
}

/// The ports to capture for these processes: those that were named, else those on which they listen if they were named
/// themselves. Empty: those of every server here.
///
/// # Errors
/// A named process listens on none that can be seen.
pub fn ports(asked: &[u32], named: &[PortRange]) -> Result<Vec<PortRange>> {
    if asked.is_empty() || !named.is_empty() {
        return Ok(named.to_vec());
    }
    let host = Host::live();
    if let Some(deaf) = asked.iter().find(|process| host.ports_of(&[**process]).is_empty()) {
        bail!("process {deaf} listens on no TCP port that can be seen from here: name its port with --port");
    }
    Ok(host.ports_of(asked).into_iter().map(|port| PortRange(port, port)).collect())
}

#[cfg(test)]
pub mod tests {
    use std::net::TcpListener;

    use sonar_core::time_split::{FileWait, ThreadOperation, Waker, WireOperation};
    use sonar_core::{Endpoint, testing};

    use super::*;

    fn client(number: u64) -> Endpoint {
        Endpoint::v4([10, 1, (number >> 8) as u8, number as u8], (number >> 16) as u16 + 1)
    }

    /// An operation of the wire on a connection of its own.
    pub fn wire_operation(number: u64) -> WireOperation {
        WireOperation { client: client(number), ..testing::wire_operation(7, number + 1_000) }
    }

    /// The same at its thread, with as much as there may be.
    pub fn thread_operation(number: u64) -> ThreadOperation {
        let file = FileWait { inode: 1, device: 1, reads: 1, in_order: 1, bytes: 1, wait_ns: 1 };
        let waker = Waker { thread: 9, operation_start: None, count: 1, wait_ns: 1 };
        ThreadOperation {
            thread: number as u32,
            thread_name: "conn12345678901".to_owned(),
            connection: Some((testing::SERVER, client(number))),
            files: vec![file; 4],
            wakers: vec![waker; 4],
            ..testing::thread_operation(7, number + 1_000)
        }
    }

    #[test]
    fn a_named_process_has_the_ports_it_listens_on_and_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = ports(&[std::process::id()], &[]).unwrap();
        assert!(own.contains(&PortRange(port, port)), "{own:?}");
        let other = ports(&[1], &[]).map(|found| found.contains(&PortRange(port, port)));
        assert!(!other.unwrap_or(false));
        assert_eq!(ports(&[1], &[PortRange(5, 6)]).unwrap(), [PortRange(5, 6)]);
        assert_eq!(ports(&[], &[]).unwrap(), []);
    }
}
