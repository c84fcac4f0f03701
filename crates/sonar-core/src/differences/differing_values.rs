//! Which values differ by more than chance, and by how much.

use super::{TheseAndRest, ValueTally};
use crate::significance::{MIN_CALLS, MIN_SHARE_EFFECT, ShareOf, ShareShift, holm, share_shift};

/// How a dimension differs between the selected operations and the rest.
#[derive(Clone, PartialEq, Debug)]
pub struct DimensionDifference<K> {
    /// The values: first those that differ, by how much they do, then the most frequent ones; last all others together.
    pub values: Vec<ValueDifference<K>>,
    /// How many values are counted in the last one.
    pub left_out: usize,
    /// The sum of all values.
    pub total: TheseAndRest,
    /// The largest difference of shares that is more than chance, 0 to 1; 0 if there is none.
    pub difference: f64,
    /// How much of the selected operations was estimated.
    pub estimated: f64,
}

/// How a value differs.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueDifference<K> {
    /// The value; `None`: all others.
    pub value: Option<K>,
    /// Operations that have it, or their time.
    pub count: TheseAndRest,
    /// The share of them, 0 to 1. Those of a dimension are 1 together, where it has any operations.
    pub share: TheseAndRest,
    /// Whether the shares differ by more than chance, and noticeably.
    pub differs: bool,
}

impl<K> ValueDifference<K> {
    /// The share of the selected operations minus that of the rest, -1 to 1.
    pub fn difference(&self) -> f64 {
        self.share.these - self.share.rest
    }
}

/// A value that was tested, or that is too rare for it.
struct JudgedValue<K> {
    found: ValueDifference<K>,
    shift: Option<ShareShift>,
}

/// Compares the selected operations with the rest in each dimension, in the order of `tallies`. At most `shown` values of a
/// dimension have a row of their own. All values are tested, and all tests are corrected together.
pub fn compare<K: Ord + Clone>(tallies: &[ValueTally<K>], shown: usize) -> Vec<DimensionDifference<K>> {
    let mut dimensions: Vec<Vec<JudgedValue<K>>> = tallies.iter().map(judge).collect();
    let p: Vec<f64> =
        dimensions.iter().flatten().filter_map(|value| value.shift.map(|shift| shift.p)).collect();
    let mut significant = holm(&p).into_iter();
    for value in dimensions.iter_mut().flatten() {
        if let Some(shift) = value.shift {
            let is_more_than_chance = significant.next().unwrap_or(false);
            value.found.differs = is_more_than_chance && shift.effect.abs() >= MIN_SHARE_EFFECT;
        }
    }
    let values = dimensions
        .into_iter()
        .map(|values| -> Vec<ValueDifference<K>> { values.into_iter().map(|value| value.found).collect() });
    tallies.iter().zip(values).map(|(tally, values)| ranked(tally, values, shown)).collect()
}

fn part(count: TheseAndRest, of: TheseAndRest) -> TheseAndRest {
    let share = |part: f64, of: f64| ShareOf { part, of }.share();
    TheseAndRest { these: share(count.these, of.these), rest: share(count.rest, of.rest) }
}

fn judge<K: Ord + Clone>(tally: &ValueTally<K>) -> Vec<JudgedValue<K>> {
    let (total, operations) = (tally.total(), tally.operations());
    let least = MIN_CALLS as f64;
    let can_be_tested = operations.these >= least && operations.rest >= least;
    let judged = |(value, count): (&K, TheseAndRest)| {
        let share = part(count, total);
        let of = |share: f64, of: f64| ShareOf { part: share * of, of };
        let (these, rest) = (of(share.these, operations.these), of(share.rest, operations.rest));
        let is_tested = can_be_tested && these.part + rest.part >= least;
        JudgedValue {
            found: ValueDifference { value: Some(value.clone()), count, share, differs: false },
            shift: is_tested.then(|| share_shift(rest, these)),
        }
    };
    tally.values().map(judged).collect()
}

fn ranked<K: Ord + Clone>(
    tally: &ValueTally<K>,
    mut values: Vec<ValueDifference<K>>,
    shown: usize,
) -> DimensionDifference<K> {
    let total = tally.total();
    let weight = |one: &ValueDifference<K>| {
        if one.differs { one.difference().abs() } else { one.share.these.max(one.share.rest) }
    };
    // Of equal ones, those that the selected operations have more often; else they stay in the order of the values.
    values.sort_by(|a, b| {
        let by_weight = b.differs.cmp(&a.differs).then_with(|| weight(b).total_cmp(&weight(a)));
        by_weight.then_with(|| b.difference().total_cmp(&a.difference()))
    });
    let difference = values.first().filter(|first| first.differs).map_or(0.0, weight);
    let mut others = tally.others();
    let rest = values.split_off(values.len().min(shown));
    rest.iter().for_each(|value| others += value.count);
    if others != TheseAndRest::default() {
        let share = part(others, total);
        values.push(ValueDifference { value: None, count: others, share, differs: false });
    }
    DimensionDifference { values, left_out: rest.len(), total, difference, estimated: tally.estimated() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(values: &[(u64, f64, f64)]) -> ValueTally<u64> {
        let mut tally = ValueTally::default();
        values.iter().for_each(|(value, these, rest)| {
            tally.add(value, TheseAndRest { these: *these, rest: *rest });
        });
        tally
    }

    fn names(dimension: &DimensionDifference<u64>) -> Vec<Option<u64>> {
        dimension.values.iter().map(|value| value.value).collect()
    }

    #[test]
    fn what_differs_comes_first_and_all_others_are_added_up() {
        let applications = tally(&[(1, 10.0, 800.0), (2, 90.0, 100.0), (3, 0.0, 60.0), (4, 0.0, 40.0)]);
        let shapes = tally(&[(7, 60.0, 600.0), (8, 40.0, 400.0)]);
        let found = compare(&[applications, shapes], 2);
        let [applications, shapes] = &found[..] else { panic!("{found:?}") };
        assert_eq!(names(applications), [Some(2), Some(1), None]);
        assert_eq!(applications.left_out, 2);
        assert_eq!(applications.values[2].count, TheseAndRest { these: 0.0, rest: 100.0 });
        assert!(applications.values[..2].iter().all(|value| value.differs));
        assert!((applications.difference - 0.8).abs() < 1e-9);
        let equal = compare(&[tally(&[(5, 0.0, 90.0), (6, 80.0, 0.0)])], 2);
        assert_eq!(names(&equal[0]), [Some(6), Some(5)]);
        assert_eq!((names(shapes), shapes.difference), (vec![Some(7), Some(8)], 0.0));
        assert!(shapes.values.iter().all(|value| !value.differs));
    }

    #[test]
    fn few_operations_tell_nothing() {
        let few = |these, rest| compare(&[tally(&[(1, these, 0.0), (2, 0.0, rest)])], 5)[0].difference;
        assert_eq!([few(19.0, 1_000.0), few(1_000.0, 19.0)], [0.0, 0.0]);
        assert_eq!(few(20.0, 1_000.0), 1.0);
        // There is nothing to compare with.
        let alone = &compare(&[tally(&[(1, 500.0, 0.0), (2, 100.0, 0.0)])], 5)[0];
        assert_eq!((alone.difference, alone.values[0].share.rest), (0.0, 0.0));
        assert!(compare(&[ValueTally::<u64>::default()], 5)[0].values.is_empty());
    }

    #[test]
    fn time_counts_as_the_operations_that_it_is_of() {
        let mut time = tally(&[(1, 8e9, 2e9), (2, 2e9, 8e9)]);
        assert!(compare(&[time.clone()], 5)[0].difference > 0.5);
        time.set_operations(TheseAndRest { these: 30.0, rest: 5.0 });
        assert_eq!(compare(&[time.clone()], 5)[0].difference, 0.0);
        time.set_operations(TheseAndRest { these: 300.0, rest: 500.0 });
        assert!((compare(&[time], 5)[0].difference - 0.6).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn shares_of_a_dimension_are_one_together(
            values in proptest::collection::vec((0u64..200, 0u32..1_000, 0u32..1_000), 1..60),
            shown in 0usize..20,
        ) {
            let values: Vec<_> = values.into_iter().map(|(key, a, b)| (key, f64::from(a), f64::from(b))).collect();
            let found = &compare(&[tally(&values)], shown)[0];
            let (mut counts, mut shares) = (TheseAndRest::default(), TheseAndRest::default());
            for value in &found.values {
                counts += value.count;
                shares += value.share;
            }
            prop_assert_eq!(counts, found.total);
            for (share, total) in [(shares.these, counts.these), (shares.rest, counts.rest)] {
                prop_assert!((share - f64::from(total > 0.0)).abs() < 1e-9, "{} {}", share, total);
            }
            prop_assert!(found.values.len() <= shown + 1);
        }

        #[test]
        fn the_order_of_additions_changes_nothing(
            values in proptest::collection::vec((0u64..50, 0u32..1_000, 0u32..1_000), 1..60),
            turn in 0usize..60,
        ) {
            let mut values: Vec<_> =
                values.into_iter().map(|(key, a, b)| (key, f64::from(a), f64::from(b))).collect();
            let found = compare(&[tally(&values)], 8);
            let turn = turn % values.len();
            values.rotate_left(turn);
            prop_assert_eq!(&compare(&[tally(&values)], 8), &found);
            values.reverse();
            prop_assert_eq!(&compare(&[tally(&values)], 8), &found);
        }

        #[test]
        fn what_is_the_same_in_both_does_not_differ(
            values in proptest::collection::vec(1u32..10_000, 1..60),
            these in 1u32..50,
            rest in 1u32..50,
        ) {
            let of = |(key, count): (usize, &u32)| {
                (key as u64, f64::from(*count) * f64::from(these), f64::from(*count) * f64::from(rest))
            };
            let values: Vec<_> = values.iter().enumerate().map(of).collect();
            prop_assert_eq!(compare(&[tally(&values)], 8)[0].difference, 0.0);
        }
    }
}
