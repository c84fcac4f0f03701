//! `mongosonar report FILE...`: captures, logs and profiles of the same minutes, side by side.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use sonar_core::history::Span;
use sonar_core::{Application, Digest, GroupBy, LogNotices, Reading, RowTotals, Source, Subject};
use sonar_view::digest::SourceSummary;
use sonar_view::kit::{Count, Hidden, Zone, counted_in_words, plural};

use super::args::JoinedReportArgs;
use super::captures::{CaptureInputs, Captured};
use super::collect::{OperationCollector, SourceDigest, TimeRange};
use super::show::{ShownDigest, show};
use super::{captures, current_op, explain, log_files, profiles};
use crate::exit::usage;
use crate::input::content::{self, FileContent};
use crate::{input, stop};

/// The longest difference between the spans of sources whose figures can be compared, in nanoseconds.
const MOST_APART_NS: u64 = 60_000_000_000;

/// Files by content.
#[derive(Default)]
struct Inputs {
    captures: Vec<PathBuf>,
    profiles: Vec<PathBuf>,
    logs: Vec<PathBuf>,
    /// Operations in flight.
    current: Vec<PathBuf>,
    /// Output of `explain`.
    explained: Vec<PathBuf>,
}

impl Inputs {
    /// Recognises each file by its first bytes.
    ///
    /// # Errors
    /// One cannot be read, or holds something else.
    fn of(files: &[PathBuf], stop: &Arc<AtomicBool>) -> Result<Self> {
        let mut inputs = Self::default();
        for path in files {
            input::make_rereadable(path, stop)?;
            let name = input::name(path);
            let content = content::peek(input::open(path, &name, stop)?.0, &name)?.content;
            match content {
                FileContent::Capture => inputs.captures.push(path.clone()),
                FileContent::ProfileBson | FileContent::ProfileText => inputs.profiles.push(path.clone()),
                FileContent::Log | FileContent::Tar => inputs.logs.push(path.clone()),
                FileContent::CurrentOp | FileContent::CurrentOpBson => inputs.current.push(path.clone()),
                FileContent::ExplainText | FileContent::ExplainBson => inputs.explained.push(path.clone()),
                _ => bail!(
                    "{name}: {}; report reads captures, logs, profiles and the output of currentOp and explain",
                    content::advice(content)
                ),
            }
        }
        Ok(inputs)
    }
}

/// Everything that was read.
#[derive(Default)]
struct JoinedSources {
    digest: Digest,
    sources: Vec<SourceSummary>,
    reading: Reading,
    notices: Option<LogNotices>,
    /// Operations that are not shown, of the first source: the others see the same ones.
    hidden: Hidden,
    damaged: bool,
    /// Files that were not read to their end because the command was stopped.
    stopped: Vec<String>,
    /// What a reader must know of the sources.
    notes: Vec<String>,
}

impl JoinedSources {
    fn add(&mut self, digest: Digest, hidden: Hidden, summary: SourceSummary) {
        if self.sources.is_empty() {
            self.hidden = hidden;
            self.digest = Digest::new(digest.settings);
        }
        self.damaged |= summary.damaged;
        self.sources.push(summary);
        self.digest.merge(&by_name(digest));
    }
}

/// Runs the command; gives the exit code.
pub fn run(args: &JoinedReportArgs) -> Result<u8> {
    let (args, key_log) = (&args.digest, args.tls_keylog.as_deref());
    if args.files.is_empty() {
        return Err(usage!(
            "which files? Name captures, logs and profiles, or a span of the history with --from and --to; --uri only \
             says where to look up indexes"
        ));
    }
    input::refuse_repeated(&args.files)?;
    let stop = stop::flag()?;
    let inputs = Inputs::of(&args.files, &stop)?;
    if key_log.is_some() && inputs.captures.is_empty() {
        return Err(usage!("--tls-keylog decrypts captures, and none of the files is one"));
    }
    TimeRange::of(args)?;
    let in_flight =
        inputs.current.iter().map(|path| current_op::read(path, &stop)).collect::<Result<Vec<_>>>()?;
    if inputs.current.len() == args.files.len() {
        TimeRange::of_operations(args)?;
        return current_op::show(args, &in_flight);
    }
    let explained =
        inputs.explained.iter().map(|path| explain::read(path, &stop)).collect::<Result<Vec<_>>>()?;
    if inputs.explained.len() == args.files.len() {
        return explain::show(args, &explained);
    }
    if inputs.explained.len() + inputs.current.len() == args.files.len() {
        return Err(usage!(
            "the output of currentOp and that of explain do not go into one report: make one of each"
        ));
    }
    let span = TimeRange::of_operations(args)?;
    let mut joined = JoinedSources::default();
    let mut zone = span.zone.clone();
    // All times are shown in the zone of the log, so it is read first.
    let read_logs = if inputs.logs.is_empty() {
        None
    } else {
        let read = log_files::read(&inputs.logs, OperationCollector::of(args, Source::Log), &span, &stop)?;
        read.refuse_nothing(&inputs.logs)?;
        zone.get_or_insert_with(|| read.zone.clone());
        Some(read)
    };
    let covers = read_logs.as_ref().and_then(|read| read.covers);
    let zone = zone.unwrap_or_else(Zone::utc);
    let within = |source| OperationCollector::of(args, source).within(&span, &zone);
    if !inputs.captures.is_empty() {
        let wire = CaptureInputs { files: &inputs.captures, logs: &inputs.logs, key_log };
        let read = captures::read(&wire, within(Source::Wire), &stop)?;
        let Captured { collect, coverage, damaged, stopped, notes } = read;
        joined.notes = notes;
        let counters = coverage.iter();
        let summary = SourceSummary::new(Source::Wire, names(&inputs.captures), counters, coverage.losses());
        let unread = counted_in_words(coverage.unread().chain(coverage.skipped()));
        let in_part = counted_in_words(coverage.in_part());
        joined.stopped = stopped;
        joined.add(collect.digest, collect.hidden, SourceSummary { damaged, unread, in_part, ..summary });
    }
    if !inputs.profiles.is_empty() {
        let read = profiles::read(&inputs.profiles, within(Source::Profile), &stop)?;
        read.refuse_nothing(&inputs.profiles)?;
        joined.add_gathered(Source::Profile, &inputs.profiles, read);
    }
    if let Some(read) = read_logs {
        joined.add_gathered(Source::Log, &inputs.logs, read);
    }
    let in_flight = in_flight.iter().map(|file| current_op::note(file, &zone));
    let explained = explained.iter().flat_map(explain::notes);
    let notes = note_of_different_times(&joined.digest, &zone).into_iter().chain(mixture(&joined.digest));
    let notes = std::mem::take(&mut joined.notes)
        .into_iter()
        .chain(notes)
        .chain(in_flight)
        .chain(explained)
        .collect();
    let JoinedSources { digest, sources, reading, notices, hidden, damaged, stopped, .. } = joined;
    let mut gathered =
        SourceDigest { digest, hidden, reading, notices, damaged, stopped, covers, zone, notes: Vec::new() };
    let source = sources.first().map_or(Source::Wire, |summary| summary.source);
    show(args, &mut gathered, ShownDigest { source: Some(source), sources: &sources, notes, server: None })
}

impl JoinedSources {
    fn add_gathered(&mut self, source: Source, files: &[PathBuf], read: SourceDigest) {
        let SourceDigest { digest, hidden, reading, notices, damaged, stopped, notes, .. } = read;
        self.notes.extend(notes);
        let summary = SourceSummary::new(source, names(files), reading.iter(), reading.losses());
        self.add(digest, hidden, SourceSummary { damaged, ..summary });
        self.stopped.extend(stopped);
        self.reading.add(&reading);
        self.notices = notices.or(self.notices.take());
    }
}

fn names(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|path| input::name(path)).collect()
}

/// The digest with applications by name alone, which is all that a profile contains.
fn by_name(mut digest: Digest) -> Digest {
    if digest.settings.by == GroupBy::App {
        digest.rename(|subject| match subject {
            Subject::App(app) if !app.joined_late => {
                let app = Application { name: app.name.clone(), ..Application::default() };
                Subject::App(Arc::new(app))
            }
            other => other.clone(),
        });
    }
    digest
}

/// Notes if rows have their figures from different sources, and so the totals too, and if rows are in no total.
fn mixture(digest: &Digest) -> Vec<String> {
    let totals = RowTotals::of(digest);
    let named = |sources: &[Source]| {
        let names: Vec<_> = sources.iter().map(|source| source.name()).collect();
        match &*names {
            [only] => (*only).to_owned(),
            [others @ .., last] => format!("{} or {last}", others.join(", ")),
            [] => String::new(),
        }
    };
    let mut notes = Vec::new();
    if totals.beside > 0 {
        notes.push(format!(
            "{} of the {} {} in no total: {} may have seen the same ones in other rows.",
            plural(Count(totals.beside as f64), "operation"),
            named(&totals.beside_by).replace(" or ", " and "),
            if totals.beside == 1 { "is" } else { "are" },
            named(&totals.counted_by),
        ));
    }
    let mixed: Vec<String> = [
        ("calls and latencies", &totals.counted_by),
        ("examined documents, plans and waits", &totals.executed_by),
    ]
    .into_iter()
    .filter(|(_, sources)| sources.len() > 1)
    .map(|(what, sources)| format!("{what} are from {}", named(sources)))
    .collect();
    if !mixed.is_empty() {
        notes.push(format!("the totals are a mixture: in each row, {}.", mixed.join("; ")));
    }
    notes
}

/// A note if the sources cover different times.
fn note_of_different_times(digest: &Digest, zone: &Zone) -> Option<String> {
    let spans: Vec<_> = digest
        .total
        .sources()
        .filter_map(|source| Some((source, &digest.total.observed_by(source)?.figures)))
        .filter(|(_, figures)| figures.calls > 0)
        // A log has seen all the time of its lines, not only that of its slow operations.
        .map(|(source, figures)| {
            let watched = digest.observed[source as usize].ends();
            let (first, last) = watched.unwrap_or((figures.first_seen, figures.last_seen));
            (source, Span { from: first.min(figures.first_seen), to: last.max(figures.last_seen) })
        })
        .collect();
    if spans.len() < 2 {
        return None;
    }
    let from = spans.iter().map(|(_, span)| span.from).max()?;
    let to = spans.iter().map(|(_, span)| span.to).min()?;
    if from > to {
        return Some("the sources are of different times: no row compares the same operations.".to_owned());
    }
    let (longest, span) = spans.iter().max_by_key(|(_, span)| span.length_ns())?;
    let longest_ns = span.length_ns();
    (longest_ns > to.since(from).saturating_add(MOST_APART_NS)).then(|| {
        format!(
            "the {} reaches further than the others: --from {} --to {} is what all of them saw.",
            longest.name(),
            zone.show_seconds(from),
            zone.show_seconds(to),
        )
    })
}
