//! The operations that a server works on: the `$currentOp` stage.
//! <https://www.mongodb.com/docs/manual/reference/operator/aggregation/currentOp/>

use bson::{Document, doc};
use sonar_core::Application;

use crate::error::{Result, ServerError};
use crate::server::Server;

/// The role that grants it.
const ROLE: &str = "clusterMonitor";

impl Server {
    /// The operations that it works on now, but for those of mongosonar, and at most `most` of those that run longest: its
    /// reply, as BSON. The commands in it have their values.
    ///
    /// # Errors
    /// The server did not answer in time, or the user may not see other users' operations.
    pub fn running(&self, most: usize) -> Result<Vec<u8>> {
        let command = command(most, self.info().mongos);
        let reply = self.bounded("admin", command, "list the operations that run", ROLE)?;
        bson::serialize_to_vec(&reply).map_err(|_| ServerError::Reply("$currentOp"))
    }
}

fn command(most: usize, is_mongos: bool) -> Document {
    let most = i32::try_from(most).unwrap_or(i32::MAX).max(1);
    let mut stage = doc! { "allUsers": true, "idleConnections": false, "idleSessions": false };
    if is_mongos {
        // Those of the mongos itself, not of the shards behind it.
        stage.insert("localOps", true);
    }
    doc! {
        "aggregate": 1,
        "pipeline": [
            { "$currentOp": stage },
            { "$match": { "active": true, "appName": { "$ne": Application::OWN } } },
            { "$sort": { "microsecs_running": -1 } },
            { "$limit": most },
        ],
        // One batch has them all, and with room left in it the server keeps no cursor.
        "cursor": { "batchSize": most.saturating_add(1) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_operation_is_asked_for_and_of_a_mongos_its_own() {
        let stage = |document: &Document, at: usize| {
            let pipeline = document.get_array("pipeline").unwrap();
            pipeline[at].as_document().unwrap().clone()
        };
        let of_mongod = command(0, false);
        assert_eq!(stage(&of_mongod, 3).get_i32("$limit").unwrap(), 1);
        assert!(stage(&of_mongod, 0).get_document("$currentOp").unwrap().get("localOps").is_none());
        let of_mongos = command(500, true);
        assert!(stage(&of_mongos, 0).get_document("$currentOp").unwrap().get_bool("localOps").unwrap());
        assert_eq!(of_mongos.get_document("cursor").unwrap().get_i32("batchSize").unwrap(), 501);
    }
}
