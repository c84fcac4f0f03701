//! From secrets to keys, and from encrypted records to plaintext. The ciphers that authenticate, HMAC and HKDF are those of
//! `ring`; `cbc_suite` has the others.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{aead, hkdf, hmac};
use sonar_core::TlsSuite;

use super::cbc_suite::{self, CbcKey, CbcSuite};
use super::record::{TlsRecordHeader, kind};
use super::secrets::{ClientRandom, TlsEnd, TlsSecret};

const NONCE: usize = 12;
/// What TLS 1.2 takes of the nonce from the key block with AES-GCM; the rest is in each record (RFC 5288).
const SALT: usize = 4;
const EXPLICIT: usize = 8;
const TAG: usize = 16;

/// The longest key block of TLS 1.2: a key for HMAC and one for AES in each direction.
const MAX_KEY_BLOCK: usize = 2 * (48 + 32);

/// How a suite protects records.
#[derive(Copy, Clone)]
enum Protection {
    /// With a cipher that authenticates.
    Aead(&'static aead::Algorithm),
    /// With AES in CBC mode and HMAC.
    Cbc(CbcSuite),
}

/// A cipher suite that is decrypted.
#[derive(Copy, Clone)]
pub struct RecordCipher {
    protection: Protection,
    hash: hkdf::Algorithm,
    /// TLS 1.3, not 1.2.
    pub is_13: bool,
    /// Each record has a part of its nonce.
    has_explicit_nonce: bool,
}

impl RecordCipher {
    /// `encrypt_then_mac`: that was negotiated (RFC 7366); it matters to CBC only. `None`: it is not decrypted.
    pub fn of(suite: TlsSuite, encrypt_then_mac: bool) -> Option<Self> {
        let (aead, hash) = match (suite.version, suite.cipher) {
            (0x0304, 0x1301) => (&AES_128_GCM, hkdf::HKDF_SHA256),
            (0x0304, 0x1302) => (&AES_256_GCM, hkdf::HKDF_SHA384),
            (0x0304, 0x1303) => (&CHACHA20_POLY1305, hkdf::HKDF_SHA256),
            (0x0303, 0x009c | 0x009e | 0xc02b | 0xc02f) => (&AES_128_GCM, hkdf::HKDF_SHA256),
            (0x0303, 0x009d | 0x009f | 0xc02c | 0xc030) => (&AES_256_GCM, hkdf::HKDF_SHA384),
            (0x0303, 0xcca8..=0xccaa) => (&CHACHA20_POLY1305, hkdf::HKDF_SHA256),
            (0x0303, cipher) => {
                let suite = CbcSuite::of(cipher, encrypt_then_mac)?;
                let (protection, hash) = (Protection::Cbc(suite), suite.expands_with());
                return Some(Self { protection, hash, is_13: false, has_explicit_nonce: false });
            }
            _ => return None,
        };
        let is_13 = suite.version == 0x0304;
        let has_explicit_nonce = !is_13 && *aead != CHACHA20_POLY1305;
        Some(Self { protection: Protection::Aead(aead), hash, is_13, has_explicit_nonce })
    }

    /// The keys of both directions, of the client's first, by the secret of TLS 1.2 and the random numbers of client and
    /// server (RFC 5246, section 6.3).
    pub fn keys_12(&self, master: &TlsSecret, randoms: [&ClientRandom; 2]) -> Option<[RecordOpener; 2]> {
        let salt = if self.has_explicit_nonce { SALT } else { NONCE };
        let (mac, key, salt) = match self.protection {
            Protection::Aead(aead) => (0, aead.key_len(), salt),
            Protection::Cbc(suite) => (suite.mac_len(), suite.key_len(), 0),
        };
        let mut block = [0; MAX_KEY_BLOCK];
        let block = &mut block[..2 * (mac + key + salt)];
        let seed = [b"key expansion", &randoms[1][..], &randoms[0][..]].concat();
        expand_12(&hmac::Key::new(self.hash.hmac_algorithm(), master.bytes()), &seed, block);
        let (macs, rest) = block.split_at(2 * mac);
        let (keys, salts) = rest.split_at(2 * key);
        let of = |end: TlsEnd| {
            let end = end as usize;
            let part = |all: &[u8], length: usize| all[end * length..][..length].to_vec();
            if let Protection::Cbc(suite) = self.protection {
                let key = CbcKey::new(suite, &part(keys, key), &part(macs, mac))?;
                return Some(RecordOpener {
                    cipher: *self,
                    key: RecordKey::Cbc(Box::new(key)),
                    iv: [0; NONCE],
                    number: 0,
                });
            }
            let mut iv = [0; NONCE];
            iv[..salt].copy_from_slice(&part(salts, salt));
            RecordOpener::new(*self, &part(keys, key), iv)
        };
        Some([of(TlsEnd::Client)?, of(TlsEnd::Server)?])
    }

    /// The key of one direction by its secret in TLS 1.3 (RFC 8446, section 7.3). `None` if the secret is of another
    /// suite.
    pub fn key_13(&self, secret: &TlsSecret) -> Option<RecordOpener> {
        let Protection::Aead(aead) = self.protection else { return None };
        let (mut key, mut iv) = ([0; 32], [0; NONCE]);
        let key = &mut key[..aead.key_len()];
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
    pub fn added(&self) -> u64 {
        let added = match self.protection {
            Protection::Cbc(suite) => cbc_suite::BLOCK + suite.mac_len() + 1,
            Protection::Aead(_) if self.is_13 => TAG + 1,
            Protection::Aead(_) => TAG + self.explicit(),
        };
        added as u64
    }

    /// The plaintext length of a record of this length, if it has no padding. `None` if its suite always pads, so that the
    /// length is unknown.
    pub fn plaintext_length(&self, body: u16) -> Option<u64> {
        let is_padded = matches!(self.protection, Protection::Cbc(_));
        (!is_padded).then(|| u64::from(body).saturating_sub(self.added()))
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

/// The key of one direction.
#[expect(
    clippy::large_enum_variant,
    reason = "most keys are of this variant, and each is in a box with its opener"
)]
enum RecordKey {
    Aead(LessSafeKey),
    Cbc(Box<CbcKey>),
}

/// Opens the records of one direction, in their order.
pub struct RecordOpener {
    cipher: RecordCipher,
    key: RecordKey,
    iv: [u8; NONCE],
    /// The number of the next record.
    number: u64,
}

impl RecordOpener {
    fn new(cipher: RecordCipher, key: &[u8], iv: [u8; NONCE]) -> Option<Self> {
        let Protection::Aead(aead) = cipher.protection else { return None };
        let key = LessSafeKey::new(UnboundKey::new(aead, key).ok()?);
        Some(Self { cipher, key: RecordKey::Aead(key), iv, number: 0 })
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
        let key = match &self.key {
            RecordKey::Aead(key) => key,
            RecordKey::Cbc(key) => return key.open(number, header, body),
        };
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
            key.open_in_place(nonce, Aad::from(header.bytes()), sealed)
        } else {
            let length = sealed.len().checked_sub(TAG)? as u16;
            let about = TlsRecordHeader { length, ..header }.numbered(number);
            key.open_in_place(nonce, Aad::from(about), sealed)
        };
        opened.ok().map(|plaintext| &*plaintext)
    }
}
