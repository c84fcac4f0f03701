//! Long waits whose operation has not ended yet.

use super::{ClassifiedWait, OperationKey};
use crate::OldestFirst;

/// The most operations whose waits are kept until they end.
pub const MAX_PENDING_WAITS: usize = 14_000;
/// The most waits of all operations together.
pub const MAX_ALL_WAITS: usize = 65_536;
/// The most waits to keep of one operation.
const MAX_WAITS: usize = 256;

/// Waits by their operation.
#[derive(Default, Debug)]
pub struct PendingWaits {
    waits: OldestFirst<OperationKey, Vec<ClassifiedWait>>,
    /// Waits of all operations.
    count: usize,
    /// Waits that were not kept.
    pub turned_away: u64,
}

impl PendingWaits {
    /// Adds a wait of an operation that goes on, in the order in which waits end.
    pub fn add(&mut self, operation: OperationKey, wait: ClassifiedWait) {
        let waits = self.waits.entry(operation);
        if waits.len() < MAX_WAITS {
            waits.push(wait);
            self.count += 1;
        } else {
            self.turned_away += 1;
        }
        while (self.waits.count() > MAX_PENDING_WAITS || self.count > MAX_ALL_WAITS)
            && let Some((_, oldest)) = self.waits.pop_oldest()
        {
            self.count -= oldest.len();
            self.turned_away += oldest.len() as u64;
        }
    }

    /// Takes the waits of an operation that has ended.
    pub fn take(&mut self, operation: OperationKey) -> Vec<ClassifiedWait> {
        let waits = self.waits.remove(&operation).unwrap_or_default();
        self.count -= waits.len();
        waits
    }

    /// The most bytes of all waits. A list has room for up to twice as many as it has, and for four at least.
    pub const MAX_MEMORY: usize =
        OldestFirst::<OperationKey, Vec<ClassifiedWait>>::max_memory(MAX_PENDING_WAITS + 1)
            + (4 * MAX_PENDING_WAITS + 2 * MAX_ALL_WAITS) * size_of::<ClassifiedWait>();

    /// The bytes that it has allocated. The names of classes are shared, and do not count.
    pub fn memory(&self) -> usize {
        let lists: usize = self.waits.values().map(Vec::capacity).sum();
        self.waits.memory() + lists * size_of::<ClassifiedWait>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::TimePart;
    use super::*;
    use crate::Timestamp;

    fn wait(wait_ns: u64) -> ClassifiedWait {
        ClassifiedWait { part: TimePart::Futex, class: "execution ticket".into(), wait_ns }
    }

    fn key(ns: u64) -> OperationKey {
        (1, Timestamp::from_unix_ns(ns))
    }

    #[test]
    fn waits_belong_to_their_operation() {
        let mut pending = PendingWaits::default();
        pending.add(key(1), wait(10));
        pending.add(key(2), wait(20));
        pending.add(key(1), wait(30));
        assert_eq!(pending.take(key(1)), [wait(10), wait(30)]);
        assert!(pending.take(key(1)).is_empty());
        assert_eq!(pending.take(key(2)), [wait(20)]);
        assert_eq!(pending.turned_away, 0);
    }

    #[test]
    fn an_operation_that_goes_on_keeps_its_waits() {
        let mut pending = PendingWaits::default();
        pending.add(key(0), wait(1));
        for number in 1..3 * MAX_PENDING_WAITS as u64 {
            pending.add(key(number), wait(1));
            pending.take(key(number));
        }
        assert_eq!((pending.take(key(0)), pending.turned_away), (vec![wait(1)], 0));
        assert!(pending.memory() < PendingWaits::MAX_MEMORY / 10, "{}", pending.memory());
    }

    #[test]
    fn waits_of_operations_that_never_end_make_room() {
        let mut pending = PendingWaits::default();
        for number in 0..MAX_PENDING_WAITS as u64 + 3 {
            pending.add(key(number), wait(1));
        }
        assert_eq!(pending.turned_away, 3);
        assert!(pending.take(key(2)).is_empty());
        assert_eq!(pending.take(key(3)), [wait(1)]);
        for _ in 0..MAX_WAITS + 2 {
            pending.add(key(7), wait(1));
        }
        assert_eq!(pending.turned_away, 3 + 3, "it had one already");
    }

    #[test]
    fn the_waits_of_all_operations_have_one_bound() {
        let mut pending = PendingWaits::default();
        let operations = 2 * MAX_ALL_WAITS / MAX_WAITS;
        for number in 0..operations as u64 {
            (0..MAX_WAITS).for_each(|_| pending.add(key(number), wait(1)));
            assert!(pending.count <= MAX_ALL_WAITS);
        }
        assert_eq!(pending.turned_away, MAX_ALL_WAITS as u64, "those of the oldest operations");
        assert!(pending.take(key(0)).is_empty());
        assert_eq!(pending.take(key(operations as u64 - 1)).len(), MAX_WAITS);
        assert_eq!(pending.count, MAX_ALL_WAITS - MAX_WAITS);
    }
}
