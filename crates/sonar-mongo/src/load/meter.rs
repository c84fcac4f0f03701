//! Counts of a server and its host during a slice.

use bson::{Bson, Document, doc};
use sonar_core::impact::ImpactCounters;

use crate::server::{Link, Server, whole};

/// Reads what only this machine knows: the processor time of this program, and of the server if it runs here.
pub type MachineProbe<'a> = &'a mut dyn FnMut(&ServerFacts) -> ImpactCounters;

/// What a server reports about its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Process id on its host.
    pub pid: Option<u32>,
    /// Name of its host, without the port.
    pub host: Option<String>,
    /// Path of its log.
    pub log_path: Option<String>,
    /// Its data directory.
    pub data_path: Option<String>,
}

impl Server {
    /// What this server reports about its process; `None` for what it does not report.
    pub fn facts(&self) -> ServerFacts {
        self.runtime().block_on(facts(self.link()))
    }
}

/// Reads the counters of one server.
pub(super) struct Meter<'a> {
    link: &'a Link,
    facts: ServerFacts,
    probe: MachineProbe<'a>,
}

impl<'a> Meter<'a> {
    pub(super) async fn new(link: &'a Link, probe: MachineProbe<'a>) -> Self {
        Self { link, facts: facts(link).await, probe }
    }

    /// Counters of the machine and of the server.
    pub(super) async fn read(&mut self) -> ImpactCounters {
        let mut counters = (self.probe)(&self.facts);
        let Ok(status) = self.link.command("admin", doc! { "serverStatus": 1 }, "read the status").await
        else {
            return counters;
        };
        let section = |path: &[&str]| -> Option<Document> {
            let mut at = status.clone();
            for key in path {
                at = at.get_document(key).ok()?.clone();
            }
            Some(at)
        };
        if let Some(info) = section(&["extra_info"]) {
            let us = whole(&info, "user_time_us").zip(whole(&info, "system_time_us"));
            counters.server_cpu_ns =
                us.map(|(user, system)| (user + system).saturating_mul(1_000)).or(counters.server_cpu_ns);
        }
        let data =
            section(&["wiredTiger", "block-manager"]).and_then(|section| whole(&section, "bytes written"));
        let journal =
            section(&["wiredTiger", "log"]).and_then(|section| whole(&section, "log bytes written"));
        counters.written_bytes = data.map(|data| data + journal.unwrap_or(0));
        if let Some(locks) = section(&["locks"]) {
            let sum = |key: &str| {
                let kinds = locks.values().filter_map(Bson::as_document);
                let of = |kind: &Document| -> u64 {
                    let modes = kind.get_document(key).ok();
                    modes.map_or(0, |modes| modes.keys().filter_map(|mode| whole(modes, mode)).sum())
                };
                kinds.map(of).sum()
            };
            counters.lock_wait_us = Some(sum("timeAcquiringMicros"));
            counters.lock_waits = Some(sum("acquireWaitCount"));
        }
        counters
    }
}

async fn facts(link: &Link) -> ServerFacts {
    let mut facts = ServerFacts::default();
    if let Ok(status) = link.command("admin", doc! { "serverStatus": 1 }, "read the status").await {
        facts.pid = whole(&status, "pid").and_then(|pid| u32::try_from(pid).ok());
        let host = status.get_str("host").ok();
        facts.host = host.and_then(|host| host.split(':').next()).map(str::to_owned);
    }
    if let Ok(reply) = link.command("admin", doc! { "getCmdLineOpts": 1 }, "read the options").await {
        let at = |section: &str, key: &str| {
            let parsed = reply.get_document("parsed").ok()?;
            Some(parsed.get_document(section).ok()?.get_str(key).ok()?.to_owned())
        };
        facts.log_path = at("systemLog", "path");
        facts.data_path = at("storage", "dbPath");
    }
    facts
}
