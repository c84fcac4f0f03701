//! Samples that a server did not write: an effect of what stopped the server at that time, if that is known.

use super::change::{ChangeKind, HistoryChange, MachineCause};
use super::events::REACH_WINDOWS;
use super::scan::{BASELINE_WINDOWS, ScanMoment};
use crate::Endpoint;
use crate::history::{Event, EventKind, Span};
use crate::time::NS_PER_S;

/// The most time after the last event of a cause in which it may still stop a server, in nanoseconds.
const MAX_REACH_NS: u64 = 60 * NS_PER_S;
/// How exactly the times of both are known, in nanoseconds.
const SLACK_NS: u64 = 3 * NS_PER_S;
/// Silences are usual if a server had this many before, in windows of [`BASELINE_WINDOWS`].
const MIN_USUAL: usize = 2;

/// How surely an event stops a server, more is better, and how long after it at most, in nanoseconds; `None` if it does not.
fn stops(event: &Event, reach_ns: u64) -> Option<(u8, u64)> {
    match event.kind {
        // The machine was suspended.
        EventKind::Gap if event.server.port == 0 => Some((4, reach_ns)),
        EventKind::ServerUnreachable => Some((3, reach_ns)),
        EventKind::ServerStop | EventKind::ServerCrash => Some((2, SLACK_NS)),
        EventKind::CpuThrottled => Some((1, reach_ns)),
        _ => None,
    }
}

/// Whether an event stopped a server at the time of a silence among `events`.
pub(super) fn is_cause(event: &Event, events: &[Event], width_ns: u64) -> bool {
    if stops(event, 0).is_none() {
        return false;
    }
    let change = HistoryChange::new(event.server, event.at, ChangeKind::Event(vec![event.clone()]));
    events.iter().any(|silence| caused(&change, silence, width_ns).is_some())
}

/// How surely a change caused a silence, more is better; `None` if it did not.
fn caused(cause: &HistoryChange, silence: &Event, width_ns: u64) -> Option<u8> {
    if cause.server != silence.server && cause.server.port != 0 {
        return None;
    }
    let silent = Span { from: silence.at, to: silence.at.plus_ns(silence.silence_ns()?) };
    let overlaps = |lasts: Span| lasts.from <= silent.to.plus_ns(SLACK_NS) && silent.from <= lasts.to;
    match &cause.what {
        ChangeKind::Event(events) => {
            let reach_ns = width_ns.saturating_mul(REACH_WINDOWS).min(MAX_REACH_NS);
            let stopping = |event: &Event| stops(event, reach_ns);
            let (surely, reach_ns) = events.iter().filter_map(stopping).max()?;
            let last = events.last()?.at.plus_ns(reach_ns);
            overlaps(Span { from: events.first()?.at, to: last }).then_some(surely)
        }
        ChangeKind::Machine(what) if what.cause == MachineCause::Throttled => {
            overlaps(Span { from: cause.since, to: cause.until }).then_some(1)
        }
        _ => None,
    }
}

/// What most surely caused a silence, in any of the moments.
fn cause_of<'a>(
    moments: &'a mut [ScanMoment],
    silence: &Event,
    width_ns: u64,
) -> Option<&'a mut HistoryChange> {
    let all = moments.iter_mut().flat_map(|moment| &mut moment.changes.changes);
    let causes = all.filter_map(|cause| Some((caused(cause, silence, width_ns)?, cause)));
    causes.max_by_key(|(surely, _)| *surely).map(|(_, cause)| cause)
}

/// Hands each silence whose cause is known, in any of the moments, to that.
pub(super) fn below_causes(moments: &mut [ScanMoment], width_ns: u64) {
    let mut silent = Vec::new();
    for (number, moment) in moments.iter_mut().enumerate() {
        let all = std::mem::take(&mut moment.changes.changes);
        let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.silences().is_some());
        moment.changes.changes = others;
        silent.extend(own.into_iter().map(|change| (number, change)));
    }
    for (number, mut change) in silent {
        let ChangeKind::Event(events) = &mut change.what else { continue };
        let mut longest: Option<Event> = None;
        events.retain(|event| {
            let Some(cause) = cause_of(moments, event, width_ns) else { return true };
            let effect = HistoryChange::new(change.server, event.at, ChangeKind::Event(vec![event.clone()]));
            cause.effects.push(HistoryChange { from: change.from, until: change.until, ..effect });
            if longest.as_ref().is_none_or(|longest| longest.silence_ns() < event.silence_ns()) {
                longest = Some(event.clone());
            }
            false
        });
        if let Some(first) = events.first() {
            change.since = first.at;
            moments[number].changes.changes.push(change);
        } else if let Some(cause) = longest.and_then(|longest| cause_of(moments, &longest, width_ns)) {
            // What the silence explained is an effect of its cause.
            cause.cost_ns += change.cost_ns;
            cause.effects.append(&mut change.effects);
            cause.effects.sort_by(|a, b| b.cost_ns.abs().total_cmp(&a.cost_ns.abs()));
        }
    }
}

/// Leaves of the silences of a server that one change caused the longest.
pub(super) fn longest_only(changes: &mut [HistoryChange]) {
    for change in changes {
        let silent = |effect: &HistoryChange| {
            effect.silences()?.iter().filter_map(Event::silence_ns).max().map(|ns| (effect.server, ns))
        };
        let mut longest: Vec<(Endpoint, u64)> = change.effects.iter().filter_map(silent).collect();
        longest.sort_by_key(|(server, ns)| (*server, std::cmp::Reverse(*ns)));
        longest.dedup_by_key(|(server, _)| *server);
        change.effects.retain(|effect| match silent(effect) {
            Some(own) => match longest.iter().position(|one| *one == own) {
                Some(at) => {
                    longest.swap_remove(at);
                    true
                }
                None => false,
            },
            None => true,
        });
    }
}

/// The same moments without silences that explain nothing and are usual: the server had some in the time before, of which
/// the longest was not much shorter. `events` are those of the moments and of the time before them.
pub fn without_usual_silences(
    mut moments: Vec<ScanMoment>,
    events: &[Event],
    width_ns: u64,
) -> Vec<ScanMoment> {
    let reach_ns = width_ns.saturating_mul(BASELINE_WINDOWS as u64);
    let is_usual = |silence: &Event| {
        let is_before = |one: &&Event| {
            one.server == silence.server && one.at < silence.at && silence.at.since(one.at) <= reach_ns
        };
        let before: Vec<u64> = events.iter().filter(is_before).filter_map(Event::silence_ns).collect();
        let longest = before.iter().max().copied().unwrap_or(0);
        before.len() >= MIN_USUAL && longest.saturating_mul(2) >= silence.silence_ns().unwrap_or(0)
    };
    for moment in &mut moments {
        moment.changes.changes.retain(|change| {
            let own = change.silences().filter(|_| change.effects.is_empty());
            !own.is_some_and(|events| events.iter().all(is_usual))
        });
    }
    moments.retain(|moment| !moment.changes.is_empty());
    moments
}
