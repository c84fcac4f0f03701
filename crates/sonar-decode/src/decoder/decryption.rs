//! Which encrypted connections are decrypted with a key log, and why others are not?

use std::sync::Arc;

use sonar_core::Coverage;

use crate::identity::Shared;
use crate::keylog::{KeyLog, TlsFailure, TlsSession};

/// What all encrypted connections keep together, in bytes: records that have begun, and what waits for its keys.
const BUDGET: usize = 64 << 20;

/// Decrypts connections, and counts them.
pub struct Decryption {
    /// Counters of encrypted connections.
    pub coverage: Coverage,
    keys: Arc<KeyLog>,
    shared: Arc<Shared>,
    /// Room for a record.
    body: Vec<u8>,
    memory: usize,
    budget: usize,
    /// A connection was given up because of the budget.
    pub was_without_room: bool,
}

impl Decryption {
    pub fn new(keys: Option<Arc<KeyLog>>, shared: Arc<Shared>) -> Self {
        Self {
            coverage: Coverage::default(),
            keys: keys.unwrap_or_default(),
            shared,
            body: Vec::new(),
            memory: 0,
            budget: BUDGET,
            was_without_room: false,
        }
    }

    /// With the memory budget divided by `share`.
    pub fn with_share(self, share: usize) -> Self {
        Self { budget: BUDGET / share, ..self }
    }

    /// Begins to use this session, and gives what reading needs.
    pub fn begin(&mut self, session: &TlsSession) -> (Arc<KeyLog>, Vec<u8>) {
        self.memory -= session.memory();
        (self.keys.clone(), std::mem::take(&mut self.body))
    }

    /// Ends to use it. Returns why it cannot be decrypted further.
    pub fn end(
        &mut self,
        session: &mut TlsSession,
        body: Vec<u8>,
        read: Result<(), TlsFailure>,
    ) -> Option<TlsFailure> {
        self.body = body;
        // One that is decrypted holds no more than a record of each side.
        let is_too_much =
            read.is_ok() && session.waits_for_keys() && self.memory + session.memory() > self.budget;
        self.was_without_room |= is_too_much;
        let failure = if is_too_much { Some(TlsFailure::NoRoom) } else { read.err() };
        if let Some(failure) = failure {
            self.fail(session, failure);
        }
        self.memory += session.memory();
        failure
    }

    /// Gives a session up.
    pub fn fail(&mut self, session: &mut TlsSession, failure: TlsFailure) {
        self.count(failure);
        session.fail();
    }

    /// Reads what has been written into the key log.
    pub fn refresh(&self) {
        self.keys.refresh();
    }

    /// Whether what a session has held back can be read now.
    pub fn may_go_on(&self, session: &TlsSession) -> bool {
        session.may_go_on(&self.keys)
    }

    /// The connection of a session ends.
    pub fn close(&mut self, session: &TlsSession) {
        self.memory -= session.memory();
        if session.has_failed() {
            return;
        }
        match session.failure_at_end() {
            Some(failure) => self.count(failure),
            None => self.coverage.streams_tls_silent += u64::from(!session.has_begun()),
        }
    }

    /// Another decoder uses a session from now on.
    pub fn hand_over(&mut self, session: Option<&TlsSession>) {
        self.memory -= session.map_or(0, TlsSession::memory);
    }

    /// This decoder uses it from now on.
    pub fn take_over(&mut self, session: Option<&TlsSession>) {
        self.memory += session.map_or(0, TlsSession::memory);
    }

    fn count(&mut self, failure: TlsFailure) {
        let coverage = &mut self.coverage;
        *match failure {
            TlsFailure::NoKey => &mut coverage.streams_tls_no_key,
            TlsFailure::JoinedLate => &mut coverage.streams_tls_joined_late,
            TlsFailure::Unsupported(suite) => {
                self.shared.note_undecrypted(suite);
                &mut coverage.streams_tls_unsupported
            }
            TlsFailure::Gap => &mut coverage.streams_tls_gap,
            TlsFailure::Unopened => &mut coverage.streams_tls_unopened,
            TlsFailure::Renegotiation => &mut coverage.streams_tls_renegotiated,
            TlsFailure::NoRoom => &mut coverage.streams_tls_evicted,
            // Whoever noticed it has counted it.
            TlsFailure::NotMongodb => return,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that held back nothing holds back so many bytes now.
    fn hold(decryption: &mut Decryption, bytes: usize, waits: bool) -> Option<TlsFailure> {
        let (_, body) = decryption.begin(&TlsSession::holding(0, waits));
        decryption.end(&mut TlsSession::holding(bytes, waits), body, Ok(()))
    }

    #[test]
    fn only_connections_that_wait_for_keys_are_given_up_for_lack_of_room() {
        let shared = Arc::new(Shared::default());
        let mut decryption = Decryption { budget: 1_000, ..Decryption::new(None, shared) };
        assert_eq!(hold(&mut decryption, 900, true), None);
        assert_eq!(hold(&mut decryption, 500, false), None, "it is decrypted");
        assert_eq!((decryption.coverage.streams_tls_evicted, decryption.was_without_room), (0, false));
        assert_eq!(hold(&mut decryption, 50, true), Some(TlsFailure::NoRoom));
        assert_eq!((decryption.coverage.streams_tls_evicted, decryption.was_without_room), (1, true));
        assert_eq!(decryption.memory, 1_400, "what was given up holds back nothing");
        assert_eq!(hold(&mut decryption, 500, false), None);
        assert_eq!(decryption.coverage.streams_tls_evicted, 1);
    }
}
