//! `mongosonar disk check`: the facts of a machine, from its `/proc` and `/sys` or from copies of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use sonar_core::disk::check::{Disk, DiskArray, FileSystem, Grade, MachineFacts, findings, without_device};
use sonar_sys::Host;
use sonar_sys::disk::file_system_state;
use sonar_sys::host::devices::{Device, DeviceKind, Devices};
use sonar_sys::host::mounts::{self, Mount};
use sonar_sys::host::process::Process;
use sonar_sys::host::process_files::ProcessFiles;
use sonar_sys::privileges::Duty;
use sonar_view::disk::check::CheckReport;

use super::args::CheckArgs;
use super::place::folder;
use super::{process, version};
use crate::confinement::{privileges, start_order};
use crate::exit::{OK, PROBLEM, WORSE, usage};
use crate::report_output::{fitted, print};
use crate::servers;
use crate::servers::configuration::{ServerConfiguration, ServerSetting, configuration_file};
use crate::servers::files::open_data_folder;
use crate::servers::own_files::OwnFiles;
use crate::servers::withheld::WithheldReader;

/// mongod's own default.
const DEFAULT_DBPATH: &str = "/data/db";

/// Runs the command; returns the exit code.
pub fn run(args: &CheckArgs) -> Result<u8> {
    let report = look(args)?;
    print(args.json, |out| report.json(out), fitted(|out| report.text(out)))?;
    Ok(match report.worst() {
        Grade::Ok => OK,
        Grade::Warning => WORSE,
        Grade::Problem => PROBLEM,
    })
}

fn look(args: &CheckArgs) -> Result<CheckReport> {
    let machine = Host::at(&args.root);
    // Afterwards no program can be started.
    let rpm = if machine.is_live() && args.mongod_version.is_none() { version::of_rpm() } else { None };
    start_order::drop_privileges(true, || drop_privileges(args, &machine));
    folder(&args.root)?;
    if !machine.path("proc").is_dir() && !machine.path("sys").is_dir() {
        bail!("--root: {} holds neither proc nor sys", args.root.display());
    }
    let mut unseen = Vec::new();
    let mut processes = servers::mongods(&machine);
    unseen.extend(WithheldReader::default().read_arguments(&mut processes));
    if let Some(path) = &args.dbpath {
        // The mongod that uses the folder comes first.
        processes.sort_by_key(|mongod| dbpath_of(&machine, mongod).as_ref() != Some(path));
    }
    let mongod = processes.first();
    let DataFolder { path: dbpath, about, is_guess } = data_folder(&machine, args, &processes, &mut unseen)?;
    let mut facts = MachineFacts {
        has_mongod: mongod.is_some(),
        kernel: machine.text("proc/sys/kernel/osrelease"),
        version: args.mongod_version,
        dbpath: dbpath.as_ref().map(|path| path.display().to_string()),
        huge_pages: machine.choice("sys/kernel/mm/transparent_hugepage/enabled"),
        huge_pages_defrag: machine.choice("sys/kernel/mm/transparent_hugepage/defrag"),
        max_ptes_none: machine.number("sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none"),
        overcommit: machine.number("proc/sys/vm/overcommit_memory"),
        swappiness: machine.number("proc/sys/vm/swappiness"),
        swap_kib: swap(&machine),
        numa_nodes: nodes(&machine),
        zone_reclaim: machine.number("proc/sys/vm/zone_reclaim_mode"),
        max_map_count: machine.number("proc/sys/vm/max_map_count"),
        memory: process::memory(&machine),
        processors: machine.processors().ok().map(|found| found.count).filter(|count| *count > 0),
        ..MachineFacts::default()
    };
    if facts.version.is_none() {
        let places = version::Places { rpm, ..places(&machine, mongod, dbpath.as_deref()) };
        match version::find(&places) {
            Ok((version, source)) => (facts.version, facts.version_source) = (Some(version), Some(source)),
            Err(tried) => unseen.push(format!("version of mongod (give --mongod-version): {tried}")),
        }
    }
    for (known, what) in [
        (facts.kernel.is_some(), "release of the kernel: proc/sys/kernel/osrelease"),
        (
            facts.huge_pages.is_some(),
            "huge pages: sys/kernel/mm/transparent_hugepage (a kernel without them, or a container)",
        ),
        (facts.overcommit.is_some(), "vm.overcommit_memory: proc/sys/vm/overcommit_memory"),
        (facts.swappiness.is_some(), "swappiness: proc/sys/vm/swappiness"),
        (facts.numa_nodes.is_some(), "NUMA nodes: sys/devices/system/node"),
        (mongod.is_none() || facts.max_map_count.is_some(), "vm.max_map_count: proc/sys/vm/max_map_count"),
    ] {
        if !known {
            unseen.push(what.to_owned());
        }
    }
    match mongod {
        None => unseen
            .push("mongod: none runs here, so nothing was checked that belongs to its process".to_owned()),
        Some(mongod) => process::of_process(&machine, mongod, &mut facts, &mut unseen),
    }
    if let Some(dbpath) = &dbpath {
        let own = mongod.filter(|_| args.dbpath.is_none());
        unseen.extend(of_folder(&machine, dbpath, own, &mut facts));
    }
    Ok(CheckReport {
        dbpath: facts.dbpath.clone(),
        is_dbpath_guess: is_guess,
        about,
        findings: findings(&facts),
        unseen,
    })
}

/// Drops all privileges but those to look at processes and files, before it reads what others may have chosen.
fn drop_privileges(args: &CheckArgs, machine: &Host) {
    let inputs: Vec<&Path> =
        [Some(&args.root), args.dbpath.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    match machine.is_live() {
        true => privileges::drop_privileges_but_inspecting(&inputs, Duty::Observing),
        false => privileges::drop_privileges_but_reading(&inputs[..1], None),
    }
}

/// The folder of the data.
struct DataFolder {
    /// `None` if there is none to check.
    path: Option<PathBuf>,
    /// How it was found, in words.
    about: String,
    /// It could not be seen, so it is mongod's default.
    is_guess: bool,
}

/// The folder of the data, and how it was found.
fn data_folder(
    machine: &Host,
    args: &CheckArgs,
    processes: &[Process],
    unseen: &mut Vec<String>,
) -> Result<DataFolder> {
    let whose = processes.first().map_or_else(String::new, |mongod| {
        format!(" (mongod runs here: {})", process::name(machine, mongod))
    });
    if let Some(path) = &args.dbpath {
        let real = if machine.is_live() { folder(path)? } else { copied_folder(machine, path)? };
        let about = format!("{}{whose}", real.display());
        return Ok(DataFolder { path: Some(real), about, is_guess: false });
    }
    let Some(mongod) = processes.first() else {
        let about = "No mongod runs here and no --dbpath was given: only the machine was checked.";
        return Ok(DataFolder { path: None, about: about.to_owned(), is_guess: false });
    };
    if processes.len() > 1 {
        return Err(usage!("{}", several(machine, processes)));
    }
    let path = dbpath_of(machine, mongod);
    if path.is_none() && mongod.arguments().is_empty() {
        unseen.push("the arguments of mongod: run as root, or give --dbpath".to_owned());
    }
    let whose = format!("mongod ({})", process::name(machine, mongod));
    let (path, about, is_guess) = match path.or_else(|| open_data_folder(mongod)) {
        Some(path) => {
            let about = format!("{}, the data of {whose}", path.display());
            (path, about, false)
        }
        None if says_no_folder(machine, mongod) => {
            let about = format!("{DEFAULT_DBPATH}, mongod's default: {whose} names no other");
            (PathBuf::from(DEFAULT_DBPATH), about, false)
        }
        None => {
            let about = format!(
                "{DEFAULT_DBPATH} is only a guess, because it is the default: mongosonar cannot see which folder {whose} \
                 uses. Run as root, or give --dbpath"
            );
            (PathBuf::from(DEFAULT_DBPATH), about, true)
        }
    };
    Ok(DataFolder { path: Some(path), about, is_guess })
}

/// Asks for the data of one of several mongod, and names each with its folder.
fn several(machine: &Host, processes: &[Process]) -> String {
    /// The most that are named.
    const NAMED: usize = 10;
    let folder = |mongod: &Process| {
        let known = dbpath_of(machine, mongod).or_else(|| open_data_folder(mongod));
        match known {
            Some(path) => path.display().to_string(),
            None if says_no_folder(machine, mongod) => DEFAULT_DBPATH.to_owned(),
            None => "its folder cannot be seen without root".to_owned(),
        }
    };
    let named = processes.iter().take(NAMED);
    let named: Vec<String> =
        named.map(|mongod| format!("{} ({})", folder(mongod), process::name(machine, mongod))).collect();
    let more = processes.len() - named.len();
    let others = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "{} mongod run here: give --dbpath with the data of one: {}{others}",
        processes.len(),
        named.join(", ")
    )
}

/// Whether everything that could name the folder of a mongod was read: its arguments, and the configuration that they
/// name.
fn says_no_folder(machine: &Host, mongod: &Process) -> bool {
    !mongod.arguments().is_empty()
        && (configuration_file(mongod).is_none()
            || ServerConfiguration::of_process(machine, mongod).is_some())
}

/// The folder that a mongod names in its arguments or its configuration.
fn dbpath_of(machine: &Host, mongod: &Process) -> Option<PathBuf> {
    ServerSetting::DATA_FOLDER.read(machine, mongod).map(PathBuf::from)
}

/// A folder of a copied machine. The copy holds `/proc` and `/sys`, and rarely the data, so all that can be checked is
/// that the path is nothing else.
fn copied_folder(machine: &Host, path: &Path) -> Result<PathBuf> {
    if !path.is_absolute() {
        return Err(usage!("{}: on another machine only an absolute path leads to a folder", path.display()));
    }
    match fs::metadata(machine.path(&path.display().to_string())) {
        Ok(found) if !found.is_dir() => bail!("{} is not a folder", path.display()),
        _ => Ok(path.to_path_buf()),
    }
}

/// Where to look for the version of mongod, besides what rpm says.
fn places(machine: &Host, mongod: Option<&Process>, dbpath: Option<&Path>) -> version::Places {
    let link = |mongod: &Process| fs::read_link(mongod.folder().join("exe")).ok();
    let named =
        |mongod: &Process| mongod.arguments().first().map(PathBuf::from).filter(|path| path.is_absolute());
    version::Places {
        machine: ProcessFiles::of_machine(machine.root()).ok(),
        rpm: None,
        own: mongod.map(|mongod| OwnFiles::of(machine, mongod)),
        below_root: mongod.map(|mongod| OwnFiles::below_root(machine, mongod)),
        program: mongod.and_then(|mongod| link(mongod).or_else(|| named(mongod))),
        dbpath: dbpath.map(Path::to_path_buf),
        log: mongod.and_then(|mongod| ServerSetting::LOG.read(machine, mongod)),
    }
}

/// KiB of swap in all.
fn swap(machine: &Host) -> Option<u64> {
    let text = machine.text("proc/swaps")?;
    Some(text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum())
}

fn nodes(machine: &Host) -> Option<usize> {
    let entries = fs::read_dir(machine.path("sys/devices/system/node")).ok()?;
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    Some(entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count())
}

/// File system and devices of the folder, as `own` sees it if it is given. Returns what could not be read.
fn of_folder(machine: &Host, dbpath: &Path, own: Option<&Process>, facts: &mut MachineFacts) -> Vec<String> {
    let mut unseen = Vec::new();
    // In a container mongod sees other mounts than we do; a copy has no `self`.
    let tables =
        own.map(|mongod| mongod.pid.to_string()).into_iter().chain(["self".to_owned(), "1".to_owned()]);
    let Some(table) = tables.filter_map(|pid| machine.mounts(&pid).ok()).find(|t| !t.is_empty()) else {
        unseen.push("mounts: proc/self/mountinfo".to_owned());
        return unseen;
    };
    let Some(mount) = mounts::of(&table, dbpath) else {
        unseen.push(format!("the mount of {}", dbpath.display()));
        return unseen;
    };
    facts.file_system = Some(file_system(machine, mount, &mut unseen));
    let devices = match machine.devices() {
        Ok(devices) => devices,
        Err(error) => {
            unseen.push(format!("block devices: sys/block ({error})"));
            return unseen;
        }
    };
    let Some(device) = devices.of_mount(mount) else {
        if let Some(where_they_are) = without_device(&mount.kind) {
            let (source, kind) = (&mount.source, &mount.kind);
            unseen.push(format!("readahead and scheduler of {source} ({kind}): {where_they_are}"));
        }
        return unseen;
    };
    let whole = devices.whole(device);
    match devices.queue(device).read_ahead_kib {
        Some(kib) => facts.readahead = Some((whole.name.clone(), kib)),
        None => unseen.push(format!("readahead of {}", whole.name)),
    }
    let is_guest = machine.text("proc/cpuinfo").is_some_and(|text| {
        text.lines()
            .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    let all: Vec<&Device> = std::iter::once(device).chain(devices.below(device)).collect();
    facts.arrays = all.iter().filter_map(|device| array(&devices, device)).collect();
    facts.disks = devices
        .disks(device)
        .into_iter()
        .map(|disk| {
            let queue = devices.queue(disk);
            let model = match &disk.kind {
                DeviceKind::Disk { model } => model.clone(),
                DeviceKind::Loop { backing } => {
                    Some(format!("the file {}", backing.as_deref().unwrap_or("?")))
                }
                _ => None,
            };
            let is_virtual = is_guest || is_virtual(disk, model.as_deref());
            Disk {
                name: disk.name.clone(),
                model,
                rotational: queue.rotational,
                scheduler: queue.scheduler,
                is_virtual,
            }
        })
        .collect();
    unseen
}

fn file_system(machine: &Host, mount: &Mount, unseen: &mut Vec<String>) -> FileSystem {
    let space = if machine.is_live() { file_system_state(&mount.point).ok() } else { None };
    if space.is_none() {
        unseen.push(format!("free space of {}", mount.point.display()));
    }
    FileSystem {
        kind: mount.kind.clone(),
        point: mount.point.display().to_string(),
        source: mount.source.clone(),
        options: mount.options.clone(),
        space: space.map(|state| (state.total_bytes, state.free_bytes)),
    }
}

/// A device that spreads over others, if it is one.
fn array(devices: &Devices, device: &Device) -> Option<DiskArray> {
    let members = device.members.clone();
    match &device.kind {
        DeviceKind::Md { level, chunk_bytes, degraded, action, .. } => Some(DiskArray {
            name: device.name.clone(),
            level: level.clone(),
            members,
            chunk_bytes: *chunk_bytes,
            degraded: degraded.unwrap_or(0),
            action: action.clone(),
        }),
        DeviceKind::Mapper { name, .. } if members.len() > 1 => {
            // Only root can read the table of device mapper; a stripe shows in the sizes of requests that it prefers.
            let (least, best) = devices.queue(device).io_bytes.unwrap_or((0, 0));
            let is_stripe = least >= 4096 && best == least.saturating_mul(members.len() as u64);
            Some(DiskArray {
                name: format!("{} ({name})", device.name),
                level: if is_stripe { "striped" } else { "mapped" }.to_owned(),
                members,
                chunk_bytes: if is_stripe { least } else { 0 },
                degraded: 0,
                action: None,
            })
        }
        _ => None,
    }
}

/// Whether it is a virtual disk.
fn is_virtual(disk: &Device, model: Option<&str>) -> bool {
    const MODELS: [&str; 8] = [
        "QEMU",
        "VBOX",
        "Virtual",
        "Amazon Elastic Block Store",
        "PersistentDisk",
        "Msft",
        "VMware",
        "Google",
    ];
    let named =
        ["vd", "xvd", "rbd", "nbd", "loop", "drbd", "zd"].iter().any(|prefix| disk.name.starts_with(prefix));
    named || model.is_some_and(|model| MODELS.iter().any(|known| model.contains(known)))
}
