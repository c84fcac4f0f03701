//! The JSON document of `stacks`, from which everything else is made.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sonar_core::files::ThreadRole;
use sonar_core::stacks::{SampledStack, StackKey, StackTable, is_machinery};
use ts_rs::TS;

use crate::kit::About;

/// Version of the schema of the document.
pub const SCHEMA: u32 = 1;
/// The longest document that is read back, in bytes.
pub const MOST_BYTES: u64 = 256 << 20;
/// What the document is.
const KIND: &str = "stacks";

/// What was seen of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct StackReport {
    /// Version of the schema.
    pub schema: u32,
    /// `stacks`.
    #[ts(type = "\"stacks\"")]
    pub kind: String,
    /// Where it comes from.
    pub about: About,
    /// The process.
    pub process: StackProcess,
    /// How often all its threads were looked at.
    pub snapshots: u64,
    /// The most threads of a snapshot.
    pub threads: u64,
    /// Samples of all threads: one for each thread and snapshot. The sum of the three below.
    pub samples: u64,
    /// Those in `stacks`.
    pub shown: u64,
    /// Of threads with nothing to do, left out.
    pub idle: u64,
    /// Of other threads that were not asked for.
    pub not_asked: u64,
    /// Samples in `stacks` whose stack is not whole.
    pub cut: u64,
    /// Samples in `stacks` whose frames had no room.
    pub without_frames: u64,
    /// Samples of running threads that the kernel had no room for.
    pub lost: u64,
    /// Processor time of the kernel's walk for one thread, in nanoseconds; null without a thread.
    pub walk_ns_per_thread: Option<u64>,
    /// Processor time of the program in all, in seconds: sampling, reading symbols, unwinding.
    pub cpu_seconds: f64,
    /// Whether function names have their arguments and templates, and shown stacks leave no function out.
    pub full_names: bool,
    /// What could not be seen, a sentence each.
    pub limits: Vec<String>,
    /// The stacks, the most frequent first.
    pub stacks: Vec<StackRow>,
}

/// The process that was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct StackProcess {
    /// Its number.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
}

/// Samples with the same stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct StackRow {
    /// What the threads wait for, or that they run.
    pub class: String,
    /// They have nothing to do.
    pub idle: bool,
    /// Their role; null for other threads.
    pub role: Option<String>,
    /// What they did: `on CPU`, `runnable`, `sleeping`, `uninterruptible`, `stopped`.
    pub state: String,
    /// Their system call; null outside of one.
    pub call: Option<String>,
    /// How often they were seen.
    pub samples: u64,
    /// In how many threads.
    pub threads: u64,
    /// Why the stack is not whole; null if it is.
    pub cut: Option<String>,
    /// The functions, the innermost first.
    pub frames: Vec<StackFrame>,
}

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, TS)]
pub struct StackFrame {
    /// Its name; `?` if no symbol covers the address.
    pub function: String,
    /// The file of the library; null in the program itself.
    pub library: Option<String>,
    /// Whether it only passes a call on; in JSON only if true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub machinery: bool,
}

impl StackRow {
    fn new(key: &StackKey, stack: &SampledStack) -> Self {
        let role = key.role.name();
        let frame = |(function, library): &(Arc<str>, Option<Arc<str>>)| StackFrame {
            function: function.to_string(),
            machinery: is_machinery(function),
            library: library.as_ref().map(ToString::to_string),
        };
        Self {
            class: key.class.to_string(),
            idle: key.idle,
            role: (key.role != ThreadRole::Other).then(|| role.to_owned()),
            state: key.state.name().to_owned(),
            call: key.call.as_ref().map(ToString::to_string),
            samples: stack.samples,
            threads: stack.threads.len() as u64,
            cut: key.cut.as_ref().map(ToString::to_string),
            frames: key.frames.iter().map(frame).collect(),
        }
    }
}

impl StackReport {
    /// Of a process, with nothing seen yet.
    pub fn new(about: About, process: StackProcess) -> Self {
        Self {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            about,
            process,
            snapshots: 0,
            threads: 0,
            samples: 0,
            shown: 0,
            idle: 0,
            not_asked: 0,
            cut: 0,
            without_frames: 0,
            lost: 0,
            walk_ns_per_thread: None,
            cpu_seconds: 0.0,
            full_names: false,
            limits: Vec::new(),
            stacks: Vec::new(),
        }
    }

    /// Takes the stacks of a table.
    pub fn with(mut self, table: StackTable) -> Self {
        self.shown = table.samples();
        self.without_frames = table.without_frames();
        self.stacks = table.into_stacks().iter().map(|(key, stack)| StackRow::new(key, stack)).collect();
        self.cut = self.stacks.iter().filter(|row| row.cut.is_some()).map(|row| row.samples).sum();
        self
    }

    /// Reads a document back.
    ///
    /// # Errors
    /// Why it is none, as a sentence for people.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("it is no result of `stacks --format json`: {error}"))?;
        match (report.kind.as_str(), report.schema) {
            (KIND, SCHEMA) if report.adds_up() => Ok(report),
            (KIND, SCHEMA) => Err("it was changed: the samples of its stacks do not add up".to_owned()),
            (KIND, schema) => Err(format!("it has schema {schema}, and this version reads {SCHEMA}")),
            _ => Err("it is no result of `stacks --format json`".to_owned()),
        }
    }

    /// Whether the samples of the stacks add up to the stated number, and no stack has more threads than samples.
    fn adds_up(&self) -> bool {
        let sum = self.stacks.iter().try_fold(0_u64, |sum, row| {
            (row.threads <= row.samples).then(|| sum.checked_add(row.samples)).flatten()
        });
        sum == Some(self.shown)
    }
}
