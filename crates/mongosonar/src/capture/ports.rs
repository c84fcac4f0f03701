//! Which ports to capture: those that were named, or else those of each mongod and mongos on this host, looked up
//! again while capturing.

use sonar_decode::Ports;
use sonar_sys::Host;
use sonar_sys::host::listeners::Listener;
use sonar_view::queries::CapturedNetwork;
use sonar_view::queries::PacketOrigin;

use crate::args::values::PortRange;
use crate::servers::{self, ListeningPort};

/// The port when nothing else is known.
const DEFAULT: u16 = 27_017;
/// The most ports: each one makes the filter in the kernel longer.
const MAX_FOUND: usize = 128;

/// The ports to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPorts {
    /// Inclusive ranges.
    ranges: Vec<(u16, u16)>,
    origin: PortOrigin,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum PortOrigin {
    /// `--port`.
    Named,
    /// Servers on this host listen on them.
    Found,
    /// No server was found on this host.
    Assumed,
    /// No server was found at first, but some later.
    Added,
}

impl CapturedPorts {
    /// The ports of `named`, or, if it is empty, those that servers listen on.
    pub fn choose(named: &[PortRange], host: &Host) -> Self {
        let found = || find(host).unwrap_or_default();
        Self::of(named, if named.is_empty() { found() } else { Vec::new() })
    }

    /// The ports of `named`, or, if it is empty, `found`: those that servers listen on.
    pub fn of(named: &[PortRange], found: Vec<u16>) -> Self {
        if !named.is_empty() {
            let ranges = named.iter().map(|range| (range.0, range.1)).collect();
            return Self { ranges, origin: PortOrigin::Named };
        }
        let mut chosen = Self { ranges: Vec::new(), origin: PortOrigin::Found };
        if chosen.add(&found).is_none() {
            chosen = Self { ranges: vec![(DEFAULT, DEFAULT)], origin: PortOrigin::Assumed };
        }
        chosen
    }

    /// Whether a port is captured.
    pub fn has(&self, port: u16) -> bool {
        self.ranges.iter().any(|(low, high)| (low..=high).contains(&&port))
    }

    /// Whether to capture servers that start later, too.
    pub fn follows(&self) -> bool {
        self.origin != PortOrigin::Named
    }

    /// Adds the ports that servers listen on now; returns those that are new, if any. The port of a server that has ended
    /// stays, so that a restarted server is captured from its first packet on, unless others need its room.
    pub fn add(&mut self, found: &[u16]) -> Option<Vec<u16>> {
        // Those that come first have a place.
        let placed = &found[..found.len().min(MAX_FOUND)];
        let mut new: Vec<u16> = placed.iter().copied().filter(|port| !self.has(*port)).collect();
        if self.ranges.len() + new.len() > MAX_FOUND {
            self.ranges.retain(|(port, _)| placed.contains(port));
        }
        new.truncate(MAX_FOUND.saturating_sub(self.ranges.len()));
        new.sort_unstable();
        if new.is_empty() {
            return None;
        }
        self.ranges.extend(new.iter().map(|port| (*port, *port)));
        self.ranges.sort_unstable();
        if self.origin == PortOrigin::Assumed {
            self.origin = PortOrigin::Added;
        }
        Some(new)
    }

    /// Adds the ports that servers listen on now, if it captures servers that start later; returns what is new in words.
    pub fn follow(&mut self, found: Vec<u16>) -> Option<String> {
        let new = if self.follows() { self.add(&found) } else { None }?;
        let new: Vec<_> = new.into_iter().map(|port| (port, port)).collect();
        Some(format!("{} too: a mongod or mongos here listens on it now", list(&new)))
    }

    /// What a view needs to explain why it shows nothing: whether any process listens on these ports, and where servers
    /// do. `interfaces` are those captured.
    pub fn origin(&self, interfaces: &str, host: &Host) -> PacketOrigin {
        let found = servers::listeners(host).unwrap_or_default();
        let is_captured = |port: &u16| self.has(*port);
        // Where that cannot be found out, the view does not claim it.
        let nobody_listens = host
            .open_ports()
            .is_ok_and(|open| !open.iter().any(is_captured) && !found.ports().iter().any(is_captured));
        PacketOrigin::Network(CapturedNetwork {
            interfaces: interfaces.to_owned(),
            ports: list(&self.ranges),
            nobody_listens,
            servers: found.ports(),
        })
    }

    /// The same once a server has been found, without looking it up again.
    pub fn origin_with_servers(&self, interfaces: &str) -> PacketOrigin {
        PacketOrigin::Network(CapturedNetwork {
            interfaces: interfaces.to_owned(),
            ports: list(&self.ranges),
            nobody_listens: false,
            servers: self.ranges.iter().map(|(low, _)| *low).collect(),
        })
    }

    /// For the decoder.
    pub fn ports(&self) -> Ports {
        Ports::Ranges(self.ranges.clone())
    }

    /// For the filter.
    pub fn ranges(&self) -> Vec<std::ops::RangeInclusive<u16>> {
        self.ranges.iter().map(|&(low, high)| low..=high).collect()
    }
}

/// The ports that servers on this host listen on now.
fn find(host: &Host) -> Option<Vec<u16>> {
    let found = servers::listeners(host).ok()?;
    if let Some(missing) = servers::ports_missing(&found) {
        eprintln!("mongosonar: {missing}");
    }
    let port = |one: &Listener| ListeningPort { pid: one.pid, port: one.address.port() };
    Some(servers::ports_of_servers(host, found.listeners.iter().map(port)))
}

/// The ports, and why these.
impl std::fmt::Display for CapturedPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&list(&self.ranges))?;
        match self.origin {
            PortOrigin::Named => Ok(()),
            PortOrigin::Found => f.write_str(" (what mongod and mongos listen on here)"),
            PortOrigin::Assumed => f.write_str(" (no mongod or mongos found here)"),
            PortOrigin::Added => write!(f, " ({DEFAULT}, and what mongod and mongos listen on here)"),
        }
    }
}

fn list(ranges: &[(u16, u16)]) -> String {
    let one = |&(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("{low}-{high}") };
    format!("port {}", ranges.iter().map(one).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// Adds the ports that servers listen on now; returns what is new.
    fn look(listened: &mut CapturedPorts, tree: &ProcTree) -> Option<Vec<u16>> {
        listened.add(&find(&tree.host())?)
    }

    /// A tree like /proc, removed at the end.
    struct ProcTree(PathBuf);

    impl ProcTree {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("mongosonar-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        /// A process with a readable command line and nothing else.
        fn start(&self, pid: u32, arguments: &[&str]) {
            let directory = self.0.join(pid.to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("comm"), format!("{}\n", arguments[0])).unwrap();
            let line: String = arguments.iter().flat_map(|argument| [argument, "\0"]).collect();
            fs::write(directory.join("cmdline"), line).unwrap();
            // Not a directory: it cannot be listed, not even by root.
            fs::write(directory.join("fd"), "").unwrap();
        }

        fn host(&self) -> Host {
            Host::of_proc(&self.0)
        }

        fn end(&self, pid: u32) {
            fs::remove_dir_all(self.0.join(pid.to_string())).unwrap();
        }
    }

    impl Drop for ProcTree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn named_ports_are_taken_and_nothing_is_looked_up() {
        let tree = ProcTree::new("named");
        tree.start(1, &["mongod", "--port", "27018"]);
        let listened = CapturedPorts::choose(&[PortRange(27_020, 27_022), PortRange(5, 5)], &tree.host());
        assert_eq!(listened.to_string(), "port 27020-27022 5");
        assert!(!listened.follows());
        assert_eq!(listened.clone().follow(vec![27_018]), None);
    }

    #[test]
    fn a_server_that_comes_first_later_takes_the_place_of_the_last_one() {
        let many: Vec<u16> = (1..=2 * MAX_FOUND as u16).collect();
        let mut captured = CapturedPorts::of(&[], many.clone());
        assert!(captured.has(MAX_FOUND as u16) && !captured.has(MAX_FOUND as u16 + 1));
        assert_eq!(captured.add(&many), None);
        let later: Vec<u16> = std::iter::once(27_017).chain(many).collect();
        assert_eq!(captured.add(&later), Some(vec![27_017]));
        assert!(captured.has(27_017) && captured.has(1) && !captured.has(MAX_FOUND as u16));
    }

    #[test]
    fn a_server_that_starts_later_is_told_once_and_its_port_stays() {
        let tree = ProcTree::new("later");
        let mut listened = CapturedPorts::choose(&[], &tree.host());
        assert_eq!(listened.to_string(), "port 27017 (no mongod or mongos found here)");
        assert!(listened.follows());
        assert_eq!(look(&mut listened, &tree), None);

        tree.start(1, &["mongod", "--port", "27018"]);
        tree.start(2, &["mongodump", "--port", "9"]);
        assert_eq!(look(&mut listened, &tree), Some(vec![27_018]));
        assert_eq!(look(&mut listened, &tree), None, "once");
        assert_eq!(
            listened.to_string(),
            "port 27017 27018 (27017, and what mongod and mongos listen on here)"
        );

        tree.end(1);
        tree.start(3, &["mongos", "--port", "27016"]);
        assert_eq!(look(&mut listened, &tree), Some(vec![27_016]));
        assert_eq!(listened.ranges(), [27_016..=27_016, 27_017..=27_017, 27_018..=27_018]);
        tree.start(1, &["mongod", "--port", "27018"]);
        assert_eq!(look(&mut listened, &tree), None, "a restart is no news");
    }

    #[test]
    fn a_port_on_which_nobody_listens_is_known_as_such_and_the_servers_port_beside_it() {
        let tree = ProcTree::new("origin");
        tree.start(7, &["mongod", "--port", "27018"]);
        let asked =
            |port| CapturedPorts::choose(&[PortRange(port, port)], &tree.host()).origin("eth0", &tree.host());
        let network = |origin| match origin {
            PacketOrigin::Network(network) => network,
            PacketOrigin::File | PacketOrigin::History => panic!("not captured"),
        };
        assert!(!network(asked(27_099)).nobody_listens, "not known, so not claimed");
        let net = tree.0.join("7/net");
        fs::create_dir_all(&net).unwrap();
        // An sshd on port 22.
        let row = "0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 9 1\n";
        fs::write(net.join("tcp"), format!("heading\n{row}")).unwrap();
        let nobody = network(asked(27_099));
        assert!(nobody.nobody_listens);
        assert_eq!((nobody.ports.as_str(), nobody.servers), ("port 27099", vec![27_018]));
        assert!(!network(asked(22)).nobody_listens && !network(asked(27_018)).nobody_listens);
    }

    #[test]
    fn ports_of_other_programs_and_too_many_of_one_user_leave_room_for_those_of_servers() {
        let tree = ProcTree::new("others");
        let start = |pid: u32, [user, program, port]: [&str; 3]| {
            tree.start(pid, &["mongod", "--port", port]);
            let folder = tree.0.join(pid.to_string());
            fs::write(folder.join("status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n")).unwrap();
            std::os::unix::fs::symlink(program, folder.join("exe")).unwrap();
        };
        for pid in 1..=2 * MAX_FOUND as u32 {
            start(pid, ["1000", "/home/mongod", &(1_000 + pid).to_string()]);
        }
        start(900, ["1000", "/usr/bin/python3", "900"]);
        start(901, ["999", "/usr/bin/mongod", "27017"]);
        let listened = CapturedPorts::choose(&[], &tree.host());
        assert!(listened.has(27_017) && !listened.has(900), "{listened}");
        assert_eq!(listened.ranges.len(), MAX_FOUND);
    }

    #[test]
    fn the_number_of_ports_is_bounded() {
        let tree = ProcTree::new("bounded");
        for pid in 1..=2 * MAX_FOUND as u32 {
            tree.start(pid, &["mongod", "--port", &(20_000 + pid).to_string()]);
        }
        let mut listened = CapturedPorts::choose(&[], &tree.host());
        assert_eq!(listened.ranges.len(), MAX_FOUND);
        assert_eq!(look(&mut listened, &tree), None);
        // Those that have ended make room for one that starts later.
        let last = 2 * MAX_FOUND as u32;
        (1..last).for_each(|pid| tree.end(pid));
        assert_eq!(look(&mut listened, &tree), Some(vec![20_000 + last as u16]));
        assert_eq!(look(&mut listened, &tree), None);
    }
}
