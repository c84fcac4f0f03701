//! Operations in progress over time.

use serde::Serialize;
use sonar_core::Timestamp;
use sonar_core::time_split::{Activity, ActivityInterval};
use ts_rs::TS;

use super::parts::PartJson;
use crate::kit::sparkline;
use crate::shown_part::ShownPart;

/// Average number of operations in progress, by interval.
#[derive(Clone, Debug, Serialize, PartialEq, TS)]
pub struct ActivityJson {
    /// The start of the first interval, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The end of the last one, which may be longer than the others.
    pub end_ns: u64,
    /// The width of an interval, in nanoseconds.
    pub width_ns: u64,
    /// Parts that operations had, the largest first.
    pub parts: Vec<PartActivityJson>,
}

/// Operations that did one thing.
#[derive(Clone, Debug, Serialize, PartialEq, TS)]
pub struct PartActivityJson {
    /// What they did.
    pub part: ShownPart,
    /// Average number at a time, by interval.
    pub active: Vec<f64>,
}

/// The most columns of a line in the text.
const MAX_COLUMNS: usize = 40;

impl ActivityJson {
    /// The activity of a trace that ended at `end`, with `parts` in their order.
    pub fn new(activity: &Activity, end: Timestamp, parts: &[PartJson]) -> Self {
        let intervals = activity.intervals();
        let (start, width) = (activity.start(), activity.width_ns());
        let before_last = width * intervals.len().saturating_sub(1) as u64;
        let last = end.since(start).saturating_sub(before_last).max(1);
        let active = |part: ShownPart| {
            let of = |(at, interval): (usize, &ActivityInterval)| {
                let length = if at + 1 == intervals.len() { last } else { width };
                // More digits would only make the document longer.
                (time_of(interval, part) as f64 / length as f64 * 1e4).round() / 1e4
            };
            intervals.iter().enumerate().map(of).collect()
        };
        let parts = parts.iter().map(|part| PartActivityJson { part: part.part, active: active(part.part) });
        Self {
            start_ns: start.unix_ns(),
            end_ns: end.unix_ns().max(start.unix_ns()),
            width_ns: width,
            parts: parts.collect(),
        }
    }

    /// How many intervals a column of the text covers.
    fn step(&self) -> usize {
        let intervals = self.parts.first().map_or(0, |part| part.active.len());
        intervals.div_ceil(MAX_COLUMNS).max(1)
    }

    fn columns<'a>(&self, part: &'a PartActivityJson) -> impl Iterator<Item = f64> + use<'a> {
        part.active.chunks(self.step()).map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64)
    }

    /// The time that a column of [`Self::line`] covers, in nanoseconds.
    pub(super) fn column_ns(&self) -> u64 {
        self.width_ns * self.step() as u64
    }

    /// The largest value of all columns of all parts, which has full height.
    pub(super) fn most(&self) -> f64 {
        self.parts.iter().flat_map(|part| self.columns(part)).fold(0.0, f64::max)
    }

    /// A part over time, as one line.
    pub(super) fn line(&self, part: ShownPart) -> String {
        let found = self.parts.iter().find(|one| one.part == part);
        found
            .map_or_else(String::new, |part| sparkline(self.columns(part), self.most()).trim_end().to_owned())
    }
}

fn time_of(interval: &ActivityInterval, part: ShownPart) -> u64 {
    match part {
        ShownPart::Measured(part) => interval.split[part],
        ShownPart::Unread => interval.unread_ns,
        ShownPart::Unexplained => interval.unexplained_ns,
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::time_split::TimePart;

    use super::*;

    fn part(part: ShownPart, active: &[f64]) -> PartActivityJson {
        PartActivityJson { part, active: active.to_vec() }
    }

    fn of(parts: Vec<PartActivityJson>) -> ActivityJson {
        ActivityJson { start_ns: 0, end_ns: 1_000_000_000, width_ns: 125_000_000, parts }
    }

    const CPU: ShownPart = ShownPart::Measured(TimePart::Cpu);

    #[test]
    fn all_parts_have_the_same_scale_in_text() {
        let activity =
            of(vec![part(CPU, &[2.0, 0.5, 0.0, 4.0]), part(ShownPart::Unread, &[0.0, 1.0, 0.0, 0.0])]);
        assert_eq!((activity.most(), activity.column_ns()), (4.0, 125_000_000));
        assert_eq!(activity.line(CPU), "▄▁ █");
        assert_eq!(activity.line(ShownPart::Unread), " ▂");
        assert_eq!(activity.line(ShownPart::Unexplained), "");
    }

    #[test]
    fn many_intervals_share_columns() {
        let values: Vec<f64> = (0..100).map(|at| if at < 50 { 1.0 } else { 2.0 }).collect();
        let activity = of(vec![part(CPU, &values)]);
        assert_eq!(activity.column_ns(), 375_000_000);
        let line = activity.line(CPU);
        assert_eq!(line.chars().count(), 34);
        assert!(line.starts_with("▄▄▄") && line.ends_with("███"), "{line}");
    }

    #[test]
    fn a_trace_without_operations_has_no_parts() {
        let start = Timestamp::from_unix_ns(5_000_000_000);
        let end = start.plus_ns(1_000_000_000);
        let activity = ActivityJson::new(&Activity::since(start).until(end), end, &[]);
        assert_eq!((activity.start_ns, activity.end_ns), (5_000_000_000, 6_000_000_000));
        assert_eq!((activity.most(), activity.parts.len()), (0.0, 0));
    }
}
