//! A baseline of earlier operations: finds rows that are new or slower since then.
//!
//! [`compare`](crate::significance) compares two finished digests once. A baseline is compared again and again
//! with live figures, so its test is stricter: on average one comparison in [`LOOKS`] gives a false alarm.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;

use foldhash::quality::RandomState;

use crate::significance::{MIN_CALLS, MIN_EFFECT, Shift, dispersion, holm_at, shift};
use crate::{Class, Digest, GroupBy, Histogram, Identity, Row, ShapeId, Subject, Timeline};

/// One comparison in this many, over all rows together, may call something slower that is not.
pub const LOOKS: u32 = 1_000;

/// Identifies a row of the baseline.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum BaselineKey<'a> {
    /// A shape.
    Shape(Class, ShapeId),
    /// `db.collection`, over all classes in the baseline.
    Namespace(&'a str),
}

/// A row to compare with the baseline.
#[derive(Copy, Clone, Debug)]
pub struct BaselineQuery<'a> {
    /// The row of the baseline to compare it with.
    pub which: BaselineKey<'a>,
    /// Its latencies.
    pub latency: &'a Histogram,
    /// Age of its oldest operation in flight, in nanoseconds.
    pub waiting_ns: Option<u64>,
}

/// How a row has changed since the baseline.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BaselineStatus {
    /// It is not in the baseline.
    New,
    /// Slower than in the baseline.
    Slower,
    /// Not slower beyond chance.
    Same,
    /// It is in the baseline, but its latencies cannot be compared: too few calls, or another kind of source.
    Known,
}

impl BaselineStatus {
    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Known => "known",
        }
    }
}

/// The result of comparing a row with the baseline.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct BaselineResult {
    /// How it has changed.
    pub status: BaselineStatus,
    /// How its latencies differ from the baseline's; `None` if they cannot be compared.
    pub shift: Option<Shift>,
}

/// What the baseline keeps of a row.
#[derive(Clone, Debug, Default)]
struct Before {
    latency: Histogram,
    timeline: Timeline,
    dispersion: f64,
}

/// Earlier latencies by shape and by namespace.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    shapes: HashMap<(Class, ShapeId), Before, RandomState>,
    namespaces: HashMap<String, Before, RandomState>,
    /// Its latencies may be compared with those of the wire.
    same_clock: bool,
    /// It is complete: a row that is missing did not occur.
    is_complete: bool,
    /// The source left out operations faster than this, in nanoseconds.
    threshold_ns: u64,
}

impl Baseline {
    /// Makes a baseline from a digest by shape. `same_clock`: its latencies were measured on the wire too;
    /// otherwise they are the server's own, and only new rows are reported. `is_complete`: it lacks no rows.
    pub fn new(digest: &Digest, same_clock: bool, is_complete: bool) -> Self {
        let mut baseline = Self {
            same_clock,
            is_complete: is_complete && digest.folded == 0,
            threshold_ns: if same_clock { 0 } else { digest.totals().latency.min_ns().unwrap_or(0) },
            ..Self::default()
        };
        for row in digest.rows() {
            let Row { subject: Subject::Shape { shape, identity, .. }, class, .. } = row else {
                baseline.is_complete = false;
                continue;
            };
            let add = |before: &mut Before| {
                before.latency.merge(&row.figures().latency);
                before.timeline.merge(row.figures().timeline());
            };
            // A command that no server is known to have is the same command with the same id in each source.
            if *identity == Identity::Exact || shape.identity() == Identity::Partial {
                add(baseline.shapes.entry((*class, shape.id)).or_default());
            }
            match baseline.namespaces.entry(shape.namespace()) {
                Place::Occupied(known) => add(known.into_mut()),
                Place::Vacant(place) => add(place.insert(Before::default())),
            }
        }
        for before in baseline.shapes.values_mut().chain(baseline.namespaces.values_mut()) {
            before.dispersion = dispersion(&before.timeline, &before.latency);
            before.timeline = Timeline::default();
        }
        baseline
    }

    /// The grouping that a digest must have to become a baseline.
    pub const BY: GroupBy = GroupBy::Shape;

    /// The number of shapes.
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether it has no shapes.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Whether a row that is missing in it is new.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether latencies may be compared.
    pub const fn has_same_clock(&self) -> bool {
        self.same_clock
    }

    /// The baseline's source left out operations faster than this, in nanoseconds (a log's `slowms`). A row that
    /// is missing in it is new only if it takes longer.
    pub const fn threshold_ns(&self) -> u64 {
        self.threshold_ns
    }

    /// Compares rows with the baseline. Pass all rows of one moment together, because the test is corrected for
    /// their number. `None` for a row about which the baseline cannot decide.
    pub fn compare(&self, rows: &[Option<BaselineQuery<'_>>]) -> Vec<Option<BaselineResult>> {
        let mut all: Vec<Option<BaselineResult>> = rows
            .iter()
            .map(|row| {
                let BaselineQuery { which, latency, waiting_ns } = (*row)?;
                let before = match which {
                    BaselineKey::Shape(class, id) => self.shapes.get(&(class, id)),
                    BaselineKey::Namespace(name) => self.namespaces.get(name),
                };
                match before {
                    Some(before) => {
                        let shift = shift(&before.latency, latency, before.dispersion);
                        let shift = shift.filter(|_| self.same_clock);
                        Some(BaselineResult { status: BaselineStatus::Known, shift })
                    }
                    None => {
                        let longest = latency.max_ns().max(waiting_ns);
                        let is_new = self.is_complete && longest.is_some_and(|ns| ns >= self.threshold_ns);
                        is_new.then_some(BaselineResult { status: BaselineStatus::New, shift: None })
                    }
                }
            })
            .collect();
        let p = |against: &BaselineResult| against.shift.map_or(1.0, |shift| shift.p);
        let judged: Vec<usize> =
            (0..all.len()).filter(|&at| all[at].is_some_and(|against| against.shift.is_some())).collect();
        let p: Vec<f64> = judged.iter().map(|&at| all[at].as_ref().map_or(1.0, p)).collect();
        for (at, is_significant) in judged.into_iter().zip(holm_at(&p, 1.0 / f64::from(LOOKS))) {
            if let Some(BaselineResult { status, shift: Some(shift) }) = &mut all[at] {
                *status = if is_significant && shift.effect >= MIN_EFFECT {
                    BaselineStatus::Slower
                } else {
                    BaselineStatus::Same
                };
            }
        }
        all
    }

    /// The minimum number of calls on both sides for comparing latencies.
    pub const MIN_CALLS: u64 = MIN_CALLS;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{DigestSettings, ShapeInfo, Source, Timestamp};

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|ns| histogram.record(ns));
        histogram
    }

    fn row(id: u64, collection: &str, latency: Histogram) -> Row {
        let shape = ShapeInfo {
            id: ShapeId(id),
            database: "shop".into(),
            collection: collection.into(),
            ..ShapeInfo::default()
        };
        let subject = Subject::Shape { identity: Identity::Exact, shape: Arc::new(shape), order: ShapeId(0) };
        let mut row = Row::new(subject, Class::User);
        let figures = &mut row.observed_by_mut(Source::Wire).figures;
        (figures.calls, figures.entries) = (latency.count(), latency.count());
        (figures.latency, figures.first_seen) = (latency, Timestamp::from_unix(1, 0));
        row
    }

    fn digest(rows: impl IntoIterator<Item = Row>) -> Digest {
        let mut digest = Digest::new(DigestSettings::default());
        rows.into_iter().for_each(|row| digest.restore(&row));
        digest
    }

    fn status(baseline: &Baseline, which: BaselineKey<'_>, latency: &Histogram) -> Option<BaselineStatus> {
        baseline.compare(&[Some(BaselineQuery { which, latency, waiting_ns: None })])[0]
            .map(|against| against.status)
    }

    const ONE: BaselineKey<'_> = BaselineKey::Shape(Class::User, ShapeId(1));
    const TWO: BaselineKey<'_> = BaselineKey::Shape(Class::User, ShapeId(2));

    #[test]
    fn rows_are_new_slower_or_the_same() {
        let usual = || histogram((0..1_000).map(|n| 1_000_000 + n * 1_000));
        let slow = histogram((0..100).map(|n| 3_000_000 + n * 1_000));
        let baseline = Baseline::new(&digest([row(1, "orders", usual())]), true, true);
        assert_eq!(status(&baseline, ONE, &usual()), Some(BaselineStatus::Same));
        assert_eq!(status(&baseline, ONE, &slow), Some(BaselineStatus::Slower));
        assert_eq!(
            status(&baseline, ONE, &histogram([1; 100])),
            Some(BaselineStatus::Same),
            "quicker is no complaint"
        );
        assert_eq!(
            status(&baseline, ONE, &histogram([9_000_000; 19])),
            Some(BaselineStatus::Known),
            "too few"
        );
        assert_eq!(status(&baseline, TWO, &usual()), Some(BaselineStatus::New));
        assert_eq!(
            status(&baseline, BaselineKey::Shape(Class::Internal, ShapeId(1)), &usual()),
            Some(BaselineStatus::New)
        );
        assert_eq!(
            status(&baseline, BaselineKey::Namespace("shop.orders"), &slow),
            Some(BaselineStatus::Slower)
        );
        assert_eq!(
            status(&baseline, BaselineKey::Namespace("shop.people"), &slow),
            Some(BaselineStatus::New)
        );
        assert_eq!(baseline.compare(&[None]), [None]);
        let nothing = Histogram::new();
        let hangs = |which| BaselineQuery { which, latency: &nothing, waiting_ns: Some(1) };
        let results = baseline.compare(&[Some(hangs(TWO)), Some(hangs(ONE))]);
        assert_eq!(
            results.iter().map(|one| one.map(|one| one.status)).collect::<Vec<_>>(),
            [Some(BaselineStatus::New), Some(BaselineStatus::Known)],
            "it has not ended yet"
        );
    }

    #[test]
    fn an_incomplete_baseline_calls_nothing_new() {
        let baseline = Baseline::new(&digest([row(1, "orders", histogram([5; 50]))]), true, false);
        assert_eq!(status(&baseline, TWO, &histogram([5; 50])), None);
        assert_eq!(status(&baseline, ONE, &histogram([5; 50])), Some(BaselineStatus::Same));
    }

    #[test]
    fn a_log_lacks_fast_operations_and_has_another_clock() {
        let baseline = Baseline::new(&digest([row(1, "orders", histogram([100_000_000; 50]))]), false, true);
        assert_eq!(
            status(&baseline, TWO, &histogram([5_000_000; 500])),
            None,
            "it would not have been logged"
        );
        assert_eq!(status(&baseline, TWO, &histogram([5_000_000, 200_000_000])), Some(BaselineStatus::New));
        assert_eq!(status(&baseline, ONE, &histogram([900_000_000; 50])), Some(BaselineStatus::Known));
    }

    #[test]
    fn a_varying_baseline_needs_a_larger_change() {
        // Each second is fast or slow as a whole: operations of one second are not independent.
        let mut swinging = row(1, "orders", histogram((0..2_000).map(|n| 1_000_000 * (1 + n / 100 % 2))));
        for second in 0..20u64 {
            let latency_ns = 100 * 1_000_000 * (1 + second % 2);
            let bucket = crate::timeline::TimeBucket { calls: 100, latency_ns, ..Default::default() };
            swinging
                .observed_by_mut(Source::Wire)
                .figures
                .timeline_mut()
                .add(Timestamp::from_unix(1_000 + second, 0), bucket);
        }
        let steady =
            Baseline::new(&digest([row(1, "orders", swinging.figures().latency.clone())]), true, true);
        let swinging = Baseline::new(&digest([swinging]), true, true);
        let slow_second = histogram([2_000_000; 100]);
        assert_eq!(status(&steady, ONE, &slow_second), Some(BaselineStatus::Slower));
        assert_eq!(status(&swinging, ONE, &slow_second), Some(BaselineStatus::Same));
    }

    /// One comparison in a thousand may fail, over 40 rows without a change: 400 comparisons may give a few
    /// false alarms, and hardly more than three.
    #[test]
    fn unchanged_rows_give_almost_no_false_alarms() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut sample = |many: usize| histogram((0..many).map(|_| 500_000 + random() % 1_000_000));
        let rows: Vec<Row> = (1..=40).map(|id| row(id, "orders", sample(2_000))).collect();
        let baseline = Baseline::new(&digest(rows), true, true);
        let mut alarms = 0;
        for _ in 0..400 {
            let now: Vec<Histogram> = (0..40).map(|_| sample(60)).collect();
            let rows: Vec<_> = now
                .iter()
                .zip(1..)
                .map(|(latency, id)| {
                    Some(BaselineQuery {
                        which: BaselineKey::Shape(Class::User, ShapeId(id)),
                        latency,
                        waiting_ns: None,
                    })
                })
                .collect();
            let results = baseline.compare(&rows);
            alarms += usize::from(results.iter().flatten().any(|one| one.status == BaselineStatus::Slower));
        }
        assert!(alarms <= 3, "{alarms} of 400 looks");
    }
}
