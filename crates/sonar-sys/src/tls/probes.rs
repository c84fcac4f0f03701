//! Attaches programs to calls of a TLS library.

use std::collections::HashSet;

use libbpf_rs::{Link, ProgramMut};

use super::files::MappedFile;
use crate::ebpf::TraceError;

/// The most files to attach to. One stays attached after its last process has ended.
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

/// The files to which programs are attached, until this is dropped.
#[derive(Default)]
pub(crate) struct TlsProbes {
    files: HashSet<(u64, u64)>,
    links: Vec<Link>,
}

impl TlsProbes {
    /// Attaches the programs to a file, for all processes that map it, unless they are attached already.
    ///
    /// # Errors
    /// They are attached to 64 files, or the kernel refuses.
    pub(crate) fn attach(
        &mut self,
        programs: &CallPrograms<'_, '_>,
        file: &MappedFile,
        sites: &TlsSites,
    ) -> Result<(), TraceError> {
        if self.files.contains(&file.id) {
            return Ok(());
        }
        if self.files.len() >= MAX_FILES {
            return Err(TraceError::Attach { why: format!("probes are in {MAX_FILES} files already") });
        }
        let attach = |program: &ProgramMut<'_>, at: u64| {
            let attached = program.attach_uprobe(false, -1, &file.reachable, at as usize);
            attached.map_err(|error| TraceError::Attach { why: format!("{error:#}") })
        };
        let mut links = Vec::new();
        for (sites, [called, returned]) in [(&sites.reads, programs.read), (&sites.writes, programs.write)] {
            for site in sites {
                links.push(attach(called, site.called)?);
                links.push(attach(returned, site.returned)?);
            }
        }
        if let Some(handshake) = sites.handshake {
            links.push(attach(programs.handshake, handshake)?);
        }
        if let Some(free) = sites.free {
            links.push(attach(programs.free, free)?);
        }
        self.links.append(&mut links);
        self.files.insert(file.id);
        Ok(())
    }
}
