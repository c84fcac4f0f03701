//! Attaches programs to calls of a TLS library.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::btf::{Btf, types::Struct};
use libbpf_rs::{Link, OpenProgramMut, ProgramAttachType, ProgramMut, UprobeMultiOpts};

use crate::ebpf::TraceError;

/// The most files to attach to.
const MAX_FILES: usize = 64;

/// Where to attach to a function: offsets in the file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TlsCall {
    /// The call of the inner function.
    pub called: u64,
    /// Where it has returned.
    pub returned: u64,
}

/// Where to attach in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSites {
    /// Functions that read.
    pub reads: Vec<TlsCall>,
    /// Functions that write.
    pub writes: Vec<TlsCall>,
    /// The function that begins a session.
    pub handshake: Option<u64>,
    /// The function that frees a session.
    pub free: Option<u64>,
}

/// The programs that run at calls of a TLS library.
pub(crate) struct CallPrograms<'a, 'obj> {
    /// Where a function that reads calls its inner function, and where that has returned.
    pub read: [&'a ProgramMut<'obj>; 2],
    /// The same of a function that writes.
    pub write: [&'a ProgramMut<'obj>; 2],
    /// A session begins.
    pub handshake: &'a ProgramMut<'obj>,
    /// A session is freed.
    pub free: &'a ProgramMut<'obj>,
}

/// A file to which programs are attached.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProbedFile {
    device: u64,
    inode: u64,
}

impl From<&Metadata> for ProbedFile {
    fn from(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// The files to which programs are attached, until this is dropped.
pub(crate) struct TlsProbes {
    files: HashMap<ProbedFile, Vec<Link>>,
    multi: bool,
}

impl TlsProbes {
    /// Prepares programs before they are loaded. `types` are those of the kernel: since Linux 6.6 it attaches a program
    /// to many places at once, for which no privilege is needed beyond those that load it. A perf event takes
    /// `CAP_SYS_ADMIN` in later releases of older kernels.
    pub(crate) fn prepare(types: &Btf<'_>, programs: [&mut OpenProgramMut<'_>; 6]) -> Self {
        let multi = types.type_by_name::<Struct<'_>>("bpf_uprobe_multi_link").is_some();
        if multi {
            for program in programs {
                program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
            }
        }
        Self { files: HashMap::new(), multi }
    }

    /// Whether the kernel attaches a program to many places at once.
    pub(crate) fn is_multi(&self) -> bool {
        self.multi
    }

    /// Whether they are attached to as many files as they can be.
    pub(crate) fn are_full(&self) -> bool {
        self.files.len() >= MAX_FILES
    }

    /// Whether they are attached to this file.
    pub(crate) fn are_in(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|about| self.files.contains_key(&ProbedFile::from(&about)))
    }

    /// Detaches the programs from all files but these.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(&ProbedFile) -> bool) {
        self.files.retain(|file, _| is_kept(file));
    }

    /// Attaches the programs to an open file, for all processes that map it, unless they are attached already. `sites` were
    /// found in this open file: by its path, the kernel could find another one that has taken its place, and would write
    /// into the middle of its instructions.
    ///
    /// # Errors
    /// They are attached to 64 files, or the kernel refuses.
    pub(crate) fn attach(
        &mut self,
        programs: &CallPrograms<'_, '_>,
        file: &File,
        sites: &TlsSites,
    ) -> Result<ProbedFile, TraceError> {
        let about = file
            .metadata()
            .map_err(|error| TraceError::Attach { why: format!("cannot look at it: {error}") })?;
        let id = ProbedFile::from(&about);
        if self.files.contains_key(&id) {
            return Ok(id);
        }
        if self.are_full() {
            return Err(TraceError::Attach { why: format!("probes are in {MAX_FILES} files already") });
        }
        let places = |of: fn(&TlsCall) -> u64, calls: &[TlsCall]| calls.iter().map(of).collect::<Vec<_>>();
        let all = [
            (programs.read[0], places(|call| call.called, &sites.reads)),
            (programs.read[1], places(|call| call.returned, &sites.reads)),
            (programs.write[0], places(|call| call.called, &sites.writes)),
            (programs.write[1], places(|call| call.returned, &sites.writes)),
            (programs.handshake, sites.handshake.into_iter().collect()),
            (programs.free, sites.free.into_iter().collect()),
        ];
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let mut links = Vec::new();
        for (program, places) in all.iter().filter(|(_, places)| !places.is_empty()) {
            links.extend(self.attach_program(program, &path, places)?);
        }
        self.files.insert(id, links);
        Ok(id)
    }

    fn attach_program(
        &self,
        program: &ProgramMut<'_>,
        path: &Path,
        places: &[u64],
    ) -> Result<Vec<Link>, TraceError> {
        let attached: libbpf_rs::Result<Vec<Link>> = if self.multi {
            let offsets = places.iter().map(|place| *place as usize).collect();
            let options = UprobeMultiOpts { offsets, ..UprobeMultiOpts::default() };
            program.attach_uprobe_multi_with_opts(-1, path, "", options).map(|link| vec![link])
        } else {
            places.iter().map(|place| program.attach_uprobe(false, -1, path, *place as usize)).collect()
        };
        attached.map_err(|error| TraceError::Attach { why: format!("{error:#}") })
    }
}
