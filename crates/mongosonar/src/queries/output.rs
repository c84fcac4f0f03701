//! What is written to standard output when there is no live view.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use sonar_core::{Operation, Window};
use sonar_view::json::Kind;
use sonar_view::{Report, Selection, csv, each, json, table};

use crate::cli::QueriesArgs;

/// How figures are written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Format {
    Table,
    Json,
    Csv,
}

/// Standard output, and how to write on it.
pub struct Output {
    out: BufWriter<Stdout>,
    format: Format,
    each: bool,
    selection: Selection,
    width: Option<usize>,
    heading: bool,
}

impl Output {
    /// As the arguments ask for it.
    pub fn new(args: &QueriesArgs, selection: &Selection) -> Self {
        let format = match (args.json, args.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Table,
        };
        let width = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
        Self {
            out: BufWriter::with_capacity(64 * 1024, io::stdout()),
            format,
            each: args.each,
            selection: selection.clone(),
            width: width.map(|(columns, _)| usize::from(columns)),
            heading: false,
        }
    }

    /// Whether operations are written one by one.
    pub fn wants_each(&self) -> bool {
        self.each
    }

    /// Writes one operation, if it is among those asked for.
    pub fn operation(&mut self, op: &Operation<'_>) -> io::Result<()> {
        if !self.selection.accepts(op) {
            return Ok(());
        }
        let form = self.selection.form;
        match self.format {
            Format::Json => each::json(op, form, &mut self.out),
            _ => each::text(op, form, &mut self.out),
        }
    }

    /// Writes one interval.
    pub fn interval(&mut self, window: &Window) -> io::Result<()> {
        self.report(window, Kind::Interval)
    }

    /// Writes the end.
    pub fn summary(&mut self, window: &Window) -> io::Result<()> {
        self.report(window, Kind::Summary)
    }

    fn report(&mut self, window: &Window, kind: Kind) -> io::Result<()> {
        if !self.each {
            let report = Report::new(window, &self.selection);
            match (self.format, kind) {
                (Format::Json, _) => json::report(&report, kind, &mut self.out)?,
                (Format::Csv, _) => {
                    if !std::mem::replace(&mut self.heading, true) {
                        csv::heading(self.selection.by, &mut self.out)?;
                    }
                    csv::rows(&report, kind, &mut self.out)?;
                }
                (Format::Table, Kind::Interval) => table::interval(&report, self.width, &mut self.out)?,
                (Format::Table, Kind::Summary) => table::summary(&report, self.width, &mut self.out)?,
            }
        }
        self.flush()
    }

    /// Hands over what has been written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
