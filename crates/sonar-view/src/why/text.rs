//! The report as text.

use std::io::{self, Write};

use super::document::{ShapeTimeJson, SplitCoverageJson, WhyReport};
use super::parts::PartJson;
use super::{files, in_progress, limits};
use crate::kit::{Fitting, Grouped, Heading, Nanos, Percent, TextTable, bar, escape, or_unknown, plural};

/// Wait classes below this share of the time are not shown.
const NOTABLE_CLASS: f64 = 0.01;
/// Columns of a bar.
const BAR: usize = 20;
/// Threads that used less of a processor than this are not shown.
const NOTABLE_CPU: f64 = 0.0005;

impl WhyReport {
    /// `16 processors`; where control groups allow less, `1.5 of 16 processors`.
    fn processors_text(&self) -> String {
        let usable = limits::usable(&self.limits, self.processes.len(), self.processors);
        let all = plural(self.processors as u64, "processor");
        if usable < self.processors as f64 {
            format!("{} of {all}", (usable * 100.0).round() / 100.0)
        } else {
            all
        }
    }

    /// Where most of the time goes, in one sentence.
    fn answer(&self) -> String {
        let Some(shape) = self.shapes.first() else { return self.nothing() };
        let name = format!("{} {}", shape.command, shape.namespace);
        // Operations that were counted together have neither.
        let name = Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or(&shape.typed);
        let share = format!("{name} takes {} of the time", Percent(shape.share));
        match shape.answer.first().and_then(|sentence| sentence.strip_prefix("Of ")) {
            Some(spent) => format!("{share}: of {spent}"),
            None => format!("{share}."),
        }
    }

    /// That there is no shape. Others may have been seen that were not asked for, or whose time cannot be divided.
    fn nothing(&self) -> String {
        let nothing = if self.unseen.is_empty() {
            "No operation that was asked for was followed from beginning to end"
        } else {
            "No operation that was asked for was seen on the wire and followed from beginning to end"
        };
        match self.in_progress_total {
            0 => format!("{nothing}."),
            more => {
                format!("{nothing}; {} in progress when the trace ended.", plural(more as u64, "operation"))
            }
        }
    }

    /// As text: the answer, then all operations, then each shape.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        writeln!(out, "{}", escape(&self.answer()))?;
        writeln!(
            out,
            "{} in {}; {:.2} in progress at a time on {}",
            plural(Grouped(self.operations), "operation"),
            Nanos((self.seconds * 1e9) as u64),
            self.active,
            self.processors_text()
        )?;
        if self.sample_every > 1 {
            writeln!(
                out,
                "Only one connection in {} was followed; the others are left out (--sample 1/1 follows all).",
                self.sample_every
            )?;
        }
        if !self.active_parts.is_empty() {
            writeln!(out)?;
            self.active_text(out)?;
        }
        for shape in &self.shapes {
            writeln!(out)?;
            shape.text(out)?;
        }
        if self.shapes_left_out > 0 {
            writeln!(out, "\n{}: --limit shows more", plural(self.shapes_left_out as u64, "more shape"))?;
        }
        for role in &self.unseen {
            writeln!(out)?;
            role.text(out)?;
        }
        files::text(&self.files, out)?;
        in_progress::text(&self.in_progress, self.seconds, out)?;
        let more = self.in_progress_total - self.in_progress.len();
        if more > 0 {
            writeln!(out, "{} in progress", plural(more as u64, "more operation"))?;
        }
        self.threads_text(out)?;
        self.coverage.text(out)?;
        self.server.text(out)
    }

    fn active_text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let mut table = TextTable::new(&[
            Heading::whole("ALL OPERATIONS", 0),
            Heading::figure("at a time", 1),
            Heading::figure("share", 1),
            Heading::whole("", 9),
            Heading::whole("over time", 8),
        ]);
        for part in &self.active_parts {
            let active = part.ns as f64 / 1e9 / self.seconds.max(f64::MIN_POSITIVE);
            table.row([
                part.part.words().to_owned(),
                format!("{active:.2}"),
                Percent(part.share).to_string(),
                bar(part.share, BAR),
                self.activity.line(part.part),
            ]);
        }
        table.spaced().write(out)?;
        let column = Nanos(self.activity.column_ns());
        writeln!(out, "Over time: each column is {column}; the max is {:.2} at a time.", self.activity.most())
    }

    fn threads_text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let cores = |ns: u64| ns as f64 / 1e9 / self.seconds.max(f64::MIN_POSITIVE);
        let notable = |ns: u64| cores(ns) >= NOTABLE_CPU;
        let mut table = TextTable::new(&[
            Heading::whole("OUTSIDE OPERATIONS", 0),
            Heading::figure("threads", 3),
            Heading::figure("cpu", 1),
            Heading::figure("run queue", 2),
            Heading::figure("reads", 2),
            Heading::figure("writes", 2),
        ]);
        let mut has_rows = false;
        for role in &self.threads {
            if ![role.cpu_ns, role.run_queue_ns, role.read_ns, role.write_ns].into_iter().any(notable) {
                continue;
            }
            has_rows = true;
            let share = |ns: u64| format!("{:.1}", Percent(cores(ns)));
            table.row([
                role.role.clone(),
                role.threads.to_string(),
                share(role.cpu_ns),
                share(role.run_queue_ns),
                share(role.read_ns),
                share(role.write_ns),
            ]);
        }
        if !has_rows {
            return Ok(());
        }
        writeln!(out)?;
        table.spaced().write(out)
    }
}

impl ShapeTimeJson {
    fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let name = format!("{} {}", self.command, self.namespace);
        writeln!(out, "{} {}", escape(name.trim_end()), escape(&self.typed))?;
        let class = if matches!(self.class, "user" | "unknown") {
            String::new()
        } else {
            format!(", {}", self.class)
        };
        let origin = match self.origin {
            "wire" => "",
            "thread_name" => "no request captured",
            "log" => " from the log",
            _ => " from the profile",
        };
        let apps = if self.apps.is_empty() { String::new() } else { format!(", {}", self.apps.join(" ")) };
        writeln!(
            out,
            "  {}{origin}{class}{}: {}, p50 {}, p99 {}, max {}, {} of the time",
            self.shape_id,
            escape(&apps),
            plural(Grouped(self.operations), "operation"),
            or_unknown(self.p50_ns.map(Nanos)),
            or_unknown(self.p99_ns.map(Nanos)),
            or_unknown(self.max_ns.map(Nanos)),
            Percent(self.share)
        )?;
        for sentence in &self.answer {
            writeln!(out, "  {}", escape(sentence))?;
        }
        let mut table = TextTable::new(&[
            Heading::whole("", 0),
            Heading::figure("each", 1),
            Heading::figure("share", 1),
            Heading::figure("p50", 2),
            Heading::figure("p99", 2),
            Heading::whole("", 9),
        ]);
        for part in &self.parts {
            table.row(self.cells(part));
            for class in part.classes.iter().filter(|class| class.share >= NOTABLE_CLASS) {
                table.row([
                    format!("    {}", escape(&class.class)),
                    Nanos(class.wait_ns / self.operations.max(1)).to_string(),
                    Percent(class.share).to_string(),
                    String::new(),
                    String::new(),
                    String::new(),
                ]);
            }
        }
        table.spaced().write(out)
    }

    fn cells(&self, part: &PartJson) -> [String; 6] {
        [
            format!("  {}", part.part.words()),
            Nanos(part.ns / self.operations.max(1)).to_string(),
            Percent(part.share).to_string(),
            part.p50_ns.map(Nanos).map_or_else(String::new, |time| time.to_string()),
            part.p99_ns.map(Nanos).map_or_else(String::new, |time| time.to_string()),
            bar(part.share, BAR),
        ]
    }
}

impl SplitCoverageJson {
    fn text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let lines = [
            (self.without_wire, "Operations of the server's threads that were not seen on the wire"),
            (self.without_thread, "Operations on the wire that no traced thread executed"),
            (self.continued, "Parts of replies that no request asked for"),
            (self.pipelined, "Operations that cannot be divided, because several requests came at once"),
            (
                self.answered_elsewhere,
                "Operations that cannot be divided, because another thread sent the reply: the server uses a thread pool",
            ),
            (
                self.foreign_replies,
                "Operations that cannot be divided, because their thread serves several requests at once",
            ),
            (self.ring_full, "Operations lost because the kernel's ring buffer was full"),
            (self.threads_full, "Events lost because the table of threads was full"),
            (self.unreadable, "Message headers that could not be read"),
            (self.programs_skipped, "Events skipped by the kernel"),
            (
                self.switches_missed,
                "Context switches that the kernel did not report; their times come from the scheduler",
            ),
            (self.blockers_turned_away, "Waits whose blocker was not kept, because there were too many"),
            (
                self.waits_without_class,
                "Long waits without a class, because there were too many; those with one stand for them",
            ),
            (self.packets_dropped, "Packets dropped by the kernel"),
            (self.encrypted_unread, "Connections encrypted with TLS that could not be read"),
            (self.encrypted_unmapped, "Reads and writes of TLS sessions whose connection is unknown"),
            (self.encrypted_lost, "Parts of encrypted connections lost in the kernel"),
        ];
        let lines: Vec<_> = lines.into_iter().filter(|(count, _)| *count > 0).collect();
        if !lines.is_empty() {
            writeln!(out)?;
        }
        for (count, what) in lines {
            writeln!(out, "{what}: {}", Grouped(count))?;
        }
        Ok(())
    }
}
