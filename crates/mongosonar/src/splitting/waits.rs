//! What long waits were for, by the functions on their stacks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use sonar_core::stacks::ThreadState;
use sonar_core::time_split::{ClassifiedWait, TimePart, WaitSample};
use sonar_decode::stacks::WaitClasses;
use sonar_sys::Host;

use crate::stacks::helper::StackSource;
use crate::stacks::symbols::{ProcessSymbols, classify, computation, wait_classes};

/// Names the classes of waits.
pub struct WaitClassifier {
    classes: WaitClasses,
    processes: HashMap<u32, ProcessSymbols>,
}

impl WaitClassifier {
    /// For these processes, with more rules from the file `classes`. Call it before any thread is started, and before
    /// privileges are dropped.
    ///
    /// # Errors
    /// The file of classes is wrong, or a helper cannot be started.
    pub fn new(classes: Option<&Path>, processes: &[u32]) -> Result<Self> {
        let classes = wait_classes(classes)?;
        let host = Host::live();
        let symbols = |process: &u32| {
            let name = host.text(&format!("proc/{process}/comm")).unwrap_or_default();
            let source = StackSource::start(*process)?;
            Ok((*process, ProcessSymbols::new(source, name.trim_end().to_owned())))
        };
        let processes = processes.iter().map(symbols).collect::<Result<_>>()?;
        Ok(Self { classes, processes })
    }

    /// Reads the symbols, which takes a second or two for a large program. Call it after privileges were dropped.
    pub fn load(&mut self) {
        for (process, symbols) in &mut self.processes {
            if let Err(error) = symbols.load() {
                eprintln!("mongosonar: the functions of process {process} have no names: {error:#}");
            }
            for limit in symbols.take_limits() {
                eprintln!("mongosonar: {limit}");
            }
        }
    }

    /// The class of a wait, or what was computed; `None` if its process is not known.
    pub fn classify(&mut self, wait: &WaitSample) -> Option<ClassifiedWait> {
        let symbols = self.processes.get_mut(&wait.process)?;
        // A library may have been loaded since. Without it, the stack is cut.
        symbols.load_for(std::slice::from_ref(&wait.sample)).ok();
        let stack = symbols.unwind(&wait.sample);
        let class = match wait.part {
            TimePart::Cpu => computation(&stack),
            _ => classify(&self.classes, &wait.sample, &stack).0.name,
        };
        Some(ClassifiedWait { part: wait.part, class, wait_ns: wait.wait_ns })
    }

    /// What all threads wait for now, but for those that have nothing to do. A process that cannot be sampled has none.
    pub fn look(&mut self) -> Vec<SampledWait> {
        let mut waits = Vec::new();
        for symbols in self.processes.values_mut() {
            let bytes = symbols.source.snapshot().unwrap_or_default();
            let threads = sonar_sys::stacks::parse(&bytes).unwrap_or_default().threads;
            symbols.load_for(&threads).ok();
            for sample in threads {
                let stack = symbols.unwind(&sample);
                let (class, _) = classify(&self.classes, &sample, &stack);
                if !class.idle && matches!(sample.state, ThreadState::Sleeping | ThreadState::Disk) {
                    let (thread, thread_name) = (sample.thread, sample.name);
                    waits.push(SampledWait { thread, thread_name, class: class.name });
                }
            }
        }
        waits
    }
}

/// A thread that waits.
pub struct SampledWait {
    pub thread: u32,
    pub thread_name: String,
    /// What it waits for.
    pub class: Arc<str>,
}
