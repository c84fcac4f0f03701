//! The network interfaces of the calling thread's network namespace.

use std::io;
use std::net::IpAddr;

use crate::{hardware, sys};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it, from 1.
    pub index: u32,
    /// Its name, for example `eth0`.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is a loopback interface, on which every packet is seen twice: outgoing and incoming.
    pub loopback: bool,
    /// Whether its frames begin with an Ethernet header; else they are captured from the IP header on.
    pub ethernet: bool,
    /// The largest IP packet, in bytes, that it sends in one frame; 0 if unknown.
    pub mtu: u32,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
}

/// Every interface, by index.
pub fn list() -> io::Result<Vec<Interface>> {
    let query = sys::InterfaceQuery::open()?;
    let mut interfaces: Vec<Interface> = Vec::new();
    for (index, name) in sys::interface_names()? {
        // An interface can disappear in the meantime.
        let (Ok(flags), Ok(hardware)) = (query.flags(&name), query.hardware(&name)) else { continue };
        interfaces.push(Interface {
            index,
            up: flags & libc::IFF_UP != 0,
            loopback: hardware == libc::ARPHRD_LOOPBACK,
            ethernet: hardware::ETHERNET.contains(&hardware),
            mtu: query.mtu(&name).unwrap_or(0),
            name,
            addresses: Vec::new(),
        });
    }
    for (name, address) in sys::interface_addresses()? {
        // An address with a label of its own (`eth0:1`) belongs to the interface before the colon.
        let owner = name.split(':').next().unwrap_or_default();
        if let Some(interface) = interfaces.iter_mut().find(|i| i.name == name || i.name == owner) {
            interface.addresses.push(address);
        }
    }
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// Names of interfaces by number, also of later ones, without opening anything again.
pub struct InterfaceNames(sys::InterfaceQuery);

impl InterfaceNames {
    /// Opens the socket that it needs.
    ///
    /// # Errors
    /// No socket can be opened.
    pub fn open() -> io::Result<Self> {
        sys::InterfaceQuery::open().map(Self)
    }

    /// The name of an interface; empty if it no longer exists.
    pub fn of(&self, index: u32) -> String {
        self.0.name(index).unwrap_or_default()
    }
}

/// The addresses of all interfaces of this host: they show whether this host served or issued a query.
pub fn local_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(list()?.into_iter().flat_map(|interface| interface.addresses).collect())
}

/// No interface has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such interface: {name} (those that exist: {})", existing.join(", "))]
pub struct NoSuchInterface {
    /// The name.
    pub name: String,
    /// The names of all interfaces.
    pub existing: Vec<String>,
}

/// Those of `all` that are named, each once, in the order of `names`.
pub fn select(all: &[Interface], names: &[String]) -> Result<Vec<Interface>, NoSuchInterface> {
    let mut selected: Vec<Interface> = Vec::with_capacity(names.len());
    for name in names {
        let Some(interface) = all.iter().find(|interface| interface.name == *name) else {
            let existing = all.iter().map(|interface| interface.name.clone()).collect();
            return Err(NoSuchInterface { name: name.clone(), existing });
        };
        if !selected.contains(interface) {
            selected.push(interface.clone());
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_interfaces_with_its_address() {
        let all = list().unwrap();
        let lo = all.iter().find(|interface| interface.loopback).unwrap();
        assert_eq!((lo.name.as_str(), lo.ethernet), ("lo", true));
        assert!(lo.index > 0 && lo.mtu >= 1500, "{lo:?}");
        if lo.up {
            assert!(lo.addresses.contains(&"127.0.0.1".parse().unwrap()));
            assert!(local_addresses().unwrap().contains(&"127.0.0.1".parse().unwrap()));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let of = |index: u32, name: &str| Interface {
            index,
            name: name.into(),
            up: true,
            loopback: false,
            ethernet: true,
            mtu: 1500,
            addresses: Vec::new(),
        };
        let all = [of(1, "lo"), of(2, "eth0"), of(3, "docker0")];
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let error = select(&all, &names(&["eth0", "eth9"])).unwrap_err();
        assert_eq!(error.to_string(), "no such interface: eth9 (those that exist: lo, eth0, docker0)");
        let selected = select(&all, &names(&["docker0", "lo", "docker0"])).unwrap();
        assert_eq!(selected.iter().map(|i| i.index).collect::<Vec<_>>(), [3, 1]);
    }
}
