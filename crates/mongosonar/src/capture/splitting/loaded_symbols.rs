//! The symbols of traced processes, which other threads load.
//!
//! A process can make whoever reads its mappings wait for ever, and so can the file system of a file that it has mapped.
//! Meanwhile the rings of the kernel would fill. So their reader waits for a moment only: until the symbols of a process are
//! loaded, its functions have no names.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::Result;
use sonar_core::stacks::ThreadSample;

use super::wait_problems::WaitProblems;
use crate::functions::symbols::ProcessSymbols;

/// How long the reader of the rings waits for symbols. That is enough for a new library, and too little to fill a ring.
pub const MOMENT: Duration = Duration::from_millis(50);
/// The size of a thread's stack in bytes.
const STACK: usize = 1 << 20;

/// The symbols of some processes.
pub struct LoadedSymbols {
    processes: BTreeMap<u32, SymbolState>,
    /// What threads have loaded.
    loaded: Receiver<LoadedProcess>,
    give: Sender<LoadedProcess>,
    /// The number of the last load.
    loads: u64,
}

/// Where the symbols of a process are.
enum SymbolState {
    /// Here.
    Ready(Box<ProcessSymbols>),
    /// With the thread that loads them, by the number of the load.
    Loading(u64),
}

/// Symbols that a thread has loaded.
struct LoadedProcess {
    process: u32,
    load: u64,
    symbols: Box<ProcessSymbols>,
    outcome: Result<()>,
}

impl Default for LoadedSymbols {
    fn default() -> Self {
        let (give, loaded) = channel();
        Self { processes: BTreeMap::new(), loaded, give, loads: 0 }
    }
}

impl LoadedSymbols {
    /// Adds a process, or replaces an earlier one with its number.
    pub fn insert(&mut self, process: u32, symbols: ProcessSymbols) {
        self.processes.insert(process, SymbolState::Ready(Box::new(symbols)));
    }

    /// Forgets a process. What a thread still loads of it is dropped when it comes.
    pub fn remove(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// The numbers of all processes.
    pub fn processes(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// Whether a process is known.
    pub fn has(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// The symbols of a process; `None` if it is not known, or while a thread loads them.
    pub fn ready(&mut self, process: u32) -> Option<&mut ProcessSymbols> {
        match self.processes.get_mut(&process) {
            Some(SymbolState::Ready(symbols)) => Some(symbols),
            Some(SymbolState::Loading(_)) | None => None,
        }
    }

    /// Loads what is newly mapped if a sample is in no known file, and waits for it for a moment.
    pub fn load_for(&mut self, process: u32, samples: &[ThreadSample], problems: &mut WaitProblems) {
        self.take_loaded(problems);
        if self.ready(process).is_some_and(|symbols| symbols.lacks(samples)) {
            self.load(process, MOMENT, problems);
        }
    }

    /// Lets a thread load what a process has newly mapped, and waits for it this long. While a thread loads already, it does
    /// nothing.
    pub fn load(&mut self, process: u32, patience: Duration, problems: &mut WaitProblems) {
        let Some(state @ SymbolState::Ready(_)) = self.processes.get_mut(&process) else { return };
        self.loads += 1;
        let SymbolState::Ready(symbols) = std::mem::replace(state, SymbolState::Loading(self.loads)) else {
            return;
        };
        let (load, give) = (self.loads, self.give.clone());
        let (to, job) = channel::<Box<ProcessSymbols>>();
        let run = move || {
            let Ok(mut symbols) = job.recv() else { return };
            let outcome = symbols.load();
            // Nobody may want it any more.
            let _ = give.send(LoadedProcess { process, load, symbols, outcome });
        };
        if let Err(error) = Builder::new().stack_size(STACK).spawn(run) {
            problems.note_symbols(process, Err(error.into()), Vec::new());
            *state = SymbolState::Ready(symbols);
            return;
        }
        // The thread waits for it.
        let _ = to.send(symbols);
        let until = Instant::now() + patience;
        while matches!(self.processes.get(&process), Some(SymbolState::Loading(_))) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(loaded) = self.loaded.recv_timeout(left) else { return };
            self.take(loaded, problems);
        }
    }

    /// Takes what threads have loaded since.
    pub fn take_loaded(&mut self, problems: &mut WaitProblems) {
        while let Ok(loaded) = self.loaded.try_recv() {
            self.take(loaded, problems);
        }
    }

    fn take(&mut self, loaded: LoadedProcess, problems: &mut WaitProblems) {
        let LoadedProcess { process, load, mut symbols, outcome } = loaded;
        let state = self.processes.get_mut(&process);
        // Or else it was forgotten, and another one may have its number.
        if let Some(state) = state.filter(|state| matches!(state, SymbolState::Loading(own) if *own == load))
        {
            problems.note_symbols(process, outcome, symbols.take_limits());
            *state = SymbolState::Ready(symbols);
        }
    }
}
