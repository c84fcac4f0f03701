//! What does a handshake say that keys depend on (RFC 8446, section 4)?

use sonar_core::TlsSuite;

use super::secrets::ClientRandom;

/// The longest ClientHello or ServerHello that is read, in bytes.
const MAX_HELLO: usize = 64 << 10;

/// The types of messages that matter.
pub mod message {
    pub const HELLO_REQUEST: u8 = 0;
    pub const CLIENT_HELLO: u8 = 1;
    pub const SERVER_HELLO: u8 = 2;
    pub const FINISHED: u8 = 20;
    pub const KEY_UPDATE: u8 = 24;
}

/// A ServerHello with this random number asks for another ClientHello.
const RETRY: ClientRandom = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const ENCRYPT_THEN_MAC: u16 = 22;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;

/// A message that has ended.
pub struct HandshakeMessage {
    /// See [`message`].
    pub kind: u8,
    /// Of a ClientHello or ServerHello; that of others is not kept.
    pub body: Vec<u8>,
}

/// Cuts the handshake of one direction into messages, which may span records.
#[derive(Default)]
pub struct HandshakeReader {
    header: [u8; 4],
    /// Bytes of the header that have come.
    have: usize,
    /// Bytes of the body that have not.
    left: usize,
    body: Vec<u8>,
}

/// A hello is too long to be read.
pub struct HelloTooLong;

impl HandshakeReader {
    /// The next message that ends in `bytes`; `None` once all bytes have been used.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<HandshakeMessage>, HelloTooLong> {
        if self.have < self.header.len() {
            let take = (self.header.len() - self.have).min(bytes.len());
            let (taken, rest) = bytes.split_at(take);
            self.header[self.have..self.have + take].copy_from_slice(taken);
            self.have += take;
            *bytes = rest;
            if self.have < self.header.len() {
                return Ok(None);
            }
            let [_, high, middle, low] = self.header;
            self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
            if self.is_hello() && self.left > MAX_HELLO {
                return Err(HelloTooLong);
            }
        }
        let (taken, rest) = bytes.split_at(self.left.min(bytes.len()));
        if self.is_hello() {
            self.body.reserve_exact(taken.len());
            self.body.extend_from_slice(taken);
        }
        self.left -= taken.len();
        *bytes = rest;
        if self.left > 0 {
            return Ok(None);
        }
        self.have = 0;
        Ok(Some(HandshakeMessage { kind: self.header[0], body: std::mem::take(&mut self.body) }))
    }

    /// The memory that it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.body.capacity()
    }

    fn is_hello(&self) -> bool {
        matches!(self.header[0], message::CLIENT_HELLO | message::SERVER_HELLO)
    }
}

/// Fields, one after another.
#[derive(Copy, Clone)]
struct HelloFields<'a>(&'a [u8]);

impl<'a> HelloFields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn random(&mut self) -> Option<ClientRandom> {
        self.take(32)?.try_into().ok()
    }

    /// The content of an extension of a ClientHello, behind its random number.
    fn client_extension(mut self, wanted: u16) -> Option<&'a [u8]> {
        let session = self.u8()?;
        self.take(usize::from(session))?;
        let suites = self.u16()?;
        self.take(usize::from(suites))?;
        let compressions = self.u8()?;
        self.take(usize::from(compressions))?;
        self.extension(wanted)
    }

    /// The content of an extension behind the other fields.
    fn extension(mut self, wanted: u16) -> Option<&'a [u8]> {
        let length = self.u16()?;
        let mut extensions = HelloFields(self.take(usize::from(length))?);
        loop {
            let (kind, length) = (extensions.u16()?, extensions.u16()?);
            let content = extensions.take(usize::from(length))?;
            if kind == wanted {
                return Some(content);
            }
        }
    }
}

/// What matters of a ClientHello.
pub struct ClientHello {
    pub random: ClientRandom,
    /// Data may follow before the handshake is over.
    pub early_data: bool,
}

impl ClientHello {
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut fields = HelloFields(body);
        fields.u16()?;
        let random = fields.random()?;
        let early_data = fields.client_extension(EARLY_DATA).is_some();
        Some(Self { random, early_data })
    }
}

/// What matters of a ServerHello.
pub struct ServerHello {
    pub random: ClientRandom,
    pub suite: TlsSuite,
    /// TLS compresses before it encrypts.
    pub is_compressed: bool,
    /// With CBC, the HMAC is that of the ciphertext.
    pub encrypt_then_mac: bool,
}

impl ServerHello {
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut fields = HelloFields(body);
        let version = fields.u16()?;
        let random = fields.random()?;
        let session = fields.u8()?;
        fields.take(usize::from(session))?;
        let (cipher, is_compressed) = (fields.u16()?, fields.u8()? != 0);
        let chosen = fields.extension(SUPPORTED_VERSIONS).and_then(|chosen| HelloFields(chosen).u16());
        let suite = TlsSuite { version: chosen.unwrap_or(version), cipher };
        let encrypt_then_mac = fields.extension(ENCRYPT_THEN_MAC).is_some();
        Some(Self { random, suite, is_compressed, encrypt_then_mac })
    }

    /// Whether it asks for another ClientHello; another ServerHello will follow.
    pub fn is_retry(&self) -> bool {
        self.random == RETRY
    }
}
