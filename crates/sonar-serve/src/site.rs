//! Where a page is reached: below which path, by which names, and whether by TLS.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::Uri;

use crate::hosts::AllowedHosts;
use crate::tls::PageTls;

/// What browsers ask for at the root of a host, whatever they show of it.
pub(crate) const ICON: &str = "/favicon.ico";
/// The most bytes of a path.
const MAX_PATH: usize = 200;

/// The path below which a page is served, such as `/mongosonar`; the root of its host by default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PagePath(String);

impl PagePath {
    /// Reads a path: parts of letters, digits, `-`, `.`, `_` and `~`, each behind a `/`. A `/` at its end does not matter.
    ///
    /// # Errors
    /// It is none, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !["", ".", ".."].contains(&part) && part.bytes().all(is_plain)
        };
        let is_path = path.strip_prefix('/').is_some_and(|parts| parts.split('/').all(is_part));
        // Browsers ask for an icon at the root, below whatever path a page is.
        if path.is_empty() || is_path && path.len() <= MAX_PATH && path != ICON {
            return Ok(Self(path.to_owned()));
        }
        Err(format!(
            "{text:?} is no path of a page: write one like /mongosonar, of letters, digits and - . _ ~, with at most \
             {MAX_PATH} bytes"
        ))
    }

    /// Without a `/` at its end: empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the root.
    pub(crate) const fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// An address of the page, which begins with `/`, below this path.
    pub(crate) fn with(&self, address: &str) -> String {
        format!("{}{address}", self.0)
    }
}

/// What a link to a page begins with: scheme, host, port and path, with a `/` at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageUrl {
    text: String,
    host: String,
    path: PagePath,
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PageUrl {
    /// Reads an address of a browser, such as `https://db1.example/mongosonar/`.
    ///
    /// # Errors
    /// It is none, or has more than scheme, host, port and path, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no address of a page: write one like https://db1.example/mongosonar/");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let scheme =
            uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or_else(wrong)?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if text.contains(['?', '#']) || !authority.as_str().bytes().all(is_plain) {
            return Err(wrong());
        }
        let path = PagePath::parse(uri.path())?;
        let text = format!("{scheme}://{authority}{}/", path.as_str());
        Ok(Self { text, host: authority.host().to_owned(), path })
    }

    /// That of a page which listens here. A page at all addresses of this machine is reached at that of loopback.
    pub fn of(mut address: SocketAddr, path: &PagePath, is_encrypted: bool) -> Self {
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let scheme = if is_encrypted { "https" } else { "http" };
        let text = format!("{scheme}://{address}{}/", path.as_str());
        Self { text, host: address.ip().to_string(), path: path.clone() }
    }

    /// Its host, without the port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether it leads below a path of a page: a reverse proxy passes on the end of what a browser asks for.
    pub fn ends_with(&self, path: &PagePath) -> bool {
        self.path.as_str().ends_with(path.as_str())
    }
}

/// Where a page is reached.
#[derive(Clone, Debug, Default)]
pub struct PageSite {
    /// Names of this host.
    pub hosts: AllowedHosts,
    /// The path below which all of its addresses are.
    pub path: PagePath,
    /// Its certificate; `None`: it is served in plain text.
    pub tls: Option<PageTls>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_plain_parts_only() {
        for (text, path) in [
            ("", ""),
            ("/", ""),
            ("/mongosonar", "/mongosonar"),
            ("/mongosonar/", "/mongosonar"),
            ("/db-1/sonar_2.x~", "/db-1/sonar_2.x~"),
        ] {
            assert_eq!(PagePath::parse(text).unwrap().as_str(), path, "{text}");
        }
        let long = format!("/{}", "x".repeat(MAX_PATH));
        for wrong in [
            "mongosonar",
            "//",
            "/favicon.ico",
            "/a//b",
            "/a/../b",
            "/.",
            "/a b",
            "/{id}",
            "/*",
            "/a%2fb",
            "/a?b",
            "/é",
            &long,
        ] {
            assert!(PagePath::parse(wrong).unwrap_err().contains("like /mongosonar"), "{wrong}");
        }
        assert_eq!(PagePath::parse("/a").unwrap().with("/api"), "/a/api");
    }

    #[test]
    fn an_address_is_that_of_a_page_and_nothing_else() {
        for (text, url, host) in [
            ("https://db1.example/mongosonar/", "https://db1.example/mongosonar/", "db1.example"),
            ("https://db1.example:8443", "https://db1.example:8443/", "db1.example"),
            ("HTTP://[::1]:80/a", "http://[::1]:80/a/", "[::1]"),
        ] {
            let read = PageUrl::parse(text).unwrap();
            assert_eq!((&*read.to_string(), read.host()), (url, host));
            assert_eq!(PageUrl::parse(url).unwrap().to_string(), url, "it is read as it was written");
        }
        for wrong in [
            "",
            "db1.example",
            "/mongosonar",
            "ftp://db1.example/",
            "https://user@db1.example/",
            "https://db1.example/?view=queries",
            "https://db1.example/#code",
            "https://db1.example/a b",
            "https://\"><script>/",
            "https://db1.example/a/../b",
        ] {
            assert!(PageUrl::parse(wrong).is_err(), "{wrong}");
        }
        let url = PageUrl::parse("https://db1.example/db1/mongosonar/").unwrap();
        let ends = |path: &str| url.ends_with(&PagePath::parse(path).unwrap());
        assert!(ends("") && ends("/mongosonar") && ends("/db1/mongosonar"));
        assert!(!ends("/sonar/mongosonar") && !ends("/db1"));
    }

    #[test]
    fn a_page_without_a_proxy_is_reached_where_it_listens() {
        let of = |address: &str, path: &str, is_encrypted| {
            let url = PageUrl::of(address.parse().unwrap(), &PagePath::parse(path).unwrap(), is_encrypted);
            (url.to_string(), url.host().to_owned())
        };
        let expected = |url: &str, host: &str| (url.to_owned(), host.to_owned());
        assert_eq!(of("127.0.0.1:8517", "", false), expected("http://127.0.0.1:8517/", "127.0.0.1"));
        assert_eq!(of("[::1]:1", "/a", true), expected("https://[::1]:1/a/", "::1"));
        assert_eq!(of("0.0.0.0:443", "", true), expected("https://127.0.0.1:443/", "127.0.0.1"));
        assert_eq!(of("[::]:443", "", true), expected("https://[::1]:443/", "::1"));
    }
}
