//! Packet sockets, their rings, and the network interfaces: system calls that `rustix` does not wrap.
//!
//! A wrapper adds no policy: it owns what it opens, turns `-1` into [`io::Error`], and exposes no pointer.

use std::ffi::{CStr, c_int};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

/// A C structure that is nothing but its bytes.
///
/// # Safety
/// Every bit pattern is a value of the type, and it holds no pointer that outlives the call it is
/// passed to.
unsafe trait SocketOptionValue: Copy {}

// SAFETY: an integer; every bit pattern is one.
unsafe impl SocketOptionValue for c_int {}
// SAFETY: three integers.
unsafe impl SocketOptionValue for libc::tpacket_stats_v3 {}
// SAFETY: seven integers.
unsafe impl SocketOptionValue for libc::tpacket_req3 {}
// SAFETY: integers and an array of bytes.
unsafe impl SocketOptionValue for libc::packet_mreq {}
// SAFETY: a length and a pointer that the kernel follows during the call only.
unsafe impl SocketOptionValue for libc::sock_fprog {}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A packet socket.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// `socket(AF_PACKET, SOCK_RAW, 0)`: with protocol 0 nothing is received until [`Self::bind`].
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?))
    }

    /// Begins to receive every protocol, on interface `index` or, when that is 0, on all.
    pub(crate) fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: sockaddr_ll is integers and bytes: all zero is a value of it.
        let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        addr.sll_family = libc::AF_PACKET as u16;
        addr.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        addr.sll_ifindex = index as c_int;
        // SAFETY: `addr` lives through the call and its true size is given.
        check(unsafe {
            libc::bind(
                self.raw(),
                (&raw const addr).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    fn set<T: SocketOptionValue>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        // SAFETY: `value` lives through the call and its true size is given.
        check(unsafe {
            libc::setsockopt(
                self.raw(),
                level,
                name,
                (value as *const T).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    fn get<T: SocketOptionValue>(&self, level: c_int, name: c_int, mut value: T) -> io::Result<T> {
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of `value`; T is plain bytes, so
        // whatever it writes is a value of T.
        check(unsafe { libc::getsockopt(self.raw(), level, name, (&raw mut value).cast(), &mut len) })?;
        Ok(value)
    }

    /// Sets an integer option of level `SOL_PACKET`.
    pub(crate) fn set_packet_option(&self, name: c_int, value: c_int) -> io::Result<()> {
        self.set(libc::SOL_PACKET, name, &value)
    }

    /// Reads an integer option of level `SOL_PACKET`.
    pub(crate) fn packet_option(&self, name: c_int) -> io::Result<c_int> {
        self.get(libc::SOL_PACKET, name, 0)
    }

    /// Gives the socket a receive ring of TPACKET_V3 blocks.
    pub(crate) fn set_rx_ring(&self, request: &libc::tpacket_req3) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, request)
    }

    /// Takes the socket's way to send: from now on the kernel sends only what stands in a ring for sending, which has room
    /// for frames of 32 bytes, less than an Ethernet frame with an IP packet has, and which nobody maps
    /// (`packet_sendmsg`, `tpacket_snd`; Linux: net/packet/af_packet.c). It can be called before the rings are mapped only.
    ///
    /// # Errors
    /// The kernel refuses; before Linux 4.11 it has no such ring for TPACKET_V3.
    pub(crate) fn stop_sending(&self) -> io::Result<()> {
        // `struct tpacket3_hdr` and `struct sockaddr_ll`, rounded up as frames are: the smallest that the kernel takes.
        const FRAME_BYTES: usize = 80;
        let block_bytes = page_size();
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes as u32,
            tp_block_nr: 1,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: (block_bytes / FRAME_BYTES) as u32,
            tp_retire_blk_tov: 0,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        self.set(libc::SOL_PACKET, libc::PACKET_TX_RING, &request)
    }

    /// Packets received and dropped since the last call: the kernel resets the counts.
    pub(crate) fn take_statistics(&self) -> io::Result<libc::tpacket_stats_v3> {
        let zero = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, zero)
    }

    /// Puts an interface into promiscuous mode until the socket is closed.
    pub(crate) fn set_promiscuous(&self, index: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Replaces the socket's filter program.
    pub(crate) fn attach_filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The kernel only reads the program, although its structure has `*mut`.
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for PacketSocket {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<PacketSocket> for OwnedFd {
    fn from(socket: PacketSocket) -> Self {
        socket.0
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A receive ring mapped into this process: `block_count` blocks of `block_size` bytes. Each belongs either to the
/// kernel or to this process, as the status word in its descriptor states.
#[derive(Debug)]
pub(crate) struct RingMap {
    start: NonNull<u8>,
    block_size: usize,
    block_count: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `RingMap` is its only owner.
unsafe impl Send for RingMap {}

/// A new mapping of the first `length` bytes of a file or a ring, shared with it, to read and write. The caller unmaps it.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn map_shared(of: RawFd, length: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, of, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Where `block_status` is in `tpacket_block_desc`.
pub(crate) const BLOCK_STATUS_OFFSET: usize = 8;

impl RingMap {
    /// Maps the receive ring of `socket`, which must have been given one of exactly this size.
    ///
    /// Nothing needs to touch or lock its memory beforehand: the kernel has allocated all pages when the ring is given
    /// (`packet_set_ring`) and enters each into the page table when it is mapped (`vm_insert_page` in `packet_mmap`, Linux:
    /// net/packet/af_packet.c). Neither a reader nor the kernel waits for a page later, and none is swapped out.
    pub(crate) fn new(socket: &PacketSocket, block_size: usize, block_count: usize) -> io::Result<Self> {
        let length = block_size
            .checked_mul(block_count)
            .filter(|_| block_size >= 4096)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // All rings of a socket are mapped at once, or none. The one for sending is the second, and has one page.
        let sending = page_size();
        let whole = length.checked_add(sending).filter(|_| length.is_multiple_of(sending));
        let start = match map_shared(socket.raw(), whole.ok_or(io::ErrorKind::InvalidInput)?) {
            Ok(start) => {
                // SAFETY: these pages are part of the new mapping, and nothing refers to them.
                let unmapped = check(unsafe { libc::munmap(start.add(length).as_ptr().cast(), sending) });
                if let Err(error) = unmapped {
                    // SAFETY: the mapping is ours, has this length, and nothing refers to it.
                    unsafe { libc::munmap(start.as_ptr().cast(), length + sending) };
                    return Err(error);
                }
                start
            }
            Err(_) => map_shared(socket.raw(), length)?,
        };
        Ok(Self { start, block_size, block_count })
    }

    pub(crate) const fn block_bytes(&self) -> usize {
        self.block_size
    }

    pub(crate) const fn block_count(&self) -> usize {
        self.block_count
    }

    /// Block `index`, if the kernel has passed it on; dropping the guard returns it. The exclusive borrow makes sure
    /// that nobody reads a block that was returned.
    pub(crate) fn take(&mut self, index: usize) -> Option<RingBlock<'_>> {
        if index >= self.block_count {
            return None;
        }
        // SAFETY: `index` is below `block_count`, so the block lies inside the mapping.
        let start = unsafe { self.start.add(index * self.block_size) };
        // SAFETY: the block lies inside the mapping, is aligned to a page, and its status word is only
        // ever accessed atomically, here and by the kernel.
        let status: &AtomicU32 = unsafe { start.add(BLOCK_STATUS_OFFSET).cast().as_ref() };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        Some(RingBlock { start, size: self.block_size, map: std::marker::PhantomData })
    }
}

impl Drop for RingMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, has this length, and every borrow of it has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.block_size * self.block_count) };
    }
}

/// A block that the kernel passed on.
pub(crate) struct RingBlock<'a> {
    start: NonNull<u8>,
    size: usize,
    map: std::marker::PhantomData<&'a mut RingMap>,
}

impl RingBlock<'_> {
    /// The block with its descriptor.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the block is mapped and `size` long. It was handed over (its status was read with
        // acquire ordering), and the kernel writes nothing to it until it is given back, which takes
        // the guard that this slice borrows.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }
}

impl Drop for RingBlock<'_> {
    fn drop(&mut self) {
        // SAFETY: the block is mapped as long as `self` lives, is aligned to a page, and no slice of it is
        // left; the status word is only ever accessed atomically, here and by the kernel.
        let status: &AtomicU32 = unsafe { self.start.add(BLOCK_STATUS_OFFSET).cast().as_ref() };
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// Asks the processor to fetch the first `lines` cache lines from the beginning of `bytes` on.
#[inline(always)]
pub(crate) fn prefetch(bytes: &[u8], lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        // SAFETY: a prefetch reads nothing as far as the program can see, and never faults.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                bytes.as_ptr().wrapping_add(64 * line).cast(),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, lines);
}

/// The time that this process has used: (user, system).
pub(crate) fn process_time() -> io::Result<(Duration, Duration)> {
    // SAFETY: rusage is integers: all zero is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills `usage`, which lives through the call.
    check(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) })?;
    let duration = |t: libc::timeval| {
        Duration::new(t.tv_sec.max(0) as u64, (t.tv_usec.clamp(0, 999_999) * 1_000) as u32)
    };
    Ok((duration(usage.ru_utime), duration(usage.ru_stime)))
}

/// The processor time of all threads of a process since it started, ended ones included.
pub(crate) fn processor_time_of(pid: u32) -> io::Result<Duration> {
    /// `PID_MAX_LIMIT` of the kernel.
    const MAX_PID: u32 = 1 << 22;
    /// `CPUCLOCK_SCHED` of the kernel, beside which a clock has the complement of a process id.
    const SCHEDULED: libc::clockid_t = 2;
    let pid = libc::clockid_t::try_from(pid.min(MAX_PID)).map_err(io::Error::other)?;
    let clock = (!pid << 3) | SCHEDULED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills `time`, which lives through the call.
    check(unsafe { libc::clock_gettime(clock, &mut time) })?;
    Ok(Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32))
}

/// Index and name of every interface in the network namespace of the calling thread.
pub(crate) fn interface_names() -> io::Result<Vec<(u32, String)>> {
    // SAFETY: on success gives a list that is ours until it is given to if_freenameindex.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut names = Vec::new();
    let mut next = list;
    // SAFETY: the list ends with an entry of index 0, is not left behind that, and is freed only after
    // this loop. Names are terminated by 0.
    unsafe {
        while (*next).if_index != 0 && !(*next).if_name.is_null() {
            let name = CStr::from_ptr((*next).if_name).to_string_lossy().into_owned();
            names.push(((*next).if_index, name));
            next = next.add(1);
        }
        libc::if_freenameindex(list);
    }
    Ok(names)
}

/// Names of interfaces and their IP addresses, in the network namespace of the calling thread.
pub(crate) fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: on success `head` is a list that is ours until it is given to freeifaddrs.
    check(unsafe { libc::getifaddrs(&mut head) })?;
    let mut addresses = Vec::new();
    let mut next = head;
    // SAFETY: `next` is null or an entry of the list, which is freed only after this loop.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: null addresses are left out first; an address is as large as its family says.
        let address: IpAddr = unsafe {
            match entry.ifa_addr.as_ref().map(|addr| c_int::from(addr.sa_family)) {
                Some(libc::AF_INET) => {
                    let addr = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned().sin_addr.s_addr;
                    Ipv4Addr::from(addr.to_ne_bytes()).into()
                }
                Some(libc::AF_INET6) => {
                    let addr = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr;
                    Ipv6Addr::from(addr).into()
                }
                _ => continue,
            }
        };
        // SAFETY: names are terminated by 0 and live as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        addresses.push((name, address));
    }
    // SAFETY: `head` came from getifaddrs, is freed once, and nothing borrows from it any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(addresses)
}

/// A socket for questions about interfaces in the network namespace of the calling thread: of a family that sends nothing
/// over them.
pub(crate) struct InterfaceQuery(OwnedFd);

impl InterfaceQuery {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?))
    }

    /// Flags (`IFF_…`).
    pub(crate) fn flags(&self, name: &str) -> io::Result<c_int> {
        let answer = self.ask(libc::SIOCGIFFLAGS as _, name)?;
        // SAFETY: SIOCGIFFLAGS answered in this member; any two bytes are an integer.
        Ok(c_int::from(unsafe { answer.ifr_ifru.ifru_flags }))
    }

    /// Hardware type (`ARPHRD_…`).
    pub(crate) fn hardware(&self, name: &str) -> io::Result<u16> {
        let answer = self.ask(libc::SIOCGIFHWADDR as _, name)?;
        // SAFETY: SIOCGIFHWADDR answered in this member; any bytes are a value of it.
        Ok(unsafe { answer.ifr_ifru.ifru_hwaddr }.sa_family)
    }

    /// The largest payload of a frame, in bytes.
    pub(crate) fn mtu(&self, name: &str) -> io::Result<u32> {
        let answer = self.ask(libc::SIOCGIFMTU as _, name)?;
        // SAFETY: SIOCGIFMTU answered in this member; any four bytes are an integer.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu }.max(0) as u32)
    }

    /// The name of the interface with this number.
    pub(crate) fn name(&self, index: u32) -> io::Result<String> {
        Ok(netdevice::index_to_name(&self.0, index)?)
    }

    /// Asks one of the questions above; no other is allowed.
    fn ask(&self, question: libc::Ioctl, name: &str) -> io::Result<libc::ifreq> {
        // SAFETY: ifreq is bytes and a union of plain values: all zero is a value of it.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: each of the questions reads the name, which is terminated by 0, and writes the union of
        // `request`, which lives through the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), question, &mut request) })?;
        Ok(request)
    }
}

/// How far `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`, in nanoseconds, modulo 2^64. The thread may lose its
/// processor between reading one and the other, so the fastest of several readings counts.
pub(crate) fn realtime_minus_monotonic_ns() -> u64 {
    let reading = |_| {
        let before = nanoseconds(ClockId::Monotonic);
        let time = nanoseconds(ClockId::Realtime);
        let took = nanoseconds(ClockId::Monotonic).saturating_sub(before);
        (took, time.wrapping_sub(before.wrapping_add(took / 2)))
    };
    (0..3).map(reading).min().map_or(0, |(_, offset)| offset)
}

/// Nanoseconds of a clock; without a system call if the clock source allows it.
#[inline]
pub(crate) fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
