//! What a server measures of itself, and how large its collections are: `serverStatus`, `replSetGetStatus` and
//! `$collStats`, each bounded in time and in what it asks for.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ServerAddress;

use crate::error::{COMMAND_NOT_FOUND, NAMESPACE_NOT_FOUND, Result, ServerError};
use crate::profiler::OWN_DATABASES;
use crate::server::{self, NOT_A_COLLECTION, Server, number, whole};
use crate::server_info::FERRETDB;
use crate::target::Target;

/// How long a server may work on a command, in milliseconds.
const MAX_TIME_MS: i32 = 3_000;
/// How long to wait for a reply. A server that stalls does not check its own limit.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most servers that a connection string may name.
const MAX_HOSTS: usize = 64;
/// The most indexes of a collection.
const MAX_INDEXES: usize = 64;
/// Documents and collections in one reply.
const BATCH: i32 = 10_000;
/// The role that grants all of this.
const ROLE: &str = "clusterMonitor";
/// NoReplicationEnabled, NotYetInitialized, and CommandNotSupported of a mongos or another product.
const NO_REPLICA_SET: [i32; 4] = [76, 94, COMMAND_NOT_FOUND, 115];

/// Sections of `serverStatus` from which nothing is used, or that cost much.
///
/// `sharding`, `timing` and `defaultRWConcern` are those that the server leaves out of its own `diagnostic.data`.
const LEFT_OUT: [&str; 26] = [
    "sharding",
    "timing",
    "defaultRWConcern",
    "catalogStats",
    "changeStreamPreImages",
    "electionMetrics",
    "featureCompatibilityVersion",
    "freeMonitoring",
    "hedgingMetrics",
    "indexBuilds",
    "indexBulkBuilder",
    "indexStats",
    "internalTransactions",
    "latchAnalysis",
    "locks",
    "logicalSessionRecordCache",
    "opReadConcernCounters",
    "opWriteConcernCounters",
    "repl",
    "security",
    "shardingStatistics",
    "storageEngine",
    "trafficRecording",
    "transactions",
    "transportSecurity",
    "twoPhaseCommitCoordinator",
];

/// What `serverStatus` answered.
#[derive(Clone, Debug)]
pub struct ServerStatusReply {
    /// The server's clock, in milliseconds since 1970.
    pub time_ms: i64,
    /// All of it.
    pub document: Document,
}

impl ServerStatusReply {
    /// The number of the server's process, as it sees itself; `None` if it does not say.
    pub fn process(&self) -> Option<u32> {
        whole(&self.document, "pid").and_then(|number| u32::try_from(number).ok())
    }
}

/// What `replSetGetStatus` answered.
#[derive(Clone, Debug)]
pub struct ReplicaSetStatus {
    /// The term of the election that the server knows last; `None` if it does not say.
    pub term: Option<u64>,
    /// The members, as this server sees them.
    pub members: Vec<MemberStatus>,
    /// All of it.
    pub document: Document,
}

/// A member of a replica set, as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// `host:port` as in the configuration.
    pub name: String,
    /// State by number: 1 is primary, 2 secondary.
    pub state: i64,
    /// State by name: `PRIMARY`.
    pub state_name: String,
    /// The server that answered.
    pub is_self: bool,
    /// Time of the last operation that it has applied, in milliseconds since 1970; 0 if it has applied none.
    pub optime_ms: i64,
}

/// The collections of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionList {
    /// Database and collection, by database.
    pub names: Vec<(String, String)>,
    /// Collections that were left out because there are more than the caller wanted, of the first 10,000 of each
    /// database.
    pub left_out: u64,
    /// Databases whose collections the user may not see.
    pub refused: u64,
}

/// How large a collection is. On a mongos the sum of all shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionSize {
    /// Documents.
    pub documents: u64,
    /// Bytes of all documents, uncompressed.
    pub size: u64,
    /// Bytes of the collection's file.
    pub storage: u64,
    /// Bytes of that file that can be reused; `None` if the server does not say (before 4.4).
    pub reusable: Option<u64>,
    /// Bytes of each index by its name.
    pub indexes: BTreeMap<String, u64>,
}

impl Target {
    /// The servers that it names, `host:port`: those of a list, or of DNS for `mongodb+srv://`.
    ///
    /// # Errors
    /// It cannot be used, or a name server does not answer.
    pub fn hosts(&self) -> Result<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let options = runtime.block_on(self.options())?;
        Ok(options.hosts.iter().take(MAX_HOSTS).map(ToString::to_string).collect())
    }
}

impl Server {
    /// Connects to one of the [hosts](Target::hosts) of a target and to no other member of its replica set, whatever
    /// the state of that member. The connection has one thread, which is named `thread`.
    ///
    /// # Errors
    /// As [`Server::connect`].
    pub fn connect_alone(target: &Target, host: &str, thread: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(thread)
            .enable_all()
            .build()?;
        let connection = async {
            let mut options = target.options().await?;
            // The driver writes an IPv6 address without brackets, and reads it with them.
            let address = options.hosts.iter().find(|address| address.to_string() == host).cloned();
            options.hosts = vec![match address {
                Some(address) => address,
                None => ServerAddress::parse(host).map_err(|error| ServerError::of("connect", "", &error))?,
            }];
            options.direct_connection = Some(true);
            options.repl_set_name = None;
            options.selection_criteria = None;
            server::connect(options, 2).await
        };
        let (link, info) = runtime.block_on(connection)?;
        Ok(Self::new(runtime, link, info))
    }

    /// `serverStatus` without the sections that nothing here uses.
    ///
    /// # Errors
    /// The server did not answer in time, or the user may not ask for it.
    pub fn status(&self) -> Result<ServerStatusReply> {
        // The window of the oplog is in no reply that does not ask for it.
        let mut command = doc! { "serverStatus": 1, "oplog": 1 };
        command.extend(LEFT_OUT.map(|section| (section.to_owned(), Bson::Int32(0))));
        let document = self.bounded("admin", command, "read serverStatus", ROLE)?;
        let time_ms = match document.get_datetime("localTime") {
            Ok(time) => time.timestamp_millis(),
            Err(_) => return Err(ServerError::Reply("serverStatus")),
        };
        Ok(ServerStatusReply { time_ms, document })
    }

    /// `replSetGetStatus`; `None` on a mongos, a server without replica set, and one whose replica set is not
    /// initiated yet.
    ///
    /// # Errors
    /// The server did not answer in time, or the user may not ask for it.
    pub fn replica_set_status(&self) -> Result<Option<ReplicaSetStatus>> {
        if self.info().mongos {
            return Ok(None);
        }
        match self.bounded("admin", doc! { "replSetGetStatus": 1 }, "read replSetGetStatus", ROLE) {
            Err(error) if error.code().is_some_and(|code| NO_REPLICA_SET.contains(&code)) => Ok(None),
            Err(error) => Err(error),
            Ok(document) => Ok(Some(replica_set(document))),
        }
    }

    /// At most `most` collections that users made, without views and the server's own.
    ///
    /// # Errors
    /// The server did not answer in time, or the user may not list databases.
    pub fn collections(&self, most: usize) -> Result<CollectionList> {
        let command = doc! { "listDatabases": 1, "nameOnly": true };
        let reply = self.bounded("admin", command, "list the databases", ROLE)?;
        let databases = reply.get_array("databases").map_err(|_| ServerError::Reply("listDatabases"))?;
        let mut list = CollectionList::default();
        for entry in databases.iter().filter_map(Bson::as_document) {
            let Ok(database) = entry.get_str("name") else { continue };
            if OWN_DATABASES.contains(&database) {
                continue;
            }
            let command = doc! {
                "listCollections": 1, "nameOnly": true, "authorizedCollections": true, "cursor": { "batchSize": BATCH },
            };
            let reply = match self.bounded(database, command, "list the collections", "readAnyDatabase") {
                Err(ServerError::Unauthorized { .. }) => {
                    list.refused += 1;
                    continue;
                }
                reply => reply?,
            };
            self.end_cursor(database, &reply);
            for name in documents(&reply).filter_map(collection_name) {
                if list.names.len() < most {
                    list.names.push((database.to_owned(), name.to_owned()));
                } else {
                    list.left_out += 1;
                }
            }
        }
        Ok(list)
    }

    /// How large a collection is; `None` if it is gone, or has no size of its own.
    ///
    /// # Errors
    /// The server did not answer in time, or the user may not ask for it.
    pub fn collection_size(&self, database: &str, collection: &str) -> Result<Option<CollectionSize>> {
        let fields = doc! { "count": 1, "size": 1, "storageSize": 1, "freeStorageSize": 1, "indexSizes": 1 };
        let fields: Document =
            fields.into_iter().map(|(name, one)| (format!("storageStats.{name}"), one)).collect();
        let mut pipeline = vec![doc! { "$collStats": { "storageStats": { "scale": 1 } } }];
        // FerretDB 1.24 closes the connection at this; its replies are short.
        if self.info().product != FERRETDB {
            pipeline.push(doc! { "$project": fields });
        }
        let command =
            doc! { "aggregate": collection, "pipeline": pipeline, "cursor": { "batchSize": BATCH } };
        match self.bounded(database, command, "read the sizes of collections", ROLE) {
            Err(error)
                if error
                    .code()
                    .is_some_and(|code| [NAMESPACE_NOT_FOUND, NOT_A_COLLECTION].contains(&code)) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
            Ok(reply) => Ok(size(&reply)),
        }
    }

    /// Ends the cursor of a reply that has more than one batch: more collections than that are not counted.
    fn end_cursor(&self, database: &str, reply: &Document) {
        let cursor = reply.get_document("cursor").ok();
        if let Some(id) = cursor.and_then(|cursor| cursor.get_i64("id").ok()).filter(|id| *id != 0) {
            let kill = doc! { "killCursors": "$cmd.listCollections", "cursors": [id] };
            // The server also ends it.
            let _ = self.bounded(database, kill, "list the collections", ROLE);
        }
    }

    /// Runs a command that must not take long, neither on the server nor on the way.
    pub(crate) fn bounded(
        &self,
        database: &str,
        mut command: Document,
        what: &str,
        role: &'static str,
    ) -> Result<Document> {
        command.insert("maxTimeMS", MAX_TIME_MS);
        let reply = self.link().command_as(database, command, what, role);
        let timed = self.runtime().block_on(async { tokio::time::timeout(PATIENCE, reply).await });
        timed.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", PATIENCE.as_secs());
            Err(ServerError::Lost { what: what.to_owned(), reason })
        })
    }
}

/// The document of a sample, as a server writes it to `diagnostic.data`. `time_ms` is when it was taken.
pub fn sample_document(time_ms: i64, status: &ServerStatusReply, set: Option<&ReplicaSetStatus>) -> Vec<u8> {
    let mut document =
        doc! { "start": DateTime::from_millis(time_ms), "serverStatus": status.document.clone() };
    if let Some(set) = set {
        document.insert("replSetGetStatus", set.document.clone());
    }
    // It came from BSON: it can be written as such. An empty document is no sample.
    bson::serialize_to_vec(&document).unwrap_or_default()
}

fn documents(reply: &Document) -> impl Iterator<Item = &Document> {
    let batch = reply.get_document("cursor").ok().and_then(|cursor| cursor.get_array("firstBatch").ok());
    batch.into_iter().flatten().filter_map(Bson::as_document)
}

/// The name of a collection that has a size. The buckets of time series are collections, they themselves are views.
fn collection_name(entry: &Document) -> Option<&str> {
    let name = entry.get_str("name").ok()?;
    let has_size = matches!(entry.get_str("type"), Ok("collection") | Err(_));
    (has_size && (!name.starts_with("system.") || name.starts_with("system.buckets."))).then_some(name)
}

fn replica_set(document: Document) -> ReplicaSetStatus {
    let members = document.get_array("members").map(Vec::as_slice).unwrap_or_default();
    let member = |entry: &Bson| {
        let member = entry.as_document()?;
        Some(MemberStatus {
            name: member.get_str("name").ok()?.to_owned(),
            state: number(member, "state")? as i64,
            state_name: member.get_str("stateStr").unwrap_or_default().to_owned(),
            is_self: member.get_bool("self").unwrap_or(false),
            optime_ms: member.get_datetime("optimeDate").map_or(0, |date| date.timestamp_millis()),
        })
    };
    // A replica set has at most 50.
    let members = members.iter().take(MAX_HOSTS).filter_map(member).collect();
    ReplicaSetStatus { term: whole(&document, "term"), members, document }
}

/// The sum of what each shard says; `None` if none says anything.
fn size(reply: &Document) -> Option<CollectionSize> {
    let shards = documents(reply).filter_map(|shard| shard.get_document("storageStats").ok());
    shards.map(size_on_shard).reduce(|mut all, shard| {
        all.documents = all.documents.saturating_add(shard.documents);
        all.size = all.size.saturating_add(shard.size);
        all.storage = all.storage.saturating_add(shard.storage);
        all.reusable = all.reusable.zip(shard.reusable).map(|(a, b)| a.saturating_add(b));
        for (index, bytes) in shard.indexes {
            let sum = all.indexes.entry(index).or_default();
            *sum = sum.saturating_add(bytes);
        }
        all
    })
}

fn size_on_shard(stats: &Document) -> CollectionSize {
    let count = |key| whole(stats, key).unwrap_or(0);
    let indexes = stats.get_document("indexSizes").ok();
    let bytes = |name: &String| Some((name.clone(), whole(indexes?, name)?));
    CollectionSize {
        documents: count("count"),
        size: count("size"),
        storage: count("storageSize"),
        reusable: whole(stats, "freeStorageSize"),
        indexes: indexes.into_iter().flat_map(Document::keys).take(MAX_INDEXES).filter_map(bytes).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(shards: &[Document]) -> Document {
        let shards: Vec<Bson> =
            shards.iter().map(|stats| doc! { "storageStats": stats.clone() }.into()).collect();
        doc! { "cursor": { "firstBatch": shards, "id": 0_i64 }, "ok": 1.0 }
    }

    #[test]
    fn the_shards_of_a_collection_are_added_up() {
        let one = doc! {
            "count": 10, "size": 4_000_i64, "storageSize": 8_192.0, "freeStorageSize": 4_096,
            "indexSizes": { "_id_": 100, "user_1": 50_i64 },
        };
        let other = doc! { "count": 5, "size": 1_000, "storageSize": 4_096, "freeStorageSize": 0, "indexSizes": { "_id_": 30 } };
        let sum = size(&reply(&[one.clone(), other])).unwrap();
        assert_eq!((sum.documents, sum.size, sum.storage, sum.reusable), (15, 5_000, 12_288, Some(4_096)));
        assert_eq!(sum.indexes, [("_id_".to_owned(), 130), ("user_1".to_owned(), 50)].into());
        // Before 4.4 nobody knows what can be reused.
        let old = doc! { "count": 1, "size": 1, "storageSize": 1, "indexSizes": {} };
        assert_eq!(size(&reply(&[one, old])).unwrap().reusable, None);
        assert_eq!(size(&doc! {}), None);
        assert_eq!(size(&doc! { "cursor": { "firstBatch": [{ "shard": "s0" }, 5] } }), None);
    }

    #[test]
    fn views_and_the_servers_own_collections_have_no_size() {
        for (entry, expected) in [
            (doc! { "name": "orders", "type": "collection" }, Some("orders")),
            (doc! { "name": "orders" }, Some("orders")),
            (doc! { "name": "recent", "type": "view" }, None),
            (doc! { "name": "load", "type": "timeseries" }, None),
            (doc! { "name": "system.buckets.load", "type": "collection" }, Some("system.buckets.load")),
            (doc! { "name": "system.profile", "type": "collection" }, None),
            (doc! { "name": 5 }, None),
        ] {
            assert_eq!(collection_name(&entry), expected, "{entry}");
        }
    }

    /// Members as `replSetGetStatus` of 4.4 lists them.
    #[test]
    fn members_of_a_replica_set_have_state_and_optime() {
        let optime = DateTime::from_millis(1_795_296_191_000);
        let set = replica_set(doc! {
            "set": "rs0", "term": 7_i64,
            "members": [
                { "name": "a:1", "health": 1.0, "state": 1, "stateStr": "PRIMARY", "optimeDate": optime, "self": true },
                { "name": "b:2", "health": 0.0, "state": 8.0, "stateStr": "(not reachable/healthy)" },
                { "name": 3 }, 4,
            ],
        });
        assert_eq!(set.term, Some(7));
        let [primary, down] = &set.members[..] else { panic!("{:?}", set.members) };
        assert_eq!((primary.state, primary.is_self, primary.optime_ms), (1, true, 1_795_296_191_000));
        assert_eq!((down.state, down.is_self, down.optime_ms), (8, false, 0));
    }

    #[test]
    fn a_target_names_its_servers() {
        let hosts = Target::from("mongodb://a:1,b,[::1]:5/?replicaSet=rs0").hosts().unwrap();
        assert_eq!(hosts, ["a:1", "b:27017", "::1:5"]);
        assert!(Target::from("mongodb://%zz").hosts().is_err());
    }
}
