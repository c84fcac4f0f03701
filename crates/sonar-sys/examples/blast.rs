//! Sends TCP frames on an interface at a given rate, to try a ring with: many connections of one client to port
//! 27017, in both directions, with the sizes of small operations.
//!
//! `blast INTERFACE PACKETS_PER_SECOND SECONDS [PAYLOAD_BYTES]`. Its addresses are reserved for documentation
//! (192.0.2.0/24), so nobody answers; meant for veth pairs.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, rate, seconds, rest @ ..] = arguments.as_slice() else {
        return Err("usage: blast INTERFACE PACKETS_PER_SECOND SECONDS [PAYLOAD_BYTES]".into());
    };
    let (rate, seconds): (u64, u64) = (rate.parse()?, seconds.parse()?);
    let payload: usize = rest.first().map_or(Ok(120), |text| text.parse())?;
    let all = sonar_sys::interfaces::list()?;
    let index = sonar_sys::interfaces::select(&all, std::slice::from_ref(interface))?[0].index;

    let mut frames: Vec<Vec<u8>> = (0..256u16).map(|n| frame(n, payload)).collect();
    let mut vectors: Vec<libc::iovec> = frames
        .iter_mut()
        .map(|frame| libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = vectors
        .iter_mut()
        .map(|vector| {
            // SAFETY: mmsghdr is integers and pointers, for which all zero is a value.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();

    // SAFETY: takes integers only.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: sockaddr_ll is integers and bytes: all zero is a value of it.
    let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    addr.sll_family = libc::AF_PACKET as u16;
    addr.sll_ifindex = index as i32;
    // SAFETY: the address lives through the call and its true size is given.
    if unsafe { libc::bind(socket, (&raw const addr).cast(), size_of::<libc::sockaddr_ll>() as u32) } != 0 {
        return Err(io::Error::last_os_error().into());
    }

    let (start, end) = (Instant::now(), Duration::from_secs(seconds));
    let mut sent = 0u64;
    while start.elapsed() < end {
        let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
        let batch = due.saturating_sub(sent).min(messages.len() as u64);
        if batch == 0 {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        // SAFETY: the messages, vectors and frames they point to live as long as `main`.
        let done = unsafe { libc::sendmmsg(socket, messages.as_mut_ptr(), batch as u32, 0) };
        if done < 0 {
            return Err(io::Error::last_os_error().into());
        }
        sent += done as u64;
    }
    println!("sent {sent}: {:.0} a second", sent as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

/// Frame `n`: Ethernet, IPv4, TCP with time stamps. Odd frames are replies.
fn frame(n: u16, payload: usize) -> Vec<u8> {
    let (client, server) = (([192, 0, 2, 1], 40_000 + n / 2), ([192, 0, 2, 2], 27_017u16));
    let (source, destination) = if n.is_multiple_of(2) { (client, server) } else { (server, client) };
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0];
    bytes.extend((20 + 32 + payload as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend(source.0);
    bytes.extend(destination.0);
    bytes.extend(source.1.to_be_bytes());
    bytes.extend(destination.1.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend([8 << 4, 0x18, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + payload, 0xee);
    bytes
}
