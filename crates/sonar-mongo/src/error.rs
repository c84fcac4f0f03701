//! Errors, with messages that suggest what to do.

use mongodb::error::{Error as Driver, ErrorKind, WriteFailure};

use crate::unreachable::{ReachObstacle, Unreachable, plain};

/// Result of a request to a server.
pub type Result<T> = std::result::Result<T, ServerError>;

/// Why a request failed. Each message names one cause, once, and the next step if there is one.
#[derive(thiserror::Error, Debug)]
pub enum ServerError {
    /// The connection string, or an option, cannot be used.
    #[error("the connection string cannot be used: {0}")]
    ConnectionString(String),
    /// No server was reached.
    #[error("{0}")]
    Unreachable(Unreachable),
    /// The server is too old for the driver.
    #[error(
        "{server} is MongoDB {version}, older than MongoDB 4.4, the oldest that mongosonar connects to; set its profiler \
         in the shell, and read what it wrote with `mongosonar profiler report FILE`"
    )]
    TooOld {
        /// Its address.
        server: String,
        /// Its version, derived from its wire version.
        version: String,
    },
    /// The server is too new for the driver.
    #[error("{0} speaks only a newer protocol than this mongosonar; update mongosonar")]
    TooNew(String),
    /// Name or password were refused.
    #[error(
        "authentication failed: the password is wrong, or the user is not known in this authentication database \
         (authSource, --authenticationDatabase)"
    )]
    Authentication,
    /// Authentication failed for a reason that the server or the driver gives.
    #[error("authentication failed: {0}")]
    Mechanism(String),
    /// The server requires authentication.
    #[error("the server requires a user; give --username, or mongodb://NAME:PASSWORD@HOST")]
    Nobody,
    /// The user may not do this.
    #[error("the user is not authorized to {what}; grant the role {role}")]
    Unauthorized {
        /// What was to be done.
        what: String,
        /// A built-in role that grants it.
        role: &'static str,
    },
    /// The server knows no `profile` command.
    #[error("{0} has no profiler")]
    NoProfiler(String),
    /// The server is a mongos.
    #[error(
        "{0} is a mongos, which has no profiler: operations are profiled by the mongod of each shard; connect to those"
    )]
    Mongos(String),
    /// The server cannot do it.
    #[error("{server} (MongoDB {version}) has no {what}, which came with {since}")]
    NotSupported {
        /// Its address.
        server: String,
        /// Its version.
        version: String,
        /// What was requested.
        what: &'static str,
        /// The version that has it.
        since: &'static str,
    },
    /// It was refused, and why.
    #[error("{0}")]
    Refused(String),
    /// A filter is not a find expression.
    #[error("the filter is no find expression in JSON: {0}")]
    Filter(String),
    /// The database to create exists.
    #[error(
        "the database {0} exists on the server; this makes a database of its own and drops it at the end, so it never \
         uses one that is there: name another with --db"
    )]
    DatabaseExists(String),
    /// A named database does not exist.
    #[error("the server has no database {0}")]
    NoDatabase(String),
    /// The runtime could not be started.
    #[error("cannot start the driver's runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// A command failed.
    #[error("cannot {what}: {reason}")]
    Command {
        /// What was to be done.
        what: String,
        /// The server's message.
        reason: String,
        /// The server's code; 0 if it gave none.
        code: i32,
    },
    /// A reply lacks a required field.
    #[error("the server's reply to {0} cannot be read")]
    Reply(&'static str),
    /// The connection was lost, or the server is starting or stopping.
    #[error("cannot {what}: {reason}")]
    Lost {
        /// What was to be done.
        what: String,
        /// What happened.
        reason: String,
    },
    /// It was stopped before the end.
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

impl ServerError {
    /// From an error of the driver, during `what` (`read the version`); `role` grants it.
    pub(crate) fn of(what: impl Into<String>, role: &'static str, error: &Driver) -> Self {
        let what = what.into();
        match &*error.kind {
            ErrorKind::Command(command) => Self::of_reply(what, role, command.code, &command.message),
            ErrorKind::Write(WriteFailure::WriteError(write)) => {
                Self::of_reply(what, role, write.code, &write.message)
            }
            ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
                Self::of_reply(what, role, concern.code, &concern.message)
            }
            ErrorKind::InsertMany(many) => {
                let write = many.write_errors.as_ref().and_then(|errors| errors.first());
                let write = write.map(|write| (write.code, write.message.as_str()));
                let concern = many.write_concern_error.as_ref();
                let concern = concern.map(|concern| (concern.code, concern.message.as_str()));
                let (code, message) = write.or(concern).unwrap_or((0, "the server refused the write"));
                Self::of_reply(what, role, code, message)
            }
            ErrorKind::BulkWrite(_) => {
                Self::Command { what, reason: "the server refused the write".to_owned(), code: 0 }
            }
            ErrorKind::Authentication { message, .. } => Self::of_authentication(message),
            ErrorKind::InvalidArgument { message, .. } | ErrorKind::InvalidTlsConfig { message, .. } => {
                Self::ConnectionString(plain(message))
            }
            ErrorKind::DnsResolve { .. } => {
                Self::Unreachable(Unreachable::new("the cluster", ReachObstacle::UnknownHost))
            }
            ErrorKind::ServerSelection { .. } => Self::Unreachable(Unreachable::gone()),
            ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => {
                Self::Lost { what, reason: "the connection to the server was lost".to_owned() }
            }
            ErrorKind::InvalidResponse { .. } => {
                Self::Command { what, reason: "the server's reply cannot be read".to_owned(), code: 0 }
            }
            other => Self::Command { what, reason: plain(&other.to_string()), code: 0 },
        }
    }

    /// From a server's reply: its code and message.
    fn of_reply(what: String, role: &'static str, code: i32, message: &str) -> Self {
        match code {
            UNAUTHORIZED if message.contains("requires authentication") => Self::Nobody,
            UNAUTHORIZED => Self::Unauthorized { what, role },
            AUTHENTICATION_FAILED => Self::of_authentication(message),
            code if PASSING.contains(&code) => Self::Lost { what, reason: plain(message) },
            code => Self::Command { what, reason: plain(message), code },
        }
    }

    fn of_authentication(message: &str) -> Self {
        // Servers and the driver state no more than this if the password or the user is wrong.
        if message.contains("uthentication fail") {
            return Self::Authentication;
        }
        let text =
            ["SCRAM failure: ", "SASL failure: "].iter().find_map(|prefix| message.strip_prefix(prefix));
        Self::Mechanism(plain(text.unwrap_or(message)))
    }

    /// Whether it may pass by itself: the connection was lost, or no server answers at the moment.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Lost { .. } => true,
            Self::Unreachable(why) => why.is_passing(),
            _ => false,
        }
    }

    /// The server's code of a command that failed.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Command { code, .. } => Some(*code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A reply of a server, as an error of the driver.
    fn reply(code: i32, message: &str) -> Driver {
        let reply = bson::doc! { "code": code, "codeName": "Name", "errmsg": message };
        let command: mongodb::error::CommandError = bson::deserialize_from_document(reply).unwrap();
        ErrorKind::Command(command).into()
    }

    #[test]
    fn each_refusal_of_a_server_has_its_own_words() {
        let shell = "not authorized on shop to execute command { profile: -1, lsid: { id: UUID(\"1\") }, $db: \"shop\" }";
        for (code, message, expected) in [
            (
                13,
                "command profile requires authentication",
                "the server requires a user; give --username, or mongodb://NAME:PASSWORD@HOST",
            ),
            (13, shell, "the user is not authorized to read the profiler of shop; grant the role dbAdmin"),
            (
                18,
                "Authentication failed.",
                "authentication failed: the password is wrong, or the user is not known in this authentication database (authSource, --authenticationDatabase)",
            ),
            (
                334,
                "Mechanism X is not supported",
                "cannot read the profiler of shop: Mechanism X is not supported",
            ),
            (
                91,
                "The server is in quiesce mode",
                "cannot read the profiler of shop: The server is in quiesce mode",
            ),
            (2, "BadValue\n\u{1b}[2J", "cannot read the profiler of shop: BadValue  [2J"),
        ] {
            let error = ServerError::of("read the profiler of shop", "dbAdmin", &reply(code, message));
            assert_eq!(error.to_string(), expected);
        }
        assert!(ServerError::of("x", "y", &reply(189, "stepped down")).is_passing());
        assert!(!ServerError::of("x", "y", &reply(18, "Authentication failed.")).is_passing());
    }

    #[test]
    fn no_debug_output_of_the_driver_is_shown() {
        let io = |kind| Driver::from(io::Error::from(kind));
        let lost =
            ServerError::of("set the profiler of shop", "dbAdmin", &io(io::ErrorKind::ConnectionReset));
        assert_eq!(
            lost.to_string(),
            "cannot set the profiler of shop: the connection to the server was lost"
        );
        assert!(lost.is_passing());
        assert_eq!(
            ServerError::of_authentication("SCRAM failure: Authentication failed.").to_string(),
            ServerError::Authentication.to_string()
        );
        assert_eq!(
            ServerError::of_authentication("SCRAM failure: no password").to_string(),
            "authentication failed: no password"
        );
    }
}
