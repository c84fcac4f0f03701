//! What the server itself says of operations: its log, and its profiler.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::Sum;
use sonar_core::time_split::{ServerEvidence, ServerJoinCounts};
use ts_rs::TS;

use crate::kit::{Bytes, Count, Fitting, Grouped, Nanos, escape, plural};

/// Plans in a sentence.
const MAX_PLANS_SHOWN: usize = 3;
/// Databases in the command that switches their profilers on.
const MAX_NAMED: usize = 3;
/// Documents that an operation examines before an index is worth a word.
const MANY_EXAMINED: f64 = 100.0;
/// So many examined for each that is returned: most of them were in vain.
const WASTED: f64 = 10.0;

/// What the server's log or profiler says of operations of a shape.
#[derive(Clone, Debug, Serialize, TS)]
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
#[derive(Clone, Debug, Serialize, PartialEq, TS)]
pub struct PlanCountJson {
    /// Its summary, as the server writes it.
    pub plan: String,
    /// Operations.
    pub operations: u64,
}

/// A figure of the server.
#[derive(Copy, Clone, Debug, Serialize, PartialEq, TS)]
pub struct ServerFigureJson {
    /// Sum.
    pub total: u64,
    /// Operations that have it.
    pub operations: u64,
    /// Mean of those.
    pub mean: f64,
}

/// Which logs and profiles were read, and what belonged to an operation of a thread.
#[derive(Clone, Debug, Default, Serialize, TS)]
pub struct ServerSourcesJson {
    /// Paths of the logs.
    pub logs: Vec<String>,
    /// Slow operations in them, between the beginning and the end of the trace; null if no log was read.
    pub log: Option<ServerJoinJson>,
    /// Lines of logs that could not be read.
    pub log_lines_unread: u64,
    /// Operations in the profile, between the beginning and the end of the trace; null if no server was named.
    pub profile: Option<ServerJoinJson>,
    /// Where the profile was read; null if no server was named.
    pub profiler: Option<ServerProfileJson>,
    /// All of it in words.
    pub sentences: Vec<String>,
}

/// Where the profile of the named server was read, and what of it was not.
#[derive(Clone, Debug, Default, Serialize, TS)]
pub struct ServerProfileJson {
    /// Address of the server; empty if it was not reached.
    pub server: String,
    /// Its databases whose profile was read.
    pub databases: Vec<ProfiledDatabaseJson>,
    /// Databases beyond the bound of 64.
    pub databases_left_out: usize,
    /// Documents that could not be read.
    pub documents_unread: u64,
    /// There were too many documents, or they took too long: the oldest were not read.
    pub is_cut: bool,
    /// Why it was not read, or not to the end; null if it was.
    pub problem: Option<String>,
}

/// The profiler of a database.
#[derive(Clone, Debug, Serialize, TS)]
pub struct ProfiledDatabaseJson {
    /// Its name.
    pub database: String,
    /// Its level after the trace: 0 off, 1 slow operations, 2 all.
    pub level: i32,
    /// All that was written during the trace was read; false if the collection may have wrapped meanwhile.
    pub is_whole: bool,
}

/// Operations of a log or a profile.
#[derive(Copy, Clone, Debug, Default, Serialize, TS)]
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
        let count = |plan: &str, operations| PlanCountJson { plan: plan.to_owned(), operations };
        let named = evidence.plans.iter().map(|(plan, operations)| count(plan, *operations));
        let others = evidence.plans.other;
        let mut plans: Vec<_> = named.chain((others > 0).then(|| count("others", others))).collect();
        plans.sort_by(|a, b| b.operations.cmp(&a.operations).then_with(|| a.plan.cmp(&b.plan)));
        let sums = evidence.totals.sums.iter().into_iter().chain([("selected", evidence.selected)]);
        let figure =
            |sum: Sum| Some(ServerFigureJson { total: sum.get()?, operations: sum.known, mean: sum.mean()? });
        Some(Self {
            operations: evidence.operations,
            plans,
            collection_scans: evidence.totals.collection_scans,
            memory_sorts: evidence.totals.memory_sorts,
            used_disk: evidence.totals.used_disk,
            multi_planner: evidence.multi_planner,
            replanned: evidence.totals.replanned,
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
        let sentence =
            |of: &str, what: Vec<String>| (!what.is_empty()).then(|| format!("{of}{}.", what.join(", ")));
        let means = sentence("Each of these took on average: ", self.notable());
        let flags = sentence("Of these, ", self.flags());
        [Some(first + "."), means, flags].into_iter().flatten().collect()
    }

    /// What each operation examined and returned.
    fn work(&self) -> Option<String> {
        let docs = self.mean("docs_examined")?;
        let keys =
            self.mean("keys_examined").map(|keys| format!(" and {}", plural(Count(keys), "index key")));
        let selected = self.mean("selected").map(|selected| format!(", and selects {}", Count(selected)));
        Some(format!(
            "each examines {}{} on average{}",
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
        notable
    }

    /// How many operations did what is worth a word.
    fn flags(&self) -> Vec<String> {
        let flags = [
            (self.memory_sorts, "sorted in memory"),
            (self.used_disk, "used files for intermediate results"),
            (self.multi_planner, "tried several plans"),
            (self.replanned, "discarded a cached plan"),
        ];
        let shown = flags.into_iter().filter(|(count, _)| *count > 0);
        shown.map(|(count, words)| format!("{} {words}", Grouped(count))).collect()
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
            (true, true) if selects => {
                Some(format!("it scans the whole collection, although it has a filter: each {}", figures()))
            }
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
    /// Fills in `sentences`.
    pub(super) fn in_words(mut self) -> Self {
        let mut sentences = Vec::new();
        if let Some(counts) = self.log {
            sentences.push(counts.sentence(&format!("The log ({})", self.logs.join(", ")), "slow operation"));
        }
        if self.log_lines_unread > 0 {
            let lines = plural(Grouped(self.log_lines_unread), "line");
            sentences.push(format!("{lines} of the log could not be read."));
        }
        if let Some(profiler) = &self.profiler {
            profiler.push_sentences(self.profile, &mut sentences);
        }
        self.sentences = sentences;
        self
    }

    pub(super) fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        if !self.sentences.is_empty() {
            writeln!(out)?;
        }
        self.sentences.iter().try_for_each(|sentence| writeln!(out, "{}", escape(sentence)))
    }
}

impl ServerProfileJson {
    fn push_sentences(&self, counts: Option<ServerJoinJson>, to: &mut Vec<String>) {
        let counts = counts.filter(|counts| counts.total() > 0);
        let levels: Vec<_> = self
            .databases
            .iter()
            .filter(|one| one.level > 0)
            .map(|one| format!("{}: level {}", one.database, one.level))
            .collect();
        if !levels.is_empty() || counts.is_some() {
            let levels = if levels.is_empty() { "now off".to_owned() } else { levels.join(", ") };
            to.push(counts.unwrap_or_default().sentence(&format!("The profile ({levels})"), "operation"));
        }
        let off: Vec<_> =
            self.databases.iter().filter(|one| one.level == 0).map(|one| one.database.as_str()).collect();
        if !off.is_empty() && counts.is_none() {
            to.push(format!(
                "The profiler of {} is off. To switch it on for a minute, run \"mongosonar profiler set {} --level 1 --slowms 20 --duration 1m\" for the same server.",
                off.join(", "),
                database_options(&off)
            ));
        }
        let wrapped: Vec<_> =
            self.databases.iter().filter(|one| !one.is_whole).map(|one| one.database.as_str()).collect();
        if self.is_cut {
            to.push("Only the newest documents of the profile were read: there were too many.".to_owned());
        } else if !wrapped.is_empty() {
            to.push(format!(
                "The system.profile of {} may have wrapped: the first documents of the trace may be missing.",
                wrapped.join(", ")
            ));
        }
        if self.databases_left_out > 0 {
            let others = plural(self.databases_left_out as u64, "more database");
            to.push(format!("The profile of {others} was not read."));
        }
        if self.documents_unread > 0 {
            let unread = plural(Grouped(self.documents_unread), "document");
            to.push(format!("{unread} of the profile could not be read."));
        }
        if let Some(problem) = &self.problem {
            to.push(format!("The profile could not be read completely: {problem}."));
        }
    }
}

/// The options of a command that names these databases: all, if a shell may read one of them as something else.
fn database_options(names: &[&str]) -> String {
    let is_plain = |name: &&str| {
        name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    if names.len() > MAX_NAMED || !names.iter().all(is_plain) {
        return "--all-dbs".to_owned();
    }
    names.iter().map(|name| format!("--db {name}")).collect::<Vec<_>>().join(" ")
}

impl ServerJoinJson {
    fn total(&self) -> u64 {
        self.joined + self.without_partner + self.ambiguous + self.too_many
    }

    fn sentence(&self, source: &str, noun: &str) -> String {
        let mut sentence =
            format!("{source} describes {} during the trace", plural(Grouped(self.total()), noun));
        let others = [
            (self.without_partner, "matches no followed operation", "match no followed operation"),
            (self.ambiguous, "could be one of several operations", "could be one of several operations"),
            (self.too_many, "was dropped: there were too many", "were dropped: there were too many"),
        ];
        for (count, one, several) in others.into_iter().filter(|(count, ..)| *count > 0) {
            sentence.push_str(&format!("; {} {}", Grouped(count), if count == 1 { one } else { several }));
        }
        sentence + "."
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(profiler: ServerProfileJson, joined: u64) -> String {
        let profile = Some(ServerJoinJson { joined, ..ServerJoinJson::default() });
        let sources = ServerSourcesJson { profile, profiler: Some(profiler), ..ServerSourcesJson::default() };
        let mut out = Vec::new();
        sources.in_words().text(&mut Fitting::new(&mut out, None)).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn database(name: &str, level: i32, is_whole: bool) -> ProfiledDatabaseJson {
        ProfiledDatabaseJson { database: name.to_owned(), level, is_whole }
    }

    #[test]
    fn a_profiler_that_is_off_is_named_unless_it_wrote_something() {
        let off = || ServerProfileJson {
            databases: vec![database("shop", 0, true), database("blog", 0, true)],
            ..ServerProfileJson::default()
        };
        let command = "mongosonar profiler set --db shop --db blog --level 1 --slowms 20 --duration 1m";
        assert!(text(off(), 0).contains(command) && text(off(), 0).contains("profiler of shop, blog is off"));
        assert_eq!(text(off(), 3), "\nThe profile (now off) describes 3 operations during the trace.\n");
        let mut many = off();
        many.databases.extend(["a", "b"].map(|name| database(name, 0, true)));
        assert!(text(many, 0).contains("profiler set --all-dbs --level 1"));
        for name in ["shop;reboot", "$(reboot)", "`reboot`", "--level", ""] {
            assert_eq!(database_options(&["shop", name]), "--all-dbs", "{name}");
        }
    }

    #[test]
    fn the_means_of_operations_are_apart_from_how_many_did_something() {
        let figure = |mean: f64| ServerFigureJson { total: 38 * mean as u64, operations: 38, mean };
        let figures = [("docs_examined", 500.0), ("keys_examined", 0.0), ("selected", 1.0), ("yields", 5.0)];
        let mut evidence = ServerEvidenceJson {
            operations: 38,
            plans: vec![PlanCountJson { plan: "COLLSCAN".to_owned(), operations: 38 }],
            collection_scans: 38,
            memory_sorts: 12,
            used_disk: 1,
            multi_planner: 0,
            replanned: 0,
            figures: figures.into_iter().map(|(name, mean)| (name, figure(mean))).collect(),
        };
        let said = evidence.sentences(40);
        assert_eq!(
            said[0],
            "The server describes 38 of 40 operations: COLLSCAN (38); each examines 500 documents and 0 index keys on average, and selects 1."
        );
        assert_eq!(said[1], "Each of these took on average: 5 yields.");
        assert_eq!(said[2], "Of these, 12 sorted in memory, 1 used files for intermediate results.");
        evidence.figures.retain(|name, _| *name == "docs_examined");
        (evidence.memory_sorts, evidence.used_disk) = (0, 0);
        let said = evidence.sentences(40);
        assert!(said.len() == 1 && said[0].ends_with("each examines 500 documents on average."), "{said:?}");
    }

    #[test]
    fn what_belongs_to_no_operation_is_counted_in_words() {
        let counts = ServerJoinJson { joined: 5, without_partner: 1, ambiguous: 2, too_many: 1_000 };
        assert_eq!(
            counts.sentence("The log (a.log)", "slow operation"),
            "The log (a.log) describes 1,008 slow operations during the trace; 1 matches no followed operation; 2 could be one of several operations; 1,000 were dropped: there were too many."
        );
    }

    #[test]
    fn what_was_not_read_is_told_and_nothing_controls_the_terminal() {
        let profiler = ServerProfileJson {
            databases: vec![database("shop", 2, false), database("a\u{1b}[2J", 1, true)],
            databases_left_out: 1,
            documents_unread: 2,
            problem: Some("the reply\u{7} was cut".to_owned()),
            ..ServerProfileJson::default()
        };
        let said = text(profiler.clone(), 0);
        for part in [
            "describes 0 operations",
            "system.profile of shop may have wrapped",
            "The profile of 1 more database was not read",
            "2 documents of the profile could not be read",
            "was cut.",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
        let cut = text(ServerProfileJson { is_cut: true, ..profiler }, 0);
        assert!(cut.contains("Only the newest documents") && !cut.contains("wrapped"), "{cut}");
    }
}
