//! Which shapes are known, and how much memory may their texts take?

use std::collections::HashMap;
use std::sync::Arc;

use sonar_core::{ShapeId, ShapeInfo};

/// The most shapes that are remembered; later ones are called `other`.
pub(crate) const MAX_SHAPES: usize = 20_000;
/// Memory of the texts of all shapes, in bytes; texts beyond it are cut.
const TEXT_BUDGET: usize = 8 << 20;

/// What stands for all shapes beyond the cap.
pub(crate) fn other_shape() -> ShapeInfo {
    ShapeInfo { typed: "other".into(), plain: "other".into(), ..ShapeInfo::default() }
}

/// Shapes by id.
#[derive(Debug, Default)]
pub(crate) struct ShapeTable {
    known: HashMap<ShapeId, Arc<ShapeInfo>, foldhash::quality::RandomState>,
    text_bytes: usize,
}

impl ShapeTable {
    pub(crate) fn get(&self, id: ShapeId) -> Option<&Arc<ShapeInfo>> {
        self.known.get(&id)
    }

    /// The bytes of all shapes: an estimate.
    pub(crate) fn memory(&self) -> usize {
        // With the counts of references.
        let shape = size_of::<ShapeInfo>() + 2 * size_of::<usize>();
        self.text_bytes
            + self.known.len() * shape
            + self.known.capacity() * size_of::<(ShapeId, Arc<ShapeInfo>)>()
    }

    /// Whether there is no room for another shape.
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() >= MAX_SHAPES
    }

    /// Whether the texts of a shape are within the budget.
    pub(crate) fn has_room_for(&self, info: &ShapeInfo) -> bool {
        self.text_bytes + info.heap_bytes() <= TEXT_BUDGET
    }

    /// Adds a shape unless it is known already; there must be room for it. Where its texts are beyond the
    /// budget they are left out, and the result is marked as cut.
    pub(crate) fn add(&mut self, mut info: ShapeInfo) -> Arc<ShapeInfo> {
        if let Some(known) = self.known.get(&info.id) {
            return known.clone();
        }
        if !self.has_room_for(&info) {
            (info.typed, info.plain, info.cut) = ("…".into(), "…".into(), true);
        }
        self.text_bytes += info.heap_bytes();
        let info = Arc::new(info);
        self.known.insert(info.id, info.clone());
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_beyond_the_budget_are_cut() {
        let info = |id, bytes| ShapeInfo {
            id: ShapeId(id),
            typed: "x".repeat(bytes).into(),
            ..ShapeInfo::default()
        };
        let mut shapes = ShapeTable::default();
        assert!(!shapes.add(info(1, TEXT_BUDGET - 10)).cut);
        let cut = shapes.add(info(2, 100));
        assert!(cut.cut && &*cut.typed == "…");
        assert!(!shapes.add(info(3, 1)).cut, "there is room for a short one");
        assert!(!shapes.add(info(1, TEXT_BUDGET)).cut, "it is known already");
        assert_eq!(shapes.text_bytes, TEXT_BUDGET - 10 + cut.heap_bytes() + 1);
    }
}
