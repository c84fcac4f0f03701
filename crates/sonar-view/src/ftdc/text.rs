//! The report as text.

use std::io::{self, Write};

use super::report::{FtdcFigureJson, FtdcReport};
use super::units::show;
use crate::kit::{Fitting, Grouped, Heading, Nanos, TextTable, Zone, escape, plural, sparkline};

/// Columns of a trend.
const TREND: usize = 24;
/// The most incidents that are shown.
const INCIDENTS: usize = 20;

impl FtdcReport {
    /// As text: what is wrong, what happened, and all figures. Times are those of `zone`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone) -> io::Result<()> {
        writeln!(out, "{}", escape(&self.answer()))?;
        writeln!(out, "{}", self.headline())?;
        if let Some((from, to)) = self.span() {
            let length = Nanos(to.since(from));
            let samples = plural(self.samples, "sample");
            writeln!(out, "{} to {} ({length}), {samples}", zone.show_seconds(from), zone.show_seconds(to))?;
        }
        self.findings_text(out, zone)?;
        self.incidents_text(out, zone)?;
        self.figures_text(out)?;
        self.reading_text(out)
    }

    /// What the server is, on one line.
    fn headline(&self) -> String {
        let server = &self.server;
        let kind = match server.is_router {
            true => "mongos",
            false if server.dbpath.is_some() => "mongod",
            false => "MongoDB",
        };
        let mut parts = vec![match &server.version {
            Some(version) => format!("{kind} {version}"),
            None => kind.to_owned(),
        }];
        if let Some(host) = &server.host {
            parts.push(match server.port {
                Some(port) if !host.contains(':') => format!("{host}:{port}"),
                _ => host.clone(),
            });
        }
        parts.extend(server.replica_set.as_ref().map(|set| format!("replica set {set}")));
        parts.extend(server.processors.map(|count| {
            let all = plural(u64::try_from(count).unwrap_or(0), "processor");
            server.processors_available.map_or_else(|| all.clone(), |few| format!("{few} of {all}"))
        }));
        let gib = |mib: i64| format!("{:.1} GiB", mib as f64 / 1_024.0);
        parts.extend(match (server.memory_limit_mib, server.memory_mib) {
            (Some(limit), Some(all)) => Some(format!("limited to {} of {} of memory", gib(limit), gib(all))),
            (Some(limit), None) => Some(format!("limited to {} of memory", gib(limit))),
            (None, all) => all.map(|all| format!("{} of memory", gib(all))),
        });
        parts.extend(server.dbpath.clone());
        escape(&parts.join(", ")).to_string()
    }

    fn findings_text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone) -> io::Result<()> {
        let findings = self.findings();
        if findings.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nWorth a look:")?;
        for figure in findings {
            let Some(limits) = &figure.limits else { continue };
            let verdict = figure.verdict.unwrap_or("");
            let over = match limits.red.filter(|_| verdict == "red") {
                Some(red) => (&limits.over_red, red),
                None => (&limits.over_amber, limits.amber),
            };
            let bound = match limits.rule {
                "any" => String::new(),
                _ if limits.below => format!(" {} or less", show(over.1, figure.unit)),
                _ => format!(" {} or more", show(over.1, figure.unit)),
            };
            write!(out, "{verdict:5}  {}:{bound} for {}", figure.title, Nanos(over.0.total_ns))?;
            if let Some(start) = over.0.longest_start_ns.filter(|_| over.0.longest_ns > 0) {
                let start = zone.show_seconds(sonar_core::Timestamp::from_unix_ns(start));
                write!(out, ", longest {} from {start}", Nanos(over.0.longest_ns))?;
            }
            let value = |value| show(value, figure.unit);
            writeln!(
                out,
                "; median {}, p95 {}, max {}",
                value(figure.p50),
                value(figure.p95),
                value(figure.max)
            )?;
            writeln!(out, "       {} ({})", limits.meaning, limits.source)?;
        }
        Ok(())
    }

    fn incidents_text<W: Write>(&self, out: &mut Fitting<W>, zone: &Zone) -> io::Result<()> {
        if self.incidents.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nWhat happened:")?;
        for incident in self.incidents.iter().take(INCIDENTS) {
            let at = zone.show_seconds(sonar_core::Timestamp::from_unix_ns(incident.time_ns));
            writeln!(out, "{at}  {}", incident.words)?;
        }
        let more = self.incidents.len().saturating_sub(INCIDENTS) as u64 + self.incidents_other;
        if more > 0 {
            writeln!(out, "and {} more (all with --json)", Grouped(more))?;
        }
        Ok(())
    }

    fn figures_text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let headings = [
            Heading::text("figure", 0, 24),
            Heading::figure("median", 3),
            Heading::figure("p95", 2),
            Heading::figure("max", 3),
            Heading::whole("verdict", 1),
            Heading::whole("over time", 4),
        ];
        let mut group = "";
        let mut table = TextTable::new(&headings).spaced();
        for figure in self.figures.iter().filter(|figure| figure.max > 0.0) {
            if figure.group != group {
                group = figure.group;
                table.row([group.to_uppercase()]);
            }
            let value = |value| show(value, figure.unit);
            table.row([
                format!("  {}", figure.title),
                value(figure.p50),
                value(figure.p95),
                value(figure.max),
                figure.verdict.unwrap_or("").to_owned(),
                trend(figure),
            ]);
        }
        if group.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        table.write(out)?;
        let zero: Vec<_> =
            self.figures.iter().filter(|figure| figure.max <= 0.0).map(|figure| figure.title).collect();
        if !zero.is_empty() {
            writeln!(out, "\nAlways 0: {}.", zero.join(", "))?;
        }
        Ok(())
    }

    fn reading_text<W: Write>(&self, out: &mut Fitting<W>) -> io::Result<()> {
        let reading = &self.reading;
        let counts = [
            (reading.chunks_damaged, "damaged chunk", "skipped"),
            (reading.documents_unknown, "document", "of another kind skipped"),
            (reading.samples_repeated, "sample", "in two files counted once"),
        ];
        let notes = counts.iter().filter(|(count, ..)| *count > 0);
        let notes: Vec<_> =
            notes.map(|(count, noun, what)| format!("{} {what}", plural(*count, noun))).collect();
        if !notes.is_empty() || !reading.damage.is_empty() {
            writeln!(out)?;
        }
        out.sentences(notes.iter().chain(&reading.damage))
    }
}

/// The largest values of equal parts of the time.
fn trend(figure: &FtdcFigureJson) -> String {
    let buckets = &figure.trend.buckets;
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return String::new() };
    let span = last.0 - first.0 + figure.trend.width_ns;
    let mut parts = [0.0f64; TREND];
    for (start, _, _, max) in buckets {
        let at = u128::from(start - first.0) * TREND as u128 / u128::from(span.max(1));
        let part = &mut parts[(at as usize).min(TREND - 1)];
        *part = part.max(*max);
    }
    sparkline(parts, figure.max)
}
