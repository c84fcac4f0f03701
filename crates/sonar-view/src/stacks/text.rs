//! The text of `stacks`: what threads wait for, by role, and the most frequent stacks.

use std::collections::BTreeMap;
use std::io::{self, Write};

use sonar_core::stacks::without_namespace;

use super::formats::shown;
use super::report::{StackReport, StackRow};
use crate::kit::{Fitting, Grouped, Heading, Nanos, Percent, TextTable, escape, plural, wrap};

/// The fewest columns of a line of functions.
const LEAST: usize = 40;
/// Where functions begin in a line.
const INDENT: usize = 4;

impl StackReport {
    /// Writes a table by class and role, and at most `limit` stacks below it, in lines of `width` columns.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, limit: usize, width: usize, out: &mut Fitting<W>) -> io::Result<()> {
        writeln!(out, "{}", self.head())?;
        for limit in self.limits.iter().cloned().chain(self.left_out()) {
            // It may contain the path of a file.
            writeln!(out, "{}", escape(&limit))?;
        }
        if self.stacks.is_empty() {
            return out.flush();
        }
        writeln!(out)?;
        self.table().write(out)?;
        writeln!(out)?;
        for row in self.stacks.iter().take(limit) {
            writeln!(out, "{}", escape(&self.row_head(row)))?;
            let line = functions(row, self.full_names);
            for part in wrap(escape(&line).as_ref(), width.saturating_sub(INDENT).max(LEAST)) {
                writeln!(out, "{:INDENT$}{part}", "")?;
            }
        }
        if let Some(more) = self.stacks.len().checked_sub(limit).filter(|more| *more > 0) {
            writeln!(out, "{}: --limit shows more", plural(more as u64, "more stack"))?;
        }
        out.flush()
    }

    fn head(&self) -> String {
        let cost = match self.walk_ns_per_thread {
            Some(ns) => format!("; {} of CPU time per thread and snapshot", Nanos(ns)),
            None => String::new(),
        };
        format!(
            "{} {}: {}, {}, {}{cost}",
            escape(&self.process.name),
            self.process.pid,
            plural(self.threads, "thread"),
            plural(self.snapshots, "snapshot"),
            plural(self.samples, "sample"),
        )
    }

    /// What is not in the table, a sentence each.
    fn left_out(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.idle > 0 {
            lines.push(format!(
                "Not shown: {} of idle threads (--all shows them)",
                plural(self.idle, "sample")
            ));
        }
        if self.not_asked > 0 {
            lines.push(format!("Not shown: {} of other threads", plural(self.not_asked, "sample")));
        }
        if self.cut > 0 {
            lines.push(format!("Incomplete stacks: {}", plural(self.cut, "sample")));
        }
        if self.lost > 0 {
            lines.push(format!(
                "Lost: {} of running threads, as the kernel's buffer was full",
                plural(self.lost, "sample")
            ));
        }
        if self.without_frames > 0 {
            lines.push(format!(
                "Counted without functions: {}, as there are too many different stacks",
                plural(self.without_frames, "sample")
            ));
        }
        lines
    }

    fn share(&self, samples: u64) -> String {
        format!("{:.1}", Percent(samples as f64 / self.shown.max(1) as f64))
    }

    fn table(&self) -> TextTable {
        let mut groups: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for row in &self.stacks {
            *groups.entry((row.class.as_str(), role(row))).or_default() += row.samples;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let mut table = TextTable::new(&[
            Heading::figure("samples", 0),
            Heading::figure("share", 0),
            Heading::text("class", 0, 20),
            Heading::text("threads", 1, 12),
        ])
        .spaced();
        for ((class, role), samples) in groups {
            table.row([Grouped(samples).to_string(), self.share(samples), class.to_owned(), role.to_owned()]);
        }
        table
    }

    fn row_head(&self, row: &StackRow) -> String {
        let call = row.call.as_ref().map_or(String::new(), |call| format!(" in {call}"));
        let threads = plural(row.threads, "thread");
        format!("{} {}{call}, {}, {threads}", self.share(row.samples), row.class, role(row))
    }
}

fn role(row: &StackRow) -> &str {
    row.role.as_deref().unwrap_or("other threads")
}

/// The functions from the innermost to the outermost, and why they end.
fn functions(row: &StackRow, is_full: bool) -> String {
    let name = |function: &str, library: Option<&str>| match library {
        Some(library) if function == "?" => format!("? in {library}"),
        _ if is_full => function.to_owned(),
        _ => without_namespace(function).to_owned(),
    };
    let frames = shown(&row.frames, is_full).into_iter();
    let mut names: Vec<String> =
        frames.map(|frame| name(&frame.function, frame.library.as_deref())).collect();
    if let Some(cut) = &row.cut {
        names.push(format!("… ({cut})"));
    }
    names.join(" < ")
}
