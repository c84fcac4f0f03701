//! The IP addresses of a network namespace, as `/proc/net` lists them: for processes that may open no sockets.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// How much is read of a network namespace.
#[derive(Copy, Clone)]
struct AddressLimits {
    /// The most bytes of a table.
    bytes: u64,
    /// The most addresses.
    addresses: usize,
    /// Whether those of loopback are among them.
    with_loopback: bool,
}

impl AddressLimits {
    fn have_room_for(self, ip: IpAddr, found: &BTreeSet<IpAddr>) -> bool {
        found.len() < self.addresses && (self.with_loopback || !ip.is_loopback())
    }
}

/// Of ours: a router may have millions of routes.
const OURS: AddressLimits = AddressLimits { bytes: 64 << 20, addresses: 65_536, with_loopback: true };
/// The most addresses that another namespace may have for us to use them. Any user may make one, and give it any number.
const MAX_OF_OTHER: usize = 64;
/// Of another one: one address more shows that there are too many.
const OTHER: AddressLimits =
    AddressLimits { bytes: 1 << 20, addresses: MAX_OF_OTHER + 1, with_loopback: false };

/// The local addresses of the process `self`.
pub(super) fn read(proc_root: &Path) -> io::Result<BTreeSet<IpAddr>> {
    of_tables(&proc_root.join("net"), OURS)
}

/// The addresses of the network namespace of a process, besides loopback; `None` if it is that of `self`, or if that cannot
/// be seen. The set is empty if the addresses cannot be read, if there are more than [`MAX_OF_OTHER`], or if the process is
/// in another user namespace: any user may make one, with networks in it that have the addresses of others.
pub(super) fn of_other(proc_root: &Path, pid: u32) -> Option<BTreeSet<IpAddr>> {
    let (process, own) = (proc_root.join(pid.to_string()), proc_root.join("self"));
    let is_shared = |namespace: &str| {
        let of = |process: &Path| fs::read_link(process.join("ns").join(namespace)).ok();
        Some(of(&process)? == of(&own)?)
    };
    if is_shared("net")? {
        return None;
    }
    let has_ours = is_shared("user") == Some(true);
    let found =
        if has_ours { of_tables(&process.join("net"), OTHER).unwrap_or_default() } else { BTreeSet::new() };
    Some(if found.len() <= MAX_OF_OTHER { found } else { BTreeSet::new() })
}

/// The local addresses in the tables of a folder. A kernel without IPv6 has no table of it.
fn of_tables(folder: &Path, limits: AddressLimits) -> io::Result<BTreeSet<IpAddr>> {
    let mut found = BTreeSet::new();
    // The trie of routes names an address, and then below it what it is: `/32 host LOCAL`.
    let mut last = None;
    each_line(&folder.join("fib_trie"), limits.bytes, |line| {
        let line = line.trim_start();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.trim_end().parse::<Ipv4Addr>().ok();
        } else if line.trim_end() == "/32 host LOCAL" {
            found.extend(last.map(IpAddr::from).filter(|ip| limits.have_room_for(*ip, &found)));
        }
    })?;
    let of_ipv6 = each_line(&folder.join("if_inet6"), limits.bytes, |line| {
        let number = line.split(' ').next().filter(|digits| digits.len() == 32);
        let address = number.and_then(|digits| u128::from_str_radix(digits, 16).ok()).map(Ipv6Addr::from);
        found.extend(address.map(IpAddr::from).filter(|ip| limits.have_room_for(*ip, &found)));
    });
    match of_ipv6 {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(found),
    }
}

/// Lines that are no text are left out. A table that is too large is an error: what is missing of it is unknown.
fn each_line(path: &Path, most: u64, mut take: impl FnMut(&str)) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?.take(most));
    let (mut line, mut read) = (Vec::new(), 0);
    while file.read_until(b'\n', &mut line)? > 0 {
        read += line.len() as u64;
        if read == most {
            return Err(ErrorKind::FileTooLarge.into());
        }
        if let Ok(text) = std::str::from_utf8(&line) {
            take(text);
        }
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::Host;
    use super::*;
    use crate::tree::TempTree;

    const ROUTES: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 192.0.2.0/24 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
Local:
           |-- 192.0.2.2
              /32 host LOCAL
           |-- 192.0.2
              /32 host LOCAL
";

    #[test]
    fn addresses_of_the_host_are_those_that_are_local() {
        let ipv6 = "fd000000000000000000000000000002 04 40 00 82     eth0\nfd zz\n\u{fffd}\n";
        let tree = TempTree::new("addresses", &[("proc/net/fib_trie", ROUTES), ("proc/net/if_inet6", ipv6)]);
        let host = Host::at(&tree.0);
        let all: Vec<String> = host.addresses().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(all, ["127.0.0.1", "192.0.2.2", "fd00::2"]);
        std::fs::remove_file(tree.0.join("proc/net/if_inet6")).unwrap();
        assert_eq!(host.addresses().unwrap().len(), 2);
        std::fs::remove_file(tree.0.join("proc/net/fib_trie")).unwrap();
        assert!(host.addresses().is_err());
    }

    #[test]
    fn a_process_in_another_namespace_has_the_addresses_of_that() {
        let local = |ip: String| format!("|-- {ip}\n/32 host LOCAL\n");
        let numbered = |count: usize| (1..=count).map(|n| local(format!("192.0.2.{n}"))).collect::<String>();
        let most = local("127.0.0.1".to_owned()) + &numbered(MAX_OF_OTHER);
        let many = numbered(MAX_OF_OTHER + 1);
        let other = ROUTES.replace("192.0.2.2\n", "172.17.0.2\n");
        let files = [
            ("proc/7/net/fib_trie", ROUTES),
            ("proc/8/net/fib_trie", other.as_str()),
            ("proc/8/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n"),
            ("proc/9/net/fib_trie", many.as_str()),
            ("proc/12/net/fib_trie", other.as_str()),
            ("proc/13/net/fib_trie", most.as_str()),
        ];
        let tree = TempTree::new("other-addresses", &files);
        let namespaces =
            [("self", 1, 1), ("7", 1, 1), ("8", 2, 1), ("9", 3, 1), ("10", 4, 1), ("12", 5, 2), ("13", 6, 1)];
        for (process, net, user) in namespaces {
            let folder = tree.0.join("proc").join(process).join("ns");
            std::fs::create_dir_all(&folder).unwrap();
            symlink(format!("net:[{net}]"), folder.join("net")).unwrap();
            symlink(format!("user:[{user}]"), folder.join("user")).unwrap();
        }
        let host = Host::at(&tree.0);
        assert_eq!(host.addresses_of_other_network(7), None, "ours");
        assert_eq!(host.addresses_of_other_network(8), Some(["172.17.0.2".parse().unwrap()].into()));
        assert_eq!(
            host.addresses_of_other_network(13).unwrap().len(),
            MAX_OF_OTHER,
            "loopback does not count"
        );
        assert_eq!(host.addresses_of_other_network(9), Some(BTreeSet::new()), "there are too many");
        assert_eq!(host.addresses_of_other_network(10), Some(BTreeSet::new()), "they cannot be read");
        assert_eq!(host.addresses_of_other_network(11), None, "it has ended");
        assert_eq!(host.addresses_of_other_network(12), Some(BTreeSet::new()), "any user may have made it");
    }
}
