//! Shows a digest as text, JSON, CSV or a page.

use std::io::{self, Write};

use anyhow::Result;
use sonar_core::Source;
use sonar_mongo::Server;
use sonar_view::digest::{self, DigestView, Indexes, RowOrder, SourceSummary, ViewOptions};
use sonar_view::kit::{Fitting, HiddenContext, escape};

use super::args::DigestArgs;
use super::collect::{SourceDigest, TimeRange};
use crate::args::values::ShapeArg;
use crate::exit::{self, OK, TRUNCATED, usage};
use crate::report_output::{page_and_print, to_stdout, write_page};
use crate::{input, screen};

/// The note about a server that writes a rate limit but does not apply it.
pub const IGNORED_RATE_LIMIT: &str = "This version of Percona Server profiles every operation whatever its rateLimit (PSMDB-876, fixed in 4.4.8-9): each document counts once.";

/// Rows of a text report by default.
pub const ROWS: usize = 20;

/// Writes the name of one of several files above what it holds, and an empty line between them.
pub fn heading(place: usize, count: usize, file: &str, out: &mut dyn Write) -> io::Result<()> {
    if place > 0 {
        writeln!(out)?;
    }
    if count > 1 {
        writeln!(out, "{}:", escape(file))?;
    }
    Ok(())
}

/// The exit code of a file that was read as far as it goes; says why not to its end.
pub fn code_of(file: &str, damage: Option<&str>) -> u8 {
    exit::of_damage(file, damage, "all before it has been read")
}

/// The order of the rows of a digest, from its name.
pub fn sort(name: Option<&str>) -> Result<RowOrder> {
    let Some(name) = name else { return Ok(RowOrder::default()) };
    RowOrder::from_name(name).ok_or_else(|| {
        let names: Vec<_> = RowOrder::names().collect();
        usage!("no column {name:?} to sort by; there are: {}", names.join(" "))
    })
}

/// What is shown beside the figures.
#[derive(Default)]
pub struct ShownDigest<'a> {
    /// Their source; of several, the one with the most precise latencies.
    pub source: Option<Source>,
    /// What was read of each source, for reports of several.
    pub sources: &'a [SourceSummary],
    /// Notes about them.
    pub notes: Vec<String>,
    /// The server that was asked.
    pub server: Option<&'a Server>,
}

impl ShownDigest<'_> {
    /// The figures come from one source.
    pub fn only(source: Source) -> Self {
        Self { source: Some(source), ..Self::default() }
    }
}

/// Writes the report in the form that the arguments ask for. Returns the exit code.
pub fn show(args: &DigestArgs, read: &mut SourceDigest, shown: ShownDigest<'_>) -> Result<u8> {
    let ShownDigest { source, sources, notes, server } = shown;
    let source = source.unwrap_or(Source::Wire);
    let sort = sort(args.sort.as_deref())?;
    let wanted = ViewOptions {
        sort,
        limit: args.limit,
        filter: args.filter.clone().unwrap_or_default(),
        form: ShapeArg::form(args.shape),
        zone: read.zone.clone(),
    };
    let reading = Some(&read.reading).filter(|_| sources.is_empty());
    let view = DigestView::new(&read.digest, source, &wanted).with_reading(reading);
    let mut view = DigestView { summaries: sources, notices: read.notices.as_ref(), ..view };
    view.notes.extend(read.notes.iter().cloned().chain(notes));
    if read.digest.totals().calls == 0 && read.hidden.operations() == 0 {
        view.notes.extend(TimeRange::of(args)?.without_operations(read));
    }
    for what in &read.stopped {
        view.notes.insert(0, format!("NOT IN FULL: {what}"));
        eprintln!("mongosonar: {what}; all before it has been read");
    }
    if reading.is_none() {
        view.notes.extend(digest::notes(&read.reading));
    }
    if server.is_none() {
        view.notes.extend(digest::assumed_weights(&read.reading));
    } else if server.is_some_and(|server| server.info().ignores_rate_limit()) {
        view.notes.push(IGNORED_RATE_LIMIT.to_owned());
    }
    let asked = match (server, args.server.named()?) {
        (None, Some(target)) => Some(Server::connect(target, 1)?),
        _ => None,
    };
    let indexes = server.or(asked.as_ref()).map(|server| indexes(&view, server));
    let mut view = DigestView { indexes: indexes.as_ref(), hidden: read.hidden.clone(), ..view };
    view.sources = args.files.iter().map(|path| input::name(path)).collect();
    if let Some(server) = server {
        view.sources = vec![server.info().label()];
        view.host = Some(server.info().address.to_string());
    }
    let page = write_page(args.html.as_deref(), |out| digest::json(&view, out));
    let write = |out: &mut dyn Write| {
        if args.json {
            digest::json(&view, out)?;
        } else if args.csv {
            digest::csv(&view, out)?;
            let left_out = view.left_out().line(view.sample, HiddenContext::CommandLine);
            left_out.iter().for_each(|line| eprintln!("mongosonar: {line}"));
        } else {
            view.rows.truncate(args.limit.unwrap_or(ROWS));
            digest::text(&view, &mut Fitting::new(out, screen::width()))?;
        }
        Ok(())
    };
    page_and_print(page, || to_stdout(write))?;
    Ok(match exit::stopped().filter(|_| !read.stopped.is_empty()) {
        Some((_, code)) => code,
        None if read.damaged => TRUNCATED,
        None => OK,
    })
}

/// The existing indexes of each namespace with an index hint. Where the server does not answer, prints why and leaves
/// the namespace out.
fn indexes(view: &DigestView<'_>, server: &Server) -> Indexes {
    /// The most collections to ask about.
    const MOST: usize = 1_000;
    let mut known = Indexes::new();
    for digest::index_hint::Suggestion { hint, .. } in digest::index_hint::all(view) {
        let Some((database, collection)) = hint.namespace.split_once('.') else { continue };
        if known.len() >= MOST || known.contains_key(&hint.namespace) {
            continue;
        }
        match server.indexes(database, collection) {
            Ok(indexes) => {
                known.insert(hint.namespace, indexes);
            }
            Err(error) => {
                eprintln!("mongosonar: the indexes of {} are not known: {error}", escape(&hint.namespace));
            }
        }
    }
    known
}
