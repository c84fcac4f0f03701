//! One end of a TCP connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An IP address and a TCP port. IPv4 addresses are stored as IPv4-mapped IPv6 addresses, so that both
/// families share one layout, comparison and hash.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Endpoint {
    addr: [u64; 2],
    /// TCP port.
    pub port: u16,
}

/// `::ffff:0:0/96` in the lower half.
const V4_MAPPED: u64 = 0xffff_0000_0000;

impl Endpoint {
    /// From an IPv4 address in network byte order, as in the IP header.
    pub const fn v4(addr: [u8; 4], port: u16) -> Self {
        Self { addr: [0, V4_MAPPED | u32::from_be_bytes(addr) as u64], port }
    }

    /// From an IPv6 address in network byte order. An IPv4-mapped address equals its IPv4 form.
    pub const fn v6(addr: [u8; 16], port: u16) -> Self {
        let bits = u128::from_be_bytes(addr);
        Self { addr: [(bits >> 64) as u64, bits as u64], port }
    }

    /// The address; IPv4-mapped addresses as IPv4.
    pub fn ip(&self) -> IpAddr {
        if self.is_v4() {
            IpAddr::V4(Ipv4Addr::from(self.addr[1] as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from((u128::from(self.addr[0]) << 64) | u128::from(self.addr[1])))
        }
    }

    /// Whether the address is IPv4.
    pub const fn is_v4(&self) -> bool {
        self.addr[0] == 0 && self.addr[1] & !0xffff_ffff == V4_MAPPED
    }

    /// The address without the port, as two words: the key of figures by client.
    pub const fn addr_bits(&self) -> [u64; 2] {
        self.addr
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Self {
        match addr.ip() {
            IpAddr::V4(ip) => Self::v4(ip.octets(), addr.port()),
            IpAddr::V6(ip) => Self::v6(ip.octets(), addr.port()),
        }
    }
}

/// `10.0.0.9:51234` or `[2001:db8::1]:27017`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip(), self.port).fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_is_the_ipv4_one() {
        let plain = Endpoint::v4([10, 0, 0, 9], 27017);
        let mapped = Endpoint::v6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9], 27017);
        assert_eq!(plain, mapped);
        assert_eq!(mapped.to_string(), "10.0.0.9:27017");
        let v6: SocketAddr = "[2001:db8::1]:27018".parse().unwrap();
        assert_eq!(Endpoint::from(v6).to_string(), "[2001:db8::1]:27018");
        assert!(!Endpoint::from(v6).is_v4());
    }
}
