//! One direction of a TLS connection: which of its records are encrypted, and with which key.

use super::cipher::{RecordCipher, RecordOpener};
use super::handshake::{HandshakeReader, HelloTooLong, message};
use super::record::{PassedRecord, RecordAssembler, TlsRecordHeader, kind};
use super::search::{RecordSearch, SearchOutcome};
use super::secrets::TlsSecret;

/// How far a direction has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SidePhase {
    /// Its records are not encrypted.
    Hello,
    /// TLS 1.2: they are, with its only key. Whether the message that ends the handshake has come.
    Only { finished: bool },
    /// TLS 1.3: they are, with the key of the handshake.
    Handshake,
    /// TLS 1.3: they are, with the key of the application, or one after it.
    Traffic,
}

/// One direction.
pub struct TlsSide {
    pub records: RecordAssembler,
    pub messages: HandshakeReader,
    pub phase: SidePhase,
    /// Bytes of it have come.
    pub has_begun: bool,
    /// The key of its next record.
    opener: Option<Box<RecordOpener>>,
    /// TLS 1.3: the secret of the key of the application; during the handshake the next one.
    traffic: Option<TlsSecret>,
    /// A record of this phase was opened.
    has_opened: bool,
    /// Behind a gap.
    search: Option<RecordSearch>,
}

/// What a record was.
pub enum SideRecord<'a> {
    /// Nothing that matters.
    Nothing,
    /// Data of the application.
    Data(&'a [u8]),
    /// No key opens it.
    Unopened,
    /// The connection negotiates anew.
    Renegotiation,
}

/// What a gap means for the plaintext.
pub enum SideGap {
    /// So much of it is missing, in bytes.
    Plaintext(u64),
    /// It is known once the next record is found.
    Searching,
}

impl TlsSide {
    pub fn new() -> Self {
        Self {
            records: RecordAssembler::default(),
            messages: HandshakeReader::default(),
            phase: SidePhase::Hello,
            has_begun: false,
            opener: None,
            traffic: None,
            has_opened: false,
            search: None,
        }
    }

    /// Sets the first key; for TLS 1.3 with the secret of the next one.
    pub fn set_key(&mut self, opener: RecordOpener, traffic: Option<TlsSecret>) {
        (self.opener, self.traffic) = (Some(Box::new(opener)), traffic);
    }

    /// No record has been opened with the key of the handshake.
    pub fn is_before_first(&self) -> bool {
        self.phase == SidePhase::Handshake && !self.has_opened
    }

    /// Takes an encrypted record. It needs a key.
    pub fn open<'a>(
        &mut self,
        cipher: &RecordCipher,
        header: TlsRecordHeader,
        body: &'a mut [u8],
    ) -> SideRecord<'a> {
        let Some(opened) = self.opener.as_mut().and_then(|opener| opener.open(header, body)) else {
            return SideRecord::Unopened;
        };
        self.has_opened = true;
        match opened.kind {
            kind::APPLICATION_DATA => SideRecord::Data(opened.plaintext),
            kind::HANDSHAKE => self.handshake(cipher, opened.plaintext),
            kind::CHANGE_CIPHER_SPEC => SideRecord::Renegotiation,
            _ => SideRecord::Nothing,
        }
    }

    /// Follows an encrypted handshake to the next change of keys.
    fn handshake(&mut self, cipher: &RecordCipher, mut bytes: &[u8]) -> SideRecord<'static> {
        loop {
            let message = match self.messages.next(&mut bytes) {
                Ok(Some(message)) => message,
                Ok(None) => return SideRecord::Nothing,
                Err(HelloTooLong) => return SideRecord::Renegotiation,
            };
            match (self.phase, message.kind) {
                (SidePhase::Only { finished: false }, message::FINISHED) => {
                    self.phase = SidePhase::Only { finished: true };
                }
                // The other side may refuse it, and then all goes on as before.
                (SidePhase::Only { .. }, message::HELLO_REQUEST) => {}
                (SidePhase::Only { .. }, _) => return SideRecord::Renegotiation,
                (SidePhase::Handshake, message::FINISHED) => {
                    self.phase = SidePhase::Traffic;
                    self.set_traffic(cipher);
                }
                (SidePhase::Traffic, message::KEY_UPDATE) => {
                    self.traffic = self.traffic.and_then(|secret| cipher.next_traffic(&secret));
                    self.set_traffic(cipher);
                }
                _ => {}
            }
        }
    }

    fn set_traffic(&mut self, cipher: &RecordCipher) {
        let opener = self.traffic.and_then(|secret| cipher.key_13(&secret));
        self.opener = opener.map(Box::new);
    }

    /// Bytes are missing. `None`: nothing more can be read.
    pub fn lose(&mut self, cipher: &RecordCipher, missing: u64) -> Option<SideGap> {
        if let Some(search) = &mut self.search {
            search.lose(missing);
            return Some(SideGap::Searching);
        }
        if !matches!(self.phase, SidePhase::Only { finished: true } | SidePhase::Traffic) {
            return None;
        }
        // After a gap we must know where the next plaintext belongs.
        cipher.plaintext_length(0)?;
        let opener = self.opener.as_mut()?;
        let PassedRecord { header, beyond } = self.records.pass(missing);
        let plaintext = header.map_or(0, |header| {
            opener.pass();
            cipher.plaintext_length(header.length).unwrap_or(0)
        });
        if beyond == 0 {
            return Some(SideGap::Plaintext(plaintext));
        }
        self.search = Some(RecordSearch::new(beyond, plaintext));
        Some(SideGap::Searching)
    }

    /// Whether it searches for the next record behind a gap.
    pub const fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Whether it searches for it still, with bytes that could not be placed.
    pub fn has_lost_bytes(&self) -> bool {
        self.search.as_ref().is_some_and(RecordSearch::has_bytes)
    }

    /// Searches on in these bytes.
    pub fn search(&mut self, cipher: &RecordCipher, bytes: &[u8]) -> SearchOutcome {
        let (Some(search), Some(opener)) = (&mut self.search, &mut self.opener) else {
            return SearchOutcome::GaveUp;
        };
        let outcome = search.next(bytes, opener, cipher);
        if let SearchOutcome::Found(found) = &outcome {
            opener.go_to(found.number);
            self.search = None;
        }
        outcome
    }

    /// The memory that it takes, in bytes, beside its keys.
    pub fn memory(&self) -> usize {
        let search = self.search.as_ref().map_or(0, RecordSearch::memory);
        self.records.memory() + self.messages.memory() + search
    }
}
