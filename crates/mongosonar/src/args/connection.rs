//! The options that name a server, as in MongoDB's own tools.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use clap::Args;
use sonar_mongo::Target;

use crate::args::values::number;
use crate::exit::usage;

/// Holds the connection string if no option names a server. Lists of processes do not show it.
const VARIABLE: &str = "MONGOSONAR_URI";
/// The default of MongoDB's own tools.
const DEFAULT: &str = "localhost:27017";

/// The options of [`PortlessServerArgs`], for arguments that exclude them.
pub const SERVER_OPTIONS: [&str; 8] =
    ["uri", "host", "username", "password", "auth_database", "tls", "tls_ca_file", "tls_key_file"];

/// A server, named as in `mongodump` and `mongostat`.
#[derive(Args, Debug, Default, Clone)]
pub struct ServerArgs {
    #[command(flatten)]
    pub address: AddressArgs,
    /// The server's port [default: 27017]
    #[arg(long, value_name = "PORT", conflicts_with = "uri", value_parser = number(1_u16..=65_535, 27_017))]
    pub port: Option<u16>,
    #[command(flatten)]
    pub login: LoginArgs,
}

/// The same for a command whose `--port` is about something else.
#[derive(Args, Debug, Default, Clone)]
pub struct PortlessServerArgs {
    #[command(flatten)]
    address: AddressArgs,
    #[command(flatten)]
    login: LoginArgs,
}

/// Where a server is.
#[derive(Args, Debug, Default, Clone)]
pub struct AddressArgs {
    /// The server: a connection string (mongodb://… or mongodb+srv://…, with all options of the drivers), or host:port
    #[arg(long, value_name = "URI", conflicts_with = "host")]
    pub uri: Option<String>,
    /// The server's host, also host:port, or of a replica set NAME/host1,host2
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
}

/// User and TLS.
#[derive(Args, Debug, Default, Clone)]
pub struct LoginArgs {
    /// User name; without a password you are asked for it
    #[arg(long, value_name = "NAME")]
    pub username: Option<String>,
    /// Password; without a value you are asked for it
    #[arg(long, value_name = "PASSWORD", num_args = 0..=1, default_missing_value = "")]
    pub password: Option<Secret>,
    /// Database that knows the user [default: admin, or what the connection string says]
    #[arg(long = "authenticationDatabase", alias = "authentication-database", value_name = "NAME")]
    pub auth_database: Option<String>,
    /// Use TLS
    #[arg(long, alias = "ssl")]
    pub tls: bool,
    /// Certificates of the authorities to trust (PEM) [default: the public ones]
    #[arg(long = "tlsCAFile", aliases = ["tls-ca-file", "sslCAFile"], value_name = "FILE")]
    pub tls_ca_file: Option<PathBuf>,
    /// Certificate and key to show to the server (PEM)
    #[arg(
        long = "tlsCertificateKeyFile",
        aliases = ["tls-certificate-key-file", "sslPEMKeyFile"],
        value_name = "FILE"
    )]
    pub tls_key_file: Option<PathBuf>,
}

/// A password, which debug output does not show.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl ServerArgs {
    /// The server that the options name; `None` if there are none.
    ///
    /// # Errors
    /// Options contradict each other, or the password cannot be asked for.
    pub fn named(&self) -> Result<Option<Target>> {
        match (&self.address, self.port) {
            (AddressArgs { uri: None, host: None }, Some(port)) => {
                self.complete(Target::from(format!("localhost:{port}"))).map(Some)
            }
            (address, port) => named(address, port, &self.login),
        }
    }

    /// Whether an option names an address; user and TLS alone do not.
    pub fn has_address(&self) -> bool {
        self.address.uri.is_some() || self.address.host.is_some() || self.port.is_some()
    }

    /// The server that the options name, else the one in the environment, else the local one.
    ///
    /// # Errors
    /// As [`Self::named`].
    pub fn target(&self) -> Result<Target> {
        match self.named()? {
            Some(target) => Ok(target),
            None => self.complete(default_target()),
        }
    }

    /// Adds user and TLS to a server, and asks for a missing password.
    ///
    /// # Errors
    /// The password cannot be asked for.
    pub fn complete(&self, target: Target) -> Result<Target> {
        self.login.complete(target)
    }
}

impl PortlessServerArgs {
    /// The server that the options name; `None` where none is given. `port` counts for a host without one.
    ///
    /// # Errors
    /// The password cannot be asked for.
    pub fn named(&self, port: Option<u16>) -> Result<Option<Target>> {
        // `--port` is not about the server here, so it cannot contradict the port of the host.
        let port = port.filter(|_| self.address.host.as_deref().is_some_and(|host| !Target::has_port(host)));
        named(&self.address, port, &self.login)
    }
}

impl PortlessServerArgs {
    /// The server that the options name, else the one in the environment; `None` where neither names one.
    ///
    /// # Errors
    /// The password cannot be asked for.
    pub fn named_or_in_environment(&self) -> Result<Option<Target>> {
        match self.named(None)? {
            None if std::env::var_os(VARIABLE).is_some_and(|uri| !uri.is_empty()) => {
                self.login.complete(default_target()).map(Some)
            }
            named => Ok(named),
        }
    }
}

impl LoginArgs {
    /// Whether no option is given.
    fn is_empty(&self) -> bool {
        let Self { username, password, auth_database, tls, tls_ca_file, tls_key_file } = self;
        username.is_none()
            && password.is_none()
            && auth_database.is_none()
            && !tls
            && tls_ca_file.is_none()
            && tls_key_file.is_none()
    }

    fn complete(&self, mut target: Target) -> Result<Target> {
        target.username.clone_from(&self.username);
        target.password =
            self.password.as_ref().map(|secret| secret.0.clone()).filter(|text| !text.is_empty());
        target.auth_database.clone_from(&self.auth_database);
        target.tls = self.tls;
        target.tls_ca_file.clone_from(&self.tls_ca_file);
        target.tls_key_file.clone_from(&self.tls_key_file);
        if let Some(user) = target.user_without_password().map(str::to_owned) {
            target.password = Some(ask(&user)?);
        }
        Ok(target)
    }
}

/// A user or TLS without an address applies to the default server.
fn named(address: &AddressArgs, port: Option<u16>, login: &LoginArgs) -> Result<Option<Target>> {
    let target = match (&address.uri, &address.host) {
        (Some(uri), _) => Target::from(uri),
        (None, Some(host)) => Target::of_host(host, port).map_err(|wrong| usage!("{wrong}"))?,
        (None, None) if login.is_empty() => return Ok(None),
        (None, None) => default_target(),
    };
    login.complete(target).map(Some)
}

/// The server in the environment, else the local one.
fn default_target() -> Target {
    let variable = std::env::var(VARIABLE).ok().filter(|uri| !uri.is_empty());
    Target::from(variable.as_deref().unwrap_or(DEFAULT))
}

/// The last user whose password was asked for, and the password: nobody is asked twice.
static ANSWERED: Mutex<Option<(String, Secret)>> = Mutex::new(None);

/// Asks for a password at the terminal, without showing it.
fn ask(user: &str) -> Result<String> {
    let mut answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, password)) = answered.as_ref().filter(|(known, _)| known == user) {
        return Ok(password.0.clone());
    }
    let password = prompt(user)?;
    *answered = Some((user.to_owned(), Secret(password.clone())));
    Ok(password)
}

fn prompt(user: &str) -> Result<String> {
    match rpassword::prompt_password(format!("Password of {}: ", sonar_view::kit::escape(user))) {
        Ok(password) if password.is_empty() => bail!("no password was given"),
        Ok(password) => Ok(password),
        Err(_) => bail!(
            "the password of {} is missing, and there is no terminal to ask for it: give --password, or the \
             connection string in the environment variable {VARIABLE}",
            sonar_view::kit::escape(user)
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct OptionLine {
        #[command(flatten)]
        server: ServerArgs,
    }

    fn named(arguments: &str) -> Result<Option<Target>> {
        let line = OptionLine::try_parse_from(["x"].into_iter().chain(arguments.split_whitespace()))?;
        line.server.named()
    }

    #[test]
    fn a_server_is_named_as_in_the_tools() {
        for (arguments, uri) in [
            ("--uri mongodb://db1/?tls=true", "mongodb://db1/?tls=true"),
            ("--uri db1:27018", "mongodb://db1:27018"),
            ("--host db1", "mongodb://db1"),
            ("--host db1 --port 5", "mongodb://db1:5"),
            ("--port 27018", "mongodb://localhost:27018"),
            ("--host rs0/a,b:5", "mongodb://a,b:5/?replicaSet=rs0"),
        ] {
            assert_eq!(named(arguments).unwrap().unwrap().uri(), uri, "{arguments}");
        }
        assert_eq!(named("").unwrap(), None);
        assert_eq!(named("--tls").unwrap().unwrap().uri(), "mongodb://localhost:27017", "the default server");
        for wrong in ["--uri a --host b", "--uri a --port 5", "--host a:5 --port 6", "--port 0", "--port x"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }

    #[derive(Parser)]
    struct CaptureWriter {
        #[arg(long)]
        port: Option<u16>,
        #[command(flatten)]
        server: PortlessServerArgs,
    }

    #[test]
    fn a_port_to_capture_counts_for_a_host_without_one() {
        let uri = |arguments: &str| {
            let words = ["x"].into_iter().chain(arguments.split_whitespace());
            let CaptureWriter { port, server } = CaptureWriter::try_parse_from(words).unwrap();
            server.named(port).unwrap().map(|target| target.uri().to_owned())
        };
        for (arguments, expected) in [
            ("--port 5", None),
            ("--port 5 --uri db1", Some("mongodb://db1")),
            ("--port 5 --host db1", Some("mongodb://db1:5")),
            ("--port 5 --host db1:6", Some("mongodb://db1:6")),
            ("--host rs0/a,b", Some("mongodb://a,b/?replicaSet=rs0")),
            ("--port 5 --tls", Some("mongodb://localhost:27017")),
        ] {
            assert_eq!(uri(arguments).as_deref(), expected, "{arguments}");
        }
    }

    #[test]
    fn user_and_tls_are_options_too() {
        let target =
            named("--host a --username dba --password x --authenticationDatabase shop --ssl --tlsCAFile /ca")
                .unwrap()
                .unwrap();
        assert_eq!((target.username.as_deref(), target.password.as_deref()), (Some("dba"), Some("x")));
        assert_eq!((target.auth_database.as_deref(), target.tls), (Some("shop"), true));
        assert_eq!(target.tls_ca_file, Some("/ca".into()));
    }

    #[test]
    fn a_password_is_in_no_debug_output() {
        let line = OptionLine::try_parse_from(["x", "--password", "s3cret"]).unwrap();
        assert!(!format!("{:?}", line.server).contains("s3cret"));
    }
}
