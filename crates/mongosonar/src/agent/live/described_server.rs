//! A server as its process describes it: where its log and its samples are, and its settings.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use sonar_core::Endpoint;

use super::options;
use crate::agent::servers::local;
use crate::agent::settings::ServerTable;
use crate::confinement::path_bytes;
use crate::servers;
use crate::servers::configuration::ServerSetting;
use crate::servers::files::{
    InspectableLog, InspectableSamples, ServerProcess, data_folder, is_short, samples_folder,
};
use crate::servers::log_location::LogLocation;
use crate::servers::own_files::{outside, working_folder};
use serde::{Deserialize, Serialize};

/// The most letters of the reason why a server has no log.
const MAX_REASON: usize = 300;
/// The most bytes of a server in an answer, and of all servers of an answer, as JSON.
const MAX_ANSWERED: usize = 32 << 10;
const MAX_ALL_ANSWERED: usize = 768 << 10;
/// Why a server has no log.
const TOO_LONG: &str = "its log is not known: its path is too long";

/// A server of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundServer {
    /// The port that it listens on.
    pub port: u16,
    /// Its process.
    pub pid: u32,
    /// When that started, in clock ticks since boot: distinguishes it from a later process of its number.
    pub started: u64,
    /// The user who started it, by number; `None` if that is not known.
    pub user: Option<u32>,
    /// Its program: `mongod` or `mongos`.
    pub name: String,
    /// Its log; `None` if it writes none into a file, or nothing says which.
    #[serde(serialize_with = "path_bytes::serialize_optional")]
    #[serde(deserialize_with = "path_bytes::deserialize_optional")]
    pub log: Option<PathBuf>,
    /// Why it has no log that can be read: where it goes instead.
    pub no_log: Option<String>,
    /// The folder of its data, as it names it itself; `None` on a mongos, or if nothing says which.
    #[serde(serialize_with = "path_bytes::serialize_optional")]
    #[serde(deserialize_with = "path_bytes::deserialize_optional")]
    pub dbpath: Option<PathBuf>,
    /// The folder of its samples.
    #[serde(serialize_with = "path_bytes::serialize_optional")]
    #[serde(deserialize_with = "path_bytes::deserialize_optional")]
    pub diagnostic: Option<PathBuf>,
    /// The addresses of its network namespace, besides loopback, if that is not the agent's, as in most containers.
    pub network: Option<BTreeSet<IpAddr>>,
    /// The address in its name in the history; `None` if its port alone is its name.
    pub address: Option<IpAddr>,
    /// It runs, but has closed its port.
    pub is_closed: bool,
    /// Its settings, of its command line and its configuration, without secrets; empty if they are not known.
    pub options: BTreeMap<String, String>,
}

impl FoundServer {
    /// Its name in the history.
    pub fn endpoint(&self) -> Endpoint {
        self.address.map_or(local(self.port), |ip| SocketAddr::new(ip, self.port).into())
    }

    /// Whether both are the same process.
    pub fn is_process_of(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// The same in at most so many bytes of JSON: without what has no room.
    fn fitted(self, most: usize) -> Self {
        if self.fits(most) {
            return self;
        }
        let without_options = Self { options: BTreeMap::new(), ..self };
        if without_options.fits(most) {
            return without_options;
        }
        let (log, dbpath, diagnostic, no_log) = (None, None, None, Some(TOO_LONG.to_owned()));
        Self { log, dbpath, diagnostic, no_log, ..without_options }
    }

    fn fits(&self, most: usize) -> bool {
        let mut written = Written(0);
        serde_json::to_writer(&mut written, self).is_ok() && written.0 <= most
    }
}

/// Servers that fit into an answer together: each has the same share of it, so that none takes the room of others.
pub fn fitted(servers: Vec<FoundServer>) -> Vec<FoundServer> {
    let most = (MAX_ALL_ANSWERED / servers.len().max(1)).min(MAX_ANSWERED);
    servers.into_iter().map(|server| server.fitted(most)).collect()
}

/// Counts bytes.
struct Written(usize);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server with the files that may be opened for it.
#[derive(Clone)]
pub struct KnownServer {
    /// What the helper reports about it.
    pub found: FoundServer,
    /// Its log.
    pub log: Option<InspectableLog>,
    /// Its samples.
    pub samples: Option<InspectableSamples>,
}

/// A server that listens on this port, with its files; `configured` is what the configuration says of it.
pub fn describe(server: ServerProcess, port: u16, configured: Option<ServerTable>) -> KnownServer {
    let (process, started) = (&server.process, server.started);
    let configured = configured.as_ref();
    let read = server.configuration();
    // Without the file that its command line names they are not known.
    let knows_options = read.is_ok();
    let read = read.ok().flatten();
    let configuration = read.clone().unwrap_or_default();
    let named_log = ServerSetting::LOG.of(process, &configuration).map(Path::new);
    let place = match configured.and_then(|table| table.log.clone()) {
        Some(path) => Ok(LogLocation::Configured(path)),
        None => LogLocation::of(process, read.as_ref()).map_err(|why| why.chars().take(MAX_REASON).collect()),
    };
    let place = match place {
        Ok(LogLocation::Named(path)) if !is_short(&path) => Err(TOO_LONG.to_owned()),
        place => place,
    };
    let of_process = || Some(working_folder(process).join(data_folder(process, &configuration)?));
    let dbpath = configured.and_then(|table| table.dbpath.clone()).or_else(of_process);
    let dbpath = dbpath.filter(|path| is_short(path));
    let is_mongod = process.name == servers::MONGOD;
    let folder = samples_folder(process, dbpath.as_deref(), named_log);
    let folder = folder.filter(|path| is_short(path));
    let options = match knows_options {
        true => options::of(process.arguments(), &configuration),
        false => BTreeMap::new(),
    };
    let found = FoundServer {
        port,
        pid: process.pid,
        started,
        user: process.user(),
        name: process.name.clone(),
        log: place.as_ref().ok().map(|place| place.path(process)),
        no_log: place.as_ref().err().cloned(),
        dbpath: dbpath.filter(|_| is_mongod),
        diagnostic: folder.as_deref().map(|path| outside(process, path)),
        network: None,
        address: None,
        is_closed: false,
        options,
    };
    // They are not needed any more, and there may be many servers.
    let mut server = server;
    server.process.set_arguments(Vec::new());
    let log = place.ok().map(|place| InspectableLog { server: server.clone(), place });
    KnownServer { found, log, samples: folder.map(|folder| InspectableSamples { server, folder }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::files::MAX_PATH;

    #[test]
    fn servers_that_say_much_leave_room_for_others_in_an_answer() {
        let path = |length: usize| Some(PathBuf::from("\u{1}".repeat(length)));
        let options = |number: usize| (format!("{number:0120}"), "\u{1}".repeat(60));
        let hostile = FoundServer {
            network: Some((0..64).map(|n| IpAddr::from([0x2001_u16 + n; 8])).collect()),
            log: path(MAX_PATH),
            dbpath: path(MAX_PATH),
            diagnostic: path(MAX_PATH),
            options: (0..100).map(options).collect(),
            ..FoundServer::default()
        };
        let plain = FoundServer {
            log: Some("/var/log/mongod.log".into()),
            options: [("cacheSizeGB".to_owned(), "2".to_owned())].into(),
            ..FoundServer::default()
        };
        let all = fitted([vec![hostile.clone(); 127], vec![plain.clone()]].concat());
        assert_eq!((all.len(), &all[127]), (128, &plain));
        assert!(serde_json::to_vec(&all).unwrap().len() <= MAX_ALL_ANSWERED + 2 * 128);
        assert_eq!((all[0].log.as_ref(), all[0].no_log.as_deref()), (None, Some(TOO_LONG)));
        let alone = fitted(vec![hostile.clone()]).remove(0);
        assert_eq!((alone.log, alone.options.len()), (hostile.log, 0));
    }
}
