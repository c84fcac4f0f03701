//! The secret of a page, and what is signed with it: links that work once, and sessions.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use sonar_core::Timestamp;
use sonar_core::time::NS_PER_S;
use subtle::ConstantTimeEq;

use crate::hex;

/// The kernel has no random bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this system has no random bytes")]
pub struct NoRandomBytes;

fn random<const N: usize>() -> Result<[u8; N], NoRandomBytes> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomBytes)?;
    Ok(bytes)
}

/// The secret of a page: who has it may read everything that the page shows.
#[derive(Clone)]
pub struct AccessToken([u8; 32]);

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken")
    }
}

impl AccessToken {
    /// A new one.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn random() -> Result<Self, NoRandomBytes> {
        random().map(Self)
    }

    /// The one that [`text`](Self::text) wrote; white space around it does not matter.
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text.trim()).map(Self)
    }

    /// 64 hexadecimal digits.
    pub fn text(&self) -> String {
        hex::encode(&self.0)
    }

    /// What a link to the page has behind its `#`. It opens one session, within [`LINK_LIFETIME_NS`].
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn link_code(&self, now: Timestamp) -> Result<String, NoRandomBytes> {
        Ok(Credential::new(now)?.signed(CredentialPurpose::Link, self))
    }

    /// Whether `presented` is this token. How long that takes does not depend on how much of it is right.
    pub(crate) fn is(&self, presented: &str) -> bool {
        hex::decode::<32>(presented).is_some_and(|bytes| bool::from(bytes.ct_eq(&self.0)))
    }

    /// The name of the cookie of a session. A browser sends cookies to all ports of a host, so those of two pages have two
    /// names.
    pub(crate) fn cookie_name(&self) -> String {
        let tag = hmac::sign(&self.key(), b"cookie");
        let bytes: &[u8] = tag.as_ref();
        format!("sonar-{}", hex::encode(&bytes[..4]))
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// How long a link can be used, in nanoseconds.
pub const LINK_LIFETIME_NS: u64 = 300 * NS_PER_S;
/// How long a session lasts, in nanoseconds.
pub const SESSION_LIFETIME_NS: u64 = 86_400 * NS_PER_S;

/// What a credential is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum CredentialPurpose {
    /// Opening a session, once.
    Link,
    /// Reading.
    Session,
}

impl CredentialPurpose {
    const fn label(self) -> u8 {
        match self {
            Self::Link => b'l',
            Self::Session => b's',
        }
    }

    const fn lifetime_ns(self) -> u64 {
        match self {
            Self::Link => LINK_LIFETIME_NS,
            Self::Session => SESSION_LIFETIME_NS,
        }
    }
}

/// Bytes of what is signed, and of the signature.
const BODY: usize = 24;
const TAG: usize = 32;

/// What a page has signed: when, and a number that no other one has.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Credential {
    pub issued: Timestamp,
    pub number: [u8; 16],
}

impl Credential {
    pub fn new(now: Timestamp) -> Result<Self, NoRandomBytes> {
        Ok(Self { issued: now, number: random()? })
    }

    /// As text, with its signature.
    pub fn signed(&self, purpose: CredentialPurpose, token: &AccessToken) -> String {
        let mut bytes = self.issued.unix_ns().to_be_bytes().to_vec();
        bytes.extend(self.number);
        let tag = hmac::sign(&token.key(), &message(purpose, &bytes));
        bytes.extend_from_slice(tag.as_ref());
        hex::encode(&bytes)
    }

    /// What was signed for this purpose; `None` if it was not, or not with this token.
    pub fn verify(text: &str, purpose: CredentialPurpose, token: &AccessToken) -> Option<Self> {
        let bytes: [u8; BODY + TAG] = hex::decode(text)?;
        let (body, tag) = bytes.split_at(BODY);
        hmac::verify(&token.key(), &message(purpose, body), tag).ok()?;
        let (issued, number) = body.split_at(8);
        let issued = Timestamp::from_unix_ns(u64::from_be_bytes(issued.try_into().ok()?));
        Some(Self { issued, number: number.try_into().ok()? })
    }

    /// Whether it can still be used. One from the future is new: the clock was set back.
    pub fn is_fresh(&self, purpose: CredentialPurpose, now: Timestamp) -> bool {
        now.since(self.issued) < purpose.lifetime_ns()
    }
}

fn message(purpose: CredentialPurpose, body: &[u8]) -> Vec<u8> {
    [&[purpose.label()][..], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_unix(1_700_000_000, 0)
    }

    #[test]
    fn a_token_is_read_as_it_was_written_and_is_never_shown_by_accident() {
        let token = AccessToken::random().unwrap();
        let other = AccessToken::random().unwrap();
        let text = token.text();
        assert_eq!(text.len(), 64);
        assert_eq!(AccessToken::parse(&format!("{text}\n   ")).unwrap().text(), text);
        assert!(token.is(&text) && !token.is(&other.text()) && !token.is("") && !token.is(&text[1..]));
        assert!(AccessToken::parse("").is_none() && AccessToken::parse(&text[2..]).is_none());
        assert_eq!(format!("{token:?}"), "AccessToken");
        assert_ne!(token.cookie_name(), other.cookie_name());
    }

    #[test]
    fn what_is_signed_counts_for_its_purpose_its_token_and_its_time_only() {
        let [token, other] = [(); 2].map(|()| AccessToken::random().unwrap());
        let credential = Credential::new(now()).unwrap();
        let text = credential.signed(CredentialPurpose::Link, &token);
        assert_eq!(Credential::verify(&text, CredentialPurpose::Link, &token), Some(credential));
        assert_eq!(Credential::verify(&text, CredentialPurpose::Session, &token), None);
        assert_eq!(Credential::verify(&text, CredentialPurpose::Link, &other), None);
        for at in 0..text.len() {
            let digit = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
            let changed = format!("{}{digit}{}", &text[..at], &text[at + 1..]);
            assert_eq!(Credential::verify(&changed, CredentialPurpose::Link, &token), None, "digit {at}");
        }
        let later = |ns| now().plus_ns(ns);
        assert!(credential.is_fresh(CredentialPurpose::Link, later(LINK_LIFETIME_NS - 1)));
        assert!(!credential.is_fresh(CredentialPurpose::Link, later(LINK_LIFETIME_NS)));
        assert!(credential.is_fresh(CredentialPurpose::Session, later(LINK_LIFETIME_NS)));
        assert!(!credential.is_fresh(CredentialPurpose::Session, later(SESSION_LIFETIME_NS)));
        assert!(Credential::new(later(5)).unwrap().is_fresh(CredentialPurpose::Link, now()));
    }
}
