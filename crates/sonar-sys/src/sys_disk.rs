//! The system calls of the disk test, wrapped so that the engines are safe Rust.
//!
//! A wrapper adds no policy. Memory of requests is never borrowed as a Rust slice: the kernel and other threads
//! change it at any time, so only system calls and volatile accesses reach it.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl, statfs};
use rustix::io::retry_on_intr;
use rustix::param::page_size;
use rustix::time::ClockId;

use crate::sys::map_shared;

/// Nanoseconds on `CLOCK_MONOTONIC`; without a system call if the clock source allows it.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    crate::sys::nanoseconds(ClockId::Monotonic)
}

/// Page-aligned anonymous memory, cut into buffers of equal size.
#[derive(Debug)]
pub(crate) struct Buffers {
    start: NonNull<u8>,
    length: usize,
    each: usize,
    count: usize,
}

// SAFETY: the mapping belongs to the process; no reference to its bytes is ever made, and concurrent
// changes by system calls and volatile stores cannot break anything: nobody believes the contents.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// `count` buffers of `each` bytes; both above 0.
    pub(crate) fn new(count: usize, each: usize) -> io::Result<Self> {
        // Each buffer begins on a page.
        let page = page_size();
        let stride = each.next_multiple_of(page);
        let length = stride.checked_mul(count).filter(|n| *n > 0).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is ours. Larger pages spare the kernel work for each request; where there
        // are none, nothing is lost.
        unsafe { libc::madvise(start, length, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length, each: stride, count })
    }

    /// The whole memory, for registration.
    pub(crate) fn iovec(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: self.length }
    }

    /// Address of buffer `index`, modulo the count.
    pub(crate) fn address(&self, index: usize) -> *mut u8 {
        // SAFETY: the index is below the count, so the buffer lies inside the mapping.
        unsafe { self.start.as_ptr().add(index % self.count * self.each) }
    }

    /// Fills every buffer with the words that `next` returns.
    pub(crate) fn fill(&self, mut next: impl FnMut() -> u64) {
        for word in 0..self.length / 8 {
            // SAFETY: inside the mapping and aligned to 8; a volatile store makes no reference.
            unsafe { self.start.as_ptr().cast::<u64>().add(word).write_volatile(next()) };
        }
    }

    /// Writes `value` into the first word of each 4 KiB of the first `bytes` of buffer `index`, so that no two
    /// records on disk are the same.
    #[inline]
    pub(crate) fn stamp(&self, index: usize, bytes: usize, value: u64) {
        let start = self.address(index);
        for at in (0..bytes.min(self.each)).step_by(4096) {
            // SAFETY: inside the buffer, which is a multiple of a page long; aligned to 8.
            unsafe { start.add(at).cast::<u64>().write_volatile(value.wrapping_add(at as u64)) };
        }
    }

    /// `pread` of `bytes` into buffer `index`. Continues after a partial read.
    #[inline]
    pub(crate) fn read(&self, file: &File, index: usize, bytes: usize, offset: u64) -> io::Result<()> {
        self.whole(index, bytes, |address, at, left| {
            // SAFETY: `left` bytes from `address` on are inside the buffer, which is ours; nobody holds a
            // reference to it.
            unsafe {
                libc::pread(file.as_raw_fd(), address.cast(), left, (offset + at as u64) as libc::off_t)
            }
        })
    }

    /// `pwrite` of `bytes` from buffer `index`. Continues after a partial write: the reason, such as no space or a
    /// quota, comes with the rest.
    #[inline]
    pub(crate) fn write(&self, file: &File, index: usize, bytes: usize, offset: u64) -> io::Result<()> {
        self.whole(index, bytes, |address, at, left| {
            // SAFETY: `left` bytes from `address` on are inside the buffer; the kernel only reads them.
            unsafe {
                libc::pwrite(file.as_raw_fd(), address.cast(), left, (offset + at as u64) as libc::off_t)
            }
        })
    }

    /// Calls `transfer` with the offset, the bytes done and the bytes left, until all are done.
    #[inline]
    fn whole(
        &self,
        index: usize,
        bytes: usize,
        transfer: impl Fn(*mut u8, usize, usize) -> isize,
    ) -> io::Result<()> {
        let bytes = bytes.min(self.each);
        let mut at = 0;
        while at < bytes {
            match usize::try_from(transfer(self.address(index).wrapping_add(at), at, bytes - at)) {
                Ok(0) => {
                    let text = format!("only {at} of {bytes} bytes were transferred");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                Ok(done) => at += done,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and has this length; whoever gives it to the kernel for longer than
        // a call (the ring) waits for the end of the request or keeps the memory.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Allocates the bytes of a file on disk (`fallocate`), so that later writes cannot run out of space.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes))?)
}

/// Makes a file bypass the page cache (`O_DIRECT`), or not.
pub(crate) fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(file, flags)?)
}

/// Asks the kernel to drop the cached pages of a file; it does no harm if the kernel ignores that.
pub(crate) fn drop_pages(file: &File) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// What a file system states about itself.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSystemState {
    /// Magic number of its type (`statfs`'s `f_type`).
    pub magic: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that this user may still use.
    pub free_bytes: u64,
}

/// Magic numbers of tmpfs and ramfs: file systems in memory.
pub(crate) const IN_MEMORY: [u64; 2] = [libc::TMPFS_MAGIC as u64, 0x8584_58f6];

/// `statfs` of the file system of `path`.
pub fn file_system_state(path: &Path) -> io::Result<FileSystemState> {
    let state = statfs(path)?;
    let unit = u64::try_from(state.f_frsize).ok().filter(|n| *n > 0).unwrap_or(state.f_bsize as u64);
    Ok(FileSystemState {
        magic: state.f_type as u64 & 0xffff_ffff,
        total_bytes: unit.saturating_mul(state.f_blocks),
        free_bytes: unit.saturating_mul(state.f_bavail),
    })
}

/// A file mapped into memory, shared and writable.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process; its bytes are reached by volatile accesses only.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// The mapping whose faults are caught, 0 if there is none: one at a time.
static GUARDED_START: AtomicUsize = AtomicUsize::new(0);
/// Its end. 0 until the mapping is whole, so that no address lies inside.
static GUARDED_END: AtomicUsize = AtomicUsize::new(0);
/// Bytes of a page, for the handler, which may not ask for it.
static PAGE: AtomicUsize = AtomicUsize::new(4096);
/// A page of it could not be read or written.
static FAULTED: AtomicBool = AtomicBool::new(false);

/// A device that disappears, or a file system that is full, causes SIGBUS in a mapping. The handler puts a page of
/// zeroes at the fault, so that the access can be repeated, and sets the flag for the engine. Faults anywhere else
/// end the process as usual.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let (start, end) = (GUARDED_START.load(Ordering::Acquire), GUARDED_END.load(Ordering::Acquire));
    if address >= start && address < end {
        let bytes = PAGE.load(Ordering::Relaxed);
        let page = address & !(bytes - 1);
        // SAFETY: replaces one page inside the guarded mapping, which only volatile accesses reach;
        // mmap and signal are single system calls, safe in a handler.
        unsafe {
            libc::mmap(
                page as *mut c_void,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            );
        }
        FAULTED.store(true, Ordering::Release);
    } else {
        // SAFETY: the default action needs no handler; signal is safe in a handler. The same fault occurs again and ends
        // the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

impl Mapped {
    /// Maps the first `bytes` of `file` and catches its faults. Only one mapping at a time.
    pub(crate) fn new(file: &File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // 1 is no address of a mapping; it marks that one is being made.
        if GUARDED_START.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let start = map_shared(file.as_raw_fd(), length)
            .inspect_err(|_| GUARDED_START.store(0, Ordering::Release))?;
        // From here on the guard's Drop puts everything back.
        let mapped = Self { start, length };
        let address = mapped.start.as_ptr() as usize;
        FAULTED.store(false, Ordering::Release);
        PAGE.store(page_size(), Ordering::Release);
        GUARDED_START.store(address, Ordering::Release);
        GUARDED_END.store(address + length, Ordering::Release);
        // SAFETY: sigaction is integers and a function pointer that may be null: zero is a value of it.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        // SAFETY: the action is valid and the handler does only what a handler may do.
        if unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapped)
    }

    /// Whether a page could not be read or written.
    #[inline]
    pub(crate) fn has_faulted() -> bool {
        FAULTED.load(Ordering::Relaxed)
    }

    /// Reads one byte of each page of a record; skips what is not inside the mapping.
    #[inline]
    pub(crate) fn touch(&self, offset: usize, bytes: usize) {
        for at in (offset..offset.saturating_add(bytes).min(self.length)).step_by(4096) {
            // SAFETY: inside the mapping; a volatile read makes no reference and is not left out.
            unsafe { self.start.as_ptr().add(at).read_volatile() };
        }
    }

    /// Writes one byte of each page of a record, likewise.
    #[inline]
    pub(crate) fn dirty(&self, offset: usize, bytes: usize, value: u8) {
        for at in (offset..offset.saturating_add(bytes).min(self.length)).step_by(4096) {
            // SAFETY: inside the mapping; a volatile store makes no reference.
            unsafe { self.start.as_ptr().add(at).write_volatile(value) };
        }
    }

    /// Writes what was changed to disk and waits for it (`msync`).
    pub(crate) fn sync(&self) -> io::Result<()> {
        // SAFETY: the mapping is ours and has this length.
        match unsafe { libc::msync(self.start.as_ptr().cast(), self.length, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        GUARDED_END.store(0, Ordering::Release);
        GUARDED_START.store(0, Ordering::Release);
        // SAFETY: the mapping is ours and has this length.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
