//! What the reader of a log that is followed for months holds.

use std::sync::Arc;

use sonar_core::Application;

use super::LogConnection;
use super::LogReader;
use crate::entry::EntrySink;
use crate::identity::Applications;

impl LogReader {
    /// The bytes that it holds of the lines so far: an estimate.
    pub fn memory(&self) -> usize {
        let applications = size_of::<Application>() + size_of::<Arc<Application>>();
        self.assembler.memory()
            + self.connections.capacity() * size_of::<(u64, LogConnection)>()
            + self.apps.len() * applications
    }

    /// Forgets shapes, cursors and open connections, which it learns anew from the next lines: until then they have no
    /// applications. Emits what waits.
    pub fn forget(&mut self, sink: &mut impl EntrySink) {
        self.assembler.forget(sink);
        self.reading.connections_forgotten += self.connections.len() as u64;
        self.connections = Default::default();
        self.apps = Applications::default();
    }
}
