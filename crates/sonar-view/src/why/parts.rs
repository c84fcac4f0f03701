//! The parts of a time, with what is known about each.

use std::cmp::Reverse;

use serde::Serialize;
use sonar_core::Histogram;
use sonar_core::time_split::{OTHER, ShapeSplit, TimePart, TimeSplit, WaitTotal};
use ts_rs::TS;

use crate::kit::share;
use crate::shown_part::{ShownPart, longest};

/// The most wait classes to show for a part.
const MAX_CLASSES: usize = 8;
/// A function with fewer samples is no evidence.
const MIN_SAMPLES: u64 = 5;
/// The class of waits whose stacks were not taken: they were short, or there were too many.
pub(super) const WITHOUT_STACK: &str = "waits without a stack";
/// Such waits are left out below this share of their part.
const NOTABLE_WITHOUT_STACK: f64 = 0.05;

/// A part of a time.
#[derive(Clone, Debug, Serialize, PartialEq, TS)]
pub struct PartJson {
    /// Which part; in JSON its stable name.
    pub part: ShownPart,
    /// Nanoseconds, of all operations.
    pub ns: u64,
    /// Share of the whole, 0 to 1.
    pub share: f64,
    /// Operations that had any.
    pub operations: Option<u64>,
    /// Median of those, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// Their 99th percentile.
    pub p99_ns: Option<u64>,
    /// What its waits were for, the longest first. Those whose stacks were not taken are `waits without a stack`, if
    /// there are also others. For `cpu`, the functions with five samples or more.
    pub classes: Vec<WaitClassJson>,
}

/// Long waits of one class, or samples of one function.
#[derive(Clone, Debug, Serialize, PartialEq, TS)]
pub struct WaitClassJson {
    /// Its name, as in `mongosonar stacks`; for a function `in NAME`.
    pub class: String,
    /// Waits, or samples; 0 for waits without a stack, which are not counted.
    pub waits: u64,
    /// How long they lasted, in nanoseconds, together with those that they stand for; for a function, its share of the
    /// measured time.
    pub wait_ns: u64,
    /// Share of the whole time of the operations, 0 to 1.
    pub share: f64,
}

/// The parts of the time of all rows, the largest first.
pub(super) fn of_all(rows: &[ShapeSplit], whole: u64) -> Vec<PartJson> {
    let mut all = TimeSplit::default();
    let (mut unread, mut unexplained) = (0, 0);
    for row in rows {
        all.add(&row.split);
        unread += row.unread.sum_ns() as u64;
        unexplained += row.unexplained_ns;
    }
    in_order(&all, unread, unexplained, whole)
}

/// The parts of the time of one row, with quantiles and wait classes.
/// Each long wait with a class counts as `weight` waits, since there were too many to take the stack of each.
pub(super) fn of_shape(row: &ShapeSplit, whole: u64, weight: f64) -> Vec<PartJson> {
    let mut parts = in_order(&row.split, row.unread.sum_ns() as u64, row.unexplained_ns, whole);
    for shown in &mut parts {
        let times = match shown.part {
            ShownPart::Measured(part) => row.parts[part as usize].as_deref(),
            ShownPart::Unread => Some(&row.unread),
            ShownPart::Unexplained => None,
        };
        shown.operations = times.map(Histogram::count);
        shown.p50_ns = times.and_then(|times| times.quantile_ns(0.5));
        shown.p99_ns = times.and_then(|times| times.quantile_ns(0.99));
        if let ShownPart::Measured(part) = shown.part {
            shown.classes = classes(row, part, whole, weight);
        }
    }
    parts
}

/// The parts of the time of one operation.
pub(super) fn of_split(split: &TimeSplit, whole: u64) -> Vec<PartJson> {
    in_order(split, 0, 0, whole)
}

fn in_order(split: &TimeSplit, unread_ns: u64, unexplained_ns: u64, whole: u64) -> Vec<PartJson> {
    let shown = longest(split, unread_ns, unexplained_ns).into_iter().map(|(part, ns)| PartJson {
        part,
        ns,
        share: share(ns, whole),
        operations: None,
        p50_ns: None,
        p99_ns: None,
        classes: Vec::new(),
    });
    shown.collect()
}

fn classes(row: &ShapeSplit, part: TimePart, whole: u64, weight: f64) -> Vec<WaitClassJson> {
    let of_part = || row.waits.iter().filter(|((waited, _), _)| *waited == part);
    let sampled: u64 = of_part().map(|(_, total)| total.wait_ns).sum();
    let is_cpu = part == TimePart::Cpu;
    // The time is measured; samples, and waits that stand for others, only show how it is divided.
    let most = share(row.split[part], sampled);
    let is_evidence = of_part().map(|(_, total)| total.waits).sum::<u64>() >= MIN_SAMPLES;
    let scale = match (is_cpu, is_evidence) {
        (true, _) => most,
        (false, true) => weight.min(most).max(1.0),
        (false, false) => 1.0,
    };
    let scaled = |total: WaitTotal| WaitTotal { wait_ns: (total.wait_ns as f64 * scale) as u64, ..total };
    let is_named = |class: &str, waits: u64| class != OTHER && (!is_cpu || waits >= MIN_SAMPLES);
    let mut named: Vec<_> = of_part()
        .filter(|((_, class), total)| is_named(class, total.waits))
        .map(|((_, class), total)| (&**class, *total))
        .collect();
    named.sort_by_key(|(class, total)| (Reverse(total.wait_ns), *class));
    named.truncate(MAX_CLASSES);
    let sum = |of: fn(&WaitTotal) -> u64| {
        let all: u64 = of_part().map(|(_, total)| of(total)).sum();
        all - named.iter().map(|(_, total)| of(total)).sum::<u64>()
    };
    let others = scaled(WaitTotal { waits: sum(|total| total.waits), wait_ns: sum(|total| total.wait_ns) });
    named.iter_mut().for_each(|(_, total)| *total = scaled(*total));
    let with_stack = scaled(WaitTotal { waits: 0, wait_ns: sampled });
    let without_stack = WaitTotal { waits: 0, wait_ns: row.split[part].saturating_sub(with_stack.wait_ns) };
    let is_notable = !is_cpu && share(without_stack.wait_ns, row.split[part]) >= NOTABLE_WITHOUT_STACK;
    named.extend((others.wait_ns > 0 && !is_cpu).then_some(("others", others)));
    named.extend((sampled > 0 && is_notable).then_some((WITHOUT_STACK, without_stack)));
    named.sort_by_key(|(class, total)| (Reverse(total.wait_ns), *class));
    let shown = named.into_iter().map(|(class, WaitTotal { waits, wait_ns })| WaitClassJson {
        class: class.to_owned(),
        waits,
        wait_ns,
        share: share(wait_ns, whole),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sonar_core::{Class, Role, ShapeInfo};

    use super::*;

    #[test]
    fn samples_divide_the_measured_time_on_processors() {
        let mut row = ShapeSplit::new(Arc::new(ShapeInfo::default()), Role::Served, Class::User);
        row.split[TimePart::Cpu] = 900;
        row.split[TimePart::Futex] = 100;
        for (part, class, wait_ns) in [
            (TimePart::Cpu, "in scan", 40_000),
            (TimePart::Cpu, OTHER, 15_000),
            (TimePart::Futex, "execution ticket", 70),
        ] {
            row.waits.insert((part, class.into()), WaitTotal { waits: 5, wait_ns });
        }
        row.waits.insert((TimePart::Cpu, "in rare".into()), WaitTotal { waits: 4, wait_ns: 5_000 });
        let parts = of_shape(&row, 1_000, 1.0);
        let classes: Vec<_> = parts
            .iter()
            .flat_map(|part| &part.classes)
            .map(|class| (&*class.class, class.wait_ns, class.share))
            .collect();
        let expected = [("in scan", 600, 0.6), ("execution ticket", 70, 0.07), (WITHOUT_STACK, 30, 0.03)];
        assert_eq!(classes, expected);
    }

    #[test]
    fn waits_with_a_class_stand_for_those_that_were_too_many() {
        let mut row = ShapeSplit::new(Arc::new(ShapeInfo::default()), Role::Served, Class::User);
        row.split[TimePart::Futex] = 1_000;
        for (class, wait_ns) in [("profiler write", 60), ("execution ticket", 20)] {
            row.waits.insert((TimePart::Futex, class.into()), WaitTotal { waits: 4, wait_ns });
        }
        let found = |row: &ShapeSplit, weight| {
            let parts = of_shape(row, 1_000, weight);
            parts[0].classes.iter().map(|one| (one.class.clone(), one.wait_ns)).collect::<Vec<_>>()
        };
        let expected = |profiler, ticket| {
            vec![("profiler write".to_owned(), profiler), ("execution ticket".to_owned(), ticket)]
        };
        let mut with_rest = vec![(WITHOUT_STACK.to_owned(), 200)];
        with_rest.splice(0..0, expected(600, 200));
        with_rest.sort_by_key(|(class, ns)| (Reverse(*ns), class.clone()));
        assert_eq!(found(&row, 10.0), with_rest);
        // Never more than was measured.
        assert_eq!(found(&row, 100.0), expected(750, 250));
        // Too few to tell.
        row.waits.values_mut().for_each(|total| total.waits = 2);
        assert_eq!(found(&row, 100.0)[1..], expected(60, 20));
    }

    #[test]
    fn few_samples_name_no_function() {
        let mut row = ShapeSplit::new(Arc::new(ShapeInfo::default()), Role::Served, Class::User);
        row.split[TimePart::Cpu] = 900;
        row.waits.insert((TimePart::Cpu, "in rare".into()), WaitTotal { waits: 4, wait_ns: 900 });
        assert!(of_shape(&row, 900, 1.0).iter().all(|part| part.classes.is_empty()));
    }
}
