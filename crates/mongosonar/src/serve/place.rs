//! Where a page is served, and how it is reached, as `serve` and the agent are configured.

use std::net::SocketAddr;

use sonar_serve::{AllowedHosts, PagePath, PageSite, PageTls, PageUrl};

use super::tls_files::TlsPaths;

/// Where a page is served, and how it is reached.
#[derive(Clone, Debug)]
pub struct PagePlace {
    /// Where it listens.
    pub address: SocketAddr,
    /// The path below which all of its addresses are.
    pub path: PagePath,
    /// What links begin with; `None`: the address.
    pub url: Option<PageUrl>,
    /// Other names under which it is asked.
    pub allow_host: Vec<String>,
    /// Its certificate; `None`: it is served in plain text.
    pub tls: Option<TlsPaths>,
}

impl PagePlace {
    /// What links to it begin with.
    pub fn url(&self) -> PageUrl {
        self.url.clone().unwrap_or_else(|| self.own_url())
    }

    /// What the addresses of the page itself begin with, without a reverse proxy.
    pub fn own_url(&self) -> PageUrl {
        PageUrl::of(self.address, &self.path, self.tls.is_some())
    }

    /// Why others could read what the page answers; `None` if they cannot.
    pub fn address_problem(&self) -> Option<String> {
        let address = self.address;
        (!address.ip().is_loopback() && self.tls.is_none()).then(|| {
            format!(
                "{address} can be reached from other machines, which would see the page in plain text: serve it by TLS \
                 (tls-certificate, tls-key), or write an address like 127.0.0.1:8517, and reach it by `ssh -L \
                 8517:127.0.0.1:8517` or through a reverse proxy with TLS"
            )
        })
    }

    /// Why links would not lead to the page; `None` if they do.
    pub fn url_problem(&self) -> Option<String> {
        let (url, path) = (self.url.as_ref()?, &self.path);
        (!url.ends_with(path)).then(|| {
            format!(
                "{url} does not end with the path of the page: write one like https://db1.example{}/",
                path.as_str()
            )
        })
    }

    /// Where requests are answered, with the certificate that was read.
    pub fn site(&self, tls: Option<PageTls>) -> PageSite {
        let own = [self.own_url(), self.url()].map(|url| url.host().to_owned());
        let names = self.allow_host.iter().cloned().chain(own);
        PageSite { hosts: AllowedHosts::new(names), path: self.path.clone(), tls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, url: Option<&str>) -> PagePlace {
        PagePlace {
            address: "127.0.0.1:8517".parse().unwrap(),
            path: PagePath::parse(path).unwrap(),
            url: url.map(|url| PageUrl::parse(url).unwrap()),
            allow_host: Vec::new(),
            tls: None,
        }
    }

    #[test]
    fn other_machines_reach_a_page_by_tls_only() {
        let tls = || TlsPaths { certificate: "certificate.pem".into(), key: "key.pem".into() };
        let at = |address: &str, tls| PagePlace { address: address.parse().unwrap(), tls, ..place("", None) };
        for own in ["127.0.0.1:8517", "127.0.0.2:0", "[::1]:1"] {
            assert_eq!(at(own, None).address_problem(), None, "{own}");
        }
        for foreign in ["0.0.0.0:8517", "[::]:8517", "10.0.0.1:80"] {
            assert!(at(foreign, None).address_problem().unwrap().contains("other machines"), "{foreign}");
            let by_tls = at(foreign, Some(tls()));
            assert_eq!(by_tls.address_problem(), None, "{foreign}");
            assert!(by_tls.url().to_string().starts_with("https://"), "{foreign}");
        }
    }

    #[test]
    fn links_begin_with_what_a_browser_can_reach() {
        assert_eq!(place("", None).url().to_string(), "http://127.0.0.1:8517/");
        assert_eq!(place("/mongosonar", None).url().to_string(), "http://127.0.0.1:8517/mongosonar/");
        let proxied = place("/mongosonar", Some("https://db1.example/mongosonar"));
        assert_eq!(proxied.url().to_string(), "https://db1.example/mongosonar/");
        assert_eq!(proxied.own_url().to_string(), "http://127.0.0.1:8517/mongosonar/");
        assert_eq!(proxied.url_problem(), None);
        // A reverse proxy that takes a part of the path away.
        assert_eq!(place("", Some("https://db1.example/mongosonar")).url_problem(), None);
        let beside = place("/mongosonar", Some("https://db1.example/")).url_problem().unwrap();
        assert!(beside.contains("https://db1.example/mongosonar/"), "{beside}");
    }
}
