//! Collections, indexes and servers for which a collection cannot be rewritten.

use bson::{Bson, Document, doc};

use super::collection::CollectionSpec;
use crate::error::{Result, ServerError};
use crate::server::Server;

/// Fails with why it is refused.
pub(super) fn refused<T>(why: String) -> Result<T> {
    Err(ServerError::Refused(why))
}

/// Refuses what belongs to the server itself.
pub(super) fn refuse_own(namespace: &str, database: &str, collection: &str) -> Result<()> {
    if ["admin", "config", "local"].contains(&database) || collection.starts_with("system.") {
        return refused(format!("{namespace} belongs to the server"));
    }
    Ok(())
}

/// Refuses views, time series, capped and clustered collections.
pub(super) fn refuse_kind(namespace: &str, spec: &CollectionSpec) -> Result<()> {
    let CollectionSpec { kind, options, .. } = spec;
    if kind != "collection"
        || options.get_bool("capped").unwrap_or(false)
        || options.contains_key("clusteredIndex")
    {
        return refused(format!("{namespace} is no plain collection: it cannot be rewritten by copying"));
    }
    Ok(())
}

/// Refuses an index that does not hold each document, or that has no order.
pub(super) fn refuse_unordered(index: &Document) -> Result<()> {
    let key = index.get_document("key");
    let is_ordered =
        key.as_ref().is_ok_and(|key| key.values().all(|direction| !matches!(direction, Bson::String(_))));
    let is_partial =
        index.contains_key("partialFilterExpression") || index.get_bool("sparse").unwrap_or(false);
    if is_partial || !is_ordered || key.is_ok_and(|key| key.keys().any(|field| field.contains("$**"))) {
        let name = index.get_str("name").unwrap_or_default();
        return refused(format!("the index {name} does not hold each document in an order: choose another"));
    }
    Ok(())
}

impl Server {
    /// Refuses a secondary: it cannot be written to.
    pub(super) fn refuse_secondary(&self) -> Result<()> {
        if self.info().secondary {
            return refused(format!(
                "{} is a secondary: connect to the primary (no readPreference in the URI)",
                self.info().address
            ));
        }
        Ok(())
    }

    /// Refuses a collection in a sharded cluster, behind a mongos or on a member of a shard, and suggests what to do
    /// there.
    pub(super) fn refuse_cluster(&self, namespace: &str, stats: &Document) -> Result<()> {
        let behind = self.info().mongos;
        let sharded = stats.get_bool("sharded").unwrap_or(false);
        if !behind && !sharded && !self.in_cluster()? {
            return Ok(());
        }
        let which = match (behind, sharded) {
            (_, true) => format!("{namespace} is sharded"),
            (true, false) => format!("{namespace} is behind a mongos"),
            (false, false) => format!("{} is a member of a sharded cluster", self.info().address),
        };
        refused(format!(
            "{which}: there a collection cannot be replaced from outside, and on a shard's own member the cluster would not \
             know of it. What helps: while nothing writes to it, and with the balancer off, make a collection beside it \
             through the mongos (sharded by the same key and with the same chunks, if it is sharded), fill it in order \
             (find with hint and sort, insertMany), make its indexes, and rename it over the old one (renameCollection with \
             dropTarget; of sharded collections from MongoDB 5.0 on). An initial sync does not help: it copies in the \
             order that there is"
        ))
    }

    /// Whether this mongod belongs to a sharded cluster. If the user may not ask, the fields that members of shards
    /// add to each reply show it.
    fn in_cluster(&self) -> Result<bool> {
        let state = self.ask("admin", doc! { "shardingState": 1 }, "ask for its cluster");
        if state.is_ok_and(|state| state.get_bool("enabled").unwrap_or(false)) {
            return Ok(true);
        }
        let hello = self.ask("admin", doc! { "hello": 1 }, "ask for its cluster")?;
        Ok(["configsvr", "$gleStats", "$configServerState"].iter().any(|mark| hello.contains_key(mark)))
    }
}
