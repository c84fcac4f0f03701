//! The digest as CSV (RFC 4180): a heading, and a line for each row. What is not known is an empty field.

use std::io::{self, Write};

use sonar_core::Figures;
use sonar_core::row::Observed;

use super::{DigestView, main_plan, mean_ns, names};
use crate::kit::CsvLine;

/// Columns of each source, where there are several.
const PER_SOURCE: [&str; 7] = [
    "calls",
    "failed",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p95",
    "latency_ns_p99",
    "latency_ns_max",
];

fn per_source(observed: Option<&Observed>, line: &mut CsvLine) {
    let figures = observed.map(|observed| &observed.figures);
    line.figure(figures.map(|figures| figures.calls));
    line.figure(figures.and_then(Figures::known_failed));
    line.figure(figures.and_then(mean_ns).map(|ns| ns.round() as u64));
    for q in [0.5, 0.95, 0.99, 1.0] {
        line.figure(figures.and_then(|figures| figures.latency.quantile_ns(q)));
    }
}

/// Writes the digest.
///
/// # Errors
/// Those of `out`.
pub fn csv(view: &DigestView<'_>, mut out: impl Write) -> io::Result<()> {
    let mut line = CsvLine::default();
    for name in ["by", "shape_id", "identity", "class", "command", "namespace", "text"] {
        line.text(name);
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
        line.text(name);
    }
    for (name, _) in view.digest.totals().sums() {
        line.text(name);
    }
    for name in
        ["examined_per_returned", "collection_scans", "memory_sorts", "plan", "first_seen", "last_seen"]
    {
        line.text(name);
    }
    for summary in view.summaries {
        for name in PER_SOURCE {
            line.text(&format!("{}_{name}", summary.source.name()));
        }
    }
    line.write(&mut out)?;
    for (_, row) in &view.rows {
        let (figures, server) = (row.figures(), row.server());
        let (command, namespace, text) = names(row, view.form);
        let (id, identity, class) = match &row.subject {
            sonar_core::Subject::Shape { identity, shape, .. } => {
                (shape.id.to_string(), identity.name(), row.class.name())
            }
            _ => (String::new(), "", ""),
        };
        for field in [view.digest.settings.by.name(), &id, identity, class, &command, &namespace, &text] {
            line.text(field);
        }
        for count in
            [Some(figures.calls), Some(figures.entries), Some(figures.statements), figures.known_failed()]
        {
            line.figure(count);
        }
        line.figure(view.known_share(row).map(|share| format!("{share:.6}")));
        line.figure(figures.known_latency_ns());
        line.figure(mean_ns(figures).map(|ns| ns.round() as u64));
        for q in [0.5, 0.95, 0.99, 1.0] {
            line.figure(figures.latency.quantile_ns(q));
        }
        for (_, sum) in row.sums() {
            line.figure(sum.get());
        }
        line.figure(row.examined_per_returned().map(|ratio| format!("{ratio:.3}")));
        line.figure(Some(server.totals.collection_scans));
        line.figure(Some(server.totals.memory_sorts));
        line.text(main_plan(row));
        for at in [figures.first_seen, figures.last_seen] {
            line.figure(at.is_known().then_some(at.unix_ns()));
        }
        for summary in view.summaries {
            per_source(row.observed_by(summary.source), &mut line);
        }
        line.write(&mut out)?;
    }
    Ok(())
}
