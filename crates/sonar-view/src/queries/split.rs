//! Where the time of the operations of a row went: parts in order, and the bar of a column.

use std::cmp::Reverse;
use std::sync::Arc;

use sonar_core::time_split::{FileTotal, RowSplit, ThreadActivity, TimePart, WaitTotal};

use crate::kit::{Nanos, share};
use crate::shown_part::{ShownPart, longest};

/// Letters of the bar in the column.
pub(super) const SPLIT_COLUMNS: usize = 10;

/// What parts have in common, as far as a short bar can show it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SplitGroup {
    /// On a processor.
    Processor,
    /// Waiting for one.
    Queue,
    /// Reads, pages, writes, flushes.
    Disk,
    /// Mutexes, tickets, conditions, and pauses before another try, as after a write conflict.
    Lock,
    /// The rest.
    Other,
}

impl SplitGroup {
    /// All groups, in the order of the bar.
    pub(super) const ALL: [Self; 5] = [Self::Processor, Self::Queue, Self::Disk, Self::Lock, Self::Other];

    /// Its letter in a bar.
    pub(super) const fn letter(self) -> char {
        match self {
            Self::Processor => 'C',
            Self::Queue => 'Q',
            Self::Disk => 'D',
            Self::Lock => 'L',
            Self::Other => 'O',
        }
    }

    /// The group of a part.
    pub(super) const fn of(part: ShownPart) -> Self {
        let ShownPart::Measured(part) = part else { return Self::Other };
        match part {
            TimePart::Cpu => Self::Processor,
            TimePart::RunQueue | TimePart::Yield => Self::Queue,
            TimePart::Read | TimePart::Fault | TimePart::Write | TimePart::Flush => Self::Disk,
            TimePart::Futex | TimePart::Poll | TimePart::Backoff | TimePart::Sleep => Self::Lock,
            TimePart::Send | TimePart::Peer | TimePart::Other => Self::Other,
        }
    }
}

/// The parts that took any time, in nanoseconds, the longest first.
pub(super) fn parts(split: &RowSplit) -> Vec<(ShownPart, u64)> {
    longest(&split.split, split.unread_ns, split.unexplained_ns())
}

/// Its long waits, the longest first.
pub(super) fn longest_waits(split: &RowSplit) -> Vec<(&(TimePart, Arc<str>), &WaitTotal)> {
    let mut waits: Vec<_> = split.waits.iter().collect();
    waits.sort_by_key(|(_, total)| Reverse(total.wait_ns));
    waits
}

/// Its files, those first for which it waited longest.
pub(super) fn longest_files(split: &RowSplit) -> Vec<(&Arc<str>, &FileTotal)> {
    let mut files: Vec<_> = split.files.iter().collect();
    files.sort_by_key(|(_, total)| Reverse(total.wait_ns));
    files
}

/// What the thread of an operation in flight does, in words.
pub(super) fn doing(now: &ThreadActivity) -> String {
    let mut words = match &now.class {
        Some(class) => class.to_string(),
        None => ShownPart::Measured(now.doing).words().to_owned(),
    };
    if let Some(file) = &now.file {
        words.push_str(&format!(" ({file})"));
    }
    words.push_str(&format!(" for {}", Nanos(now.doing_ns)));
    if let Some(blocker) = &now.blocker {
        let name = blocker.thread_name.clone().unwrap_or_else(|| format!("thread {}", blocker.thread));
        words.push_str(&format!("; {name} ended an earlier wait of {}", Nanos(blocker.wait_ns)));
    }
    words
}

/// A bar of `columns` letters. Each group has letters in proportion to its share of the time, rounded so that the bar is
/// full; empty if there was no time.
pub(super) fn letters(split: &RowSplit, columns: usize) -> String {
    let whole = split.total_ns();
    if whole == 0 {
        return String::new();
    }
    let parts = parts(split);
    let (mut bar, mut reached) = (String::new(), 0);
    for group in SplitGroup::ALL {
        let of_group = parts.iter().filter(|(part, _)| SplitGroup::of(*part) == group);
        reached += of_group.map(|(_, ns)| ns).sum::<u64>();
        let until = (share(reached, whole) * columns as f64).round() as usize;
        while bar.len() < until.min(columns) {
            bar.push(group.letter());
        }
    }
    bar
}

#[cfg(test)]
mod tests {
    use sonar_core::Timestamp;
    use sonar_core::time_split::EarlierBlocker;

    use super::*;

    fn split(of: &[(TimePart, u64)], unread_ns: u64) -> RowSplit {
        let mut split = RowSplit { operations: 1, unread_ns, ..RowSplit::default() };
        for (part, ns) in of {
            split.split[*part] = *ns;
            split.duration_ns += ns;
        }
        split
    }

    #[test]
    fn a_bar_is_full_and_has_a_letter_for_each_tenth() {
        let bar = |of: &[(TimePart, u64)], unread_ns| letters(&split(of, unread_ns), 10);
        assert_eq!(bar(&[(TimePart::Cpu, 70), (TimePart::Read, 20), (TimePart::Fault, 10)], 0), "CCCCCCCDDD");
        assert_eq!(bar(&[(TimePart::Futex, 1), (TimePart::RunQueue, 1)], 2), "QQQLLOOOOO");
        assert_eq!(bar(&[(TimePart::Send, 5)], 0), "OOOOOOOOOO");
        assert_eq!(bar(&[(TimePart::Sleep, 5)], 0), "LLLLLLLLLL", "the pause after a write conflict");
        assert_eq!(bar(&[], 0), "");
        let uneven = [(TimePart::Cpu, 333), (TimePart::Read, 333), (TimePart::Poll, 334)];
        assert_eq!(bar(&uneven, 0).len(), 10);
    }

    #[test]
    fn what_an_operation_in_flight_waits_for_is_said_with_who_ended_its_earlier_waits() {
        let blocker = EarlierBlocker { thread: 7, thread_name: None, wait_ns: 2_000_000 };
        let mut now = ThreadActivity {
            thread_name: "conn1".into(),
            doing: TimePart::Read,
            since: Timestamp::default(),
            doing_ns: 1_500_000_000,
            class: None,
            file: Some("shop.orders".into()),
            blocker: None,
        };
        assert_eq!(doing(&now), "waiting for reads of files (shop.orders) for 1.50s");
        now = ThreadActivity {
            class: Some("collection lock".into()),
            file: None,
            blocker: Some(blocker),
            ..now
        };
        assert_eq!(doing(&now), "collection lock for 1.50s; thread 7 ended an earlier wait of 2.00ms");
    }

    #[test]
    fn parts_add_up_and_the_longest_is_first() {
        let mut split = split(&[(TimePart::Cpu, 70), (TimePart::Read, 200)], 5);
        split.duration_ns += 30;
        let found = parts(&split);
        assert_eq!(found[0], (ShownPart::Measured(TimePart::Read), 200));
        assert_eq!(found.last(), Some(&(ShownPart::Unread, 5)));
        assert!(found.contains(&(ShownPart::Unexplained, 30)));
        assert_eq!(found.iter().map(|(_, ns)| ns).sum::<u64>(), split.total_ns());
    }
}
