//! How rows changed, and why some are not judged.

use sonar_core::significance::{
    ALPHA, MIN_CALLS, MIN_EFFECT, MIN_FACTOR, Rate, Sensitivity, Shift, dispersion, holm,
    least_latency_growth, least_rate_growth,
};
use sonar_core::{Identity, Row, Subject};

use super::ComparedSources;
use crate::kit::mean_ns;

/// From this factor between means on, a row that is not judged is worth a look.
const WORTH_A_LOOK: f64 = 2.0;

/// How a row changed from A to B.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Not in A.
    New,
    /// Slower than in A.
    Slower,
    /// No slower, but examines more for what it returns.
    Heavier,
    /// More calls per second.
    MoreCalls,
    /// Fewer calls per second.
    FewerCalls,
    /// Faster than in A.
    Faster,
    /// Not in B.
    Gone,
    /// Unchanged: a change from [`RowPair::least`] on would have been seen.
    Same,
    /// Too little is known to say whether it changed; see [`RowPair::not_judged`].
    NotJudged,
}

/// Why a row is not judged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NotJudged {
    /// Only one of both has it, and it is too rare for saying that it is new or gone.
    OnlyInOne,
    /// A side has fewer than [`MIN_CALLS`] operations.
    FewCalls,
    /// A side has enough operations, but knows the latency of fewer than [`MIN_CALLS`] of them.
    FewLatencies,
    /// Both sides are of different kinds of sources: a log or a profile need not hold what a capture does.
    OtherSource,
    /// The latency moved far enough to be seen, but varies so much from second to second that this may be chance.
    Varies,
    /// A capture of A or B has only a part of the messages, or the row is of commands that were read in part.
    InPart,
}

impl NotJudged {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OnlyInOne => "only in one",
            Self::FewCalls => "few calls",
            Self::FewLatencies => "few latencies",
            Self::OtherSource => "other source",
            Self::Varies => "varies",
            Self::InPart => "in part",
        }
    }
}

/// The smallest changes of a row that would have been seen in nine of ten cases, as factors; `None` where none would have
/// been.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LeastSeen {
    /// Of the latency.
    pub latency: Option<f64>,
    /// Of calls per second.
    pub rate: Option<f64>,
}

impl Change {
    /// Whether it makes the comparison fail: it is new, slower or heavier.
    pub const fn is_worse(self) -> bool {
        matches!(self, Self::New | Self::Slower | Self::Heavier)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Slower => "slower",
            Self::Heavier => "heavier",
            Self::MoreCalls => "more calls",
            Self::FewerCalls => "fewer calls",
            Self::Faster => "faster",
            Self::Gone => "gone",
            Self::Same => "same",
            Self::NotJudged => "not judged",
        }
    }

    /// Whether it is a difference.
    pub(super) const fn is_change(self) -> bool {
        !matches!(self, Self::Same | Self::NotJudged)
    }
}

/// One row of both.
pub struct RowPair<'a> {
    /// In A.
    pub a: Option<&'a Row>,
    /// In B.
    pub b: Option<&'a Row>,
    /// How it changed.
    pub verdict: Change,
    /// How its calls per second changed besides, if `verdict` is about something else.
    pub calls_change: Option<Change>,
    /// Calls per second in both.
    pub rates: (Rate, Rate),
    /// Whether one source counted the calls of both sides: only then something is new or gone, or has other rates.
    pub same_source: bool,
    /// Why it is not judged, if it is not.
    pub not_judged: Option<NotJudged>,
    /// What would have been seen.
    pub least: LeastSeen,
    /// Chance of these rates; 1 if they are of different sources.
    pub rate_p: f64,
    /// How the latencies differ; `None` where there are too few.
    pub shift: Option<Shift>,
    /// Examined for each returned, in both.
    pub ratios: (Option<f64>, Option<f64>),
    /// Chance of these ratios; `None` where there is too little to tell by.
    pub ratio_p: Option<f64>,
    /// How documents examined per call grew within B.
    pub growth: Option<f64>,
}

impl RowPair<'_> {
    /// How much more latencies vary than those of independent operations, on the side where they do more.
    pub(super) fn dispersion(&self) -> f64 {
        let of = |row: Option<&Row>| {
            row.map_or(1.0, |row| dispersion(row.figures().timeline(), &row.figures().latency))
        };
        of(self.a).max(of(self.b))
    }

    /// Means of the latency in A and in B, in nanoseconds, if both have any.
    pub(super) fn means(&self) -> Option<[f64; 2]> {
        let mean = |row: &Row| mean_ns(&row.figures().latency);
        Some([mean(self.a?)?, mean(self.b?)?])
    }

    /// Whether it is not judged, but its latency or its number of calls differs by far.
    pub(super) fn is_worth_a_look(&self) -> bool {
        let is_far = |[a, b]: [f64; 2]| a.max(b) > 0.0 && a.max(b) >= WORTH_A_LOOK * a.min(b);
        match self.not_judged {
            Some(NotJudged::Varies) => true,
            Some(NotJudged::FewCalls) => self.means().is_some_and(is_far),
            _ => false,
        }
    }

    /// Whether the latency moved by at least the smallest factor that would have been seen, as a mean and for most
    /// operations; where no factor would have been, by far.
    pub(super) fn has_moved(&self) -> bool {
        let (Some(shift), Some([a, b])) = (self.shift, self.means()) else { return false };
        let factor = if shift.effect > 0.0 { b / a } else { a / b };
        shift.effect.abs() >= MIN_EFFECT && factor >= self.least.latency.unwrap_or(WORTH_A_LOOK)
    }

    /// Whether it is of commands that were read in part.
    pub(super) fn is_partial(&self) -> bool {
        let is_it = |row: &Row| matches!(row.subject, Subject::Shape { identity: Identity::Partial, .. });
        self.row().is_some_and(is_it)
    }

    /// Its verdict, and how its calls changed besides.
    pub(super) fn label(&self) -> String {
        match self.calls_change {
            Some(calls) => format!("{}, {}", self.verdict.name(), calls.name()),
            None => self.verdict.name().to_owned(),
        }
    }

    pub(super) fn row(&self) -> Option<&Row> {
        self.b.or(self.a)
    }
}

/// Judges all rows at once, so that the test corrects for their number.
pub(super) fn judge(pairs: &mut [RowPair<'_>], sources: ComparedSources) {
    let ComparedSources { same_clock, in_part } = sources;
    let p: Vec<f64> = pairs
        .iter()
        .flat_map(|pair| [pair.rate_p, pair.shift.map_or(1.0, |shift| shift.p), pair.ratio_p.unwrap_or(1.0)])
        .collect();
    let stands = holm(&p);
    // The threshold of the smallest p value (Holm).
    let alpha = ALPHA / p.len().max(1) as f64;
    for (pair, stands) in pairs.iter_mut().zip(stands.as_chunks::<3>().0) {
        let [by_rate, by_latency, by_ratio] = *stands;
        let shift = pair.shift.filter(|shift| by_latency && shift.effect.abs() >= MIN_EFFECT);
        let heavier = match pair.ratios {
            (Some(a), Some(b)) => by_ratio && a > 0.0 && b / a >= MIN_FACTOR,
            _ => false,
        };
        if pair.same_source && !in_part {
            pair.least.rate = least_rate_growth(pair.rates.0, pair.rates.1, alpha);
        }
        if let (Some(left), Some(right), Some(_)) = (pair.a, pair.b, pair.shift) {
            let dispersion = pair.dispersion();
            let (left, right) = (&left.figures().latency, &right.figures().latency);
            pair.least.latency = least_latency_growth(left, right, Sensitivity { alpha, dispersion });
        }
        let (a, b) = (pair.rates.0.per_second, pair.rates.1.per_second);
        let calls_change = match (pair.a.is_some() && pair.b.is_some(), by_rate) {
            (true, true) if b / a >= MIN_FACTOR => Some(Change::MoreCalls),
            (true, true) if a / b >= MIN_FACTOR => Some(Change::FewerCalls),
            _ => None,
        };
        let is_in_one = pair.a.is_some() != pair.b.is_some();
        pair.verdict = match (pair.a.is_some(), pair.b.is_some(), shift) {
            _ if is_in_one && (in_part || pair.is_partial()) => {
                pair.not_judged = Some(NotJudged::InPart);
                Change::NotJudged
            }
            (false, true, _) if by_rate => Change::New,
            (true, false, _) if by_rate => Change::Gone,
            (_, _, Some(shift)) if shift.effect > 0.0 => Change::Slower,
            _ if heavier => Change::Heavier,
            (_, _, Some(_)) => Change::Faster,
            _ if let Some(calls) = calls_change => calls,
            (true, false, _) | (false, true, _) => {
                pair.not_judged = Some(match pair.same_source {
                    true => NotJudged::OnlyInOne,
                    false => NotJudged::OtherSource,
                });
                Change::NotJudged
            }
            _ if !pair.same_source && pair.ratio_p.is_none() => {
                pair.not_judged = Some(NotJudged::OtherSource);
                Change::NotJudged
            }
            _ if same_clock && pair.shift.is_none() => {
                let few = |row: Option<&Row>| row.is_some_and(|row| row.figures().calls < MIN_CALLS);
                pair.not_judged = Some(match few(pair.a) || few(pair.b) {
                    true => NotJudged::FewCalls,
                    false => NotJudged::FewLatencies,
                });
                Change::NotJudged
            }
            _ if pair.has_moved() => {
                pair.not_judged = Some(NotJudged::Varies);
                Change::NotJudged
            }
            _ => Change::Same,
        };
        if pair.verdict == Change::Slower || pair.verdict == Change::Heavier || pair.verdict == Change::Faster
        {
            pair.calls_change = calls_change;
        }
    }
}
