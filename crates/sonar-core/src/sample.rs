//! Selects the connections of a sample of one in N.
//!
//! The decoder calls [`contains`], and the kernel's socket filter is built from the same constants. So a live
//! sample and a sample of a capture file contain the same connections, if the same ports are given.

use std::num::NonZeroU32;

use crate::Endpoint;

/// The multipliers of the hash, in order; they come from well-known finalizers of 32-bit hashes.
pub const MULTIPLIERS: [u32; 3] = [0x9e37_79b1, 0x85eb_ca6b, 0xc2b2_ae35];

/// The right shift after each multiplication.
pub const SHIFTS: [u32; 3] = [15, 13, 16];

/// The xor of the fixed words of an IPv4-mapped IPv6 address. The kernel's filter combines it with IPv4
/// addresses, so that both forms of an address give the same hash.
pub const MAPPED: u32 = 0xffff;

/// Whether the connection between these two endpoints belongs to a sample of one in `every`; the same for both
/// directions. `serves` returns whether a port belongs to a server.
///
/// If exactly one port belongs to a server, the decision depends on the client's address and port only. So a
/// connection is kept or left out on both sides of a translated destination address (a published port of a
/// container). Otherwise it depends on both endpoints.
pub fn contains(
    every: NonZeroU32,
    source: &Endpoint,
    destination: &Endpoint,
    serves: impl Fn(u16) -> bool,
) -> bool {
    let (address, port) = match (serves(source.port), serves(destination.port)) {
        (true, false) => (fold(destination), destination.port),
        (false, true) => (fold(source), source.port),
        _ => (fold(source) ^ fold(destination), source.port ^ destination.port),
    };
    mix(address, port).is_multiple_of(every.get())
}

/// The xor of the four words of an IPv6 address.
fn fold(endpoint: &Endpoint) -> u32 {
    let [high, low] = endpoint.addr_bits();
    let both = high ^ low;
    (both >> 32) as u32 ^ both as u32
}

/// Spreads addresses that differ in few bits, and consecutive ports, over all 32 bits.
fn mix(address: u32, port: u16) -> u32 {
    let mut hash = address.wrapping_mul(MULTIPLIERS[0]);
    hash ^= hash >> SHIFTS[0];
    hash = hash.wrapping_add(u32::from(port)).wrapping_mul(MULTIPLIERS[1]);
    hash ^= hash >> SHIFTS[1];
    hash = hash.wrapping_mul(MULTIPLIERS[2]);
    hash ^ hash >> SHIFTS[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: NonZeroU32 = NonZeroU32::new(4).unwrap();

    #[test]
    fn a_sample_spreads_over_clients_and_over_their_ports() {
        let server = Endpoint::v4([10, 9, 8, 7], 27017);
        let by_client = (0..4096u32).map(|n| Endpoint::v4((0x0a00_0000 + n).to_be_bytes(), 33333));
        // Like the connections of one client: every second ephemeral port.
        let by_port = (0..4096u16).map(|n| Endpoint::v4([10, 1, 2, 3], 20_000 + 2 * n));
        for clients in [by_client.collect::<Vec<_>>(), by_port.collect()] {
            let kept =
                clients.iter().filter(|client| contains(FOUR, client, &server, |port| port == 27017)).count();
            // Binomial: mean 1024, standard deviation 28.
            assert!((880..1170).contains(&kept), "{kept} of 4096 for 1/4");
        }
    }

    #[test]
    fn only_the_client_decides_if_it_is_known() {
        let serves = |port| port == 27017 || port == 27018;
        let (mut alike, mut other) = (0, 0);
        for n in 0..500 {
            let client = Endpoint::v4([192, 0, 2, 1], 30_000 + n);
            let outside = Endpoint::v4([198, 51, 100, 5], 27018);
            let inside = Endpoint::v4([172, 17, 0, 2], 27017);
            let kept = contains(FOUR, &client, &outside, serves);
            assert_eq!(kept, contains(FOUR, &inside, &client, serves));
            assert_eq!(kept, contains(FOUR, &outside, &client, serves));
            // If no port belongs to a server, both endpoints decide, in either order.
            let blind = contains(FOUR, &client, &outside, |_| false);
            assert_eq!(blind, contains(FOUR, &outside, &client, |_| false));
            alike += u32::from(blind == contains(FOUR, &client, &inside, |_| false));
            other += 1;
        }
        assert!(alike < other, "the other endpoint counts too");
    }
}
