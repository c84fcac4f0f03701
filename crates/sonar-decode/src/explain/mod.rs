//! The output of `explain`, of every version since 3.0 and of both engines, from a server or a router: documents that a
//! shell or a program printed, or BSON.
//!
//! Structure: `explain.cpp` and `cluster_explain.cpp` of the server;
//! <https://www.mongodb.com/docs/manual/reference/explain-results/>.

mod query;
mod stages;
mod tree;

use memchr::memmem;
use sonar_core::Identity;
use sonar_core::explain::{
    ExplainStage, ExplainTotals, ExplainedCommand, PlanTrial, QueryEngine, ServerPlan,
};

use self::stages::{SlotFigures, StageReader};
use self::tree::{ExplainValue, ReadTree};
use crate::bson::ElementKind;
use crate::top_level::TopFields;

/// The most plans and trials that are kept of a document.
const MAX_PLANS: usize = 1_000;

/// Limits of the planner, by the fields that say that they were reached.
const LIMITS: [(&str, &str); 3] = [
    ("maxIndexedOrSolutionsReached", "the most plans for $or"),
    ("maxIndexedAndSolutionsReached", "the most plans for $and"),
    ("maxScansToExplodeReached", "the most scans for a sort by index"),
];

/// Whether a printed document with these fields, whole or cut, looks like the output of `explain`.
pub fn is_explain(top: &TopFields, document: &[u8]) -> bool {
    let opens = |name: &[u8], brackets: &[u8]| {
        memmem::find_iter(document, name).any(|at| {
            let rest = &document[at + name.len()..];
            let rest =
                rest.strip_prefix(b"\"").or(rest.strip_prefix(b"'")).unwrap_or(rest).trim_ascii_start();
            let rest = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
            rest.and_then(<[u8]>::first).is_some_and(|byte| brackets.contains(byte))
        })
    };
    has_plan(top, || opens(b"queryPlanner", b"{"))
}

/// The same of a BSON document.
pub fn is_explain_bson(top: &TopFields, document: &[u8]) -> bool {
    has_plan(top, || memmem::find(document, b"\x03queryPlanner\0").is_some())
}

/// Whether these fields are those of the output of `explain`. `has_planner`: whether a plan is further in, where
/// pipelines and routers have it.
fn has_plan(top: &TopFields, has_planner: impl Fn() -> bool) -> bool {
    let is_outer = top.has_array("stages") || top.has_document("shards") || top.has_document("mongos");
    // Entries of a profile have these.
    let is_entry = top.has("op") && top.has("ns");
    !is_entry
        && (top.has_document("queryPlanner")
            || top.has("splitPipeline") && top.has_document("shards")
            || is_outer && has_planner())
}

/// Reads a document as JSON, or as a shell prints it. `None`: it cannot be read, or is not the output of `explain`.
pub fn printed(document: &[u8]) -> Option<ExplainedCommand> {
    tree::printed(document).and_then(|read| command(&read))
}

/// Reads a BSON document. `None`: it cannot be read, or is not the output of `explain`.
pub fn bson(document: &[u8]) -> Option<ExplainedCommand> {
    tree::bson(document).and_then(|read| command(&read))
}

fn command(read: &ReadTree) -> Option<ExplainedCommand> {
    let document = &read.document;
    let mut reader = ExplainReader::default();
    let stages = reader.answer(document)?;
    let command = document.get("command");
    let first = reader.plans.first();
    let namespace = first.map_or_else(String::new, |plan| plan.namespace.clone());
    let database = namespace.split_once('.').map_or("", |(database, _)| database);
    let mut shaped = None;
    if command.is_document() {
        let on = command.first().and_then(|(_, name)| name.text()).unwrap_or_default();
        let on = if on.is_empty() { namespace.clone() } else { format!("{database}.{on}") };
        shaped = reader.stages.shapes.command(&on, command);
    }
    let server = document.get("serverInfo");
    let server = if server.is_document() { server } else { reader.server.as_ref().unwrap_or(server) };
    let host = server.get("host").text().map(|host| match server.get("port").count() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    });
    let (name, shape, identity) = shaped.map_or_else(
        || (by_stage(&stages), None, None),
        |shaped| (shaped.name, Some(shaped.shape), Some(shaped.identity)),
    );
    let of_view = shape.as_ref().map(|shape| shape.namespace());
    let namespace = if namespace.is_empty() { of_view.unwrap_or_default() } else { namespace };
    Some(ExplainedCommand {
        command: name,
        namespace,
        identity: identity.or(Some(Identity::Partial)),
        shape,
        values: if command.is_document() { command.shown() } else { String::new() },
        server: host,
        version: server.get("version").text().map(str::to_owned),
        is_executed: reader.is_executed,
        error: reader.error,
        totals: reader.totals,
        stages,
        plans: reader.plans,
        is_incomplete: read.is_incomplete || reader.stages.is_incomplete,
    })
}

/// The command that only this stage executes.
fn by_stage(stages: &ExplainStage) -> String {
    let mut name = "";
    stages.visit(&mut |stage| match stage.name.as_str() {
        "UPDATE" => name = "update",
        "DELETE" | "BATCHED_DELETE" => name = "delete",
        "COUNT" => name = "count",
        "$cursor" | "$group" => name = "aggregate",
        _ => {}
    });
    name.to_owned()
}

#[derive(Default)]
struct ExplainReader {
    stages: StageReader,
    plans: Vec<ServerPlan>,
    totals: ExplainTotals,
    is_executed: bool,
    error: Option<String>,
    /// Of a shard, if the document has none.
    server: Option<ExplainValue>,
    /// The sort of the command, or of its pipeline.
    sort: Option<ExplainValue>,
}

impl ExplainReader {
    /// Reads what a server or a router answered. `None`: it is no output of `explain`.
    fn answer(&mut self, document: &ExplainValue) -> Option<ExplainStage> {
        self.sort = sort_of(document.get("command"));
        let shards = document.get("shards");
        if shards.is_document() {
            return Some(self.sharded_pipeline(document));
        }
        let mongos = document.get("mongos");
        let document = if mongos.is_document() { mongos } else { document };
        self.server_answer(document, None)
    }

    /// Reads what one server answered.
    fn server_answer(&mut self, document: &ExplainValue, shard: Option<&str>) -> Option<ExplainStage> {
        let pipeline = document.get("stages");
        if pipeline.is_array() {
            let root = self.pipeline(pipeline.items(), shard)?;
            // The last stage has the figures of all.
            if self.is_executed {
                add(&mut self.totals.returned, root.returned);
                self.totals.time_ms = self.totals.time_ms.max(root.time_ms);
            }
            return Some(root);
        }
        document.get("queryPlanner").is_document().then(|| {
            let root = self.planned(document, shard);
            let stats = document.get("executionStats");
            add(
                &mut self.totals.returned,
                stats
                    .get("nReturned")
                    .count()
                    .map(|one| one.max(root.yielded().unwrap_or(0)).max(affected(&root))),
            );
            self.totals.time_ms = self.totals.time_ms.max(stats.get("executionTimeMillis").count());
            root
        })
    }

    /// A pipeline: each stage is the input of the next one.
    fn pipeline(&mut self, stages: &[ExplainValue], shard: Option<&str>) -> Option<ExplainStage> {
        let mut last: Option<ExplainStage> = None;
        for stage in stages {
            let (name, content) = stage.first()?;
            let is_cursor = content.get("queryPlanner").is_document();
            let mut next = if is_cursor {
                if self.sort.is_none() {
                    self.sort = first_sort(stages);
                }
                let plan = self.planned(content, shard);
                let mut cursor = self.stages.pipeline_stage(stage, None);
                cursor.filter = None;
                cursor.inputs.push(plan);
                cursor
            } else {
                self.stages.pipeline_stage(stage, last.take())
            };
            match name {
                "$unionWith" => next.inputs.extend(self.pipeline(content.get("pipeline").items(), shard)),
                "$lookup" | "$graphLookup" => {
                    add(&mut self.totals.docs_examined, next.docs_examined);
                    add(&mut self.totals.keys_examined, next.keys_examined);
                }
                _ => {}
            }
            last = Some(next);
        }
        last
    }

    /// A pipeline that shards executed.
    fn sharded_pipeline(&mut self, document: &ExplainValue) -> ExplainStage {
        let mut shards = Vec::new();
        for (name, answer) in document.get("shards").fields() {
            if self.server.is_none() && answer.get("serverInfo").is_document() {
                self.server = Some(answer.get("serverInfo").clone());
            }
            let inputs: Vec<_> = self.server_answer(answer, Some(name)).into_iter().collect();
            shards.push(of_shard(name, inputs));
        }
        let merger = document.get("splitPipeline").get("mergerPart");
        let root = if shards.len() == 1 { "SINGLE_SHARD" } else { "SHARD_MERGE" };
        let mut root = ExplainStage { name: root.to_owned(), inputs: shards, ..ExplainStage::default() };
        let is_work = |stage: &&ExplainValue| stage.first().is_some_and(|(name, _)| name != "$mergeCursors");
        for stage in merger.items().iter().filter(is_work) {
            root = self.stages.pipeline_stage(stage, Some(root));
        }
        root
    }

    /// A plan, or one of each shard, with the figures of its execution.
    fn planned(&mut self, document: &ExplainValue, shard: Option<&str>) -> ExplainStage {
        let (planner, stats) = (document.get("queryPlanner"), document.get("executionStats"));
        self.take_totals(stats);
        let winning = planner.get("winningPlan");
        let shards = winning.get("shards");
        if !shards.is_array() {
            let trials = stats.get("allPlansExecution");
            let version = document.get("explainVersion").text();
            return self.plan(planner, stats, &PlanPlace { shard, trials, version });
        }
        let executed = stats.get("executionStages").get("shards");
        let of_name = |all: &'_ ExplainValue, name: &str| {
            all.items().iter().find(|one| one.get("shardName").text() == Some(name)).cloned()
        };
        let nothing = ExplainValue::Other(ElementKind::Undefined);
        let mut inputs = Vec::new();
        for planner in shards.items() {
            let name = planner.get("shardName").string();
            let stats = of_name(executed, &name).unwrap_or(nothing.clone());
            let trials = of_name(stats_trials(document), &name).unwrap_or(nothing.clone());
            // Some versions have them at the shard.
            let own = stats.get("allPlansExecution");
            let trials = if own.is_array() { own } else { trials.get("allPlans") };
            self.take_error(&stats);
            if self.server.is_none() {
                self.server = Some(planner.get("serverInfo").clone());
            }
            let place =
                PlanPlace { shard: Some(&name), trials, version: planner.get("explainVersion").text() };
            let root = self.plan(planner, &stats, &place);
            inputs.push(of_shard(&name, vec![root]));
        }
        let executed = stats.get("executionStages");
        ExplainStage {
            name: winning.get("stage").string(),
            returned: stats.get("nReturned").count(),
            time_ms: stats.get("executionTimeMillis").count(),
            limit: executed.get("limitAmount").count(),
            inputs,
            ..ExplainStage::default()
        }
    }

    fn take_totals(&mut self, stats: &ExplainValue) {
        self.is_executed |= stats.is_document();
        add(&mut self.totals.docs_examined, stats.get("totalDocsExamined").count());
        add(&mut self.totals.keys_examined, stats.get("totalKeysExamined").count());
        self.take_error(stats);
    }

    fn take_error(&mut self, stats: &ExplainValue) {
        if stats.get("executionSuccess").flag() == Some(false) && self.error.is_none() {
            let code = stats.get("errorCode").number();
            // The message may contain values.
            self.error =
                Some(code.map_or_else(|| "without a code".to_owned(), |code| format!("code {code}")));
        }
    }

    /// The plan of one server.
    fn plan(&mut self, planner: &ExplainValue, stats: &ExplainValue, place: &PlanPlace<'_>) -> ExplainStage {
        let winning = planner.get("winningPlan");
        self.stages.is_incomplete |= *winning == ExplainValue::Other(ElementKind::Null);
        let planned = query_plan(winning);
        let executed = stats.get("executionStages");
        let is_slot_based = winning.get("queryPlan").is_document() || place.version == Some("2");
        let root = if !executed.is_document() {
            self.stages.stage(planned, None)
        } else if is_slot_based && planned.get("planNodeId").number().is_some() {
            let mut root = self.stages.stage(planned, Some(&SlotFigures::of(executed)));
            // The stages at the top of the execution belong to no node in some plans.
            root.returned = root.returned.or(executed.get("nReturned").count());
            root
        } else {
            self.stages.stage(executed, None)
        };
        if self.plans.len() < MAX_PLANS {
            let plan = self.server_plan(planner, &root, place);
            self.plans.push(plan);
        } else {
            self.stages.is_incomplete = true;
        }
        root
    }

    fn server_plan(
        &mut self,
        planner: &ExplainValue,
        root: &ExplainStage,
        place: &PlanPlace<'_>,
    ) -> ServerPlan {
        let winning = planner.get("winningPlan");
        let engine = match place.version {
            Some("2") => Some(QueryEngine::SlotBased),
            Some("1") => Some(QueryEngine::Classic),
            _ if winning.get("slotBasedPlan").is_document() => Some(QueryEngine::SlotBased),
            // Before 4.9 there was one engine, and no version.
            _ => Some(QueryEngine::Classic),
        };
        let rejected = planner.get("rejectedPlans").items();
        let trials = place.trials.items();
        self.stages.is_incomplete |= rejected.len().max(trials.len()) > MAX_PLANS;
        let rejected =
            rejected.iter().take(MAX_PLANS).map(|plan| self.stages.stage(query_plan(plan), None)).collect();
        let trials = trials.iter().take(MAX_PLANS).map(|trial| self.trial(trial)).collect();
        let sort = sort_in(root).or_else(|| self.sort.clone());
        let filter = planner.get("parsedQuery");
        let asked = match filter.is_document() {
            true => self.stages.shapes.filter_and_sort(filter, sort.as_ref()),
            false => String::new(),
        };
        let reached =
            |(field, name): &(&str, &'static str)| (planner.get(field).flag() == Some(true)).then_some(*name);
        let replanned = [winning, planner].into_iter().find_map(|place| place.get("replanReason").text());
        ServerPlan {
            shard: place.shard.map(str::to_owned),
            namespace: planner.get("namespace").string(),
            asked,
            engine,
            winning: root.clone(),
            rejected,
            trials,
            is_cached: winning.get("isCached").flag(),
            has_index_filter: planner.get("indexFilterSet").flag() == Some(true),
            limits_reached: LIMITS.iter().filter_map(reached).collect(),
            replan_reason: replanned.map(str::to_owned),
            is_replanned: planner.get("replanned").flag() == Some(true),
        }
    }

    fn trial(&mut self, trial: &ExplainValue) -> PlanTrial {
        PlanTrial {
            stages: self.stages.stage(trial.get("executionStages"), None),
            returned: trial.get("nReturned").count(),
            keys_examined: trial.get("totalKeysExamined").count(),
            docs_examined: trial.get("totalDocsExamined").count(),
            score: trial.get("score").number(),
        }
    }
}

/// Where a plan stands.
struct PlanPlace<'a> {
    shard: Option<&'a str>,
    trials: &'a ExplainValue,
    /// `explainVersion`, if it is there.
    version: Option<&'a str>,
}

fn stats_trials(document: &ExplainValue) -> &ExplainValue {
    document.get("executionStats").get("allPlansExecution")
}

/// The tree of stages of a plan: in the slot-based engine and from 8.0 on, it may stand deeper.
fn query_plan(plan: &ExplainValue) -> &ExplainValue {
    let inner = plan.get("queryPlan");
    if inner.is_document() { inner } else { plan }
}

fn of_shard(name: &str, inputs: Vec<ExplainStage>) -> ExplainStage {
    let (returned, time_ms) = inputs.first().map_or((None, None), |input| (input.returned, input.time_ms));
    ExplainStage {
        name: format!("SHARD {name}"),
        shard: Some(name.to_owned()),
        returned,
        time_ms,
        inputs,
        ..ExplainStage::default()
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

/// Documents that a plan counted, deletes or updates.
fn affected(root: &ExplainStage) -> u64 {
    let mut most = 0;
    root.visit(&mut |stage| most = most.max(stage.affected.unwrap_or(0)));
    most
}

/// The sort of a plan that sorts documents of the collection, as a document.
fn sort_in(root: &ExplainStage) -> Option<ExplainValue> {
    let mut sort = None;
    root.visit(&mut |stage| {
        if stage.sort.is_some() && stage.is_plain() {
            sort.clone_from(&stage.sort);
        }
    });
    tree::printed(sort?.as_bytes()).map(|read| read.document)
}

/// The sort of a command: of a find, or at the front of a pipeline.
fn sort_of(command: &ExplainValue) -> Option<ExplainValue> {
    let sort = command.get("sort");
    if sort.is_document() {
        return Some(sort.clone());
    }
    first_sort(command.get("pipeline").items())
}

/// The sort that comes first in a pipeline, or right after what finds the documents.
fn first_sort(stages: &[ExplainValue]) -> Option<ExplainValue> {
    for stage in stages {
        match stage.first()? {
            ("$sort", content) => {
                let key = content.get("sortKey");
                return Some(if key.is_document() { key.clone() } else { content.clone() });
            }
            ("$match" | "$cursor", _) => {}
            _ => return None,
        }
    }
    None
}
