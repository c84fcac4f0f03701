//! What `explain` says of a command: its plan as a tree of stages, with what each of them did, and
//! [what is wrong](findings) with it.
//!
//! Fields: <https://www.mongodb.com/docs/manual/reference/explain-results/>.

mod findings;

use std::sync::Arc;

pub use findings::{
    CLOSE_RIVAL, ExplainFinding, LocatedFinding, MIN_EXAMINED, MIN_RATIO, MIN_SKIP, findings,
};

use crate::{Identity, ShapeInfo};

/// Stages that hand on the documents of the collection as they are, so that a sort above them can use an index.
const PLAIN: [&str; 15] = [
    "COLLSCAN",
    "IXSCAN",
    "FETCH",
    "SORT",
    "SORT_MERGE",
    "SORT_KEY_GENERATOR",
    "SHARDING_FILTER",
    "OR",
    "AND_SORTED",
    "AND_HASH",
    "SUBPLAN",
    "CACHED_PLAN",
    "PROJECTION_SIMPLE",
    "PROJECTION_COVERED",
    "$cursor",
];

/// A part of a query, with its values masked, and as it was sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MaskedText {
    /// With placeholders for values.
    pub masked: String,
    /// With the values, which are shown only on request.
    pub values: String,
}

/// The engine that executes a plan.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum QueryEngine {
    /// The classic engine (`explainVersion: "1"`).
    Classic,
    /// The slot-based engine (`explainVersion: "2"`).
    SlotBased,
}

impl QueryEngine {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::SlotBased => "slot-based",
        }
    }
}

/// How far an index scan narrows one field of its index.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BoundWidth {
    /// All values.
    All,
    /// Single values: how many.
    Points(usize),
    /// Ranges, or ranges and single values: how many.
    Ranges(usize),
}

/// The bounds of one field of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexBound {
    /// The field.
    pub field: String,
    /// How far it is narrowed.
    pub width: BoundWidth,
    /// The intervals as the server writes them, with their values.
    pub values: String,
}

/// The collection that a `$lookup` reads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignCollection {
    /// Its namespace, or its name if the database is not known.
    pub namespace: String,
    /// The field of the local documents; empty if not known.
    pub local_field: String,
    /// The field of the foreign documents; empty if not known.
    pub foreign_field: String,
    /// The strategy of the slot-based engine; empty if not known.
    pub strategy: String,
    /// How often the whole collection was read.
    pub collection_scans: Option<u64>,
    /// Names of indexes that were used; `None` if not known.
    pub indexes: Option<Vec<String>>,
}

/// A stage of a plan. What the server does not report is empty or `None`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExplainStage {
    /// Its name: `FETCH`, `$group`.
    pub name: String,
    /// The shard that it runs on, for the stage that stands for a shard.
    pub shard: Option<String>,
    /// The namespace that it reads, if it is said.
    pub namespace: String,
    /// Name of its index.
    pub index: Option<String>,
    /// Fields and directions of its index: `{ a: 1, b: -1 }`.
    pub key_pattern: Option<String>,
    /// The bounds of an index scan.
    pub bounds: Vec<IndexBound>,
    /// It goes through the index or the collection backwards.
    pub is_backward: bool,
    /// What it keeps, or what a stage of a pipeline says.
    pub filter: Option<MaskedText>,
    /// What it sorts by.
    pub sort: Option<String>,
    /// How many documents it returns at most, or skips.
    pub limit: Option<u64>,
    /// How many documents it skips.
    pub skip: Option<u64>,
    /// The collection that it looks up.
    pub foreign: Option<ForeignCollection>,
    /// Documents (or keys) that it returned.
    pub returned: Option<u64>,
    /// Documents that it counted, deletes or updates.
    pub affected: Option<u64>,
    /// Its time with that of its inputs, in milliseconds; an estimate of the server.
    pub time_ms: Option<u64>,
    /// Documents examined by this stage.
    pub docs_examined: Option<u64>,
    /// Keys examined by this stage.
    pub keys_examined: Option<u64>,
    /// Units of work.
    pub works: Option<u64>,
    /// Documents that belong to another shard.
    pub orphans: Option<u64>,
    /// Bytes that it kept in memory.
    pub memory_bytes: Option<u64>,
    /// It wrote to the disk.
    pub used_disk: bool,
    /// How often it wrote to the disk.
    pub spills: Option<u64>,
    /// Bytes written to the disk.
    pub spilled_bytes: Option<u64>,
    /// How many documents the planner expected.
    pub estimated: Option<f64>,
    /// It failed.
    pub has_failed: bool,
    /// Its inputs.
    pub inputs: Vec<ExplainStage>,
}

impl ExplainStage {
    /// Its own time, without that of its inputs, in milliseconds; `None` if not known, and for shards, which work at
    /// the same time.
    pub fn own_ms(&self) -> Option<u64> {
        if self.inputs.iter().any(|input| input.shard.is_some()) {
            return None;
        }
        let inputs = self.inputs.iter().map(|input| input.time_ms).sum::<Option<u64>>()?;
        self.time_ms.map(|all| all.saturating_sub(inputs))
    }

    /// What it yielded: documents returned, or those that it counted, deletes or updates.
    pub fn yielded(&self) -> Option<u64> {
        match (self.returned, self.affected) {
            (returned, None) => returned,
            (None, affected) => affected,
            (Some(returned), Some(affected)) => Some(returned.max(affected)),
        }
    }

    /// Whether it and all below it hand on the documents of the collection as they are.
    pub fn is_plain(&self) -> bool {
        let mut is_plain = true;
        self.visit(&mut |stage| is_plain &= PLAIN.contains(&stage.name.as_str()));
        is_plain
    }

    /// Calls `visit` for it and all below it, the inputs after the stage.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        self.inputs.iter().for_each(|input| input.visit(visit));
    }

    /// The plan as a log summarises it: `IXSCAN { a: 1 }`, `COLLSCAN`, several separated by commas.
    pub fn summary(&self) -> String {
        let mut leaves: Vec<String> = Vec::new();
        self.visit(&mut |stage| {
            let leaf = match &stage.key_pattern {
                Some(pattern) => format!("{} {pattern}", stage.name),
                None if stage.inputs.is_empty() && !stage.name.starts_with('$') => stage.name.clone(),
                None => return,
            };
            if !leaves.contains(&leaf) {
                leaves.push(leaf);
            }
        });
        leaves.join(", ")
    }

    /// Names of the indexes that it uses, sorted; `COLLSCAN` for the whole collection.
    pub fn access_paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.visit(&mut |stage| match (&stage.index, stage.name.as_str()) {
            (Some(index), _) => paths.push(index.clone()),
            (None, "COLLSCAN" | "scan") => paths.push("COLLSCAN".to_owned()),
            _ => {}
        });
        paths.sort();
        paths.dedup();
        paths
    }
}

/// How a plan did in the trial of plans (`allPlansExecution`).
#[derive(Clone, PartialEq, Debug)]
pub struct PlanTrial {
    /// Its stages.
    pub stages: ExplainStage,
    /// Documents that it returned in the trial.
    pub returned: Option<u64>,
    /// Keys that it examined.
    pub keys_examined: Option<u64>,
    /// Documents that it examined.
    pub docs_examined: Option<u64>,
    /// The server's score.
    pub score: Option<f64>,
}

impl PlanTrial {
    /// Documents returned for each unit of work, by which the server chooses; `None` if it did nothing.
    pub fn productivity(&self) -> Option<f64> {
        let works = self.stages.works.filter(|works| *works > 0)?;
        Some(self.returned? as f64 / works as f64)
    }

    /// A stage of it failed, such as a sort that needs too much memory.
    pub fn has_failed(&self) -> bool {
        let mut failed = false;
        self.stages.visit(&mut |stage| failed |= stage.has_failed);
        failed
    }
}

/// What one server planned for one collection.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerPlan {
    /// The shard; `None` without sharding.
    pub shard: Option<String>,
    /// The namespace.
    pub namespace: String,
    /// Filter and sort of the query as the planner got them, in the typed form of shapes; empty if not known.
    pub asked: String,
    /// The engine, if it is said.
    pub engine: Option<QueryEngine>,
    /// The plan that was chosen.
    pub winning: ExplainStage,
    /// The plans that were not.
    pub rejected: Vec<ExplainStage>,
    /// The trials of all plans.
    pub trials: Vec<PlanTrial>,
    /// The plan came from the plan cache.
    pub is_cached: Option<bool>,
    /// An index filter decided which indexes count.
    pub has_index_filter: bool,
    /// Limits at which the planner stopped to look for plans, by their names.
    pub limits_reached: Vec<&'static str>,
    /// Why the cached plan was given up.
    pub replan_reason: Option<String>,
    /// The plan was given up, and planned again.
    pub is_replanned: bool,
}

/// How much a command did altogether.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ExplainTotals {
    /// Documents returned, or those counted, deleted or updated.
    pub returned: Option<u64>,
    /// In milliseconds.
    pub time_ms: Option<u64>,
    /// Documents examined.
    pub docs_examined: Option<u64>,
    /// Keys examined.
    pub keys_examined: Option<u64>,
}

/// What `explain` says of one command.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExplainedCommand {
    /// Name of the command; empty if not known.
    pub command: String,
    /// The namespace.
    pub namespace: String,
    /// Its shape, or what is known of it: the filter and the sort. `None` if not even that.
    pub shape: Option<Arc<ShapeInfo>>,
    /// How exactly the shape is known.
    pub identity: Option<Identity>,
    /// The command with its values; empty if it is not in the source.
    pub values: String,
    /// The server that answered: host and port.
    pub server: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// It was executed (`executionStats` or `allPlansExecution`), so figures are known.
    pub is_executed: bool,
    /// Why the execution failed.
    pub error: Option<String>,
    /// What it did.
    pub totals: ExplainTotals,
    /// All stages, from the last one down.
    pub stages: ExplainStage,
    /// The plans of each server and collection.
    pub plans: Vec<ServerPlan>,
    /// A part is missing: a shell printed `[Object]` for it, the server left it out, or it is beyond a limit.
    pub is_incomplete: bool,
}
