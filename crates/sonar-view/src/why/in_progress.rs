//! Operations that were still in progress when the trace ended.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;
use sonar_core::time_split::{InFlightOperation, WireOperation};
use ts_rs::TS;

use super::parts::{self, PartJson};
use crate::kit::{Fitting, Heading, Nanos, TextTable, escape};
use crate::shown_part::ShownPart;

/// The most operations to show.
const MAX_SHOWN: usize = 20;

/// An operation in progress, as far as each source saw it.
#[derive(Clone, Debug)]
pub struct UnfinishedOperation {
    /// The thread that executes it.
    pub thread: u32,
    /// Its name.
    pub thread_name: String,
    /// What the kernel measured; `None` if it began before the trace.
    pub in_flight: Option<InFlightOperation>,
    /// Its request; `None` if it was not captured.
    pub wire: Option<WireOperation>,
    /// What the thread waits for, by its stack; `None` if it runs, or could not be sampled.
    pub class: Option<Arc<str>>,
}

/// An operation in progress.
#[derive(Clone, Debug, Serialize, TS)]
pub struct InProgressJson {
    /// The thread that executes it.
    pub thread: u32,
    /// Its name.
    pub thread_name: String,
    /// The client's address; null if unknown.
    pub client: Option<String>,
    /// The application; null if unknown.
    pub app: Option<String>,
    /// The id of the shape; null if the request was not captured.
    pub shape_id: Option<String>,
    /// The command.
    pub command: Option<String>,
    /// `db.collection`.
    pub namespace: Option<String>,
    /// The shape with typed placeholders.
    pub typed: Option<String>,
    /// How long it has taken so far, in nanoseconds; null if it began before the trace.
    pub elapsed_ns: Option<u64>,
    /// What its thread does now; null if it began before the trace.
    pub doing: Option<ShownPart>,
    /// For how long, in nanoseconds.
    pub doing_ns: Option<u64>,
    /// The wait class of its stack, as in `mongosonar stacks`.
    pub class: Option<String>,
    /// Where its time went so far, the largest part first.
    pub parts: Vec<PartJson>,
}

/// The longest operations, those that began before the trace first.
pub(super) fn longest(operations: &[UnfinishedOperation]) -> Vec<InProgressJson> {
    let mut rows: Vec<_> = operations.iter().map(InProgressJson::new).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.elapsed_ns.unwrap_or(u64::MAX)), row.thread));
    rows.truncate(MAX_SHOWN);
    rows
}

impl InProgressJson {
    fn new(operation: &UnfinishedOperation) -> Self {
        let in_flight = operation.in_flight.as_ref();
        let so_far = in_flight.map(|one| &one.operation);
        let connection = so_far.and_then(|one| one.connection);
        let shape = operation.wire.as_ref().map(|wire| &wire.shape);
        let app = operation.wire.as_ref().map(|wire| wire.app.name.to_string());
        Self {
            thread: operation.thread,
            thread_name: operation.thread_name.clone(),
            client: connection.map(|(_, client)| client.to_string()),
            app: app.filter(|name| !name.is_empty()),
            shape_id: shape.map(|shape| shape.id.to_string()),
            command: shape.map(|shape| shape.command.to_string()),
            namespace: shape.map(|shape| shape.namespace()),
            typed: shape.map(|shape| shape.typed.to_string()),
            elapsed_ns: so_far.map(|one| one.duration_ns),
            doing: in_flight.map(|one| ShownPart::Measured(one.doing)),
            doing_ns: in_flight.map(|one| one.operation.end.since(one.since)),
            class: operation.class.as_ref().map(ToString::to_string),
            parts: so_far.map_or_else(Vec::new, |one| parts::of_split(&one.split, one.duration_ns)),
        }
    }

    /// What its thread does now, in words.
    fn now(&self) -> String {
        match (&self.class, self.doing) {
            (Some(class), _) => class.clone(),
            (None, Some(doing)) => doing.words().to_owned(),
            (None, None) => "?".to_owned(),
        }
    }
}

pub(super) fn text<W: Write>(rows: &[InProgressJson], seconds: f64, out: &mut Fitting<W>) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&[
        Heading::whole("STILL IN PROGRESS", 0),
        Heading::figure("so far", 1),
        Heading::text("now", 2, 20),
        Heading::figure("for", 3),
        Heading::text("operation", 0, 20),
    ]);
    for row in rows {
        let shape = [&row.command, &row.namespace, &row.typed].map(|text| text.as_deref().unwrap_or(""));
        let before = || format!("> {}", Nanos((seconds * 1e9) as u64));
        table.row([
            row.thread_name.clone(),
            row.elapsed_ns.map_or_else(before, |ns| Nanos(ns).to_string()),
            escape(&row.now()).to_string(),
            row.doing_ns.map_or_else(String::new, |ns| Nanos(ns).to_string()),
            if row.command.is_some() {
                escape(&shape.join(" ")).to_string()
            } else {
                "not captured".to_owned()
            },
        ]);
    }
    writeln!(out)?;
    table.spaced().write(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_stays_where_there_is_little_room() {
        let row = InProgressJson {
            thread: 7,
            thread_name: "conn123".to_owned(),
            client: None,
            app: None,
            shape_id: None,
            command: Some("update".to_owned()),
            namespace: Some("shop.orders".to_owned()),
            typed: Some("{q: {city: ?string}}".to_owned()),
            elapsed_ns: Some(9_876_000_000),
            doing: None,
            doing_ns: Some(5_432_000_000),
            class: Some("the lock of a collection, which an index build holds".to_owned()),
            parts: Vec::new(),
        };
        for (width, left_out) in [(100, None), (60, Some("now, for")), (40, Some("so far, now, for"))] {
            let mut out = Vec::new();
            text(std::slice::from_ref(&row), 10.0, &mut Fitting::new(&mut out, Some(width))).unwrap();
            let out = String::from_utf8(out).unwrap();
            assert!(out.contains("update shop.orders"), "{out}");
            let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
            let line = left_out.map(|names| format!("(no room for: {names}; --width shows more)"));
            assert_eq!(words.contains("no room"), line.is_some(), "{out}");
            assert!(words.ends_with(&line.unwrap_or_default()), "{out}");
        }
    }
}
