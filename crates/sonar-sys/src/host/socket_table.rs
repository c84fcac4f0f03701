//! The listening TCP sockets of network namespaces.
//!
//! Any user may make namespaces, and listen on as many sockets as he may open: what is kept is bounded, for each user and
//! for all of them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::subordinate;

/// `TCP_LISTEN`, as `/proc/net/tcp` writes it.
const STATE_LISTEN: &str = "0A";
/// The most listening sockets of a user and of all users, in a table.
const MAX_OF_USER: u32 = 1_024;
const MAX_LISTENING: usize = 8_192;
/// The most listening sockets, and the most tables, of the namespaces that are remembered. Others are read again.
const MAX_REMEMBERED: usize = 16_384;
const MAX_TABLES: usize = 512;

/// "permission denied", without the number.
pub(super) fn brief(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        _ => error.to_string(),
    }
}

/// The tables of network namespaces, by what `/proc/PID/ns/net` leads to.
#[derive(Default)]
pub(super) struct NamespaceTables {
    tables: HashMap<PathBuf, Rc<SocketTable>>,
    /// The sockets of all of them.
    sockets: usize,
}

impl NamespaceTables {
    /// The table of a namespace, read by way of this process unless it was read before. What could not be read as a whole
    /// is read again by way of the next process: this one may have ended meanwhile.
    pub(super) fn of(&mut self, namespace: PathBuf, process: &Path) -> Rc<SocketTable> {
        if let Some(table) = self.tables.get(&namespace) {
            return table.clone();
        }
        let table = Rc::new(SocketTable::read(&process.join("net")));
        let sockets = self.sockets + table.listening.len();
        let has_room = sockets <= MAX_REMEMBERED && self.tables.len() < MAX_TABLES;
        if has_room && table.failure.is_none() {
            self.sockets = sockets;
            self.tables.insert(namespace, table.clone());
        }
        table
    }
}

/// The listening sockets of a network namespace.
#[derive(Default)]
pub(super) struct SocketTable {
    /// By inode.
    pub(super) listening: BTreeMap<u64, SocketAddr>,
    /// Why some could not be read.
    pub(super) failure: Option<String>,
    /// There are more than are kept.
    is_cut: bool,
    /// How many there are of each user.
    users: HashMap<u32, u32>,
}

impl SocketTable {
    /// That of a process, by its folder `net`.
    pub(super) fn read(directory: &Path) -> Self {
        let mut table = Self::default();
        for file in ["tcp", "tcp6"] {
            let result = File::open(directory.join(file))
                .and_then(|file| BufReader::new(file).lines().try_for_each(|line| table.line(&line?)));
            match result {
                Ok(()) => {}
                // A kernel without IPv6, or with IPv6 switched off; or the process has ended, and has no tables any more.
                Err(error)
                    if file == "tcp6"
                        && error.kind() == io::ErrorKind::NotFound
                        && directory.join("tcp").exists() => {}
                Err(error) => {
                    let reason = || format!("net/{file} cannot be read ({})", brief(&error));
                    table.failure.get_or_insert_with(reason);
                }
            }
        }
        table.users = HashMap::new();
        table
    }

    /// Why some are missing.
    pub(super) fn problem(&self) -> Option<String> {
        let cut = || self.is_cut.then(|| "a user has too many sockets that listen".to_owned());
        self.failure.clone().or_else(cut)
    }

    /// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …`:
    /// proc_net_tcp.rst. Skips lines of another form, such as the heading.
    fn line(&mut self, line: &str) -> io::Result<()> {
        let mut fields = line.split_whitespace();
        let (Some(local), Some(state)) = (fields.nth(1), fields.nth(1)) else { return Ok(()) };
        if state != STATE_LISTEN {
            return Ok(());
        }
        let user = fields.nth(3).and_then(|user| user.parse().ok());
        let inode = fields.nth(1).and_then(|inode| inode.parse().ok());
        if let (Some(user), Some(inode), Some(address)) = (user, inode, address(local)) {
            self.add(user, inode, address);
        }
        Ok(())
    }

    /// A socket of this user. Where one has too many, those of others still have room.
    fn add(&mut self, user: u32, inode: u64, address: SocketAddr) {
        let of_user = self.users.entry(subordinate::owner(user)).or_default();
        if *of_user < MAX_OF_USER && self.listening.len() < MAX_LISTENING {
            *of_user += 1;
            self.listening.insert(inode, address);
        } else {
            self.is_cut = true;
        }
    }
}

/// The user whose socket gets connections to an address of this machine, by number; `None` if no socket listens there. One
/// that listens at this very address comes before one at all addresses.
///
/// # Errors
/// The tables of the kernel cannot be read.
pub fn user_listening_at(asked: SocketAddr) -> io::Result<Option<u32>> {
    let mut best = None;
    for file in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        match File::open(file) {
            Ok(table) => {
                for row in BufReader::new(table).lines() {
                    best = best.max(listener_of(&row?, asked));
                }
            }
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(best.map(|listener| listener.user))
}

/// A socket that gets connections to an address; the one that listens at this very address is the greatest.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct AddressListener {
    is_exact: bool,
    user: u32,
}

fn listener_of(row: &str, asked: SocketAddr) -> Option<AddressListener> {
    let fields: Vec<&str> = row.split_whitespace().collect();
    let [_, local, _, STATE_LISTEN, _, _, _, user, ..] = fields[..] else { return None };
    let local = address(local).filter(|local| local.port() == asked.port())?;
    let is_exact = local.ip().to_canonical() == asked.ip().to_canonical();
    // `::` takes connections to addresses of IPv4, too.
    let is_for_all = local.ip().is_unspecified() && (local.is_ipv6() || asked.is_ipv4());
    let user = user.parse().ok()?;
    (is_exact || is_for_all).then_some(AddressListener { is_exact, user })
}

/// `0100007F:6989`: the address as words in the byte order of the machine, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| {
        let word = u32::from_str_radix(address.get(8 * index..8 * index + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut octets = [0; 16];
            for (index, chunk) in octets.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const OTHER: u32 = 65_533;

    fn row(user: u32, inode: u64) -> String {
        format!(
            "   0: 0100007F:6989 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {user} 0 {inode} 1 0 100 0 0 10 0"
        )
    }

    #[test]
    fn a_user_with_many_sockets_leaves_room_for_those_of_others() {
        let mut table = SocketTable::default();
        for inode in 0..100_000 {
            table.line(&row(OTHER, inode)).unwrap();
        }
        assert!(table.problem().is_some() && table.failure.is_none());
        table.line(&row(999, 200_000)).unwrap();
        assert_eq!(table.listening.len(), MAX_OF_USER as usize + 1);
        assert!(table.listening.contains_key(&200_000));
        for user in 0..100 {
            (0..1_000).for_each(|inode| table.line(&row(user, u64::from(user) << 20 | inode)).unwrap());
        }
        assert_eq!(table.listening.len(), MAX_LISTENING);
    }

    #[test]
    fn of_many_namespaces_few_are_remembered() {
        let folder = std::env::temp_dir().join(format!("sonar-sys-namespaces-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("net")).unwrap();
        let rows: Vec<String> = (0..1_000).map(|inode| row(OTHER, inode)).collect();
        std::fs::write(folder.join("net/tcp"), rows.join("\n")).unwrap();
        let mut tables = NamespaceTables::default();
        for namespace in 0..100 {
            let table = tables.of(format!("net:[{namespace}]").into(), &folder);
            assert_eq!((table.listening.len(), table.is_cut), (1_000, false));
        }
        assert!(tables.sockets <= MAX_REMEMBERED && tables.tables.len() == MAX_REMEMBERED / 1_000);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_user_who_listens_at_an_address_is_found() {
        let row = |local: &str, state: &str, user: u32| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {user:>5} 0 1 1\n"
            )
        };
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";
        let all_of_6 = "00000000000000000000000000000000";
        let rows = [
            heading.to_owned(),
            row("00000000:2145", STATE_LISTEN, 1),
            row("0100007F:2145", "01", 2),
            row("0100007F:2145", STATE_LISTEN, 3),
            row("0100007F:2146", STATE_LISTEN, 4),
            row(&format!("{all_of_6}:2147"), STATE_LISTEN, 5),
        ]
        .concat();
        let user = |asked: &str| {
            let asked = asked.parse().unwrap();
            rows.lines().filter_map(|row| listener_of(row, asked)).max().map(|listener| listener.user)
        };
        assert_eq!(user("127.0.0.1:8517"), Some(3));
        assert_eq!(user("127.0.0.2:8517"), Some(1), "all addresses");
        assert_eq!([user("127.0.0.1:8518"), user("127.0.0.2:8518")], [Some(4), None]);
        assert_eq!([user("127.0.0.1:8519"), user("[::1]:8519")], [Some(5); 2]);
        assert_eq!(user("[::1]:8517"), None, "IPv4 only");
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = user_listening_at(own.local_addr().unwrap()).unwrap();
        assert_eq!(found, Some(rustix::process::geteuid().as_raw()));
    }
}
