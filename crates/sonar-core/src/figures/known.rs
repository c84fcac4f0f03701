//! Which figures a source has: one that it lacks is unknown, not 0.

use super::Figures;

impl Figures {
    /// Bytes of requests; `None` if the source does not see them. A request on the wire has at least a header.
    pub fn known_request_bytes(&self) -> Option<u64> {
        (self.calls == 0 || self.request_bytes > 0).then_some(self.request_bytes)
    }

    /// Bytes of replies; `None` if the source knows the size of none. Operations without a reply have none.
    pub fn known_response_bytes(&self) -> Option<u64> {
        let is_known = self.response_bytes.known > 0 || self.calls == self.unanswered + self.unacknowledged;
        is_known.then_some(self.response_bytes.total)
    }

    /// Nanoseconds from the first to the last byte of replies; `None` if that was not seen of any: only the wire shows it.
    pub fn known_transfer_ns(&self) -> Option<u64> {
        let is_known = self.known_request_bytes().and(self.known_response_bytes()).is_some();
        is_known.then_some(self.transfer_ns)
    }

    /// Number of errors of all codes; `None` if none is known and the outcome of most operations is unknown.
    pub fn known_errors(&self) -> Option<u64> {
        let errors = self.error_count();
        let unknown = self.outcome_unknown;
        let known = self.calls.saturating_sub(unknown.saturating_add(self.unacknowledged));
        (self.calls == 0 || errors > 0 || known > 0 && known >= unknown).then_some(errors)
    }

    /// Operations with an error; `None` likewise.
    pub fn known_failed(&self) -> Option<u64> {
        self.known_errors().map(|_| self.failed)
    }

    /// Sum of latencies in nanoseconds, at most [`u64::MAX`]; `None` if there are operations but none with a latency.
    pub fn known_latency_ns(&self) -> Option<u64> {
        let is_known = self.calls == 0 || self.latency.count() > 0;
        is_known.then(|| u64::try_from(self.latency.sum_ns()).unwrap_or(u64::MAX))
    }
}
