//! Both directions of a TLS connection, from encrypted bytes to plaintext.
//!
//! What cannot be read yet is held back, in order: records whose keys are not in the key log yet, and what was captured
//! before the hello that it depends on.

use std::collections::VecDeque;

use sonar_core::{Timestamp, TlsSuite};

use super::cipher::RecordCipher;
use super::handshake::{ClientHello, HandshakeMessage, ServerHello, message};
use super::record::{TlsRecordHeader, kind};
use super::search::{FoundRecord, SearchOutcome};
use super::secrets::{ClientRandom, KeyLog, SessionSecrets, TlsEnd};
use super::side::{SideGap, SidePhase, SideRecord, TlsSide};
use crate::tcp::{Chunk, Gap, Lost, Side, Verdict};

/// The most that is held back of one connection, in bytes.
const MAX_HELD: usize = 64 << 10;
/// What a part takes in addition to its bytes.
const HELD_OVERHEAD: usize = 64;
/// The most records of early data.
const MAX_EARLY: u32 = 4_096;

/// What comes from the connection.
#[derive(Copy, Clone)]
pub enum TlsInput<'a> {
    Data(Chunk<'a>),
    Gap(Gap),
}

/// What is read of it.
#[derive(Copy, Clone)]
pub enum TlsPiece<'a> {
    /// Plaintext, with the time of the segment that completed its record.
    Data(Chunk<'a>),
    /// Plaintext is missing.
    Gap(Gap),
    /// The first plaintext follows.
    Begins { suite: TlsSuite, client: Side },
    /// A record of early data, which is not decrypted.
    Early,
}

/// Why a connection is not decrypted, or not any further.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TlsFailure {
    /// Its secrets are not in the key log.
    NoKey,
    /// Its handshake was before the capture.
    JoinedLate,
    /// Its version or cipher suite is not decrypted.
    Unsupported(TlsSuite),
    /// Bytes are missing.
    Gap,
    /// No key opens a record, or it is none.
    Unopened,
    /// It negotiates anew.
    Renegotiation,
    /// Too much of encrypted connections had to be kept.
    NoRoom,
    /// It is not MongoDB's.
    NotMongodb,
}

/// What a session needs from outside while it reads.
pub struct TlsContext<'a> {
    pub keys: &'a KeyLog,
    /// Room for a record.
    pub body: &'a mut Vec<u8>,
    /// Receives what is read.
    pub out: &'a mut dyn FnMut(TlsPiece<'_>) -> Verdict,
}

/// What is held back.
enum HeldInput {
    Data { side: Side, time: Timestamp, bytes: Vec<u8> },
    Gap(Gap),
}

impl HeldInput {
    fn of(input: &TlsInput<'_>) -> Self {
        match *input {
            TlsInput::Data(Chunk { side, time, bytes }) => Self::Data { side, time, bytes: bytes.to_vec() },
            TlsInput::Gap(gap) => Self::Gap(gap),
        }
    }

    const fn side(&self) -> Side {
        match self {
            Self::Data { side, .. } => *side,
            Self::Gap(gap) => gap.side,
        }
    }

    fn as_input(&self) -> TlsInput<'_> {
        match self {
            Self::Data { side, time, bytes } => TlsInput::Data(Chunk { side: *side, time: *time, bytes }),
            Self::Gap(gap) => TlsInput::Gap(*gap),
        }
    }

    fn memory(&self) -> usize {
        let bytes = if let Self::Data { bytes, .. } = self { bytes.capacity() } else { 0 };
        bytes + HELD_OVERHEAD
    }
}

/// What the server has chosen.
#[derive(Copy, Clone)]
struct Negotiated {
    suite: TlsSuite,
    cipher: RecordCipher,
    server_random: ClientRandom,
}

/// A TLS connection.
pub struct TlsSession {
    sides: [TlsSide; 2],
    /// Which side is the client.
    client: Option<Side>,
    client_random: Option<ClientRandom>,
    negotiated: Option<Negotiated>,
    has_keys: bool,
    /// Grows when something becomes known that records wait for.
    progress: u32,
    /// The key log at this generation had no secrets of it.
    searched: Option<u64>,
    /// The client may have sent early data.
    early_data: bool,
    early_records: u32,
    /// Plaintext has been read.
    has_begun: bool,
    held: VecDeque<HeldInput>,
    held_bytes: usize,
    /// It was open before the capture began.
    joined_late: bool,
    failed: bool,
}

impl TlsSession {
    pub fn new(joined_late: bool) -> Self {
        Self {
            sides: [TlsSide::new(), TlsSide::new()],
            client: None,
            client_random: None,
            negotiated: None,
            has_keys: false,
            progress: 0,
            searched: None,
            early_data: false,
            early_records: 0,
            has_begun: false,
            held: VecDeque::new(),
            held_bytes: 0,
            joined_late,
            failed: false,
        }
    }

    /// One that holds back so many bytes, and waits for its keys or is decrypted.
    #[cfg(test)]
    pub fn holding(held_bytes: usize, waits: bool) -> Self {
        Self { held_bytes, searched: waits.then_some(0), ..Self::new(false) }
    }

    /// Nothing more is read.
    pub fn fail(&mut self) {
        *self = Self { failed: true, has_begun: self.has_begun, ..Self::new(self.joined_late) };
    }

    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether plaintext has been read.
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The memory that it takes, in bytes, beside its keys.
    pub fn memory(&self) -> usize {
        self.held_bytes + self.sides.iter().map(TlsSide::memory).sum::<usize>()
    }

    /// Whether it waits for its keys.
    pub const fn waits_for_keys(&self) -> bool {
        self.searched.is_some()
    }

    /// Whether it waits for its keys, and the key log has changed since it looked.
    pub fn may_go_on(&self, keys: &KeyLog) -> bool {
        self.searched.is_some_and(|generation| generation != keys.generation())
    }

    /// Takes what comes next. After a failure nothing more is to come.
    pub fn take(&mut self, input: &TlsInput<'_>, cx: &mut TlsContext<'_>) -> Result<(), TlsFailure> {
        if self.held.is_empty() {
            if let Some(rest) = self.read(input, cx)? {
                self.held_bytes += rest.memory();
                self.held.push_back(rest);
            }
            return self.bound();
        }
        let input = HeldInput::of(input);
        self.held_bytes += input.memory();
        self.held.push_back(input);
        self.go_on(cx)
    }

    /// Reads what was held back, as far as that is possible now.
    pub fn go_on(&mut self, cx: &mut TlsContext<'_>) -> Result<(), TlsFailure> {
        let (mut at, mut blocked) = (0, [false; 2]);
        while let Some(next) = self.held.get(at) {
            let side = next.side().index();
            if blocked[side] {
                at += 1;
                continue;
            }
            let Some(input) = self.held.remove(at) else { break };
            self.held_bytes -= input.memory();
            let progress = self.progress;
            if let Some(rest) = self.read(&input.as_input(), cx)? {
                self.held_bytes += rest.memory();
                self.held.insert(at, rest);
                blocked[side] = true;
                at += 1;
            }
            if self.progress != progress {
                (at, blocked) = (0, [false; 2]);
            }
        }
        self.bound()
    }

    /// Why it was not decrypted, if the connection ends now; `None` if nothing was sent but its handshake.
    pub fn failure_at_end(&self) -> Option<TlsFailure> {
        match () {
            () if self.searched.is_some() => Some(TlsFailure::NoKey),
            () if !self.held.is_empty() => Some(self.without_hello()),
            () if self.sides.iter().any(TlsSide::has_lost_bytes) => Some(TlsFailure::Gap),
            () => None,
        }
    }

    /// The reason where a hello is missing.
    const fn without_hello(&self) -> TlsFailure {
        if self.joined_late { TlsFailure::JoinedLate } else { TlsFailure::Gap }
    }

    /// Gives up if it holds back too much.
    fn bound(&self) -> Result<(), TlsFailure> {
        if self.held_bytes <= MAX_HELD {
            Ok(())
        } else {
            Err(self.failure_at_end().unwrap_or(TlsFailure::Gap))
        }
    }

    /// Reads what comes next of one side. Returns the rest if that has to wait.
    fn read(
        &mut self,
        input: &TlsInput<'_>,
        cx: &mut TlsContext<'_>,
    ) -> Result<Option<HeldInput>, TlsFailure> {
        let &Chunk { side, time, mut bytes } = match input {
            TlsInput::Gap(gap) => return self.gap(gap, cx).map(|()| None),
            TlsInput::Data(chunk) => chunk,
        };
        self.sides[side.index()].has_begun = true;
        let found;
        if self.sides[side.index()].is_searching() {
            found = match self.search(side, time, bytes, cx)? {
                Some(found) => found,
                None => return Ok(None),
            };
            bytes = &found;
        }
        let mut body = std::mem::take(cx.body);
        let outcome = loop {
            let records = &mut self.sides[side.index()].records;
            let header = match records.next(&mut bytes, &mut body) {
                Ok(Some(header)) => header,
                Ok(None) => break Ok(None),
                Err(_) => break Err(TlsFailure::Unopened),
            };
            match self.record(Chunk { side, time, bytes: &[] }, header, &mut body, cx) {
                Ok(true) => {}
                Ok(false) => {
                    self.sides[side.index()].records.put_back(header, &body);
                    break Ok(Some(HeldInput::Data { side, time, bytes: bytes.to_vec() }));
                }
                Err(failure) => break Err(failure),
            }
        };
        *cx.body = body;
        outcome
    }

    /// Takes a record that came with `at`. Returns whether it could be read.
    fn record(
        &mut self,
        at: Chunk<'_>,
        header: TlsRecordHeader,
        body: &mut [u8],
        cx: &mut TlsContext<'_>,
    ) -> Result<bool, TlsFailure> {
        let number = at.side.index();
        match (self.sides[number].phase, header.kind) {
            (SidePhase::Hello, kind::HANDSHAKE) => return self.hello(at.side, body).map(|()| true),
            (SidePhase::Hello, kind::CHANGE_CIPHER_SPEC) => match self.negotiated {
                Some(Negotiated { cipher, .. }) if !cipher.is_13 => {
                    self.sides[number].phase = SidePhase::Only { finished: false };
                    return Ok(true);
                }
                Some(_) => return Ok(true),
                // A client that waits for the server; a server sends it behind its hello, or asks for another one.
                None if self.client_random.is_some() => return Ok(self.client != Some(at.side)),
                None => return Err(self.without_hello()),
            },
            (SidePhase::Hello, kind::APPLICATION_DATA) => match self.client_random {
                // Early data, or the ServerHello was captured late.
                Some(_) => return Ok(false),
                None => return Err(self.without_hello()),
            },
            // An alert.
            (SidePhase::Hello, _) => return Ok(true),
            // The ServerHello was captured first.
            (SidePhase::Handshake, kind::HANDSHAKE) if self.client_random.is_none() => {
                return self.hello(at.side, body).map(|()| true);
            }
            // The handshake of TLS 1.3 has records that only look like those of 1.2.
            (SidePhase::Handshake | SidePhase::Traffic, other) if other != kind::APPLICATION_DATA => {
                return Ok(true);
            }
            (SidePhase::Only { .. } | SidePhase::Handshake | SidePhase::Traffic, _) => {}
        }
        let Some(negotiated) = self.negotiated else { return Ok(false) };
        if !self.find_keys(&negotiated, cx.keys)? {
            return Ok(false);
        }
        let own = &mut self.sides[number];
        let before_first = own.is_before_first();
        let plaintext = match own.open(&negotiated.cipher, header, body) {
            SideRecord::Nothing => return Ok(true),
            SideRecord::Data(plaintext) => plaintext,
            SideRecord::Renegotiation => return Err(TlsFailure::Renegotiation),
            SideRecord::Unopened => {
                let may_be_early = before_first && self.early_data && self.client == Some(at.side);
                if !may_be_early || self.early_records >= MAX_EARLY {
                    return Err(TlsFailure::Unopened);
                }
                self.early_records += 1;
                (cx.out)(TlsPiece::Early);
                return Ok(true);
            }
        };
        if plaintext.is_empty() {
            return Ok(true);
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            let client = self.client.unwrap_or(at.side);
            (cx.out)(TlsPiece::Begins { suite: negotiated.suite, client });
        }
        match (cx.out)(TlsPiece::Data(Chunk { bytes: plaintext, ..at })) {
            Verdict::Continue => Ok(true),
            Verdict::Ignore => Err(TlsFailure::NotMongodb),
        }
    }

    /// Reads a part of the handshake that is not encrypted.
    fn hello(&mut self, side: Side, mut bytes: &[u8]) -> Result<(), TlsFailure> {
        loop {
            let messages = &mut self.sides[side.index()].messages;
            let Some(next) = messages.next(&mut bytes).map_err(|_| TlsFailure::Unopened)? else {
                return Ok(());
            };
            let HandshakeMessage { kind, body } = next;
            match kind {
                message::CLIENT_HELLO if self.client_random.is_none() => {
                    let hello = ClientHello::read(&body).ok_or(TlsFailure::Unopened)?;
                    (self.client, self.client_random) = (Some(side), Some(hello.random));
                    self.early_data = hello.early_data;
                    self.progress += 1;
                }
                message::SERVER_HELLO if self.negotiated.is_none() => {
                    let hello = ServerHello::read(&body).ok_or(TlsFailure::Unopened)?;
                    if !hello.is_retry() {
                        self.negotiated(side, &hello)?;
                    }
                }
                _ if self.client_random.is_none() && self.negotiated.is_none() => {
                    return Err(self.without_hello());
                }
                _ => {}
            }
        }
    }

    /// The server has chosen version and cipher suite.
    fn negotiated(&mut self, server: Side, hello: &ServerHello) -> Result<(), TlsFailure> {
        let cipher = RecordCipher::of(hello.suite, hello.encrypt_then_mac).filter(|_| !hello.is_compressed);
        let cipher = cipher.ok_or(TlsFailure::Unsupported(hello.suite))?;
        self.negotiated = Some(Negotiated { suite: hello.suite, cipher, server_random: hello.random });
        self.client.get_or_insert(server.other());
        if cipher.is_13 {
            self.sides.iter_mut().for_each(|side| side.phase = SidePhase::Handshake);
        }
        self.progress += 1;
        Ok(())
    }

    /// Whether the keys are known.
    fn find_keys(&mut self, negotiated: &Negotiated, keys: &KeyLog) -> Result<bool, TlsFailure> {
        if self.has_keys {
            return Ok(true);
        }
        let Some(random) = self.client_random else { return Ok(false) };
        if self.searched.is_some() {
            keys.refresh();
            if !self.may_go_on(keys) {
                return Ok(false);
            }
        }
        let generation = keys.generation();
        let is_13 = negotiated.cipher.is_13;
        let find = || keys.find(&random).filter(|secrets| is_complete(secrets, is_13));
        let found = find().or_else(|| {
            keys.refresh();
            find()
        });
        let Some(secrets) = found else {
            self.searched = Some(generation);
            return if keys.grows() { Ok(false) } else { Err(TlsFailure::NoKey) };
        };
        self.set_keys(negotiated, &random, &secrets).ok_or(TlsFailure::Unopened)?;
        (self.searched, self.has_keys) = (None, true);
        self.progress += 1;
        Ok(true)
    }

    /// Sets the keys of both directions. `None`: they are of another cipher suite.
    fn set_keys(
        &mut self,
        negotiated: &Negotiated,
        random: &ClientRandom,
        secrets: &SessionSecrets,
    ) -> Option<()> {
        let &Negotiated { cipher, server_random, .. } = negotiated;
        let client = self.client?;
        let mut set = |end: TlsEnd, opener, traffic| {
            let side = if matches!(end, TlsEnd::Client) { client } else { client.other() };
            self.sides[side.index()].set_key(opener, traffic);
        };
        if cipher.is_13 {
            for end in [TlsEnd::Client, TlsEnd::Server] {
                let opener = cipher.key_13(secrets.handshake[end as usize].as_ref()?)?;
                set(end, opener, secrets.traffic[end as usize]);
            }
        } else {
            let [from_client, from_server] =
                cipher.keys_12(secrets.master.as_ref()?, [random, &server_random])?;
            set(TlsEnd::Client, from_client, None);
            set(TlsEnd::Server, from_server, None);
        }
        Some(())
    }

    /// Bytes of one side are missing.
    fn gap(&mut self, gap: &Gap, cx: &mut TlsContext<'_>) -> Result<(), TlsFailure> {
        let side = &mut self.sides[gap.side.index()];
        let Some(missing) = gap.lost.bytes() else {
            // It is not known whether anything was sent before its first bytes. If they are a hello, nothing was.
            return if side.has_begun { Err(self.without_hello()) } else { Ok(()) };
        };
        let lost = self.negotiated.as_ref().and_then(|negotiated| side.lose(&negotiated.cipher, missing));
        match lost {
            None => Err(TlsFailure::Gap),
            Some(SideGap::Searching | SideGap::Plaintext(0)) => Ok(()),
            Some(SideGap::Plaintext(lost)) => {
                (cx.out)(TlsPiece::Gap(Gap { lost: Lost::Bytes(lost), ..*gap }));
                Ok(())
            }
        }
    }

    /// Searches for the next record behind a gap. Returns the bytes from there on.
    fn search(
        &mut self,
        side: Side,
        time: Timestamp,
        bytes: &[u8],
        cx: &mut TlsContext<'_>,
    ) -> Result<Option<Vec<u8>>, TlsFailure> {
        let Some(negotiated) = &self.negotiated else { return Err(TlsFailure::Gap) };
        match self.sides[side.index()].search(&negotiated.cipher, bytes) {
            SearchOutcome::Searching => Ok(None),
            SearchOutcome::GaveUp => Err(TlsFailure::Gap),
            SearchOutcome::Found(FoundRecord { bytes, plaintext, .. }) => {
                if plaintext > 0 {
                    let lost = Lost::Bytes(plaintext);
                    (cx.out)(TlsPiece::Gap(Gap { side, time, lost }));
                }
                Ok(Some(bytes))
            }
        }
    }
}

/// Whether all secrets are there that a version needs.
fn is_complete(secrets: &SessionSecrets, is_13: bool) -> bool {
    if is_13 {
        secrets.handshake.iter().chain(&secrets.traffic).all(Option::is_some)
    } else {
        secrets.master.is_some()
    }
}
