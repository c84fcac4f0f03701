//! What can go wrong, said so that a person knows what to do.

use mongodb::error::{Error as Driver, ErrorKind};

/// Result of talking to a server.
pub type Result<T> = std::result::Result<T, Error>;

/// Why it could not be done.
#[derive(thiserror::Error, Debug)]
pub enum Error {
    /// The connection string cannot be used.
    #[error("the connection string cannot be used: {0}")]
    ConnectionString(String),
    /// No server was reached.
    #[error("no server was reached: {0}")]
    Unreachable(String),
    /// The server is older than what the driver speaks with.
    #[error(
        "the server is older than MongoDB 4.4, which the official driver no longer speaks with ({0}); set its profiler \
         with the shell, and read what it wrote with `mongosonar profiler report FILE`"
    )]
    TooOld(String),
    /// Whatever listens there ends each connection at once.
    #[error(
        "no server was reached: connections are ended at the first message, as servers older than MongoDB 4.4 (which \
         the official driver no longer speaks with: read what their profiler wrote with `mongosonar profiler report \
         FILE`), servers that want TLS and servers that are starting do: {0}"
    )]
    HangsUp(String),
    /// Name or password were refused.
    #[error(
        "the server refused to authenticate: {0}; look at name, password (`:/?#[]@%` in them as %XX) and `authSource`, \
         the database that knows the user"
    )]
    Authentication(String),
    /// The server wants to know who asks.
    #[error("the server wants to know who asks ({0}): give name and password, mongodb://NAME:PASSWORD@HOST")]
    Nobody(String),
    /// The user may not do this.
    #[error("the user may not {what}: {said}; the role {role} grants it")]
    Unauthorized {
        /// What was to be done.
        what: String,
        /// The server's words.
        said: String,
        /// A built-in role that grants it.
        role: &'static str,
    },
    /// The server knows no `profile` command.
    #[error("{server} has no profiler: {said}")]
    NoProfiler {
        /// Product and address.
        server: String,
        /// The server's words.
        said: String,
    },
    /// The server is a mongos.
    #[error(
        "{0} is a mongos, which has no profiler: operations are profiled by the mongod of each shard; connect to those"
    )]
    Mongos(String),
    /// The server cannot do what was asked.
    #[error("{server} (MongoDB {version}) has no {what}, which came with {since}")]
    NotSupported {
        /// Its address.
        server: String,
        /// Its version.
        version: String,
        /// What was asked for.
        what: &'static str,
        /// Which version has it.
        since: &'static str,
    },
    /// It is not done, and why.
    #[error("{0}")]
    Refused(String),
    /// A filter is no find expression.
    #[error("the filter is no find expression in JSON: {0}")]
    Filter(String),
    /// The database that would be made exists.
    #[error(
        "the database {0} exists on the server; this makes a database of its own and drops it at the end, so it never \
         uses one that is there: name another with --db"
    )]
    DatabaseExists(String),
    /// A database was named that does not exist.
    #[error("the server has no database {0}")]
    NoDatabase(String),
    /// The runtime could not be started.
    #[error("cannot start the driver's runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// A command failed.
    #[error("{what}: {said}")]
    Command {
        /// What was to be done.
        what: String,
        /// The server's words.
        said: String,
        /// The server's code; 0 when it gave none.
        code: i32,
    },
    /// A reply did not hold what it must.
    #[error("the server's reply to {0} cannot be read")]
    Reply(&'static str),
    /// The connection was lost, or the server is going or coming.
    #[error("{what}: connection lost: {said}")]
    Lost {
        /// What was to be done.
        what: String,
        /// What happened.
        said: String,
    },
    /// It was stopped before it was done.
    #[error("stopped")]
    Stopped,
}

/// CommandNotFound.
pub(crate) const COMMAND_NOT_FOUND: i32 = 59;
/// NamespaceNotFound.
pub(crate) const NAMESPACE_NOT_FOUND: i32 = 26;
/// Unauthorized.
pub(crate) const UNAUTHORIZED: i32 = 13;
/// AuthenticationFailed.
const AUTHENTICATION_FAILED: i32 = 18;
/// Codes that mean "not now, maybe soon or elsewhere": HostUnreachable, HostNotFound, NetworkTimeout,
/// ShutdownInProgress, PrimarySteppedDown, SocketException, NotWritablePrimary,
/// InterruptedAtShutdown, InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk,
/// NotPrimaryOrSecondary (`src/mongo/base/error_codes.yml`, category RetriableError).
const PASSING: [i32; 11] = [6, 7, 89, 91, 189, 9001, 10107, 11600, 11602, 13435, 13436];

impl Error {
    /// Of the driver, while `what` was done; `role` grants it.
    pub(crate) fn of(what: impl Into<String>, role: &'static str, error: &Driver) -> Self {
        let what = what.into();
        match &*error.kind {
            ErrorKind::Command(command)
                if command.code == UNAUTHORIZED && command.message.contains("requires authentication") =>
            {
                Self::Nobody(command.message.clone())
            }
            ErrorKind::Command(command) if command.code == UNAUTHORIZED => {
                Self::Unauthorized { what, said: command.message.clone(), role }
            }
            ErrorKind::Command(command) if command.code == AUTHENTICATION_FAILED => {
                Self::Authentication(command.message.clone())
            }
            ErrorKind::Command(command) if PASSING.contains(&command.code) => {
                Self::Lost { what, said: command.message.clone() }
            }
            ErrorKind::Command(command) => {
                Self::Command { what, said: command.message.clone(), code: command.code }
            }
            ErrorKind::Authentication { message, .. } => Self::Authentication(message.clone()),
            ErrorKind::InvalidArgument { message, .. } => Self::ConnectionString(message.clone()),
            ErrorKind::InvalidTlsConfig { message, .. } => Self::ConnectionString(message.clone()),
            ErrorKind::DnsResolve { message, .. } => Self::Unreachable(message.clone()),
            ErrorKind::ServerSelection { message, .. } if message.contains("wire version") => {
                Self::TooOld(message.clone())
            }
            // Servers before 3.6 do not know OP_MSG and hang up at the first one.
            ErrorKind::ServerSelection { message, .. } if message.contains("unexpected end of file") => {
                Self::HangsUp(message.clone())
            }
            ErrorKind::ServerSelection { message, .. } => Self::Unreachable(message.clone()),
            ErrorKind::Io(io) => Self::Lost { what, said: io.to_string() },
            ErrorKind::ConnectionPoolCleared { message, .. } => Self::Lost { what, said: message.clone() },
            other => Self::Command { what, said: other.to_string(), code: 0 },
        }
    }

    /// Whether it may pass by itself: the connection was lost, or no server is there just now.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Unreachable(_) | Self::HangsUp(_))
    }

    /// The server's code of a command that failed.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Command { code, .. } => Some(*code),
            _ => None,
        }
    }
}
