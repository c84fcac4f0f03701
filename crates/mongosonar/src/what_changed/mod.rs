//! `mongosonar what-changed`: explains what changed at a moment, or finds the moments of change in a span.

pub mod args;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

use anyhow::{Result, bail};
use sonar_core::Timestamp;
use sonar_core::changes::{
    ALPHA, BASELINE_WINDOWS, ChangeInput, ChangeKind, CommandEvents, ComparisonKind, HistoryChange,
    HistoryChanges, MIN_WINDOWS, RECENT_WINDOWS, RESTART_REACH_NS, Scan, ScanMoment, apart, can_explain,
    each_once, find, with_all_events, with_whole_restarts, without_changes_of, without_repetitions,
    without_usual_silences,
};
use sonar_core::history::{Event, HistoryWindow, Resolution, Span};
use sonar_view::changes::{ChangesReport, ComparedSpans, SeenSpan};
use sonar_view::kit::{Fitting, Zone};

pub use self::args::WhatChangedArgs;
use crate::exit::{OK, WORSE};
use crate::history::{self, StoredHistory, whole_windows};
use crate::when::{Against, When};
use crate::{outfile, page, screen};

/// The most moments that are compared again.
const MAX_REFINED: usize = 20;
/// An agent measures the size of each collection at least once in this time, in nanoseconds.
const SIZES_EVERY_NS: u64 = 300 * 1_000_000_000;
/// The most windows that a scan compares.
const MAX_SCANNED: u64 = 1_500;

/// Runs the command; returns the exit code.
pub fn run(args: &WhatChangedArgs) -> Result<u8> {
    let zone = history::zone(&args.zone);
    let history = StoredHistory::open(&args.store)?.of_server(args.port)?;
    let asked = match args.at {
        Some(at) => Asked::Moment(at),
        None => Asked::Span(history.last_hour_or((args.from, args.to), &zone)?),
    };
    let report = report(&history, &asked, args.against, &zone)?;
    // Nobody looked: that is not the same as no change.
    if let Some(doubt) = report.doubt().filter(|_| !report.has_changes()) {
        bail!("{doubt}");
    }
    let mut out = BufWriter::new(io::stdout());
    if args.json {
        report.json(&mut out)?;
    } else {
        report.text(&mut Fitting::new(&mut out, screen::width()), &zone, &args.store.suffix())?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| report.json(out)))?;
    }
    Ok(if report.has_changes() { WORSE } else { OK })
}

/// What is to be explained.
pub enum Asked {
    /// What began at a moment.
    Moment(When),
    /// What began within a span.
    Span(Span),
}

/// Explains a moment or a span.
///
/// # Errors
/// The history cannot be read, or has nothing of that time.
pub fn report(
    history: &StoredHistory,
    asked: &Asked,
    against: Option<Against>,
    zone: &Zone,
) -> Result<ChangesReport> {
    let explained = match (asked, against) {
        (Asked::Moment(at), against) => moment(history, *at, against, zone)?,
        (Asked::Span(span), Some(against)) => {
            let against = against.of(*span, zone)?;
            let width = history::resolution(*span).width_ns();
            compare(history, *span, against, None)?.explained(history, width)?
        }
        (Asked::Span(span), None) => scan(history, *span, zone)?,
    };
    let Explained { span, against, usual, moments, seen, doubt } = explained;
    let gaps = history.gaps(span)?.iter().map(Into::into).collect();
    let spans = ComparedSpans { span, against, usual, source: history.name.clone(), zone: zone.clone() };
    let mut report = ChangesReport::new(&spans, &moments, gaps).with_seen(&seen, doubt);
    report.about.host = history.host()?;
    Ok(report)
}

/// The moments of change of a span, and what was seen of it.
struct Explained {
    span: Span,
    against: Option<Span>,
    /// The time that shows what is usual, if it is longer than that.
    usual: Option<Span>,
    moments: Vec<ScanMoment>,
    seen: SeenSpan,
    /// Why nothing can be said about the span.
    doubt: Option<String>,
}

/// What began at a moment: the windows from it on against those before it. A time of several windows, like a minute, is
/// searched for moments, as a span is.
fn moment(history: &StoredHistory, at: When, against: Option<Against>, zone: &Zone) -> Result<Explained> {
    let focus = at.in_zone(zone);
    let focus =
        Span { from: focus, to: focus.plus_ns(at.precision_ns().clamp(1_000_000_000, 60_000_000_000)) };
    for resolution in Resolution::ALL {
        let width = resolution.width_ns();
        let mut span = whole_windows(focus, resolution);
        let until = history.extent.to.max(span.to);
        span.to = span.to.plus_ns((RECENT_WINDOWS as u64 - 1) * width).min(until);
        let from = Timestamp::from_unix_ns(span.from.unix_ns().saturating_sub(RESTART_REACH_NS.max(width)));
        let around = Span { from, to: span.to.plus_ns(RESTART_REACH_NS.max(width)) };
        let events = history.events(around)?;
        let with_restarts = |span| {
            let whole = with_whole_restarts(span, &events, width);
            Span { to: whole.to.min(until), ..whole }
        };
        span = with_restarts(span);
        let is_coarser = |windows: &[HistoryWindow]| windows.iter().any(|one| one.window.length_ns() > width);
        if resolution.coarser().is_some() && is_coarser(&history.windows(span, resolution)?) {
            continue;
        }
        return match against {
            Some(against) => {
                let before = against.of(span, zone)?;
                compare(history, span, before, Some(resolution))?.explained(history, width)
            }
            None if focus.length_ns() > width => {
                scan_windows(history, (with_restarts(whole_windows(focus, resolution)), resolution), zone)
            }
            None => {
                let mut compared =
                    compare(history, span, baseline(history, span.from, width), Some(resolution))?;
                compared.measure_causes(history, resolution)?;
                compared.explained(history, width)
            }
        };
    }
    bail!("nothing is stored of {}", zone.show_seconds(focus.from))
}

/// The time before `to` that shows what is usual, as far as it is stored.
fn baseline(history: &StoredHistory, to: Timestamp, width_ns: u64) -> Span {
    let length = BASELINE_WINDOWS as u64 * width_ns;
    let from = Timestamp::from_unix_ns(to.unix_ns().saturating_sub(length));
    Span { from: from.max(history.extent.from).min(to), to }
}

/// A span that was compared with another one.
struct ComparedMoment {
    moment: ScanMoment,
    seen: SeenSpan,
    /// What its figures were compared with.
    against: Span,
    /// The time before that shows what is usual, if it is longer than that.
    usual: Option<Span>,
    /// Why no figures were compared.
    doubt: Option<String>,
}

impl ComparedMoment {
    /// Measures again what began in it, and what events shortly before explain: whichever time was asked for, a change is
    /// measured from the window on in which it began.
    fn measure_causes(&mut self, history: &StoredHistory, resolution: Resolution) -> Result<()> {
        if self.doubt.is_some() {
            return Ok(());
        }
        let (span, width) = (self.moment.span, resolution.width_ns());
        // People know a time by some seconds.
        let from = Timestamp::from_unix_ns(span.from.unix_ns().saturating_sub(width));
        let events = history.events(Span { from, to: span.from })?;
        let earlier = events.iter().filter(|event| can_explain(event)).map(|event| event.at.floor_to(width));
        let mut starts: BTreeSet<Timestamp> = earlier.collect();
        starts.extend(starts_of(&self.moment, width));
        let mut again = Vec::new();
        for start in starts {
            let Some(mut moment) = measured_from(history, start, resolution)? else { continue };
            // What began earlier counts only if it explains something.
            moment.changes.changes.retain(|change| start >= span.from || !change.effects.is_empty());
            again.push(moment);
        }
        for moment in &again {
            let from = moment.span.from;
            without_changes_of(&mut self.moment, Span { from, to: from.plus_ns(width) }, moment);
        }
        let own = std::mem::take(&mut self.moment.changes.changes);
        again.push(ScanMoment {
            changes: HistoryChanges { changes: own, ..HistoryChanges::default() },
            ..self.moment.clone()
        });
        again.sort_by_key(|moment| moment.span.from);
        let all = without_repetitions(again).into_iter();
        self.moment.changes.changes = all.flat_map(|moment| moment.changes.changes).collect();
        Ok(())
    }

    /// With all events of the span, as every view shows them.
    fn explained(self, history: &StoredHistory, width_ns: u64) -> Result<Explained> {
        let span = self.moment.span;
        let moments = with_all_events(vec![self.moment], &history.events(span)?, width_ns);
        let moments = each_once(moments, width_ns);
        let from = self.usual.unwrap_or(self.against).from.min(span.from);
        let moments = without_usual_silences(moments, &history.events(Span { from, to: span.to })?, width_ns);
        Ok(Explained {
            span,
            against: self.doubt.is_none().then_some(self.against),
            usual: self.usual,
            moments,
            seen: self.seen,
            doubt: self.doubt,
        })
    }
}

/// Compares a span with another one; a moment in windows of this resolution.
fn compare(
    history: &StoredHistory,
    span: Span,
    against: Span,
    moment: Option<Resolution>,
) -> Result<ComparedMoment> {
    let resolution = moment.unwrap_or_else(|| history::resolution(span));
    let (before, after) = (history.windows(against, resolution)?, history.windows(span, resolution)?);
    let utc = Zone::utc();
    let covers = || {
        let (from, to) = (utc.show_seconds(history.extent.from), utc.show_seconds(history.extent.to));
        format!("the history covers {from} to {to}")
    };
    if after.is_empty() {
        bail!("nothing is stored from {} on; {}", utc.show_seconds(span.from), covers());
    }
    let mut seen = SeenSpan::default();
    after.iter().for_each(|window| seen.add(window));
    if before.len() < MIN_WINDOWS {
        let from = utc.show_seconds(against.from);
        let doubt = format!("too little is stored from {from} on to compare figures with; {}", covers());
        let moment = ScanMoment { span, measured_ns: span.length_ns(), changes: HistoryChanges::default() };
        return Ok(ComparedMoment { moment, seen, against, usual: None, doubt: Some(doubt) });
    }
    // What was measured later than that may have grown later, and what the span held up ends later.
    let end = if moment.is_some() { span.to.plus_ns(SIZES_EVERY_NS) } else { span.to };
    let events = history.events(Span { from: against.from.min(span.from), to: end.max(against.to) })?;
    let later = match moment {
        Some(_) => history.windows(Span { from: span.to, to: end }, resolution)?,
        None => Vec::new(),
    };
    let input = ChangeInput { before: &before, after: &after, later: &later, events: &events, alpha: ALPHA };
    let kind = if moment.is_some() { ComparisonKind::Moment } else { ComparisonKind::Spans };
    let changes = find(&input, kind);
    let moment = ScanMoment { span, measured_ns: span.length_ns(), changes };
    let recent = input.recent();
    let is_part = |recent: &Span| before.first().is_some_and(|first| first.window.start < recent.from);
    let usual = recent.filter(is_part).map(|_| against);
    Ok(ComparedMoment { moment, seen, against: recent.unwrap_or(against), usual, doubt: None })
}

/// The moments of change within a span.
fn scan(history: &StoredHistory, span: Span, zone: &Zone) -> Result<Explained> {
    let fits = |one: &Resolution| span.length_ns() / one.width_ns() <= MAX_SCANNED;
    let resolution = Resolution::ALL.into_iter().find(fits).unwrap_or(Resolution::Hour);
    scan_windows(history, (span, resolution), zone)
}

/// The same in windows of a resolution.
fn scan_windows(
    history: &StoredHistory,
    (span, resolution): (Span, Resolution),
    zone: &Zone,
) -> Result<Explained> {
    let span = history.until_now(whole_windows(span, resolution));
    let before = baseline(history, span.from, resolution.width_ns());
    let events = history.events(Span { from: before.from, to: span.to })?;
    let windows = span.length_ns() / resolution.width_ns();
    let mut scan = Scan::new(&events, ALPHA, usize::try_from(windows).unwrap_or(usize::MAX));
    history.visit(before, resolution, &mut |window| {
        if window.window.end <= span.from {
            scan.push_before(window);
        }
    })?;
    let mut seen = SeenSpan::default();
    let mut commands = CommandEvents::default();
    // What began at the end shows in the windows behind it.
    let behind = (RECENT_WINDOWS as u64 - 1) * resolution.width_ns();
    let with_behind =
        Span { from: span.from, to: history.until_now(Span { to: span.to.plus_ns(behind), ..span }).to };
    history.visit(with_behind, resolution, &mut |window| {
        if span.contains(window.window.start) {
            seen.add(&window);
            commands.add(&window);
        }
        if window.window.start >= span.from {
            scan.push(window);
        }
    })?;
    let mut listed: Vec<Event> = events.iter().filter(|event| span.contains(event.at)).cloned().collect();
    listed.extend(commands.finish(&events));
    let show = |at| zone.show_seconds(at);
    let (extent, from, to) = (history.extent, show(span.from), show(span.to));
    let covers = || format!("the history covers {} to {}", show(extent.from), show(extent.to));
    let doubt = if seen.windows() == 0 {
        let covers = covers();
        Some(format!(
            "nothing was observed between {from} and {to}, so nothing can be said about it; {covers}"
        ))
    } else if !scan.has_compared() {
        let covers = covers();
        Some(format!("too little was observed up to {to} to say what is usual and what changed; {covers}"))
    } else {
        None
    };
    let moments = scan.finish();
    let width = resolution.width_ns();
    let told = |mut moments: Vec<ScanMoment>| {
        for moment in &mut moments {
            moment.changes.changes.retain(|change| change.since < span.to);
        }
        moments.retain(|moment| moment.span.from < span.to);
        let moments = apart(with_all_events(moments, &listed, width), width);
        without_usual_silences(moments, &events, width)
    };
    if moments.len() > MAX_REFINED {
        let moments = told(moments);
        return Ok(Explained { span, against: None, usual: None, moments, seen, doubt });
    }
    let mut again = BTreeMap::new();
    let mut refined = Vec::new();
    for mut moment in moments {
        refine(history, &mut moment, (&mut again, resolution))?;
        refined.push(moment);
    }
    refined.extend(again.into_values().flatten());
    refined.sort_by_key(|moment| moment.span.from);
    let moments = told(without_repetitions(refined));
    Ok(Explained { span, against: None, usual: None, moments, seen, doubt })
}

/// The windows in which changes of a moment began.
fn starts_of(moment: &ScanMoment, width_ns: u64) -> BTreeSet<Timestamp> {
    let start = |change: &HistoryChange| match &change.what {
        ChangeKind::Event(_) => change.since.floor_to(width_ns),
        _ => change.since.max(moment.span.from).floor_to(width_ns),
    };
    moment.changes.changes.iter().map(start).collect()
}

/// What began in the window that starts at `from`, measured from there on; `None` where there is nothing to compare with, as
/// after a time in which nothing was observed.
fn measured_from(
    history: &StoredHistory,
    from: Timestamp,
    resolution: Resolution,
) -> Result<Option<ScanMoment>> {
    let width = resolution.width_ns();
    let window = Span { from, to: from.plus_ns(width) };
    let Some(mut moment) = compared_from(history, from, resolution)? else { return Ok(None) };
    moment.changes.changes.retain(|change| window.contains(change.since));
    // What an event causes may begin a little later: then the first windows are as before.
    for later in 1..RECENT_WINDOWS as u64 {
        let lacks_effects = |change: &HistoryChange| match &change.what {
            ChangeKind::Event(events) => change.effects.is_empty() && events.iter().any(can_explain),
            _ => false,
        };
        if !moment.changes.changes.iter().any(lacks_effects) {
            break;
        }
        let Some(mut next) = compared_from(history, from.plus_ns(later * width), resolution)? else { break };
        next.changes.changes.retain(|change| {
            let is_event = matches!(change.what, ChangeKind::Event(_));
            is_event && window.contains(change.since) && !change.effects.is_empty()
        });
        without_changes_of(&mut moment, window, &next);
        moment.changes.changes.append(&mut next.changes.changes);
    }
    Ok(Some(moment))
}

/// The windows from `from` on against those before it.
fn compared_from(
    history: &StoredHistory,
    from: Timestamp,
    resolution: Resolution,
) -> Result<Option<ScanMoment>> {
    let width = resolution.width_ns();
    let span = Span { from, to: from.plus_ns(RECENT_WINDOWS as u64 * width).min(history.extent.to) };
    let before = baseline(history, from, width);
    let is_possible = span.from < span.to
        && history.windows(before, resolution)?.len() >= MIN_WINDOWS
        && !history.windows(span, resolution)?.is_empty();
    if !is_possible {
        return Ok(None);
    }
    Ok(Some(compare(history, span, before, Some(resolution))?.moment))
}

/// Compares again from each window in which a change of a moment began, so that its figures are not mixed with those before
/// it, and leaves in the moment what is not found again. Each window is compared once.
fn refine(
    history: &StoredHistory,
    moment: &mut ScanMoment,
    (again, resolution): (&mut BTreeMap<Timestamp, Option<ScanMoment>>, Resolution),
) -> Result<()> {
    let width = resolution.width_ns();
    for from in starts_of(moment, width) {
        if let Entry::Vacant(place) = again.entry(from) {
            place.insert(measured_from(history, from, resolution)?);
        }
        if let Some(Some(found)) = again.get(&from) {
            without_changes_of(moment, Span { from, to: from.plus_ns(width) }, found);
        }
    }
    Ok(())
}
