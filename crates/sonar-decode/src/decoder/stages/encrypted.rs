//! Encrypted connections: what a key log decrypts goes on as if it had come in plaintext.

use sonar_core::Timestamp;

use super::Stages;
use crate::decoder::connection::Connection;
use crate::decoder::emission::EndedSink;
use crate::decoder::exchange::ReplyPath;
use crate::decoder::framing::EncryptedStart;
use crate::keylog::{TlsContext, TlsFailure, TlsInput, TlsPiece, TlsSession};
use crate::tcp::{Chunk, Gap, Lost, Side, Verdict};

impl Stages {
    /// A connection turns out to be encrypted, with the bytes of `chunk`.
    pub(super) fn begin_encrypted(
        &mut self,
        conn: &mut Connection,
        start: EncryptedStart,
        chunk: Chunk<'_>,
        out: &mut impl EndedSink,
    ) -> Verdict {
        conn.facts.decrypted = true;
        let mut session = Box::new(TlsSession::new(conn.facts.joined_late));
        if start == EncryptedStart::Middle {
            let why = if conn.facts.joined_late { TlsFailure::JoinedLate } else { TlsFailure::Gap };
            self.decryption.fail(&mut session, why);
            conn.tls = Some(session);
            return Verdict::Ignore;
        }
        conn.tls = Some(session);
        let (own, other) = (chunk.side, chunk.side.other());
        let other_time = conn.streams[other.index()].first;
        let [other_head, head] = [other, own].map(|side| conn.streams[side.index()].begin_anew());
        let parts = [
            Chunk { side: other, time: other_time, bytes: &other_head },
            Chunk { bytes: &head, ..chunk },
            chunk,
        ];
        for part in parts.into_iter().filter(|part| !part.bytes.is_empty()) {
            if self.encrypted(conn, &TlsInput::Data(part), out) == Verdict::Ignore {
                return Verdict::Ignore;
            }
        }
        Verdict::Continue
    }

    /// What comes next on an encrypted connection.
    #[cold]
    #[inline(never)]
    pub(super) fn encrypted(
        &mut self,
        conn: &mut Connection,
        input: &TlsInput<'_>,
        out: &mut impl EndedSink,
    ) -> Verdict {
        let time = match input {
            TlsInput::Data(chunk) => chunk.time,
            TlsInput::Gap(gap) => gap.time,
        };
        self.decrypt(conn, Some(input), time, out)
    }

    /// Decrypts what was held back, if its keys have come.
    pub(super) fn retry_encrypted(
        &mut self,
        conn: &mut Connection,
        now: Timestamp,
        out: &mut impl EndedSink,
    ) {
        if conn.tls.as_ref().is_some_and(|session| self.decryption.may_go_on(session)) {
            // Should it fail, it is ignored with the next bytes.
            let _ = self.decrypt(conn, None, now, out);
        }
    }

    /// An encrypted connection ends.
    pub(super) fn close_encrypted(
        &mut self,
        conn: &mut Connection,
        time: Timestamp,
        out: &mut impl EndedSink,
    ) {
        if conn.tls.as_ref().is_some_and(|session| session.waits_for_keys()) {
            self.decryption.refresh();
            self.retry_encrypted(conn, time, out);
        }
        if let Some(session) = conn.tls.take() {
            self.decryption.close(&session);
        }
    }

    fn decrypt(
        &mut self,
        conn: &mut Connection,
        input: Option<&TlsInput<'_>>,
        time: Timestamp,
        out: &mut impl EndedSink,
    ) -> Verdict {
        let ended = if conn.facts.is_mongodb { Verdict::Continue } else { Verdict::Ignore };
        let Some(mut session) = conn.tls.take() else { return Verdict::Continue };
        if session.has_failed() {
            conn.tls = Some(session);
            return ended;
        }
        let (keys, mut body) = self.decryption.begin(&session);
        let read = {
            let mut take = |piece: TlsPiece<'_>| self.decrypted(conn, piece, out);
            let mut context = TlsContext { keys: &keys, body: &mut body, out: &mut take };
            match input {
                Some(input) => session.take(input, &mut context),
                None => session.go_on(&mut context),
            }
        };
        let failed = self.decryption.end(&mut session, body, read).is_some();
        conn.tls = Some(session);
        if !failed {
            return Verdict::Continue;
        }
        if !conn.facts.is_mongodb {
            return Verdict::Ignore;
        }
        // The flow table goes on: a connection that is MongoDB's stays so.
        conn.exchange.replies = ReplyPath::Unseen;
        conn.exchange.pass_all(time);
        for side in [Side::Low, Side::High] {
            self.plain_gap(conn, &Gap { side, time, lost: Lost::Unknown }, out);
        }
        Verdict::Continue
    }

    /// Takes a piece of plaintext.
    fn decrypted(&mut self, conn: &mut Connection, piece: TlsPiece<'_>, out: &mut impl EndedSink) -> Verdict {
        match piece {
            TlsPiece::Data(chunk) => return self.plain(conn, chunk, out),
            TlsPiece::Gap(gap) => self.plain_gap(conn, &gap, out),
            TlsPiece::Begins { suite, client } => {
                self.decryption.coverage.streams_tls_decrypted += 1;
                conn.suite = Some(suite);
                conn.server.get_or_insert(client.other());
            }
            TlsPiece::Early => self.decryption.coverage.tls_early_records += 1,
        }
        Verdict::Continue
    }
}
