//! What the server itself says of operations: its log, and its profiler.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::Sum;
use sonar_core::time_split::{REST, ServerEvidence, ServerJoinCounts};

use crate::kit::{Bytes, Count, Fitting, Grouped, Nanos, escape, plural};

/// Plans in a sentence.
const MAX_PLANS_SHOWN: usize = 3;
/// Documents that an operation examines before an index is worth a word.
const MANY_EXAMINED: f64 = 100.0;
/// So many examined for each that is returned: most of them were in vain.
const WASTED: f64 = 10.0;

/// What the server's log or profiler says of operations of a shape.
#[derive(Clone, Debug, Serialize)]
pub struct ServerEvidenceJson {
    /// Operations that it describes: the slow ones.
    pub operations: u64,
    /// Their plans, the most frequent first; those beyond the bound have the plan `others`.
    pub plans: Vec<PlanCountJson>,
    /// Operations that scanned the whole collection.
    pub collection_scans: u64,
    /// Operations that sorted in memory.
    pub memory_sorts: u64,
    /// Operations that used files for intermediate results.
    pub used_disk: u64,
    /// Operations for which several plans were tried.
    pub multi_planner: u64,
    /// Operations whose cached plan was discarded.
    pub replanned: u64,
    /// Sums of the figures that the server gives, by name: those of reports on logs and profiles, and `selected`, the
    /// documents that were returned or, by a write, inserted, matched or deleted.
    pub figures: BTreeMap<&'static str, ServerFigureJson>,
}

/// Operations with a plan.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct PlanCountJson {
    /// Its summary, as the server writes it.
    pub plan: String,
    /// Operations.
    pub operations: u64,
}

/// A figure of the server.
#[derive(Copy, Clone, Debug, Serialize, PartialEq)]
pub struct ServerFigureJson {
    /// Sum.
    pub total: u64,
    /// Operations that have it.
    pub operations: u64,
    /// Mean of those.
    pub mean: f64,
}

/// Which logs were read, and what belonged to an operation of a thread.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerSourcesJson {
    /// Paths of the logs.
    pub logs: Vec<String>,
    /// Slow operations in them, between the beginning and the end of the trace; null if no log was read.
    pub log: Option<ServerJoinJson>,
    /// Lines of logs that could not be read.
    pub log_lines_unread: u64,
}

/// Slow operations of a log.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct ServerJoinJson {
    /// They belong to an operation of a thread.
    pub joined: u64,
    /// No operation of a thread fits: it was not followed, or was lost.
    pub without_partner: u64,
    /// Several fit, so that it is not certain which one it is.
    pub ambiguous: u64,
    /// They were too many: the shortest were given up.
    pub too_many: u64,
}

impl From<ServerJoinCounts> for ServerJoinJson {
    fn from(counts: ServerJoinCounts) -> Self {
        let ServerJoinCounts { joined, without_partner, ambiguous, too_many } = counts;
        Self { joined, without_partner, ambiguous, too_many }
    }
}

impl ServerEvidenceJson {
    /// `None` if the server says nothing.
    pub(super) fn new(evidence: &ServerEvidence) -> Option<Self> {
        if evidence.operations == 0 {
            return None;
        }
        let mut plans: Vec<_> = evidence
            .plans
            .iter()
            .map(|(plan, operations)| PlanCountJson {
                plan: if **plan == *REST { "others".to_owned() } else { plan.to_string() },
                operations: *operations,
            })
            .collect();
        plans.sort_by(|a, b| b.operations.cmp(&a.operations).then_with(|| a.plan.cmp(&b.plan)));
        let sums = evidence.sums.iter().into_iter().chain([("selected", evidence.selected)]);
        let figure =
            |sum: Sum| Some(ServerFigureJson { total: sum.get()?, operations: sum.known, mean: sum.mean()? });
        Some(Self {
            operations: evidence.operations,
            plans,
            collection_scans: evidence.collection_scans,
            memory_sorts: evidence.memory_sorts,
            used_disk: evidence.used_disk,
            multi_planner: evidence.multi_planner,
            replanned: evidence.replanned,
            figures: sums.filter_map(|(name, sum)| Some((name, figure(sum)?))).collect(),
        })
    }

    /// The mean of a figure, if the server gives it.
    fn mean(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|figure| figure.mean)
    }

    /// In words: what it says of the plans, and what else it says if it is not zero.
    pub(super) fn sentences(&self, operations: u64) -> Vec<String> {
        let described = Grouped(self.operations);
        let mut first =
            format!("The server describes {described} of {}", plural(Grouped(operations), "operation"));
        let shown = self.plans.iter().take(MAX_PLANS_SHOWN);
        let mut plans: Vec<_> =
            shown.map(|one| format!("{} ({})", one.plan, Grouped(one.operations))).collect();
        if self.plans.len() > MAX_PLANS_SHOWN {
            plans.push("others".to_owned());
        }
        if !plans.is_empty() {
            first.push_str(&format!(": {}", plans.join(", ")));
        }
        if let Some(work) = self.work() {
            first.push_str(&format!("; {work}"));
        }
        let notable = self.notable();
        let more = (!notable.is_empty()).then(|| format!("For each of these: {}.", notable.join(", ")));
        [Some(first + "."), more].into_iter().flatten().collect()
    }

    /// What each operation examined and returned.
    fn work(&self) -> Option<String> {
        let docs = self.mean("docs_examined")?;
        let keys =
            self.mean("keys_examined").map(|keys| format!(" and {}", plural(Count(keys), "index key")));
        let selected = self.mean("selected").map(|selected| format!(", selects {}", Count(selected)));
        Some(format!(
            "each examines {}{}{}",
            plural(Count(docs), "document"),
            keys.unwrap_or_default(),
            selected.unwrap_or_default()
        ))
    }

    /// The means of the other figures that are not zero.
    fn notable(&self) -> Vec<String> {
        let mean = |name| self.mean(name).filter(|mean| *mean > 0.0);
        let time = |name, unit_ns: f64| mean(name).map(|mean| Nanos((mean * unit_ns) as u64));
        let mut notable = Vec::new();
        if let Some(bytes) = mean("storage_read_bytes") {
            let took = time("storage_read_us", 1e3).map(|took| format!(" in {took}")).unwrap_or_default();
            notable.push(format!("{} read into the cache{took}", Bytes(bytes)));
        }
        let counts = [
            ("yields", "yield"),
            ("write_conflicts", "write conflict"),
            ("prepare_read_conflicts", "conflict with prepared transaction"),
            ("spills", "spill"),
        ];
        for (name, noun) in counts {
            notable.extend(mean(name).map(|mean| plural(Count(mean), noun)));
        }
        let times = [
            ("cpu_ns", 1.0, "on a processor"),
            ("planning_us", 1e3, "planning"),
            ("queued_us", 1e3, "in the server's queues"),
            ("lock_wait_us", 1e3, "waiting for locks"),
            ("storage_wait_us", 1e3, "waiting in the storage engine"),
            ("flow_control_us", 1e3, "waiting for flow control"),
            ("write_concern_us", 1e3, "waiting for the write concern"),
            ("remote_wait_us", 1e3, "waiting for shards"),
        ];
        for (name, unit_ns, words) in times {
            notable.extend(time(name, unit_ns).map(|time| format!("{time} {words}")));
        }
        let flags = [
            (self.memory_sorts, "sorted in memory"),
            (self.used_disk, "used files for intermediate results"),
            (self.multi_planner, "tried several plans"),
            (self.replanned, "discarded a cached plan"),
        ];
        for (count, words) in flags.into_iter().filter(|(count, _)| *count > 0) {
            notable.push(format!("{} of {} {words}", Grouped(count), Grouped(self.operations)));
        }
        notable
    }

    /// Why an index would help, if it would: most of what `command` examines is in vain.
    pub(super) fn wants_index(&self, command: &str, typed: &str) -> Option<String> {
        let docs = self.mean("docs_examined").filter(|docs| *docs >= MANY_EXAMINED)?;
        let scans = self.collection_scans * 2 >= self.operations;
        // These return few documents for many on purpose.
        let sums_up = matches!(command, "aggregate" | "count" | "distinct" | "mapReduce" | "mapreduce");
        let selects = typed.contains("$match") || typed.contains("query: {") && !typed.contains("query: {}");
        let figures = || {
            let selected = self.mean("selected");
            let returned = selected.map(|selected| format!(" and selects {}", Count(selected)));
            format!("examines {}{}", plural(Count(docs), "document"), returned.unwrap_or_default())
        };
        let is_wasted = || self.mean("selected").is_some_and(|selected| docs >= WASTED * selected.max(1.0));
        match (sums_up, scans) {
            (true, true) if selects => Some(format!(
                "it scans the whole collection, although it has a condition: each {}",
                figures()
            )),
            (false, true) if is_wasted() => {
                Some(format!("it scans the whole collection: each operation {}", figures()))
            }
            (false, false) if is_wasted() => Some(format!("each operation {}", figures())),
            _ => None,
        }
    }

    /// Whether it examines little more than it selects, so that an index would not help.
    pub(super) fn is_selective(&self) -> Option<bool> {
        let (docs, selected) = (self.mean("docs_examined")?, self.mean("selected")?);
        Some(docs < WASTED * selected.max(1.0))
    }

    /// What it examines and selects, in words.
    pub(super) fn selectivity(&self) -> Option<String> {
        let (docs, selected) = (self.mean("docs_examined")?, self.mean("selected")?);
        let examined = plural(Count(docs), "document");
        Some(format!("each operation examines {examined} and selects {}", Count(selected)))
    }
}

impl ServerSourcesJson {
    pub(super) fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        if let Some(counts) = self.log {
            counts.text(&format!("The log ({})", escape(&self.logs.join(", "))), out)?;
        }
        if self.log_lines_unread > 0 {
            writeln!(out, "{} of the log could not be read", plural(Grouped(self.log_lines_unread), "line"))?;
        }
        Ok(())
    }
}

impl ServerJoinJson {
    fn text<W: Write>(&self, source: &str, out: &mut Fitting<W>) -> io::Result<()> {
        let total = self.joined + self.without_partner + self.ambiguous + self.too_many;
        write!(out, "\n{source} describes {} of this time", plural(Grouped(total), "slow operation"))?;
        let others = [
            (self.without_partner, "fits no operation of a thread", "fit no operation of a thread"),
            (self.ambiguous, "may be one of several", "may be one of several"),
            (self.too_many, "was given up for lack of room", "were given up for lack of room"),
        ];
        for (count, one, several) in others.into_iter().filter(|(count, ..)| *count > 0) {
            write!(out, "; {} {}", Grouped(count), if count == 1 { one } else { several })?;
        }
        writeln!(out, ".")
    }
}
