//! Writes to standard output when there is no live view.

use std::io::{self, BufWriter, Stdout, Write};

use anyhow::Result;
use sonar_core::{Coverage, Digest, DigestSettings, GroupBy, Operation, Outcome, Record, Source, Window};
use sonar_view::digest::{self, DigestView, ViewOptions};
use sonar_view::kit::{Fitting, Hidden, HiddenContext};
use sonar_view::queries::json::ObjectKind;
use sonar_view::queries::{
    Grouping, PacketOrigin, PastWindow, Selection, ServerState, Silence, WindowReport, cut_get_mores,
};
use sonar_view::queries::{csv, each, json, text};

use super::args::{INTERVAL, QueriesArgs};
use crate::capture::OperationListener;
use crate::exit::usage;
use crate::outfile::OutFile;
use crate::report_output::{page_and_print, write_opened_page};
use crate::{screen, stop};
use sonar_sys::Host;

/// Lines of a summary beside its rows: its head, what is not shown, what was lost, and the prompt of the shell.
const BESIDE_ROWS: usize = 14;
/// The fewest rows, however low the terminal is.
const FEWEST_ROWS: usize = 5;

/// How many rows leave the rest of a summary on a terminal of this many lines; `None`: any number, as into a pipe.
fn rows_of(lines: Option<usize>) -> Option<usize> {
    lines.map(|lines| lines.saturating_sub(BESIDE_ROWS).max(FEWEST_ROWS))
}

/// How figures are written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OutputFormat {
    Table,
    Json,
    Csv,
}

/// A digest of all operations.
struct DigestOutput {
    digest: Digest,
    wanted: ViewOptions,
    /// How many operations each captured one stands for.
    weight: u32,
    /// The file that is read, or the interfaces.
    sources: Vec<String>,
    /// This host, if it listens here.
    host: Option<String>,
    /// The page to write as well.
    page: Option<OutFile>,
}

/// Standard output, and the form in which to write.
pub struct QueriesOutput {
    out: BufWriter<Stdout>,
    format: OutputFormat,
    each: bool,
    digest: Option<DigestOutput>,
    selection: Selection,
    width: Option<usize>,
    heading: bool,
    origin: PacketOrigin,
    /// Since the start, of the intervals that were written.
    seen: Coverage,
    /// Operations left out, of those handed in one by one.
    hidden: Hidden,
    /// Operations shown, of those handed in one by one.
    shown: u64,
    /// What a reader of the summary must know about its input.
    notes: Vec<String>,
    /// The state of the servers of this host, which intervals of a live capture have in JSON.
    servers: Vec<ServerState>,
    /// How long an interval is that is whole.
    interval_ns: u64,
}

impl QueriesOutput {
    /// For these arguments.
    ///
    /// # Errors
    /// A digest cannot have these rows, or has no such column.
    pub fn new(args: &QueriesArgs, selection: &Selection, origin: PacketOrigin) -> Result<Self> {
        let format = match (args.json, args.csv) {
            (true, _) => OutputFormat::Json,
            (_, true) => OutputFormat::Csv,
            _ => OutputFormat::Table,
        };
        let digest = if args.makes_digest() { Some(gathering(args, selection)?) } else { None };
        let is_table = format == OutputFormat::Table && digest.is_none() && !args.each;
        Ok(Self {
            out: BufWriter::with_capacity(64 * 1024, io::stdout()),
            format,
            each: args.each,
            digest,
            selection: Selection {
                limit: selection.limit.or_else(|| rows_of(screen::height()).filter(|_| is_table)),
                ..selection.clone()
            },
            width: screen::width(),
            heading: false,
            origin,
            seen: Coverage::default(),
            hidden: Hidden::new(selection.role),
            shown: 0,
            notes: Vec::new(),
            servers: Vec::new(),
            interval_ns: u64::try_from(args.interval.unwrap_or(INTERVAL).as_nanos()).unwrap_or(u64::MAX),
        })
    }

    /// Whether it wants each operation.
    pub fn wants_each(&self) -> bool {
        self.each || self.digest.is_some()
    }

    /// Adds a note to the summary: why it is not of the whole file, or what was of no use.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Whether it shows the state of servers.
    pub fn shows_servers(args: &QueriesArgs) -> bool {
        args.json && !args.each && !args.makes_digest()
    }

    /// Replaces the state of the servers of this host.
    pub fn servers(&mut self, servers: Vec<ServerState>) {
        self.servers = servers;
    }

    /// Writes one interval of the past.
    pub fn past_interval(&mut self, PastWindow { window, servers }: PastWindow) -> io::Result<()> {
        self.servers = servers;
        self.interval(&window)
    }

    /// Writes the summary of a span of the past.
    pub fn past_summary(&mut self, PastWindow { window, servers }: PastWindow) -> io::Result<()> {
        self.servers = servers;
        self.summary(&window)
    }

    /// Writes one interval.
    pub fn interval(&mut self, window: &Window) -> io::Result<()> {
        self.seen.add(&window.coverage);
        self.report(window, ObjectKind::Interval)
    }

    /// Writes the summary.
    pub fn summary(&mut self, window: &Window) -> io::Result<()> {
        self.report(window, ObjectKind::Summary)
    }

    fn report(&mut self, window: &Window, kind: ObjectKind) -> io::Result<()> {
        if kind == ObjectKind::Summary {
            // The window covers the whole capture.
            self.seen = window.coverage;
        }
        if let Some(DigestOutput { digest, wanted, page, sources, host, .. }) = &mut self.digest {
            if kind == ObjectKind::Summary {
                digest.join_applications();
                let view = DigestView::new(digest, Source::Wire, wanted);
                let mut hidden = self.hidden.clone();
                hidden.snapped = window.coverage.messages_snapped;
                let coverage = Some(&window.coverage);
                let (sources, host) = (sources.clone(), host.clone());
                let cut = cut_get_mores(digest.rows());
                let (notes, sample) = (self.notes.iter().cloned().chain(cut).collect(), window.sample);
                let mut view = DigestView { coverage, sources, host, hidden, notes, sample, ..view };
                let page = write_opened_page(page.as_ref(), |out| digest::json(&view, out));
                let page = page.map_err(io::Error::other);
                page_and_print(page, || {
                    match self.format {
                        OutputFormat::Json => digest::json(&view, &mut self.out)?,
                        OutputFormat::Csv => {
                            digest::csv(&view, &mut self.out)?;
                            self.hidden = view.left_out();
                        }
                        OutputFormat::Table => {
                            view.rows.truncate(wanted.limit.unwrap_or(crate::digest::ROWS));
                            digest::text(&view, &mut Fitting::new(&mut self.out, self.width))?;
                        }
                    }
                    Ok(())
                })?;
            }
        } else if !self.each {
            let mut report = WindowReport::new(window, &self.selection).explained(&self.seen, &self.origin);
            match kind {
                ObjectKind::Summary => {
                    let cut = cut_get_mores(window.shapes.iter());
                    report.notes = self.notes.iter().cloned().chain(cut).collect();
                }
                ObjectKind::Interval => report.is_partial = window.length_ns() < self.interval_ns,
            }
            // At the end of a capture nothing is of now any more.
            if kind == ObjectKind::Interval || matches!(self.origin, PacketOrigin::History) {
                report.servers.clone_from(&self.servers);
            }
            match (self.format, kind) {
                (OutputFormat::Json, _) => json::report(&report, kind, &mut self.out)?,
                (OutputFormat::Csv, _) => {
                    if !std::mem::replace(&mut self.heading, true) {
                        csv::heading(self.selection.by, &mut self.out)?;
                    }
                    csv::rows(&report, kind, &mut self.out)?;
                }
                (OutputFormat::Table, ObjectKind::Interval) => {
                    text::interval(&report, self.width, Fitting::new(&mut self.out, self.width))?
                }
                (OutputFormat::Table, ObjectKind::Summary) => {
                    text::summary(&report, self.width, Fitting::new(&mut self.out, self.width))?
                }
            }
        }
        if kind == ObjectKind::Summary {
            self.remark(window)?;
        }
        self.flush()
    }

    /// Says what is not shown where the output itself cannot: operations one by one end with an object in JSON; for
    /// their text and for CSV it goes to standard error, as does the reason why a digest is empty.
    fn remark(&mut self, window: &Window) -> io::Result<()> {
        let (silence, hidden) = if self.wants_each() {
            let mut hidden = self.hidden.clone();
            hidden.snapped = window.coverage.messages_snapped;
            let is_empty = self.shown == 0 && hidden.operations() == 0;
            (is_empty.then(|| Silence::explain(&window.coverage, &self.origin)), hidden)
        } else if self.format == OutputFormat::Csv {
            let report = WindowReport::new(window, &self.selection).explained(&self.seen, &self.origin);
            (report.silence, report.hidden)
        } else {
            return Ok(());
        };
        if self.each && self.format == OutputFormat::Json {
            let (silence, notes) = (silence.as_ref(), &self.notes);
            let left = json::LeftOutJson { hidden: &hidden, silence, coverage: &window.coverage, notes };
            return json::end(self.shown, &left, &mut self.out);
        }
        if stop::is_abandoned() {
            return Ok(());
        }
        // A digest says it itself, but for CSV.
        let is_shown = self.digest.is_some() && self.format != OutputFormat::Csv;
        let (line, notes) = match is_shown {
            true => (None, &[][..]),
            false => (hidden.line(window.sample, HiddenContext::CommandLine), &*self.notes),
        };
        let lines = silence.iter().map(Silence::text).chain(line).chain(notes.iter().cloned());
        lines.for_each(|line| eprintln!("mongosonar: {line}"));
        Ok(())
    }
}

impl OperationListener for QueriesOutput {
    /// Writes one operation, or adds it to the digest, if the selection has it.
    fn operation(&mut self, op: &Operation<'_>) -> io::Result<()> {
        let reason = match self.digest {
            Some(_) => self.selection.hides(op.role, op.class),
            None => self.selection.refuses(op),
        };
        if let Some(reason) = reason {
            self.hidden.add(reason, op.class, 1);
            return Ok(());
        }
        self.shown += 1;
        if let Some(DigestOutput { digest, weight, .. }) = &mut self.digest {
            if op.outcome != Outcome::InFlight {
                digest.record(&Record::wire(op).weighing(u64::from((*weight).max(1))));
            }
            return Ok(());
        }
        let form = self.selection.form;
        match self.format {
            OutputFormat::Json => each::json(op, form, &mut self.out),
            _ => each::text(op, form, &self.selection.zone, &mut self.out),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Prepares the digest.
fn gathering(args: &QueriesArgs, selection: &Selection) -> Result<DigestOutput> {
    let by = match selection.by {
        Grouping::Shape => GroupBy::Shape,
        Grouping::Order => GroupBy::Order,
        Grouping::Namespace => GroupBy::Namespace,
        Grouping::App => GroupBy::App,
        Grouping::Client => {
            return Err(usage!("a digest has no rows by client; there are: shape order namespace app"));
        }
    };
    let wanted = ViewOptions {
        sort: crate::digest::sort(args.sort.as_deref())?,
        limit: args.limit,
        filter: selection.text.clone(),
        form: selection.form,
        zone: selection.zone.clone(),
    };
    let settings = DigestSettings { by, points: args.html.is_some() };
    let (host, sources) = match &args.read {
        Some(path) => (None, vec![crate::input::name(path)]),
        None if args.interface.is_empty() => (Host::live().name(), vec!["all interfaces".to_owned()]),
        None => (Host::live().name(), args.interface.clone()),
    };
    Ok(DigestOutput {
        digest: Digest::new(settings),
        sources,
        host,
        wanted,
        weight: args.sample.unwrap_or(1),
        page: args.html.as_deref().map(OutFile::open).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_the_rows_that_leave_room_for_the_rest() {
        assert_eq!(rows_of(Some(24)), Some(10));
        assert_eq!(rows_of(Some(3)), Some(FEWEST_ROWS));
        assert_eq!(rows_of(None), None);
    }
}
