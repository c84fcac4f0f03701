//! Facts about the process of a mongod and what it may use, for `disk check`.

use std::path::Path;

use sonar_core::disk::check::{MachineFacts, ProcessBounds, Version};
use sonar_sys::Host;
use sonar_sys::host::ProcessGroups;
use sonar_sys::host::process::Process;

use crate::servers::configuration::{ServerConfiguration, ServerSetting};
use crate::servers::own_files::OwnFiles;
use crate::servers::withheld::WithheldReader;

/// Where a program finds its glibc, below its root.
const LIBC: [&str; 5] = [
    "lib/x86_64-linux-gnu/libc.so.6",
    "usr/lib/x86_64-linux-gnu/libc.so.6",
    "lib64/libc.so.6",
    "usr/lib64/libc.so.6",
    "lib/aarch64-linux-gnu/libc.so.6",
];

/// Files of a process in `/proc` that it may withhold.
const NUMA: &str = "numa_maps";
const ENVIRONMENT: &str = "environ";

/// What a process may withhold.
#[derive(Debug, Default)]
struct WithheldFacts {
    interleaved: Option<bool>,
    glibc_tunables: Option<Option<String>>,
}

/// The number and the user of a process: `process 5726, user mongodb`.
pub fn name(machine: &Host, process: &Process) -> String {
    let pid = process.pid;
    let status = machine.text(&format!("proc/{pid}/status")).unwrap_or_default();
    let user =
        status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
    match user {
        Some(user) => format!("process {pid}, user {}", user_name(machine, user)),
        None => format!("process {pid}"),
    }
}

/// The name of a user of this machine, else its number (passwd(5)).
fn user_name(machine: &Host, user: u32) -> String {
    let passwd = machine.text("etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| user.to_string())
}

/// Adds what is known of a mongod. What could not be read goes to `unseen`.
pub fn of_process(machine: &Host, mongod: &Process, facts: &mut MachineFacts, unseen: &mut Vec<String>) {
    let pid = mongod.pid;
    let has_nodes = facts.numa_nodes.is_some_and(|nodes| nodes > 1);
    let withheld = WithheldReader::default().read(mongod, move |mongod| WithheldFacts {
        interleaved: has_nodes.then(|| mongod.is_interleaved()).flatten(),
        glibc_tunables: mongod.environment("GLIBC_TUNABLES"),
    });
    let is_silent = withheld.is_err();
    let withheld = withheld.unwrap_or_default();
    let mut cannot = |what: &str, file: &str| {
        let why = match file {
            NUMA | ENVIRONMENT if is_silent => "the process does not answer",
            _ => "run as root, or as its user",
        };
        unseen.push(format!("{what}: /proc/{pid}/{file} ({why})"));
    };
    match mongod.limits() {
        Some(limits) => facts.limits = limits,
        None => cannot("limits of mongod", "limits"),
    }
    facts.interleaved = withheld.interleaved;
    if has_nodes && facts.interleaved.is_none() {
        cannot("memory policy", NUMA);
    }
    facts.process_huge_pages = mongod.has_huge_pages();
    facts.glibc = glibc(&OwnFiles::below_root(machine, mongod));
    facts.glibc_tunables = withheld.glibc_tunables;
    let needs_tunables = facts.version.is_some_and(|(major, _)| major >= 8);
    if facts.glibc_tunables.is_none() && needs_tunables {
        cannot("GLIBC_TUNABLES of mongod", ENVIRONMENT);
    }
    let configured = ServerConfiguration::of_process(machine, mongod).unwrap_or_default();
    let most = ServerSetting::MAX_CONNECTIONS.of(mongod, &configured);
    facts.max_connections = most.and_then(|text| text.parse().ok());
    let cache = ServerSetting::CACHE_SIZE.of(mongod, &configured);
    let cache = cache.and_then(|text| text.parse::<f64>().ok());
    let mut bounds = ProcessBounds {
        resident: mongod.resident(),
        allowed_processors: mongod.allowed_processors(),
        cache: cache.filter(|size| *size > 0.0).map(|size| (size * f64::from(1 << 30)) as u64),
        ..ProcessBounds::default()
    };
    match machine.control_groups(pid) {
        Some(groups) => {
            if groups.hides_parents {
                unseen.push(
                    "limits of the control groups around that of mongod (a pod, a slice): not visible in a container"
                        .to_owned(),
                );
            }
            add_groups(machine, groups, &mut bounds);
        }
        None => unseen.push(format!("control groups of mongod: /proc/{pid}/cgroup")),
    }
    facts.bounds = Some(bounds);
}

fn add_groups(machine: &Host, groups: ProcessGroups, bounds: &mut ProcessBounds) {
    let shown = |folder: &Path| match folder.strip_prefix(machine.root()) {
        Ok(below) => format!("/{}", below.display()),
        Err(_) => folder.display().to_string(),
    };
    let ProcessGroups { group, cpu_folder, memory_folder, tasks_folder, is_version_2, .. } = groups;
    bounds.folders = [cpu_folder, memory_folder, tasks_folder].map(|folder| folder.as_deref().map(shown));
    (bounds.group, bounds.is_version_2) = (Some(group), is_version_2);
}

/// The version of the glibc of a mongod; `None` from 2.34 on, where its file has no version in its name.
fn glibc(files: &OwnFiles) -> Option<Version> {
    let link = |path: &&str| files.find(|files| files.read_link(Path::new(path))).ok();
    let file = LIBC.iter().find_map(link)?;
    let version = file.file_name()?.to_str()?.strip_prefix("libc-")?.strip_suffix(".so")?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Memory of the machine in bytes.
pub fn memory(machine: &Host) -> Option<u64> {
    let text = machine.text("proc/meminfo")?;
    let rest = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}
