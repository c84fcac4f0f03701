//! The moments of change within a span.

use sonar_core::changes::{
    ALPHA, ChangeKind, CommandEvents, HistoryChange, RECENT_WINDOWS, Scan, apart, with_all_events,
    without_repetitions, without_usual_silences,
};
use sonar_core::history::{Event, Resolution, Span};

use super::compared::baseline;
use super::explained::Explained;
use super::measured::ChangeMeasurement;
use crate::changes::SeenSpan;
use crate::kit::Zone;
use crate::past::{HistoryView, PastError, whole_windows};

/// The most windows that a scan compares.
const MAX_SCANNED: u64 = 1_500;

/// The moments of change within a span.
pub(super) fn explain(history: &HistoryView<'_>, span: Span, zone: &Zone) -> Result<Explained, PastError> {
    let fits = |one: &Resolution| span.length_ns() / one.width_ns() <= MAX_SCANNED;
    let resolution = Resolution::ALL.into_iter().find(fits).unwrap_or(Resolution::Hour);
    explain_windows(history, span, resolution, zone)
}

/// The same in windows of a resolution.
pub(super) fn explain_windows(
    history: &HistoryView<'_>,
    span: Span,
    resolution: Resolution,
    zone: &Zone,
) -> Result<Explained, PastError> {
    let span = history.until_now(whole_windows(span, resolution));
    let before = baseline(history, span.from, resolution.width_ns());
    let events = history.events(Span { from: before.from, to: span.to })?;
    // What began shortly before the span goes on in it, and is no change there.
    let lead = RECENT_WINDOWS as u64 * resolution.width_ns();
    let lead = span.from.minus_ns(lead).max(before.from);
    let windows = span.to.since(lead) / resolution.width_ns();
    let mut scan = Scan::new(&events, ALPHA, usize::try_from(windows).unwrap_or(usize::MAX));
    history.visit(before, resolution, &mut |window| {
        if window.window.end <= lead {
            scan.push_before(window);
        } else if window.window.end <= span.from {
            scan.push(window);
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
    let (from, to) = (zone.show_seconds(span.from), zone.show_seconds(span.to));
    let covers = || history.covers(zone);
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
    let mut measurement = ChangeMeasurement::new(history, resolution);
    let mut refined = Vec::new();
    for mut moment in moments {
        measurement.refine(&mut moment)?;
        refined.push(moment);
    }
    refined.extend(measurement.into_windows());
    refined.sort_by_key(|moment| moment.span.from);
    let mut moments = without_repetitions(refined);
    for moment in &mut moments {
        moment.changes.changes.retain(|change| began_in(change, span, width));
    }
    moments.retain(|moment| !moment.changes.changes.is_empty() || span.contains(moment.span.from));
    let moments = apart(with_all_events(moments, &listed, width), width);
    let moments = without_usual_silences(moments, &events, width);
    Ok(Explained { span, against: None, usual: None, moments, seen, doubt })
}

/// Whether a change, or something that it caused, began in a span. What the machine and the servers measure of themselves
/// is compared by windows of `width` nanoseconds, and may be dated a window before it began.
fn began_in(change: &HistoryChange, span: Span, width: u64) -> bool {
    let is_of_windows =
        matches!(change.what, ChangeKind::Machine(_) | ChangeKind::Server(_) | ChangeKind::Series(_));
    let since = if is_of_windows { change.since.plus_ns(width) } else { change.since };
    span.contains(change.since)
        || span.contains(since)
        || change.effects.iter().any(|effect| began_in(effect, span, width))
}

#[cfg(test)]
mod tests {
    use sonar_core::changes::{MachineCause, MachineChange, ServerChange};
    use sonar_core::{Endpoint, Timestamp};

    use super::*;

    #[test]
    fn what_is_known_by_windows_may_be_dated_a_window_before_the_span() {
        const WIDTH: u64 = 10_000_000_000;
        let span = Span { from: Timestamp::from_unix(100, 0), to: Timestamp::from_unix(160, 0) };
        let server = Endpoint::v4([127, 0, 0, 1], 27_017);
        let began = |what: ChangeKind, second| {
            began_in(&HistoryChange::new(server, Timestamp::from_unix(second, 0), what), span, WIDTH)
        };
        let machine = || {
            let cause = MachineCause::Processors;
            let (others, figures) = (Vec::new(), Vec::new());
            ChangeKind::Machine(MachineChange { cause, name: "".into(), others, figures })
        };
        let as_a_whole = || {
            ChangeKind::Server(ServerChange {
                levels: Vec::new(),
                new_shapes: 0,
                new_share: 0.0,
                has_unusually_many_new_shapes: false,
                new_names: Vec::new(),
                applications: Vec::new(),
            })
        };
        for what in [machine, as_a_whole] as [fn() -> ChangeKind; 2] {
            assert!(began(what(), 90) && began(what(), 159));
            assert!(!began(what(), 80) && !began(what(), 160));
        }
        // When an event happened is known exactly.
        assert!(!began(ChangeKind::Event(Vec::new()), 90));
        assert!(began(ChangeKind::Event(Vec::new()), 100));
    }
}
