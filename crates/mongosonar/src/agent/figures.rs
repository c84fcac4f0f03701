//! The figures of a server's own samples as series, and what happened between them as events.

use std::cell::RefCell;

use sonar_core::history::metrics::SeriesMetric;
use sonar_core::history::{CollectorKind, Event, EventKind, SeriesKey};
use sonar_core::internals::{FIGURES, Incident, IncidentKind, SampleSequence, ServerSample};
use sonar_core::observation::WindowCutter;
use sonar_core::{Endpoint, Timestamp};
use sonar_view::ftdc::incident_words;

/// What the first sample of a process speaks for, in milliseconds: servers take one each second.
const FIRST_MS: i64 = 1_000;

/// Sorts the figures of samples into windows.
pub struct SampleCutter<'a> {
    windows: &'a mut WindowCutter,
    server: Endpoint,
    /// The collector that observed the time of the samples, if the samples say so.
    observes: Option<CollectorKind>,
    /// Which events are kept.
    keeps_event: fn(IncidentKind) -> bool,
    keeps_figures: bool,
    /// The key of each figure, in the order of [`FIGURES`].
    keys: Vec<SeriesKey>,
}

impl<'a> SampleCutter<'a> {
    /// For a server. The time that the samples speak for counts as observed by a collector.
    pub fn new(windows: &'a mut WindowCutter, server: Endpoint, observes: Option<CollectorKind>) -> Self {
        let key = |figure| SeriesMetric::of_figure(figure).key(server, "");
        let keys = FIGURES.iter().map(key).collect();
        Self { windows, server, observes, keeps_event: |_| true, keeps_figures: true, keys }
    }

    /// Leaves out events that another source has.
    pub fn keep_events(&mut self, keeps: fn(IncidentKind) -> bool) {
        self.keeps_event = keeps;
    }

    /// Leaves out the figures if another source has them.
    pub fn keep_figures(&mut self, keeps: bool) {
        self.keeps_figures = keeps;
    }

    /// Adds the next sample.
    pub fn add(&mut self, sequence: &mut SampleSequence, sample: &ServerSample) {
        let Self { windows, server, observes, keeps_event, keeps_figures, keys } = self;
        // What happened comes before the step, and belongs to an earlier window than that where there is a gap.
        let windows = RefCell::new(&mut **windows);
        sequence.add(
            sample,
            |incident| {
                if keeps_event(incident.kind) {
                    windows.borrow_mut().event(event(*server, &incident));
                }
            },
            |step, length_ms| {
                let mut windows = windows.borrow_mut();
                let now = Timestamp::from_unix_ms(step.now.time_ms());
                let speaks_for = if length_ms > 0 { length_ms } else { FIRST_MS };
                if let Some(collector) = *observes {
                    windows.observe(collector, Timestamp::from_unix_ms(step.now.time_ms() - length_ms), now);
                }
                let window = &mut windows.at(now).window;
                for (figure, key) in FIGURES.iter().zip(keys.iter()).filter(|_| *keeps_figures) {
                    if let Some(value) = (figure.value)(step) {
                        window.sample(key, now, value, speaks_for as f64 / 1e3);
                    }
                }
                windows.advance(now);
            },
        );
    }
}

/// An incident as an event.
fn event(server: Endpoint, incident: &Incident) -> Event {
    let kind = match incident.kind {
        IncidentKind::Restart(_) => EventKind::ServerStart,
        IncidentKind::Lost(_) | IncidentKind::Gap(_) => EventKind::Gap,
        IncidentKind::State { .. } => EventKind::StateChange,
        IncidentKind::ClockBack(_) => EventKind::ClockStep,
    };
    Event::new(Timestamp::from_unix_ms(incident.time_ms), kind, server, &incident_words(incident.kind))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use sonar_core::internals::Metric;
    use sonar_core::observation::WindowPart;

    use super::super::servers::local;
    use super::*;

    fn sample(ms: i64, queries: i64, cache: i64) -> ServerSample {
        let mut sample = ServerSample::default();
        let metrics = [
            (Metric::Start, ms),
            (Metric::Pid, 1),
            (Metric::Queries, queries),
            (Metric::CacheBytes, cache),
            (Metric::CacheMaximum, 100),
        ];
        metrics.iter().for_each(|(metric, value)| sample.set(*metric, Some(*value)));
        sample
    }

    #[test]
    fn figures_speak_for_the_seconds_before_them_and_a_gap_is_an_event() {
        let (to, from) = sync_channel(100);
        let mut windows = WindowCutter::new(move |part| to.send(part).is_ok());
        let mut sequence = SampleSequence::default();
        let mut cutter = SampleCutter::new(&mut windows, local(27_017), Some(CollectorKind::Internals));
        for (ms, queries, cache) in
            [(100_000, 0, 10), (102_000, 20, 20), (104_000, 60, 40), (124_000, 1_060, 90)]
        {
            cutter.add(&mut sequence, &sample(ms, queries, cache));
        }
        windows.finish();
        let parts: Vec<WindowPart> = from.try_iter().collect();
        let series = |part: &WindowPart, id: &str| {
            let found = part.window.series.iter().find(|(key, _)| &*key.metric == id);
            found.map(|(key, value)| (key.server, value.seconds, value.weighted, value.max))
        };
        let server = local(27_017);
        assert_eq!(
            series(&parts[0], "cache.used"),
            Some((server, 5.0, 10.0 + 2.0 * 20.0 + 2.0 * 40.0, 40.0))
        );
        assert_eq!(series(&parts[0], "operations.queries"), Some((server, 4.0, 20.0 + 40.0, 20.0)));
        assert_eq!(parts[0].window.observed_ns(CollectorKind::Internals), 4_000_000_000);
        let [gap] = &parts[0].events[..] else { panic!("{:?}", parts[0].events) };
        assert_eq!(
            (gap.kind, gap.at, gap.server),
            (EventKind::Gap, Timestamp::from_unix_ms(104_000), server)
        );
        assert_eq!(gap.silence_ns(), Some(20_000_000_000), "{}", gap.text);
        let last = parts.last().unwrap();
        assert_eq!(series(last, "operations.queries"), Some((server, 2.0, 100.0, 50.0)), "a period of 20 s");
        assert_eq!(last.window.observed_ns(CollectorKind::Internals), 2_000_000_000);
    }
}
