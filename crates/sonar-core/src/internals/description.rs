//! What a server is.

/// What a server is. Unknown fields are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerDescription {
    /// Version, like `4.4.6`.
    pub version: Option<String>,
    /// Name of the machine, with the port where a client connected by name.
    pub host: Option<String>,
    /// Port.
    pub port: Option<i64>,
    /// It is a mongos.
    pub is_router: bool,
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
