//! What a command is for.

use sonar_core::{Application, Class};

use crate::commands::{self, CommandRule};
use crate::shape::CommandKind;

/// What decides the class of a command.
#[derive(Copy, Clone, Debug)]
pub struct ClassFacts<'a> {
    /// Which command.
    pub kind: CommandKind,
    /// Its name as sent.
    pub command: &'a [u8],
    /// Its database.
    pub database: &'a [u8],
    /// Its collection.
    pub collection: &'a [u8],
}

/// The possible classes of a command: its text is known, but not yet who sends it and whether it waits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CommandClass {
    /// Sent by an application.
    by_application: Class,
    /// Sent by a server.
    by_server: Class,
    /// It asks about the server, not for data: of no user if mongosonar sends it.
    is_about_server: bool,
}

impl CommandClass {
    /// The classes of a command.
    pub fn of(facts: &ClassFacts<'_>) -> Self {
        let class = class_by_name(facts);
        // Commands that name another database are sent to `admin`.
        let is_sent_to_admin = || facts.kind == CommandKind::Other && names_a_database(facts.command);
        let own_database = matches!(facts.database, b"config" | b"local" | b"admin") || is_sent_to_admin();
        let by_server = if class == Class::User && own_database { Class::Internal } else { class };
        let is_about_server =
            class == Class::User && (own_database || is_about_server(facts.command, facts.collection));
        Self { by_application: class, by_server, is_about_server }
    }

    /// The same class, unless mongosonar sends it, to learn about the server that it watches.
    #[inline]
    pub fn sent_by(self, app: &Application, class: Class) -> Class {
        match class {
            Class::User if self.is_about_server && app.is_own() => Class::Monitoring,
            class => class,
        }
    }

    /// The class of the command, by whether a server sends it and whether it waits on purpose.
    #[inline]
    pub fn class(self, from_server: bool, waits: bool) -> Class {
        match (self.by_application, waits) {
            (Class::Replication, _) => Class::Replication,
            (_, true) => Class::Waiting,
            _ if from_server => self.by_server,
            (class, _) => class,
        }
    }
}

fn is_about_server(command: &[u8], collection: &[u8]) -> bool {
    collection == b"system.profile"
        || matches!(command, b"collStats" | b"dbStats" | b"listCollections" | b"listIndexes" | b"profile")
}

fn names_a_database(command: &[u8]) -> bool {
    commands::rule(command).is_some_and(CommandRule::names_a_database)
}

/// The class of a command that an application sends, and that does not wait.
fn class_by_name(facts: &ClassFacts<'_>) -> Class {
    let ClassFacts { kind, command, database, collection } = *facts;
    if database == b"local" && (collection == b"oplog.rs" || collection == b"oplog.$main")
        || (command.starts_with(b"replSet") && command != b"replSetGetStatus")
    {
        return Class::Replication;
    }
    match command {
        b"hello" | b"isMaster" | b"ismaster" | b"ping" | b"buildInfo" | b"buildinfo" | b"serverStatus"
        | b"getCmdLineOpts" | b"hostInfo" | b"top" | b"getLog" | b"connectionStatus" | b"whatsmyuri"
        | b"getParameter" | b"features" | b"isdbgrid" | b"currentOp" | b"getDiagnosticData"
        | b"connPoolStats" | b"replSetGetStatus" => return Class::Monitoring,
        b"saslStart"
        | b"saslContinue"
        | b"authenticate"
        | b"getnonce"
        | b"logout"
        | b"endSessions"
        | b"refreshSessions"
        | b"startSession"
        | b"killSessions"
        | b"killAllSessions"
        | b"refreshSessionsInternal"
        | b"getShardMap"
        | b"setShardVersion"
        | b"splitVector"
        | b"splitChunk"
        | b"moveChunk"
        | b"getShardVersion" => {
            return Class::Internal;
        }
        _ => {}
    }
    let internal_command = command.first() == Some(&b'_') && kind == CommandKind::Other;
    if internal_command || collection == b"system.sessions" { Class::Internal } else { Class::User }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(command: &str, namespace: &str) -> CommandClass {
        let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        CommandClass::of(&ClassFacts {
            kind: CommandKind::of(command.as_bytes()),
            command: command.as_bytes(),
            database: database.as_bytes(),
            collection: collection.as_bytes(),
        })
    }

    #[test]
    fn what_mongosonar_asks_a_server_is_monitoring() {
        let of = |command, namespace, name: &str| {
            let classes = classes(command, namespace);
            let app = Application { name: name.into(), ..Application::default() };
            classes.sent_by(&app, classes.class(false, false))
        };
        for (command, namespace) in
            [("aggregate", "admin"), ("collStats", "shop.orders"), ("find", "shop.system.profile")]
        {
            assert_eq!(of(command, namespace, Application::OWN), Class::Monitoring, "{command}");
            assert_eq!(of(command, namespace, "shop-api"), Class::User, "{command}");
        }
        // What it does to the data of users is theirs, as for `io reorder`.
        assert_eq!(of("aggregate", "shop.orders", Application::OWN), Class::User);
        assert_eq!(of("insert", "shop.orders", Application::OWN), Class::User);
    }

    #[test]
    fn commands_are_distinguished_by_purpose() {
        let of =
            |command, namespace, from_server, waits| classes(command, namespace).class(from_server, waits);
        assert_eq!(of("find", "shop.orders", false, false), Class::User);
        assert_eq!(of("find", "shop.orders", true, false), Class::User);
        assert_eq!(of("getMore", "local.oplog.rs", true, true), Class::Replication);
        assert_eq!(of("getMore", "shop.orders", false, true), Class::Waiting);
        assert_eq!(of("hello", "admin", false, true), Class::Waiting);
        assert_eq!(of("hello", "admin", false, false), Class::Monitoring);
        assert_eq!(of("find", "config.chunks", true, false), Class::Internal);
        assert_eq!(of("find", "config.chunks", false, false), Class::User);
        assert_eq!(of("_configsvrAddShard", "admin", true, false), Class::Internal);
        assert_eq!(of("replSetHeartbeat", "admin", true, false), Class::Replication);
        assert_eq!(of("replSetGetStatus", "admin", false, false), Class::Monitoring);
    }
}
