//! A history as views read it.

use std::collections::BTreeSet;

use sonar_core::history::{
    CollectorKind, Event, EventKind, GapFinder, HistoryError, HistoryGap, HistoryReader, HistoryWindow,
    KILL_REACH_NS, ObservedSpan, REPEATED_REACH_NS, Resolution, Span, each_event_once,
    is_kill_of_other_group, without_explained_kills,
};
use sonar_core::{Endpoint, Timestamp};

use super::PastError;
use super::scanned_parts::ScannedParts;
use crate::changes::words;
use crate::changes::{GapJson, gaps_summary};
use crate::kit::{Zone, server_name};

const HOUR_NS: u64 = 3_600_000_000_000;
const DAY_NS: u64 = 24 * HOUR_NS;
/// The most windows that one view reads.
const MAX_WINDOWS: u64 = 400;
/// The most servers that a message names.
const MAX_NAMED: usize = 10;

/// A history as views read it: of all servers or of one, without windows that nobody observed, and with each event once.
pub struct HistoryView<'a> {
    reader: &'a dyn HistoryReader,
    name: &'a str,
    extent: Span,
    now: Timestamp,
    /// Only what is about the server at this port.
    server: Option<u16>,
    /// That of the times in messages.
    zone: Zone,
    /// What is known of parts of it.
    scanned: Option<&'a ScannedParts>,
}

impl<'a> HistoryView<'a> {
    /// All of a history as it is read at `now`; `name` says in messages where it is.
    ///
    /// # Errors
    /// It cannot be read, or is empty.
    pub fn new(reader: &'a dyn HistoryReader, name: &'a str, now: Timestamp) -> Result<Self, PastError> {
        let extent = reader.extent().map_err(|source| unreadable(name, source))?;
        let Some(extent) = extent else {
            return Err(PastError::NothingStored(format!(
                "the history in {name} is empty: `mongosonar agent --status` says what the agent does"
            )));
        };
        Ok(Self { reader, name, extent, now, server: None, zone: Zone::utc(), scanned: None })
    }

    /// Where it is.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// The time that it covers.
    pub const fn extent(&self) -> Span {
        self.extent
    }

    /// The same, with the times in messages of functions that take no zone as those of a clock in `zone`; they are in UTC
    /// without it.
    pub fn in_zone(&self, zone: &Zone) -> Self {
        Self { zone: zone.clone(), ..*self }
    }

    /// The same, which uses what is known of parts of it, and adds to it.
    #[must_use]
    pub fn with_scanned_parts(self, scanned: &'a ScannedParts) -> Self {
        Self { scanned: Some(scanned), ..self }
    }

    pub(super) const fn scanned_parts(&self) -> Option<&'a ScannedParts> {
        self.scanned
    }

    /// The port of the server that it is about; all of them without it.
    pub(super) const fn server(&self) -> Option<u16> {
        self.server
    }

    /// The zone of times in messages.
    pub(super) const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// With only what is about the server at this port, and what is about no server, like the machine; all of it without a
    /// port.
    ///
    /// # Errors
    /// The history cannot be read, or knows no such server.
    pub fn of_server(self, server: Option<u16>) -> Result<Self, PastError> {
        let Some(port) = server else { return Ok(self) };
        let known = self.servers()?;
        if known.iter().any(|server| server.port == port) {
            return Ok(Self { server, ..self });
        }
        let named: Vec<String> = known.iter().take(MAX_NAMED).map(|server| server_name(*server)).collect();
        let more = known.len().saturating_sub(MAX_NAMED);
        let others = if more > 0 { format!(" and {more} more") } else { String::new() };
        let known = match named.is_empty() {
            true => "it names no server".to_owned(),
            false => format!("it knows {}{others}", named.join(", ")),
        };
        let name = self.name;
        Err(PastError::WrongQuestion(format!("the history in {name} has no server at port {port}; {known}")))
    }

    /// The servers that anything in the history is about.
    fn servers(&self) -> Result<BTreeSet<Endpoint>, PastError> {
        let mut servers = BTreeSet::new();
        self.visit(self.extent, resolution(self.extent), &mut |window| {
            servers.extend(window.window.shapes.iter().map(|row| row.server));
            servers.extend(window.series.keys().map(|key| key.server));
        })?;
        servers.extend(self.events(self.extent)?.iter().map(|event| event.server));
        servers.retain(|server| server.port != 0);
        Ok(servers)
    }

    /// A span without what is still to come.
    pub fn until_now(&self, span: Span) -> Span {
        without_future(span, self.extent, self.now)
    }

    /// The whole windows in which a span lies, without what is still to come, and how long each is.
    pub fn in_whole_windows(&self, span: Span) -> (Span, Resolution) {
        let resolution = resolution(span);
        (self.until_now(whole_windows(span, resolution)), resolution)
    }

    /// A span that somebody asks for, without what is still to come.
    ///
    /// # Errors
    /// All of it is still to come.
    pub fn asked(&self, span: Span, zone: &Zone) -> Result<Span, PastError> {
        let span = self.until_now(span);
        if span.to <= span.from {
            let (from, covers) = (zone.show_seconds(span.from), self.covers(zone));
            return Err(PastError::WrongQuestion(format!("nothing is stored after {from} yet; {covers}")));
        }
        Ok(span)
    }

    /// The last hour of what is stored.
    pub fn last_hour(&self) -> Span {
        let from = self.extent.to.minus_ns(HOUR_NS);
        Span { from: from.max(self.extent.from), to: self.extent.to }
    }

    /// Which time the history covers, in words.
    pub(super) fn covers(&self, zone: &Zone) -> String {
        let Span { from, to } = self.extent;
        format!("the history covers {} to {}", zone.show_seconds(from), zone.show_seconds(to))
    }

    /// That nothing is stored of a span, and what is.
    pub(super) fn nothing_stored(&self, span: Span, zone: &Zone) -> PastError {
        let show = |at| zone.show_seconds(at);
        PastError::NothingStored(format!(
            "nothing is stored between {} and {}; the history in {} covers {} to {}",
            show(span.from),
            show(span.to),
            self.name,
            show(self.extent.from),
            show(self.extent.to)
        ))
    }

    /// The windows of this resolution that overlap `span`, by time, without those that nobody observed. Where there
    /// are none any more, they are coarser.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn windows(&self, span: Span, resolution: Resolution) -> Result<Vec<HistoryWindow>, PastError> {
        let mut windows = Vec::new();
        self.visit(span, resolution, &mut |window| windows.push(window))?;
        Ok(windows)
    }

    /// Hands out the same windows one by one.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn visit(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), PastError> {
        self.visit_those(&HistoryWindow::is_observed, span, resolution, visit)
    }

    /// Like [`visit`](Self::visit), but also hands out windows in which no agent ran, if the next agent read the log of that
    /// time.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn visit_operations(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), PastError> {
        let counts = |window: &HistoryWindow| window.is_observed() || !window.window.shapes.is_empty();
        self.visit_those(&counts, span, resolution, visit)
    }

    /// Hands out the windows that count.
    fn visit_those(
        &self,
        counts: &dyn Fn(&HistoryWindow) -> bool,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), PastError> {
        let mut visit = |mut window: HistoryWindow| {
            if counts(&window) {
                self.prepare(&mut window);
                visit(window);
            }
        };
        self.reader.windows(span, resolution, &mut visit).map_err(|source| self.unreadable(source))
    }

    /// Everything within a span; `None` if nothing is stored there.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn read(&self, span: Span) -> Result<Option<HistoryWindow>, PastError> {
        let mut window = self.reader.read(span).map_err(|source| self.unreadable(source))?;
        window.iter_mut().for_each(|window| self.prepare(window));
        Ok(window)
    }

    /// The events within a span, by time, each thing once, and without kills that the ends of servers explain.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn events(&self, span: Span) -> Result<Vec<Event>, PastError> {
        // The end of a server, and its start, may be told a little earlier or later.
        let reach_ns = KILL_REACH_NS.max(REPEATED_REACH_NS);
        let from = span.from.minus_ns(reach_ns);
        let around = Span { from, to: span.to.plus_ns(reach_ns) };
        let events = self.reader.events(around).map_err(|source| self.unreadable(source))?;
        let mut events = without_explained_kills(each_event_once(events));
        events.retain(|event| span.contains(event.at));
        if let Some(server) = self.server {
            let is_its = |event: &Event| event.server.port == 0 || event.server.port == server;
            events.retain(|event| is_its(event) && !is_kill_of_other_group(event));
        }
        Ok(events)
    }

    /// The host that the agent last ran on; `None` if the history does not say it.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn host(&self) -> Result<Option<String>, PastError> {
        last_host(self.extent, &mut |span| self.events(span))
    }

    /// The times of a span that were not observed.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn gaps(&self, span: Span) -> Result<Vec<HistoryGap>, PastError> {
        Ok(self.gap_finder(span)?.finish())
    }

    fn gap_finder(&self, span: Span) -> Result<GapFinder, PastError> {
        let mut finder = GapFinder::new(span);
        self.observed(span, &mut |window| {
            if window.is_observed() {
                finder.add(&window);
            }
        })?;
        Ok(finder)
    }

    /// The collector that shows the operations of a span: that of the log only where nothing was seen on the wire.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn shows_operations(&self, span: Span) -> Result<CollectorKind, PastError> {
        let mut is_on_wire = false;
        self.observed(span, &mut |window| {
            is_on_wire |= window.observed_ns[CollectorKind::Queries as usize] > 0;
        })?;
        Ok(if is_on_wire { CollectorKind::Queries } else { CollectorKind::Log })
    }

    fn observed(&self, span: Span, visit: &mut dyn FnMut(ObservedSpan)) -> Result<(), PastError> {
        let mut visit = |mut window: ObservedSpan| {
            // A long window has room before and after the history, where nothing could be observed.
            let Span { from, to } = window.span;
            window.span = Span { from: from.max(self.extent.from), to: to.min(self.extent.to) };
            visit(window);
        };
        self.observed_at(span, resolution(span), &mut visit)
    }

    /// How long each collector observed the windows of this resolution.
    pub(super) fn observed_at(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(ObservedSpan),
    ) -> Result<(), PastError> {
        self.reader.observed(span, resolution, visit).map_err(|source| self.unreadable(source))
    }

    /// The times of a span that this collector did not observe, by time.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn gaps_of(&self, collector: CollectorKind, span: Span) -> Result<Vec<HistoryGap>, PastError> {
        Ok(self.gap_finder(span)?.finish_of(collector))
    }

    /// What this collector did not observe of a span, in words.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn gap_note(
        &self,
        collector: CollectorKind,
        span: Span,
        zone: &Zone,
    ) -> Result<Option<String>, PastError> {
        let stored = Span { from: span.from.max(self.extent.from), to: span.to.min(self.extent.to) };
        let gaps: Vec<GapJson> = self.gaps_of(collector, stored)?.iter().map(Into::into).collect();
        let clock = |at| words::clock(zone, at, span);
        let before = (span.from < stored.from).then(|| format!("before {}", clock(stored.from)));
        let after = (span.to > stored.to).then(|| format!("after {}", clock(stored.to)));
        let beyond: Vec<String> = before.into_iter().chain(after).collect();
        let beyond = (!beyond.is_empty()).then(|| format!("Nothing is stored {}.", beyond.join(" and ")));
        let parts: Vec<String> = gaps_summary(&gaps, zone, span).into_iter().chain(beyond).collect();
        Ok((!parts.is_empty()).then(|| format!("GAP: {}", parts.join(" "))))
    }

    /// What was not observed of the operations of a span, in words.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn operations_gap_note(&self, span: Span, zone: &Zone) -> Result<Option<String>, PastError> {
        self.gap_note(self.shows_operations(span)?, span, zone)
    }

    /// Makes a window ready for views: the operations of one application are together although the log may not know its
    /// driver, only the server that was asked for is left, and operations say how long their sources were observed.
    fn prepare(&self, window: &mut HistoryWindow) {
        window.window.join_applications();
        self.server.iter().for_each(|port| window.keep_server(*port));
        window.state_observed();
    }

    fn unreadable(&self, source: HistoryError) -> PastError {
        unreadable(self.name, source)
    }
}

fn unreadable(name: &str, source: HistoryError) -> PastError {
    PastError::Unreadable { name: name.to_owned(), source }
}

/// The host of the last start of an agent that names one. Most agents have started not long before the end: looks at the
/// last day, and then at twice as much each time.
fn last_host(
    extent: Span,
    events: &mut dyn FnMut(Span) -> Result<Vec<Event>, PastError>,
) -> Result<Option<String>, PastError> {
    // An event may be later than the last window, but not than its day.
    let last = extent.to.floor_to(DAY_NS);
    let (mut span, mut length) = (Span { from: last, to: last.plus_ns(DAY_NS) }, DAY_NS);
    loop {
        let events = events(span)?;
        let starts = events.iter().rev().filter(|event| event.kind == EventKind::AgentStart);
        let host = starts.map(|start| start.subject.to_string()).find(|host| !host.is_empty());
        if host.is_some() || span.from <= extent.from {
            return Ok(host);
        }
        length = length.saturating_mul(2);
        span = Span { from: span.from.minus_ns(length), to: span.from };
    }
}

/// The finest resolution in which a span has few enough windows for a view.
pub fn resolution(span: Span) -> Resolution {
    let fits = |one: &Resolution| span.length_ns() / one.width_ns() <= MAX_WINDOWS;
    Resolution::ALL.into_iter().find(fits).unwrap_or(Resolution::Hour)
}

/// A span of whole windows that includes `span`.
pub fn whole_windows(span: Span, resolution: Resolution) -> Span {
    let width = resolution.width_ns();
    let to = span.to.floor_to(width);
    Span { from: span.from.floor_to(width), to: if to < span.to { to.plus_ns(width) } else { to } }
}

/// A span that ends `now` at the latest, or with what is stored where that is later because the clock was set back.
fn without_future(span: Span, stored: Span, now: Timestamp) -> Span {
    Span { from: span.from, to: span.to.min(now.max(stored.to)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_without_reading_days_before_its_start() {
        let day = |day: u64, ns: u64| Timestamp::from_unix_ns(day * DAY_NS + ns);
        let started = |at, host| {
            Event::new(at, EventKind::AgentStart, Endpoint::default(), "version 1.0.0").about(host)
        };
        let search = |extent: Span, stored: &[Event]| {
            let mut first = extent.to;
            let host = last_host(extent, &mut |span| {
                first = first.min(span.from);
                Ok(stored.iter().filter(|event| span.contains(event.at)).cloned().collect())
            });
            (host.unwrap(), first)
        };
        let extent = Span { from: day(1, 5), to: day(40, 7) };
        let mut stored = vec![started(day(1, 9), "old"), started(day(39, 3), "db1"), started(day(39, 4), "")];
        assert_eq!(search(extent, &stored), (Some("db1".to_owned()), day(38, 0)));
        stored.push(started(day(40, 6), "db2"));
        assert_eq!(search(extent, &stored), (Some("db2".to_owned()), day(40, 0)));
        // At the very end, which may be where a day begins.
        for to in [day(40, 7), day(40, 0)] {
            let extent = Span { to, ..extent };
            assert_eq!(search(extent, &[started(to, "db3")]).0.as_deref(), Some("db3"));
        }
        assert_eq!(search(extent, &stored[..1]).0.as_deref(), Some("old"));
        assert_eq!(search(extent, &[]).0, None);
        // The clock was wrong.
        let all = Span { from: Timestamp::from_unix_ns(0), to: Timestamp::from_unix_ns(u64::MAX) };
        assert_eq!(search(all, &[]), (None, all.from));
    }

    #[test]
    fn a_span_has_nothing_that_is_still_to_come() {
        let span = |from, to| Span { from: Timestamp::from_unix(from, 0), to: Timestamp::from_unix(to, 0) };
        let now = Timestamp::from_unix(1_000, 0);
        let cut = |to, stored| without_future(span(500, to), span(100, stored), now);
        assert_eq!(cut(900, 990), span(500, 900));
        // The rest of a window, or an end that somebody wrote.
        assert_eq!(cut(1_040, 990), span(500, 1_000));
        // Its clock was ahead.
        assert_eq!(cut(2_000, 1_500), span(500, 1_500));
    }
}
