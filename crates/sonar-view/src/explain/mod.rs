//! The output of `explain` as a report: text, JSON and the document of a page.

mod words;

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::ShapeId;
use sonar_core::explain::{
    ExplainFinding, ExplainStage, ExplainedCommand, LocatedFinding, PlanTrial, ServerPlan, findings,
};
use ts_rs::TS;

use self::words::{details, kind, sentence};
use crate::digest::index_hint::{self, IndexHint};
use crate::kit::json::Shown;
use crate::kit::{
    About, Fitting, Grouped, Heading, Nanos, TextTable, UNKNOWN, escape, json as format, or_unknown, plural,
};

/// Version of the schema: it grows when a field changes its meaning or goes.
const SCHEMA: u32 = 1;
/// Rejected plans of which text shows the stages.
const REJECTED: usize = 10;

/// The output of `explain`, ready to be written.
pub struct ExplainView<'a> {
    /// What was read.
    pub explained: &'a ExplainedCommand,
    /// What is wrong, the most important first.
    pub findings: Vec<LocatedFinding>,
    /// Indexes that would help.
    pub indexes: Vec<IndexHint>,
    /// Values of the query were asked for.
    pub shows_values: bool,
}

impl<'a> ExplainView<'a> {
    /// Finds what is wrong with the plan, and which indexes would help.
    pub fn new(explained: &'a ExplainedCommand) -> Self {
        let findings = findings(explained);
        let indexes = indexes(explained, &findings);
        Self { explained, findings, indexes, shows_values: false }
    }
}

/// Whether an index could help against a finding.
fn calls_for_index(finding: &ExplainFinding) -> bool {
    match finding {
        ExplainFinding::CollectionScan { .. }
        | ExplainFinding::WholeIndex { .. }
        | ExplainFinding::FetchFilter { .. }
        | ExplainFinding::Wasteful { .. } => true,
        ExplainFinding::Sort { by_index, .. } => *by_index,
        _ => false,
    }
}

/// Indexes that would help against the findings: equality, sort, range, as for shapes of a log.
fn indexes(explained: &ExplainedCommand, findings: &[LocatedFinding]) -> Vec<IndexHint> {
    let mut all: Vec<IndexHint> = Vec::new();
    let mut add = |hint: IndexHint| {
        if !all.contains(&hint) {
            all.push(hint);
        }
    };
    let wants = |shard: Option<&str>| {
        let is_of = |one: &&LocatedFinding| one.shard.is_none() || one.shard.as_deref() == shard;
        findings.iter().filter(is_of).any(|one| calls_for_index(&one.finding))
    };
    for plan in explained.plans.iter().filter(|plan| wants(plan.shard.as_deref())) {
        // A plan that was rejected has an index that exists.
        let plans: Vec<String> =
            std::iter::once(&plan.winning).chain(&plan.rejected).map(ExplainStage::summary).collect();
        let plans: Vec<&str> = plans.iter().map(String::as_str).collect();
        if let Some(index) = index_hint::for_query(&plan.asked, &plans, &[]) {
            add(IndexHint { namespace: plan.namespace.clone(), index });
        }
    }
    let database = explained.namespace.split_once('.').map_or("", |(database, _)| database);
    for one in findings {
        let ExplainFinding::ForeignScan { namespace, field, .. } = &one.finding else { continue };
        if field.is_empty() || namespace.is_empty() {
            continue;
        }
        let is_whole = namespace.contains('.') || database.is_empty();
        let namespace = if is_whole { namespace.clone() } else { format!("{database}.{namespace}") };
        add(IndexHint { namespace, index: format!("{{{field}: 1}}") });
    }
    all
}

/// What was explained, and what it did, in one sentence.
pub fn summary(explained: &ExplainedCommand) -> String {
    let mut text = "explain of ".to_owned();
    if !explained.command.is_empty() {
        text.push_str(&format!("{} ", explained.command));
    }
    text.push_str(if explained.namespace.is_empty() { UNKNOWN } else { &explained.namespace });
    let plan = explained.stages.summary();
    if !plan.is_empty() {
        text.push_str(&format!(": {plan}"));
    }
    let totals = explained.totals;
    if !explained.is_executed {
        text.push_str("; not executed, so figures are not known (explain(\"executionStats\") has them)");
        return text;
    }
    let counted = |what: &str, count: Option<u64>| count.map(|count| format!("{} {what}", Grouped(count)));
    let figures = [
        totals.time_ms.map(|ms| format!("{} altogether", time(ms))),
        counted("returned", totals.returned),
        counted("documents examined", totals.docs_examined),
        counted("keys examined", totals.keys_examined),
    ];
    let figures: Vec<_> = figures.into_iter().flatten().collect();
    if !figures.is_empty() {
        text.push_str(&format!("; {}", figures.join(", ")));
    }
    text
}

/// A time that the server gives in whole milliseconds.
fn time(ms: u64) -> String {
    if ms == 0 { "<1ms".to_owned() } else { Nanos(ms.saturating_mul(1_000_000)).to_string() }
}

/// Writes the report.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(view: &ExplainView<'_>, out: &mut Fitting<W>) -> io::Result<()> {
    let explained = view.explained;
    writeln!(out, "{}", escape(&summary(explained)))?;
    let query = query(view);
    if !query.is_empty() {
        writeln!(out, "  {}", escape(&query))?;
    }
    if let Some(line) = about(explained) {
        writeln!(out, "  {}", escape(&line))?;
    }
    if explained.is_incomplete {
        writeln!(out, "  NOTE: {INCOMPLETE}")?;
    }
    if view.findings.is_empty() {
        writeln!(out, "\n{}", nothing_found(explained))?;
    } else {
        writeln!(out, "\nWhat stands out:")?;
        out.sentences(view.findings.iter().map(|one| sentence(one, view.shows_values)))?;
    }
    if !view.indexes.is_empty() {
        writeln!(out, "\nIndexes that may help (equality, sort, range; check before building):")?;
        for IndexHint { namespace, index } in &view.indexes {
            writeln!(out, "  {} {}", escape(namespace), escape(index))?;
        }
    }
    writeln!(out)?;
    stages(view, out)?;
    rejected(view, out)?;
    out.flush()
}

/// The sentence about an output that was cut.
const INCOMPLETE: &str =
    "a part of it is missing (left out by a shell or by the server): findings may be missing too.";

/// The sentence if there is no finding.
fn nothing_found(explained: &ExplainedCommand) -> String {
    let why = if explained.is_executed { "" } else { " without figures" };
    format!("Nothing is wrong that can be seen{why}.")
}

/// The query; with its values if these were asked for.
fn query(view: &ExplainView<'_>) -> String {
    let explained = view.explained;
    match (view.shows_values && !explained.values.is_empty(), &explained.shape) {
        (true, _) => explained.values.clone(),
        (false, Some(shape)) => shape.typed.to_string(),
        (false, None) => explained.plans.first().map_or_else(String::new, |plan| plan.asked.clone()),
    }
}

/// Server, version and engine.
fn about(explained: &ExplainedCommand) -> Option<String> {
    let mut parts = Vec::new();
    parts.extend(explained.server.clone());
    parts.extend(explained.version.as_ref().map(|version| format!("MongoDB {version}")));
    let plan = explained.plans.first();
    parts.extend(plan.and_then(|plan| plan.engine).map(|engine| format!("{} engine", engine.name())));
    if plan.is_some_and(|plan| plan.is_cached == Some(true)) {
        parts.push("plan from the cache".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn stages<W: Write>(view: &ExplainView<'_>, out: &mut Fitting<W>) -> io::Result<()> {
    let mut table = TextTable::new(&[
        Heading::whole("stage", 0),
        Heading::figure("returned", 0),
        Heading::figure("time", 0),
        Heading::figure("own", 3),
        Heading::figure("documents", 1),
        Heading::figure("keys", 1),
        Heading::figure("works", 4),
        Heading::text("what it does", 0, 20),
    ])
    .spaced();
    let mut knows = StageColumns::default();
    add_rows(&mut table, &mut knows, &view.explained.stages, &RowPlace { prefix: "", last: None, view });
    table.keep(|title| match title {
        "returned" => knows.returned,
        "time" | "own" => knows.time,
        "documents" => knows.documents,
        "keys" => knows.keys,
        "works" => knows.works,
        _ => true,
    });
    table.write(out)
}

/// Which columns have a figure.
#[derive(Default)]
struct StageColumns {
    returned: bool,
    time: bool,
    documents: bool,
    keys: bool,
    works: bool,
}

/// Where a stage stands in the tree.
struct RowPlace<'a> {
    /// What stands before the stage's own branch.
    prefix: &'a str,
    /// Whether it is the last input; `None` for the root.
    last: Option<bool>,
    view: &'a ExplainView<'a>,
}

fn add_rows(table: &mut TextTable, knows: &mut StageColumns, stage: &ExplainStage, place: &RowPlace<'_>) {
    let (branch, below) = match place.last {
        None => ("", ""),
        Some(true) => ("└ ", "  "),
        Some(false) => ("├ ", "│ "),
    };
    knows.returned |= stage.returned.is_some();
    knows.time |= stage.time_ms.is_some();
    knows.documents |= stage.docs_examined.is_some();
    knows.keys |= stage.keys_examined.is_some();
    knows.works |= stage.works.is_some();
    let grouped = |count: Option<u64>| or_unknown(count.map(Grouped));
    table.row([
        format!("{}{branch}{}", place.prefix, stage.name),
        grouped(stage.returned),
        or_unknown(stage.time_ms.map(time)),
        or_unknown(stage.own_ms().map(time)),
        grouped(stage.docs_examined),
        grouped(stage.keys_examined),
        grouped(stage.works),
        details(stage, place.view.shows_values),
    ]);
    let prefix = format!("{}{below}", place.prefix);
    for (at, input) in stage.inputs.iter().enumerate() {
        let last = Some(at + 1 == stage.inputs.len());
        add_rows(table, knows, input, &RowPlace { prefix: &prefix, last, view: place.view });
    }
}

fn rejected<W: Write>(view: &ExplainView<'_>, out: &mut Fitting<W>) -> io::Result<()> {
    let all = rejected_plans(view.explained);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPlans that were rejected:")?;
    for plan in all.iter().take(REJECTED) {
        writeln!(out, "  {}", escape(plan))?;
    }
    if all.len() > REJECTED {
        writeln!(out, "  … and {}", plural(all.len() - REJECTED, "more plan"))?;
    }
    Ok(())
}

/// Plans that were rejected, and what each did in the trial.
fn rejected_plans(explained: &ExplainedCommand) -> Vec<String> {
    let line = |plan: &ServerPlan, rejected: &ExplainStage| {
        let shard = plan.shard.as_ref().map_or_else(String::new, |shard| format!("shard {shard}: "));
        let paths = rejected.access_paths();
        let trial = plan.trials.iter().find(|trial| trial.stages.access_paths() == paths);
        let did = trial.map_or_else(String::new, |trial| format!(": {}", did(trial)));
        format!("{shard}{}{did}", rejected.summary())
    };
    let of_plan = |plan: &ServerPlan| plan.rejected.iter().map(|one| line(plan, one)).collect::<Vec<_>>();
    explained.plans.iter().flat_map(of_plan).collect()
}

/// What a plan did in the trial.
fn did(trial: &PlanTrial) -> String {
    let counted = |what: &str, count: Option<u64>| count.map(|count| format!("{what} {}", Grouped(count)));
    let parts = [
        counted("returned", trial.returned),
        counted("documents", trial.docs_examined),
        counted("keys", trial.keys_examined),
        counted("works", trial.stages.works),
        trial.has_failed().then(|| "failed".to_owned()),
    ];
    format!("in the trial {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Writes the report as one object.
///
/// # Errors
/// Those of `out`.
pub fn json(view: &ExplainView<'_>, out: impl Write) -> io::Result<()> {
    format::line(&ExplainDocument::new(view), out)
}

/// An output of `explain` in a file.
pub struct ExplainOutput<'a> {
    /// The name of the file.
    pub file: &'a str,
    /// What it says.
    pub view: ExplainView<'a>,
}

/// Writes the document of a page with these outputs, those of a file one after another.
///
/// # Errors
/// Those of `out`.
pub fn page(outputs: &[ExplainOutput<'_>], out: impl Write) -> io::Result<()> {
    let mut sources: Vec<String> = outputs.iter().map(|output| output.file.to_owned()).collect();
    sources.dedup();
    let mut hosts: Vec<&str> =
        outputs.iter().filter_map(|output| output.view.explained.server.as_deref()).collect();
    hosts.dedup();
    let host = (!hosts.is_empty()).then(|| hosts.join(", "));
    let document = ExplainReportDocument {
        schema: SCHEMA,
        kind: "explain_report",
        about: About::new(host, sources, None),
        outputs: outputs.iter().map(ExplainOutputJson::new).collect(),
    };
    format::line(&document, out)
}

/// Outputs of `explain` on a page.
#[derive(Serialize, TS)]
pub(crate) struct ExplainReportDocument<'a> {
    /// Version of the schema.
    schema: u32,
    /// `explain_report`.
    #[ts(type = "\"explain_report\"")]
    kind: &'static str,
    /// Where it comes from.
    about: About,
    /// The outputs.
    outputs: Vec<ExplainOutputJson<'a>>,
}

/// An output of `explain` on a page.
#[derive(Serialize, TS)]
struct ExplainOutputJson<'a> {
    /// The name of its file.
    file: &'a str,
    /// What was explained, and what it did.
    summary: String,
    /// The query; empty if it is not known.
    query: String,
    /// Server, version and engine, as far as they are known; null if none is.
    server: Option<String>,
    /// What stands out, or that nothing does.
    findings: Vec<String>,
    /// What is missing; null if nothing is.
    incomplete: Option<&'static str>,
    /// Plans that were rejected.
    rejected: Vec<String>,
    /// What `--json` writes.
    report: ExplainDocument<'a>,
}

impl<'a> ExplainOutputJson<'a> {
    fn new(output: &'a ExplainOutput<'_>) -> Self {
        let ExplainOutput { file, view } = output;
        let explained = view.explained;
        let mut findings: Vec<_> = view.findings.iter().map(|one| sentence(one, view.shows_values)).collect();
        if findings.is_empty() {
            findings.push(nothing_found(explained));
        }
        Self {
            file,
            summary: summary(explained),
            query: query(view),
            server: about(explained),
            findings,
            incomplete: explained.is_incomplete.then_some(INCOMPLETE),
            rejected: rejected_plans(explained),
            report: ExplainDocument::new(view),
        }
    }
}

impl<'a> ExplainDocument<'a> {
    fn new(view: &'a ExplainView<'_>) -> Self {
        let (explained, shows_values) = (view.explained, view.shows_values);
        let shape = explained.shape.as_ref();
        Self {
            schema: SCHEMA,
            kind: "explain",
            command: &explained.command,
            namespace: &explained.namespace,
            shape_id: shape.map(|shape| Shown(shape.id)),
            shape: shape.map(|shape| &*shape.typed),
            identity: explained.identity.filter(|_| shape.is_some()).map(|identity| identity.name()),
            server: explained.server.as_deref(),
            version: explained.version.as_deref(),
            executed: explained.is_executed,
            incomplete: explained.is_incomplete,
            time_ms: explained.totals.time_ms,
            returned: explained.totals.returned,
            docs_examined: explained.totals.docs_examined,
            keys_examined: explained.totals.keys_examined,
            findings: view.findings.iter().map(|one| FindingJson::new(one, shows_values)).collect(),
            indexes: &view.indexes,
            stages: StageJson::new(&explained.stages, shows_values),
            plans: explained.plans.iter().map(|plan| ServerPlanJson::new(plan, shows_values)).collect(),
            values: shows_values.then_some(&*explained.values),
        }
    }
}

#[derive(Serialize, TS)]
struct ExplainDocument<'a> {
    schema: u32,
    kind: &'static str,
    command: &'a str,
    namespace: &'a str,
    shape_id: Option<Shown<ShapeId>>,
    shape: Option<&'a str>,
    identity: Option<&'static str>,
    server: Option<&'a str>,
    version: Option<&'a str>,
    executed: bool,
    incomplete: bool,
    time_ms: Option<u64>,
    returned: Option<u64>,
    docs_examined: Option<u64>,
    keys_examined: Option<u64>,
    findings: Vec<FindingJson<'a>>,
    indexes: &'a [IndexHint],
    stages: StageJson<'a>,
    plans: Vec<ServerPlanJson<'a>>,
    /// Only where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    values: Option<&'a str>,
}

#[derive(Serialize, TS)]
struct FindingJson<'a> {
    kind: &'static str,
    shard: Option<&'a str>,
    text: String,
}

impl<'a> FindingJson<'a> {
    fn new(one: &'a LocatedFinding, shows_values: bool) -> Self {
        let text = sentence(one, shows_values);
        Self { kind: kind(&one.finding), shard: one.shard.as_deref(), text }
    }
}

/// What one server or shard planned.
#[derive(Serialize, TS)]
struct ServerPlanJson<'a> {
    shard: Option<&'a str>,
    namespace: &'a str,
    engine: Option<&'static str>,
    cached: Option<bool>,
    asked: &'a str,
    winning: String,
    rejected: Vec<StageJson<'a>>,
    trials: Vec<TrialJson>,
}

#[derive(Serialize, TS)]
struct TrialJson {
    access: Vec<String>,
    returned: Option<u64>,
    docs_examined: Option<u64>,
    keys_examined: Option<u64>,
    works: Option<u64>,
    score: Option<f64>,
    failed: bool,
}

impl<'a> ServerPlanJson<'a> {
    fn new(plan: &'a ServerPlan, shows_values: bool) -> Self {
        let trials = plan.trials.iter().map(|trial| TrialJson {
            access: trial.stages.access_paths(),
            returned: trial.returned,
            docs_examined: trial.docs_examined,
            keys_examined: trial.keys_examined,
            works: trial.stages.works,
            score: trial.score,
            failed: trial.has_failed(),
        });
        Self {
            shard: plan.shard.as_deref(),
            namespace: &plan.namespace,
            engine: plan.engine.map(|engine| engine.name()),
            cached: plan.is_cached,
            asked: &plan.asked,
            winning: plan.winning.summary(),
            rejected: plan.rejected.iter().map(|one| StageJson::new(one, shows_values)).collect(),
            trials: trials.collect(),
        }
    }
}

/// A stage and its inputs.
#[derive(Serialize, TS)]
struct StageJson<'a> {
    stage: &'a str,
    shard: Option<&'a str>,
    returned: Option<u64>,
    affected: Option<u64>,
    time_ms: Option<u64>,
    own_ms: Option<u64>,
    docs_examined: Option<u64>,
    keys_examined: Option<u64>,
    works: Option<u64>,
    index: Option<&'a str>,
    key_pattern: Option<&'a str>,
    sort: Option<&'a str>,
    limit: Option<u64>,
    skip: Option<u64>,
    memory_bytes: Option<u64>,
    used_disk: bool,
    spills: Option<u64>,
    spilled_bytes: Option<u64>,
    estimated: Option<f64>,
    failed: bool,
    filter: Option<&'a str>,
    details: String,
    inputs: Vec<Self>,
}

impl<'a> StageJson<'a> {
    fn new(stage: &'a ExplainStage, shows_values: bool) -> Self {
        Self {
            stage: &stage.name,
            shard: stage.shard.as_deref(),
            returned: stage.returned,
            affected: stage.affected,
            time_ms: stage.time_ms,
            own_ms: stage.own_ms(),
            docs_examined: stage.docs_examined,
            keys_examined: stage.keys_examined,
            works: stage.works,
            index: stage.index.as_deref(),
            key_pattern: stage.key_pattern.as_deref(),
            sort: stage.sort.as_deref(),
            limit: stage.limit,
            skip: stage.skip,
            memory_bytes: stage.memory_bytes,
            used_disk: stage.used_disk,
            spills: stage.spills,
            spilled_bytes: stage.spilled_bytes,
            estimated: stage.estimated,
            failed: stage.has_failed,
            filter: stage.filter.as_ref().map(|filter| words::shown(filter, shows_values)),
            details: details(stage, shows_values),
            inputs: stage.inputs.iter().map(|input| Self::new(input, shows_values)).collect(),
        }
    }
}
