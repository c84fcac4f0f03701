//! What is wrong with a plan.

use super::{BoundWidth, ExplainStage, ExplainedCommand, MaskedText, PLAIN, PlanTrial, ServerPlan};

/// Examined for each document returned, from which on too much is examined.
pub const MIN_RATIO: f64 = 10.0;
/// Examined altogether, from which on it matters.
pub const MIN_EXAMINED: u64 = 1_000;
/// Skipped documents from which on it matters.
pub const MIN_SKIP: u64 = 1_000;
/// A plan that lost is close behind if it was at least so productive, as a share of the winner.
pub const CLOSE_RIVAL: f64 = 0.9;

/// Something wrong with a plan, or worth knowing.
#[derive(Clone, PartialEq, Debug)]
pub enum ExplainFinding {
    /// The execution failed.
    Failed(String),
    /// It reads the collection without an index and keeps few documents. The figures are `None` if it was not executed.
    CollectionScan {
        /// All of it, because no limit ended it early.
        is_whole: bool,
        /// Documents read.
        documents: Option<u64>,
        /// Documents kept.
        kept: Option<u64>,
    },
    /// It goes through an index from one of its ends, and few keys lead to a document that is kept.
    WholeIndex {
        /// Through all of it, because no limit ended it early.
        is_whole: bool,
        /// Fields and directions.
        index: String,
        /// Keys read.
        keys: u64,
        /// Documents (or keys) kept.
        kept: u64,
    },
    /// It fetches documents to compare fields that the index does not have, and keeps few.
    FetchFilter {
        /// Fields and directions of the index; empty if not known.
        index: String,
        /// Documents fetched.
        documents: u64,
        /// Documents kept.
        kept: u64,
        /// What it compares.
        filter: Option<MaskedText>,
    },
    /// It examines far more than it returns, for none of the reasons above.
    Wasteful {
        /// Documents or keys examined, whichever is more.
        examined: u64,
        /// Documents returned.
        returned: u64,
    },
    /// It sorts many documents in memory.
    Sort {
        /// They come from the collection as they are, so an index could deliver them in order.
        by_index: bool,
        /// What it sorts by.
        pattern: String,
        /// Documents sorted.
        documents: Option<u64>,
        /// Bytes in memory.
        memory_bytes: Option<u64>,
    },
    /// A stage wrote to the disk.
    Spilled {
        /// Its name.
        stage: String,
        /// Bytes written.
        bytes: Option<u64>,
    },
    /// It reads documents to skip them.
    DeepSkip(u64),
    /// A `$lookup` reads a whole collection.
    ForeignScan {
        /// The collection.
        namespace: String,
        /// The field without an index; empty if not known.
        field: String,
        /// How often it was read.
        scans: Option<u64>,
        /// Documents read.
        documents: Option<u64>,
    },
    /// Another plan was nearly as productive in the trial.
    CloseRival {
        /// Its summary.
        plan: String,
        /// Its productivity as a share of the winner's.
        ratio: f64,
    },
    /// A plan failed in the trial.
    FailedTrial(String),
    /// The plan was given up and planned again.
    Replanned(Option<String>),
    /// The planner expected another number of documents.
    Misestimated {
        /// The stage.
        stage: String,
        /// Documents expected.
        estimated: f64,
        /// Documents returned.
        returned: u64,
    },
    /// It read documents that belong to another shard.
    Orphans(u64),
    /// The router asked several shards.
    AllShards(usize),
    /// An index filter decided which indexes count.
    IndexFilter,
    /// The planner stopped looking for plans at this limit.
    PlannerLimit(&'static str),
}

/// A finding, and the shard that it is about.
#[derive(Clone, PartialEq, Debug)]
pub struct LocatedFinding {
    /// The shard; `None` if it is about the command.
    pub shard: Option<String>,
    /// What it is.
    pub finding: ExplainFinding,
}

fn is_wasteful(examined: u64, kept: u64) -> bool {
    examined >= MIN_EXAMINED && examined as f64 >= MIN_RATIO * kept as f64
}

/// All findings, the most important first: of the execution, of the stages from the data up, and of the planner.
pub fn findings(explained: &ExplainedCommand) -> Vec<LocatedFinding> {
    let mut found = Vec::new();
    let mut add = |shard: Option<&str>, finding: ExplainFinding| {
        found.push(LocatedFinding { shard: shard.map(str::to_owned), finding });
    };
    if let Some(error) = &explained.error {
        add(None, ExplainFinding::Failed(error.clone()));
    }
    let mut of_stages = Vec::new();
    walk(&explained.stages, StagesAbove::none(explained.is_executed), &mut of_stages);
    let explains_reading = |finding: &ExplainFinding| {
        matches!(
            finding,
            ExplainFinding::CollectionScan { .. }
                | ExplainFinding::WholeIndex { .. }
                | ExplainFinding::FetchFilter { .. }
                | ExplainFinding::ForeignScan { .. }
                | ExplainFinding::DeepSkip(_)
        )
    };
    let is_explained = of_stages.iter().any(|(_, finding)| explains_reading(finding));
    of_stages.sort_by_key(|(_, finding)| !explains_reading(finding));
    let totals = explained.totals;
    let examined = totals.docs_examined.max(totals.keys_examined);
    if let (false, Some(examined), Some(returned)) = (is_explained, examined, totals.returned)
        && is_wasteful(examined, returned)
        && !combines(&explained.stages)
    {
        add(None, ExplainFinding::Wasteful { examined, returned });
    }
    for (shard, finding) in of_stages {
        add(shard, finding);
    }
    for plan in &explained.plans {
        let shard = plan.shard.as_deref();
        of_planner(plan).into_iter().for_each(|finding| add(shard, finding));
    }
    found
}

/// Whether a stage makes one document of many, so that few are returned of many examined.
fn combines(stages: &ExplainStage) -> bool {
    let mut combines = false;
    stages.visit(&mut |stage| combines |= is_combining(&stage.name));
    combines
}

fn is_combining(stage: &str) -> bool {
    matches!(
        stage,
        "$group" | "GROUP" | "$bucket" | "$bucketAuto" | "$facet" | "$sortByCount" | "$count" | "group"
    )
}

/// What a stage must know of those above it.
#[derive(Copy, Clone)]
struct StagesAbove<'a> {
    shard: Option<&'a str>,
    is_executed: bool,
    /// A limit above ended it before it had read all.
    is_limited: bool,
    /// Documents that a stage above fetched and kept, if nothing between the two passes on others.
    kept: Option<u64>,
}

impl<'a> StagesAbove<'a> {
    const fn none(is_executed: bool) -> Self {
        Self { shard: None, is_executed, is_limited: false, kept: None }
    }

    /// The same for the inputs of a stage below them.
    fn with(self, stage: &'a ExplainStage) -> Self {
        let is_limited = match stage.name.as_str() {
            "LIMIT" | "LIMIT_SKIP" | "$limit" => {
                let is_short = stage.returned.zip(stage.limit).is_some_and(|(got, limit)| got < limit);
                self.is_limited || !is_short
            }
            // They read all before they return anything.
            "SORT" | "$sort" => false,
            name => self.is_limited && !is_combining(name),
        };
        let kept = match stage.name.as_str() {
            "FETCH" => stage.returned,
            name if PLAIN.contains(&name) => self.kept,
            _ => None,
        };
        Self { shard: stage.shard.as_deref().or(self.shard), is_limited, kept, ..self }
    }
}

type StageFindings<'a> = Vec<(Option<&'a str>, ExplainFinding)>;

fn walk<'a>(stage: &'a ExplainStage, above: StagesAbove<'a>, found: &mut StageFindings<'a>) {
    let (shard, is_executed) = (stage.shard.as_deref().or(above.shard), above.is_executed);
    // What reads the data comes first.
    stage.inputs.iter().for_each(|input| walk(input, above.with(stage), found));
    reads(stage, above).into_iter().for_each(|finding| found.push((shard, finding)));
    if let Some(pattern) = &stage.sort
        && matches!(stage.name.as_str(), "SORT" | "$sort")
    {
        let input = stage.inputs.first();
        let documents = input.and_then(|input| input.returned);
        let by_index = input.is_some_and(ExplainStage::is_plain);
        // Without figures, the sort of a few computed documents would be named too.
        let is_large = documents.map_or(!is_executed && by_index, |sorted| sorted >= MIN_EXAMINED);
        if is_large {
            let (pattern, memory_bytes) = (pattern.clone(), stage.memory_bytes);
            found.push((shard, ExplainFinding::Sort { by_index, pattern, documents, memory_bytes }));
        }
    }
    if stage.used_disk {
        let (stage, bytes) = (stage.name.clone(), stage.spilled_bytes);
        found.push((shard, ExplainFinding::Spilled { stage, bytes }));
    }
    if let Some(skipped) = skipped(stage).filter(|skipped| *skipped >= MIN_SKIP) {
        found.push((shard, ExplainFinding::DeepSkip(skipped)));
    }
    found.extend(foreign_scan(stage).map(|finding| (shard, finding)));
    if let Some(orphans) = stage.orphans.filter(|orphans| *orphans >= MIN_EXAMINED) {
        found.push((shard, ExplainFinding::Orphans(orphans)));
    }
    if let (Some(estimated), Some(returned)) = (stage.estimated, stage.returned) {
        let (low, high) = (estimated.min(returned as f64), estimated.max(returned as f64));
        if high >= MIN_EXAMINED as f64 && high >= MIN_RATIO * low.max(1.0) {
            let stage = stage.name.clone();
            found.push((shard, ExplainFinding::Misestimated { stage, estimated, returned }));
        }
    }
    if stage.inputs.len() > 1 && stage.inputs.iter().all(|input| input.shard.is_some()) {
        found.push((None, ExplainFinding::AllShards(stage.inputs.len())));
    }
}

/// What is wrong with how a stage reads the data.
fn reads(stage: &ExplainStage, above: StagesAbove<'_>) -> Option<ExplainFinding> {
    let is_whole = !above.is_limited;
    let index = || stage.key_pattern.clone().unwrap_or_default();
    match stage.name.as_str() {
        "COLLSCAN" => {
            let (documents, kept) = (stage.docs_examined, stage.returned);
            let is_wrong = match (documents, kept) {
                (Some(documents), Some(kept)) => is_wasteful(documents, kept),
                _ => !above.is_executed && stage.filter.is_some(),
            };
            is_wrong.then_some(ExplainFinding::CollectionScan { is_whole, documents, kept })
        }
        "IXSCAN" => {
            let from_end =
                !stage.bounds.is_empty() && stage.bounds.iter().all(|bound| bound.width == BoundWidth::All);
            let kept = [stage.returned, above.kept].into_iter().flatten().min()?;
            let keys = stage.keys_examined.filter(|keys| is_wasteful(*keys, kept))?;
            from_end.then(|| ExplainFinding::WholeIndex { is_whole, index: index(), keys, kept })
        }
        "FETCH" => {
            let filter = stage.filter.clone()?;
            let (documents, kept) = (stage.docs_examined?, stage.returned?);
            let input = stage.inputs.first();
            let index = input.and_then(|input| input.key_pattern.clone()).unwrap_or_default();
            is_wasteful(documents, kept).then_some(ExplainFinding::FetchFilter {
                index,
                documents,
                kept,
                filter: Some(filter),
            })
        }
        _ => None,
    }
}

/// How many documents a stage skipped. The classic engine counts the figure of the stage down, so what it got and
/// what it returned decide.
fn skipped(stage: &ExplainStage) -> Option<u64> {
    if !matches!(stage.name.as_str(), "SKIP" | "$skip") {
        return None;
    }
    let input = stage.inputs.first().and_then(|input| input.returned);
    let passed = input.zip(stage.returned).map(|(input, returned)| input.saturating_sub(returned));
    passed.max(stage.skip)
}

/// A `$lookup` that reads the whole foreign collection.
fn foreign_scan(stage: &ExplainStage) -> Option<ExplainFinding> {
    let foreign = stage.foreign.as_ref()?;
    let scans = foreign.collection_scans.filter(|scans| *scans > 0);
    // `HashJoin` reads it once, which is cheap for a small one; a loop reads it for each document.
    let is_loop = foreign.strategy == "NestedLoopJoin";
    if scans.is_none() && !is_loop {
        return None;
    }
    Some(ExplainFinding::ForeignScan {
        namespace: foreign.namespace.clone(),
        field: foreign.foreign_field.clone(),
        scans,
        documents: stage.docs_examined,
    })
}

/// What the planner says.
fn of_planner(plan: &ServerPlan) -> Vec<ExplainFinding> {
    let mut found = Vec::new();
    if plan.is_replanned || plan.replan_reason.is_some() {
        found.push(ExplainFinding::Replanned(plan.replan_reason.clone()));
    }
    let winning = plan.winning.access_paths();
    let is_winner = |trial: &&PlanTrial| trial.stages.access_paths() == winning;
    let winners: Vec<_> = plan.trials.iter().filter(is_winner).collect();
    // Two plans of the same indexes cannot be told apart.
    let winner = match winners.as_slice() {
        [one] => one.productivity().filter(|productivity| *productivity > 0.0),
        _ => None,
    };
    for trial in plan.trials.iter().filter(|trial| !is_winner(trial)) {
        let summary = trial.stages.access_paths().join(", ");
        if trial.has_failed() {
            found.push(ExplainFinding::FailedTrial(summary));
        } else if let (Some(winner), Some(rival)) = (winner, trial.productivity())
            && rival >= CLOSE_RIVAL * winner
        {
            found.push(ExplainFinding::CloseRival { plan: summary, ratio: rival / winner });
        }
    }
    if plan.has_index_filter {
        found.push(ExplainFinding::IndexFilter);
    }
    found.extend(plan.limits_reached.iter().copied().map(ExplainFinding::PlannerLimit));
    found
}
