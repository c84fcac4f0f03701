//! What this process costs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::param::page_size;

use crate::sys;

/// What this process has used since it began, and what it holds now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Processor time in user mode, all threads.
    pub user: Duration,
    /// Processor time in the kernel on its behalf, all threads.
    pub system: Duration,
    /// Memory that is in RAM, in bytes; a mapped ring counts as far as it was read. 0 if unknown.
    pub resident_bytes: u64,
}

impl ResourceUsage {
    /// The present values. The first call opens a file, which later ones read again: a process that will not be able
    /// to open files must call it once before.
    pub fn now() -> io::Result<Self> {
        let (user, system) = sys::process_time()?;
        Ok(Self { user, system, resident_bytes: resident_bytes().unwrap_or(0) })
    }

    /// Processor time of both kinds.
    pub fn processor(&self) -> Duration {
        self.user + self.system
    }
}

/// From `/proc/self/statm`: pages in RAM are the second number.
fn resident_bytes() -> Option<u64> {
    static STATM: OnceLock<Option<File>> = OnceLock::new();
    let mut text = [0; 256];
    let file = STATM.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()?;
    let length = file.read_at(&mut text, 0).ok()?;
    let pages: u64 =
        std::str::from_utf8(text.get(..length)?).ok()?.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something() {
        let before = ResourceUsage::now().unwrap();
        let mut memory = vec![1u8; 32 << 20];
        for round in 1..10u8 {
            memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(round));
        }
        let after = ResourceUsage::now().unwrap();
        assert!(memory.contains(&memory[0]));
        assert!(after.processor() > before.processor());
        assert!(after.resident_bytes >= 32 << 20, "{after:?}");
    }
}
