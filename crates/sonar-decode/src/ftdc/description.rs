//! What the metadata of a file says of the server.

use super::elements::{Element, Elements};

/// What a server is. Unknown fields are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerDescription {
    /// Version, like `4.4.6`.
    pub version: Option<String>,
    /// Name of the machine, with the port where a client connected by name.
    pub host: Option<String>,
    /// Port.
    pub port: Option<i64>,
    /// Folder of the data; none on a mongos.
    pub dbpath: Option<String>,
    /// Name of the replica set.
    pub replica_set: Option<String>,
    /// Logical processors of the machine.
    pub processors: Option<i64>,
    /// Memory of the machine in MiB.
    pub memory_mib: Option<i64>,
    /// Operating system.
    pub system: Option<String>,
}

impl ServerDescription {
    /// Reads the document of [`DocumentContent::Metadata`](super::DocumentContent::Metadata).
    pub fn read(metadata: &[u8]) -> Self {
        let text = |path: &[&str]| {
            let found = find(metadata, path)?;
            Some(String::from_utf8_lossy(found.string()?).into_owned())
        };
        let number = |path: &[&str]| find(metadata, path)?.integer();
        Self {
            version: text(&["buildInfo", "version"]),
            host: text(&["hostInfo", "system", "hostname"]),
            port: number(&["getCmdLineOpts", "parsed", "net", "port"]),
            dbpath: text(&["getCmdLineOpts", "parsed", "storage", "dbPath"]),
            replica_set: text(&["getCmdLineOpts", "parsed", "replication", "replSet"])
                .or_else(|| text(&["getCmdLineOpts", "parsed", "replication", "replSetName"])),
            processors: number(&["hostInfo", "system", "numCores"]),
            memory_mib: number(&["hostInfo", "system", "memSizeMB"]),
            system: text(&["hostInfo", "os", "name"]),
        }
    }
}

/// The value at a path of names, which on a sharded server of 8.0 and later lies one level deeper.
fn find<'a>(document: &'a [u8], path: &[&str]) -> Option<Element<'a>> {
    let at = |elements: Elements<'a>| {
        let (first, rest) = path.split_first()?;
        let first = elements.find(first.as_bytes())?;
        rest.iter().try_fold(first, |element, key| element.elements().find(key.as_bytes()))
    };
    let roots =
        Elements::new(document).filter(|element| matches!(element.key, b"common" | b"shard" | b"router"));
    at(Elements::new(document)).or_else(|| roots.map(|root| root.elements()).find_map(at))
}
