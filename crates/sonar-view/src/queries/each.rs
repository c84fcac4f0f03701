//! Every operation as it ends, one line: for people, or JSON.
//!
//! It runs for each operation, so it builds no strings.

use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use sonar_core::time::NS_PER_S;
use sonar_core::{Endpoint, Operation, Outcome, ShapeId, ShapeInfo, Statement};

use super::Form;
use crate::kit::json::{Shown, line, name};
use crate::kit::{Count, Escaped, Nanos, UNKNOWN, Zone};

/// Writes one line for people: time, client, namespace, command, latency, bytes in and out, documents,
/// outcome, shape, and the values where they were asked for.
///
/// # Errors
/// Those of `out`.
pub fn text(op: &Operation<'_>, form: Form, zone: &Zone, mut out: impl Write) -> io::Result<()> {
    let shape = &**op.shape;
    if zone.is_utc() {
        write_time(op.end.unix_ns(), &mut out)?;
    } else {
        write!(out, "{}", zone.show_micros(op.end))?;
    }
    write!(out, " {} ", op.client)?;
    write_namespace(shape, &mut out)?;
    write!(out, " {} ", Escaped(op.command))?;
    match op.latency_ns {
        Some(ns) => write!(out, "{}", Nanos(ns))?,
        None => out.write_all(UNKNOWN.as_bytes())?,
    }
    write!(out, " in={} out={}", Count(op.request_bytes as f64), Count(op.response_bytes as f64))?;
    for (name, docs) in
        [("returned", op.docs_returned), ("matched", op.docs_matched), ("affected", op.docs_affected)]
    {
        if let Some(docs) = docs {
            write!(out, " {name}={docs}")?;
        }
    }
    if op.statement_count > 1 {
        write!(out, " statements={}", op.statement_count)?;
    }
    write!(out, " {}", op.outcome.name())?;
    if let Outcome::Failed(errors) = op.outcome {
        for (at, &(code, count)) in errors.codes.iter().enumerate() {
            out.write_all(if at == 0 { b"=" } else { b"," })?;
            match count {
                1 => write!(out, "{code}")?,
                _ => write!(out, "{code}x{count}")?,
            }
        }
    }
    write!(out, " {}", Escaped(form.of(shape)))?;
    if shape.cut {
        out.write_all("…".as_bytes())?;
    }
    if let Some(values) = op.values {
        write!(out, " values={}", Escaped(values))?;
    }
    out.write_all(b"\n")
}

/// `database.collection`, as far as it is known.
pub(crate) fn write_namespace(shape: &ShapeInfo, out: &mut impl Write) -> io::Result<()> {
    match (&*shape.database, &*shape.collection) {
        ("", "") => out.write_all(UNKNOWN.as_bytes()),
        (database, "") => write!(out, "{}", Escaped(database)),
        (database, collection) => write!(out, "{}.{}", Escaped(database), Escaped(collection)),
    }
}

/// RFC 3339 in UTC with microseconds.
fn write_time(ns: u64, out: &mut impl Write) -> io::Result<()> {
    let full = TimeText::new(ns);
    // `YYYY-MM-DDTHH:MM:SS.mmmuuu` of `…nnnZ`.
    out.write_all(full.as_bytes().get(..26).unwrap_or_default())?;
    out.write_all(b"Z")
}

/// A time as text on the stack.
struct TimeText {
    bytes: [u8; 40],
    len: usize,
}

impl TimeText {
    fn new(ns: u64) -> Self {
        let mut text = Self { bytes: [0; 40], len: 0 };
        let mut rest = &mut text.bytes[..];
        let time = sonar_core::Timestamp::from_unix(ns / NS_PER_S, (ns % NS_PER_S) as u32);
        // Years up to 2554 fit, and so does the whole range of a timestamp.
        let _ = write!(rest, "{time}");
        let left = rest.len();
        text.len = text.bytes.len() - left;
        text
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes one line of JSON; names and meanings are in `docs/queries.md`.
///
/// # Errors
/// Those of `out`.
pub fn json(op: &Operation<'_>, form: Form, out: impl Write) -> io::Result<()> {
    let shape = &**op.shape;
    let document = EachDocument {
        start_ns: op.start.unix_ns(),
        end_ns: op.end.unix_ns(),
        latency_ns: op.latency_ns,
        transfer_ns: op.transfer_ns,
        client: Shown(op.client),
        server: Shown(op.server),
        role: op.role.name(),
        class: op.class.name(),
        command: op.command,
        database: name(&shape.database),
        collection: name(&shape.collection),
        shape_id: Shown(shape.id),
        ordered_id: Shown(op.ordered_id),
        shape: form.of(shape),
        shape_cut: shape.cut,
        statements: op.statement_count,
        statement_shapes: Statements(op.statements),
        request_id: op.request_id,
        cursor_id: op.cursor_id,
        opcode: op.opcode.name(),
        compressor: op.compressor.map(|compressor| compressor.name()),
        tls: op.tls.is_some(),
        tls_version: op.tls.and_then(|suite| suite.version_name()),
        tls_cipher: op.tls.and_then(|suite| suite.cipher_name()),
        app: name(&op.app.name),
        driver: name(&op.app.driver),
        driver_version: name(&op.app.driver_version),
        joined_late: op.app.joined_late,
        request_bytes: op.request_bytes,
        response_bytes: op.response_bytes,
        docs_returned: op.docs_returned,
        docs_matched: op.docs_matched,
        docs_affected: op.docs_affected,
        outcome: op.outcome.name(),
        errors: EachErrors(op.outcome),
        values: op.values,
    };
    line(&document, out)
}

#[derive(Serialize)]
struct EachDocument<'a> {
    start_ns: u64,
    end_ns: u64,
    latency_ns: Option<u64>,
    transfer_ns: Option<u64>,
    client: Shown<Endpoint>,
    server: Shown<Endpoint>,
    role: &'static str,
    class: &'static str,
    command: &'a str,
    database: Option<&'a str>,
    collection: Option<&'a str>,
    shape_id: Shown<ShapeId>,
    ordered_id: Shown<ShapeId>,
    shape: &'a str,
    shape_cut: bool,
    statements: u32,
    statement_shapes: Statements<'a>,
    request_id: u32,
    cursor_id: Option<i64>,
    opcode: &'static str,
    compressor: Option<&'static str>,
    tls: bool,
    tls_version: Option<&'static str>,
    tls_cipher: Option<String>,
    app: Option<&'a str>,
    driver: Option<&'a str>,
    driver_version: Option<&'a str>,
    joined_late: bool,
    request_bytes: u64,
    response_bytes: u64,
    docs_returned: Option<u64>,
    docs_matched: Option<u64>,
    docs_affected: Option<u64>,
    outcome: &'static str,
    errors: EachErrors<'a>,
    /// Only where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<&'a str>,
}

struct Statements<'a>(&'a [Statement]);

impl Serialize for Statements<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for statement in self.0 {
            map.serialize_entry(&format_args!("{}", statement.shape), &statement.count)?;
        }
        map.end()
    }
}

struct EachErrors<'a>(Outcome<'a>);

impl Serialize for EachErrors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let codes = if let Outcome::Failed(errors) = self.0 { errors.codes } else { &[] };
        let mut map = serializer.serialize_map(Some(codes.len()))?;
        for (code, count) in codes {
            map.serialize_entry(code, count)?;
        }
        map.end()
    }
}
