//! What an assembler that goes on for months holds.

use super::waiting::WaitingStatement;
use super::{EntrySink, OperationAssembler};
use crate::identity::{Applications, Cursors, ShapeTable};

/// What the texts of a statement that waits take, in bytes: an estimate.
const TEXTS: usize = 512;

impl OperationAssembler {
    /// The bytes that it holds of the entries so far: an estimate.
    pub(crate) fn memory(&self) -> usize {
        self.shapes.memory()
            + self.cursors.memory()
            + self.waiting.count() * (size_of::<WaitingStatement>() + TEXTS)
    }

    /// Forgets shapes, applications and cursors. Emits what waits.
    pub(crate) fn forget(&mut self, sink: &mut impl EntrySink) {
        self.reading.statements_unjoined += self.waiting.count() as u64;
        self.finish(sink);
        self.shapes = ShapeTable::default();
        self.apps = Applications::default();
        self.cursors = Cursors::default();
    }
}
