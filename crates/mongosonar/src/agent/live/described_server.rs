//! A server as its process describes it: where its log and its samples are, and its settings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::options;
use super::server_files::{InspectableLog, InspectableSamples, ServerProcess, beside_log};
use crate::agent::settings::ServerTable;
use crate::log_location::LogLocation;
use crate::server_configuration::ServerConfiguration;
use crate::servers;
use serde::{Deserialize, Serialize};

/// The folder that a mongod writes its samples into.
const DIAGNOSTIC: &str = "diagnostic.data";

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
    /// Its program: `mongod` or `mongos`.
    pub name: String,
    /// Its log; `None` if it writes none into a file, or nothing says which.
    pub log: Option<PathBuf>,
    /// Why it has no log that can be read: where it goes instead.
    pub no_log: Option<String>,
    /// The folder of its data, as it names it itself; `None` on a mongos, or if nothing says which.
    pub dbpath: Option<PathBuf>,
    /// The folder of its samples.
    pub diagnostic: Option<PathBuf>,
    /// It runs, but has closed its port.
    pub is_closed: bool,
    /// Its settings, of its command line and its configuration, without secrets; empty if they are not known.
    pub options: BTreeMap<String, String>,
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
    let root = process.folder().join("root");
    let working = fs::read_link(process.folder().join("cwd")).unwrap_or_else(|_| PathBuf::from("/"));
    // As the process sees it: a container has a root folder of its own.
    let inside = |path: &Path| match path.strip_prefix(&root) {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => working.join(path),
    };
    let outside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let option = |names: &[&str]| process.option(names).map(PathBuf::from);
    let file = option(&["--config", "-f"]);
    let text = file.as_ref().map(|path| server.configuration(&inside(path)));
    // Without the file that its command line names they are not known.
    let knows_options = text.as_ref().is_none_or(Option::is_some);
    let read = text.flatten().map(|text| ServerConfiguration::parse(&text));
    let configuration = read.clone().unwrap_or_default();
    let open = process.open_files();
    let named_log = option(&["--logpath"]).or_else(|| configuration.log().map(PathBuf::from));
    let place = match configured.and_then(|table| table.log.clone()) {
        Some(path) => Ok(LogLocation::Configured(path)),
        None => LogLocation::of(process, read.as_ref()),
    };
    // A mongod always has this file open.
    let of_open_file = || {
        let is_it = |path: &&PathBuf| path.file_name().is_some_and(|name| name == "WiredTiger.wt");
        Some(open.iter().map(|(_, path)| path).find(is_it)?.parent()?.to_path_buf())
    };
    let dbpath = configured.and_then(|table| table.dbpath.clone()).or_else(|| {
        let of_text = || configuration.data_folder().map(PathBuf::from);
        option(&["--dbpath"]).or_else(of_text).or_else(of_open_file).map(|path| working.join(path))
    });
    let is_mongod = process.name == servers::MONGOD;
    let folder = match (is_mongod, &dbpath, &named_log) {
        (true, Some(dbpath), _) => Some(inside(&dbpath.join(DIAGNOSTIC))),
        // mongos: the name of its log up to the first dot.
        (false, _, Some(log)) => beside_log(&inside(log), DIAGNOSTIC),
        _ => None,
    };
    let options = match knows_options {
        true => options::of(&process.arguments, &configuration),
        false => BTreeMap::new(),
    };
    let found = FoundServer {
        port,
        pid: process.pid,
        started,
        name: process.name.clone(),
        log: place.as_ref().ok().map(|place| place.path(process)),
        no_log: place.as_ref().err().cloned(),
        dbpath: dbpath.filter(|_| is_mongod),
        diagnostic: folder.as_deref().map(outside),
        is_closed: false,
        options,
    };
    let log = place.ok().map(|place| InspectableLog { server: server.clone(), place });
    KnownServer { found, log, samples: folder.map(|folder| InspectableSamples { server, folder }) }
}
