//! Capture: an AF_PACKET socket with a TPACKET_V3 ring, read in place.
//!
//! The kernel copies what the [`PacketFilter`] keeps into one block after another. It passes a block on when it is
//! full, or when [`RingConfig::retire`] has passed and it is not empty. So there is at most one wake-up per block and
//! none per packet; a packet is at most about twice `retire` old when it is read. The kernel stamps each packet with
//! `CLOCK_REALTIME` in nanoseconds.
//!
//! A ring sees the packets of the network namespace of the thread that opened it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use sonar_core::Packet;

use crate::block;
use crate::capabilities::{self, CaptureError};
use crate::filter::{self, FilterError, PacketFilter, Scope};
use crate::geometry;
use crate::interfaces::{self, NoSuchInterface};
use crate::sys::{PacketSocket, RingMap};

/// What to capture, and with how much memory.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Names of interfaces; empty: all, including later ones.
    pub interfaces: Vec<String>,
    /// Which packets, and how much of each.
    pub filter: PacketFilter,
    /// Memory for packets in bytes, of all rings of a group together; rounded to blocks, at least two for each ring.
    /// Kernel memory that is not swapped.
    pub size_bytes: usize,
    /// Bytes of a block: a power of two of at least 64 KiB. No packet larger than a block is captured whole.
    /// [`geometry`] has the choice that tolerates a reader which stands still.
    pub block_bytes: usize,
    /// A block that is not full is passed on after this time, in whole milliseconds, at least one.
    pub retire: Duration,
    /// Ask the interfaces for packets that are not addressed to them, as on a mirror port. If no interface is named:
    /// all but loopback that exist when the ring is opened.
    pub promiscuous: bool,
    /// Capture outgoing packets on loopback too. The same packets come in a moment later.
    pub loopback_twins: bool,
}

impl Default for RingConfig {
    /// Every TCP packet of every interface, 32 MiB.
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            filter: PacketFilter::default(),
            size_bytes: 32 << 20,
            block_bytes: 512 << 10,
            retire: Duration::from_millis(100),
            promiscuous: false,
            loopback_twins: false,
        }
    }
}

/// Why a ring could not be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// No permission, or no packet sockets.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A requested interface does not exist.
    #[error(transparent)]
    Interface(#[from] NoSuchInterface),
    /// The filter cannot be made.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The configuration cannot work.
    #[error(
        "a ring of {size_bytes} bytes in blocks of {block_bytes} is not possible: blocks are powers of two from 64 KiB to 1 GiB, and there are at most 65536"
    )]
    Size {
        /// As configured.
        size_bytes: usize,
        /// As configured.
        block_bytes: usize,
    },
    /// The kernel cannot provide the memory.
    #[error("no memory for a capture ring of {} MiB: {source}; a smaller ring may do", bytes >> 20)]
    Memory {
        /// The requested size.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel lacks a feature.
    #[error("this kernel does not do {feature}: {source}")]
    Unsupported {
        /// Which one.
        feature: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{call} failed on the capture socket: {source}")]
    System {
        /// Which one.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What happened, since the ring was opened, to the packets that the filter kept.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets for the ring, including dropped ones.
    pub packets: u64,
    /// Dropped ones, because the ring was full.
    pub drops: u64,
    /// Times the ring became full.
    pub freezes: u64,
    /// Blocks that contradicted themselves; the rest of such a block is lost. Never seen in practice.
    pub malformed_blocks: u64,
}

/// How long the end of a capture waits for a block that the kernel should have passed on.
const PATIENCE: Duration = Duration::from_secs(2);

impl Statistics {
    /// Adds the counts of another ring.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.drops += other.drops;
        self.freezes += other.freezes;
        self.malformed_blocks += other.malformed_blocks;
    }
}

/// Why [`Ring::poll`] returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There are packets to read.
    Packets,
    /// The time is over (or a signal arrived).
    TimedOut,
    /// [`Stopper::stop`] was called.
    Stopped,
    /// The interface that the ring listens on went down or disappeared. The ring captures again when the same
    /// interface comes up; one that was removed and recreated needs a new ring. Reported once each time.
    InterfaceDown,
}

/// What a process needs to know of a ring whose socket it receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingLayout {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// When a block that is not full is passed on, in milliseconds.
    pub retire_ms: u64,
    /// Numbers of the interfaces that the filter keeps; empty: all that the socket is bound to.
    pub interfaces: Vec<u32>,
    /// Whether the filter leaves out the outgoing copy of packets on loopback.
    pub loopback_once: bool,
}

/// Ends the waiting of every ring of a group for good, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// From now on [`Ring::poll`] returns [`Wake::Stopped`] at once.
    pub fn stop(&self) {
        // This fails only if the counter is full, which wakes the reader anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// An open capture.
#[derive(Debug)]
pub struct Ring {
    // Before the socket, so that it is unmapped first.
    map: RingMap,
    socket: PacketSocket,
    stop: Arc<OwnedFd>,
    next_block: usize,
    /// Blocks that the last reading found.
    blocks_read: usize,
    /// Packets lent since the ring was opened.
    lent: u64,
    retire: Duration,
    scope: Scope,
    statistics: Statistics,
}

impl Ring {
    /// Opens a ring; packets are captured from now on.
    pub fn open(config: &RingConfig) -> Result<Self, RingError> {
        let plan = RingPlan::new(config, 1)?;
        let ring = plan.ring(&plan.program)?;
        ring.bind(plan.bind_to)?;
        Ok(ring)
    }

    /// Opens `count` rings (at least one) that share the packets: all packets of a connection, in both directions, go
    /// to the same ring (`PACKET_FANOUT_HASH`). One thread each.
    ///
    /// Fragments are not reassembled for it (`PACKET_FANOUT_FLAG_DEFRAG`), so a group captures the same as a single
    /// ring.
    pub fn open_group(config: &RingConfig, count: usize) -> Result<Vec<Self>, RingError> {
        if count <= 1 {
            return Ok(vec![Self::open(config)?]);
        }
        let plan = RingPlan::new(config, count)?;
        // A socket must be bound before it can join a group, and would capture everything until it has joined, so
        // packets of others would be seen twice. So all drop everything until all have joined.
        let nothing = filter::drop_all();
        let mut rings: Vec<Self> = Vec::with_capacity(count);
        let mut group = 0;
        for index in 0..count {
            let mut ring = plan.ring(&nothing)?;
            if let Some(first) = rings.first() {
                ring.stop = Arc::clone(&first.stop);
            }
            ring.bind(plan.bind_to)?;
            let mut mode = libc::PACKET_FANOUT_HASH;
            if plan.ignore_outgoing {
                mode |= libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
            }
            if index == 0 {
                mode |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
            }
            let unsupported = |source| RingError::Unsupported { feature: "PACKET_FANOUT", source };
            let argument = (mode << 16) as i32 | group;
            ring.socket.set_packet_option(libc::PACKET_FANOUT, argument).map_err(unsupported)?;
            if index == 0 {
                group = ring.socket.packet_option(libc::PACKET_FANOUT).map_err(unsupported)? & 0xffff;
            }
            rings.push(ring);
        }
        for ring in &rings {
            ring.attach(&plan.program)?;
        }
        Ok(rings)
    }

    fn bind(&self, index: u32) -> Result<(), RingError> {
        self.socket.bind(index).map_err(|source| RingError::System { call: "bind", source })
    }

    fn attach(&self, program: &[libc::sock_filter]) -> Result<(), RingError> {
        let failed = |source| RingError::System { call: "SO_ATTACH_FILTER", source };
        self.socket.attach_filter(program).map_err(failed)
    }

    /// Gives the socket away, for another process to use it with [`Self::adopt`]. The ring keeps filling.
    pub fn hand_over(self) -> (OwnedFd, RingLayout) {
        let Self { map, socket, scope, retire, .. } = self;
        let layout = RingLayout {
            block_bytes: map.block_bytes(),
            blocks: map.block_count(),
            retire_ms: retire.as_millis() as u64,
            interfaces: scope.interfaces,
            loopback_once: scope.loopback_once,
        };
        (socket.into(), layout)
    }

    /// Uses a ring that another process has opened and not read. It needs no capability.
    ///
    /// # Errors
    /// The socket has no ring of this layout, or it cannot be mapped.
    pub fn adopt(socket: OwnedFd, layout: &RingLayout) -> Result<Self, RingError> {
        let socket = PacketSocket::from(socket);
        let (blocks, block_bytes) = (layout.blocks, layout.block_bytes);
        let bytes = blocks.checked_mul(block_bytes);
        let size = RingError::Size { size_bytes: bytes.unwrap_or(usize::MAX), block_bytes };
        let bytes = bytes.filter(|bytes| *bytes > 0).ok_or(size)?;
        let map = RingMap::new(&socket, block_bytes, blocks)
            .map_err(|source| RingError::Memory { bytes, source })?;
        let scope = Scope { interfaces: layout.interfaces.clone(), loopback_once: layout.loopback_once };
        Self::mapped(map, socket, scope, Duration::from_millis(layout.retire_ms))
    }

    fn mapped(map: RingMap, socket: PacketSocket, scope: Scope, retire: Duration) -> Result<Self, RingError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| RingError::System { call: "eventfd", source: errno.into() })?;
        Ok(Self {
            map,
            socket,
            stop: Arc::new(stop),
            next_block: 0,
            blocks_read: 0,
            lent: 0,
            retire,
            scope,
            statistics: Statistics::default(),
        })
    }

    /// How long nobody may read this ring without losing a packet, if no block fills before it is passed on by time.
    pub fn tolerated_stall(&self) -> Duration {
        geometry::tolerated_stall(self.map.block_count(), self.retire)
    }

    /// From now on the stoppers of `earlier` end the waiting of this ring too: it takes the place of `earlier`.
    pub fn replace(&mut self, earlier: &Self) {
        self.stop = Arc::clone(&earlier.stop);
    }

    /// Applies `filter` from now on. Earlier packets stay in the ring. Each ring of a group has its own filter:
    /// update all of them.
    ///
    /// # Errors
    /// The filter cannot be made or the kernel refuses it; the old one stays.
    pub fn set_filter(&mut self, filter: &PacketFilter) -> Result<(), RingError> {
        self.attach(&filter.assemble(&self.scope)?)
    }

    /// Waits at most `timeout` until there is something to read.
    ///
    /// If blocks fill faster than they are passed on by time, it lets some more fill first: one wake-up for several
    /// blocks, which matters at hundreds of megabytes per second.
    pub fn poll(&mut self, timeout: Duration) -> Result<Wake, RingError> {
        let failed = |source| RingError::System { call: "poll", source };
        let (stop, socket) = (self.stop.as_fd(), self.socket.as_fd());
        let mut left = timeout;
        if self.blocks_read >= 2 {
            let pause = left.min(self.retire / 8);
            let [stopped, _] = poll([stop, stop], pause).map_err(failed)?;
            if !stopped.is_empty() {
                return Ok(Wake::Stopped);
            }
            left -= pause;
        }
        let [stopped, socket] = poll([stop, socket], left).map_err(failed)?;
        if !stopped.is_empty() {
            return Ok(Wake::Stopped);
        }
        if !socket.difference(PollFlags::IN).is_empty() {
            match socket_error(&self.socket).map_err(|errno| failed(errno.into()))? {
                Err(Errno::NETDOWN) => return Ok(Wake::InterfaceDown),
                Err(errno) => return Err(failed(errno.into())),
                Ok(()) => {}
            }
        }
        Ok(if socket.contains(PollFlags::IN) { Wake::Packets } else { Wake::TimedOut })
    }

    /// Lends every packet that the kernel has passed on, in the order of arrival, without waiting; returns their
    /// number. It goes round the ring once, even if more packets arrive meanwhile.
    #[inline]
    pub fn for_each(&mut self, mut each: impl FnMut(Packet<'_>)) -> u64 {
        let count = self.map.block_count();
        let mut packets = 0;
        self.blocks_read = 0;
        for _ in 0..count {
            let Some(block) = self.map.take(self.next_block) else { break };
            self.blocks_read += 1;
            // Before the packets are lent: if `each` panics, the block counts as read.
            self.next_block = (self.next_block + 1) % count;
            match block::for_each(block.bytes(), &mut each) {
                Ok(read) => packets += read,
                Err(malformed) => {
                    packets += malformed.packets_before;
                    self.statistics.malformed_blocks += 1;
                }
            }
        }
        self.lent += packets;
        packets
    }

    /// Stops capturing and lends the packets so far. Waits for the last block: at most about twice
    /// [`RingConfig::retire`], and two seconds more if the kernel is late. Returns the number of packets.
    pub fn finish(&mut self, mut each: impl FnMut(Packet<'_>)) -> Result<u64, RingError> {
        self.attach(&filter::drop_all())?;
        let usual = Instant::now() + 2 * self.retire + Duration::from_millis(20);
        let mut packets = 0;
        loop {
            packets += self.for_each(&mut each);
            let Statistics { packets: had, drops, malformed_blocks, .. } = self.statistics()?;
            let late = Instant::now().saturating_duration_since(usual);
            // The packets of a malformed block cannot be counted.
            let patience = if malformed_blocks == 0 { PATIENCE } else { Duration::ZERO };
            if self.lent >= had.saturating_sub(drops) || late > patience {
                return Ok(packets);
            }
            std::thread::sleep(self.retire / 8);
        }
    }

    /// What happened to the packets so far.
    pub fn statistics(&mut self) -> Result<Statistics, RingError> {
        let failed = |source| RingError::System { call: "PACKET_STATISTICS", source };
        let new = self.socket.take_statistics().map_err(failed)?;
        self.statistics.packets += u64::from(new.tp_packets);
        self.statistics.drops += u64::from(new.tp_drops);
        self.statistics.freezes += u64::from(new.tp_freeze_q_cnt);
        Ok(self.statistics)
    }

    /// A handle that ends the waiting.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }
}

/// Waits until one of two descriptors is readable or in error. Returns the events of both; none if the time is over
/// or a signal arrived.
fn poll(fds: [BorrowedFd<'_>; 2], timeout: Duration) -> io::Result<[PollFlags; 2]> {
    let mut entries = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match rustix::event::poll(&mut entries, Some(&timeout)) {
        Err(Errno::INTR) => Ok([PollFlags::empty(); 2]),
        Err(errno) => Err(errno.into()),
        Ok(_) => Ok(entries.map(|entry| entry.revents())),
    }
}

/// A configuration, checked and resolved.
struct RingPlan {
    program: Vec<libc::sock_filter>,
    scope: Scope,
    /// Interface index, or 0 for all.
    bind_to: u32,
    promiscuous: Vec<u32>,
    ignore_outgoing: bool,
    blocks: usize,
    block_bytes: usize,
    retire: Duration,
}

impl RingPlan {
    fn new(config: &RingConfig, rings: usize) -> Result<Self, RingError> {
        let RingConfig { size_bytes, block_bytes, .. } = *config;
        let blocks = (size_bytes / rings.max(1) / block_bytes.max(1)).max(2);
        if !block_bytes.is_power_of_two()
            || !(64 << 10..=1 << 30).contains(&block_bytes)
            || blocks > 65_536
            || blocks.checked_mul(block_bytes).is_none()
        {
            return Err(RingError::Size { size_bytes, block_bytes });
        }
        let all = interfaces::list().map_err(|source| RingError::System { call: "getifaddrs", source })?;
        let named = interfaces::select(&all, &config.interfaces)?;
        let several = if named.len() > 1 { named.iter().map(|i| i.index).collect() } else { Vec::new() };
        let loopback_once = !config.loopback_twins;
        let scope = Scope { interfaces: several, loopback_once };
        let program = config.filter.assemble(&scope)?;
        let promiscuous = if !config.promiscuous {
            Vec::new()
        } else if named.is_empty() {
            all.iter().filter(|i| !i.loopback).map(|i| i.index).collect()
        } else {
            named.iter().map(|i| i.index).collect()
        };
        Ok(Self {
            program,
            scope,
            bind_to: if let [one] = named.as_slice() { one.index } else { 0 },
            promiscuous,
            // On any other interface outgoing packets do not come in again.
            ignore_outgoing: loopback_once && !named.is_empty() && named.iter().all(|i| i.loopback),
            blocks,
            block_bytes,
            retire: config.retire.max(Duration::from_millis(1)),
        })
    }

    /// A socket with its ring and filter, not bound: it receives nothing yet.
    fn ring(&self, program: &[libc::sock_filter]) -> Result<Ring, RingError> {
        let socket =
            PacketSocket::open().map_err(|error| capabilities::classify(error, Path::new("/proc")))?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        socket
            .set_packet_option(libc::PACKET_VERSION, version)
            .map_err(|source| RingError::Unsupported { feature: "TPACKET_V3", source })?;
        socket
            .attach_filter(program)
            .map_err(|source| RingError::System { call: "SO_ATTACH_FILTER", source })?;
        if self.ignore_outgoing {
            // It saves the kernel a copy of each packet. If it is refused, the filter does the same.
            let _ = socket.set_packet_option(libc::PACKET_IGNORE_OUTGOING, 1);
        }
        let bytes = self.blocks * self.block_bytes;
        // The kernel checks frame size and number against the blocks, but packs as it likes.
        let frame_bytes = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: self.block_bytes as u32,
            tp_block_nr: self.blocks as u32,
            tp_frame_size: frame_bytes,
            tp_frame_nr: (self.block_bytes / frame_bytes as usize * self.blocks) as u32,
            tp_retire_blk_tov: self.retire.as_millis().clamp(1, 60_000) as u32,
            tp_sizeof_priv: 0,
            // No hash of each packet: nothing uses it.
            tp_feature_req_word: 0,
        };
        socket.set_rx_ring(&request).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOMEM) => RingError::Memory { bytes, source },
            _ => RingError::System { call: "PACKET_RX_RING", source },
        })?;
        match socket.stop_sending() {
            // Before Linux 4.11. Nothing here sends.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            done => done.map_err(|source| RingError::System { call: "PACKET_TX_RING", source })?,
        }
        let map = RingMap::new(&socket, self.block_bytes, self.blocks)
            .map_err(|source| RingError::Memory { bytes, source })?;
        for index in &self.promiscuous {
            socket
                .set_promiscuous(*index)
                .map_err(|source| RingError::System { call: "PACKET_ADD_MEMBERSHIP", source })?;
        }
        Ring::mapped(map, socket, self.scope.clone(), self.retire)
    }
}
