//! Records of TLS 1.2 that AES encrypts in CBC mode and HMAC protects (RFC 5246, section 6.2.3.2), in either order:
//! the HMAC of the plaintext is encrypted with it, or that of the ciphertext stands behind it (RFC 7366).

use aes::{Aes128, Aes256};
use cbc::Decryptor;
use cbc::cipher::block_padding::NoPadding;
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};
use ring::{hkdf, hmac};

use super::record::TlsRecordHeader;

/// The length of a block, and of the initialisation vector that each record begins with.
pub const BLOCK: usize = 16;

/// A cipher suite with CBC.
#[derive(Copy, Clone)]
pub struct CbcSuite {
    key_len: usize,
    mac: hmac::Algorithm,
    encrypt_then_mac: bool,
}

impl CbcSuite {
    /// The suite of TLS 1.2 with this number; `None`: it is none with AES and CBC.
    pub fn of(cipher: u16, encrypt_then_mac: bool) -> Option<Self> {
        let (key_len, mac) = match cipher {
            0x002f | 0x0033 | 0xc009 | 0xc013 => (16, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            0x0035 | 0x0039 | 0xc00a | 0xc014 => (32, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            0x003c | 0x0067 | 0xc023 | 0xc027 => (16, hmac::HMAC_SHA256),
            0x003d | 0x006b => (32, hmac::HMAC_SHA256),
            0xc024 | 0xc028 => (32, hmac::HMAC_SHA384),
            _ => return None,
        };
        Some(Self { key_len, mac, encrypt_then_mac })
    }

    /// The length of the key of AES.
    pub const fn key_len(&self) -> usize {
        self.key_len
    }

    /// The length of an HMAC, and of its key.
    pub fn mac_len(&self) -> usize {
        self.mac.digest_algorithm().output_len()
    }

    /// The hash that makes keys of the secret: that of the suite, and SHA-256 where it has an older one.
    pub fn expands_with(&self) -> hkdf::Algorithm {
        if self.mac == hmac::HMAC_SHA384 { hkdf::HKDF_SHA384 } else { hkdf::HKDF_SHA256 }
    }
}

/// The keys of one direction.
pub struct CbcKey {
    suite: CbcSuite,
    key: Vec<u8>,
    mac: hmac::Key,
}

impl CbcKey {
    /// `None` if the key has not the length that the suite needs.
    pub fn new(suite: CbcSuite, key: &[u8], mac: &[u8]) -> Option<Self> {
        let mac = hmac::Key::new(suite.mac, mac);
        (key.len() == suite.key_len).then(|| Self { suite, key: key.to_vec(), mac })
    }

    /// Decrypts the record of this number. `None` if it is none; `body` is of no use then.
    pub fn open<'a>(&self, number: u64, header: TlsRecordHeader, body: &'a mut [u8]) -> Option<&'a [u8]> {
        let tag = self.suite.mac_len();
        if self.suite.encrypt_then_mac {
            let (sealed, mac) = body.split_at_mut(body.len().checked_sub(tag)?);
            self.verify(number, header, sealed, mac)?;
            return self.decrypt(sealed);
        }
        let text = self.decrypt(body)?;
        let (content, mac) = text.split_at(text.len().checked_sub(tag)?);
        self.verify(number, header, content, mac)?;
        Some(content)
    }

    /// Whether this is the HMAC of what was sent as this record.
    fn verify(&self, number: u64, header: TlsRecordHeader, sent: &[u8], mac: &[u8]) -> Option<()> {
        let mut made = hmac::Context::with_key(&self.mac);
        made.update(&TlsRecordHeader { length: u16::try_from(sent.len()).ok()?, ..header }.numbered(number));
        made.update(sent);
        (made.sign().as_ref() == mac).then_some(())
    }

    /// The plaintext without its padding: the last byte says how many padding bytes stand before it, and each of these has
    /// the same value.
    fn decrypt<'a>(&self, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let (iv, text) = sealed.split_at_mut_checked(BLOCK)?;
        let text = match self.suite.key_len {
            16 => Decryptor::<Aes128>::new_from_slices(&self.key, iv)
                .ok()?
                .decrypt_padded::<NoPadding>(text)
                .ok()?,
            _ => Decryptor::<Aes256>::new_from_slices(&self.key, iv)
                .ok()?
                .decrypt_padded::<NoPadding>(text)
                .ok()?,
        };
        let last = *text.last()?;
        let (content, padding) = text.split_at(text.len().checked_sub(usize::from(last) + 1)?);
        padding.iter().all(|byte| *byte == last).then_some(content)
    }
}
