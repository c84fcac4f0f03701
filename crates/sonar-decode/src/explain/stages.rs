//! Stages of plans and pipelines, of both engines.
//!
//! Fields of the stages: `plan_explainer_impl.cpp` (classic) and `plan_explainer_sbe.cpp` (slot-based) of the server;
//! <https://www.mongodb.com/docs/manual/reference/explain-results/>.

use std::collections::HashMap;

use sonar_core::explain::{ExplainStage, ForeignCollection};

use super::query::{ShapeMaker, bounds, pattern};
use super::tree::ExplainValue;
use crate::bson::ElementKind;

/// The deepest plan that is followed.
const MAX_STAGES_DEEP: usize = 100;

/// Where a stage has its inputs.
const INPUTS: [&str; 6] = ["inputStage", "outerStage", "innerStage", "thenStage", "elseStage", "inputStages"];

/// What the slot-based engine did for a node of the plan.
#[derive(Copy, Clone, Default)]
struct NodeFigures {
    returned: Option<u64>,
    time_ms: Option<u64>,
    docs: Option<u64>,
    keys: Option<u64>,
    memory_bytes: Option<u64>,
    used_disk: bool,
    spills: Option<u64>,
    spilled_bytes: Option<u64>,
}

/// Figures by the number of the node.
#[derive(Default)]
pub(super) struct SlotFigures(HashMap<i64, NodeFigures>);

impl SlotFigures {
    /// Adds up the stages that execute each node. The first one from the top has what the node returned.
    pub(super) fn of(stages: &ExplainValue) -> Self {
        let mut figures = Self::default();
        figures.add(stages, 0);
        figures
    }

    fn add(&mut self, stage: &ExplainValue, depth: usize) {
        if depth > MAX_STAGES_DEEP || !stage.is_document() {
            return;
        }
        if let Some(id) = stage.get("planNodeId").number() {
            let node = self.0.entry(id as i64).or_insert_with(|| NodeFigures {
                returned: stage.get("nReturned").count(),
                time_ms: stage.get("executionTimeMillisEstimate").count(),
                ..NodeFigures::default()
            });
            let reads = stage.get("numReads").count();
            match stage.get("stage").text() {
                Some("scan" | "seek" | "pscan" | "random" | "fetch") => add(&mut node.docs, reads),
                Some(name) if name.starts_with("ix") => {
                    add(&mut node.keys, stage.get("keysExamined").count().or(reads));
                }
                _ => {}
            }
            add(&mut node.memory_bytes, memory_of(stage));
            node.used_disk |= stage.get("usedDisk").flag() == Some(true);
            add(&mut node.spills, stage.get("spills").count());
            add(&mut node.spilled_bytes, spilled_of(stage));
        }
        inputs(stage).for_each(|input| self.add(input, depth + 1));
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

fn inputs(stage: &ExplainValue) -> impl Iterator<Item = &ExplainValue> {
    INPUTS.into_iter().map(|name| stage.get(name)).flat_map(|input| match input {
        ExplainValue::Array(items) => items.as_slice(),
        ExplainValue::Document(_) => std::slice::from_ref(input),
        _ => &[],
    })
}

/// Bytes that a stage kept in memory, under the names of all versions.
fn memory_of(stage: &ExplainValue) -> Option<u64> {
    let names =
        ["totalDataSizeSorted", "memUsage", "totalDataSizeSortedBytesEstimate", "totalDataSizeSpooled"];
    names.into_iter().find_map(|name| stage.get(name).count())
}

fn spilled_of(stage: &ExplainValue) -> Option<u64> {
    let names = ["spilledDataStorageSize", "spilledBytes", "numBytesSpilledEstimate"];
    names.into_iter().find_map(|name| stage.get(name).count())
}

/// Reads stages.
#[derive(Default)]
pub(super) struct StageReader {
    pub(super) shapes: ShapeMaker,
    /// A part was left out.
    pub(super) is_incomplete: bool,
}

impl StageReader {
    /// A stage of a plan and all below it. `figures` are those of the slot-based engine, which has other stages than
    /// the plan.
    pub(super) fn stage(&mut self, stage: &ExplainValue, figures: Option<&SlotFigures>) -> ExplainStage {
        self.stage_at(stage, figures, 0)
    }

    fn stage_at(
        &mut self,
        stage: &ExplainValue,
        figures: Option<&SlotFigures>,
        depth: usize,
    ) -> ExplainStage {
        let mut out = self.plain(stage);
        if let Some(figures) = figures {
            let id = stage.get("planNodeId").number().map(|id| id as i64);
            let node = id.and_then(|id| figures.0.get(&id)).copied().unwrap_or_default();
            out.returned = node.returned;
            out.time_ms = node.time_ms;
            (out.docs_examined, out.keys_examined) = (node.docs, node.keys);
            (out.memory_bytes, out.used_disk) = (node.memory_bytes, node.used_disk);
            (out.spills, out.spilled_bytes) = (node.spills, node.spilled_bytes);
        }
        if depth >= MAX_STAGES_DEEP {
            self.is_incomplete = true;
            return out;
        }
        let has_warning = stage.get("warning").text().is_some();
        let is_left_out = |name: &&str| *stage.get(name) == ExplainValue::Other(ElementKind::Null);
        self.is_incomplete |= has_warning || INPUTS.iter().any(is_left_out);
        out.inputs = inputs(stage).map(|input| self.stage_at(input, figures, depth + 1)).collect();
        out
    }

    /// A stage without its inputs.
    fn plain(&mut self, stage: &ExplainValue) -> ExplainStage {
        let count = |name: &str| stage.get(name).count();
        let affected = ["nCounted", "nWouldDelete", "nMatched"].into_iter().find_map(count);
        let filter = stage.get("filter");
        let has_filter = filter.is_document() && !filter.fields().is_empty();
        let sort = stage.get("sortPattern");
        let foreign = stage.get("foreignCollection").text().map(|namespace| ForeignCollection {
            namespace: namespace.to_owned(),
            local_field: stage.get("localField").string(),
            foreign_field: stage.get("foreignField").string(),
            strategy: stage.get("strategy").string(),
            ..ForeignCollection::default()
        });
        let docs = ["docsExamined", "totalDocsExamined"].into_iter().find_map(count);
        let name = stage.get("stage").string();
        let is_scan = matches!(name.as_str(), "scan" | "seek");
        ExplainStage {
            docs_examined: if is_scan { count("numReads") } else { docs.filter(|_| !is_slot_stage(&name)) },
            keys_examined: count("keysExamined")
                .or_else(|| count("numReads").filter(|_| name.starts_with("ix"))),
            name,
            namespace: stage.get("nss").string(),
            index: stage.get("indexName").text().map(str::to_owned),
            key_pattern: pattern(stage.get("keyPattern")),
            bounds: bounds(stage.get("indexBounds")),
            is_backward: stage.get("direction").text() == Some("backward"),
            filter: has_filter.then(|| self.shapes.filter(filter)),
            sort: sort.is_document().then(|| sort.shown()),
            // The classic engine counts it down.
            limit: count("limitAmount").filter(|limit| *limit > 0),
            skip: count("skipAmount").filter(|skip| *skip > 0),
            foreign,
            returned: count("nReturned"),
            affected,
            time_ms: count("executionTimeMillisEstimate"),
            works: count("works"),
            orphans: count("chunkSkips"),
            memory_bytes: memory_of(stage),
            used_disk: stage.get("usedDisk").flag() == Some(true),
            spills: count("spills"),
            spilled_bytes: spilled_of(stage),
            estimated: stage.get("cardinalityEstimate").number(),
            has_failed: stage.get("failed").flag() == Some(true),
            ..ExplainStage::default()
        }
    }

    /// A stage of a pipeline, whose input is `input`.
    pub(super) fn pipeline_stage(
        &mut self,
        stage: &ExplainValue,
        input: Option<ExplainStage>,
    ) -> ExplainStage {
        let (name, content) =
            stage.first().map_or((String::new(), &ExplainValue::Boolean(false)), |(name, content)| {
                (name.to_owned(), content)
            });
        let count = |name: &str| stage.get(name).count();
        let number = match content {
            ExplainValue::Integer(_) | ExplainValue::Double(_) => content.count(),
            _ => None,
        };
        let is_sort = name == "$sort";
        let sort = content.get("sortKey");
        // Before 4.4, the keys stand in `sortKey` too; in a pipeline that was not executed they may stand alone.
        let sort = if sort.is_document() { sort } else { content };
        let is_lookup = matches!(name.as_str(), "$lookup" | "$graphLookup");
        let has_text = !matches!(name.as_str(), "$sort" | "$limit" | "$skip") && content.is_document();
        let foreign = is_lookup.then(|| foreign(content, stage));
        ExplainStage {
            filter: has_text.then(|| self.shapes.pipeline_stage(&name, content)),
            sort: is_sort.then(|| sort.shown()),
            limit: if name == "$limit" { number } else { content.get("limit").count() },
            skip: number.filter(|_| name == "$skip"),
            foreign,
            returned: count("nReturned"),
            time_ms: count("executionTimeMillisEstimate"),
            docs_examined: count("totalDocsExamined"),
            keys_examined: count("totalKeysExamined"),
            memory_bytes: memory_of(stage).or_else(|| accumulated(stage)),
            used_disk: stage.get("usedDisk").flag() == Some(true),
            spills: count("spills"),
            spilled_bytes: spilled_of(stage),
            inputs: input.into_iter().collect(),
            name,
            ..ExplainStage::default()
        }
    }
}

/// Names of stages of the slot-based engine are in small letters. Their totals include the stages below.
fn is_slot_stage(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Bytes of all accumulators of a `$group`.
fn accumulated(stage: &ExplainValue) -> Option<u64> {
    let fields = stage.get("maxAccumulatorMemoryUsageBytes").fields();
    let bytes = fields.iter().filter_map(|(_, bytes)| bytes.count()).reduce(u64::saturating_add);
    bytes.or_else(|| stage.get("totalOutputDataSizeBytes").count())
}

/// The collection that a `$lookup` of the classic engine reads.
fn foreign(content: &ExplainValue, stage: &ExplainValue) -> ForeignCollection {
    let from = content.get("from");
    let namespace = match (from.get("db").text(), from.get("coll").text()) {
        (Some(database), Some(collection)) => format!("{database}.{collection}"),
        _ => from.string(),
    };
    let used = stage.get("indexesUsed");
    let names = || used.items().iter().filter_map(ExplainValue::text).map(str::to_owned).collect();
    let of_graph = content.get("connectToField").string();
    let of_lookup = content.get("foreignField").string();
    ForeignCollection {
        namespace,
        local_field: content.get("localField").string(),
        foreign_field: if of_lookup.is_empty() { of_graph } else { of_lookup },
        strategy: String::new(),
        collection_scans: stage.get("collectionScans").count(),
        indexes: used.is_array().then(names),
    }
}
