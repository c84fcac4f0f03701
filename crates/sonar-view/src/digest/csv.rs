//! The digest as CSV (RFC 4180): a heading, and a line for each row. What is not known is an empty field.

use std::io::{self, Write};

use super::{View, main_plan, mean_ns, names};
use crate::csv::Line;

/// Writes the digest.
///
/// # Errors
/// Those of `out`.
pub fn write(view: &View<'_>, mut out: impl Write) -> io::Result<()> {
    let mut heading = Line::default();
    for name in ["by", "shape_id", "identity", "class", "command", "namespace", "text"] {
        heading.text(name);
    }
    for name in [
        "calls",
        "entries",
        "statements",
        "failed",
        "time_share",
        "latency_ns_sum",
        "latency_ns_mean",
        "latency_ns_p50",
        "latency_ns_p95",
        "latency_ns_p99",
        "latency_ns_max",
    ] {
        heading.text(name);
    }
    for (name, _) in view.digest.totals.sums() {
        heading.text(name);
    }
    for name in
        ["examined_per_returned", "collection_scans", "memory_sorts", "plan", "first_seen", "last_seen"]
    {
        heading.text(name);
    }
    heading.write(&mut out)?;
    for (_, row) in &view.rows {
        let tally = &row.tally;
        let (command, namespace, text) = names(row, view.form);
        let (id, identity, class) = match &row.subject {
            sonar_core::digest::Subject::Shape { class, identity, shape, .. } => {
                (shape.id.to_string(), identity.name(), class.name())
            }
            _ => (String::new(), "", ""),
        };
        let mut line = Line::default();
        for field in [view.digest.settings.by.name(), &id, identity, class, &command, &namespace, &text] {
            line.text(field);
        }
        for count in [tally.calls, tally.entries, tally.statements, tally.failed] {
            line.figure(Some(count));
        }
        line.figure(Some(format!("{:.6}", view.share(tally))));
        line.figure(Some(tally.latency.sum_ns()));
        line.figure(mean_ns(tally).map(|ns| ns.round() as u64));
        for q in [0.5, 0.95, 0.99, 1.0] {
            line.figure(tally.latency.quantile_ns(q));
        }
        for (_, sum) in tally.sums() {
            line.figure(sum.get());
        }
        line.figure(tally.examined_per_returned().map(|ratio| format!("{ratio:.3}")));
        line.figure(Some(tally.collection_scans));
        line.figure(Some(tally.memory_sorts));
        line.text(main_plan(tally));
        line.figure(Some(tally.first_seen.unix_ns()));
        line.figure(Some(tally.last_seen.unix_ns()));
        line.write(&mut out)?;
    }
    Ok(())
}
