//! The IP addresses of a network namespace, as `/proc/net` lists them: for processes that may open no sockets.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The most bytes of a table: a router may have millions of routes.
const MAX_BYTES: u64 = 64 << 20;
/// The most addresses.
const MAX_ADDRESSES: usize = 65_536;

/// The local addresses of the process `self`. A kernel without IPv6 has no table of it.
pub(super) fn read(proc_root: &Path) -> io::Result<BTreeSet<IpAddr>> {
    let mut found = BTreeSet::new();
    // The trie of routes names an address, and then below it what it is: `/32 host LOCAL`.
    let mut last = None;
    each_line(&proc_root.join("net/fib_trie"), |line| {
        let line = line.trim_start();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.trim_end().parse::<Ipv4Addr>().ok();
        } else if line.trim_end() == "/32 host LOCAL" {
            found.extend(last.map(IpAddr::from).filter(|_| found.len() < MAX_ADDRESSES));
        }
    })?;
    let of_ipv6 = each_line(&proc_root.join("net/if_inet6"), |line| {
        let number = line.split(' ').next().filter(|digits| digits.len() == 32);
        let address = number.and_then(|digits| u128::from_str_radix(digits, 16).ok()).map(Ipv6Addr::from);
        found.extend(address.map(IpAddr::from).filter(|_| found.len() < MAX_ADDRESSES));
    });
    match of_ipv6 {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(found),
    }
}

/// Lines that are no text are left out. A table that is too large is an error: what is missing of it is unknown.
fn each_line(path: &Path, mut take: impl FnMut(&str)) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?.take(MAX_BYTES));
    let (mut line, mut read) = (Vec::new(), 0);
    while file.read_until(b'\n', &mut line)? > 0 {
        read += line.len() as u64;
        if read == MAX_BYTES {
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
    use super::super::Host;
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
}
