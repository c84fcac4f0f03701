//! Who is behind a load balancer? The header of the PROXY protocol, which a proxy sends before the first message of a
//! connection: version 1, a line of text, or version 2, in binary form
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::net::IpAddr;

use sonar_core::Endpoint;

/// The longest header that is read, in bytes. Version 1 has 107 at most; version 2 may carry more than addresses.
pub const MAX_PROXY_HEADER: usize = 4_096;

const TEXT: &[u8] = b"PROXY ";
const MAX_TEXT: usize = 107;
const BINARY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// What the first bytes of a stream are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProxyHeader {
    /// Something else.
    None,
    /// The beginning of a header.
    Begun,
    /// A header of this length. Without an address the proxy speaks for itself.
    Whole { len: usize, client: Option<Endpoint> },
}

impl ProxyHeader {
    pub fn read(bytes: &[u8]) -> Self {
        let begins = |with: &[u8]| bytes.iter().zip(with).all(|(one, other)| one == other);
        if begins(TEXT) {
            return Self::text(bytes);
        }
        if begins(BINARY) { Self::binary(bytes) } else { Self::None }
    }

    fn text(bytes: &[u8]) -> Self {
        let searched = &bytes[..bytes.len().min(MAX_TEXT)];
        let Some(end) = memchr::memmem::find(searched, b"\r\n") else {
            return if bytes.len() < MAX_TEXT { Self::Begun } else { Self::None };
        };
        let Ok(line) = std::str::from_utf8(&bytes[..end]) else { return Self::None };
        let mut words = line.split(' ').skip(1);
        let client = match words.next() {
            Some("TCP4" | "TCP6") => {
                let (address, port) = (words.next(), words.nth(1));
                let address = address.and_then(|address| address.parse::<IpAddr>().ok());
                let port = port.and_then(|port| port.parse().ok());
                let (Some(address), Some(port)) = (address, port) else { return Self::None };
                Some(std::net::SocketAddr::new(address, port).into())
            }
            Some("UNKNOWN") => None,
            _ => return Self::None,
        };
        Self::Whole { len: end + 2, client }
    }

    fn binary(bytes: &[u8]) -> Self {
        const HEAD: usize = 16;
        let Some(head) = bytes.first_chunk::<HEAD>() else { return Self::Begun };
        let (version, command, family) = (head[12] >> 4, head[12] & 0x0f, head[13] >> 4);
        let len = HEAD + usize::from(u16::from_be_bytes([head[14], head[15]]));
        if version != 2 || command > 1 || len > MAX_PROXY_HEADER {
            return Self::None;
        }
        let Some(rest) = bytes.get(HEAD..len) else { return Self::Begun };
        let port = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
        let client = match (command, family) {
            (1, 1) => rest.first_chunk::<4>().zip(port(8)).map(|(ip, port)| Endpoint::v4(*ip, port)),
            (1, 2) => rest.first_chunk::<16>().zip(port(32)).map(|(ip, port)| Endpoint::v6(*ip, port)),
            _ => None,
        };
        Self::Whole { len, client }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::doc;
    use sonar_core::{Coverage, Operation, Timestamp};

    use super::*;
    use crate::decoder::collected::message;
    use crate::testing::{Conversation, ConversationEnd};
    use crate::{Decoder, Settings, Shared, Sink};

    #[derive(Default)]
    struct Clients(Vec<(String, String)>);

    impl Sink for Clients {
        fn operation(&mut self, op: &Operation<'_>) {
            self.0.push((op.client.to_string(), op.outcome.name().to_owned()));
        }
    }

    /// The clients of a find after these bytes, in packets of `mss` bytes.
    fn behind(header: &[u8], mss: usize) -> (Vec<(String, String)>, Coverage) {
        let mut talk = Conversation::new("10.0.0.2:40000", "10.0.0.1:27017").with_mss(mss);
        talk.handshake();
        let find = message(1, 0, &doc! {"find": "orders", "$db": "shop"});
        talk.send(ConversationEnd::Client, &[header, &find].concat());
        talk.send(ConversationEnd::Server, &message(2, 1, &doc! {"ok": 1.0}));
        let (mut decoder, mut clients) =
            (Decoder::new(Settings::default(), Arc::new(Shared::default())), Clients::default());
        for packet in &talk.packets {
            decoder.packet(&packet.as_packet(), &mut clients);
        }
        decoder.finish(Timestamp::default(), &mut clients);
        assert_eq!(decoder.coverage().imbalances(decoder.in_progress()), []);
        (clients.0, decoder.coverage())
    }

    /// A header of version 2.
    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        [BINARY, &[0x20 | command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
    }

    #[test]
    fn the_client_is_the_one_that_the_header_names() {
        let v4 =
            [&[203, 0, 113, 7, 198, 51, 100, 1][..], &51_234_u16.to_be_bytes(), &27_017_u16.to_be_bytes()]
                .concat();
        let v6 = ["2001:db8::7", "2001:db8::1"].map(|ip| ip.parse::<std::net::Ipv6Addr>().unwrap().octets());
        let v6 = [&v6.concat()[..], &51_234_u16.to_be_bytes(), &27_017_u16.to_be_bytes()].concat();
        // A checksum and an authority.
        let extra = [&v4[..], &[3, 0, 4, 1, 2, 3, 4, 2, 0, 3], b"abc"].concat();
        let cases: [(Vec<u8>, &str); 8] = [
            (b"PROXY TCP4 203.0.113.7 198.51.100.1 51234 27017\r\n".into(), "203.0.113.7:51234"),
            (b"PROXY TCP6 2001:db8::7 2001:db8::1 51234 27017\r\n".into(), "[2001:db8::7]:51234"),
            (b"PROXY UNKNOWN\r\n".into(), "10.0.0.2:40000"),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".into(), "10.0.0.2:40000"),
            (binary(1, 0x11, &v4), "203.0.113.7:51234"),
            (binary(1, 0x21, &v6), "[2001:db8::7]:51234"),
            (binary(1, 0x11, &extra), "203.0.113.7:51234"),
            // A health check of the proxy itself.
            (binary(0, 0x00, &[]), "10.0.0.2:40000"),
        ];
        for (header, client) in cases {
            for mss in [1, 5, 15, 16, 17, 28, 40, 1_460] {
                let (clients, coverage) = behind(&header, mss);
                assert_eq!(
                    clients,
                    [(client.to_owned(), "ok".to_owned())],
                    "{mss} {:?}",
                    header.escape_ascii()
                );
                assert_eq!((coverage.streams_proxied, coverage.streams_not_mongodb), (1, 0));
                assert_eq!(coverage.losses().count(), 0, "{coverage:?}");
            }
        }
    }

    #[test]
    fn other_bytes_are_no_header() {
        let long = [BINARY, &[0x21, 0x11, 0xff, 0xff], &[0; 3_000]].concat();
        let cases: [&[u8]; 5] = [
            b"PROXY TCP4 nobody 198.51.100.1 51234 27017\r\n",
            b"PROXIES are not this\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            &[b"PROXY ".as_slice(), &[b'x'; 200]].concat(),
            &long,
        ];
        for header in cases {
            let (clients, coverage) = behind(header, 1_460);
            assert_eq!((clients.len(), coverage.streams_proxied, coverage.streams_not_mongodb), (0, 0, 1));
        }
    }
}
