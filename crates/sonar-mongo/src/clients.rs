//! Who is connected to a server: the `$currentOp` stage with idle connections, or the `currentOp` command on servers
//! without the stage. <https://www.mongodb.com/docs/manual/reference/operator/aggregation/currentOp/>

use std::net::SocketAddr;

use bson::{Bson, Document, doc};
use sonar_core::{Application, Endpoint};

use crate::error::{COMMAND_NOT_FOUND, Error, Result};
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
    /// Every open connection, idle ones too: address and port of the client as the server sees it, and its
    /// application. Connections through a Unix socket have no address and are left out, as are those beyond
    /// [`MAX_CLIENTS`].
    ///
    /// # Errors
    /// The server did not answer, or the user may not see other users' operations.
    pub fn clients(&self) -> Result<Vec<(Endpoint, Application)>> {
        match self.clients_by_stage() {
            Err(error) if error.code().is_some_and(|code| UNSUPPORTED.contains(&code)) => {
                let command = doc! { "currentOp": 1, "$all": true };
                let reply = self.command("admin", command, WHAT)?;
                let operations = reply.get_array("inprog").map_err(|_| Error::Reply("currentOp"))?;
                Ok(operations.iter().take(MAX_CLIENTS).filter_map(client).collect())
            }
            clients => clients,
        }
    }

    fn clients_by_stage(&self) -> Result<Vec<(Endpoint, Application)>> {
        let mut stage = doc! { "allUsers": true, "idleConnections": true };
        if self.info().mongos {
            // Of the mongos itself, not of the shards behind it.
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
            let unreadable = |_| Error::Reply("$currentOp");
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
                // It ends by itself too.
                let _ = self.command("admin", kill, WHAT);
                return Ok(clients);
            }
            let more = doc! { "getMore": id, "collection": "$cmd.aggregate", "batchSize": BATCH };
            reply = self.command("admin", more, WHAT)?;
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_its_address_and_its_application() {
        let of = |document: Document| {
            client(&Bson::Document(document))
                .map(|(client, app)| format!("{client} {} {} {}", app.name, app.driver, app.driver_version))
        };
        let metadata =
            doc! { "application": { "name": "shop" }, "driver": { "name": "nodejs", "version": "6.3" } };
        assert_eq!(
            of(doc! { "client": "10.0.0.9:51234", "appName": "shop", "clientMetadata": metadata.clone() })
                .unwrap(),
            "10.0.0.9:51234 shop nodejs 6.3"
        );
        // Of a mongos, by IPv6; of a server that gives no metadata.
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
