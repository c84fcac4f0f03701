//! The arguments of `mongosonar serve`, and those that `mongosonar open` has too.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use sonar_serve::{PagePath, PageUrl};

use super::place::PagePlace;
use super::tls_files::TlsPaths;
use crate::args::values::number;
use crate::history::StoreArgs;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  mongosonar serve --store ./copy             a copy of a history, from another host
  mongosonar serve wire.pcap.gz mongod.log    files of an incident, without an agent
  mongosonar serve --listen 127.0.0.1:9000    at another port
  mongosonar serve --allow-host db1.example   behind a reverse proxy that serves it under this name
  mongosonar serve --path /mongosonar --url https://db1.example/mongosonar/
                                              below a path of a reverse proxy
  mongosonar serve --listen 10.0.0.5:8517 --tls-certificate page.pem --tls-key page.key
                                              by TLS, also for other machines";

/// The address of a page: no program that comes with MongoDB uses this port.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8_517);

/// The arguments of `serve`.
#[derive(Args, Debug, Clone)]
pub struct ServeArgs {
    /// Captures, logs, files or folders of diagnostic.data and recordings of io record of the same time, in place of the history of an agent
    #[arg(value_name = "FILE", conflicts_with = "store")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub page: PageArgs,
    /// Port of the server whose logs, among the files, do not state it
    #[arg(long, short, value_name = "PORT", requires = "files", value_parser = number(1..=u16::MAX, 27_017))]
    pub port: Option<u16>,
    /// Answer requests that name this host too, as those that a reverse proxy passes on; repeat it for several
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
    /// Serve everything below this path, such as /mongosonar, as a reverse proxy passes it on
    #[arg(long, value_name = "PATH", value_parser = PagePath::parse)]
    pub path: Option<PagePath>,
    /// Serve by TLS with the certificate in this file, in PEM; those of authorities between stand behind it
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// File with the key of the certificate, in PEM, for its owner and group only
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
}

impl ServeArgs {
    /// Where the page is served.
    pub fn place(&self) -> PagePlace {
        PagePlace {
            address: self.page.address(),
            path: self.path.clone().unwrap_or_default(),
            url: self.page.url.clone(),
            allow_host: self.allow_host.clone(),
            tls: TlsPaths::both(self.tls_certificate.as_deref(), self.tls_key.as_deref()),
        }
    }
}

/// Which page.
#[derive(Args, Debug, Clone)]
pub struct PageArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    /// Address of the page, without TLS on this machine only [default: 127.0.0.1:8517; of `open`, that of the agent]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub listen: Option<SocketAddr>,
    /// What links begin with, as a browser reaches the page behind a reverse proxy [default: the address; of `open`, that of the agent]
    #[arg(long, value_name = "URL", value_parser = PageUrl::parse)]
    pub url: Option<PageUrl>,
}

impl PageArgs {
    /// The address of the page.
    pub fn address(&self) -> SocketAddr {
        self.listen.unwrap_or(DEFAULT_ADDRESS)
    }
}

/// Reads an address with a port.
///
/// # Errors
/// It is something else, in words.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an address with a port: write one like 127.0.0.1:8517"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        for address in ["127.0.0.1:8517", "127.0.0.2:0", "[::1]:1", "0.0.0.0:8517"] {
            assert_eq!(parse_address(address).unwrap().to_string(), address);
        }
        for wrong in ["", "8517", "localhost:8517", "127.0.0.1"] {
            assert!(parse_address(wrong).unwrap_err().contains("like 127.0.0.1:8517"), "{wrong}");
        }
    }
}
