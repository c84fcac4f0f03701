//! Drops privileges once everything that needs them is open.
//!
//! It drops every capability, can gain none again, and may no longer start programs, open sockets or open files
//! (`io` may still read below `/proc` and `/sys`). A helper process, started before, does the work that needs more. It
//! does one thing, and gets only questions from the threads that decode.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sonar_core::files::naming::DIAGNOSTIC_DATA;
use sonar_mongo::Target;
use sonar_sys::helper::{Helper, InheritedDescriptors, limit_memory, name_process};
use sonar_sys::host::regular;
use sonar_sys::privileges::{self, Duty, FileAccess, InheritedFiles, capability, works_without};
use sonar_sys::trust;

use super::start_order::{self, StartStep};
use crate::locking::lock;

/// Reports once which privileges cannot be dropped here, and why: all threads have the same reason.
fn lacking(what: &str, error: &io::Error) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if lock(&REPORTED).insert(what.to_owned()) {
        eprintln!("mongosonar: privileges are dropped in part only: {what}: {error}");
    }
}

/// Drops the privileges that a command no longer needs, for this thread and those it starts from now on. It may still
/// read files below the folders `read`, and keeps the capabilities `keep`.
pub fn drop_privileges(duty: Duty, read: &[&str], keep: &[u32]) {
    let read: Vec<&Path> = read.iter().map(Path::new).collect();
    drop_privileges_but(duty, FileAccess::Below(&read), keep);
}

/// The same for a command that writes files below `write` for as long as it runs.
pub fn drop_privileges_but_writing(read: &[&Path], write: &Path, keep: &[u32]) {
    drop_privileges_but(Duty::Storing, FileAccess::Writing(read, &[write]), keep);
}

fn drop_privileges_but(duty: Duty, files: FileAccess<'_>, keep: &[u32]) {
    for (what, error) in privileges::drop_privileges(duty, files, keep) {
        lacking(what, &error);
    }
}

/// Gives this thread, and those that it starts, a table of descriptors of their own: what the other threads have open, rings
/// above all, they can no longer use or pass on. It may own nothing that is open.
pub fn leave_descriptors() -> Option<InheritedFiles> {
    privileges::leave_descriptors().inspect_err(|error| lacking("what other threads have open", error)).ok()
}

fn leave_root(keep: &[u32]) {
    if let Err(error) = privileges::leave_root(keep) {
        lacking("user id 0", &error);
    }
}

/// Drops the privileges that a started trace no longer needs. `is_readable` tries to read its figures. Before Linux 5.19
/// it keeps the capability without which nobody can read eBPF maps.
pub fn drop_privileges_while_tracing(is_readable: impl FnOnce() -> bool) {
    let keep: &[u32] = if works_without(is_readable) { &[] } else { &[capability::BPF] };
    if !keep.is_empty() {
        eprintln!(
            "mongosonar: privileges are dropped in part only: this kernel requires CAP_BPF to read figures"
        );
    }
    drop_privileges(Duty::Observing, &["/proc", "/sys"], keep);
}

/// Drops all privileges except those that loading eBPF programs takes, and the system calls that this does not take, for a
/// thread that will try again.
pub fn keep_for_tracing() {
    drop_privileges(Duty::Retrying, &["/proc", "/sys"], &[capability::BPF, capability::PERFMON]);
}

/// Drops every capability, the system calls that lead to more, and those that change files, for this thread and those
/// it starts. It keeps the network and reads files: for a thread that talks to these servers. For certificates, keys and
/// tokens, which may be for root only, it keeps the capability to read files. It is root no longer, unless it connects to a
/// socket with a path, or has no such capability.
pub fn drop_privileges_but_network<'a>(servers: impl IntoIterator<Item = &'a Target>) {
    let needs = ConnectionNeeds::of(servers);
    if !needs.root {
        leave_root(&needs.keep);
    }
    drop_privileges_but(Duty::Client, FileAccess::ReadOnly, &needs.keep);
}

/// The same for a command that does nothing but ask this server, in all of its threads. It says nothing about what the
/// kernel cannot restrict: the doctor does.
pub fn drop_privileges_but_asking(server: &Target) {
    let needs = ConnectionNeeds::of([server]);
    if !needs.root {
        let _ = privileges::leave_root(&needs.keep);
    }
    let _ = privileges::drop_privileges(Duty::Client, FileAccess::ReadOnly, &needs.keep);
}

/// What connecting to servers takes.
struct ConnectionNeeds {
    /// Capabilities.
    keep: Vec<u32>,
    /// The user root.
    root: bool,
}

impl ConnectionNeeds {
    fn of<'a>(servers: impl IntoIterator<Item = &'a Target>) -> Self {
        let servers: Vec<_> = servers.into_iter().collect();
        let uses_files = servers.iter().any(|server| server.uses_files());
        let uses_socket = servers.iter().any(|server| server.uses_socket());
        let mut keep = if uses_files { reading_all() } else { Vec::new() };
        let root = uses_socket || uses_files && keep.is_empty();
        if uses_socket {
            // It must be writable, and is its server's alone.
            keep.push(capability::DAC_OVERRIDE);
        }
        Self { keep, root }
    }
}

/// The capability to read all files, if there is one. Many containers have only the second one; where files cannot be
/// changed, that reads too.
fn reading_all() -> Vec<u32> {
    let reading = [capability::DAC_READ_SEARCH, capability::DAC_OVERRIDE];
    reading.into_iter().find(|number| privileges::holds(*number)).into_iter().collect()
}

/// Drops all privileges but those that reading files takes, for a command that does nothing else. It may read all files
/// that it could read before, among them `inputs`, and connect to `server` if there is one. It says nothing about what the
/// kernel cannot restrict: the doctor does.
pub fn drop_privileges_but_reading(inputs: &[&Path], server: Option<&Target>) {
    let mut keep = reading_all();
    // Without one of them, nobody could not read what root can.
    let mut leaves_root = !keep.is_empty();
    if server.is_some_and(Target::uses_socket) {
        // A socket with a path must be writable.
        keep.push(capability::DAC_OVERRIDE);
        leaves_root = false;
    }
    // The files of a container: who follows /proc/PID/root must be able to inspect the process, which Landlock forbids.
    let inspects = inputs.iter().any(|path| is_of_another_process(path));
    if inspects {
        keep.push(capability::SYS_PTRACE);
    }
    if leaves_root {
        leave_root_if_readable(inputs, &keep);
    }
    let _ = privileges::drop_capabilities(&keep);
    if !inspects {
        // Ctrl-Z in a live view stops the whole process group. The filter of system calls refuses all other signals.
        let _ = privileges::refuse_changes(false);
    }
    let _ = privileges::confine(if server.is_some() { Duty::Client } else { Duty::Observing });
}

/// Leaves root if `nobody` with these capabilities can read what root can of these inputs.
fn leave_root_if_readable(inputs: &[&Path], keep: &[u32]) {
    let readable: Vec<_> = opened_of(inputs).into_iter().filter(|path| is_readable(path)).collect();
    if privileges::works_as_nobody(keep, || readable.iter().all(|path| is_readable(path))) {
        let _ = privileges::leave_root(keep);
    }
}

/// Drops all privileges but those to look at other processes, and at the files that they name or have open, among them
/// `inputs`, for a command that does nothing else but what `duty` says. It says nothing about what the kernel cannot
/// restrict: the doctor does.
pub fn drop_privileges_but_inspecting(inputs: &[&Path], duty: Duty) {
    let mut keep = reading_all();
    if privileges::holds(capability::SYS_PTRACE) {
        let reads_all = !keep.is_empty();
        keep.extend([capability::SYS_PTRACE, capability::CHECKPOINT_RESTORE]);
        // Without one of them, nobody could not read what root can.
        if reads_all {
            leave_root_if_readable(inputs, &keep);
        }
    } else {
        // The kernel lets it look only at processes of its own user that have no other capabilities than it has.
        keep = (0..64).filter(|number| privileges::holds(*number)).collect();
    }
    let _ = privileges::drop_capabilities(&keep);
    // Landlock forbids looking at other processes.
    let _ = privileges::confine(duty);
}

/// Gives up the network too, for a command that asks nobody any more, and reads files of others from now on.
pub fn drop_network() {
    let _ = privileges::confine(Duty::Observing);
}

/// The most files of a folder whose reading is tried.
const MAX_TRIED: usize = 300;

/// What a command opens of its inputs: them, and of a folder its files and those of the `diagnostic.data` in it, up to some
/// hundred. Some file systems let `nobody` list a folder and read nothing in it. Symbolic links in a folder do not count,
/// and neither does an input that is one into `/proc`: who can make them could name what only root can read, and the
/// command would stay root.
fn opened_of(inputs: &[&Path]) -> Vec<PathBuf> {
    let files = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_TRIED);
        let is_link = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        entries.filter(move |entry| !is_link(entry)).map(|entry| entry.path())
    };
    let of_input = |input: &Path| {
        let diagnostics = Some(input.join(DIAGNOSTIC_DATA)).filter(|folder| !folder.is_symlink());
        let diagnostics = diagnostics.into_iter().flat_map(move |folder| files(&folder));
        std::iter::once(input.to_path_buf()).chain(files(input)).chain(diagnostics).collect::<Vec<_>>()
    };
    inputs.iter().filter(|input| !is_linked_into_proc(input)).flat_map(|input| of_input(input)).collect()
}

/// The most symbolic links of a path, as for the kernel.
const MAX_LINKS: usize = 40;

/// Whether a path that does not say so leads into `/proc` or through it, as by `/proc/PID/root`.
fn is_linked_into_proc(path: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    if path.starts_with("/proc") {
        return false;
    }
    // As the kernel walks it: a link is followed before what stands behind it.
    let parts = |path: &Path| path.iter().rev().map(ToOwned::to_owned).collect::<Vec<_>>();
    let (mut rest, mut reached, mut links) = (parts(&path), PathBuf::new(), 0);
    while let Some(part) = rest.pop() {
        if part == ".." {
            reached.pop();
            continue;
        }
        let next = reached.join(&part);
        match fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                rest.extend(parts(&target));
            }
            Ok(_) => return true,
            Err(_) => reached = next,
        }
        if reached.starts_with("/proc") {
            return true;
        }
    }
    false
}

/// Whether a path leads through another process, as `/proc/PID/root` does into a container. Shells name pipes of this one
/// below `/proc/self/fd`.
pub fn is_of_another_process(path: &Path) -> bool {
    let below = path.strip_prefix("/proc").ok().and_then(|rest| rest.iter().next());
    let pid = below.and_then(|name| name.to_str()?.parse::<u32>().ok());
    pid.is_some_and(|pid| pid != std::process::id())
}

/// Whether a file or a folder can be read. A pipe is not opened: its writer would see that.
fn is_readable(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none_or(|entry| entry.is_ok()))
        }
        Ok(found) if found.is_file() => regular::open(path).is_ok(),
        found => found.is_ok(),
    }
}

/// Drops all privileges but those that `agent --replay` needs: it reads all files that it could read before, and writes
/// below the folder of the store, whose owner it stays.
pub fn drop_privileges_but_replaying(store: &Path) {
    let mut keep = reading_all();
    if !trust::is_own(store) {
        // The folder of who called sudo.
        keep.push(capability::DAC_OVERRIDE);
    }
    drop_privileges_but_writing(&[Path::new("/")], store, &keep);
}

/// Drops everything for a thread that decodes files which a helper opens for it.
pub fn confine_follower() {
    drop_privileges(Duty::Showing, &[], &[]);
}

/// Drops all privileges but that to read files below `folders`, whoever owns them, for this thread and those it starts.
pub fn drop_privileges_but_files(folders: &[&Path]) {
    let keep = [capability::DAC_READ_SEARCH];
    for (what, error) in privileges::drop_privileges(Duty::Observing, FileAccess::Below(folders), &keep) {
        lacking(what, &error);
    }
}

/// Drops all privileges but those to read files below `folder`, whoever owns them, and to answer at a socket that listens,
/// for this thread and those it starts.
pub fn drop_privileges_but_serving(folder: &Path) {
    let keep = [capability::DAC_READ_SEARCH];
    for (what, error) in privileges::drop_privileges(Duty::Serving, FileAccess::Below(&[folder]), &keep) {
        lacking(what, &error);
    }
}

/// Restricts a thread that decodes foreign input to the few system calls that it needs.
pub fn confine_decoder() {
    if let Err(error) = privileges::confine(Duty::Decoding) {
        lacking("system calls of a capture thread, by seccomp", &error);
    }
}

/// What a helper process is for.
pub struct HelperTask {
    /// Its name in lists of processes, of 15 bytes at most.
    pub name: &'static str,
    /// What it does, for a message.
    pub what: &'static str,
    /// The most bytes of memory that it may have, such as [`HELPER_BYTES`].
    pub memory: usize,
    /// The capabilities that it keeps, as far as the program has them.
    pub keep: &'static [u32],
    /// The system calls that it may make.
    pub duty: Duty,
}

/// The most bytes of memory of a helper that answers questions about processes, files or rings: see
/// [`limit_memory`]. A few for what the program had when it started, and for one answer.
pub const HELPER_BYTES: usize = 8 << 20;
/// The same for the helper that finds the paths of files, which remembers those that servers have open.
pub const PATHS_HELPER_BYTES: usize = 16 << 20;
/// The same for the helper that attaches to TLS libraries, which reads their symbols piece by piece.
pub const TLS_HELPER_BYTES: usize = 16 << 20;
/// The same for a helper that answers for several servers in a thread each.
pub const FUNCTIONS_HELPER_BYTES: usize = 16 << 20;
/// The same for the helper that serves the page: two answers at a time, with what the history holds for each.
pub const PAGE_HELPER_BYTES: usize = 192 << 20;
/// The same for a helper that takes snapshots of all threads of a process, with their stacks: it has an answer twice. The
/// agent has none.
pub const STACKS_HELPER_BYTES: usize = 1 << 30;

/// Starts a helper process of this name, which runs `serve` with its end of the socket. It still has all privileges, and
/// drops them by [`confine_helper`] or what is stricter.
///
/// # Errors
/// There are threads already, or no process can be created.
pub fn start_helper(
    name: &str,
    kept: &InheritedDescriptors<'_>,
    serve: impl FnOnce(UnixStream),
) -> io::Result<Helper> {
    start_order::take(StartStep::Helper);
    Helper::start(kept, |socket| {
        name_process(name);
        serve(socket);
    })
}

/// In a helper process: limits its memory, and confines it to these capabilities and the system calls of its duty. It is
/// root no longer if its duty can do without.
///
/// # Errors
/// The kernel refuses. It is no error if the user cannot be changed: what that takes is missing in some containers.
pub fn confine_helper(memory: usize, keep: &[u32], duty: Duty) -> io::Result<()> {
    // Before anybody can be asked, and while it may.
    limit_memory(memory)?;
    if duty.leaves_root() {
        let _ = privileges::leave_root(keep);
    }
    privileges::drop_capabilities(keep)?;
    privileges::confine(duty)?;
    start_order::helper_has_dropped();
    Ok(())
}

impl HelperTask {
    /// Starts the helper, which is confined and then answers on its end of the socket. If that fails, returns `None` and
    /// prints what does not work.
    pub fn start(self, serve: impl FnOnce(UnixStream) -> io::Result<()>) -> Option<Helper> {
        self.start_with(&InheritedDescriptors::Nothing, serve)
    }

    /// The same for a helper that works with these descriptors.
    pub fn start_with(
        self,
        kept: &InheritedDescriptors<'_>,
        serve: impl FnOnce(UnixStream) -> io::Result<()>,
    ) -> Option<Helper> {
        let Self { name, what, memory, keep, duty } = self;
        let started = start_helper(name, kept, |socket| {
            if confine_helper(memory, keep, duty).is_ok() {
                // It ends when the other side does.
                let _ = serve(socket);
            }
        });
        started.inspect_err(|error| eprintln!("mongosonar: {what} is not possible: {error}")).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn of_a_folder_its_files_are_opened_too_and_those_of_its_diagnostic_data() {
        let folder = tempfile::tempdir().unwrap();
        let named = |name: &str| folder.path().join(name);
        fs::create_dir_all(named("diagnostic.data/deeper")).unwrap();
        fs::create_dir(named("journal")).unwrap();
        for file in ["one.db", "journal/log", "diagnostic.data/metrics.one", "diagnostic.data/deeper/file"] {
            fs::write(named(file), "").unwrap();
        }
        // Whoever owns the folder can make these.
        let other = tempfile::tempdir().unwrap();
        let links = [named("link"), named("diagnostic.data/link"), other.path().join("link")];
        links.iter().for_each(|link| symlink("/proc/1/environ", link).unwrap());
        symlink("/proc/1", other.path().join("diagnostic.data")).unwrap();
        assert_eq!(opened_of(&[links[2].as_path(), other.path()]), [other.path()]);
        // An input that leads into a process or through one, at once or by another link.
        for (name, target) in [
            ("process", "/proc/1"),
            ("through", "/proc/1/root/etc/hostname"),
            ("again", "process/environ"),
            ("around", "../../../../../../../../proc/1/cwd"),
            ("fd", "/proc/1/fd"),
            ("beside", "fd/../environ"),
        ] {
            symlink(target, other.path().join(name)).unwrap();
            assert_eq!(opened_of(&[other.path().join(name).as_path()]), [] as [&Path; 0], "{name}");
        }
        let plain = other.path().join("plain");
        symlink(named("one.db"), &plain).unwrap();
        assert_eq!(opened_of(&[plain.as_path()]), [plain]);
        let file = named("one.db");
        let inputs = [Path::new("-"), file.as_path(), folder.path()];
        let found = opened_of(&inputs);
        assert_eq!(found[..3], inputs.map(Path::to_path_buf));
        let of_folder: BTreeSet<_> = found[3..].iter().cloned().collect();
        let expected =
            ["one.db", "journal", "diagnostic.data", "diagnostic.data/metrics.one", "diagnostic.data/deeper"];
        assert_eq!(of_folder, BTreeSet::from(expected.map(named)));
        for number in 0..2 * MAX_TRIED {
            fs::write(named(&format!("diagnostic.data/metrics.{number}")), "").unwrap();
        }
        assert!(
            opened_of(&inputs[2..]).len() > MAX_TRIED && opened_of(&inputs[2..]).len() <= 1 + 3 + MAX_TRIED
        );
    }

    #[test]
    fn only_a_path_through_another_process_takes_the_right_to_inspect_it() {
        for path in ["/proc/1/root/var/log/mongod.log", "/proc//1/fd/3", "/proc/1"] {
            assert!(is_of_another_process(Path::new(path)), "{path}");
        }
        let own = format!("/proc/{}/fd/3", std::process::id());
        for path in [
            "/proc/self/fd/12",
            "/proc/thread-self/fd/12",
            "/proc/net/tcp",
            "/proc",
            "/process/1/log",
            "proc/1",
            "-",
            &own,
        ] {
            assert!(!is_of_another_process(Path::new(path)), "{path}");
        }
    }
}
