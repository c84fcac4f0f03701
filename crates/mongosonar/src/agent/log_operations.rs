//! Slow operations of logs, in the rows of their shapes.

use sonar_core::observation::WindowCutter;
use sonar_core::{Endpoint, Execution, Identity, Operation, Record, Source};
use sonar_decode::entry::EntrySink;

/// Sorts the operations of a server's log into windows by the time of their end.
pub struct LogOperations<'a> {
    /// The windows.
    pub windows: &'a mut WindowCutter,
    /// The server's name in the history.
    pub server: Endpoint,
}

impl EntrySink for LogOperations<'_> {
    #[inline]
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        let op = Operation { server: self.server, ..*op };
        let record = Record::server(Source::Log, &op, execution).read_as(identity, entries);
        self.windows.at(op.end).window.window.record_server(&record);
    }
}
