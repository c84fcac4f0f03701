//! What rewriting a collection costs, and whether it is possible.

use std::time::Instant;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::options::Hint;
use sonar_core::counter::growth;
use sonar_core::files::{RewriteEstimate, SampleRead};

use super::collection::{BEFORE, COPY, CollectionSpec, ROLE, Raw, is_named, is_written, split};
use super::refusals::{refuse_kind, refuse_own, refuse_unordered, refused};
use crate::error::Result;
use crate::files;
use crate::server::{Server, whole};

/// Documents of one insert into the copy.
const BATCH: usize = 1_000;
/// Number of documents that the comparison reads in each order, and the number that it times together.
const SAMPLE: i64 = 2_000;
const CHUNK: u32 = 200;

/// Bytes that the server has read from its devices so far; `None` if unknown.
pub type DeviceBytes<'a> = &'a dyn Fn() -> Option<u64>;

/// What rewriting would do.
#[derive(Clone, Debug)]
pub struct ReorderPlan {
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) options: Document,
    pub(super) indexes: Vec<Document>,
    /// What it takes.
    pub estimate: RewriteEstimate,
    /// The most documents of one insert into the copy, 1 to 100,000, the most that a server takes; 1,000 unless changed.
    pub batch: usize,
}

impl ReorderPlan {
    pub(super) fn named(&self, ending: &str) -> String {
        format!("{}{ending}", self.collection)
    }
}

impl Server {
    /// Plans rewriting a collection in the order of the index `order`. Changes nothing. Calls `device_bytes` before
    /// and after each sample of documents.
    ///
    /// # Errors
    /// It does not exist, is in a sharded cluster, is not a plain collection, or has no such index; or the server is
    /// a secondary.
    pub fn reorder_plan(
        &self,
        namespace: &str,
        order: &str,
        device_bytes: DeviceBytes<'_>,
    ) -> Result<ReorderPlan> {
        let (database, collection) = split(namespace)?;
        refuse_own(namespace, database, collection)?;
        self.refuse_secondary()?;
        let leftover = self.reorder_leftover(database, collection)?;
        let Some(spec) = self.collection_spec(database, collection)? else {
            return match leftover {
                Some(left) => refused(format!("there is no collection {namespace}, but {left}")),
                None => refused(format!("there is no collection {namespace}")),
            };
        };
        refuse_kind(namespace, &spec)?;
        let CollectionSpec { options, indexes, .. } = spec;
        let stats = self.ask(database, doc! { "collStats": collection }, "ask for its size")?;
        self.refuse_cluster(namespace, &stats)?;
        let Some(index) = indexes.iter().find(|index| is_named(index, order)) else {
            return refused(format!("{namespace} has no index called {order}"));
        };
        refuse_unordered(index)?;
        let raw = self.raw(database, collection);
        let sample = self.runtime().block_on(async {
            // Each reads what the other did not bring in, as far as the orders differ.
            let own = walk(&raw, Hint::Keys(doc! { "$natural": 1 }), device_bytes).await?;
            let index = walk(&raw, Hint::Name(order.to_owned()), device_bytes).await?;
            Ok((index, own))
        });
        let (asked, own) = sample.map_err(|error| self.link().error("read a sample of it", ROLE, &error))?;
        let unwatched = if self.info().replica_set.is_none() {
            Some("a standalone has no change streams".to_owned())
        } else {
            self.watch(database, collection, String::new())?.err()
        };
        // Not every server reports it, and not to every user.
        let space = self.ask(database, doc! { "dbStats": 1 }, "ask for the space").unwrap_or_default();
        let free = |space: &Document| whole(space, "fsTotalSize")?.checked_sub(whole(space, "fsUsedSize")?);
        let number = |field: &str| whole(&stats, field).unwrap_or(0);
        let estimate = RewriteEstimate {
            namespace: namespace.to_owned(),
            index: order.to_owned(),
            key: index.get_document("key").map(files::key).unwrap_or_default(),
            documents: number("count"),
            bytes: number("size"),
            storage_bytes: number("storageSize"),
            indexes: indexes.iter().filter(|index| !is_named(index, "_id_")).count(),
            index_bytes: number("totalIndexSize"),
            free_bytes: free(&space),
            asked,
            own,
            unwatched,
            expires: indexes.iter().any(|index| index.contains_key("expireAfterSeconds")),
            ident: stats.get_document("wiredTiger").ok().and_then(files::ident).map(str::to_owned),
            leftover,
        };
        Ok(ReorderPlan {
            database: database.into(),
            collection: collection.into(),
            options,
            indexes,
            estimate,
            batch: BATCH,
        })
    }

    /// What an interrupted run has left of a collection, in words.
    fn reorder_leftover(&self, database: &str, collection: &str) -> Result<Option<String>> {
        let names = self.reorder_names(database)?;
        let has = |ending: &str| names.contains(&format!("{collection}{ending}"));
        let name = |ending: &str| format!("{database}.{collection}{ending}");
        let (copy, before) = (name(COPY), name(BEFORE));
        Ok(match (has(BEFORE), names.iter().any(|name| name == collection)) {
            (true, false) => Some(format!("an interrupted run has left the original as {before}")),
            (true, true) => Some(format!(
                "an interrupted run has left the original as {before}, before writes to it were ruled out; the name has \
                 its copy, or what somebody made meanwhile"
            )),
            _ if has(COPY) => Some(format!("an interrupted run has left a copy as {copy}")),
            _ => names.iter().find(|name| is_written(name, collection)).map(|name| {
                format!("an interrupted run has left what was written under the name as {database}.{name}")
            }),
        })
    }
}

/// Reads a sample in an order.
async fn walk(raw: &Raw, hint: Hint, device_bytes: DeviceBytes<'_>) -> mongodb::error::Result<SampleRead> {
    let (begun, before) = (Instant::now(), device_bytes());
    let mut cursor = raw.find(doc! {}).hint(hint).limit(SAMPLE).batch_size(CHUNK).await?;
    let (mut sample, mut chunk, mut since) = (SampleRead::default(), 0_u32, begun);
    let mut pace: Option<(f64, f64)> = None;
    loop {
        let more = cursor.try_next().await?.is_some();
        if more {
            sample.documents += 1;
            chunk += 1;
        }
        // A part that is much shorter than the others means little.
        if chunk == CHUNK || (!more && chunk > 0 && pace.is_none()) {
            let each = since.elapsed().as_secs_f64() / f64::from(chunk);
            let (low, high) = pace.unwrap_or((each, each));
            pace = Some((low.min(each), high.max(each)));
            (chunk, since) = (0, Instant::now());
        }
        if !more {
            sample.time = begun.elapsed();
            sample.pace = pace.unwrap_or_default();
            sample.device_bytes = growth(device_bytes(), before);
            return Ok(sample);
        }
    }
}
