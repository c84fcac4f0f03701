//! Where a page is served, and how it is reached, as `serve` and the agent are configured.

use std::net::SocketAddr;

use sonar_serve::{AllowedHosts, PagePath, PageSite, PageUrl};

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
}

impl PagePlace {
    /// What links to it begin with.
    pub fn url(&self) -> PageUrl {
        self.url.clone().unwrap_or_else(|| self.own_url())
    }

    /// What the addresses of the page itself begin with, without a reverse proxy.
    pub fn own_url(&self) -> PageUrl {
        PageUrl::of(self.address, &self.path, false)
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

    /// Where requests are answered.
    pub fn site(&self) -> PageSite {
        let own = [self.own_url(), self.url()].map(|url| url.host().to_owned());
        let names = self.allow_host.iter().cloned().chain(own);
        PageSite { hosts: AllowedHosts::new(names), path: self.path.clone() }
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
