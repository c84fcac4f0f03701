//! A connection to a server: which server it is, and commands to it.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{
    ClientOptions, CollectionOptions, ReadPreference, SelectionCriteria, Tls, TlsOptions,
};
use mongodb::{Client, Collection};
use sonar_core::{Application, ServerVersion, Timestamp};
use tokio::runtime::{Builder, Runtime};

use crate::error::{COMMAND_NOT_FOUND, Result, ServerError};
use crate::reach::Reach;
use crate::server_info::{ServerInfo, product};
use crate::target::Target;
use crate::unreachable::ReachObstacle;

/// How long to search for a server, unless the connection string states it.
const SELECTION: Duration = Duration::from_secs(10);
/// How long a TCP connection may take to open, unless the connection string states it.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a server that does not answer without TLS may take to answer in TLS.
const TLS_PROBE: Duration = Duration::from_secs(3);

/// A connection, through the driver's pool. All commands go to the address of the server that was found when it was
/// opened, also after a fail-over: a change on a server must be undone on that server.
pub struct Server {
    runtime: Runtime,
    link: Link,
    info: ServerInfo,
}

/// The state of the asynchronous part.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub client: Client,
    /// Where commands go: the server that was found.
    pub criteria: SelectionCriteria,
    /// The server that the connection string asks for.
    pub asked: SelectionCriteria,
    /// The errors of servers that do not answer.
    pub reach: Reach,
}

impl Server {
    /// Connects to a server, named by a [`Target`] or a connection string, with at most `connections`
    /// connections open at once.
    ///
    /// # Errors
    /// The connection string cannot be used, no server was reached in time, or the server refused.
    pub fn connect(target: impl Into<Target>, connections: u32) -> Result<Self> {
        let target = target.into();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("mongosonar-net")
            .enable_all()
            .build()?;
        let connection = async { connect(target.options().await?, connections).await };
        let (link, info) = runtime.block_on(connection)?;
        Ok(Self::new(runtime, link, info))
    }

    pub(crate) fn new(runtime: Runtime, link: Link, info: ServerInfo) -> Self {
        Self { runtime, link, info }
    }

    /// Its identity and version.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The present time of its clock.
    ///
    /// # Errors
    /// The server did not answer.
    pub fn now(&self) -> Result<Timestamp> {
        let hello = self.command("admin", doc! { "hello": 1 }, "read the server's clock")?;
        hello.get_datetime("localTime").map(time).map_err(|_| ServerError::Reply("hello"))
    }

    /// Names of its databases, in order.
    ///
    /// # Errors
    /// The server did not answer, or the user may not list databases.
    pub fn databases(&self) -> Result<Vec<String>> {
        self.runtime.block_on(self.link.databases())
    }

    /// The indexes of a collection that can serve any query, each as its fields with their directions: not those that
    /// are hidden, partial, sparse, or of another kind (text, hashed, geo). Empty if there is no such collection.
    ///
    /// # Errors
    /// The server did not answer, or the user may not list indexes.
    pub fn indexes(&self, database: &str, collection: &str) -> Result<Vec<Vec<(String, i8)>>> {
        // A collection has at most 64.
        let command = doc! { "listIndexes": collection, "cursor": { "batchSize": 1_000 } };
        let link = self.link.command_as(database, command, "list indexes", "read");
        let reply = match self.runtime.block_on(link) {
            Err(error) if matches!(error.code(), Some(NAMESPACE_NOT_FOUND | NOT_A_COLLECTION)) => {
                return Ok(Vec::new());
            }
            reply => reply?,
        };
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let batch = batch.map_err(|_| ServerError::Reply("listIndexes"))?;
        Ok(batch.iter().filter_map(|index| plain_index(index.as_document()?)).collect())
    }

    /// Runs a command on a database of this server.
    ///
    /// # Errors
    /// The server's error; `what` names the request.
    pub fn command(&self, database: &str, command: Document, what: &str) -> Result<Document> {
        self.runtime.block_on(self.link.command(database, command, what))
    }
}

impl Link {
    /// A collection of the server that was found.
    pub fn collection<T: Send + Sync>(&self, database: &str, name: &str) -> Collection<T> {
        let options = CollectionOptions::builder().selection_criteria(self.criteria.clone()).build();
        self.client.database(database).collection_with_options(name, options)
    }

    pub async fn command(&self, database: &str, command: Document, what: &str) -> Result<Document> {
        self.command_as(database, command, what, "clusterMonitor").await
    }

    /// `role` grants the command.
    pub async fn command_as(
        &self,
        database: &str,
        command: Document,
        what: &str,
        role: &'static str,
    ) -> Result<Document> {
        self.client
            .database(database)
            .run_command(command)
            .selection_criteria(self.criteria.clone())
            .await
            .map_err(|error| self.error(what, role, &error))
    }

    /// Translates an error of the driver during `what`, which `role` grants.
    pub fn error(
        &self,
        what: impl Into<String>,
        role: &'static str,
        error: &mongodb::error::Error,
    ) -> ServerError {
        match &*error.kind {
            ErrorKind::ServerSelection { message, .. } => self.reach.explain(message),
            _ => ServerError::of(what, role, error),
        }
    }

    /// The server of a replica set that the connection string asks for now, and its address.
    pub async fn chosen(&self) -> Result<(SelectionCriteria, String)> {
        let asked = Self { criteria: self.asked.clone(), ..self.clone() };
        let hello = asked.command("admin", doc! { "hello": 1 }, "find the server").await?;
        let me = hello.get_str("me").map_err(|_| ServerError::Reply("hello"))?;
        Ok((at(me.to_owned()), me.to_owned()))
    }

    pub async fn databases(&self) -> Result<Vec<String>> {
        let command = doc! { "listDatabases": 1, "nameOnly": true };
        let reply = self.command("admin", command, "list the databases").await?;
        let list = reply.get_array("databases").map_err(|_| ServerError::Reply("listDatabases"))?;
        let name = |entry: &Bson| Some(entry.as_document()?.get_str("name").ok()?.to_owned());
        let mut names: Vec<String> = list.iter().filter_map(name).collect();
        names.sort();
        Ok(names)
    }
}

/// There is no such collection.
const NAMESPACE_NOT_FOUND: i32 = 26;
/// It is a view.
pub(crate) const NOT_A_COLLECTION: i32 = 166;

/// Fields and directions of an index that can serve any query.
fn plain_index(index: &Document) -> Option<Vec<(String, i8)>> {
    let is_special = index.contains_key("partialFilterExpression")
        || index.get_bool("sparse").unwrap_or(false)
        || index.get_bool("hidden").unwrap_or(false);
    if is_special {
        return None;
    }
    let field = |(name, value): (&String, &Bson)| {
        let direction = match value {
            Bson::Int32(n) => f64::from(*n),
            Bson::Int64(n) => *n as f64,
            Bson::Double(n) => *n,
            _ => return None,
        };
        Some((name.clone(), if direction < 0.0 { -1 } else { 1 }))
    };
    index.get_document("key").ok()?.iter().map(field).collect()
}

/// The server with this address.
fn at(address: String) -> SelectionCriteria {
    SelectionCriteria::Predicate(Arc::new(move |server| {
        server.address().to_string().eq_ignore_ascii_case(&address)
    }))
}

pub(crate) async fn connect(mut options: ClientOptions, connections: u32) -> Result<(Link, ServerInfo)> {
    options.app_name.get_or_insert_with(|| Application::OWN.to_owned());
    options.server_selection_timeout.get_or_insert(SELECTION);
    options.connect_timeout.get_or_insert(CONNECT);
    options.max_pool_size = Some(options.max_pool_size.unwrap_or(10).max(connections));
    let seed = options.hosts.first().map(ToString::to_string).unwrap_or_default();
    let direct = options.direct_connection == Some(true);
    let criteria = match &options.selection_criteria {
        Some(criteria) => criteria.clone(),
        None => SelectionCriteria::ReadPreference(ReadPreference::Primary),
    };
    let mut link = link(options.clone(), criteria)?;
    let hello = match hello(&link).await {
        Err(ServerError::Unreachable(why)) if why.hangs_up() && wants_tls(options).await => {
            return Err(ServerError::Unreachable(why.with(ReachObstacle::WantsTls)));
        }
        other => other?,
    };
    let mut info = ServerInfo {
        address: seed,
        replica_set: hello.get_str("setName").ok().map(str::to_owned),
        secondary: hello.get_bool("secondary").unwrap_or(false),
        mongos: hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"),
        ..ServerInfo::default()
    };
    if let (Ok(me), false, true) = (hello.get_str("me"), direct, info.replica_set.is_some()) {
        info.address = me.to_owned();
        link.criteria = at(me.to_owned());
    }
    let build = link.command("admin", doc! { "buildInfo": 1 }, "read the version").await?;
    // Percona Server appends its own number, like `4.4.8-9`; some builds are recognised only by it.
    let version = build.get_str("psmdbVersion").or_else(|_| build.get_str("version"));
    info.version = version.unwrap_or_default().to_owned();
    info.numbers = ServerVersion::parse(&info.version);
    info.product = product(&build).to_owned();
    Ok((link, info))
}

fn link(mut options: ClientOptions, criteria: SelectionCriteria) -> Result<Link> {
    let reach = Reach::new(matches!(options.tls, Some(Tls::Enabled(_))));
    options.sdam_event_handler = Some(reach.handler());
    let client = Client::with_options(options).map_err(|error| ServerError::of("connect", "", &error))?;
    Ok(Link { client, asked: criteria.clone(), criteria, reach })
}

async fn hello(link: &Link) -> Result<Document> {
    match link.command("admin", doc! { "hello": 1 }, "connect").await {
        Err(error) if error.code() == Some(COMMAND_NOT_FOUND) => {
            link.command("admin", doc! { "isMaster": 1 }, "connect").await
        }
        other => other,
    }
}

/// Whether a server that hangs up on plain connections answers in TLS. Nothing secret is sent to it, neither the
/// user's name nor the password.
async fn wants_tls(mut options: ClientOptions) -> bool {
    let mut tls = TlsOptions::default();
    tls.allow_invalid_certificates = Some(true);
    options.tls = Some(Tls::Enabled(tls));
    options.credential = None;
    options.server_selection_timeout = Some(TLS_PROBE);
    let criteria = options.selection_criteria.clone();
    let criteria = criteria.unwrap_or(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    let Ok(link) = link(options, criteria) else { return false };
    let answered = hello(&link).await;
    link.client.shutdown().await;
    match answered {
        Ok(_) | Err(ServerError::Nobody | ServerError::Unauthorized { .. } | ServerError::Command { .. }) => {
            true
        }
        Err(ServerError::Unreachable(why)) => why.speaks_tls(),
        Err(_) => false,
    }
}

/// A BSON date as a point in time; the epoch if it is earlier.
pub(crate) fn time(date: &bson::DateTime) -> Timestamp {
    Timestamp::from_unix_ms(date.timestamp_millis())
}

/// A number of any BSON type, if it is whole and not negative.
pub(crate) fn whole(document: &Document, key: &str) -> Option<u64> {
    match document.get(key)? {
        Bson::Int32(n) => u64::try_from(*n).ok(),
        Bson::Int64(n) => u64::try_from(*n).ok(),
        Bson::Double(n) if *n >= 0.0 && *n < 1.8e19 => Some(*n as u64),
        _ => None,
    }
}

/// A number of any BSON type.
pub(crate) fn number(document: &Document, key: &str) -> Option<f64> {
    match document.get(key)? {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_for_some_queries_only_is_left_out() {
        let plain = |index: Document| plain_index(&index).map(|fields| fields.len());
        assert_eq!(plain(doc! { "key": { "a": 1, "b": -1.0 }, "name": "a_1" }), Some(2));
        assert_eq!(plain_index(&doc! { "key": { "b": -1_i64 } }), Some(vec![("b".to_owned(), -1)]));
        assert_eq!(plain(doc! { "key": { "a": "hashed" } }), None);
        assert_eq!(plain(doc! { "key": { "a": 1 }, "sparse": true }), None);
        assert_eq!(plain(doc! { "key": { "a": 1 }, "partialFilterExpression": { "b": 1 } }), None);
        assert_eq!(plain(doc! { "key": { "a": 1 }, "hidden": true }), None);
        assert_eq!(plain(doc! { "name": "x" }), None);
    }

    #[test]
    fn numbers_of_every_type_count_and_others_do_not() {
        let document = doc! { "a": 5, "b": 7_i64, "c": 9.0, "d": -1, "e": "x", "f": f64::NAN };
        let read: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(|key| whole(&document, key)).to_vec();
        assert_eq!(read, [Some(5), Some(7), Some(9), None, None, None, None]);
    }
}
