//! What the kernel's hardware types (`ARPHRD_…`) say about the beginning of a frame.

/// Frames begin with an Ethernet header, on loopback too.
pub(crate) const ETHERNET: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];

/// Frames begin with the network header: tun and WireGuard (NONE), cellular modems (RAWIP), PPP as the kernel shows
/// it to packet sockets, and IP in IP. Not GRE: some GRE interfaces have a link-layer header.
pub(crate) const WITHOUT_HEADER: [u16; 6] = [
    libc::ARPHRD_NONE,
    ARPHRD_RAWIP,
    libc::ARPHRD_PPP,
    libc::ARPHRD_TUNNEL,
    libc::ARPHRD_TUNNEL6,
    libc::ARPHRD_SIT,
];

/// From <linux/if_arp.h>; libc does not have it.
const ARPHRD_RAWIP: u16 = 519;
