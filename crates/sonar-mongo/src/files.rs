//! Which file under a server's dbpath holds which collection or index.

use bson::{Bson, Document, doc};

use crate::error::Result;
use crate::server::Server;

/// The most collections to ask about. Files of others keep their own names.
pub const MAX_COLLECTIONS: usize = 10_000;

/// A file of WiredTiger, and the collection or index in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredFile {
    /// Its ident: its path under the dbpath without `.wt`, like `collection-7-4596081763205983475`.
    pub ident: String,
    /// `database.collection`.
    pub namespace: String,
    /// The key of the index as MongoDB writes it, `{customer: 1}`; `None` for the collection itself.
    pub index: Option<String>,
}

impl StoredFile {
    /// `shop.orders`, `shop.orders index {customer: 1}`.
    pub fn label(&self) -> String {
        match &self.index {
            None => self.namespace.clone(),
            Some(key) => format!("{} index {key}", self.namespace),
        }
    }
}

/// Whether a path is that of the file with this ident.
pub fn has_ident(path: &str, ident: &str) -> bool {
    let folder = path.strip_suffix(".wt").and_then(|path| path.strip_suffix(ident));
    folder.is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
}

impl Server {
    /// The files of its collections and indexes. Leaves out those that the user may not see, and everything on a
    /// server without WiredTiger.
    ///
    /// # Errors
    /// The server did not answer, or the user may not list databases.
    pub fn files(&self) -> Result<Vec<StoredFile>> {
        let mut files = Vec::new();
        let mut asked = 0;
        for database in self.databases()? {
            let list = doc! { "listCollections": 1, "nameOnly": true, "cursor": { "batchSize": 10_000 } };
            let Ok(reply) = self.command(&database, list, "list the collections") else { continue };
            for collection in batch(&reply) {
                let kind = collection.get_str("type").unwrap_or("collection");
                let Ok(name) = collection.get_str("name") else { continue };
                if kind == "view" || asked >= MAX_COLLECTIONS {
                    continue;
                }
                asked += 1;
                let what = "ask where a collection lies";
                let Ok(stats) = self.command(&database, doc! { "collStats": name }, what) else { continue };
                let list = doc! { "listIndexes": name, "cursor": { "batchSize": 1_000 } };
                let indexes = self.command(&database, list, "list the indexes").unwrap_or_default();
                held(&format!("{database}.{name}"), &stats, &indexes, &mut files);
            }
        }
        Ok(files)
    }
}

fn batch(reply: &Document) -> impl Iterator<Item = &Document> {
    let cursor = reply.get_document("cursor").ok();
    let first = cursor.and_then(|cursor| cursor.get_array("firstBatch").ok());
    first.into_iter().flatten().filter_map(Bson::as_document)
}

/// The ident in `statistics:table:collection-7-459`.
pub(crate) fn ident(details: &Document) -> Option<&str> {
    details.get_str("uri").ok()?.rsplit(':').next().filter(|ident| !ident.is_empty())
}

/// The files of a collection, from the replies to `collStats` and `listIndexes`.
fn held(namespace: &str, stats: &Document, indexes: &Document, files: &mut Vec<StoredFile>) {
    if let Some(ident) = stats.get_document("wiredTiger").ok().and_then(ident) {
        files.push(StoredFile { ident: ident.into(), namespace: namespace.into(), index: None });
    }
    let Ok(details) = stats.get_document("indexDetails") else { return };
    for (name, detail) in details {
        let Some(ident) = detail.as_document().and_then(ident) else { continue };
        let entry = batch(indexes).find(|entry| entry.get_str("name").is_ok_and(|found| found == name));
        let key = entry.and_then(|entry| entry.get_document("key").ok()).map(key);
        files.push(StoredFile {
            ident: ident.into(),
            namespace: namespace.into(),
            index: Some(key.unwrap_or_else(|| name.clone())),
        });
    }
}

/// `{customer: 1, at: -1}`.
pub(crate) fn key(key: &Document) -> String {
    let fields: Vec<_> = key
        .iter()
        .map(|(field, direction)| match direction {
            Bson::String(kind) => format!("{field}: \"{kind}\""),
            Bson::Double(direction) => format!("{field}: {direction}"),
            Bson::Int32(direction) => format!("{field}: {direction}"),
            Bson::Int64(direction) => format!("{field}: {direction}"),
            _ => format!("{field}: ?"),
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_ident_wherever_it_is() {
        for path in ["collection-7-459.wt", "/data/db/collection-7-459.wt"] {
            assert!(has_ident(path, "collection-7-459"), "{path}");
        }
        for path in ["/data/my-collection-7-459.wt", "/data/collection-7-459", "/data/collection-7-4591.wt"] {
            assert!(!has_ident(path, "collection-7-459"), "{path}");
        }
    }

    /// Replies as in the manual, for `collStats` (6.0) and `listIndexes`.
    #[test]
    fn files_are_named_as_the_server_says() {
        let stats = doc! {
            "ns": "shop.orders", "count": 3,
            "wiredTiger": { "type": "file", "uri": "statistics:table:shop/collection/7-459" },
            "indexDetails": {
                "_id_": { "uri": "statistics:table:index-8-459" },
                "customer_1_at_-1": { "uri": "statistics:table:index-9-459" },
                "gone": { "uri": "" },
            },
        };
        let indexes = doc! { "cursor": { "firstBatch": [
            { "v": 2, "key": { "_id": 1 }, "name": "_id_" },
            { "v": 2, "key": { "customer": 1, "at": -1.0 }, "name": "customer_1_at_-1" },
        ] } };
        let mut files = Vec::new();
        held("shop.orders", &stats, &indexes, &mut files);
        let labels: Vec<_> = files.iter().map(|file| (file.ident.as_str(), file.label())).collect();
        assert_eq!(
            labels,
            [
                ("shop/collection/7-459", "shop.orders".to_string()),
                ("index-8-459", "shop.orders index {_id: 1}".to_string()),
                ("index-9-459", "shop.orders index {customer: 1, at: -1}".to_string()),
            ]
        );
        held("shop.none", &doc! { "ns": "shop.none" }, &doc! {}, &mut files);
        assert_eq!(files.len(), 3, "a server without WiredTiger has no files to name");
    }
}
