//! Why a server cannot be reached, in words for a DBA.

use std::fmt;
use std::io;

use mongodb::error::{Error as Driver, ErrorKind};

/// The most characters to show of a text from outside.
const MOST_CHARACTERS: usize = 400;

/// A text from a server or the driver as one line of plain characters, cut if it is long.
pub(crate) fn plain(text: &str) -> String {
    let text = text.trim();
    let mut kept: String = text.chars().take(MOST_CHARACTERS).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    kept.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `No such file or directory (os error 2)` without the parenthesis.
pub fn without_number(text: &str) -> String {
    let mut text = text.trim_end().to_owned();
    while let Some(begin) = text.find(" (os error ") {
        let Some(length) = text[begin..].find(')') else { break };
        text.replace_range(begin..=begin + length, "");
    }
    text
}

/// What prevents a connection to a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReachObstacle {
    /// Its certificate is signed by an authority that is not trusted.
    Issuer,
    /// Its certificate is for other names.
    Name,
    /// Its certificate is not valid any more, or not yet.
    Expired,
    /// Its certificate cannot be used for another reason.
    Certificate(String),
    /// It requires a certificate of the client.
    ClientCertificate,
    /// It ends the handshake without a reason: because there is no client certificate in TLS 1.2, or no common
    /// cipher.
    Handshake,
    /// It accepts only TLS.
    WantsTls,
    /// It does not answer in TLS.
    NoTls,
    /// It ended the TLS handshake.
    Tls(String),
    /// It answers in another protocol.
    NotMongo,
    /// It closes the connection at the first message.
    HangsUp,
    /// Nothing listens on the port.
    Refused,
    /// The host name is unknown.
    UnknownHost,
    /// No name server answers.
    NoDns,
    /// There is no route to the host.
    NoRoute,
    /// The socket's file does not exist.
    NoSocket,
    /// No answer came in time.
    Timeout,
    /// Something else, as its source puts it.
    Other(String),
}

impl ReachObstacle {
    /// The meaning of an error on a connection, with or without TLS.
    pub(crate) fn of(error: &Driver, tls: bool) -> Self {
        match &*error.kind {
            ErrorKind::Io(error) => Self::of_io(error, tls),
            ErrorKind::DnsResolve { .. } => Self::UnknownHost,
            ErrorKind::InvalidResponse { .. } => Self::NotMongo,
            ErrorKind::Command(command) => Self::Other(plain(&command.message)),
            ErrorKind::InvalidTlsConfig { message, .. } => Self::Other(plain(message)),
            other => Self::Other(plain(&other.to_string())),
        }
    }

    fn of_io(error: &io::Error, tls: bool) -> Self {
        use io::ErrorKind as Kind;
        let text = error.to_string();
        match error.kind() {
            Kind::ConnectionRefused => Self::Refused,
            Kind::TimedOut => Self::Timeout,
            Kind::NotFound => Self::NoSocket,
            Kind::HostUnreachable | Kind::NetworkUnreachable => Self::NoRoute,
            Kind::UnexpectedEof | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => {
                if tls { Self::NoTls } else { Self::HangsUp }
            }
            // The resolver's errors have no kind of their own.
            _ if text.contains("lookup address") && is_temporary(&text) => Self::NoDns,
            _ if text.contains("lookup address") => Self::UnknownHost,
            _ if tls => Self::of_tls(&text),
            _ => Self::Other(plain(&without_number(&text))),
        }
    }

    /// The meaning of a message of rustls.
    fn of_tls(text: &str) -> Self {
        let has = |part: &str| text.contains(part);
        if has("UnknownIssuer") || has("UnknownCA") && has("certificate") {
            Self::Issuer
        } else if has("not valid for name") || has("NotValidForName") {
            Self::Name
        } else if has("expired") || has("Expired") || has("NotValidYet") || has("not valid yet") {
            Self::Expired
        } else if has("alert: CertificateRequired") {
            Self::ClientCertificate
        } else if has("alert: HandshakeFailure") {
            Self::Handshake
        } else if has("invalid peer certificate") {
            let reason = text.split("invalid peer certificate: ").nth(1).unwrap_or(text);
            Self::Certificate(plain(reason))
        } else if has("corrupt message") || has("InvalidContentType") {
            Self::NoTls
        } else {
            Self::Tls(plain(&without_number(text)))
        }
    }

    /// Whether it may pass by itself: the server starts, or the network comes back.
    fn is_passing(&self) -> bool {
        !matches!(
            self,
            Self::Issuer
                | Self::Name
                | Self::Certificate(_)
                | Self::ClientCertificate
                | Self::Handshake
                | Self::NotMongo
                | Self::WantsTls
        )
    }
}

/// Whether the resolver calls its error temporary (`EAI_AGAIN`), in the words of glibc or of musl.
fn is_temporary(text: &str) -> bool {
    ["Temporary failure in name resolution", "Try again"].iter().any(|words| text.contains(words))
}

/// Why no server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Addresses, separated by commas.
    pub(crate) servers: String,
    pub(crate) why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Obstacle(ReachObstacle),
    /// Members were reached, none of them the primary.
    NoPrimary(String),
    /// Servers were reached, but the read preference allows none of them.
    Unsuitable,
    /// They belong to another replica set, or to none.
    OtherSet,
    /// Nothing is known.
    Silent,
    /// It was reached before.
    Gone,
}

impl Unreachable {
    pub(crate) fn new(servers: impl Into<String>, obstacle: ReachObstacle) -> Self {
        Self { servers: servers.into(), why: Why::Obstacle(obstacle) }
    }

    /// For a server that was reached before.
    pub(crate) fn gone() -> Self {
        Self { servers: String::new(), why: Why::Gone }
    }

    /// Whether it may pass by itself.
    pub fn is_passing(&self) -> bool {
        if let Why::Obstacle(obstacle) = &self.why { obstacle.is_passing() } else { true }
    }

    pub(crate) fn hangs_up(&self) -> bool {
        self.why == Why::Obstacle(ReachObstacle::HangsUp)
    }

    /// Whether it answered in TLS, even if only to refuse.
    pub(crate) fn speaks_tls(&self) -> bool {
        matches!(
            &self.why,
            Why::Obstacle(
                ReachObstacle::ClientCertificate | ReachObstacle::Handshake | ReachObstacle::Tls(_)
            )
        )
    }

    pub(crate) fn with(self, obstacle: ReachObstacle) -> Self {
        Self { why: Why::Obstacle(obstacle), ..self }
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.servers;
        let obstacle = match &self.why {
            Why::Obstacle(obstacle) => obstacle,
            Why::NoPrimary(set) => {
                return write!(
                    f,
                    "the replica set {set} has no primary at the moment (reached: {at}); wait for the election, or \
                     connect to one member with directConnection=true"
                );
            }
            Why::Unsuitable => {
                return write!(
                    f,
                    "no server fits the read preference in the connection string (reached: {at})"
                );
            }
            Why::OtherSet => {
                return write!(f, "{at} does not belong to the replica set that the connection string names");
            }
            Why::Silent => return write!(f, "no server answered in time"),
            Why::Gone => return write!(f, "the server cannot be reached any more"),
        };
        match obstacle {
            ReachObstacle::Issuer => write!(
                f,
                "the certificate of {at} is signed by an unknown authority; give the authority's certificate with \
                 --tlsCAFile"
            ),
            ReachObstacle::Name => {
                write!(f, "the certificate of {at} is for another host name; connect by a name that it holds")
            }
            ReachObstacle::Expired => write!(f, "the certificate of {at} has expired or is not valid yet"),
            ReachObstacle::Certificate(text) => write!(f, "the certificate of {at} cannot be used: {text}"),
            ReachObstacle::ClientCertificate => {
                write!(f, "{at} asks for a client certificate; give one with --tlsCertificateKeyFile")
            }
            ReachObstacle::Handshake => write!(
                f,
                "{at} refuses the TLS handshake: it asks for a client certificate (--tlsCertificateKeyFile), or shares \
                 no TLS version or cipher with mongosonar"
            ),
            ReachObstacle::WantsTls => {
                write!(
                    f,
                    "{at} accepts only TLS connections; add --tls, or tls=true to the connection string"
                )
            }
            ReachObstacle::NoTls => write!(
                f,
                "{at} does not answer the TLS handshake; it probably does not use TLS: leave out --tls (tls=true)"
            ),
            ReachObstacle::Tls(text) => write!(f, "{at} ended the TLS handshake: {text}"),
            ReachObstacle::NotMongo => write!(f, "the program that listens at {at} is not a MongoDB server"),
            ReachObstacle::HangsUp => write!(
                f,
                "{at} closes every connection at the first message; it may be older than MongoDB 4.4 (set its profiler \
                 in the shell, and read what it wrote with `mongosonar profiler report FILE`), still starting, or not \
                 a MongoDB server"
            ),
            ReachObstacle::Refused => {
                write!(f, "cannot connect to {at}: connection refused; no server listens there")
            }
            ReachObstacle::UnknownHost => write!(f, "cannot connect to {at}: unknown host name"),
            ReachObstacle::NoDns => write!(f, "cannot connect to {at}: no name server answers"),
            ReachObstacle::NoRoute => write!(f, "cannot connect to {at}: no route to the host"),
            ReachObstacle::NoSocket => write!(f, "cannot connect to {at}: no such socket"),
            ReachObstacle::Timeout => {
                write!(f, "cannot connect to {at}: no answer in time; a firewall may drop the packets")
            }
            ReachObstacle::Other(text) => write!(f, "cannot connect to {at}: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: io::ErrorKind) -> Driver {
        io::Error::from(kind).into()
    }

    fn driver_error(text: &str) -> Driver {
        io::Error::new(io::ErrorKind::InvalidData, text.to_owned()).into()
    }

    fn message(error: &Driver, tls: bool) -> String {
        Unreachable::new("db1:27017", ReachObstacle::of(error, tls)).to_string()
    }

    /// Each error of the driver, the words that name its cause, and words of other causes that must not appear.
    #[test]
    fn each_error_of_a_connection_has_its_own_words() {
        use io::ErrorKind as Kind;
        let resolver = |text: &str| -> Driver {
            io::Error::other(format!("failed to lookup address information: {text}")).into()
        };
        let table: Vec<(Driver, bool, &str)> = vec![
            (io(Kind::ConnectionRefused), false, "connection refused"),
            (io::Error::from_raw_os_error(111).into(), false, "connection refused"),
            (io(Kind::TimedOut), false, "no answer in time"),
            (io(Kind::HostUnreachable), false, "no route to the host"),
            (io(Kind::NetworkUnreachable), false, "no route to the host"),
            (io(Kind::NotFound), false, "no such socket"),
            (io(Kind::UnexpectedEof), false, "closes every connection"),
            (io(Kind::ConnectionReset), false, "closes every connection"),
            (io(Kind::UnexpectedEof), true, "does not answer the TLS handshake"),
            (resolver("Name or service not known"), false, "unknown host name"),
            (resolver("Temporary failure in name resolution"), false, "no name server answers"),
            // musl's words for the same.
            (resolver("Name does not resolve"), false, "unknown host name"),
            (resolver("Try again"), false, "no name server answers"),
            (
                driver_error("received fatal alert: CertificateRequired"),
                true,
                "asks for a client certificate; give one",
            ),
            (driver_error("received fatal alert: HandshakeFailure"), true, "shares no TLS version or cipher"),
            (
                driver_error("received corrupt message of type InvalidContentType"),
                true,
                "does not answer the TLS handshake",
            ),
            (driver_error("invalid peer certificate: UnknownIssuer"), true, "unknown authority"),
            (
                driver_error(
                    "invalid peer certificate: certificate not valid for name \"a\"; certificate is only valid for x",
                ),
                true,
                "another host name",
            ),
            (
                driver_error("invalid peer certificate: certificate expired: verification time 5"),
                true,
                "has expired",
            ),
            (driver_error("invalid peer certificate: BadEncoding"), true, "cannot be used: BadEncoding"),
            (driver_error("received fatal alert: CertificateRequired"), true, "client certificate"),
            (driver_error("received fatal alert: ProtocolVersion"), true, "ended the TLS handshake"),
            (io::Error::from_raw_os_error(13).into(), false, "Permission denied"),
        ];
        let mut texts = Vec::new();
        for (error, tls, words) in &table {
            let text = message(error, *tls);
            assert!(text.contains(words), "{error}: {text}");
            assert_eq!(text.matches("db1:27017").count(), 1, "named once: {text}");
            for debug in ["os error", "Kind:", "labels", "Topology", "{", "Some("] {
                assert!(!text.contains(debug), "{debug} in {text}");
            }
            texts.push(text);
        }
    }

    #[test]
    fn permanent_obstacles_are_not_waited_for() {
        for (obstacle, passing) in
            [(ReachObstacle::Refused, true), (ReachObstacle::Issuer, false), (ReachObstacle::NotMongo, false)]
        {
            assert_eq!(Unreachable::new("a", obstacle).is_passing(), passing);
        }
        assert!(Unreachable::gone().is_passing());
    }

    #[test]
    fn a_long_text_from_outside_is_cut() {
        let long = "x".repeat(100_000);
        assert!(plain(&long).len() < 500);
        assert_eq!(plain(" a\tb\u{7f}c "), "a b c");
    }
}
