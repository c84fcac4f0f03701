//! The TLS library of a process, and where to attach to it.

use std::fs::File;
use std::io;

use anyhow::Result;
use sonar_decode::tls::{CallSites, ProbeSites, SitesError};
use sonar_sys::tls::{MappedFile, TlsCall, TlsSites, executed_files};

/// The TLS library of a process, and what was found in it.
pub struct TlsLibrary {
    /// The library, or the program into which it is linked: its path, as the process sees it.
    pub mapped: MappedFile,
    /// The file in which `sites` were found; a path may lead to another one by now.
    file: io::Result<File>,
    sites: Result<ProbeSites, SitesError>,
}

impl TlsLibrary {
    /// The library that a process has mapped, or its program, if the library is linked into it; `None` if it has none.
    pub fn of(process: u32) -> Option<Self> {
        let files = executed_files(process).ok()?;
        if let Some(file) = files.iter().find(|file| file.name().starts_with("libssl")) {
            return Some(Self::open(file));
        }
        let program = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
        let file = files.iter().find(|file| program.to_str() == Some(file.path.as_str()))?;
        Some(Self::open(file)).filter(|library| library.sites.is_ok())
    }

    fn open(mapped: &MappedFile) -> Self {
        let file = mapped.open();
        let sites = match &file {
            Ok(file) => ProbeSites::find(file),
            Err(error) => Err(SitesError::Format(error.to_string())),
        };
        Self { mapped: mapped.clone(), file, sites }
    }

    /// The open file to attach to.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn file(&self) -> Result<&File> {
        self.file.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Where to attach. `any_cost`: also where a probe costs ten times as much.
    ///
    /// # Errors
    /// There is no place, or none that is cheap.
    pub fn sites(&self, any_cost: bool) -> Result<TlsSites> {
        let found = self.sites.clone()?;
        let call = |sites: Option<CallSites>| {
            let sites = sites.filter(|sites| any_cost || sites.cheap)?;
            Some(TlsCall { called: sites.called, returned: sites.returned })
        };
        let sites = TlsSites {
            reads: [found.read, found.read_ex].into_iter().filter_map(call).collect(),
            writes: [found.write, found.write_ex].into_iter().filter_map(call).collect(),
            handshake: found.handshake,
            free: found.free,
        };
        if sites.reads.is_empty() || sites.writes.is_empty() {
            let costly = [found.read, found.write].into_iter().flatten().any(|sites| !sites.cheap);
            anyhow::bail!(match costly {
                true => "probes would cost 4 microseconds a call there; --tls-any-cost allows that",
                false => "SSL_read and SSL_write are built in an unknown way (OpenSSL before 1.1.1?)",
            });
        }
        Ok(sites)
    }
}
