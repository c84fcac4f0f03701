//! A page that is served by TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use sonar_serve::{PageLimits, PageRefusal, PageSite, PageTls, RequestRate};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::support::{RunningPage, at, rest_of, site};

const CERTIFICATE: &[u8] = include_bytes!("../../../../fixtures/page-tls/certificate.pem");
const KEY: &[u8] = include_bytes!("../../../../fixtures/page-tls/key.pem");

fn running(limits: PageLimits) -> RunningPage {
    let tls = PageTls::from_pem(CERTIFICATE, KEY).unwrap();
    RunningPage::at(PageSite { tls: Some(tls), ..site("") }, limits)
}

/// A client of one version of TLS that trusts the certificate of the page, or none at all.
fn client(
    running: &RunningPage,
    version: &'static SupportedProtocolVersion,
    trusts: bool,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    if trusts {
        roots.add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, running.connect())
}

#[test]
fn a_page_is_served_by_both_versions_of_tls() {
    let running = running(PageLimits::default());
    for version in [&TLS12, &TLS13] {
        let mut stream = client(&running, version, true);
        let asked = running.request("/api/v1/timeline", "Connection: close\r\n");
        stream.write_all(asked.as_bytes()).unwrap();
        let answer = rest_of(stream);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"timeline\""), "{answer}");
    }
    assert_eq!(running.test.page.refused().get(PageRefusal::Handshake), 0);
}

#[test]
fn the_cookie_of_a_session_is_sent_by_tls_only() {
    let running = running(PageLimits::default());
    let mut stream = client(&running, &TLS13, true);
    let (host, link) = (running.address, running.test.token.link_code(at(3_599)).unwrap());
    write!(
        stream,
        "POST /api/v1/session HTTP/1.1\r\nHost: {host}\r\nOrigin: https://{host}\r\n\
         Authorization: Bearer {link}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let answer = rest_of(stream).to_lowercase();
    assert!(
        answer.starts_with("http/1.1 204 ") && answer.contains("; secure; httponly; samesite=strict"),
        "{answer}"
    );
}

#[test]
fn handshakes_that_fail_are_refused_and_the_next_client_is_served() {
    let running = running(PageLimits { head_time: Duration::from_secs(1), ..PageLimits::default() });
    // A client that speaks no TLS gets no page.
    let mut plain = running.connect();
    plain.write_all(running.request("/", "").as_bytes()).unwrap();
    assert!(!rest_of(plain).contains("200 OK"));
    running.wait_for(PageRefusal::Handshake, 1);
    // One that does not trust the certificate says so.
    let mut wary = client(&running, &TLS13, false);
    assert!(wary.write_all(b"GET / HTTP/1.1\r\n").and_then(|()| wary.flush()).is_err());
    running.wait_for(PageRefusal::Handshake, 2);
    // One that does not go on is dropped.
    let mut slow = running.connect();
    slow.write_all(&[22, 3, 1]).unwrap();
    assert_eq!(rest_of(slow), "");
    running.wait_for(PageRefusal::Handshake, 3);
    // One that says nothing at all has nothing that could be refused.
    assert_eq!(rest_of(running.connect()), "");
    let mut next = client(&running, &TLS13, true);
    next.write_all(running.request("/", "Connection: close\r\n").as_bytes()).unwrap();
    assert!(rest_of(next).starts_with("HTTP/1.1 200 "));
    running.wait_for(PageRefusal::Handshake, 3);
    assert_eq!(running.test.page.refused().get(PageRefusal::Slow), 0);
}

#[test]
fn too_many_handshakes_in_a_second_are_refused() {
    let rate = RequestRate { per_second: 0, burst: 1 };
    let running = running(PageLimits { rate, ..PageLimits::default() });
    let mut first = client(&running, &TLS13, true);
    first.write_all(running.request("/", "").as_bytes()).unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    let mut second = client(&running, &TLS13, true);
    assert!(second.write_all(b"GET").and_then(|()| second.flush()).is_err());
    running.wait_for(PageRefusal::Handshake, 1);
}

#[test]
fn a_client_that_takes_nothing_of_an_encrypted_answer_is_dropped() {
    let limits = PageLimits { write_time: Duration::from_millis(200), ..PageLimits::default() };
    let running = running(limits);
    let mut lazy = client(&running, &TLS13, true);
    // Their answers are more than all buffers on the way hold.
    let asked = running.request("/api/v1/openapi.json", "");
    for _ in 0..1_000 {
        if lazy.write_all(asked.as_bytes()).is_err() {
            break;
        }
    }
    running.wait_for(PageRefusal::Slow, 1);
}
