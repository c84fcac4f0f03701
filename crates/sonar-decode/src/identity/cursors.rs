//! Which command opened a cursor? A getMore or killCursors belongs to the same shape.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use sonar_core::{Identity, ShapeId, ShapeInfo};

/// The most cursors that are remembered; past half of it the older half is forgotten.
const MAX_CURSORS: usize = 65_536;

/// The command that opened a cursor.
#[derive(Clone, Debug, Default)]
pub(crate) struct CursorOrigin {
    pub shape: Arc<ShapeInfo>,
    pub ordered_id: ShapeId,
    /// How exactly the shape is known.
    pub identity: Identity,
    /// The cursor's getMores wait for data on purpose.
    pub waits: bool,
}

type Generation<K> = HashMap<K, CursorOrigin, foldhash::quality::RandomState>;

/// The origins of the cursors that are open, in two generations.
#[derive(Debug)]
pub(crate) struct Cursors<K> {
    /// [`MAX_CURSORS`] is divided by this.
    share: usize,
    young: Generation<K>,
    old: Generation<K>,
}

impl<K> Default for Cursors<K> {
    fn default() -> Self {
        Self::share(1)
    }
}

impl<K> Cursors<K> {
    /// With room for [`MAX_CURSORS`] divided by `share`.
    pub(crate) fn share(share: usize) -> Self {
        Self { share: share.max(1), young: Generation::default(), old: Generation::default() }
    }
}

impl<K: Hash + Eq> Cursors<K> {
    /// Remembers the origin of a cursor. Returns how many other cursors were forgotten to make room.
    pub(crate) fn open(&mut self, id: K, origin: CursorOrigin) -> u64 {
        let mut forgotten = 0;
        if self.young.len() >= MAX_CURSORS / self.share / 2 {
            forgotten = self.old.len() as u64;
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&id);
        self.young.insert(id, origin);
        forgotten
    }

    /// The bytes of both generations: an estimate.
    pub(crate) fn memory(&self) -> usize {
        (self.young.capacity() + self.old.capacity()) * (size_of::<(K, CursorOrigin)>() + 1)
    }

    /// The origin of a cursor; `None` when it was opened before the source began, or was forgotten.
    pub(crate) fn origin(&self, id: &K) -> Option<&CursorOrigin> {
        self.young.get(id).or_else(|| self.old.get(id))
    }

    /// Forgets a cursor.
    pub(crate) fn close(&mut self, id: &K) {
        self.young.remove(id);
        self.old.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_cursors_are_forgotten_first() {
        let mut cursors = Cursors::default();
        let last = MAX_CURSORS as i64;
        let forgotten: u64 = (0..=last).map(|id| cursors.open(id, CursorOrigin::default())).sum();
        assert_eq!(forgotten, MAX_CURSORS as u64 / 2);
        assert!(cursors.origin(&0).is_none() && cursors.origin(&last).is_some());
        cursors.close(&last);
        assert!(cursors.origin(&last).is_none());
    }
}
