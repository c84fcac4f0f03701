//! An io_uring with one file and its buffers registered, wrapped so that the engine is safe Rust.
//!
//! It is safe because the ring owns the file and the buffers that requests point to, counts the requests in flight,
//! and waits for all of them before it frees anything.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use crate::sys_disk::Buffers;

/// A request that has ended: its slot, and the bytes moved or the negated error number.
pub(crate) type Completion = (u32, i32);

/// A ring for one file.
pub(crate) struct DiskRing {
    ring: IoUring,
    file: Arc<File>,
    reads: Arc<Buffers>,
    writes: Arc<Buffers>,
    /// The time of every pause; at a fixed address, because the kernel reads it at submission.
    pause: Box<types::Timespec>,
    in_flight: u32,
    fixed_buffers: bool,
    fixed_file: bool,
}

/// Tries to create a ring; fails if there is no io_uring.
pub(crate) fn try_ring() -> io::Result<()> {
    IoUring::new(2).map(drop)
}

fn build(entries: u32) -> io::Result<IoUring> {
    // One thread submits and reaps, and completions run when it waits: fewer interrupts (6.1).
    let best = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    let good = best.or_else(|_| IoUring::builder().setup_coop_taskrun().build(entries));
    good.or_else(|_| IoUring::new(entries))
}

impl DiskRing {
    /// A ring for `entries` requests in flight, with memory for reads and for writes. Create it on the thread that
    /// uses it.
    pub(crate) fn new(
        entries: u32,
        file: Arc<File>,
        reads: Arc<Buffers>,
        writes: Arc<Buffers>,
    ) -> io::Result<Self> {
        let ring = build(entries)?;
        // If a limit on locked memory or on descriptors forbids it, each request names its memory and file: a little
        // slower, nothing else.
        // SAFETY: both mappings are owned by this struct and outlive the ring (see Drop).
        let fixed_buffers =
            unsafe { ring.submitter().register_buffers(&[reads.iovec(), writes.iovec()]) }.is_ok();
        let fixed_file = ring.submitter().register_files(&[file.as_raw_fd()]).is_ok();
        Ok(Self {
            ring,
            file,
            reads,
            writes,
            pause: Box::new(types::Timespec::new()),
            in_flight: 0,
            fixed_buffers,
            fixed_file,
        })
    }

    /// The ring with pauses of this length.
    pub(crate) fn with_pause(mut self, ns: u64) -> Self {
        *self.pause = types::Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32);
        self
    }

    /// Whether buffers and file could be registered.
    pub(crate) const fn registered(&self) -> bool {
        self.fixed_buffers && self.fixed_file
    }

    #[inline]
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the file, the buffers and the time that entries point to are owned by this struct, which
        // waits for the end of every request before it lets go of them.
        if unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
            // SAFETY: as above.
            unsafe { self.ring.submission().push(entry) }.map_err(|_| io::ErrorKind::ResourceBusy)?;
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Queues a read of `bytes` into the buffer of `slot`.
    #[inline]
    pub(crate) fn read(&mut self, slot: u32, bytes: u32, offset: u64) -> io::Result<()> {
        let address = self.reads.address(slot as usize);
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = match (self.fixed_buffers, self.fixed_file) {
            (true, true) => opcode::ReadFixed::new(types::Fixed(0), address, bytes, 0).offset(offset).build(),
            (true, false) => opcode::ReadFixed::new(fd, address, bytes, 0).offset(offset).build(),
            (false, true) => opcode::Read::new(types::Fixed(0), address, bytes).offset(offset).build(),
            (false, false) => opcode::Read::new(fd, address, bytes).offset(offset).build(),
        };
        self.push(&entry.user_data(u64::from(slot)))
    }

    /// Queues a write of `bytes` from the buffer of `slot`.
    #[inline]
    pub(crate) fn write(&mut self, slot: u32, bytes: u32, offset: u64) -> io::Result<()> {
        let address = self.writes.address(slot as usize);
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = match (self.fixed_buffers, self.fixed_file) {
            (true, true) => {
                opcode::WriteFixed::new(types::Fixed(0), address, bytes, 1).offset(offset).build()
            }
            (true, false) => opcode::WriteFixed::new(fd, address, bytes, 1).offset(offset).build(),
            (false, true) => opcode::Write::new(types::Fixed(0), address, bytes).offset(offset).build(),
            (false, false) => opcode::Write::new(fd, address, bytes).offset(offset).build(),
        };
        self.push(&entry.user_data(u64::from(slot)))
    }

    /// Queues an `fdatasync`.
    pub(crate) fn flush(&mut self, slot: u32) -> io::Result<()> {
        let entry =
            opcode::Fsync::new(types::Fd(self.file.as_raw_fd())).flags(types::FsyncFlags::DATASYNC).build();
        self.push(&entry.user_data(u64::from(slot)))
    }

    /// Queues a pause; it ends with `-ETIME`.
    pub(crate) fn pause(&mut self, slot: u32) -> io::Result<()> {
        let entry = opcode::Timeout::new(&raw const *self.pause).build();
        self.push(&entry.user_data(u64::from(slot)))
    }

    /// Submits the queue, without waiting.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match self.ring.submit() {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {
                Err(error)
            }
            // The rest is submitted with the next wait.
            _ => Ok(()),
        }
    }

    /// Submits the queue, waits for at least one request to end, and appends those that ended to `ended`, at most as
    /// many as it has room for.
    #[inline]
    pub(crate) fn wait(&mut self, ended: &mut Vec<Completion>) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => break,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // There are completions to take first.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => break,
                Err(error) => return Err(error),
            }
        }
        let room = ended.capacity() - ended.len();
        for entry in self.ring.completion().take(room) {
            self.in_flight -= 1;
            ended.push((entry.user_data() as u32, entry.result()));
        }
        Ok(())
    }
}

impl Drop for DiskRing {
    fn drop(&mut self) {
        let mut ended = Vec::with_capacity(64);
        while self.in_flight > 0 {
            ended.clear();
            if self.wait(&mut ended).is_err() {
                // The kernel may still write there: the memory is never freed.
                std::mem::forget(self.reads.clone());
                std::mem::forget(self.writes.clone());
                return;
            }
        }
    }
}
