//! Says where the time of a shape's operations went, before and after.

use sonar_core::ShapeInfo;
use sonar_core::changes::{GrownTime, ShapeChange, ShapeWay, SplitChange, SplitGrowth};
use sonar_core::time_split::{RowSplit, TimePart};

use crate::kit::{Grouped, Nanos, plural};
use crate::shown_part::{ShownPart, of_row};

/// Parts with at least this share of the time of one side are shown.
const MIN_SHOWN: f64 = 0.05;

/// `the same query, but it now waits for reads of shop.orders`, if it is slower because a part of its time grew.
pub(super) fn sentence(shape: &ShapeChange) -> Option<String> {
    let grown = shape.split.as_ref()?.grown.as_slice();
    if !shape.ways.contains(&ShapeWay::Slower) || grown.is_empty() {
        return None;
    }
    let is_another = shape.ways.iter().any(|way| matches!(way, ShapeWay::Plan | ShapeWay::Heavier));
    let words: Vec<String> = grown.iter().map(words).collect();
    let same = if is_another { "" } else { "the same query, but " };
    Some(format!("{same}it now {}", words.join(" and ")))
}

fn words(grown: &SplitGrowth) -> String {
    let part = match grown.what {
        GrownTime::Unread => return "waits until the server reads its request".to_owned(),
        GrownTime::Part(part) => part,
    };
    let what = match part {
        TimePart::Cpu => "takes more processor time",
        TimePart::RunQueue => "waits for a processor",
        TimePart::Yield => "gives way to other threads",
        TimePart::Read => "waits for reads",
        TimePart::Fault => "waits for pages of memory",
        TimePart::Write => "waits for writes to files",
        TimePart::Flush => "waits for flushes to disk",
        TimePart::Futex => "waits for a mutex, a ticket or a condition",
        TimePart::Poll => "waits for a lock, replication or another server",
        TimePart::Backoff => "pauses for a busy page",
        TimePart::Sleep => "pauses after write conflicts",
        TimePart::Send => "waits for the client to take the reply",
        TimePart::Peer => "waits for another server",
        TimePart::Other => "waits in other system calls",
    };
    let what = match (&grown.file, &grown.class) {
        (Some(file), _) => format!("{what} of {file}"),
        (None, Some(class)) => format!("{what} ({class})"),
        (None, None) => what.to_owned(),
    };
    let holder =
        grown.blocker.as_deref().map_or_else(String::new, |shape| format!(", held by {}", name(shape)));
    what + &holder
}

/// `find shop.carts {user: ?string}`.
pub(super) fn name(shape: &ShapeInfo) -> String {
    let text = if shape.typed.is_empty() { String::new() } else { format!(" {}", shape.typed) };
    format!("{} {}{text}", shape.command, shape.namespace())
}

/// The time of an operation by part, before and after.
pub(super) fn evidence(split: &SplitChange) -> String {
    let SplitChange { before, after, .. } = split;
    let each = |row: &RowSplit, ns: u64| Nanos(ns / row.operations.max(1));
    let mut parts: Vec<(ShownPart, u64, u64)> =
        of_row(before).zip(of_row(after)).map(|((part, was), (_, is))| (part, was, is)).collect();
    let share = |row: &RowSplit, ns: u64| ns as f64 / row.total_ns().max(1) as f64;
    parts.retain(|(_, was, is)| share(before, *was).max(share(after, *is)) >= MIN_SHOWN);
    parts.sort_by_key(|(_, _, is)| std::cmp::Reverse(*is));
    let parts: Vec<String> = parts
        .iter()
        .map(|(part, was, is)| format!("{} {} -> {}", part.words(), each(before, *was), each(after, *is)))
        .collect();
    format!(
        "mean time inside the server, of {} before and {} after: {}",
        plural(Grouped(before.operations), "operation"),
        Grouped(after.operations),
        parts.join(", ")
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::figures::SplitChangeJson;
    use super::super::sentence::tests::shape_change;
    use super::*;
    use serde_json::{Value, json};

    fn row(operations: u64, parts: &[(TimePart, u64)]) -> RowSplit {
        let mut row = RowSplit { operations, ..RowSplit::default() };
        for &(part, ms) in parts {
            row.split[part] = operations * ms * 1_000_000;
        }
        row.duration_ns = row.split.total_ns();
        row
    }

    fn change(ways: &[ShapeWay], grown: SplitGrowth) -> ShapeChange {
        let after = row(40, &[(TimePart::Cpu, 2), (TimePart::Read, 31)]);
        ShapeChange {
            split: Some(Box::new(SplitChange {
                before: row(2_000, &[(TimePart::Cpu, 2)]),
                after,
                grown: vec![grown],
            })),
            ..shape_change(ways)
        }
    }

    fn grown(what: GrownTime) -> SplitGrowth {
        SplitGrowth { what, before_ns: 0.0, after_ns: 31e6, class: None, file: None, blocker: None }
    }

    #[test]
    fn a_slower_query_says_what_it_waits_for() {
        let read = GrownTime::Part(TimePart::Read);
        let of_file = SplitGrowth { file: Some("shop.orders".into()), ..grown(read) };
        let slower = change(&[ShapeWay::Slower], of_file.clone());
        assert_eq!(sentence(&slower).unwrap(), "the same query, but it now waits for reads of shop.orders");
        let another = change(&[ShapeWay::Slower, ShapeWay::Plan], of_file.clone());
        assert_eq!(
            sentence(&another).unwrap(),
            "it now waits for reads of shop.orders",
            "it is not the same"
        );
        assert_eq!(sentence(&change(&[ShapeWay::MoreOften], of_file)), None);
        let class = Some("execution ticket".into());
        let futex = SplitGrowth { class, ..grown(GrownTime::Part(TimePart::Futex)) };
        let text = sentence(&change(&[ShapeWay::Slower], futex)).unwrap();
        assert_eq!(
            text,
            "the same query, but it now waits for a mutex, a ticket or a condition (execution ticket)"
        );
        let holder = ShapeInfo { command: "update".into(), database: "shop".into(), ..ShapeInfo::default() };
        let held = SplitGrowth { blocker: Some(holder.into()), ..grown(GrownTime::Part(TimePart::Futex)) };
        let text = sentence(&change(&[ShapeWay::Slower], held)).unwrap();
        assert!(text.ends_with("a ticket or a condition, held by update shop"), "{text}");
        assert!(
            sentence(&change(&[ShapeWay::Slower], grown(GrownTime::Unread)))
                .unwrap()
                .ends_with("reads its request")
        );
    }

    #[test]
    fn the_evidence_has_the_parts_that_matter_on_either_side() {
        let change = change(&[ShapeWay::Slower], grown(GrownTime::Part(TimePart::Read)));
        let split = change.split.as_deref().unwrap();
        assert_eq!(
            evidence(split),
            "mean time inside the server, of 2,000 operations before and 40 after: waiting for reads of files 0ns -> \
             31.0ms, on a processor 2.00ms -> 2.00ms"
        );
        let figures = serde_json::to_value(SplitChangeJson::new(split)).unwrap();
        assert_eq!(figures["after"]["parts"], json!({ "cpu": 80_000_000, "file_read": 1_240_000_000 }));
        assert_eq!(
            (&figures["grown"][0]["part"], &figures["grown"][0]["file"]),
            (&json!("file_read"), &Value::Null)
        );
    }
}
