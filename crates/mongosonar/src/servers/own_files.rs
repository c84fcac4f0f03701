//! The files of a server by paths as it sees them, of this host or of the copy of another machine.

use std::path::{Path, PathBuf};
use std::{fs, io};

use sonar_sys::Host;
use sonar_sys::host::process::Process;
use sonar_sys::host::process_files::ProcessFiles;

/// Where the files of a server may be.
#[derive(Debug)]
pub struct OwnFiles(Vec<ProcessFiles>);

impl OwnFiles {
    /// Those below its root folder, which a container has of its own: as far as its user may read them, and of a copy, all.
    pub fn below_root(machine: &Host, process: &Process) -> Self {
        let own = if machine.is_live() {
            ProcessFiles::of(process)
        } else {
            let root = format!("/proc/{}/root", process.pid);
            ProcessFiles::of_machine(machine.root()).and_then(|copy| copy.rooted_at(Path::new(&root)))
        };
        Self(own.into_iter().collect())
    }

    /// The same, and where its root folder cannot be seen, those below ours, with the rights of its user. Of a copy, those of
    /// the machine that its root folder has not.
    pub fn of(machine: &Host, process: &Process) -> Self {
        if machine.is_live() {
            return Self(files_of(process).into_iter().collect());
        }
        let Self(mut places) = Self::below_root(machine, process);
        places.extend(ProcessFiles::of_machine(machine.root()));
        Self(places)
    }

    /// What is found in the first place that has it.
    ///
    /// # Errors
    /// None has it, or it cannot be looked at.
    pub fn find<T>(&self, look: impl Fn(&ProcessFiles) -> io::Result<T>) -> io::Result<T> {
        let mut found = Err(io::ErrorKind::NotFound.into());
        for place in &self.0 {
            found = look(place);
            if !matches!(&found, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                break;
            }
        }
        found
    }
}

/// The files of a process of this host: those below its root folder, and where that cannot be seen, those below ours, with
/// the rights of its user.
///
/// # Errors
/// Neither can be seen.
pub fn files_of(process: &Process) -> io::Result<ProcessFiles> {
    ProcessFiles::of(process).or_else(|_| ProcessFiles::in_our_root(process))
}

/// How we call what a process sees at this path: a container has a root folder of its own.
pub fn outside(process: &Process, path: &Path) -> PathBuf {
    process.folder().join("root").join(path.strip_prefix("/").unwrap_or(path))
}

/// How we call the file that a process has open under this number.
pub fn descriptor(process: &Process, number: u32) -> PathBuf {
    process.folder().join(format!("fd/{number}"))
}

/// The folder that a process works in, as it sees it; the root folder if that is not known.
pub fn working_folder(process: &Process) -> PathBuf {
    fs::read_link(process.folder().join("cwd")).unwrap_or_else(|_| PathBuf::from("/"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_copy_has_the_files_of_the_process_and_then_those_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path();
        let put = |path: &str, text: &str| {
            let path = machine.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/7/comm", "mongod\n");
        put("proc/7/root/both", "process");
        put("both", "machine");
        put("other", "machine");
        let outside = folder.path().with_extension("outside");
        fs::write(&outside, "host").unwrap();
        symlink(&outside, machine.join("proc/7/root/link")).unwrap();
        let host = Host::at(machine);
        let process = host.process(7, &["mongod"]).unwrap();
        let read = |files: &OwnFiles, path: &str| {
            files.find(|files| files.open(Path::new(path)).and_then(io::read_to_string)).ok()
        };
        let (all, own) = (OwnFiles::of(&host, &process), OwnFiles::below_root(&host, &process));
        assert_eq!(read(&all, "/both").as_deref(), Some("process"));
        assert_eq!(read(&all, "/other").as_deref(), Some("machine"));
        assert_eq!(read(&own, "/other"), None);
        assert_eq!(read(&all, "/link"), None, "it leads out of the container");
        fs::remove_file(&outside).unwrap();
    }

    #[test]
    fn a_process_of_this_host_has_those_that_its_user_may_read() {
        let host = Host::live();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = host.process(child.id(), &["sleep"]).unwrap();
        for files in [OwnFiles::of(&host, &process), OwnFiles::below_root(&host, &process)] {
            assert!(files.find(|files| files.open(Path::new("/etc/passwd"))).is_ok());
            assert!(files.find(|files| files.open(Path::new("/etc/nothing"))).is_err());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
