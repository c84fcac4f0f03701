//! Rewrites a collection so that its order on the disk is that of an index.
//!
//! A copy is made beside it, in order, with the same options and indexes, and read whole; the original steps
//! aside, and the copy takes its name. Only when it is known that nothing was written to the original until it
//! had stepped aside is it dropped: by a change stream that was opened before the first document was read,
//! or, on a server without, by reading the original once more under its other name. Until then it is the
//! original that counts: whatever ends this before, [`Server::reorder_clean`] gives it its name back.

use std::hash::Hasher;
use std::time::{Duration, Instant};

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::change_stream::ChangeStream;
use mongodb::options::{
    CollectionOptions, Hint, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};

use crate::error::{Error, Result, UNAUTHORIZED};
use crate::files;
use crate::server::{Server, whole};
use crate::stop::Stop;

/// What the copy's name ends with.
const COPY: &str = "_mongosonar_copy";
/// That of the original, from when the copy takes its name until it is dropped.
const BEFORE: &str = "_mongosonar_before";
/// That of what had the name when the original took it back, where it holds what the original does not.
const WRITTEN: &str = "_mongosonar_written";
/// Times that the original is given its name back where somebody makes a collection of that name meanwhile.
const ATTEMPTS: usize = 5;
/// Documents and bytes that are written at once.
const BATCH: usize = 1_000;
const BATCH_BYTES: usize = 8 << 20;
/// Documents that are read in each order to compare them, and of those the documents that are timed together.
const SAMPLE: i64 = 2_000;
const CHUNK: u32 = 200;
/// How often the change stream is looked at while documents are read, and how long each look waits.
const LOOK: Duration = Duration::from_secs(1);
const AWAIT: Duration = Duration::from_millis(20);
/// How long a majority may take to have what was done.
const MAJORITY: Duration = Duration::from_secs(60);
/// NamespaceExists.
const EXISTS: i32 = 48;
/// The role that grants all of it; a collection with a validator wants `dbAdmin` beside it.
const ROLE: &str = "readWrite";

/// Time that a sample of the documents took to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Documents.
    pub documents: u64,
    /// All of them together.
    pub time: Duration,
    /// Seconds for a document in the quickest and in the slowest part of it.
    pub pace: (f64, f64),
}

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
    /// Bytes on the disk.
    pub storage_bytes: u64,
    /// Bytes of all its indexes on the disk.
    pub index_bytes: u64,
    /// Bytes that are free where the server keeps its files; `None` where it does not say.
    pub free_bytes: Option<u64>,
    /// Documents read in the order of the index, and in the collection's own.
    pub sample: (Sample, Sample),
    /// Why writes in between cannot be followed, in words; `None` where they are, by a change stream.
    pub unwatched: Option<String>,
    /// Documents expire by an index, which is a write too.
    pub expires: bool,
    /// Path of its file under the dbpath without `.wt`, where the server says.
    pub ident: Option<String>,
    /// What an interrupted run has left.
    pub leftover: Option<String>,
}

impl Plan {
    /// Indexes that will be made again, beside `_id`.
    pub fn indexes(&self) -> usize {
        self.indexes.iter().filter(|index| !is_named(index, "_id_")).count()
    }

    /// Bytes on the disk that it takes until the end, as far as what there is tells.
    pub fn needed_bytes(&self) -> u64 {
        self.storage_bytes.saturating_add(self.index_bytes)
    }

    /// Whether as much is free; `None` where it is not known.
    pub fn fits(&self) -> Option<bool> {
        self.free_bytes.map(|free| free > self.needed_bytes())
    }

    /// Times that documents are read beside the copying.
    pub fn passes(&self) -> u32 {
        if self.unwatched.is_some() { 3 } else { 1 }
    }

    /// Time for reading all that is read, at the quickest and at the slowest pace of the sample. Writing comes
    /// on top, of which a sample that changes nothing tells nothing.
    pub fn reading(&self) -> (Duration, Duration) {
        let (index, own) = (self.sample.0.pace, self.sample.1.pace);
        let all = |index: f64, own: f64| {
            let seconds = self.documents as f64 * (index + own * f64::from(self.passes()));
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        (all(index.0, own.0), all(index.1, own.1))
    }

    /// The key of the index whose order it takes, as `{customer: 1}`.
    pub fn key(&self) -> String {
        let index = self.indexes.iter().find(|index| is_named(index, &self.order));
        index.and_then(|index| index.get_document("key").ok()).map(files::key).unwrap_or_default()
    }

    fn named(&self, ending: &str) -> String {
        format!("{}{ending}", self.collection)
    }

    fn namespace(&self) -> String {
        format!("{}.{}", self.database, self.collection)
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
    /// The change stream is looked at; without one the original is read once more.
    Comparing,
    /// The original steps aside, and the copy takes its name.
    Renaming,
    /// The change stream is followed to where the original stepped aside; without one the original is read where
    /// it stands now.
    Deciding,
    /// The original is dropped.
    Dropping,
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
            Self::Deciding => "ruling out writes until then",
            Self::Dropping => "dropping the original",
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

/// What [`Server::reorder_clean`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// What was done, in words.
    pub done: Vec<String>,
    /// What stays for a person to look at, in words.
    pub kept: Vec<String>,
}

/// Options and indexes of a collection.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    kind: String,
    options: Document,
    indexes: Vec<Document>,
}

/// What the change stream of the original says.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    /// Nothing until now.
    Nothing,
    /// It stepped aside, and nothing was written until then.
    Aside,
    /// It was written to; how.
    Write(String),
}

/// The change stream of the original.
struct Watch {
    stream: ChangeStream<Document>,
    aside: String,
}

impl Watch {
    /// Opens it; an error's words where there is none to be had.
    async fn open(
        database: &mongodb::Database,
        collection: &str,
        aside: String,
    ) -> Result<std::result::Result<Self, String>> {
        // The only read concern that servers take for a change stream, whatever the connection string says.
        let options = CollectionOptions::builder()
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .read_concern(ReadConcern::majority())
            .build();
        let original: Raw = database.collection_with_options(collection, options);
        let wanted = [doc! { "$project": { "operationType": 1, "ns": 1, "to": 1 } }];
        match original.watch().pipeline(wanted).max_await_time(AWAIT).await {
            Ok(stream) => Ok(Ok(Self { stream: stream.with_type(), aside })),
            Err(error) => match &*error.kind {
                mongodb::error::ErrorKind::Command(command) if command.code == UNAUTHORIZED => {
                    Ok(Err(format!("the user may not open a change stream: {}", command.message)))
                }
                mongodb::error::ErrorKind::Command(command) => {
                    Ok(Err(format!("the server has no change streams: {}", command.message)))
                }
                _ => Err(Error::of("open a change stream", ROLE, &error)),
            },
        }
    }

    /// What has come since the last look, or comes within [`AWAIT`].
    async fn look(&mut self) -> Result<Seen> {
        let unknown = |why: &dyn std::fmt::Display| {
            Error::Refused(format!("whether the collection was written to meanwhile cannot be known: {why}"))
        };
        match self.stream.next_if_any().await {
            Ok(Some(event)) => Ok(seen(&event, &self.aside)),
            Ok(None) if self.stream.is_alive() => Ok(Seen::Nothing),
            Ok(None) => Err(unknown(&"the change stream has ended")),
            Err(error) => Err(unknown(&Error::of("the change stream cannot be followed", ROLE, &error))),
        }
    }
}

/// What an event of the change stream means, where the original steps aside as `aside`.
fn seen(event: &Document, aside: &str) -> Seen {
    let operation = event.get_str("operationType").unwrap_or("an event without a type");
    let to = event.get_document("to").and_then(|to| to.get_str("coll"));
    if operation == "rename" && to.is_ok_and(|to| to == aside) {
        return Seen::Aside;
    }
    Seen::Write(operation.into())
}

fn written(how: &str) -> Error {
    Error::Refused(format!(
        "the collection was written to meanwhile ({how}): the original keeps its name, with all that was written. Run it \
         again when nothing writes to it"
    ))
}

/// Looks now and then whether to go on.
struct Check<'a> {
    stop: &'a Stop,
    watch: Option<Watch>,
    next: Instant,
}

impl Check<'_> {
    /// # Errors
    /// It was stopped, or the original was written to.
    async fn go_on(&mut self) -> Result<()> {
        if self.stop.is_set() {
            return Err(Error::Stopped);
        }
        if self.watch.is_some() && Instant::now() >= self.next {
            self.look().await?;
        }
        Ok(())
    }

    /// Looks at all that has come.
    async fn look(&mut self) -> Result<()> {
        if let Some(watch) = &mut self.watch {
            match watch.look().await? {
                Seen::Nothing => {}
                Seen::Aside => return Err(written("rename")),
                Seen::Write(how) => return Err(written(&how)),
            }
        }
        self.next = Instant::now() + LOOK;
        Ok(())
    }
}

impl Server {
    /// Looks at a collection: what rewriting it in the order of the index called `order` takes. Changes
    /// nothing.
    ///
    /// # Errors
    /// It is not there, is in a sharded cluster, is no plain collection, or has no such index; or the server is
    /// a secondary.
    pub fn reorder_plan(&self, namespace: &str, order: &str) -> Result<Plan> {
        let refused = |why: String| Err(Error::Refused(why));
        let (database, collection) = split(namespace)?;
        if ["admin", "config", "local"].contains(&database) || collection.starts_with("system.") {
            return refused(format!("{namespace} belongs to the server"));
        }
        if self.info().secondary {
            return refused(format!(
                "{} is a secondary: connect to the primary (no readPreference in the URI)",
                self.info().address
            ));
        }
        let leftover = self.reorder_leftover(database, collection)?;
        let made = self.made(database, collection)?;
        let Some(Made { kind, options, indexes }) = made else {
            return match leftover {
                Some(left) => refused(format!("there is no collection {namespace}, but {left}")),
                None => refused(format!("there is no collection {namespace}")),
            };
        };
        if kind != "collection"
            || options.get_bool("capped").unwrap_or(false)
            || options.contains_key("clusteredIndex")
        {
            return refused(format!("{namespace} is no plain collection: it cannot be rewritten by copying"));
        }
        let stats = self.ask(database, doc! { "collStats": collection }, "ask for its size")?;
        self.refuse_cluster(namespace, &stats)?;
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
        let raw = self.raw(database, collection);
        let sample = self.runtime().block_on(async {
            // Each reads what the other did not bring in, as far as orders differ.
            let own = walk(&raw, Hint::Keys(doc! { "$natural": 1 })).await?;
            let index = walk(&raw, Hint::Name(order.to_owned())).await?;
            Ok((index, own))
        });
        let sample = sample.map_err(|error| Error::of("read a sample of it", ROLE, &error))?;
        let unwatched = if self.info().replica_set.is_none() {
            Some("a standalone has no change streams".to_owned())
        } else {
            self.watch(database, collection, String::new())?.err()
        };
        // Not every server tells, nor every user is told.
        let space = self.ask(database, doc! { "dbStats": 1 }, "ask for the space").unwrap_or_default();
        let free = |space: &Document| whole(space, "fsTotalSize")?.checked_sub(whole(space, "fsUsedSize")?);
        let number = |field: &str| whole(&stats, field).unwrap_or(0);
        Ok(Plan {
            database: database.into(),
            collection: collection.into(),
            expires: indexes.iter().any(|index| index.contains_key("expireAfterSeconds")),
            options,
            indexes,
            order: order.into(),
            documents: number("count"),
            bytes: number("size"),
            storage_bytes: number("storageSize"),
            index_bytes: number("totalIndexSize"),
            free_bytes: free(&space),
            sample,
            unwatched,
            ident: stats.get_document("wiredTiger").ok().and_then(files::ident).map(str::to_owned),
            leftover,
        })
    }

    /// Refuses what is in a sharded cluster, behind a mongos or on a member of a shard, and says what to do there.
    fn refuse_cluster(&self, namespace: &str, stats: &Document) -> Result<()> {
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
        Err(Error::Refused(format!(
            "{which}: there a collection cannot be replaced from outside, and on a shard's own member the cluster would not \
             know of it. What helps: while nothing writes to it, and with the balancer off, make a collection beside it \
             through the mongos (sharded by the same key and with the same chunks, if it is sharded), fill it by \
             aggregate([{{$sort: …}}, {{$merge: …}}]), and rename it over the old one (renameCollection with dropTarget; \
             of sharded collections from MongoDB 5.0 on). An initial sync does not help: it copies in the order that \
             there is"
        )))
    }

    /// Whether this mongod belongs to a sharded cluster. A user who may not ask learns it from what members of
    /// shards add to each reply.
    fn in_cluster(&self) -> Result<bool> {
        let state = self.ask("admin", doc! { "shardingState": 1 }, "ask for its cluster");
        if state.is_ok_and(|state| state.get_bool("enabled").unwrap_or(false)) {
            return Ok(true);
        }
        let hello = self.ask("admin", doc! { "hello": 1 }, "ask for its cluster")?;
        Ok(["configsvr", "$gleStats", "$configServerState"].iter().any(|mark| hello.contains_key(mark)))
    }

    /// A collection as documents are copied: from the primary, all that it has, whatever the connection string says
    /// of other reads. In a replica set a write waits for a majority, so that no member falls behind further than
    /// its oplog reaches.
    fn raw(&self, database: &str, collection: &str) -> Raw {
        let majority = self.info().replica_set.is_some();
        let concern = if majority { WriteConcern::majority() } else { WriteConcern::nodes(1) };
        let options = CollectionOptions::builder()
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .read_concern(ReadConcern::local())
            .write_concern(concern)
            .build();
        self.link().client.database(database).collection_with_options(collection, options)
    }

    fn ask(&self, database: &str, command: Document, what: &str) -> Result<Document> {
        self.runtime().block_on(self.link().command_as(database, command, what, ROLE))
    }

    /// The change stream of a collection, or why there is none.
    fn watch(
        &self,
        database: &str,
        collection: &str,
        aside: String,
    ) -> Result<std::result::Result<Watch, String>> {
        let database = self.link().client.database(database);
        self.runtime().block_on(Watch::open(&database, collection, aside))
    }

    /// Options and indexes; `None` where there is no such collection.
    fn made(&self, database: &str, collection: &str) -> Result<Option<Made>> {
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
            // The namespace, which servers before 4.4 give.
            index.remove("ns");
        }
        indexes.sort_by(|a, b| a.get_str("name").ok().cmp(&b.get_str("name").ok()));
        Ok(Some(Made { kind, options, indexes }))
    }

    /// What an interrupted run has left of a collection, in words.
    fn reorder_leftover(&self, database: &str, collection: &str) -> Result<Option<String>> {
        let names = self.reorder_names(database)?;
        let has = |ending: &str| names.contains(&format!("{collection}{ending}"));
        let told = |ending: &str| format!("{database}.{collection}{ending}");
        let (copy, before) = (told(COPY), told(BEFORE));
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

    fn reorder_names(&self, database: &str) -> Result<Vec<String>> {
        let names = self
            .runtime()
            .block_on(self.link().client.database(database).list_collection_names().into_future());
        names.map_err(|error| Error::of("list the collections", ROLE, &error))
    }

    /// Removes what an interrupted run has left; gives the original its name back where it lost it. What has the
    /// name then steps aside, and is dropped if it holds what the original does, which both are read for;
    /// else it is kept.
    ///
    /// # Errors
    /// The server's; or it was stopped.
    pub fn reorder_clean(
        &self,
        namespace: &str,
        stop: &Stop,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<Cleaned> {
        self.reorder_mend(namespace, None, stop, progress)
    }

    /// [`reorder_clean`](Self::reorder_clean), where what was `copied` may be known.
    fn reorder_mend(
        &self,
        namespace: &str,
        copied: Option<Content>,
        stop: &Stop,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<Cleaned> {
        let (database, collection) = split(namespace)?;
        let (copy, before) = (format!("{collection}{COPY}"), format!("{collection}{BEFORE}"));
        let mut cleaned = Cleaned::default();
        let mut names = self.reorder_names(database)?;
        let mut attempts = 0;
        while names.contains(&before) {
            attempts += 1;
            if names.iter().any(|name| name == collection) {
                let aside = (1..)
                    .map(|n| {
                        if n == 1 {
                            format!("{collection}{WRITTEN}")
                        } else {
                            format!("{collection}{WRITTEN}{n}")
                        }
                    })
                    .find(|name| !names.contains(name))
                    .unwrap_or_default();
                self.rename(database, collection, &aside)?;
            }
            match self.rename(database, &before, collection) {
                Err(error) if error.code() == Some(EXISTS) && attempts < ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(()) => cleaned.done.push(format!("gave the original its name {namespace} back")),
            }
            names = self.reorder_names(database)?;
        }
        if names.contains(&copy) {
            self.ask(database, doc! { "drop": &copy }, "drop the copy")?;
            cleaned.done.push(format!("dropped the copy {database}.{copy}"));
        }
        let mut original = None;
        for name in names.iter().filter(|name| is_written(name, collection)) {
            let mut read = |name: &str| {
                let mut check = Check { stop, watch: None, next: Instant::now() };
                let raw = self.raw(database, name);
                let mut told = |done| progress(Stage::Comparing, done, done);
                self.runtime().block_on(read_all(&raw, &mut check, &mut told))
            };
            let held = read(name)?;
            let same = held.documents == 0 || copied == Some(held);
            let same = same || {
                let original = match original {
                    Some(content) => content,
                    None => *original.insert(read(collection)?),
                };
                original == held
            };
            if same {
                self.ask(database, doc! { "drop": name }, "drop the copy")?;
                cleaned.done.push(format!("dropped {database}.{name}, which held nothing of its own"));
            } else {
                cleaned.kept.push(format!(
                    "{database}.{name} had the name {namespace} for a while, and its {} documents are not those of the \
                     original: what was written then is in it. Look at it, take over what is wanted, and drop it",
                    held.documents
                ));
            }
        }
        Ok(cleaned)
    }

    fn rename(&self, database: &str, from: &str, to: &str) -> Result<()> {
        let command =
            doc! { "renameCollection": format!("{database}.{from}"), "to": format!("{database}.{to}") };
        self.ask("admin", command, "rename the collection").map(drop)
    }

    /// Which election made this server the primary, where it says.
    fn election(&self) -> Result<Option<Bson>> {
        let hello = self.ask("admin", doc! { "hello": 1 }, "ask who is the primary")?;
        Ok(hello.get("electionId").cloned())
    }

    /// Does it. `progress` is told of each stage with documents done so far and in all. Where writes in between
    /// cannot be followed, `writers_stopped` has to say that there are none.
    ///
    /// # Errors
    /// Anything that is not as it should be, a write in between too; the copy is dropped then, and the original
    /// has its name. Where not even that could be done the error says what is left.
    pub fn reorder(
        &self,
        plan: &Plan,
        writers_stopped: bool,
        stop: &Stop,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<u64> {
        if let Some(left) = &plan.leftover {
            return Err(Error::Refused(format!("{left}: look at it, then remove it with --clean")));
        }
        if plan.fits() == Some(false) {
            return Err(Error::Refused(
                "there is not enough space for a second one of its size where the server keeps its files"
                    .into(),
            ));
        }
        let (database, namespace) = (&plan.database, plan.namespace());
        let election = self.election()?;
        let watch = match &plan.unwatched {
            Some(why) => Err(why.clone()),
            None => self.watch(database, &plan.collection, plan.named(BEFORE))?,
        };
        let watch = match watch {
            Ok(watch) => Some(watch),
            Err(_) if writers_stopped => None,
            Err(why) => {
                return Err(Error::Refused(format!(
                    "nothing may write to {namespace} meanwhile, and here that cannot be followed ({why}): stop what writes, \
                     and say so with --writers-stopped (a write that comes all the same changes the content, and stops it)"
                )));
            }
        };
        self.make_copy(plan, watch.is_some())?;
        let mut check = Check { stop, watch, next: Instant::now() };
        let mut copied = None;
        let done = self
            .reorder_steps(plan, &mut copied, &mut check, progress)
            .and_then(|()| self.same_election(election.as_ref()));
        match done {
            Ok(()) => {}
            Err(error) => {
                // A person who wants no more wants it mended all the same.
                return Err(match self.reorder_mend(&namespace, copied, &Stop::default(), progress) {
                    Ok(Cleaned { kept, .. }) if kept.is_empty() => error,
                    Ok(Cleaned { kept, .. }) => Error::Refused(format!("{error}; {}", kept.join("; "))),
                    Err(other) => Error::Refused(format!(
                        "{error}; and what is left could not be mended ({other}): the original is {namespace}, or {namespace}\
                         {BEFORE} if there is such a collection. Run it again with --clean"
                    )),
                });
            }
        }
        progress(Stage::Dropping, 0, 1);
        let before = plan.named(BEFORE);
        if let Err(error) = self.ask(database, doc! { "drop": &before }, "drop the original") {
            return Err(Error::Refused(format!(
                "{namespace} lies in order now, but the original could not be dropped ({error}): drop {database}.{before} by \
                 hand (--clean would give it its name back)"
            )));
        }
        progress(Stage::Dropping, 1, 1);
        Ok(copied.map_or(0, |copied| copied.documents))
    }

    /// In a replica set it waits for a majority. All that was written before is on this server then, in the order of
    /// the oplog: a write which began before the change stream was opened, and is not in it, is read by the copy.
    fn make_copy(&self, plan: &Plan, majority: bool) -> Result<()> {
        let mut create = doc! { "create": plan.named(COPY) };
        // The server gives its own; an `_id` index comes by itself.
        create.extend(
            plan.options
                .iter()
                .filter(|(key, _)| !["uuid", "autoIndexId"].contains(&key.as_str()))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        if majority {
            let wait = i64::try_from(MAJORITY.as_millis()).unwrap_or(i64::MAX);
            create.insert("writeConcern", doc! { "w": "majority", "wtimeout": wait });
        }
        let reply = self.ask(&plan.database, create, "make the copy")?;
        if let Ok(failed) = reply.get_document("writeConcernError") {
            let drop = doc! { "drop": plan.named(COPY) };
            let dropped = self.ask(&plan.database, drop, "drop the copy");
            return Err(Error::Refused(format!(
                "no majority of the replica set's members has what is written ({}), so what is written meanwhile could not be \
                 followed{}",
                failed.get_str("errmsg").unwrap_or("no reason given"),
                if dropped.is_ok() { "" } else { "; an empty copy is left: run it again with --clean" },
            )));
        }
        Ok(())
    }

    fn same_election(&self, election: Option<&Bson>) -> Result<()> {
        if self.election()?.as_ref() == election {
            return Ok(());
        }
        Err(Error::Refused(
            "the replica set has elected a primary meanwhile: whether all that was read is still so cannot be known"
                .into(),
        ))
    }

    /// All until it is known that the original can go.
    fn reorder_steps(
        &self,
        plan: &Plan,
        content: &mut Option<Content>,
        check: &mut Check<'_>,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<()> {
        let (database, copy_name, before_name) = (&plan.database, plan.named(COPY), plan.named(BEFORE));
        let (original, copy) = (self.raw(database, &plan.collection), self.raw(database, &copy_name));
        let runtime = self.runtime();

        let total = plan.documents;
        let index = plan.indexes.iter().find(|index| is_named(index, &plan.order));
        let key = index.and_then(|index| index.get_document("key").ok()).cloned().unwrap_or_default();
        progress(Stage::Copying, 0, total);
        let mut told = |done| progress(Stage::Copying, done, total);
        let (order, validated) = ((plan.order.as_str(), key), plan.options.contains_key("validator"));
        let copied = runtime.block_on(copy_all(&original, &copy, order, validated, check, &mut told))?;
        *content = Some(copied);

        progress(Stage::Indexes, 0, plan.indexes() as u64);
        let specs: Vec<_> = plan
            .indexes
            .iter()
            .filter(|index| !is_named(index, "_id_"))
            .map(|index| {
                let mut spec = index.clone();
                // The version that indexes have by themselves; not every server takes it as an option.
                if matches!(spec.get("v"), Some(Bson::Int32(2))) {
                    spec.remove("v");
                }
                Bson::Document(spec)
            })
            .collect();
        if !specs.is_empty() {
            let command = doc! { "createIndexes": &copy_name, "indexes": specs };
            self.ask(database, command, "make the indexes")?;
        }

        let mut read = |stage: Stage, which: &Raw, check: &mut Check<'_>| {
            progress(stage, 0, copied.documents);
            runtime.block_on(read_all(which, check, &mut |done| progress(stage, done, copied.documents)))
        };
        let made = read(Stage::Verifying, &copy, check)?;
        if made != copied {
            return Err(Error::Refused(format!(
                "the copy does not hold what was read ({} documents of {}): nothing was changed",
                made.documents, copied.documents
            )));
        }
        if check.watch.is_some() {
            progress(Stage::Comparing, 0, 1);
            runtime.block_on(check.look())?;
        } else if read(Stage::Comparing, &original, check)? != copied {
            return Err(written("its content has changed"));
        }
        if check.stop.is_set() {
            return Err(Error::Stopped);
        }

        progress(Stage::Renaming, 0, 1);
        self.rename(database, &plan.collection, &before_name)?;
        match self.rename(database, &copy_name, &plan.collection) {
            Err(error) if error.code() == Some(EXISTS) => {
                return Err(written("its name was taken while it was free"));
            }
            other => other?,
        }
        progress(Stage::Renaming, 1, 1);

        progress(Stage::Deciding, 0, copied.documents);
        if let Some(watch) = &mut check.watch {
            runtime.block_on(until_aside(watch, check.stop))?;
        } else {
            let mut told = |done| progress(Stage::Deciding, done, copied.documents);
            let before = self.raw(database, &before_name);
            if runtime.block_on(read_all(&before, check, &mut told))? != copied {
                return Err(written("its content has changed"));
            }
        }
        // Neither of those tells of an index or a validator that was made meanwhile.
        let same = self
            .made(database, &before_name)?
            .is_some_and(|made| made.options == plan.options && made.indexes == plan.indexes);
        if !same {
            return Err(written("its options or indexes have changed"));
        }
        Ok(())
    }
}

/// Follows the change stream to where the original stepped aside.
async fn until_aside(watch: &mut Watch, stop: &Stop) -> Result<()> {
    let deadline = Instant::now() + MAJORITY;
    loop {
        match watch.look().await? {
            Seen::Aside => return Ok(()),
            Seen::Write(how) => return Err(written(&how)),
            Seen::Nothing if stop.is_set() => return Err(Error::Stopped),
            Seen::Nothing if Instant::now() >= deadline => {
                return Err(Error::Refused(
                    "whether the collection was written to meanwhile cannot be known: the change stream does not get to where \
                     the original stepped aside, as no majority of the members has it"
                        .into(),
                ));
            }
            Seen::Nothing => {}
        }
    }
}

fn split(namespace: &str) -> Result<(&str, &str)> {
    namespace.split_once('.').ok_or_else(|| {
        Error::Refused(format!("{namespace} is no namespace: write it as database.collection"))
    })
}

fn is_named(entry: &Document, name: &str) -> bool {
    entry.get_str("name").is_ok_and(|found| found == name)
}

/// Whether it is what had the name of a collection for a while.
fn is_written(name: &str, collection: &str) -> bool {
    name.strip_prefix(collection)
        .and_then(|rest| rest.strip_prefix(WRITTEN))
        .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads a sample in an order.
async fn walk(raw: &Raw, hint: Hint) -> mongodb::error::Result<Sample> {
    let begun = Instant::now();
    let mut cursor = raw.find(doc! {}).hint(hint).limit(SAMPLE).batch_size(CHUNK).await?;
    let (mut sample, mut chunk, mut since) = (Sample::default(), 0_u32, begun);
    let mut pace: Option<(f64, f64)> = None;
    loop {
        let more = cursor.try_next().await?.is_some();
        if more {
            sample.documents += 1;
            chunk += 1;
        }
        // A part that is much shorter than the others says little.
        if chunk == CHUNK || (!more && chunk > 0 && pace.is_none()) {
            let each = since.elapsed().as_secs_f64() / f64::from(chunk);
            let (low, high) = pace.unwrap_or((each, each));
            pace = Some((low.min(each), high.max(each)));
            (chunk, since) = (0, Instant::now());
        }
        if !more {
            sample.time = begun.elapsed();
            sample.pace = pace.unwrap_or_default();
            return Ok(sample);
        }
    }
}

async fn copy_all(
    from: &Raw,
    to: &Raw,
    (order, key): (&str, Document),
    validated: bool,
    check: &mut Check<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Content> {
    let failed = |error: mongodb::error::Error| Error::of("copy the collection", ROLE, &error);
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
        check.go_on().await?;
        if !batch.is_empty() && (last || batch.len() >= BATCH || bytes >= BATCH_BYTES) {
            let documents = std::mem::take(&mut batch);
            bytes = 0;
            let insert = to.insert_many(documents).ordered(true);
            // A right that not everybody has who may write.
            let insert = if validated { insert.bypass_document_validation(true) } else { insert };
            insert.await.map_err(failed)?;
            progress(content.documents);
        }
        if last {
            return Ok(content);
        }
    }
}

async fn read_all(which: &Raw, check: &mut Check<'_>, progress: &mut dyn FnMut(u64)) -> Result<Content> {
    let failed = |error: mongodb::error::Error| Error::of("read the collection", ROLE, &error);
    let mut content = Content::default();
    let mut cursor = which.find(doc! {}).await.map_err(failed)?;
    while let Some(document) = cursor.try_next().await.map_err(failed)? {
        content.add(document.as_bytes());
        check.go_on().await?;
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

    /// Events as the manual has them ("Change Events").
    #[test]
    fn only_its_own_rename_is_no_write() {
        let aside = "orders_mongosonar_before";
        let ns = doc! { "db": "shop", "coll": "orders" };
        let event =
            |operation: &str| doc! { "_id": { "_data": "8262" }, "operationType": operation, "ns": &ns };
        for operation in ["insert", "update", "replace", "delete", "drop", "dropDatabase", "invalidate"] {
            assert_eq!(seen(&event(operation), aside), Seen::Write(operation.into()));
        }
        let mut renamed = event("rename");
        renamed.insert("to", doc! { "db": "shop", "coll": "elsewhere" });
        assert_eq!(seen(&renamed, aside), Seen::Write("rename".into()), "somebody else's");
        renamed.insert("to", doc! { "db": "shop", "coll": aside });
        assert_eq!(seen(&renamed, aside), Seen::Aside);
        assert_eq!(seen(&doc! {}, aside), Seen::Write("an event without a type".into()));
    }

    #[test]
    fn what_was_set_aside_is_known_by_its_name() {
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
