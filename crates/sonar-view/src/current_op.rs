//! Operations in flight, read from saved output of `currentOp`: text, JSON and the document of a page.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sonar_core::history::Span;
use sonar_core::{CurrentOperation, CurrentOperations, CurrentWait, Identity, ShapeId};
use ts_rs::TS;

use crate::kit::json::Shown;
use crate::kit::{
    About, Count, Fitting, Heading, Nanos, TextTable, UNKNOWN, Zone, escape, json as format, or_unknown,
    plural,
};
use crate::queries::Form;

/// Version of the schema: it grows when a field changes its meaning or goes.
const SCHEMA: u32 = 1;

/// Operations in flight, ready to be written.
pub struct CurrentView<'a> {
    /// What was read.
    pub current: &'a CurrentOperations,
    /// The operations that are shown, the oldest first; those that wait by design are last.
    pub shown: Vec<&'a CurrentOperation>,
    /// How many there were before the limit.
    pub matching: usize,
    /// Which text of a shape.
    pub form: Form,
    /// In which zone times are shown.
    pub zone: Zone,
}

impl<'a> CurrentView<'a> {
    /// Sorts the operations that are `wanted` by age, and keeps up to `limit`.
    pub fn new(
        current: &'a CurrentOperations,
        limit: usize,
        wanted: impl Fn(&CurrentOperation) -> bool,
    ) -> Self {
        let mut shown: Vec<_> = current.operations.iter().filter(|operation| wanted(operation)).collect();
        shown.sort_by_key(|operation| (operation.awaits_topology, std::cmp::Reverse(operation.age_us)));
        let matching = shown.len();
        shown.truncate(limit);
        Self { current, shown, matching, form: Form::default(), zone: Zone::default() }
    }
}

/// What an operation waits for, in words.
pub(crate) fn wait(wait: &CurrentWait) -> String {
    match wait {
        CurrentWait::Lock => "a lock".to_owned(),
        CurrentWait::Latch(name) => format!("the latch {name}"),
        CurrentWait::FlowControl => "flow control".to_owned(),
        CurrentWait::Queue(name) => format!("the queue {name}"),
    }
}

/// One sentence: how many there are, how old the oldest is, and what they wait for.
pub fn sentence(current: &CurrentOperations, zone: &Zone) -> String {
    let at = current.at().map_or_else(String::new, |at| format!(" at {}", zone.show(at)));
    let mut text = format!("{} in flight{at}", plural(Count(current.operations.len() as f64), "operation"));
    if let Some((oldest, age_us)) = current.oldest().and_then(|oldest| Some((oldest, oldest.age_us?))) {
        let namespace = oldest.shape.namespace();
        text.push_str(&format!(", the oldest for {} ({} {namespace})", age(age_us), oldest.command));
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for one in current.operations.iter().flat_map(|operation| &operation.waits) {
        *reasons.entry(wait(one)).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    if !reasons.is_empty() {
        let verb = |count: usize| if count == 1 { "waits" } else { "wait" };
        let parts: Vec<_> =
            reasons.iter().map(|(what, count)| format!("{count} {} for {what}", verb(*count))).collect();
        text.push_str(&format!("; {}", parts.join(", ")));
    }
    match current.awaiting() {
        0 => {}
        1 => text.push_str("; 1 is a hello that waits for a change of the topology, by design"),
        count => {
            text.push_str(&format!("; {count} are hellos that wait for a change of the topology, by design"));
        }
    }
    text
}

fn age(us: u64) -> Nanos {
    Nanos(us.saturating_mul(1_000))
}

/// What is not shown, and why, a line each.
fn left_out(view: &CurrentView<'_>) -> Vec<String> {
    let current = view.current;
    let hidden = (current.operations.len() - view.matching.min(current.operations.len())) as u64;
    let others = [
        (hidden, "operation", "of other classes, or without the text of --filter, not shown (--class all)"),
        (current.idle, "entry", "of idle connections, sessions and cursors not shown"),
        (current.malformed, "document", "could not be read"),
        (current.beyond, "operation", "beyond the cap not shown"),
    ];
    let line =
        |(count, noun, what): (u64, &str, &str)| format!("{} {what}", plural(Count(count as f64), noun));
    others.into_iter().filter(|(count, ..)| *count > 0).map(line).collect()
}

/// Writes the report.
///
/// # Errors
/// Those of `out`.
pub fn text<W: Write>(view: &CurrentView<'_>, out: &mut Fitting<W>) -> io::Result<()> {
    writeln!(out, "{}", escape(&sentence(view.current, &view.zone)))?;
    for line in left_out(view) {
        writeln!(out, "  {line}")?;
    }
    if view.shown.is_empty() {
        return out.flush();
    }
    let mut table = TextTable::new(&[
        Heading::figure("age", 0),
        Heading::text("waits for", 1, 6),
        Heading::figure("lock wait", 4),
        Heading::figure("yields", 5),
        Heading::figure("done", 3),
        Heading::text("thread", 6, 4),
        Heading::text("opid", 2, 4),
        Heading::text("client", 7, 8),
        Heading::text("application", 8, 8),
        Heading::text("plan", 3, 10),
        Heading::text("command", 0, 9),
        Heading::text("namespace", 0, 12),
        Heading::text("shape", 0, 20),
    ]);
    for one in &view.shown {
        let by_design = one.awaits_topology.then(|| "topology (by design)".to_owned());
        let waits: Vec<_> = one.waits.iter().map(wait).chain(by_design).collect();
        let mut waits = waits.join(", ");
        if one.is_killed {
            waits.push_str(if waits.is_empty() { "killed" } else { ", killed" });
        }
        let shown = |text: &str| if text.is_empty() { UNKNOWN.to_owned() } else { text.to_owned() };
        let percent =
            |(done, total): (u64, u64)| format!("{:.0}%", done as f64 * 100.0 / total.max(1) as f64);
        let shape = view.form.of(&one.shape);
        table.row([
            or_unknown(one.age_us.map(age)),
            shown(&waits),
            or_unknown(one.lock_wait_us.map(age)),
            or_unknown(one.yields),
            or_unknown(one.progress.map(percent)),
            shown(&one.thread),
            shown(&one.id),
            shown(&one.client),
            shown(&one.app),
            shown(&one.plan),
            one.command.to_string(),
            one.shape.namespace(),
            match one.identity {
                Identity::Exact => shape.to_owned(),
                Identity::Partial => format!("(partial) {shape}"),
                Identity::Ambiguous | Identity::Unknown => UNKNOWN.to_owned(),
            },
        ]);
    }
    table.keep(|title| match title {
        "waits for" => {
            view.shown.iter().any(|one| !one.waits.is_empty() || one.is_killed || one.awaits_topology)
        }
        "lock wait" => view.shown.iter().any(|one| one.lock_wait_us.is_some()),
        "done" => view.shown.iter().any(|one| one.progress.is_some()),
        _ => true,
    });
    writeln!(out)?;
    table.write(out)?;
    if view.matching > view.shown.len() {
        writeln!(out, "… and {}", plural(view.matching - view.shown.len(), "more operation"))?;
    }
    out.flush()
}

/// Writes the report as one object.
///
/// # Errors
/// Those of `out`.
pub fn json(view: &CurrentView<'_>, out: impl Write) -> io::Result<()> {
    format::line(&CurrentDocument::new(view), out)
}

/// The operations of a file.
pub struct CurrentFileView<'a> {
    /// The name of the file.
    pub name: &'a str,
    /// What it holds.
    pub view: CurrentView<'a>,
}

/// Writes the document of a page with the operations of these files.
///
/// # Errors
/// Those of `out`.
pub fn page(files: &[CurrentFileView<'_>], out: impl Write) -> io::Result<()> {
    let sources = files.iter().map(|file| file.name.to_owned()).collect();
    let at = || files.iter().filter_map(|file| file.view.current.at());
    let span = at().min().zip(at().max()).map(|(from, to)| Span { from, to });
    let document = CurrentReportDocument {
        schema: SCHEMA,
        kind: "current_operations_report",
        about: About::new(None, sources, span),
        files: files.iter().map(CurrentFileJson::new).collect(),
    };
    format::line(&document, out)
}

/// Operations in flight on a page.
#[derive(Serialize, TS)]
pub(crate) struct CurrentReportDocument<'a> {
    /// Version of the schema.
    schema: u32,
    /// `current_operations_report`.
    #[ts(type = "\"current_operations_report\"")]
    kind: &'static str,
    /// Where it comes from.
    about: About,
    /// What each file holds.
    files: Vec<CurrentFileJson<'a>>,
}

/// The operations of a file on a page.
#[derive(Serialize, TS)]
struct CurrentFileJson<'a> {
    /// The name of the file.
    name: &'a str,
    /// How many there are, how old the oldest is, and what they wait for.
    sentence: String,
    /// What is not shown, and why.
    left_out: Vec<String>,
    /// What `--json` writes.
    report: CurrentDocument<'a>,
}

impl<'a> CurrentFileJson<'a> {
    fn new(file: &'a CurrentFileView<'_>) -> Self {
        let CurrentFileView { name, view } = file;
        let (sentence, left_out) = (sentence(view.current, &view.zone), left_out(view));
        Self { name, sentence, left_out, report: CurrentDocument::new(view) }
    }
}

impl<'a> CurrentDocument<'a> {
    fn new(view: &'a CurrentView<'_>) -> Self {
        let current = view.current;
        Self {
            schema: SCHEMA,
            kind: "current_operations",
            at_ns: current.at().map(|at| at.unix_ns()),
            in_flight: current.operations.len(),
            matching: view.matching,
            oldest_us: current.oldest().and_then(|oldest| oldest.age_us),
            awaiting_topology: current.awaiting(),
            waiting_for_lock: current.waiting(|wait| *wait == CurrentWait::Lock),
            waiting_for_latch: current.waiting(|wait| matches!(wait, CurrentWait::Latch(_))),
            waiting_for_flow_control: current.waiting(|wait| *wait == CurrentWait::FlowControl),
            waiting_in_queues: current.waiting(|wait| matches!(wait, CurrentWait::Queue(_))),
            idle: current.idle,
            malformed: current.malformed,
            beyond_cap: current.beyond,
            operations: view.shown.iter().map(|one| CurrentOperationJson::new(one)).collect(),
        }
    }
}

#[derive(Serialize, TS)]
struct CurrentDocument<'a> {
    schema: u32,
    kind: &'static str,
    at_ns: Option<u64>,
    in_flight: usize,
    matching: usize,
    oldest_us: Option<u64>,
    awaiting_topology: usize,
    waiting_for_lock: usize,
    waiting_for_latch: usize,
    waiting_for_flow_control: usize,
    waiting_in_queues: usize,
    idle: u64,
    malformed: u64,
    beyond_cap: u64,
    operations: Vec<CurrentOperationJson<'a>>,
}

#[derive(Serialize, TS)]
struct CurrentOperationJson<'a> {
    age_us: Option<u64>,
    waits: Vec<CurrentWaitJson<'a>>,
    lock_wait_us: Option<u64>,
    yields: Option<u64>,
    /// Done, and of how many.
    progress: Option<(u64, u64)>,
    killed: bool,
    awaits_topology: bool,
    opid: &'a str,
    thread: &'a str,
    client: &'a str,
    app: &'a str,
    plan: &'a str,
    class: &'static str,
    command: &'a str,
    namespace: String,
    shape_id: Shown<ShapeId>,
    identity: &'static str,
    shape: &'a str,
}

#[derive(Serialize, TS)]
struct CurrentWaitJson<'a> {
    kind: &'static str,
    name: Option<&'a str>,
}

impl<'a> CurrentOperationJson<'a> {
    fn new(one: &'a CurrentOperation) -> Self {
        Self {
            age_us: one.age_us,
            waits: one.waits.iter().map(CurrentWaitJson::from).collect(),
            lock_wait_us: one.lock_wait_us,
            yields: one.yields,
            progress: one.progress,
            killed: one.is_killed,
            awaits_topology: one.awaits_topology,
            opid: &one.id,
            thread: &one.thread,
            client: &one.client,
            app: &one.app,
            plan: &one.plan,
            class: one.class.name(),
            command: &one.command,
            namespace: one.shape.namespace(),
            shape_id: Shown(one.shape.id),
            identity: one.identity.name(),
            shape: &one.shape.typed,
        }
    }
}

impl<'a> From<&'a CurrentWait> for CurrentWaitJson<'a> {
    fn from(wait: &'a CurrentWait) -> Self {
        let (kind, name) = match wait {
            CurrentWait::Lock => ("lock", None),
            CurrentWait::Latch(name) => ("latch", Some(&**name)),
            CurrentWait::FlowControl => ("flow_control", None),
            CurrentWait::Queue(name) => ("queue", Some(&**name)),
        };
        Self { kind, name }
    }
}
