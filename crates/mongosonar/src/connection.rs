//! Which server a command talks to: the options that MongoDB's own tools have for it.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use sonar_mongo::Target;

use crate::exit::usage;

/// Where the connection string is looked for when no option names a server. It shows in no list of processes.
const VARIABLE: &str = "MONGOSONAR_URI";
/// The default of MongoDB's own tools.
const DEFAULT: &str = "localhost:27017";

/// The server to ask, named as in `mongodump` and `mongostat`.
#[derive(Args, Debug, Default, Clone)]
pub struct ServerArgs {
    /// The server: a connection string (mongodb://… or mongodb+srv://…, with all options of the drivers), or host:port
    #[arg(long, value_name = "URI", conflicts_with_all = ["host", "port"], help_heading = "Server")]
    pub uri: Option<String>,
    /// The server's host, also host:port, or of a replica set NAME/host1,host2
    #[arg(long, value_name = "HOST", help_heading = "Server")]
    pub host: Option<String>,
    /// The server's port [default: 27017]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Server")]
    pub port: Option<u16>,
    /// User name; without a password you are asked for it
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub username: Option<String>,
    /// Password; without a value you are asked for it
    #[arg(long, value_name = "PASSWORD", num_args = 0..=1, default_missing_value = "", help_heading = "Server")]
    pub password: Option<Secret>,
    /// Database that knows the user [default: admin, or what the connection string says]
    #[arg(
        long = "authenticationDatabase",
        alias = "authentication-database",
        value_name = "NAME",
        help_heading = "Server"
    )]
    pub auth_database: Option<String>,
    /// Use TLS
    #[arg(long, alias = "ssl", help_heading = "Server")]
    pub tls: bool,
    /// Certificates of the authorities to trust (PEM) [default: the public ones]
    #[arg(long = "tlsCAFile", aliases = ["tls-ca-file", "sslCAFile"], value_name = "FILE", help_heading = "Server")]
    pub tls_ca_file: Option<PathBuf>,
    /// Certificate and key to show to the server (PEM)
    #[arg(
        long = "tlsCertificateKeyFile",
        aliases = ["tls-certificate-key-file", "sslPEMKeyFile"],
        value_name = "FILE",
        help_heading = "Server"
    )]
    pub tls_key_file: Option<PathBuf>,
}

/// A password. It appears in no debug output.
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
    /// The server that the options name; `None` where no option does.
    ///
    /// # Errors
    /// Options contradict each other, or the password cannot be asked for.
    pub fn named(&self) -> Result<Option<Target>> {
        let target = match (&self.uri, &self.host, self.port) {
            (Some(uri), ..) => Target::from(uri),
            (None, Some(host), port) => Target::of_host(host, port).map_err(|wrong| usage!("{wrong}"))?,
            (None, None, Some(port)) => Target::from(format!("localhost:{port}")),
            (None, None, None) => return Ok(None),
        };
        self.complete(target).map(Some)
    }

    /// The server that the options name, else the one in the environment, else the local one.
    ///
    /// # Errors
    /// Those of [`Self::named`].
    pub fn target(&self) -> Result<Target> {
        if let Some(target) = self.named()? {
            return Ok(target);
        }
        let variable = std::env::var(VARIABLE).ok().filter(|uri| !uri.is_empty());
        self.complete(Target::from(variable.as_deref().unwrap_or(DEFAULT)))
    }

    /// Adds user and TLS to a server, and asks for the password where one is missing.
    ///
    /// # Errors
    /// The password cannot be asked for.
    pub fn complete(&self, mut target: Target) -> Result<Target> {
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

/// Asks for a password at the terminal, without showing it.
fn ask(user: &str) -> Result<String> {
    match rpassword::prompt_password(format!("Password of {}: ", sonar_view::text::escape(user))) {
        Ok(password) if password.is_empty() => bail!("no password was given"),
        Ok(password) => Ok(password),
        Err(_) => bail!(
            "the password of {} is missing, and there is no terminal to ask for it: give --password, or the \
             connection string in the environment variable {VARIABLE}",
            sonar_view::text::escape(user)
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        server: ServerArgs,
    }

    fn named(arguments: &str) -> Result<Option<Target>> {
        let line = Line::try_parse_from(["x"].into_iter().chain(arguments.split_whitespace()))?;
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
        for wrong in ["--uri a --host b", "--uri a --port 5", "--host a:5 --port 6", "--port 0", "--port x"] {
            assert!(named(wrong).is_err(), "{wrong}");
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
        let line = Line::try_parse_from(["x", "--password", "s3cret"]).unwrap();
        assert!(!format!("{:?}", line.server).contains("s3cret"));
    }
}
