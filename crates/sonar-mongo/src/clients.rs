//! The clients of a server: by the `$currentOp` stage with idle connections, or by the `currentOp` command on servers
//! without that stage. <https://www.mongodb.com/docs/manual/reference/operator/aggregation/currentOp/>

use std::net::SocketAddr;

use bson::{Bson, Document, doc};
use sonar_core::{Application, Endpoint};

use crate::error::{COMMAND_NOT_FOUND, Result, ServerError};
use crate::server::Server;

/// The most connections to read from one server.
pub const MAX_CLIENTS: usize = 100_000;
/// Connections in one batch.
const BATCH: i32 = 1_000;
/// An aggregation stage that the server does not know.
const UNKNOWN_STAGE: i32 = 40_324;
/// The server does not know the command.
const UNSUPPORTED: [i32; 3] = [COMMAND_NOT_FOUND, UNKNOWN_STAGE, 238];

impl Server {
    /// Every open connection, including idle ones: address and port of the client as the server sees it, and its
    /// application. Leaves out connections through a Unix socket, which have no address, and those beyond
    /// [`MAX_CLIENTS`].
    ///
    /// # Errors
    /// The server did not answer, or the user may not see other users' operations.
    pub fn clients(&self) -> Result<Vec<(Endpoint, Application)>> {
        match self.clients_by_stage() {
            Err(error) if error.code().is_some_and(|code| UNSUPPORTED.contains(&code)) => {
                let command = doc! { "currentOp": 1, "$all": true };
                let reply = self.command("admin", command, WHAT)?;
                let operations = reply.get_array("inprog").map_err(|_| ServerError::Reply("currentOp"))?;
                Ok(operations.iter().take(MAX_CLIENTS).filter_map(client).collect())
            }
            clients => clients,
        }
    }

    fn clients_by_stage(&self) -> Result<Vec<(Endpoint, Application)>> {
        let mut stage = doc! { "allUsers": true, "idleConnections": true };
        if self.info().mongos {
            // That of the mongos itself, not of the shards behind it.
            stage.insert("localOps", true);
        }
        let fields = doc! { "client": 1, "client_s": 1, "appName": 1, "clientMetadata": 1 };
        let mut reply = self.command(
            "admin",
            doc! {
                "aggregate": 1,
                "pipeline": [{ "$currentOp": stage }, { "$project": fields }],
                "cursor": { "batchSize": BATCH },
            },
            WHAT,
        )?;
        let mut clients = Vec::new();
        loop {
            let unreadable = |_| ServerError::Reply("$currentOp");
            let cursor = reply.get_document("cursor").map_err(unreadable)?;
            let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
            let batch = batch.map_err(unreadable)?;
            let room = MAX_CLIENTS - clients.len();
            clients.extend(batch.iter().filter_map(client).take(room));
            let id = cursor.get_i64("id").map_err(unreadable)?;
            if id == 0 {
                return Ok(clients);
            }
            if batch.is_empty() || clients.len() >= MAX_CLIENTS {
                let kill = doc! { "killCursors": "$cmd.aggregate", "cursors": [id] };
                // The server also ends it.
                let _ = self.command("admin", kill, WHAT);
                return Ok(clients);
            }
            let more = doc! { "getMore": id, "collection": "$cmd.aggregate", "batchSize": BATCH };
            reply = self.command("admin", more, WHAT)?;
        }
    }
}

/// The driver inside of servers, as they name it since 4.4 when they connect to each other.
const INTERNAL_DRIVER: &str = "MongoDB Internal Client";

const WHAT: &str = "list the connections";

/// Address and application of one connection; `None` if it is not a client's.
fn client(operation: &Bson) -> Option<(Endpoint, Application)> {
    let operation = operation.as_document()?;
    let text = |document: &Document, key: &str| {
        let text = document.get_str(key).unwrap_or_default();
        text.chars().take(255).collect::<String>().into_boxed_str()
    };
    // `client_s` is the client of a mongos.
    let address = ["client", "client_s"].into_iter().find_map(|key| operation.get_str(key).ok())?;
    let address: SocketAddr = address.parse().ok()?;
    let empty = Document::new();
    let part = |name: &str| {
        operation
            .get_document("clientMetadata")
            .and_then(|metadata| metadata.get_document(name))
            .unwrap_or(&empty)
    };
    if let Some(app) = mongos(part("mongos"), address) {
        return Some((address.into(), app));
    }
    let name = match text(part("application"), "name") {
        name if name.is_empty() => text(operation, "appName"),
        name => name,
    };
    let app = Application {
        name,
        driver: text(part("driver"), "name"),
        driver_version: text(part("driver"), "version"),
        joined_late: false,
    };
    Some((address.into(), app))
}

/// The mongos on a connection, if it is one. A request that it passes on to a shard has the metadata of its own
/// client, with a part about the mongos, but the address of the mongos. On the mongos itself the metadata has that
/// part too, and the address is that of the connection.
fn mongos(part: &Document, address: SocketAddr) -> Option<Application> {
    let behind: SocketAddr = part.get_str("client").ok()?.parse().ok()?;
    let version = part.get_str("version").unwrap_or_default();
    (behind != address).then(|| Application {
        name: Box::default(),
        driver: INTERNAL_DRIVER.into(),
        driver_version: version.chars().take(255).collect::<String>().into_boxed_str(),
        joined_late: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_passed_on_by_a_mongos_is_a_connection_of_the_mongos() {
        let of = |address: &str| {
            let operation = doc! {
                "client": address,
                "appName": "shop",
                "clientMetadata": {
                    "application": { "name": "shop" },
                    "driver": { "name": "nodejs", "version": "6.3" },
                    "mongos": { "host": "router:27017", "client": "10.0.0.9:51234", "version": "7.0.5" },
                },
            };
            client(&Bson::Document(operation)).map(shown).unwrap()
        };
        // On a shard; on the mongos.
        assert_eq!(of("10.0.0.3:40000"), "10.0.0.3:40000  MongoDB Internal Client 7.0.5");
        assert_eq!(of("10.0.0.9:51234"), "10.0.0.9:51234 shop nodejs 6.3");
    }

    fn shown((client, app): (Endpoint, Application)) -> String {
        format!("{client} {} {} {}", app.name, app.driver, app.driver_version)
    }

    #[test]
    fn a_connection_has_an_address_and_an_application() {
        let of = |document: Document| client(&Bson::Document(document)).map(shown);
        let metadata =
            doc! { "application": { "name": "shop" }, "driver": { "name": "nodejs", "version": "6.3" } };
        assert_eq!(
            of(doc! { "client": "10.0.0.9:51234", "appName": "shop", "clientMetadata": metadata.clone() })
                .unwrap(),
            "10.0.0.9:51234 shop nodejs 6.3"
        );
        // A mongos with IPv6; a server without metadata.
        assert_eq!(
            of(doc! { "client_s": "[::1]:5", "clientMetadata": metadata }).unwrap(),
            "[::1]:5 shop nodejs 6.3"
        );
        assert_eq!(of(doc! { "client": "10.0.0.9:1", "appName": "old" }).unwrap(), "10.0.0.9:1 old  ");
        assert_eq!(of(doc! { "client": "anonymous unix socket" }), None);
        assert_eq!(of(doc! { "desc": "TTLMonitor" }), None);
        assert_eq!(of(doc! { "client": 5 }), None);
    }
}
