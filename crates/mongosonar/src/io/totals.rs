//! Files whose accesses the kernel adds up, from one look to the next.

use std::collections::HashSet;

use anyhow::{Context, Result};
use sonar_core::files::FileUsage;
use sonar_sys::ebpf::{FileKey, FirstSeenFile, TotalsRoom, Tracer};

use super::finder::PathFinder;
use super::paths::FoundFile;
use super::table::FileTable;

/// A file's figures until now, and until the last look.
pub struct FileTotals {
    /// Its path.
    pub path: String,
    /// Until now.
    pub now: FileUsage,
    /// Until the last look; `None` if it was not there then.
    pub before: Option<FileUsage>,
}

/// A file that is known, with its figures at the last look.
struct KnownFile {
    path: String,
    /// On the heap, because a table has room for more files than it has.
    before: Option<Box<FileUsage>>,
}

/// The files that are known from one look to the next.
pub struct TotalsTable {
    files: FileTable<KnownFile>,
    looks: u64,
}

impl TotalsTable {
    /// For as many files as the kernel has room for.
    pub fn new(room: TotalsRoom) -> Self {
        Self { files: FileTable::of_totals(room), looks: 0 }
    }

    /// Takes a file that was not seen before.
    pub fn add(&mut self, tracer: &Tracer, places: &mut PathFinder, new: &FirstSeenFile<'_>) {
        let FoundFile { path, wanted } = places.find(new);
        if wanted {
            let path = path.to_string_lossy().into_owned();
            self.files.insert(new.file, new.key, self.looks, KnownFile { path, before: None });
        } else {
            // Accesses before it was ignored do not count either.
            self.files.leave_out(tracer, new);
        }
    }

    /// Gives numbers back where too many files are known.
    pub fn release(&mut self, tracer: &Tracer) {
        self.files.release(tracer);
    }

    /// Major and minor number of the devices that the files are on.
    pub fn devices(&self) -> HashSet<(u32, u32)> {
        self.files.keys().map(FileKey::device_number).collect()
    }

    /// Passes the figures of each file to `each`.
    ///
    /// # Errors
    /// The kernel's figures cannot be read. Some may have been passed on.
    pub fn take(&mut self, tracer: &Tracer, mut each: impl FnMut(FileTotals)) -> Result<()> {
        self.looks += 1;
        let Self { files, looks } = self;
        let taken = tracer.each_usage(|number, key, now| {
            // A file that was ignored meanwhile has no entry.
            let Some(file) = files.of(number, key) else { return };
            let (path, before) = (file.path.clone(), file.before.replace(Box::new(now.clone())));
            if before.as_deref() != Some(&now) {
                files.used(number, *looks);
            }
            each(FileTotals { path, before: before.map(|before| *before), now });
        });
        taken.context("cannot read the kernel's figures")
    }

    /// The bytes of what it knows of the files.
    pub fn memory(&self) -> usize {
        let of_file = |file: &KnownFile| {
            file.path.capacity() + file.before.as_ref().map_or(0, |_| size_of::<FileUsage>())
        };
        self.files.memory() + self.files.values().map(of_file).sum::<usize>()
    }
}
