//! What a command is for.

use sonar_core::Class;

use crate::shape::CommandKind;

/// What decides the class of a command.
#[derive(Copy, Clone, Debug)]
pub struct Facts<'a> {
    /// Which command.
    pub kind: CommandKind,
    /// Its name as sent.
    pub command: &'a [u8],
    /// Its database.
    pub database: &'a [u8],
    /// Its collection.
    pub collection: &'a [u8],
    /// The client is a server.
    pub from_server: bool,
    /// It waits on purpose.
    pub waits: bool,
}

/// The class of a command.
pub fn class_of(facts: &Facts<'_>) -> Class {
    let Facts { kind, command, database, collection, from_server, waits } = *facts;
    if database == b"local" && (collection == b"oplog.rs" || collection == b"oplog.$main")
        || (command.starts_with(b"replSet") && command != b"replSetGetStatus")
    {
        return Class::Replication;
    }
    if waits {
        return Class::Waiting;
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
    let own_database = matches!(database, b"config" | b"local" | b"admin");
    if internal_command || (from_server && own_database) || collection == b"system.sessions" {
        return Class::Internal;
    }
    Class::User
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_apart_by_what_they_are_for() {
        let of = |command: &'static str, namespace: &'static str, from_server, waits| {
            let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
            class_of(&Facts {
                kind: CommandKind::of(command.as_bytes()),
                command: command.as_bytes(),
                database: database.as_bytes(),
                collection: collection.as_bytes(),
                from_server,
                waits,
            })
        };
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
