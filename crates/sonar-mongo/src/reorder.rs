//! Rewrites a collection so that its order on the disk is that of an index.
//!
//! A copy is made beside it, in order, with the same options and indexes; both are read whole and compared;
//! only then does the copy take the name. The original is read only until then, so whatever ends this
//! before leaves it as it was, and [`Server::reorder_clean`] removes what is left.

use std::hash::Hasher;
use std::time::{Duration, Instant};

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::options::Hint;

use crate::error::{Error, Result};
use crate::server::Server;
use crate::stop::Stop;

/// What the copy's name ends with, and that of the original for the moment between two renames on servers that
/// cannot rename over a collection.
const COPY: &str = "_mongosonar_copy";
const BEFORE: &str = "_mongosonar_before";
/// Documents and bytes that are written at once.
const BATCH: usize = 1_000;
const BATCH_BYTES: usize = 8 << 20;
/// Documents that are read in each order to compare them.
const SAMPLE: i64 = 2_000;
/// NotImplemented, and CommandNotSupported.
const UNSUPPORTED: [i32; 2] = [238, 115];

/// What would be done.
#[derive(Clone, Debug)]
pub struct Plan {
    database: String,
    collection: String,
    options: Document,
    indexes: Vec<Document>,
    order: String,
    /// Documents.
    pub documents: u64,
    /// Bytes that they have, as BSON.
    pub bytes: u64,
    /// Bytes on the disk: as many are needed once more.
    pub storage_bytes: u64,
    /// Time that [`sampled`](Self::sampled) documents took in the order of the index, and in the collection's own.
    pub sample: (Duration, Duration),
    /// Documents that were read for it in either order.
    pub sampled: u64,
    /// What an interrupted run has left.
    pub leftover: Option<String>,
}

impl Plan {
    /// Indexes that will be made again, beside `_id`.
    pub fn indexes(&self) -> usize {
        self.indexes.iter().filter(|index| !is_named(index, "_id_")).count()
    }
}

/// What is being done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Documents are copied in order.
    Copying,
    /// Indexes are made.
    Indexes,
    /// The copy is read.
    Verifying,
    /// The original is read once more.
    Comparing,
    /// The copy takes the name.
    Renaming,
}

impl Stage {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::Indexes => "making indexes",
            Self::Verifying => "verifying the copy",
            Self::Comparing => "looking for writes in between",
            Self::Renaming => "renaming",
        }
    }
}

/// How many documents there are and what they hold, whatever their order: a sum of their hashes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Content {
    documents: u64,
    bytes: u64,
    sum: u128,
}

impl Content {
    fn add(&mut self, document: &[u8]) {
        let half = |seed: u8| {
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write_u8(seed);
            hasher.write(document);
            u128::from(hasher.finish())
        };
        self.documents += 1;
        self.bytes += document.len() as u64;
        self.sum = self.sum.wrapping_add(half(0) << 64 | half(1));
    }
}

type Raw = Collection<RawDocumentBuf>;

impl Server {
    /// Looks at a collection: what rewriting it in the order of the index called `order` takes. Changes
    /// nothing.
    ///
    /// # Errors
    /// It is not there, is sharded, is no plain collection, or has no such index.
    pub fn reorder_plan(&self, namespace: &str, order: &str) -> Result<Plan> {
        let refused = |why: String| Err(Error::Refused(why));
        let Some((database, collection)) = namespace.split_once('.') else {
            return refused(format!("{namespace} is no namespace: write it as database.collection"));
        };
        if ["admin", "config", "local"].contains(&database) || collection.starts_with("system.") {
            return refused(format!("{namespace} belongs to the server"));
        }
        let leftover = self.reorder_leftover(database, collection)?;
        let list = doc! { "listCollections": 1, "filter": { "name": collection } };
        let listed = self.command(database, list, "list the collections")?;
        let first = |reply: &Document| -> Option<Vec<Document>> {
            let batch = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
            Some(batch.iter().filter_map(Bson::as_document).cloned().collect())
        };
        let entries = first(&listed).unwrap_or_default();
        let entry = entries.iter().find(|entry| is_named(entry, collection));
        let Some(entry) = entry else {
            return match leftover {
                Some(left) => refused(format!("there is no collection {namespace}, but {left}")),
                None => refused(format!("there is no collection {namespace}")),
            };
        };
        let kind = entry.get_str("type").unwrap_or("collection");
        let options = entry.get_document("options").cloned().unwrap_or_default();
        if kind != "collection"
            || options.get_bool("capped").unwrap_or(false)
            || options.contains_key("clusteredIndex")
        {
            return refused(format!("{namespace} is no plain collection: it cannot be rewritten by copying"));
        }
        let stats = self.command(database, doc! { "collStats": collection }, "ask for its size")?;
        if self.info().mongos || stats.get_bool("sharded").unwrap_or(false) {
            return refused(format!(
                "{namespace} is behind a mongos: a sharded collection cannot be renamed over. Reshard it to the same key \
                 (reshardCollection with forceRedistribution, 7.2 and newer), which writes it anew, or rewrite it member \
                 by member by an initial sync"
            ));
        }
        let number = |field: &str| match stats.get(field) {
            Some(Bson::Int32(value)) => u64::try_from(*value).unwrap_or(0),
            Some(Bson::Int64(value)) => u64::try_from(*value).unwrap_or(0),
            Some(Bson::Double(value)) => *value as u64,
            _ => 0,
        };
        let list = doc! { "listIndexes": collection, "cursor": { "batchSize": 1_000 } };
        let indexes = first(&self.command(database, list, "list the indexes")?).unwrap_or_default();
        let Some(index) = indexes.iter().find(|index| is_named(index, order)) else {
            return refused(format!("{namespace} has no index called {order}"));
        };
        let ordered = index
            .get_document("key")
            .is_ok_and(|key| key.values().all(|way| !matches!(way, Bson::String(_))));
        let partial =
            index.contains_key("partialFilterExpression") || index.get_bool("sparse").unwrap_or(false);
        if partial
            || !ordered
            || index.get_document("key").is_ok_and(|key| key.keys().any(|field| field.contains("$**")))
        {
            return refused(format!(
                "the index {order} does not hold each document in an order: choose another"
            ));
        }
        let raw: Raw = self.link().client.database(database).collection(collection);
        let sample = self.runtime().block_on(async {
            let walk = |hint: Hint| {
                let raw = &raw;
                async move {
                    let begun = Instant::now();
                    let mut cursor = raw.find(doc! {}).hint(hint).limit(SAMPLE).await?;
                    let mut count = 0;
                    while cursor.try_next().await?.is_some() {
                        count += 1;
                    }
                    Ok::<_, mongodb::error::Error>((begun.elapsed(), count))
                }
            };
            // Each reads what the other did not bring in, as far as orders differ.
            let own = walk(Hint::Keys(doc! { "$natural": 1 })).await?;
            let index = walk(Hint::Name(order.to_owned())).await?;
            Ok::<_, mongodb::error::Error>((index.0, own.0, own.1))
        });
        let (index, own, sampled) =
            sample.map_err(|error| Error::of("read a sample of it", "readWrite", &error))?;
        Ok(Plan {
            database: database.into(),
            collection: collection.into(),
            options,
            indexes,
            order: order.into(),
            documents: number("count"),
            bytes: number("size"),
            storage_bytes: number("storageSize"),
            sample: (index, own),
            sampled,
            leftover,
        })
    }

    /// What an interrupted run has left of a collection, in words.
    fn reorder_leftover(&self, database: &str, collection: &str) -> Result<Option<String>> {
        let names = self.reorder_names(database)?;
        let (copy, before) = (format!("{collection}{COPY}"), format!("{collection}{BEFORE}"));
        if names.contains(&before) {
            return Ok(Some(format!("an interrupted run has left the original as {database}.{before}")));
        }
        Ok(names.contains(&copy).then(|| format!("an interrupted run has left a copy as {database}.{copy}")))
    }

    fn reorder_names(&self, database: &str) -> Result<Vec<String>> {
        let names = self
            .runtime()
            .block_on(self.link().client.database(database).list_collection_names().into_future());
        names.map_err(|error| Error::of("list the collections", "readWrite", &error))
    }

    /// Removes what an interrupted run has left; gives the original its name back where it lost it. Says
    /// what was done.
    ///
    /// # Errors
    /// The server's.
    pub fn reorder_clean(&self, namespace: &str) -> Result<Vec<String>> {
        let Some((database, collection)) = namespace.split_once('.') else {
            return Err(Error::Refused(format!("{namespace} is no namespace")));
        };
        let names = self.reorder_names(database)?;
        let (copy, before) = (format!("{collection}{COPY}"), format!("{collection}{BEFORE}"));
        let mut done = Vec::new();
        if names.contains(&before) {
            // The copy has the name already, or nothing has; the original is what counts either way.
            if names.iter().any(|name| name == collection) {
                self.command(database, doc! { "drop": collection }, "drop the copy")?;
                done.push(format!("dropped the copy that had taken the name {namespace}"));
            }
            self.rename(database, &before, collection, false)?;
            done.push(format!("gave the original its name {namespace} back"));
        }
        if names.contains(&copy) {
            self.command(database, doc! { "drop": &copy }, "drop the copy")?;
            done.push(format!("dropped the copy {database}.{copy}"));
        }
        Ok(done)
    }

    fn rename(&self, database: &str, from: &str, to: &str, over: bool) -> Result<()> {
        let mut command =
            doc! { "renameCollection": format!("{database}.{from}"), "to": format!("{database}.{to}") };
        if over {
            command.insert("dropTarget", true);
        }
        self.command("admin", command, "rename the collection").map(drop)
    }

    /// Does it. `progress` is told of each stage with documents done so far and in all.
    ///
    /// # Errors
    /// Anything that is not as it should be, a write in between too; the copy is dropped then, and the original
    /// is as it was. Where not even that could be done the error says what is left.
    pub fn reorder(
        &self,
        plan: &Plan,
        stop: &Stop,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<u64> {
        if let Some(left) = &plan.leftover {
            return Err(Error::Refused(format!("{left}: look at it, then remove it with --clean")));
        }
        match self.reorder_steps(plan, stop, progress) {
            Ok(count) => Ok(count),
            Err(error) => match self.reorder_clean(&format!("{}.{}", plan.database, plan.collection)) {
                Ok(_) => Err(error),
                Err(other) => Err(Error::Refused(format!(
                    "{error}; and what is left could not be removed ({other}): run it again with --clean"
                ))),
            },
        }
    }

    fn reorder_steps(
        &self,
        plan: &Plan,
        stop: &Stop,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<u64> {
        let (database, copy_name) = (&plan.database, format!("{}{COPY}", plan.collection));
        let client = self.link().client.database(database);
        let (original, copy): (Raw, Raw) =
            (client.collection(&plan.collection), client.collection(&copy_name));
        let mut create = doc! { "create": &copy_name };
        // The server gives its own; an `_id` index comes by itself.
        create.extend(
            plan.options
                .iter()
                .filter(|(key, _)| !["uuid", "autoIndexId"].contains(&key.as_str()))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        self.command(database, create, "make the copy")?;

        let total = plan.documents;
        let index = plan.indexes.iter().find(|index| is_named(index, &plan.order));
        let key = index.and_then(|index| index.get_document("key").ok()).cloned().unwrap_or_default();
        progress(Stage::Copying, 0, total);
        let copied =
            self.runtime().block_on(copy_all(&original, &copy, (&plan.order, key), stop, &mut |done| {
                progress(Stage::Copying, done, total);
            }))?;

        progress(Stage::Indexes, 0, plan.indexes() as u64);
        let specs: Vec<_> = plan
            .indexes
            .iter()
            .filter(|index| !is_named(index, "_id_"))
            .map(|index| {
                let mut spec = index.clone();
                spec.remove("ns");
                // The version that indexes have by themselves; not every server takes it as an option.
                if matches!(spec.get("v"), Some(Bson::Int32(2))) {
                    spec.remove("v");
                }
                Bson::Document(spec)
            })
            .collect();
        if !specs.is_empty() {
            let command = doc! { "createIndexes": &copy_name, "indexes": specs };
            self.command(database, command, "make the indexes")?;
        }

        let mut read = |stage: Stage, which: &Raw| {
            progress(stage, 0, copied.documents);
            self.runtime()
                .block_on(read_all(which, stop, &mut |done| progress(stage, done, copied.documents)))
        };
        let made = read(Stage::Verifying, &copy)?;
        if made != copied {
            return Err(Error::Refused(format!(
                "the copy does not hold what was read ({} documents of {}): nothing was changed",
                made.documents, copied.documents
            )));
        }
        let now = read(Stage::Comparing, &original)?;
        if now != copied {
            return Err(Error::Refused(
                "the collection was written to meanwhile: nothing was changed. Stop what writes to it, and run it again"
                    .into(),
            ));
        }
        if stop.is_set() {
            return Err(Error::Stopped);
        }
        progress(Stage::Renaming, 0, 1);
        match self.rename(database, &copy_name, &plan.collection, true) {
            Err(error) if error.code().is_some_and(|code| UNSUPPORTED.contains(&code)) => {
                let before = format!("{}{BEFORE}", plan.collection);
                self.rename(database, &plan.collection, &before, false)?;
                self.rename(database, &copy_name, &plan.collection, false)?;
                self.command(database, doc! { "drop": before }, "drop the original")?;
            }
            other => other?,
        }
        progress(Stage::Renaming, 1, 1);
        Ok(copied.documents)
    }
}

fn is_named(entry: &Document, name: &str) -> bool {
    entry.get_str("name").is_ok_and(|found| found == name)
}

async fn copy_all(
    from: &Raw,
    to: &Raw,
    (order, key): (&str, Document),
    stop: &Stop,
    progress: &mut dyn FnMut(u64),
) -> Result<Content> {
    let failed = |error: mongodb::error::Error| Error::of("copy the collection", "readWrite", &error);
    let mut content = Content::default();
    let mut cursor = from.find(doc! {}).hint(Hint::Name(order.to_owned())).sort(key).await.map_err(failed)?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    loop {
        let next = cursor.try_next().await.map_err(failed)?;
        let last = next.is_none();
        if let Some(document) = next {
            content.add(document.as_bytes());
            bytes += document.as_bytes().len();
            batch.push(document);
        }
        if stop.is_set() {
            return Err(Error::Stopped);
        }
        if !batch.is_empty() && (last || batch.len() >= BATCH || bytes >= BATCH_BYTES) {
            let documents = std::mem::take(&mut batch);
            bytes = 0;
            to.insert_many(documents).ordered(true).bypass_document_validation(true).await.map_err(failed)?;
            progress(content.documents);
        }
        if last {
            return Ok(content);
        }
    }
}

async fn read_all(which: &Raw, stop: &Stop, progress: &mut dyn FnMut(u64)) -> Result<Content> {
    let failed = |error: mongodb::error::Error| Error::of("read the collection", "readWrite", &error);
    let mut content = Content::default();
    let mut cursor = which.find(doc! {}).await.map_err(failed)?;
    while let Some(document) = cursor.try_next().await.map_err(failed)? {
        content.add(document.as_bytes());
        if stop.is_set() {
            return Err(Error::Stopped);
        }
        if content.documents % 10_000 == 0 {
            progress(content.documents);
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_that_of_the_documents_in_any_order() {
        let of = |documents: &[&[u8]]| {
            let mut content = Content::default();
            documents.iter().for_each(|document| content.add(document));
            content
        };
        assert_eq!(of(&[b"one", b"two"]), of(&[b"two", b"one"]));
        assert_ne!(of(&[b"one", b"two"]), of(&[b"one", b"twi"]), "count and size are the same");
        assert_ne!(of(&[b"one", b"one"]), of(&[b"two", b"two"]));
    }
}
