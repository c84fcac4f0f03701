//! What `io report`, `io compare`, `io live` and `io reorder` show of accesses to files.

pub mod bench;
pub mod compare;
pub mod each;
pub(crate) mod json;
pub mod live;
mod picture;
pub mod reorder;
mod text;
mod verdict;

use std::cmp::Reverse;
use std::collections::HashMap;

use sonar_core::files::{Analysis, FilePattern, FileRole, IoLosses, ThreadRole, ThreadUse};

pub use bench::DiskBench;
pub use json::json;
pub use text::text;

use crate::kit::escape;

/// Version of the JSON schema: it grows when a field changes its meaning or goes, not when one is added.
pub const SCHEMA: u32 = 1;

/// A recording, read and analysed.
pub struct Recording<'a> {
    /// The name of its file.
    pub source: &'a str,
    /// All accesses.
    pub analysis: &'a Analysis,
    /// Paths of files by their number.
    pub files: &'a HashMap<u32, String>,
    /// What files hold, by their number, where the server named it.
    pub labels: &'a HashMap<u32, String>,
    /// Names of threads by their id.
    pub threads: &'a HashMap<u32, String>,
    /// What was lost while recording.
    pub losses: IoLosses,
    /// Why the recording could not be read to its end, in words.
    pub damage: Option<&'a str>,
    /// How it was made: keys and values.
    pub info: &'a [(String, String)],
    /// Devices of files by their number, as the kernel numbers them.
    pub devices: &'a HashMap<u32, u64>,
    /// Names of these devices and of the disks below, with a space between them.
    pub device_names: &'a HashMap<u64, String>,
    /// What `disk bench` measured of a disk.
    pub bench: Option<&'a DiskBench>,
    /// Accesses to files of pseudo file systems, which are in none of these.
    pub left_out: u64,
}

impl Recording<'_> {
    fn path(&self, file: u32) -> &str {
        self.files.get(&file).map_or("", String::as_str)
    }

    /// What a file holds, where the server named it.
    fn label(&self, file: u32) -> Option<&str> {
        self.labels.get(&file).map(String::as_str)
    }

    fn thread_name(&self, thread: u32) -> Option<&str> {
        self.threads.get(&thread).map(String::as_str)
    }

    fn role(&self, file: u32) -> FileRole {
        FileRole::of(self.path(file))
    }

    /// The name of a file for people: what it holds where that is known, else the last part of its path.
    pub fn name(&self, file: u32) -> String {
        if let Some(label) = self.labels.get(&file) {
            return escape(label).into_owned();
        }
        match self.path(file) {
            "" => format!("file {file}"),
            path => escape(path.rsplit('/').next().unwrap_or(path)).into_owned(),
        }
    }

    /// The value that the recording has for a key.
    fn info(&self, key: &str) -> Option<&str> {
        self.info.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Names of the device that a file lies on and of the disks below.
    fn device(&self, file: u32) -> Option<&str> {
        self.device_names.get(self.devices.get(&file)?).map(String::as_str)
    }

    /// What a thread is for, by its name.
    fn thread_role(&self, thread: u32) -> ThreadRole {
        self.threads.get(&thread).map_or(ThreadRole::Other, |name| ThreadRole::of(name))
    }

    fn thread(&self, thread: u32) -> String {
        match self.threads.get(&thread) {
            Some(name) if !name.is_empty() => format!("{} ({thread})", escape(name)),
            _ => thread.to_string(),
        }
    }

    /// Files by the time that was spent in reading them, then by bytes written.
    pub fn ranked(&self) -> Vec<(u32, &FilePattern)> {
        let mut files: Vec<_> = self.analysis.files().collect();
        files.sort_by_cached_key(|(id, file)| {
            let written = file.writes.as_ref().map_or(0, |flow| flow.given);
            (Reverse(file.reads.latency().sum_ns()), Reverse(written), *id)
        });
        files
    }

    /// Threads by the time that they spent in reads.
    fn threads_ranked(&self) -> Vec<(u32, &ThreadUse)> {
        let mut threads: Vec<_> = self.analysis.threads().collect();
        threads.sort_by_key(|(id, thread)| (Reverse(thread.read_ns), *id));
        threads
    }

    /// The same in words, without those that are zero.
    fn not_distinguished_in_words(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = [
            "accesses to files beyond the limit of files",
            "accesses by threads beyond the limit of threads",
            "distances between reads of which the first was forgotten",
        ];
        words
            .into_iter()
            .zip(self.not_distinguished().map(|(_, count)| count))
            .filter(|(_, count)| *count > 0)
    }

    /// Accesses that the analysis could not attribute, by reason.
    fn not_distinguished(&self) -> [(&'static str, u64); 3] {
        [
            ("accesses_other_files", self.analysis.files_other()),
            ("accesses_other_threads", self.analysis.threads_other()),
            ("distances_forgotten", self.analysis.streams_forgotten()),
        ]
    }
}
