//! Who may ask: who has the token, or has opened a session with a link that was made with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError, RwLock};

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE};
use sonar_core::Timestamp;
use sonar_core::time::NS_PER_S;

use crate::token::{AccessToken, Credential, CredentialPurpose, LINK_LIFETIME_NS, SESSION_LIFETIME_NS};

/// The most links that are remembered because they were used. Only who has the token can make more.
const MAX_USED: usize = 1_024;

/// Why somebody may not ask.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AccessDenied {
    /// There is no token now.
    NoToken,
    /// The request has neither a token nor a session.
    Nothing,
    /// It has one that was not made with this token.
    Wrong,
    /// It was made with this token, but too long ago, or before this program started.
    Old,
    /// The link has opened a session before.
    Used,
    /// Too many links were used in the last minutes.
    TooMany,
    /// This system has no random bytes, of which a session is made.
    NoRandomBytes,
}

impl AccessDenied {
    /// What to tell who asked.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoToken => "the token of this page cannot be read: `mongosonar open` makes a new one",
            Self::Nothing => {
                "this page needs a session: open the link that `mongosonar open` prints, or send the token \
                 (Authorization: Bearer …)"
            }
            Self::Wrong => "wrong token, link or session: `mongosonar open` prints a new link",
            Self::Old => "this link or session is too old: `mongosonar open` prints a new link",
            Self::Used => "this link has been used: `mongosonar open` prints a new one",
            Self::TooMany => "too many links were used in the last minutes: try again later",
            Self::NoRandomBytes => "this system has no random bytes to make a session of",
        }
    }
}

/// Decides who may ask.
#[derive(Debug)]
pub struct PageAccess {
    token: RwLock<Option<AccessToken>>,
    /// Links of earlier runs do not count: nobody knows any more which were used.
    started: Timestamp,
    used: Mutex<BTreeMap<[u8; 16], Timestamp>>,
}

impl PageAccess {
    /// With this token, for a program that started at this time.
    pub fn new(token: AccessToken, started: Timestamp) -> Self {
        Self { token: RwLock::new(Some(token)), started, used: Mutex::default() }
    }

    /// Replaces the token. Sessions that were opened with the one before are over. Without a token nobody may ask.
    pub fn replace(&self, token: Option<AccessToken>) {
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
    }

    fn token(&self) -> Result<AccessToken, AccessDenied> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        token.clone().ok_or(AccessDenied::NoToken)
    }

    /// Whether a request with these headers may read.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self, headers: &HeaderMap, now: Timestamp) -> Result<(), AccessDenied> {
        let token = self.token()?;
        if let Some(presented) = bearer(headers) {
            return if token.is(presented) { Ok(()) } else { Err(AccessDenied::Wrong) };
        }
        let name = token.cookie_name();
        let mut denied = AccessDenied::Nothing;
        for presented in cookies(headers, &name) {
            match Credential::verify(presented, CredentialPurpose::Session, &token) {
                // Another program may have listened here before this one, and have got the cookies of those who asked.
                Some(session)
                    if session.is_fresh(CredentialPurpose::Session, now)
                        && session.issued >= self.started =>
                {
                    return Ok(());
                }
                Some(_) => denied = AccessDenied::Old,
                None => denied = AccessDenied::Wrong,
            }
        }
        Err(denied)
    }

    /// Opens a session for a request with the code of a link.
    ///
    /// # Errors
    /// Why not.
    pub fn open_session(&self, headers: &HeaderMap, now: Timestamp) -> Result<SessionCookie, AccessDenied> {
        let token = self.token()?;
        let code = bearer(headers).ok_or(AccessDenied::Nothing)?;
        let link = Credential::verify(code, CredentialPurpose::Link, &token).ok_or(AccessDenied::Wrong)?;
        if !link.is_fresh(CredentialPurpose::Link, now) || link.issued < self.started {
            return Err(AccessDenied::Old);
        }
        self.use_up(&link, now)?;
        let session = Credential::new(now).map_err(|_| AccessDenied::NoRandomBytes)?;
        let value = session.signed(CredentialPurpose::Session, &token);
        Ok(SessionCookie { name: token.cookie_name(), value })
    }

    fn use_up(&self, link: &Credential, now: Timestamp) -> Result<(), AccessDenied> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, issued| now.since(*issued) < LINK_LIFETIME_NS);
        if used.contains_key(&link.number) {
            return Err(AccessDenied::Used);
        }
        if used.len() >= MAX_USED {
            return Err(AccessDenied::TooMany);
        }
        used.insert(link.number, link.issued);
        Ok(())
    }
}

/// The cookie of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionCookie {
    name: String,
    value: String,
}

impl fmt::Debug for SessionCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionCookie")
    }
}

impl SessionCookie {
    /// The value of `Set-Cookie`. A browser sends the cookie to addresses in the folder of the one that set it, by whatever
    /// path it reaches them, and one that is secure by TLS only.
    pub(crate) fn header(&self, is_secure: bool) -> String {
        let (Self { name, value }, age) = (self, SESSION_LIFETIME_NS / NS_PER_S);
        let secure = if is_secure { "; Secure" } else { "" };
        format!("{name}={value}{secure}; HttpOnly; SameSite=Strict; Max-Age={age}")
    }
}

/// What stands behind `Bearer` in the header of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, presented) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| presented.trim())
}

/// The values of the cookies of this name.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.filter(move |(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use axum::http::header::HeaderName;

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_700_000_000 + second, 0)
    }

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    fn bearing(text: &str) -> HeaderMap {
        with(AUTHORIZATION, &format!("Bearer {text}"))
    }

    /// A browser with this cookie and another one.
    fn session(cookie: &SessionCookie) -> HeaderMap {
        with(COOKIE, &format!("theme=dark; {}={}", cookie.name, cookie.value))
    }

    fn access() -> (PageAccess, AccessToken) {
        let token = AccessToken::random().unwrap();
        (PageAccess::new(token.clone(), at(0)), token)
    }

    #[test]
    fn the_token_or_a_session_is_needed() {
        let (access, token) = access();
        assert_eq!(access.admits(&HeaderMap::new(), at(1)), Err(AccessDenied::Nothing));
        assert_eq!(access.admits(&bearing(&token.text()), at(1)), Ok(()));
        let other = AccessToken::random().unwrap().text();
        assert_eq!(access.admits(&bearing(&other), at(1)), Err(AccessDenied::Wrong));
        let link = token.link_code(at(1)).unwrap();
        assert_eq!(access.admits(&bearing(&link), at(1)), Err(AccessDenied::Wrong), "a link is no token");
        let cookie = access.open_session(&bearing(&link), at(1)).unwrap();
        let header = cookie.header(false);
        assert!(header.ends_with("; HttpOnly; SameSite=Strict; Max-Age=86400"), "{header}");
        assert!(!header.contains(&token.text()) && !header.contains("Secure"));
        let secure = cookie.header(true);
        assert!(secure.ends_with("; Secure; HttpOnly; SameSite=Strict; Max-Age=86400"), "{secure}");
        assert_eq!(access.admits(&session(&cookie), at(2)), Ok(()));
        assert_eq!(access.admits(&session(&cookie), at(86_401)), Err(AccessDenied::Old));
        let restarted = PageAccess::new(token.clone(), at(2));
        assert_eq!(restarted.admits(&session(&cookie), at(3)), Err(AccessDenied::Old), "others may have it");
        let changed = SessionCookie { value: format!("0{}", cookie.value), ..cookie.clone() };
        assert_eq!(access.admits(&session(&changed), at(2)), Err(AccessDenied::Wrong));
    }

    #[test]
    fn a_link_opens_one_session_soon_after_it_was_made() {
        let (access, token) = access();
        let link = bearing(&token.link_code(at(10)).unwrap());
        assert!(access.open_session(&link, at(11)).is_ok());
        assert_eq!(access.open_session(&link, at(12)), Err(AccessDenied::Used));
        let late = bearing(&token.link_code(at(10)).unwrap());
        assert_eq!(access.open_session(&late, at(310)), Err(AccessDenied::Old));
        // Which links were used before a start is not known.
        let earlier = token.link_code(at(0).minus_ns(1)).unwrap();
        assert_eq!(access.open_session(&bearing(&earlier), at(1)), Err(AccessDenied::Old));
        assert_eq!(access.open_session(&bearing(&token.text()), at(1)), Err(AccessDenied::Wrong));
        assert_eq!(access.open_session(&HeaderMap::new(), at(1)), Err(AccessDenied::Nothing));
    }

    #[test]
    fn used_links_are_forgotten_once_they_are_too_old_to_be_used() {
        let (access, token) = access();
        for _ in 0..MAX_USED {
            let link = bearing(&token.link_code(at(1)).unwrap());
            assert!(access.open_session(&link, at(1)).is_ok());
        }
        let link = |second| bearing(&token.link_code(at(second)).unwrap());
        assert_eq!(access.open_session(&link(2), at(2)), Err(AccessDenied::TooMany));
        assert!(access.open_session(&link(301), at(301)).is_ok());
        assert_eq!(access.used.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_new_token_ends_all_sessions() {
        let (access, token) = access();
        let cookie = access.open_session(&bearing(&token.link_code(at(1)).unwrap()), at(1)).unwrap();
        let new = AccessToken::random().unwrap();
        access.replace(Some(new.clone()));
        assert!(access.admits(&session(&cookie), at(2)).is_err());
        assert_eq!(access.admits(&bearing(&token.text()), at(2)), Err(AccessDenied::Wrong));
        assert_eq!(access.admits(&bearing(&new.text()), at(2)), Ok(()));
        access.replace(None);
        assert_eq!(access.admits(&bearing(&new.text()), at(2)), Err(AccessDenied::NoToken));
    }
}
