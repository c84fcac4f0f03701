//! Which server to connect to, and as which user.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use mongodb::options::{ClientOptions, Credential, Tls, TlsOptions};

use crate::error::{Result, ServerError};

/// Scheme of a connection string with a list of hosts.
const SCHEME: &str = "mongodb://";
/// Scheme of a connection string whose hosts are in DNS.
const SCHEME_SRV: &str = "mongodb+srv://";

/// A server: a connection string, and what command-line options add to it.
///
/// If both give a value, the values must not differ; [`crate::Server::connect`] checks that before it connects. In a
/// replica set the primary answers, whichever members are named, unless the connection string has `readPreference` or
/// `directConnection=true`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Target {
    uri: String,
    /// User name.
    pub username: Option<String>,
    /// Password of the user.
    pub password: Option<String>,
    /// Database of the user; `admin` if nothing states it.
    pub auth_database: Option<String>,
    /// Whether to use TLS; `false` leaves it to the connection string.
    pub tls: bool,
    /// Certificates of the authorities to trust (PEM).
    pub tls_ca_file: Option<PathBuf>,
    /// Certificate and key of the client (PEM).
    pub tls_key_file: Option<PathBuf>,
}

/// Shows neither password nor connection string, which may contain one.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("username", &self.username)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl<T: AsRef<str>> From<T> for Target {
    /// A connection string, or `host`, `host:port`, `host:port/database` as for MongoDB's own tools.
    fn from(text: T) -> Self {
        Self { uri: connection_string(text.as_ref()), ..Self::default() }
    }
}

impl Target {
    /// `host` and `port` as `--host` and `--port` of MongoDB's tools take them: a name or address, or several
    /// separated by commas, each with or without a port, and optionally the name of their replica set before them
    /// (`rs0/a,b`).
    ///
    /// # Errors
    /// `port` contradicts a port in `host`; the text is the message.
    pub fn of_host(host: &str, port: Option<u16>) -> std::result::Result<Self, String> {
        let (set, hosts) = host.split_once('/').map_or((None, host), |(set, hosts)| (Some(set), hosts));
        let mut list = Vec::new();
        for host in hosts.split(',') {
            list.push(with_port(host.trim(), port)?);
        }
        let options = set.map_or_else(String::new, |set| format!("/?replicaSet={set}"));
        Ok(Self { uri: format!("{SCHEME}{}{options}", list.join(",")), ..Self::default() })
    }

    /// Whether a `--host` has a port for any of its hosts.
    pub fn has_port(host: &str) -> bool {
        let hosts = host.split_once('/').map_or(host, |(_, hosts)| hosts);
        hosts.split(',').any(|host| split_port(host.trim()).1.is_some())
    }

    /// The connection string, without what options add to it. It may contain a password.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Whether it contains a password.
    pub fn has_password(&self) -> bool {
        let (_, authority, _) = parts(&self.uri);
        self.password.is_some() || authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    }

    /// The user whose password is missing: an option or the connection string names one, but neither a password nor a
    /// mechanism without one.
    pub fn user_without_password(&self) -> Option<&str> {
        let (_, authority, rest) = parts(&self.uri);
        let options = rest.get(1..).unwrap_or("");
        let named = authority.rsplit_once('@').map(|(user, _)| user);
        let wants_none = ["authMechanism=MONGODB-X509", "authMechanism=MONGODB-OIDC", "authMechanism=GSSAPI"];
        let lower = options.to_ascii_lowercase();
        if self.password.is_some() || wants_none.iter().any(|m| lower.contains(&m.to_ascii_lowercase())) {
            return None;
        }
        match named {
            Some(user) if user.contains(':') => None,
            Some(user) => Some(user),
            None => self.username.as_deref(),
        }
    }

    /// Whether connecting may take files or local sockets that are for one user only: certificates and keys, a socket with
    /// a path, a ticket or a token for the login.
    pub fn uses_files(&self) -> bool {
        let (_, _, options) = parts(&self.uri);
        let options = options.to_ascii_lowercase();
        let login = options.split_once("authmechanism=").map_or("", |(_, rest)| rest);
        let login = login.split(['&', ';']).next().unwrap_or(login);
        let logs_in_with_file = ["gssapi", "oidc", "aws"].iter().any(|kind| login.contains(kind));
        self.tls_ca_file.is_some()
            || self.tls_key_file.is_some()
            || options.contains("file=")
            || self.uses_socket()
            || logs_in_with_file
    }

    /// Whether it connects to a local socket with a path, which one user only may be allowed to write.
    pub fn uses_socket(&self) -> bool {
        let (_, authority, _) = parts(&self.uri);
        // A password may have an escaped slash, too.
        let hosts = authority.rsplit('@').next().unwrap_or(authority).to_ascii_lowercase();
        hosts.split(',').any(|host| host.contains("%2f") || host.ends_with(".sock"))
    }

    /// What the driver needs to connect.
    pub(crate) async fn options(&self) -> Result<ClientOptions> {
        if has_stray_percent(&self.uri) {
            let reason = "a % in it must begin an escape like %40; a % itself is %25";
            return Err(ServerError::ConnectionString(reason.to_owned()));
        }
        let uri = self.uri_with_user();
        let mut options = ClientOptions::parse(uri.as_ref())
            .await
            .map_err(|error| ServerError::of("connect", "", &error))?;
        self.add_user(&mut options)?;
        self.add_tls(&mut options)?;
        Ok(options)
    }

    /// The connection string, with the user of the options if it names none: the driver ignores `authSource` and the
    /// default database of a string without a user.
    fn uri_with_user(&self) -> Cow<'_, str> {
        let (scheme, authority, rest) = parts(&self.uri);
        match &self.username {
            Some(user) if !scheme.is_empty() && !authority.contains('@') && !user.is_empty() => {
                let password = self.password.as_deref().map(|password| format!(":{}", escaped(password)));
                let password = password.unwrap_or_default();
                format!("{scheme}{}{password}@{authority}{rest}", escaped(user)).into()
            }
            _ => (&self.uri).into(),
        }
    }

    fn add_user(&self, options: &mut ClientOptions) -> Result<()> {
        if self.username.is_none() && options.credential.is_none() {
            let lone = [
                (self.password.is_some(), "--password"),
                (self.auth_database.is_some(), "--authenticationDatabase"),
            ];
            return match lone.iter().find(|(given, _)| *given) {
                Some((_, option)) => Err(ServerError::ConnectionString(format!("{option} needs --username"))),
                None => Ok(()),
            };
        }
        let credential = options.credential.get_or_insert_with(Credential::default);
        for (given, known, option) in [
            (&self.username, &mut credential.username, "--username"),
            (&self.password, &mut credential.password, "--password"),
        ] {
            match (given, known.as_ref()) {
                (Some(given), Some(known)) if given != known => {
                    return Err(ServerError::ConnectionString(format!(
                        "{option} differs from the connection string"
                    )));
                }
                (Some(given), _) => *known = Some(given.clone()),
                (None, _) => {}
            }
        }
        match &self.auth_database {
            // The driver has filled in its default, which looks like a value of the string.
            Some(database) => credential.source = Some(database.clone()),
            None if credential.source.is_none() => credential.source = Some("admin".to_owned()),
            None => {}
        }
        Ok(())
    }

    fn add_tls(&self, options: &mut ClientOptions) -> Result<()> {
        if !self.tls && self.tls_ca_file.is_none() && self.tls_key_file.is_none() {
            return Ok(());
        }
        let mut tls = match options.tls.take() {
            Some(Tls::Enabled(tls)) => tls,
            Some(Tls::Disabled) => {
                let given = [(self.tls, "--tls"), (self.tls_ca_file.is_some(), "--tlsCAFile")];
                let given = given.iter().find(|(given, _)| *given);
                let option = given.map_or("--tlsCertificateKeyFile", |(_, option)| option);
                return Err(ServerError::ConnectionString(format!(
                    "{option} needs TLS, which the connection string switches off"
                )));
            }
            None => TlsOptions::default(),
        };
        if let Some(file) = &self.tls_ca_file {
            tls.ca_file_path = Some(file.clone());
        }
        if let Some(file) = &self.tls_key_file {
            tls.cert_key_file_path = Some(file.clone());
        }
        options.tls = Some(Tls::Enabled(tls));
        Ok(())
    }
}

/// Whether a text begins as a connection string does.
pub fn is_connection_string(text: &str) -> bool {
    text.starts_with(SCHEME) || text.starts_with(SCHEME_SRV)
}

/// Whether a text is `host:port`, and not the name of a file.
pub fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | ':');
    !host.is_empty() && host.chars().all(is_name) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Whether a `%` is not followed by two hexadecimal digits. The driver panics on some of these.
fn has_stray_percent(uri: &str) -> bool {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    uri.split('%').skip(1).any(|rest| !is_escape(rest))
}

/// Scheme, users and hosts, and what comes after them, of a connection string.
fn parts(uri: &str) -> (&str, &str, &str) {
    let hosts = uri.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = uri.split_at(hosts);
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    (scheme, authority, rest)
}

/// A user name or a password, as in a connection string.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn connection_string(text: &str) -> String {
    let text = text.trim();
    if text.contains("://") { text.to_owned() } else { format!("{SCHEME}{text}") }
}

fn with_port(host: &str, port: Option<u16>) -> std::result::Result<String, String> {
    if host.is_empty() {
        return Err("--host names no host".to_owned());
    }
    let (name, own) = split_port(host);
    match (own, port) {
        (Some(own), Some(port)) if own != port.to_string() => {
            Err(format!("--port {port} differs from the port in --host {host}"))
        }
        (Some(own), _) => Ok(format!("{name}:{own}")),
        (None, Some(port)) => Ok(format!("{name}:{port}")),
        (None, None) => Ok(name),
    }
}

/// A host as in a connection string, and its port if it has one.
fn split_port(host: &str) -> (String, Option<&str>) {
    // `[::1]:27017`, `[::1]`, `::1`, `name:27017`, `name`
    match (host.starts_with('['), host.rsplit_once(':')) {
        (_, Some((name, own))) if name.ends_with(']') => (name.to_owned(), Some(own)),
        (true, _) | (false, None) => (host.to_owned(), None),
        (false, Some((name, _))) if name.contains(':') => (format!("[{host}]"), None),
        (false, Some((name, own))) => (name.to_owned(), Some(own)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(target: &Target) -> Result<ClientOptions> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(target.options())
    }

    fn hosts(target: &Target) -> Vec<String> {
        options(target).unwrap().hosts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_takes_files_of_one_user_to_connect_is_known() {
        for plain in [
            "mongodb://u:p@db1/?tls=true&authMechanism=SCRAM-SHA-256",
            "db1:27017/aws",
            "mongodb://u:p%2Fw.sock@db1/",
            "mongodb://u:p@db1.amazonaws.com/?authMechanism=SCRAM-SHA-1",
            "mongodb://a.sock.example/",
        ] {
            assert!(!Target::from(plain).uses_files(), "{plain}");
        }
        for uri in [
            "mongodb://db1/?tls=true&tlsCAFile=/ca.pem",
            "mongodb://db1/?tlsCertificateKeyFile=/me.pem",
            "mongodb://%2Ftmp%2Fmongodb-27017.sock",
            "mongodb://db1/?authMechanism=MONGODB-OIDC",
            "mongodb://u%40R@db1/?authMechanism=GSSAPI",
        ] {
            assert!(Target::from(uri).uses_files(), "{uri}");
        }
        let of_options = [
            Target { tls_ca_file: Some("/ca.pem".into()), ..Target::from("db1") },
            Target { tls_key_file: Some("/me.pem".into()), ..Target::from("db1") },
        ];
        assert!(of_options.iter().all(Target::uses_files));
    }

    #[test]
    fn an_address_needs_no_scheme() {
        for (text, expected) in [
            ("localhost", &["localhost:27017"][..]),
            ("localhost:27018", &["localhost:27018"]),
            ("db1:1,db2:2", &["db1:1", "db2:2"]),
            // The driver writes it without brackets.
            ("[::1]:27019", &["::1:27019"]),
            (" db1:27017 ", &["db1:27017"]),
            ("mongodb://db1:5/?directConnection=true", &["db1:5"]),
        ] {
            assert_eq!(hosts(&Target::from(text)), expected, "{text}");
        }
        assert!(options(&Target::from("http://x")).is_err());
        assert!(options(&Target::from("")).is_err());
    }

    #[test]
    fn host_and_port_are_read_as_by_the_tools() {
        let uri = |host, port| Target::of_host(host, port).map(|target| target.uri);
        assert_eq!(uri("db1", None).unwrap(), "mongodb://db1");
        assert_eq!(uri("db1", Some(27_018)).unwrap(), "mongodb://db1:27018");
        assert_eq!(uri("db1:5", Some(5)).unwrap(), "mongodb://db1:5");
        assert_eq!(uri("rs0/a:1,b", Some(1)).unwrap(), "mongodb://a:1,b:1/?replicaSet=rs0");
        assert_eq!(uri("::1", Some(5)).unwrap(), "mongodb://[::1]:5");
        assert_eq!(uri("[::1]:6", None).unwrap(), "mongodb://[::1]:6");
        assert_eq!(uri("[fe80::1]", Some(6)).unwrap(), "mongodb://[fe80::1]:6");
        for wrong in ["db1:5", "a,b:7", ""] {
            assert!(uri(wrong, Some(6)).is_err(), "{wrong}");
        }
        for (host, has_port) in
            [("db1", false), ("rs0/a,b:5", true), ("rs0/a,b", false), ("::1", false), ("[::1]:6", true)]
        {
            assert_eq!(Target::has_port(host), has_port, "{host}");
        }
    }

    #[test]
    fn options_complete_the_connection_string_and_never_contradict_it() {
        let user = |uri: &str, name: &str, password: &str| Target {
            username: Some(name.to_owned()),
            password: Some(password.to_owned()),
            ..Target::from(uri)
        };
        let known = options(&user("db1", "dba", "p@ss:w/rd")).unwrap().credential.unwrap();
        assert_eq!(known.username.as_deref(), Some("dba"));
        assert_eq!(known.password.as_deref(), Some("p@ss:w/rd"), "no escapes are needed");
        assert_eq!(known.source.as_deref(), Some("admin"));
        let other = Target { auth_database: Some("shop".to_owned()), ..user("db1", "dba", "x") };
        assert_eq!(options(&other).unwrap().credential.unwrap().source.as_deref(), Some("shop"));
        let wrong = options(&user("mongodb://ops:pw@db1", "dba", "x")).unwrap_err().to_string();
        assert!(wrong.contains("--username differs") && !wrong.contains("pw"), "{wrong}");
        let lone = Target { password: Some("x".to_owned()), ..Target::from("db1") };
        assert!(options(&lone).unwrap_err().to_string().contains("--password needs --username"));
        let tls = Target { tls: true, ..Target::from("db1") };
        assert!(matches!(options(&tls).unwrap().tls, Some(Tls::Enabled(_))));
        let no_tls = Target { tls: true, ..Target::from("mongodb://db1/?tls=false") };
        assert!(options(&no_tls).is_err());
        let both = Target { tls_ca_file: Some("/ca.pem".into()), ..Target::from("mongodb://db1/?tls=true") };
        let Some(Tls::Enabled(set)) = options(&both).unwrap().tls else { panic!("no TLS") };
        assert_eq!(set.ca_file_path, Some("/ca.pem".into()));
    }

    #[test]
    fn the_authentication_database_comes_from_the_connection_string() {
        let credential = |uri: &str, auth_database: Option<&str>| {
            let target = Target {
                username: Some("d@b:a é".to_owned()),
                password: Some("p%40/?".to_owned()),
                auth_database: auth_database.map(str::to_owned),
                ..Target::from(uri)
            };
            let known = options(&target).unwrap().credential.unwrap();
            assert_eq!(known.username.as_deref(), Some("d@b:a é"), "{uri}");
            assert_eq!(known.password.as_deref(), Some("p%40/?"), "{uri}");
            known.source.unwrap()
        };
        for (uri, source) in [
            ("mongodb://db1/?authSource=shop", "shop"),
            ("mongodb://db1,db2:5/orders", "orders"),
            ("mongodb://db1/orders?authSource=shop&appName=x@y", "shop"),
            ("mongodb://db1/?appName=x", "admin"),
            ("mongodb://db1", "admin"),
            ("db1:27018", "admin"),
        ] {
            assert_eq!(credential(uri, None), source, "{uri}");
            assert_eq!(credential(uri, Some("other")), "other", "{uri}");
        }
        let ops = Target {
            username: Some("ops".to_owned()),
            ..Target::from("mongodb://ops:x@db1/?authSource=shop")
        };
        assert_eq!(options(&ops).unwrap().credential.unwrap().source.as_deref(), Some("shop"));
    }

    #[test]
    fn an_error_names_the_option_that_was_given() {
        let off = Target::from("mongodb://db1/?tls=false");
        let message = |target: &Target| options(target).unwrap_err().to_string();
        let both = Target { tls: true, tls_ca_file: Some("/ca.pem".into()), ..off.clone() };
        assert!(message(&both).contains("--tls needs TLS"), "{}", message(&both));
        let authority = Target { tls_ca_file: Some("/ca.pem".into()), ..off.clone() };
        assert!(message(&authority).contains("--tlsCAFile needs TLS"), "{}", message(&authority));
        let own = Target { tls_key_file: Some("/me.pem".into()), ..off };
        assert!(message(&own).contains("--tlsCertificateKeyFile needs TLS"), "{}", message(&own));
    }

    #[test]
    fn a_user_without_a_password_is_noticed_wherever_it_is_named() {
        let asked = |text: &str| Target::from(text).user_without_password().map(str::to_owned);
        assert_eq!(asked("mongodb://dba@db1"), Some("dba".to_owned()));
        assert_eq!(asked("mongodb://dba:x@db1"), None);
        assert_eq!(asked("mongodb://db1/?appName=a@b"), None);
        assert_eq!(asked("mongodb://CN=x@db1/?authMechanism=MONGODB-X509"), None);
        let named = Target { username: Some("ops".to_owned()), ..Target::from("db1:27017") };
        assert_eq!(named.user_without_password(), Some("ops"));
        assert_eq!(Target { password: Some(String::new()), ..named }.user_without_password(), None);
    }

    #[test]
    fn a_percent_sign_that_escapes_nothing_is_refused() {
        for wrong in ["%&®@", "a:50%@db1", "a:%4@db1", "a:%zz@db1"] {
            let error = options(&Target::from(wrong)).unwrap_err().to_string();
            assert!(error.contains("%25"), "{wrong}: {error}");
        }
        let right = options(&Target::from("a:50%25@db1")).unwrap().credential.unwrap();
        assert_eq!(right.password.as_deref(), Some("50%"));
    }

    #[test]
    fn a_password_is_in_no_debug_output() {
        let target = Target { password: Some("s3cret".to_owned()), ..Target::from("mongodb://a:pa55@db1") };
        let shown = format!("{target:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("pa55"), "{shown}");
    }

    #[test]
    fn an_address_is_distinguished_from_a_file() {
        for address in ["localhost:27017", "10.0.0.1:1", "[::1]:27017", "db-1.example.net:65535"] {
            assert!(is_host_and_port(address), "{address}");
        }
        for file in ["profile.json", "localhost", "a:b", "dump/shop:27017", "x:0", "x:70000", ":5"] {
            assert!(!is_host_and_port(file), "{file}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}", port in proptest::option::of(1_u16..)) {
            let _ = Target::of_host(&text, port);
            let _ = options(&Target::from(&text));
            let _ = Target::from(&text).user_without_password();
            let _ = options(&Target { username: Some(text.clone()), ..Target::from(&text) });
            let _ = is_host_and_port(&text);
        }
    }
}
