//! An operation as the server's log or profiler describes it.

use sonar_core::time_split::{ServerEvidence, ServerOperation};
use sonar_core::{Endpoint, Execution, Identity, Operation, Source};
use sonar_decode::entry::EntrySink;

/// Takes the operations of connections that a log or a profile describes.
pub struct DescribedOperations<'a, F> {
    /// Which of them.
    pub source: Source,
    /// The server's process, if that is known.
    pub process: Option<u32>,
    /// The number of the connection whose operation is described, if the source has it.
    pub connection: Option<u64>,
    /// Who wants them.
    pub each: &'a mut F,
}

impl<F: FnMut(ServerOperation)> EntrySink for DescribedOperations<'_, F> {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, _: u64) {
        let client = Some(op.client).filter(|client| *client != Endpoint::default());
        // What no client asked for is no operation of a connection.
        if self.connection.is_none() && client.is_none() {
            return;
        }
        (self.each)(ServerOperation {
            source: self.source,
            process: self.process,
            connection: self.connection,
            client,
            end: op.end,
            duration_ns: op.latency_ns.unwrap_or(0),
            shape: op.shape.clone(),
            is_exact: identity == Identity::Exact,
            class: op.class,
            app: op.app.clone(),
            evidence: ServerEvidence::of(op, execution),
        });
    }
}
