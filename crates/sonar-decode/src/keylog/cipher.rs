//! From secrets to keys, and from encrypted records to plaintext. The ciphers, HMAC and HKDF are those of `ring`.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{aead, hkdf, hmac};
use sonar_core::TlsSuite;

use super::record::{TlsRecordHeader, kind};
use super::secrets::{ClientRandom, TlsEnd, TlsSecret};

const NONCE: usize = 12;
/// What TLS 1.2 takes of the nonce from the key block with AES-GCM; the rest is in each record (RFC 5288).
const SALT: usize = 4;
const EXPLICIT: usize = 8;
const TAG: usize = 16;

/// A cipher suite that is decrypted.
#[derive(Copy, Clone)]
pub struct RecordCipher {
    aead: &'static aead::Algorithm,
    hash: hkdf::Algorithm,
    /// TLS 1.3, not 1.2.
    pub is_13: bool,
    /// Each record has a part of its nonce.
    has_explicit_nonce: bool,
}

impl RecordCipher {
    /// `None`: it is not decrypted.
    pub fn of(suite: TlsSuite) -> Option<Self> {
        let (aead, hash) = match (suite.version, suite.cipher) {
            (0x0304, 0x1301) => (&AES_128_GCM, hkdf::HKDF_SHA256),
            (0x0304, 0x1302) => (&AES_256_GCM, hkdf::HKDF_SHA384),
            (0x0304, 0x1303) => (&CHACHA20_POLY1305, hkdf::HKDF_SHA256),
            (0x0303, 0x009c | 0x009e | 0xc02b | 0xc02f) => (&AES_128_GCM, hkdf::HKDF_SHA256),
            (0x0303, 0x009d | 0x009f | 0xc02c | 0xc030) => (&AES_256_GCM, hkdf::HKDF_SHA384),
            (0x0303, 0xcca8..=0xccaa) => (&CHACHA20_POLY1305, hkdf::HKDF_SHA256),
            _ => return None,
        };
        let is_13 = suite.version == 0x0304;
        Some(Self { aead, hash, is_13, has_explicit_nonce: !is_13 && *aead != CHACHA20_POLY1305 })
    }

    /// The keys of both directions, of the client's first, by the secret of TLS 1.2 and the random numbers of client and
    /// server (RFC 5246, section 6.3).
    pub fn keys_12(&self, master: &TlsSecret, randoms: [&ClientRandom; 2]) -> Option<[RecordOpener; 2]> {
        let (key, salt) = (self.aead.key_len(), if self.has_explicit_nonce { SALT } else { NONCE });
        let mut block = [0; 2 * (32 + NONCE)];
        let block = &mut block[..2 * (key + salt)];
        let seed = [b"key expansion", &randoms[1][..], &randoms[0][..]].concat();
        expand_12(&hmac::Key::new(self.hash.hmac_algorithm(), master.bytes()), &seed, block);
        let (keys, salts) = block.split_at(2 * key);
        let of = |end: TlsEnd| {
            let end = end as usize;
            let mut iv = [0; NONCE];
            iv[..salt].copy_from_slice(&salts[end * salt..][..salt]);
            RecordOpener::new(*self, &keys[end * key..][..key], iv)
        };
        Some([of(TlsEnd::Client)?, of(TlsEnd::Server)?])
    }

    /// The key of one direction by its secret in TLS 1.3 (RFC 8446, section 7.3). `None` if the secret is of another
    /// suite.
    pub fn key_13(&self, secret: &TlsSecret) -> Option<RecordOpener> {
        let (mut key, mut iv) = ([0; 32], [0; NONCE]);
        let key = &mut key[..self.aead.key_len()];
        self.expand_13(secret, b"key", key)?;
        self.expand_13(secret, b"iv", &mut iv)?;
        RecordOpener::new(*self, key, iv)
    }

    /// The secret after a KeyUpdate (RFC 8446, section 7.2).
    pub fn next_traffic(&self, secret: &TlsSecret) -> Option<TlsSecret> {
        let mut next = [0; 48];
        let next = &mut next[..secret.bytes().len()];
        self.expand_13(secret, b"traffic upd", next)?;
        TlsSecret::new(next)
    }

    /// HKDF-Expand-Label without a context.
    fn expand_13(&self, secret: &TlsSecret, label: &[u8], out: &mut [u8]) -> Option<()> {
        if secret.bytes().len() != self.hash.hmac_algorithm().digest_algorithm().output_len() {
            return None;
        }
        let length = (out.len() as u16).to_be_bytes();
        let info = [&length, &[6 + label.len() as u8][..], b"tls13 ", label, &[0]];
        let secret = hkdf::Prk::new_less_safe(self.hash, secret.bytes());
        secret.expand(&info, KeyLength(out.len())).and_then(|key| key.fill(out)).ok()
    }

    /// How many bytes encryption adds to a record without padding, beside its header.
    pub const fn added(&self) -> u64 {
        (if self.is_13 { TAG + 1 } else { TAG + self.explicit() }) as u64
    }

    /// How much plaintext a record of this length has, where its padding is not known: none.
    pub fn plaintext_length(&self, body: u16) -> u64 {
        u64::from(body).saturating_sub(self.added())
    }

    const fn explicit(&self) -> usize {
        if self.has_explicit_nonce { EXPLICIT } else { 0 }
    }
}

struct KeyLength(usize);

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// The pseudorandom function of TLS 1.2 (RFC 5246, section 5). `seed` has the label, too.
fn expand_12(secret: &hmac::Key, seed: &[u8], out: &mut [u8]) {
    let mut link = hmac::sign(secret, seed);
    for part in out.chunks_mut(secret.algorithm().digest_algorithm().output_len()) {
        let made = hmac::sign(secret, &[link.as_ref(), seed].concat());
        part.copy_from_slice(&made.as_ref()[..part.len()]);
        link = hmac::sign(secret, link.as_ref());
    }
}

/// A record that was opened.
pub struct OpenedRecord<'a> {
    /// See [`kind`].
    pub kind: u8,
    pub plaintext: &'a [u8],
}

/// Opens the records of one direction, in their order.
pub struct RecordOpener {
    cipher: RecordCipher,
    key: LessSafeKey,
    iv: [u8; NONCE],
    /// The number of the next record.
    number: u64,
}

impl RecordOpener {
    fn new(cipher: RecordCipher, key: &[u8], iv: [u8; NONCE]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(cipher.aead, key).ok()?);
        Some(Self { cipher, key, iv, number: 0 })
    }

    /// The number of the next record.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Goes on with the record of this number.
    pub fn go_to(&mut self, number: u64) {
        self.number = number;
    }

    /// Passes over a record that cannot be opened.
    pub fn pass(&mut self) {
        self.number = self.number.wrapping_add(1);
    }

    /// Opens the next record. `None` if it is no record of this key; then the next one is still the same, but `body` is
    /// of no use any more.
    pub fn open<'a>(&mut self, header: TlsRecordHeader, body: &'a mut [u8]) -> Option<OpenedRecord<'a>> {
        let plaintext = self.unseal(self.number, header, body)?;
        self.pass();
        if !self.cipher.is_13 {
            return Some(OpenedRecord { kind: header.kind, plaintext });
        }
        // Behind the content comes its type, then padding.
        match plaintext.iter().rposition(|byte| *byte != 0) {
            Some(end) => Some(OpenedRecord { kind: plaintext[end], plaintext: &plaintext[..end] }),
            None => Some(OpenedRecord { kind: kind::ALERT, plaintext: &[] }),
        }
    }

    /// Decrypts the record of this number. `None` if it is none; `body` is of no use then.
    pub fn unseal<'a>(&self, number: u64, header: TlsRecordHeader, body: &'a mut [u8]) -> Option<&'a [u8]> {
        let explicit = self.cipher.explicit();
        let (nonce_part, sealed) = body.split_at_mut_checked(explicit)?;
        let mut nonce = self.iv;
        if explicit > 0 {
            nonce[SALT..].copy_from_slice(nonce_part);
        } else {
            nonce[SALT..].iter_mut().zip(number.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = if self.cipher.is_13 {
            self.key.open_in_place(nonce, Aad::from(header.bytes()), sealed)
        } else {
            let length = sealed.len().checked_sub(TAG)? as u16;
            let mut about = [0; 13];
            about[..8].copy_from_slice(&number.to_be_bytes());
            about[8..].copy_from_slice(&TlsRecordHeader { length, ..header }.bytes());
            self.key.open_in_place(nonce, Aad::from(about), sealed)
        };
        opened.ok().map(|plaintext| &*plaintext)
    }
}
