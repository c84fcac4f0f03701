//! A collection that is rewritten: how it is read and written, its options and indexes, and the names of its copies.

use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Collection;
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern};

use crate::error::{Result, ServerError};
use crate::server::Server;

/// Suffix of the copy's name.
pub(super) const COPY: &str = "_mongosonar_copy";
/// Suffix of the original, from when the copy takes its name until it is dropped.
pub(super) const BEFORE: &str = "_mongosonar_before";
/// Suffix of a collection that had the name when the original took it back, if it has other documents.
pub(super) const WRITTEN: &str = "_mongosonar_written";
/// How long a majority may take to acknowledge.
pub(super) const MAJORITY: Duration = Duration::from_secs(60);
/// The role that grants all of it; a collection with a validator needs `dbAdmin` too.
pub(super) const ROLE: &str = "readWrite";

pub(super) type Raw = Collection<RawDocumentBuf>;

/// Options and indexes of a collection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CollectionSpec {
    pub(super) kind: String,
    pub(super) options: Document,
    pub(super) indexes: Vec<Document>,
}

impl Server {
    /// A collection for copying: reads come from the primary and include all documents, whatever the connection
    /// string says about reads. In a replica set, writes wait for a majority, so that no member falls behind the
    /// oplog.
    pub(super) fn raw(&self, database: &str, collection: &str) -> Raw {
        let majority = self.info().replica_set.is_some();
        let concern = if majority { WriteConcern::majority() } else { WriteConcern::nodes(1) };
        let options = CollectionOptions::builder()
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .read_concern(ReadConcern::local())
            .write_concern(concern)
            .build();
        self.link().client.database(database).collection_with_options(collection, options)
    }

    pub(super) fn ask(&self, database: &str, command: Document, what: &str) -> Result<Document> {
        self.runtime().block_on(self.link().command_as(database, command, what, ROLE))
    }

    /// Options and indexes; `None` if there is no such collection.
    pub(super) fn collection_spec(&self, database: &str, collection: &str) -> Result<Option<CollectionSpec>> {
        let first = |reply: &Document| -> Vec<Document> {
            let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
            batch.into_iter().flatten().filter_map(Bson::as_document).cloned().collect()
        };
        let list = doc! { "listCollections": 1, "filter": { "name": collection } };
        let listed = self.ask(database, list, "list the collections")?;
        let Some(entry) = first(&listed).into_iter().find(|entry| is_named(entry, collection)) else {
            return Ok(None);
        };
        let kind = entry.get_str("type").unwrap_or("collection").to_owned();
        let options = entry.get_document("options").cloned().unwrap_or_default();
        let mut indexes = Vec::new();
        if kind == "collection" {
            // A collection has at most 64.
            let list = doc! { "listIndexes": collection, "cursor": { "batchSize": 1_000 } };
            indexes = first(&self.ask(database, list, "list the indexes")?);
        }
        for index in &mut indexes {
            // The namespace, which servers before 4.4 add.
            index.remove("ns");
        }
        indexes.sort_by(|a, b| a.get_str("name").ok().cmp(&b.get_str("name").ok()));
        Ok(Some(CollectionSpec { kind, options, indexes }))
    }

    pub(super) fn reorder_names(&self, database: &str) -> Result<Vec<String>> {
        let names = self
            .runtime()
            .block_on(self.link().client.database(database).list_collection_names().into_future());
        names.map_err(|error| self.link().error("list the collections", ROLE, &error))
    }
}

pub(super) fn split(namespace: &str) -> Result<(&str, &str)> {
    namespace.split_once('.').ok_or_else(|| {
        ServerError::Refused(format!("{namespace} is no namespace: write it as database.collection"))
    })
}

pub(super) fn is_named(entry: &Document, name: &str) -> bool {
    entry.get_str("name").is_ok_and(|found| found == name)
}

/// Whether this is the name of a collection that had the original's name for a while.
pub(super) fn is_written(name: &str, collection: &str) -> bool {
    name.strip_prefix(collection)
        .and_then(|rest| rest.strip_prefix(WRITTEN))
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_set_aside_is_known_by_its_name() {
        for (name, is) in [
            ("orders_mongosonar_written", true),
            ("orders_mongosonar_written2", true),
            ("orders_mongosonar_written_off", false),
            ("orders_mongosonar_copy", false),
            ("reorders_mongosonar_written", false),
            ("orders", false),
        ] {
            assert_eq!(is_written(name, "orders"), is, "{name}");
        }
    }
}
