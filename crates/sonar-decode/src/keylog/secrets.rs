//! Which secrets does a key log hold? Reads its lines, and finds those of a connection by the random number of its
//! client (<https://www.rfc-editor.org/rfc/rfc9850.html>).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use sonar_core::{Coverage, OldestFirst};

/// The most connections whose secrets are kept: then the oldest give way. They take 40 MB.
const MAX_SESSIONS: usize = 131_072;
/// The longest line that is read, in bytes. The longest label has 31 letters, and two numbers have 64 and 96 digits.
const MAX_LINE: usize = 1_024;

/// The random number of a client, by which its connection is found.
pub type ClientRandom = [u8; 32];

/// A secret: 48 bytes, or as many as the hash of its suite has.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct TlsSecret {
    length: u8,
    bytes: [u8; 48],
}

impl TlsSecret {
    /// `None` if it is longer than a secret is.
    pub fn new(secret: &[u8]) -> Option<Self> {
        let mut bytes = [0; 48];
        bytes.get_mut(..secret.len())?.copy_from_slice(secret);
        Some(Self { length: secret.len() as u8, bytes })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// What a key log says of one connection.
#[derive(Copy, Clone, Default)]
pub struct SessionSecrets {
    /// Of TLS 1.2 and earlier.
    pub master: Option<TlsSecret>,
    /// Of TLS 1.3: of the client and of the server, during the handshake.
    pub handshake: [Option<TlsSecret>; 2],
    /// And after it.
    pub traffic: [Option<TlsSecret>; 2],
}

/// Where a key log grows.
pub trait KeyLogSource: Send {
    /// Adds what has been written since the last call. It must not wait.
    fn read(&mut self, keys: &KeyLog);
}

/// The secrets of a key log, which decoders share. It may grow while they decode.
#[derive(Default)]
pub struct KeyLog {
    source: Option<Mutex<Box<dyn KeyLogSource>>>,
    table: RwLock<OldestFirst<ClientRandom, SessionSecrets>>,
    /// Grows with each secret.
    generation: AtomicU64,
    grows: AtomicBool,
    in_use: AtomicBool,
}

impl fmt::Debug for KeyLog {
    /// Without any secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLog").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

impl KeyLog {
    /// A key log that is read again where a secret is missing.
    pub fn growing(source: impl KeyLogSource + 'static) -> Self {
        let keys = Self { source: Some(Mutex::new(Box::new(source))), ..Self::default() };
        keys.set_growing();
        keys
    }

    /// Reads what has been written since.
    pub fn refresh(&self) {
        if let Some(source) = &self.source {
            source.lock().unwrap_or_else(PoisonError::into_inner).read(self);
        }
    }

    /// Encrypted connections are decrypted from now on, or counted by the reason why they are not. A key log is in use
    /// also once it has a secret.
    pub fn set_in_use(&self) {
        self.in_use.store(true, Ordering::Relaxed);
    }

    /// More secrets may come: connections wait for theirs.
    pub fn set_growing(&self) {
        self.grows.store(true, Ordering::Relaxed);
    }

    /// How many connections it has secrets of.
    pub fn sessions(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).count()
    }

    /// Another key log with the same secrets, which does not grow by itself.
    pub fn copy(&self) -> Self {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            table: RwLock::new(table),
            generation: AtomicU64::new(self.generation()),
            grows: AtomicBool::new(self.grows()),
            source: None,
            in_use: AtomicBool::new(self.is_in_use()),
        }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    pub(crate) fn grows(&self) -> bool {
        self.grows.load(Ordering::Relaxed)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn find(&self, random: &ClientRandom) -> Option<SessionSecrets> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(random).copied()
    }

    /// Adds the secret of a line, and counts what it is not.
    fn add(&self, line: &[u8], coverage: &mut Coverage) {
        let (random, label, secret) = match KeyLogLine::read(line) {
            KeyLogLine::Nothing => return,
            KeyLogLine::Unreadable => {
                coverage.tls_keys_unread += 1;
                return;
            }
            KeyLogLine::Secret(random, label, secret) => (random, label, secret),
        };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        while table.count() >= MAX_SESSIONS && !table.contains_key(&random) {
            coverage.tls_keys_dropped += u64::from(table.pop_oldest().is_some());
        }
        let secrets = table.entry(random);
        match label {
            SecretLabel::Master => secrets.master = Some(secret),
            SecretLabel::Handshake(end) => secrets.handshake[end as usize] = Some(secret),
            SecretLabel::Traffic(end) => secrets.traffic[end as usize] = Some(secret),
        }
        drop(table);
        self.set_in_use();
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// Whose secret.
#[derive(Copy, Clone)]
pub enum TlsEnd {
    Client = 0,
    Server = 1,
}

#[derive(Copy, Clone)]
enum SecretLabel {
    Master,
    Handshake(TlsEnd),
    Traffic(TlsEnd),
}

/// What a line of a key log says.
enum KeyLogLine {
    /// Nothing that is used: a comment, or a secret for something else.
    Nothing,
    Unreadable,
    Secret(ClientRandom, SecretLabel, TlsSecret),
}

impl KeyLogLine {
    fn read(line: &[u8]) -> Self {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Self::Nothing;
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (Some(label), Some(random), Some(secret), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Self::Unreadable;
        };
        let mut bytes = [0; 48];
        let label = match label {
            b"CLIENT_RANDOM" => SecretLabel::Master,
            b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => SecretLabel::Handshake(TlsEnd::Client),
            b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => SecretLabel::Handshake(TlsEnd::Server),
            b"CLIENT_TRAFFIC_SECRET_0" => SecretLabel::Traffic(TlsEnd::Client),
            b"SERVER_TRAFFIC_SECRET_0" => SecretLabel::Traffic(TlsEnd::Server),
            // There are others, for early data and for what is derived outside TLS, and there may be more.
            other if is_label(other) && is_hex(random) && is_hex(secret) => return Self::Nothing,
            _ => return Self::Unreadable,
        };
        let secret = from_hex(secret, &mut bytes).and_then(TlsSecret::new);
        let mut found = ClientRandom::default();
        let random = from_hex(random, &mut found).filter(|random| random.len() == 32);
        let (Some(secret), Some(_)) = (secret, random) else { return Self::Unreadable };
        let fits = match label {
            SecretLabel::Master => secret.bytes().len() == 48,
            _ => matches!(secret.bytes().len(), 32 | 48),
        };
        if fits { Self::Secret(found, label, secret) } else { Self::Unreadable }
    }
}

fn is_label(word: &[u8]) -> bool {
    word.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
}

fn is_hex(word: &[u8]) -> bool {
    word.len().is_multiple_of(2) && word.iter().all(u8::is_ascii_hexdigit)
}

/// The number that these digits are, in `bytes`; `None` if they are none, or too many.
fn from_hex<'a>(digits: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]> {
    if !is_hex(digits) {
        return None;
    }
    let bytes = bytes.get_mut(..digits.len() / 2)?;
    let value = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// Reads a key log piece by piece.
#[derive(Default)]
pub struct KeyLogReader {
    /// The beginning of a line that has not ended.
    line: Vec<u8>,
    /// The line is too long: the rest of it is left out.
    is_too_long: bool,
    /// Lines that cannot be read, and secrets that had no room.
    pub coverage: Coverage,
}

impl KeyLogReader {
    /// Takes the next bytes, and adds the secrets of the lines that end in them.
    pub fn read(&mut self, bytes: &[u8], keys: &KeyLog) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE.saturating_sub(self.line.len());
            self.is_too_long |= piece.len() > room;
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.finish(keys);
            }
        }
    }

    /// The last line has ended.
    pub fn finish(&mut self, keys: &KeyLog) {
        if std::mem::take(&mut self.is_too_long) {
            self.coverage.tls_keys_unread += u64::from(!self.line.starts_with(b"#"));
        } else {
            keys.add(&self.line, &mut self.coverage);
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], pieces: usize) -> (KeyLog, Coverage) {
        let (keys, mut reader) = (KeyLog::default(), KeyLogReader::default());
        text.chunks(pieces).for_each(|piece| reader.read(piece, &keys));
        reader.finish(&keys);
        (keys, reader.coverage)
    }

    #[test]
    fn lines_of_every_kind_are_read_counted_or_passed_over_however_they_come_in() {
        let (random, other) = ("0a".repeat(32), "0B".repeat(32));
        let text = format!(
            "# a comment\r\n\r\nCLIENT_RANDOM {random} {m}\r\nSERVER_TRAFFIC_SECRET_0 {other} {s}\n\
             EXPORTER_SECRET {other} {s}\nRSA 0011223344556677 {m}\n   \n\
             CLIENT_RANDOM {random}\nCLIENT_RANDOM {random} {s}\nCLIENT_RANDOM {random} {m} more\n\
             CLIENT_TRAFFIC_SECRET_0 {other} 00\nCLIENT_TRAFFIC_SECRET_0 abc {s}\nlower {other} {s}\n\
             CLIENT_RANDOM zz {m}\n\0\u{1f600}\n{long}\n\
             CLIENT_HANDSHAKE_TRAFFIC_SECRET {other} {m}",
            m = "cd".repeat(48),
            s = "ef".repeat(32),
            long = "A".repeat(5_000),
        );
        for pieces in [1, 2, 7, 1_000, 100_000] {
            let (keys, coverage) = read(text.as_bytes(), pieces);
            assert_eq!(keys.sessions(), 2);
            assert_eq!((coverage.tls_keys_unread, coverage.tls_keys_dropped), (9, 0));
            let secrets = keys.find(&[0x0a; 32]).unwrap();
            assert_eq!(secrets.master.unwrap().bytes(), [0xcd; 48]);
            let secrets = keys.find(&[0x0b; 32]).unwrap();
            assert_eq!(secrets.traffic[1].unwrap().bytes(), [0xef; 32]);
            assert_eq!(secrets.handshake[0].unwrap().bytes(), [0xcd; 48]);
            assert!(keys.is_in_use() && keys.find(&[0; 32]).is_none());
            assert!(!format!("{keys:?}").contains("205"), "no secret is shown");
        }
        assert!(!read(b"# nothing\n", 100).0.is_in_use());
    }

    #[test]
    fn a_full_table_drops_the_oldest_connections_and_counts_them() {
        let (keys, mut reader) = (KeyLog::default(), KeyLogReader::default());
        let line = |n: usize| format!("CLIENT_RANDOM {n:064x} {:096x}\n", 1);
        let random = |n: usize| {
            let mut random = [0; 32];
            random[24..].copy_from_slice(&n.to_be_bytes());
            random
        };
        for n in 0..MAX_SESSIONS + 3 {
            reader.read(line(n).as_bytes(), &keys);
        }
        assert_eq!((keys.sessions(), reader.coverage.tls_keys_dropped), (MAX_SESSIONS, 3));
        assert!(keys.find(&random(2)).is_none() && keys.find(&random(3)).is_some());
        // The same again takes no room.
        reader.read(line(MAX_SESSIONS).as_bytes(), &keys);
        assert_eq!(reader.coverage.tls_keys_dropped, 3);
    }
}
