//! What a running agent does.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use sonar_core::Timestamp;
use sonar_core::history::CollectorKind;
use sonar_core::words::plural;
use ts_rs::TS;

use crate::kit::{Bytes, Grouped, Nanos, Zone, escape, json};

/// Version of the schema of JSON.
const SCHEMA: u32 = 1;

/// How a collector is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum CollectorState {
    /// It is switched off.
    #[default]
    Off,
    /// It has nothing to collect, or failed and tries again.
    Waiting,
    /// It delivers data.
    Working,
    /// It cannot work until somebody does what helps.
    NeedsYou,
}

impl CollectorState {
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Waiting => "waiting",
            Self::Working => "working",
            Self::NeedsYou => "needs you",
        }
    }
}

/// One collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct CollectorStatus {
    /// Its stable name.
    pub name: String,
    /// How it is.
    pub state: CollectorState,
    /// Since when, in nanoseconds since 1970; `None` if it never worked or failed.
    pub since_ns: Option<u64>,
    /// When it last delivered data.
    pub last_data_ns: Option<u64>,
    /// Records that it lost so far: packets, lines, samples, accesses.
    pub lost: u64,
    /// Processor time that its threads have used so far in user mode, in nanoseconds.
    pub user_ns: u64,
    /// The same in the kernel.
    pub system_ns: u64,
    /// How long its eBPF programs have run so far, in the threads that they trace; `None` if it has none, or the kernel
    /// does not measure it.
    pub ebpf_ns: Option<u64>,
    /// Why it waits, or it or a part of it fails, and what helps: a text for each server or interface.
    pub problems: Vec<String>,
    /// What it collects, where that differs from server to server.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl CollectorStatus {
    /// One that is off.
    pub fn new(collector: CollectorKind) -> Self {
        Self { name: collector.name().to_owned(), ..Self::default() }
    }
}

/// What holds memory in the agent, in a helper process of it, or in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct HeldBytes {
    /// The holder.
    pub name: String,
    /// `agent`, `mapped`, `helper` or `kernel`.
    pub place: String,
    /// What it holds now, in bytes; `None` if only its limit is known.
    pub bytes: Option<u64>,
    /// The most that it may hold, in bytes; `None` if it has no limit of its own.
    pub max_bytes: Option<u64>,
}

/// A server that the agent watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct WatchedServer {
    /// Its program.
    pub name: String,
    /// Its version, if its `diagnostic.data` states it.
    pub version: Option<String>,
    /// Its process.
    pub pid: u32,
    /// Its port.
    pub port: u16,
    /// Its log, if it is known.
    pub log: Option<String>,
    /// Why its log is not followed; `None` if it is.
    #[serde(default)]
    pub log_problem: Option<String>,
    /// Its `diagnostic.data`, if it is known.
    pub diagnostic_data: Option<String>,
    /// Why that is not followed; `None` if it is.
    #[serde(default)]
    pub diagnostic_problem: Option<String>,
}

/// The page of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct ServedPageStatus {
    /// Its address, with the port.
    pub address: String,
    /// What links to it begin with; `None` if it is not served.
    #[serde(default)]
    pub url: Option<String>,
    /// Why it is not served; `None` if it is.
    pub problem: Option<String>,
    /// Requests refused since the start, by reason, without reasons that did not occur.
    pub refused: BTreeMap<String, u64>,
}

impl ServedPageStatus {
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { address, url, problem, refused } = self;
        if let Some(why) = problem {
            return writeln!(out, "page at {}: NOT SERVED, {}", escape(address), escape(why));
        }
        let all = refused.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let reasons: Vec<String> =
            refused.iter().map(|(reason, count)| format!("{} {}", escape(reason), Grouped(*count))).collect();
        // An agent of an older version states none.
        let url = url.clone().unwrap_or_else(|| format!("http://{address}/"));
        match all {
            0 => writeln!(out, "page at {}", escape(&url)),
            all => {
                writeln!(
                    out,
                    "page at {}, {} refused: {}",
                    escape(&url),
                    plural(all, "request"),
                    reasons.join(", ")
                )
            }
        }
    }
}

/// A running agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct AgentStatus {
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When that started, in clock ticks since boot: distinguishes it from a later process of its number.
    pub started_ticks: u64,
    /// When it started, in nanoseconds since 1970.
    pub started_ns: u64,
    /// When this was written.
    pub written_ns: u64,
    /// The folder of the store.
    pub store: String,
    /// Size of the store in bytes.
    pub store_bytes: u64,
    /// Windows stored since the start.
    pub windows: u64,
    /// Windows that could not be stored.
    pub windows_lost: u64,
    /// Why windows cannot be stored now; `None` if they can.
    #[serde(default)]
    pub store_problem: Option<String>,
    /// End of the last stored window, in nanoseconds since 1970.
    pub last_window_ns: Option<u64>,
    /// Why the last change of the configuration was refused; `None` if it was not.
    pub refused_configuration: Option<String>,
    /// What the store reported, the newest last.
    pub notices: Vec<String>,
    /// Processor time of the whole agent so far, in nanoseconds.
    pub cpu_ns: u64,
    /// Processor time of its helper processes so far, in nanoseconds.
    pub helpers_cpu_ns: u64,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// What holds it, and how much at most.
    #[serde(default)]
    pub held: Vec<HeldBytes>,
    /// Its page; `None` if it is off.
    #[serde(default)]
    pub page: Option<ServedPageStatus>,
    /// Its collectors.
    pub collectors: Vec<CollectorStatus>,
    /// The servers that it watches.
    pub servers: Vec<WatchedServer>,
}

impl AgentStatus {
    /// The bytes in RAM that are accounted for in a place.
    fn known(&self, places: &[&str]) -> Bytes {
        let of_place = self.held.iter().filter(|one| places.contains(&&*one.place));
        Bytes(of_place.filter_map(|one| one.bytes).sum::<u64>() as f64)
    }

    /// What holds memory, without what holds none.
    fn held_text(&self, out: &mut impl Write) -> io::Result<()> {
        let known = || self.held.iter().filter_map(|one| Some((one, one.bytes.filter(|bytes| *bytes > 0)?)));
        if known().next().is_none() {
            return Ok(());
        }
        writeln!(
            out,
            "\nmemory: {} of the {} that the process has are accounted for; its helpers have {}",
            self.known(&["agent", "mapped"]),
            Bytes(self.memory_bytes as f64),
            self.known(&["helper"])
        )?;
        writeln!(out, "{:<16} {:<7} {:>9} {:>9}", "held by", "where", "now", "at most")?;
        for (HeldBytes { name, place, max_bytes, .. }, bytes) in known() {
            let most = max_bytes.map_or_else(|| "-".to_owned(), |most| Bytes(most as f64).to_string());
            writeln!(out, "{:<16} {:<7} {:>9} {most:>9}", escape(name), escape(place), Bytes(bytes as f64))?;
        }
        Ok(())
    }

    /// One line of JSON.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn json(&self, out: impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            kind: &'static str,
            #[serde(flatten)]
            status: &'a AgentStatus,
        }
        json::line(&Document { schema: SCHEMA, kind: "agent_status", status: self }, out)
    }

    /// Text, with times in this zone.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn text(&self, zone: &Zone, out: &mut impl Write) -> io::Result<()> {
        let time = |ns: u64| zone.show_seconds(Timestamp::from_unix_ns(ns)).to_string();
        let share = |cpu_ns: u64| {
            let lived = self.written_ns.saturating_sub(self.started_ns).max(1);
            format!("{:.2}%", 100.0 * cpu_ns as f64 / lived as f64)
        };
        writeln!(
            out,
            "agent {} runs as process {} since {}, {} of a core and {} by its helpers, {}",
            self.version,
            self.pid,
            time(self.started_ns),
            share(self.cpu_ns),
            share(self.helpers_cpu_ns),
            Bytes(self.memory_bytes as f64)
        )?;
        // Without a window since the start, what the store has is of earlier runs.
        let last = self.last_window_ns.filter(|_| self.windows > 0);
        let last = last.map_or_else(String::new, |ns| format!(", the last from {}", time(ns)));
        writeln!(
            out,
            "store {}: {}, {} stored since then{last}",
            escape(&self.store),
            Bytes(self.store_bytes as f64),
            plural(self.windows, "window")
        )?;
        if let Some(why) = &self.store_problem {
            writeln!(out, "NOT STORING: {}", escape(why))?;
        }
        if self.windows_lost > 0 {
            writeln!(out, "LOST: {} could not be stored", plural(self.windows_lost, "window"))?;
        }
        if let Some(page) = &self.page {
            page.text(out)?;
        }
        if let Some(why) = &self.refused_configuration {
            writeln!(out, "{}", escape(why))?;
        }
        for notice in &self.notices {
            writeln!(out, "  {}", escape(notice))?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "{:<10} {:<9} {:<20} {:<10} {:>8} {:>7} {:>7} {:>7}",
            "source", "state", "since", "last data", "lost", "user", "system", "eBPF"
        )?;
        for one in &self.collectors {
            let since = one.since_ns.map_or_else(String::new, time);
            let age = |ns: u64| {
                format!("{} ago", Nanos(self.written_ns.saturating_sub(ns) / 1_000_000_000 * 1_000_000_000))
            };
            let last = one.last_data_ns.map_or_else(|| "-".to_owned(), age);
            let (name, state) = (&one.name, one.state.name());
            let (user, system) = (share(one.user_ns), share(one.system_ns));
            let (lost, ebpf) =
                (Grouped(one.lost).to_string(), one.ebpf_ns.map_or_else(|| "-".to_owned(), share));
            writeln!(
                out,
                "{name:<10} {state:<9} {since:<20} {last:<10} {lost:>8} {user:>7} {system:>7} {ebpf:>7}"
            )?;
            for problem in &one.problems {
                writeln!(out, "           {}", escape(problem))?;
            }
            for note in &one.notes {
                writeln!(out, "           {}", escape(note))?;
            }
        }
        self.held_text(out)?;
        writeln!(out)?;
        if self.servers.is_empty() {
            writeln!(out, "no mongod or mongos runs here")?;
        }
        for server in &self.servers {
            let WatchedServer { name, version, pid, port, .. } = server;
            let state = |path: &Option<String>, problem: &Option<String>| match (problem, path) {
                (Some(problem), _) => format!("not followed ({})", escape(problem)),
                (None, Some(_)) => "followed".to_owned(),
                (None, None) => "not known".to_owned(),
            };
            let log = state(&server.log, &server.log_problem);
            let data = state(&server.diagnostic_data, &server.diagnostic_problem);
            let version =
                version.as_deref().map_or_else(String::new, |version| format!(" {}", escape(version)));
            let name = escape(name);
            writeln!(
                out,
                "{name}{version} (process {pid}) on port {port}: log {log}, diagnostic.data {data}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16, problem: Option<&str>) -> WatchedServer {
        WatchedServer {
            name: "mongod".to_owned(),
            version: None,
            pid: 4,
            port,
            log: Some("/proc/1/fd/1".to_owned()),
            log_problem: problem.map(str::to_owned),
            diagnostic_data: None,
            diagnostic_problem: None,
        }
    }

    /// What a holder has, and at most.
    fn held(name: &str, place: &str, bytes: Option<u64>, max_bytes: Option<u64>) -> HeldBytes {
        HeldBytes { name: name.to_owned(), place: place.to_owned(), bytes, max_bytes }
    }

    fn page(problem: Option<&str>, refused: &[(&str, u64)]) -> ServedPageStatus {
        ServedPageStatus {
            address: "127.0.0.1:8517".to_owned(),
            url: None,
            problem: problem.map(str::to_owned),
            refused: refused.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
        }
    }

    #[test]
    fn the_status_says_where_the_page_is_and_why_it_is_not() {
        let said = |page: &ServedPageStatus| {
            let mut text = Vec::new();
            page.text(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(said(&page(None, &[])), "page at http://127.0.0.1:8517/\n");
        let public = Some("https://db1.example/mongosonar/".to_owned());
        let proxied = ServedPageStatus { url: public, ..page(None, &[]) };
        assert_eq!(said(&proxied), "page at https://db1.example/mongosonar/\n");
        assert_eq!(said(&page(Some("in use"), &[])), "page at 127.0.0.1:8517: NOT SERVED, in use\n");
    }

    #[test]
    fn the_status_shows_what_fails_and_what_it_costs() {
        let second = 1_000_000_000;
        let start = 1_795_296_000 * second;
        let mut files = CollectorStatus::new(CollectorKind::Files);
        files.state = CollectorState::NeedsYou;
        files.since_ns = Some(start);
        files.problems = vec!["no permission; fix: sudo\u{1b}".to_owned()];
        files.notes = vec!["db1: all\u{1b}".to_owned()];
        let mut queries = CollectorStatus::new(CollectorKind::Queries);
        (queries.state, queries.since_ns) = (CollectorState::Working, Some(start + second));
        (queries.last_data_ns, queries.lost) = (Some(start + 97 * second), 1_234);
        (queries.user_ns, queries.system_ns) = (second, second / 2);
        files.ebpf_ns = Some(second / 4);
        let status = AgentStatus {
            version: "1.0".to_owned(),
            pid: 7,
            started_ns: start,
            written_ns: start + 100 * second,
            store: "/var/lib/mongosonar".to_owned(),
            windows: 9,
            windows_lost: 1,
            store_problem: Some("no room\u{1b}".to_owned()),
            cpu_ns: 2 * second,
            helpers_cpu_ns: second / 10,
            refused_configuration: Some("only a restart can change: store.path".to_owned()),
            memory_bytes: 40_000_000,
            held: vec![
                held("open", "agent", Some(1_000_000), Some(12_582_912)),
                held("large", "agent", None, Some(37_748_736)),
                held("logs", "agent", Some(0), Some(16_777_216)),
                held("packet_ring", "mapped", Some(33_554_432), None),
                held("paths_helper", "helper", Some(3_000_000), Some(16_777_216)),
                held("helpers_code", "helper", Some(2_000_000), None),
            ],
            page: Some(page(None, &[("access", 1_200), ("host\u{1b}", 1)])),
            collectors: vec![queries, files],
            servers: vec![server(5, None), server(6, Some("/proc/1/fd/1 cannot be read: no permission"))],
            ..AgentStatus::default()
        };
        let mut text = Vec::new();
        status.text(&Zone::utc(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "agent 1.0 runs as process 7 since 2026-11-21T21:20:00Z, 2.00% of a core and 0.10% by its helpers, 40.0MB",
            "queries    working   2026-11-21T21:20:01Z 3.00s ago     1,234   1.00%   0.50%       -",
            "files      needs you 2026-11-21T21:20:00Z -                 0   0.00%   0.00%   0.25%",
            "only a restart can change: store.path",
            "NOT STORING: no room\\u{1b}",
            "LOST: 1 window could not be stored",
            "page at http://127.0.0.1:8517/, 1201 requests refused: access 1,200, host\\u{1b} 1",
            "           db1: all\\u{1b}",
            "memory: 34.6MB of the 40.0MB that the process has are accounted for; its helpers have 5.00MB",
            "held by          where         now   at most",
            "open             agent      1.00MB    12.6MB",
            "packet_ring      mapped     33.6MB         -",
            "paths_helper     helper     3.00MB    16.8MB",
            "helpers_code     helper     2.00MB         -",
            "mongod (process 4) on port 5: log followed, diagnostic.data not known",
            "mongod (process 4) on port 6: log not followed (/proc/1/fd/1 cannot be read: no permission), diagnostic.data not known",
        ] {
            assert!(text.lines().any(|found| found.trim_end() == line), "{line}\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "escaped");
        assert!(!text.contains("\nlarge ") && !text.contains("\nlogs "), "not known, and nothing: {text}");
        // What the store has then is of earlier runs.
        let mut first = Vec::new();
        let just_started = AgentStatus { windows: 0, last_window_ns: Some(start), ..status.clone() };
        just_started.text(&Zone::utc(), &mut first).unwrap();
        let first = String::from_utf8(first).unwrap();
        assert!(first.contains(" 0 windows stored since then\n"), "{first}");
        let mut none = Vec::new();
        AgentStatus::default().text(&Zone::utc(), &mut none).unwrap();
        assert!(String::from_utf8(none).unwrap().ends_with("\nno mongod or mongos runs here\n"));
        let mut json = Vec::new();
        status.json(&mut json).unwrap();
        assert!(json.starts_with(br#"{"schema":1,"kind":"agent_status","#));
        let back: AgentStatus = serde_json::from_slice(&json).unwrap();
        assert_eq!(back, status);
    }
}
