//! From where a page may be requested: under which names of this host, and from which other pages.

use std::net::IpAddr;

use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, Uri};

/// The names under which a page may be asked. A foreign name that leads here is of somebody who wants a browser to take
/// this page for theirs (DNS rebinding).
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
    /// These names and addresses, beside `localhost` and all addresses of loopback.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Whether a request names this host, and no other one.
    pub fn accepts(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let is_named = host.to_str().is_ok_and(|host| self.has(host));
        is_named && uri.authority().is_none_or(|named| self.has(named.as_str()))
    }

    fn has(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let address = address(name);
        let is_it =
            |allowed: &String| allowed == name || address.is_some() && self::address(allowed) == address;
        let is_loopback = address.is_some_and(|address| address.is_loopback());
        is_loopback || name == "localhost" || self.names.iter().any(is_it)
    }
}

/// The address that a host is, with or without brackets; `None` if it is a name.
fn address(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// A host without its port: `localhost` of `localhost:80`, `[::1]` of `[::1]:80`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a request comes from this page itself, or from no page at all. Browsers say so.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"));
    // Another port of this host is the same site, and another page.
    let is_own_site = text(&FETCH_SITE).is_none_or(|site| ["same-origin", "none"].contains(&site));
    let host = text(&HOST).unwrap_or_default();
    let is_own = |origin: &str| {
        let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        named.is_some_and(|named| named.eq_ignore_ascii_case(host))
    };
    is_own_site && text(&ORIGIN).is_none_or(is_own)
}

/// Whether a browser says that it asks by TLS, of which a reverse proxy has made plain text.
pub fn is_asked_by_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_names_of_this_host_are_accepted() {
        let hosts = AllowedHosts::new(["DB1.example.com".to_owned()]);
        let accepts = |host: &str| hosts.accepts(&with(&[(HOST, host)]), &Uri::from_static("/"));
        for own in [
            "127.0.0.1",
            "127.0.0.1:8517",
            "127.8.8.8:1",
            "localhost:8517",
            "LOCALHOST.",
            "[::1]",
            "[::1]:8517",
            "db1.example.com:443",
        ] {
            assert!(accepts(own), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8517",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "db1.example.com.evil.example",
            "",
            ":8517",
            "[::2]:8517",
            "localhost:evil",
        ] {
            assert!(!accepts(foreign), "{foreign}");
        }
        assert!(!hosts.accepts(&HeaderMap::new(), &Uri::from_static("/")));
        // The addresses at which it listens.
        for (allowed, host) in
            [("10.0.0.5", "10.0.0.5:8517"), ("fd00::1", "[FD00:0::1]:8517"), ("[fd00::1]", "[fd00::1]")]
        {
            let hosts = AllowedHosts::new([allowed.to_owned()]);
            assert!(hosts.accepts(&with(&[(HOST, host)]), &Uri::from_static("/")), "{host}");
            assert!(!hosts.accepts(&with(&[(HOST, "10.0.0.6")]), &Uri::from_static("/")));
        }
        let two = with(&[(HOST, "localhost"), (HOST, "evil.example")]);
        assert!(!hosts.accepts(&two, &Uri::from_static("/")));
        let absolute = Uri::from_static("http://evil.example/");
        assert!(!hosts.accepts(&with(&[(HOST, "localhost")]), &absolute));
    }

    #[test]
    fn other_pages_may_not_ask() {
        let is_own = |pairs: &[(HeaderName, &str)]| {
            let mut headers = with(pairs);
            headers.insert(HOST, "127.0.0.1:8517".parse().unwrap());
            is_same_origin(&headers)
        };
        assert!(is_own(&[]), "curl");
        assert!(is_own(&[(FETCH_SITE, "same-origin"), (ORIGIN, "http://127.0.0.1:8517")]));
        assert!(is_own(&[(FETCH_SITE, "none")]), "typed into the browser");
        for foreign in ["http://evil.example", "http://127.0.0.1:3000", "null", "file://", "127.0.0.1:8517"] {
            assert!(!is_own(&[(ORIGIN, foreign)]), "{foreign}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(!is_own(&[(FETCH_SITE, site)]), "{site}");
        }
    }
}
