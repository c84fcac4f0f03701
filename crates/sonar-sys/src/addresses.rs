//! Addresses in the records of eBPF programs.

use sonar_core::Endpoint;

/// One end of a connection, as `bpf/addresses.h` describes it; `None` if it is none over IP.
pub fn endpoint(family: u16, address: [u8; 16], port: u16) -> Option<Endpoint> {
    match i32::from(family) {
        libc::AF_INET => Some(Endpoint::v4(*address.first_chunk()?, port)),
        libc::AF_INET6 => Some(Endpoint::v6(address, port)),
        _ => None,
    }
}
