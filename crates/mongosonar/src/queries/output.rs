//! What is written to standard output when there is no live view.

use std::io::{self, BufWriter, Stdout, Write};
use std::path::PathBuf;

use anyhow::Result;
use sonar_core::{Digest, DigestSettings, Execution, GroupBy, Identity, Operation, Outcome, Window};
use sonar_view::digest::{self, Source, View, Wanted};
use sonar_view::json::Kind;
use sonar_view::layout::Fitting;
use sonar_view::{By, Report, Selection, csv, each, json, table};

use crate::cli::QueriesArgs;
use crate::exit::usage;
use crate::{outfile, screen};

/// How figures are written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Format {
    Table,
    Json,
    Csv,
}

/// A digest of all that is heard.
struct Gathering {
    digest: Digest,
    wanted: Wanted,
    /// How many operations each stands for.
    weight: u32,
    /// The page that is written beside.
    page: Option<PathBuf>,
}

/// Standard output, and how to write on it.
pub struct Output {
    out: BufWriter<Stdout>,
    format: Format,
    each: bool,
    digest: Option<Gathering>,
    selection: Selection,
    width: Option<usize>,
    heading: bool,
}

impl Output {
    /// As the arguments ask for it.
    ///
    /// # Errors
    /// A digest has no such rows, or no such column.
    pub fn new(args: &QueriesArgs, selection: &Selection) -> Result<Self> {
        let format = match (args.json, args.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Table,
        };
        let digest = if super::digest(args) { Some(gathering(args, selection)?) } else { None };
        Ok(Self {
            out: BufWriter::with_capacity(64 * 1024, io::stdout()),
            format,
            each: args.each,
            digest,
            selection: selection.clone(),
            width: screen::width(),
            heading: false,
        })
    }

    /// Whether operations are taken one by one.
    pub fn wants_each(&self) -> bool {
        self.each || self.digest.is_some()
    }

    /// Writes one operation, or takes it into the digest, if it is among those asked for.
    pub fn operation(&mut self, op: &Operation<'_>) -> io::Result<()> {
        if let Some(Gathering { digest, weight, .. }) = &mut self.digest {
            if self.selection.wants(op.role, op.class) && op.outcome != Outcome::InFlight {
                let execution = Execution { weight: *weight, ..Execution::default() };
                digest.record(op, Identity::Exact, &execution, 1);
            }
            return Ok(());
        }
        if !self.selection.accepts(op) {
            return Ok(());
        }
        let form = self.selection.form;
        match self.format {
            Format::Json => each::json(op, form, &mut self.out),
            _ => each::text(op, form, &self.selection.zone, &mut self.out),
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
        if let Some(Gathering { digest, wanted, page, .. }) = &self.digest {
            if kind == Kind::Summary {
                let view = View::new(digest, Source::Wire, None, None, wanted);
                let mut view = View { coverage: Some(&window.coverage), ..view };
                if let Some(page) = page {
                    outfile::write(page, |out| digest::html::write(&view, out)).map_err(io::Error::other)?;
                }
                match self.format {
                    Format::Json => digest::json::write(&view, &mut self.out)?,
                    Format::Csv => digest::csv::write(&view, &mut self.out)?,
                    Format::Table => {
                        view.rows.truncate(wanted.limit.unwrap_or(crate::digest::ROWS));
                        digest::text::write(&view, self.width, &mut self.out)?;
                    }
                }
            }
        } else if !self.each {
            let report = Report::new(window, &self.selection);
            match (self.format, kind) {
                (Format::Json, _) => json::report(&report, kind, &mut self.out)?,
                (Format::Csv, _) => {
                    if !std::mem::replace(&mut self.heading, true) {
                        csv::heading(self.selection.by, &mut self.out)?;
                    }
                    csv::rows(&report, kind, &mut self.out)?;
                }
                (Format::Table, Kind::Interval) => {
                    table::interval(&report, self.width, Fitting::new(&mut self.out, self.width))?
                }
                (Format::Table, Kind::Summary) => {
                    table::summary(&report, self.width, Fitting::new(&mut self.out, self.width))?
                }
            }
        }
        self.flush()
    }

    /// Hands over what has been written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What a digest is made for.
fn gathering(args: &QueriesArgs, selection: &Selection) -> Result<Gathering> {
    let by = match selection.by {
        By::Shape => GroupBy::Shape,
        By::Order => GroupBy::Order,
        By::Namespace => GroupBy::Namespace,
        By::App => GroupBy::App,
        By::Client => {
            return Err(usage!("a digest has no rows by client; there are: shape order namespace app"));
        }
    };
    let wanted = Wanted {
        sort: crate::digest::sort(args.sort.as_deref())?,
        limit: args.limit,
        filter: selection.text.clone(),
        form: selection.form,
        zone: selection.zone.clone(),
    };
    let settings = DigestSettings { by, points: args.html.is_some() };
    Ok(Gathering {
        digest: Digest::new(settings),
        wanted,
        weight: args.sample.unwrap_or(1),
        page: args.html.clone(),
    })
}
