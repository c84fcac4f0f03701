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
    /// Processors that the server may run on, by its affinity.
    pub processors_available: Option<i64>,
    /// Memory of the machine in MiB.
    pub memory_mib: Option<i64>,
    /// Memory that the control group of the server allows, in MiB; that of the machine if there is no limit.
    pub memory_limit_mib: Option<i64>,
    /// Operating system.
    pub system: Option<String>,
}

impl ServerDescription {
    /// The limit of memory in MiB; `None` if there is none below the memory of the machine.
    pub fn tighter_memory_mib(&self) -> Option<i64> {
        self.memory_limit_mib.filter(|limit| *limit > 0 && self.memory_mib.is_none_or(|all| *limit < all))
    }

    /// The number of processors that the server may run on; `None` if that is not less than all.
    pub fn fewer_processors(&self) -> Option<i64> {
        self.processors_available.filter(|count| *count > 0 && self.processors.is_none_or(|all| *count < all))
    }
}
