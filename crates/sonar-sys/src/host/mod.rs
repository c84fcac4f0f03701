//! A host: its processes, mounts, block devices, ports and counters. Real, or a copy of its `/proc` and `/sys` in a
//! folder.
//!
//! A copy is not trusted: files are read up to a limit, and lines that cannot be parsed are skipped.
//!
//! The crate `procfs` (0.18) is not used: `Stat` panics on `)(`, one bad line of `net/tcp` fails the whole table,
//! `Limits` needs every limit, and mount points keep their `\040`.

mod addresses;
mod control_group;
pub mod devices;
pub mod listeners;
pub mod machine;
pub mod maps;
pub mod mounts;
pub mod namespace;
mod places;
pub mod process;
pub mod process_files;
mod processors;
pub mod regular;
mod socket_table;
pub mod subordinate;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sonar_core::disk::KernelBytes;

pub use self::control_group::ProcessGroups;
use self::devices::{DeviceCounters, Devices};
use self::listeners::{FoundListeners, ListenerSearch};
use self::mounts::Mount;
pub use self::places::placed;
use self::process::{Process, Stat};
pub use self::processors::Processors;
pub use self::socket_table::user_listening_at;
use self::text::small;

/// Where `/proc` and `/sys` are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    root: PathBuf,
    proc_root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self::live()
    }
}

impl Host {
    /// This host.
    pub fn live() -> Self {
        Self::at("/")
    }

    /// The host whose copy is in this folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { proc_root: root.join("proc"), root }
    }

    /// A host with only a `/proc`, in this folder.
    pub fn of_proc(proc_root: impl Into<PathBuf>) -> Self {
        let proc_root = proc_root.into();
        Self { root: proc_root.join("no-other-folder"), proc_root }
    }

    /// Whether it is this host.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The folder that stands for `/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path here of a path of the host.
    pub fn path(&self, path: &str) -> PathBuf {
        let path = Path::new(path.trim_start_matches('/'));
        match path.strip_prefix("proc") {
            Ok(rest) if rest.as_os_str().is_empty() => self.proc_root.clone(),
            Ok(rest) => self.proc_root.join(rest),
            Err(_) => self.root.join(path),
        }
    }

    /// A small text file without white space at its ends; `None` if it does not exist or cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        small(&self.path(path)).map(|text| text.trim().to_owned())
    }

    /// The number in a file.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The word in brackets of `always [madvise] never`.
    pub fn choice(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        Some(chosen.unwrap_or(&text).to_owned())
    }

    /// Its name.
    pub fn name(&self) -> Option<String> {
        self.text("proc/sys/kernel/hostname").filter(|name| !name.is_empty())
    }

    /// Release of its kernel, for example `6.1.0-56-amd64`.
    pub fn kernel(&self) -> Option<String> {
        self.text("proc/sys/kernel/osrelease")
    }

    /// Running processes of these programs, the lowest number first: those whose program file or short name is one of
    /// `names`, or whose program file is one with a version: `mongod-7.0.5`. Where the program cannot be seen, the first
    /// argument counts, too. At most 1,024 of them ([`placed`]), with as much of their arguments as there is room for.
    pub fn processes(&self, names: &[&str]) -> Vec<Process> {
        process::with_shares(placed(self.identified(names), process::MAX_PROCESSES))
    }

    /// All processes of these programs, the lowest number first.
    fn identified<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = Process> + 'a {
        let mut numbers = self.process_ids().unwrap_or_default();
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|pid| process::identify(&self.proc_root, pid, names))
    }

    /// The same, but only those whose program file has one of these names, which no process can choose for itself. Those
    /// whose program cannot be seen are left out, and those that run the program of this process.
    pub fn processes_running(&self, names: &[&str]) -> Vec<Process> {
        let proven = self.identified(names).filter_map(|process| process::proven(process, names));
        process::with_shares(placed(proven, process::MAX_PROCESSES))
    }

    /// A process, if it is one of these programs and runs.
    pub fn process(&self, pid: u32, names: &[&str]) -> Option<Process> {
        process::identify(&self.proc_root, pid, names)
    }

    /// A process, if it runs one of these programs, as [`Host::processes_running`] says.
    pub fn process_running(&self, pid: u32, names: &[&str]) -> Option<Process> {
        process::proven(process::identify(&self.proc_root, pid, names)?, names)
    }

    /// State and times of a process; `None` if none has this number.
    pub fn stat(&self, pid: u32) -> Option<Stat> {
        process::stat(&self.proc_root, pid)
    }

    /// The user who started a process, as [`Process::user`](process::Process::user) has it.
    pub fn user(&self, pid: u32) -> Option<u32> {
        process::user(&self.proc_root.join(pid.to_string()))
    }

    /// The block devices.
    ///
    /// # Errors
    /// There is no list of devices.
    pub fn devices(&self) -> io::Result<Devices> {
        Devices::read(&self.root.join("sys"))
    }

    /// The counters of every block device, in the kernel's order.
    ///
    /// # Errors
    /// `/proc/diskstats` cannot be read.
    pub fn disk_counters(&self) -> io::Result<Vec<DeviceCounters>> {
        devices::counters(&self.proc_root)
    }

    /// Every mount that the process `pid` (or `self`) sees, in order.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn mounts(&self, pid: &str) -> io::Result<Vec<Mount>> {
        mounts::all(&self.proc_root, pid)
    }

    /// The ports on which processes listen. A process that ends meanwhile is left out.
    ///
    /// # Errors
    /// Processes cannot be listed.
    pub fn listeners(&self, search: ListenerSearch<'_>) -> io::Result<FoundListeners> {
        fs::read_dir(&self.proc_root)?;
        Ok(listeners::find(self.processes(search.names), search.port_options))
    }

    /// Of these processes, those that listen on a port for which `is_asked` says so; those whose open files cannot be
    /// read are left out, and sockets beyond the open files that are looked at.
    pub fn serving(&self, processes: &[u32], is_asked: &dyn Fn(u16) -> bool) -> Vec<u32> {
        listeners::serving(&self.proc_root, processes, is_asked)
    }

    /// The TCP ports on which these processes listen, in order; those whose open files cannot be read have none, and
    /// sockets beyond the open files that are looked at are left out.
    pub fn ports_of(&self, processes: &[u32]) -> Vec<u16> {
        listeners::ports_of(&self.proc_root, processes).into_iter().collect()
    }

    /// Whether each of these processes accepts TCP connections, and only from this machine: all of its listening
    /// sockets are bound to loopback addresses of our network namespace. `false` if that cannot be seen.
    pub fn are_local(&self, processes: &[u32]) -> bool {
        listeners::are_local(&self.proc_root, processes)
    }

    /// The ids of all processes.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn process_ids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(&self.proc_root)?.flatten();
        Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// The addresses of all interfaces that are up in the network namespace of this process. It opens no socket.
    ///
    /// # Errors
    /// The kernel's tables cannot be read.
    pub fn addresses(&self) -> io::Result<BTreeSet<IpAddr>> {
        addresses::read(&self.proc_root)
    }

    /// The addresses of the network namespace of a process, besides loopback, if it is not ours; `None` if it is, or if
    /// that cannot be seen. It is empty if the addresses cannot be read, if there are more than 64, or if the process is in
    /// another user namespace, whose owner chooses them.
    pub fn addresses_of_other_network(&self, pid: u32) -> Option<BTreeSet<IpAddr>> {
        addresses::of_other(&self.proc_root, pid)
    }

    /// Every TCP port on which any process listens, in all network namespaces that can be read.
    ///
    /// # Errors
    /// No namespace can be read.
    pub fn open_ports(&self) -> io::Result<BTreeSet<u16>> {
        listeners::open_ports(&self.proc_root)
    }

    /// What the processors have done since the host started.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read, or does not begin with the processors.
    pub fn processors(&self) -> io::Result<Processors> {
        Processors::parse(&fs::read_to_string(self.proc_root.join("stat"))?)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// How many processors this process may run on: those of its affinity, at most as many as the machine has. A quota of
    /// its control group does not count. `None` if none of it can be read.
    pub fn own_processors(&self) -> Option<u32> {
        let machine = self.processors().ok().map(|found| found.count);
        let allowed = self.text("proc/self/status").and_then(|status| process::allowed_processors(&status));
        machine.into_iter().chain(allowed).min()
    }

    /// Bytes that this process has caused to be read from and written to storage, by the kernel's count.
    ///
    /// # Errors
    /// `/proc/self/io` cannot be read.
    pub fn own_bytes(&self) -> io::Result<KernelBytes> {
        let text = fs::read_to_string(self.proc_root.join("self/io"))?;
        process::counted_bytes(&text).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Bytes that all threads of a process have caused to be read from storage and written to it; `None` without permission.
    ///
    /// Whoever reads this of another process waits while that executes a program (the kernel's `exec_update_lock`), which
    /// takes as long as the process likes: it closes files then, and their file system may not answer.
    pub fn bytes_of(&self, pid: u32) -> Option<KernelBytes> {
        process::counted_bytes(&self.text(&format!("proc/{pid}/io"))?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tree::TempTree;

    #[test]
    fn a_copy_is_read_in_its_folder_and_nowhere_else() {
        let tree = TempTree::new(
            "host",
            &[
                ("proc/sys/kernel/hostname", "db1\n"),
                ("proc/sys/kernel/osrelease", "6.1.0\n"),
                ("proc/sys/vm/swappiness", "1\n"),
                ("proc/77/io", "rchar: 1\nread_bytes: 4096\nwrite_bytes: 0\n"),
                ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ],
        );
        let host = Host::at(&tree.0);
        assert!(!host.is_live() && Host::live().is_live());
        assert_eq!((host.name().as_deref(), host.kernel().as_deref()), (Some("db1"), Some("6.1.0")));
        assert_eq!(host.number("/proc/sys/vm/swappiness"), Some(1));
        assert_eq!(host.choice("sys/kernel/mm/transparent_hugepage/enabled").as_deref(), Some("madvise"));
        assert_eq!(host.path("proc"), tree.0.join("proc"));
        assert_eq!(host.bytes_of(77), Some(KernelBytes { read: 4_096, written: 0 }));
        assert_eq!(host.bytes_of(78), None);
        assert!(host.own_bytes().is_err() && host.processors().is_err() && host.devices().is_err());
        assert_eq!(host.own_processors(), None);
        let only_proc = Host::of_proc(tree.0.join("proc"));
        assert_eq!(only_proc.name().as_deref(), Some("db1"));
        assert!(only_proc.choice("sys/kernel/mm/transparent_hugepage/enabled").is_none());
    }

    #[test]
    fn a_process_may_run_on_the_processors_of_its_affinity_that_the_machine_has() {
        let stat = "cpu 1 0 1 1 0 0 0 0 0 0\ncpu0 1 1\ncpu1 1 1\ncpu2 1 1\ncpu3 1 1\n";
        let own = |name, list: &str| {
            let status = format!("Name:\tmongosonar\nCpus_allowed_list:\t{list}\n");
            let tree = TempTree::new(name, &[("proc/stat", stat), ("proc/self/status", &status)]);
            Host::at(&tree.0).own_processors()
        };
        assert_eq!(own("narrow", "0-1,3"), Some(3));
        // Processors that could be added to the machine.
        assert_eq!(own("wide", "0-127"), Some(4));
        assert_eq!(own("unreadable", "a"), Some(4));
    }

    #[test]
    fn this_host_has_used_something() {
        let host = Host::live();
        let processors = host.processors().unwrap();
        assert!(processors.busy() > Duration::ZERO && processors.count > 0);
        assert!(host.own_bytes().is_ok() && host.disk_counters().is_ok());
        assert!(host.stat(std::process::id()).is_some());
    }
}
