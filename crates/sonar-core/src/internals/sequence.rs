//! Puts the samples of a server in sequence: which two make a step, how long it is, and what happened between them.

use super::{Metric, SampleStep, ServerSample};

/// A gap is longer than this many periods and longer than [`MIN_GAP_MS`].
const GAP_PERIODS: i64 = 3;
const MIN_GAP_MS: i64 = 3_000;
/// The uptime of a sample is a little older or newer than its time: collectors take their time.
const UPTIME_TOLERANCE_MS: u64 = 2_000;
/// Steps of about the same length after which that is the new period.
const NEW_PERIOD_STEPS: u32 = 3;
/// 9999-12-31, in milliseconds since 1970: later times are damage.
const MAX_TIME_MS: i64 = 253_402_214_400_000;

/// What happened at one moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// In milliseconds since 1970.
    pub time_ms: i64,
    /// What it was.
    pub kind: IncidentKind,
}

/// What can happen at one moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// The server restarted: its first sample came this many milliseconds after the last one of the process before.
    Restart(i64),
    /// A damaged part of a file lost the samples of this many milliseconds.
    Lost(i64),
    /// No sample for this many milliseconds: the server stalled, or the machine slept.
    Gap(i64),
    /// The server's state in its replica set changed, as `replSetGetStatus` numbers them.
    State {
        /// The state before.
        from: i64,
        /// The state after.
        to: i64,
    },
    /// The clock was set back by this many milliseconds.
    ClockBack(i64),
}

/// The samples of a server, which must come by time.
#[derive(Clone, Debug, Default)]
pub struct SampleSequence {
    last: Option<ServerSample>,
    /// Milliseconds from one sample to the next, as it was last without a gap.
    period_ms: Option<i64>,
    /// A longer step, and how often it came in a row.
    longer: (i64, u32),
    /// Samples were lost since the last one.
    is_lossy: bool,
}

impl SampleSequence {
    /// Samples between the last one and the next one are lost, because a part of a file is damaged.
    pub fn lose(&mut self) {
        self.is_lossy = true;
    }

    /// The sample that came last.
    pub fn last(&self) -> Option<&ServerSample> {
        self.last.as_ref()
    }

    /// Adds a sample. `note` takes what happened since the last one; then `each` takes the step to this one and the
    /// milliseconds before it that it speaks for: the length of the step, after a gap a period, after a start 0.
    /// There is no step to a sample that is not later than the last one, and one without a possible time is left out.
    pub fn add(
        &mut self,
        sample: &ServerSample,
        mut note: impl FnMut(Incident),
        each: impl FnOnce(&SampleStep<'_>, i64),
    ) {
        let Some(now) = sample.get(Metric::Start).filter(|ms| (0..MAX_TIME_MS).contains(ms)) else { return };
        let before = self.last.replace(sample.clone());
        let is_lossy = std::mem::take(&mut self.is_lossy);
        let same = before.filter(|before| is_same_process(before, sample, &mut note));
        let length = match same.as_ref().map(|before| now - before.time_ms()) {
            Some(step) if step <= 0 => {
                if step < 0 {
                    note(Incident { time_ms: now, kind: IncidentKind::ClockBack(-step) });
                }
                return;
            }
            Some(step) => match self.gap(step) {
                Some(period) => {
                    let kind = if is_lossy { IncidentKind::Lost(step) } else { IncidentKind::Gap(step) };
                    note(Incident { time_ms: now - step, kind });
                    period
                }
                None => step,
            },
            None => 0,
        };
        let seconds = same.as_ref().map_or(0, |before| now - before.time_ms()) as f64 / 1e3;
        each(&SampleStep { before: same.as_ref(), now: sample, seconds }, length);
    }

    /// The period, if a step is a gap.
    fn gap(&mut self, step: i64) -> Option<i64> {
        let Some(period) = self.period_ms.filter(|period| step > GAP_PERIODS * period && step > MIN_GAP_MS)
        else {
            self.period_ms = Some(step);
            return None;
        };
        let (longer, count) = self.longer;
        self.longer =
            if step.abs_diff(longer) * 5 <= longer.unsigned_abs() { (longer, count + 1) } else { (step, 1) };
        if self.longer.1 >= NEW_PERIOD_STEPS {
            self.period_ms = Some(step);
        }
        Some(period)
    }
}

/// Whether both samples are of one process; it notes a restart and a change of state.
fn is_same_process(before: &ServerSample, now: &ServerSample, note: &mut impl FnMut(Incident)) -> bool {
    let changed = |metric| before.get(metric).zip(now.get(metric));
    let (from_ms, time_ms) = (before.time_ms(), now.time_ms());
    // A server counts its uptime by the clock: both go back together if the clock is set back.
    let is_fresh = |(before, now): (i64, i64)| {
        let (lost, back) = (before.saturating_sub(now), from_ms.saturating_sub(time_ms));
        lost > 0 && lost.abs_diff(back) > UPTIME_TOLERANCE_MS
    };
    let restarted = changed(Metric::Pid).is_some_and(|(before, now)| before != now)
        || changed(Metric::Uptime).is_some_and(is_fresh);
    if restarted {
        note(Incident { time_ms, kind: IncidentKind::Restart((time_ms - from_ms).max(0)) });
    } else if let (Some(from), Some(to)) = (before.state(), now.state())
        && from != to
    {
        note(Incident { time_ms, kind: IncidentKind::State { from, to } });
    }
    !restarted
}
