//! Takes snapshots, turns them into stacks, and adds these up.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use sonar_core::files::ThreadRole;
use sonar_core::stacks::{StackKey, StackTable, ThreadSample, ThreadState};
use sonar_decode::stacks::{WaitClass, WaitClasses};
use sonar_view::kit::{Grouped, Nanos, plural};
use sonar_view::stacks::StackReport;

use super::args::StacksArgs;
use crate::functions::helper::StackSource;
use crate::functions::symbols::{ProcessSymbols, classify, own_vdso, wait_classes};

/// The most sentences about what could not be seen.
const MAX_LIMITS: usize = 10;

/// Why there may be fewer snapshots than were asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MissingSnapshots {
    /// The process ended.
    Ended,
    /// The command was stopped.
    Stopped,
    /// Nothing ended early, so some took too long: so long passed for each on average.
    Slow { mean: Duration },
}

impl MissingSnapshots {
    /// How many of those that were asked for are missing, and why; `None` if there are all.
    pub fn sentence(self, taken: u64, asked: u64) -> Option<String> {
        if taken >= asked {
            return None;
        }
        let why = match self {
            Self::Ended => "the process ended before --duration was over".to_owned(),
            Self::Stopped => "the command was stopped before --duration was over".to_owned(),
            Self::Slow { mean } => format!(
                "taking one and reading its stacks took longer than --interval (one in {} on average)",
                Nanos(u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX))
            ),
        };
        Some(format!("{} of {} snapshots were taken: {why}", Grouped(taken), Grouped(asked)))
    }
}

/// What was seen so far.
pub struct StackCollector<'a> {
    args: &'a StacksArgs,
    classes: WaitClasses,
    symbols: ProcessSymbols,
    table: StackTable,
    report: StackReport,
    walk_ns: u64,
}

impl<'a> StackCollector<'a> {
    /// Starts with nothing seen.
    pub fn new(args: &'a StacksArgs, source: StackSource, report: StackReport) -> Result<Self> {
        let classes = wait_classes(args.classes.as_deref())?;
        let name = report.process.name.clone();
        let mut collector = Self {
            args,
            classes,
            symbols: ProcessSymbols::new(source, name, own_vdso()),
            table: StackTable::default(),
            report,
            walk_ns: 0,
        };
        if !collector.symbols.source.samples_processors() {
            collector.limit(
                "the kernel refuses timers (perf events): threads on a processor have no stack".into(),
            );
        }
        Ok(collector)
    }

    /// Notes what could not be seen.
    pub fn limit(&mut self, sentence: String) {
        if self.report.limits.len() < MAX_LIMITS && !self.report.limits.contains(&sentence) {
            self.report.limits.push(sentence);
        }
    }

    /// Looks at all threads once; returns `false` if the process has ended.
    ///
    /// # Errors
    /// The kernel cannot be read.
    pub fn look(&mut self) -> Result<bool> {
        let bytes = match self.symbols.source.snapshot() {
            Err(_) if self.symbols.source.is_late() => {
                self.missed();
                return Ok(true);
            }
            bytes => bytes?,
        };
        let snapshot =
            sonar_sys::stacks::parse(&bytes).ok_or_else(|| anyhow!("the kernel's snapshot is truncated"))?;
        if snapshot.threads.is_empty() {
            return Ok(false);
        }
        let report = &mut self.report;
        report.snapshots += 1;
        report.threads = report.threads.max(snapshot.threads.len() as u64);
        report.samples += snapshot.threads.len() as u64;
        report.lost += snapshot.lost;
        self.walk_ns += snapshot.cost_ns;
        if snapshot.left_out > 0 {
            let threads = plural(snapshot.threads.len() as u64, "thread");
            self.limit(format!("the process has more than {threads}: the others are not sampled"));
        }
        match self.symbols.load_for(&snapshot.threads) {
            Err(_) if self.symbols.source.is_late() => self.missed(),
            loaded => loaded?,
        }
        for limit in self.symbols.take_limits() {
            self.limit(limit);
        }
        for sample in &snapshot.threads {
            self.add(sample);
        }
        Ok(true)
    }

    /// Notes first if there are fewer snapshots than the arguments ask for.
    pub fn missing(&mut self, asked: u64, why: MissingSnapshots) {
        if let Some(sentence) = why.sentence(self.report.snapshots, asked) {
            self.report.limits.insert(0, sentence);
        }
    }

    /// Notes that the helper process stands still.
    fn missed(&mut self) {
        self.limit("the helper process stood still for a while: nothing was seen then".into());
    }

    fn add(&mut self, sample: &ThreadSample) {
        let stack = self.symbols.unwind(sample);
        let (WaitClass { name: class, idle }, call) = classify(&self.classes, sample, &stack);
        let role = ThreadRole::of(&sample.name);
        let is_running = sample.state == ThreadState::OnCpu;
        let is_asked = self.args.threads.is_none_or(|asked| asked == role)
            && (!self.args.on_cpu || is_running)
            && (!self.args.waiting || !is_running);
        if !is_asked {
            self.report.not_asked += 1;
            return;
        }
        if idle && !self.args.all {
            self.report.idle += 1;
            return;
        }
        let full = self.args.full_names;
        let frames = stack.frames.iter().map(|frame| {
            let name = frame.name.as_ref().map_or_else(
                || Arc::from("?"),
                |name| {
                    if full { name.full.clone() } else { name.plain.clone() }
                },
            );
            (name, frame.library.clone())
        });
        let key = StackKey {
            class,
            idle,
            role,
            state: sample.state,
            call,
            frames: frames.collect(),
            cut: stack.end.cut_reason().map(Arc::from),
        };
        self.table.add(key, sample.thread);
    }

    /// What was seen; `cpu_seconds` is what it took this process.
    pub fn finish(mut self, cpu_seconds: f64) -> StackReport {
        let report = &mut self.report;
        report.walk_ns_per_thread = self.walk_ns.checked_div(report.samples);
        report.full_names = self.args.full_names;
        report.cpu_seconds = cpu_seconds + self.walk_ns as f64 / 1e9;
        self.report.with(self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_snapshots_are_counted_and_explained() {
        let slow = MissingSnapshots::Slow { mean: Duration::from_millis(240) };
        assert_eq!(slow.sentence(10, 10), None);
        assert_eq!(MissingSnapshots::Stopped.sentence(11, 10), None);
        let said = slow.sentence(1_240, 3_000).unwrap();
        assert!(said.starts_with("1,240 of 3,000 snapshots were taken: "), "{said}");
        assert!(said.contains("longer than --interval (one in 240ms on average)"), "{said}");
        let said = MissingSnapshots::Ended.sentence(3, 10).unwrap();
        assert_eq!(said, "3 of 10 snapshots were taken: the process ended before --duration was over");
        let said = MissingSnapshots::Stopped.sentence(0, 1).unwrap();
        assert_eq!(said, "0 of 1 snapshots were taken: the command was stopped before --duration was over");
    }
}
