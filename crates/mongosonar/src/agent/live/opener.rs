//! Opens rings after the agent has dropped its privileges, and knows the interfaces of this host: a helper process does
//! it, which keeps the capability to capture packets and nothing else.
//!
//! It adds nothing to what the agent could do before: whoever has the socket of a ring may give it any filter.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sonar_core::history::CollectorKind;
use sonar_sys::capabilities::CaptureError;
use sonar_sys::geometry::block_bytes;
use sonar_sys::privileges::Duty;
use sonar_sys::{PacketFilter, Ring, RingConfig, RingError, RingLayout, interfaces};

use super::board::{CollectorProblem, unanswered};
use crate::capture::threads::RETIRE;
use crate::confinement::helper_capabilities::CAPTURING;
use crate::confinement::helper_channel::{self, HelperChannel, answer, answer_with};
use crate::confinement::privileges::{self, HelperTask};
use crate::doctor;

/// Which ring to open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RingRequest {
    /// Names of interfaces; empty: all. Missing ones are left out if at least one exists.
    pub interfaces: Vec<String>,
    /// Ranges of ports.
    pub ports: Vec<(u16, u16)>,
    /// Memory for packets.
    pub size_bytes: usize,
    /// Whether packets of tunnels are kept, too.
    pub tunnels: bool,
}

impl RingRequest {
    /// Which packets the ring keeps.
    pub fn filter(&self) -> PacketFilter {
        let ports = self.ports.iter().map(|&(low, high)| low..=high).collect();
        PacketFilter { ports, tunnels: self.tunnels, ..PacketFilter::default() }
    }

    fn open(&self) -> Result<(Ring, Vec<u32>), RingError> {
        let all = interfaces::list().unwrap_or_default();
        let existing = all.iter().filter(|one| self.interfaces.contains(&one.name));
        let (names, numbers): (Vec<String>, Vec<u32>) =
            existing.map(|one| (one.name.clone(), one.index)).unzip();
        let config = RingConfig {
            // Where none exists the error names them.
            interfaces: if names.is_empty() { self.interfaces.clone() } else { names },
            filter: self.filter(),
            size_bytes: self.size_bytes,
            block_bytes: block_bytes(self.size_bytes, RETIRE),
            retire: RETIRE,
            ..RingConfig::default()
        };
        Ok((Ring::open(&config)?, numbers))
    }
}

/// A ring, and the numbers of the interfaces that were named and exist.
pub struct OpenedRing {
    /// The ring.
    pub ring: Ring,
    /// In ascending order; empty if none was named.
    pub interfaces: Vec<u32>,
}

/// The network of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkState {
    /// Name, number and whether it is up, of each interface.
    pub interfaces: Vec<(String, u32, bool)>,
    /// The addresses of all of them.
    pub addresses: Vec<IpAddr>,
}

impl NetworkState {
    /// The present one.
    ///
    /// # Errors
    /// It cannot be looked at, in words.
    pub fn now() -> Result<Self, String> {
        let all = interfaces::list()
            .map_err(|error| format!("cannot list the interfaces of this host: {error}"))?;
        let addresses = all.iter().flat_map(|one| one.addresses.iter().copied()).collect();
        Ok(Self { interfaces: all.into_iter().map(|one| (one.name, one.index, one.up)).collect(), addresses })
    }

    /// The numbers of these interfaces, as far as they exist, in ascending order.
    pub fn numbers(&self, names: &[String]) -> Vec<u32> {
        self.interfaces
            .iter()
            .filter(|(name, ..)| names.contains(name))
            .map(|(_, number, _)| *number)
            .collect()
    }

    /// Why an interface cannot be captured; `None` if it can.
    pub fn problem(&self, name: &str) -> Option<CollectorProblem> {
        let what = match self.interfaces.iter().find(|(known, ..)| known == name) {
            None => "it does not exist; it is captured once it does",
            Some((.., false)) => "it is down; it is captured once it is up",
            Some(_) => return None,
        };
        Some(CollectorProblem::temporary(what.to_owned()))
    }
}

/// What the helper is asked.
#[derive(Debug, Serialize, Deserialize)]
enum OpenerRequest {
    Network,
    Open(RingRequest),
}

/// Why a ring cannot be opened.
#[derive(Debug, Serialize, Deserialize)]
struct RingRefusal {
    what: String,
    fix: Option<String>,
    is_permanent: bool,
}

impl RingRefusal {
    fn of(error: &RingError) -> Self {
        let what = error.to_string();
        match error {
            RingError::Capture(CaptureError::Permission(_) | CaptureError::Unsupported(_))
            | RingError::Unsupported { .. } => {
                Self { what, fix: doctor::remedy(CollectorKind::Queries), is_permanent: true }
            }
            RingError::Size { .. } | RingError::Filter(_) => {
                let fix =
                    Some("change queries.ring-mib or queries.port, and reload the configuration".to_owned());
                Self { what, fix, is_permanent: true }
            }
            _ => Self { what, fix: None, is_permanent: false },
        }
    }

    fn into_problem(self) -> CollectorProblem {
        let Self { what, fix, is_permanent } = self;
        CollectorProblem { what, fix, is_permanent }
    }
}

/// A ring as the helper describes it: block size, number of blocks, milliseconds, interfaces of the filter, whether
/// loopback is captured once; then the interfaces that were named.
type RingMessage = (usize, usize, u64, Vec<u32>, bool, Vec<u32>);

/// Opens rings, here or in the helper.
#[derive(Debug)]
pub enum RingOpener {
    /// In this process, which keeps its privileges.
    Here,
    /// In the helper.
    There(HelperChannel),
}

impl RingOpener {
    /// Starts the helper if this process gives up its privileges (`confined`). Call it before any thread is started.
    pub fn start(confined: bool) -> Self {
        let what = "capturing again after a failure";
        let memory = privileges::HELPER_BYTES;
        let task = HelperTask { name: "sonar-rings", what, memory, keep: CAPTURING, duty: Duty::Capturing };
        match confined.then(|| HelperChannel::start(task, serve)).flatten() {
            Some(channel) => Self::There(channel),
            None => Self::Here,
        }
    }

    /// The interfaces and addresses of this host now.
    ///
    /// # Errors
    /// They cannot be listed, in words.
    pub fn network(&self) -> Result<NetworkState, String> {
        match self {
            Self::Here => NetworkState::now(),
            Self::There(channel) => {
                let network: io::Result<(NetworkState, _)> = channel.ask(&OpenerRequest::Network);
                network.map(|(network, _)| network).map_err(|error| error.to_string())
            }
        }
    }

    /// Answers of the helper so far that came late.
    pub fn late_answers(&self) -> u64 {
        match self {
            Self::Here => 0,
            Self::There(channel) => channel.late(),
        }
    }

    /// Opens a ring.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open(&self, request: &RingRequest) -> Result<OpenedRing, CollectorProblem> {
        let refused = |error: &RingError| RingRefusal::of(error).into_problem();
        match self {
            Self::Here => match request.open() {
                Ok((ring, interfaces)) => Ok(OpenedRing { ring, interfaces }),
                Err(error) => Err(refused(&error)),
            },
            Self::There(channel) => {
                let asked = channel.ask(&OpenerRequest::Open(request.clone()));
                let (described, files) = asked.map_err(|error| unanswered(&error))?;
                let described: Result<RingMessage, RingRefusal> = described;
                let message = described.map_err(RingRefusal::into_problem)?;
                let (block_bytes, blocks, retire_ms, of_filter, loopback_once, interfaces) = message;
                let layout =
                    RingLayout { block_bytes, blocks, retire_ms, interfaces: of_filter, loopback_once };
                let gone = || unanswered(&io::ErrorKind::BrokenPipe.into());
                let file = files.into_iter().next().ok_or_else(gone)?;
                let ring = Ring::adopt(OwnedFd::from(file), &layout).map_err(|error| refused(&error))?;
                Ok(OpenedRing { ring, interfaces })
            }
        }
    }
}

/// Answers until the agent ends.
fn serve(socket: UnixStream) -> io::Result<()> {
    // The kernel may have no Landlock; the main thread says so.
    let _ = sonar_sys::privileges::limit_files(&["/proc", "/sys"].map(Path::new), &[]);
    helper_channel::serve(socket, |request| match request {
        OpenerRequest::Network => answer(NetworkState::now().map_err(io::Error::other)),
        OpenerRequest::Open(request) => match request.open() {
            Ok((ring, interfaces)) => {
                let (descriptor, layout) = ring.hand_over();
                let RingLayout { block_bytes, blocks, retire_ms, interfaces: of_filter, loopback_once } =
                    layout;
                let message: RingMessage =
                    (block_bytes, blocks, retire_ms, of_filter, loopback_once, interfaces);
                let described: Result<RingMessage, RingRefusal> = Ok(message);
                answer_with(Ok(described), vec![File::from(descriptor)])
            }
            Err(error) => answer(Ok(Err::<RingMessage, _>(RingRefusal::of(&error)))),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn late_answers_are_counted() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (go, may) = channel::<()>();
        let helper = std::thread::spawn(move || {
            helper_channel::serve(theirs, |_: OpenerRequest| {
                may.recv().map_err(io::Error::other)?;
                answer(Ok(NetworkState { interfaces: Vec::new(), addresses: Vec::new() }))
            })
        });
        let opener = RingOpener::There(HelperChannel::impatient(ours, Duration::from_millis(1)));
        /// In each of them it waits for a late answer.
        const MAX_LOOKS: usize = 10_000;
        assert!(opener.network().is_err(), "the helper stands still");
        assert_eq!((opener.late_answers(), RingOpener::Here.late_answers()), (0, 0));
        let comes = (0..MAX_LOOKS).any(|_| {
            go.send(()).unwrap();
            let _ = opener.network();
            opener.late_answers() > 0
        });
        assert!(comes, "the helper may answer, and does not");
        // The helper may wait for one more.
        drop((go, opener));
        let _ = helper.join();
    }

    #[test]
    fn interfaces_that_are_missing_or_down_are_named_and_the_others_are_captured() {
        let up = |name: &str, number, is_up| (name.to_owned(), number, is_up);
        let network = NetworkState {
            interfaces: vec![up("lo", 1, true), up("eth0", 2, true), up("eth1", 7, false)],
            addresses: Vec::new(),
        };
        let names = ["eth0", "eth1", "eth2"].map(str::to_owned);
        assert_eq!(network.numbers(&names), [2, 7]);
        assert_eq!(network.problem("eth0"), None);
        for (name, what) in [("eth1", "is down"), ("eth2", "does not exist")] {
            let problem = network.problem(name).unwrap();
            assert!(problem.what.contains(what) && !problem.is_permanent, "{problem:?}");
        }
    }

    #[test]
    fn a_ring_that_may_be_possible_later_is_no_permanent_problem() {
        let source = || io::Error::from_raw_os_error(12);
        let temporary = RingRefusal::of(&RingError::Memory { bytes: 1 << 20, source: source() });
        assert!(!temporary.is_permanent);
        let wrong = RingRefusal::of(&RingError::Size { size_bytes: 5, block_bytes: 5 });
        assert!(wrong.is_permanent && wrong.fix.is_some());
    }
}
