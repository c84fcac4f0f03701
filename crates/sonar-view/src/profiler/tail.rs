//! `profiler tail`: one line for each operation that the profiler recorded.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::{Endpoint, Execution, Identity, Operation, Outcome, ShapeId, Timestamp};

use crate::kit::json::{Shown, line, name};
use crate::kit::{Bytes, Escaped, Nanos, UNKNOWN, Zone};
use crate::queries::Form;
use crate::queries::each::write_namespace;

/// An operation that the profiler recorded.
#[derive(Copy, Clone, Debug)]
pub struct Profiled<'a> {
    /// What the client asked for.
    pub op: &'a Operation<'a>,
    /// How sure its shape is.
    pub identity: Identity,
    /// What the server did for it.
    pub execution: &'a Execution<'a>,
}

/// Writes one line for people: time of its end, namespace, command, how long it took, plan, keys and
/// documents examined, returned, what else is not zero, application, outcome, shape.
///
/// # Errors
/// Those of `out`.
pub fn text(profiled: &Profiled<'_>, zone: &Zone, mut out: impl Write) -> io::Result<()> {
    let Profiled { op, identity, execution } = *profiled;
    let shape = &**op.shape;
    match op.end.is_known() {
        true => write!(out, "{} ", zone.show(op.end))?,
        false => write!(out, "{UNKNOWN} ")?,
    }
    write_namespace(shape, &mut out)?;
    write!(out, " {} ", Escaped(op.command))?;
    match op.latency_ns {
        Some(0) => out.write_all(b"<1ms")?,
        Some(ns) => write!(out, "{}", Nanos(ns))?,
        None => out.write_all(UNKNOWN.as_bytes())?,
    }
    if !execution.plan.is_empty() {
        write!(out, " plan={}", Escaped(execution.plan))?;
    }
    for (name, value) in [
        ("keys", execution.keys_examined),
        ("examined", execution.docs_examined),
        ("returned", op.docs_returned),
    ] {
        if let Some(value) = value {
            write!(out, " {name}={value}")?;
        }
    }
    for (name, value) in [
        ("affected", op.docs_affected),
        ("yields", execution.yields),
        ("conflicts", execution.write_conflicts),
    ] {
        if let Some(value) = value.filter(|value| *value > 0) {
            write!(out, " {name}={value}")?;
        }
    }
    for (name, us) in [("lockwait", execution.lock_wait_us), ("readtime", execution.storage_read_us)] {
        if let Some(us) = us.filter(|us| *us > 0) {
            write!(out, " {name}={}", Nanos(us.saturating_mul(1_000)))?;
        }
    }
    if let Some(bytes) = execution.storage_read_bytes.filter(|bytes| *bytes > 0) {
        write!(out, " read={}", Bytes(bytes as f64))?;
    }
    if execution.flags.memory_sort {
        out.write_all(b" SORT")?;
    }
    if execution.flags.used_disk {
        out.write_all(b" DISK")?;
    }
    if op.response_bytes > 0 {
        write!(out, " out={}", Bytes(op.response_bytes as f64))?;
    }
    if execution.weight() > 1 {
        write!(out, " weight={}", execution.weight())?;
    }
    if !op.app.name.is_empty() {
        write!(out, " app={}", Escaped(&op.app.name))?;
    }
    if let Outcome::Failed(errors) = op.outcome {
        out.write_all(b" failed")?;
        for (at, (code, _)) in errors.codes.iter().enumerate() {
            write!(out, "{}{code}", if at == 0 { "=" } else { "," })?;
        }
    }
    if identity != Identity::Exact {
        write!(out, " {}", identity.name())?;
    }
    write!(out, " {}", Escaped(&shape.typed))?;
    if shape.cut {
        out.write_all("…".as_bytes())?;
    }
    out.write_all(b"\n")
}

/// Writes one line of JSON; names and meanings are in `docs/profiler.md`.
///
/// # Errors
/// Those of `out`.
pub fn json(profiled: &Profiled<'_>, form: Form, out: impl Write) -> io::Result<()> {
    let Profiled { op, identity, execution } = profiled;
    let shape = &**op.shape;
    let errors = if let Outcome::Failed(errors) = op.outcome { errors.codes } else { &[] };
    let document = ProfiledDocument {
        end_ns: op.end.is_known().then_some(op.end.unix_ns()),
        latency_ns: op.latency_ns,
        client: Shown(op.client),
        class: op.class.name(),
        command: op.command,
        database: name(&shape.database),
        collection: name(&shape.collection),
        shape_id: Shown(shape.id),
        ordered_id: Shown(op.ordered_id),
        identity: identity.name(),
        shape: form.of(shape),
        shape_cut: shape.cut,
        statements: op.statement_count,
        app: name(&op.app.name),
        outcome: op.outcome.name(),
        error_codes: errors.iter().map(|(code, _)| *code).collect(),
        plan: name(execution.plan),
        collection_scan: execution.flags.collection_scan,
        memory_sort: execution.flags.memory_sort,
        used_disk: execution.flags.used_disk,
        replanned: execution.flags.replanned,
        keys_examined: execution.keys_examined,
        docs_examined: execution.docs_examined,
        docs_returned: op.docs_returned,
        docs_affected: op.docs_affected,
        yields: execution.yields,
        write_conflicts: execution.write_conflicts,
        lock_wait_us: execution.lock_wait_us,
        storage_read_bytes: execution.storage_read_bytes,
        storage_read_us: execution.storage_read_us,
        storage_written_bytes: execution.storage_written_bytes,
        cpu_ns: execution.cpu_ns,
        planning_us: execution.planning_us,
        queued_us: execution.queued_us,
        response_bytes: op.response_bytes,
        cursor_id: op.cursor_id,
        query_hash: name(execution.query_hash),
        query_shape_hash: name(execution.query_shape_hash),
        weight: execution.weight(),
    };
    line(&document, out)
}

#[derive(Serialize)]
struct ProfiledDocument<'a> {
    end_ns: Option<u64>,
    latency_ns: Option<u64>,
    client: Shown<Endpoint>,
    class: &'static str,
    command: &'a str,
    database: Option<&'a str>,
    collection: Option<&'a str>,
    shape_id: Shown<ShapeId>,
    ordered_id: Shown<ShapeId>,
    identity: &'static str,
    shape: &'a str,
    shape_cut: bool,
    statements: u32,
    app: Option<&'a str>,
    outcome: &'static str,
    error_codes: Vec<i32>,
    plan: Option<&'a str>,
    collection_scan: bool,
    memory_sort: bool,
    used_disk: bool,
    replanned: bool,
    keys_examined: Option<u64>,
    docs_examined: Option<u64>,
    docs_returned: Option<u64>,
    docs_affected: Option<u64>,
    yields: Option<u64>,
    write_conflicts: Option<u64>,
    lock_wait_us: Option<u64>,
    storage_read_bytes: Option<u64>,
    storage_read_us: Option<u64>,
    storage_written_bytes: Option<u64>,
    cpu_ns: Option<u64>,
    planning_us: Option<u64>,
    queued_us: Option<u64>,
    response_bytes: u64,
    cursor_id: Option<i64>,
    query_hash: Option<&'a str>,
    query_shape_hash: Option<&'a str>,
    weight: u64,
}

/// Documents that were overwritten before they were read.
#[derive(Copy, Clone, Debug)]
pub struct MissedDocuments<'a> {
    /// The database of the profile.
    pub database: &'a str,
    /// When the last document before them ended; `None` where it is not known.
    pub from: Option<Timestamp>,
    /// When the first document after them ended.
    pub to: Option<Timestamp>,
    /// How many, where that can be counted.
    pub documents: Option<u64>,
    /// About how many, by the rate before.
    pub about: Option<u64>,
}

/// Writes one line of JSON about documents that were missed.
///
/// # Errors
/// Those of `out`.
pub fn missed_json(missed: &MissedDocuments<'_>, out: impl Write) -> io::Result<()> {
    let document = MissedDocument {
        missed: true,
        database: missed.database,
        from_ns: missed.from.map(Timestamp::unix_ns),
        to_ns: missed.to.map(Timestamp::unix_ns),
        documents: missed.documents,
        about: missed.about,
    };
    line(&document, out)
}

#[derive(Serialize)]
struct MissedDocument<'a> {
    missed: bool,
    database: &'a str,
    from_ns: Option<u64>,
    to_ns: Option<u64>,
    documents: Option<u64>,
    about: Option<u64>,
}
