//! The TLS library of a process, and where to attach to it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use anyhow::Result;
use sonar_decode::tls::{CallSites, ProbeSites, SitesError};
use sonar_sys::privileges::Duty;
use sonar_sys::tls::{MappedFile, TlsCall, TlsSites, executed_files};

use crate::confinement::privileges::{HelperTask, TLS_HELPER_BYTES, helper_with};

/// The longest answer of the helper that looks into a file, in bytes.
const MAX_SAID: u64 = 4_096;

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
        Self::found(process, |file| ProbeSites::find(file))
    }

    /// The same, where a helper looks into the file, for a process that has privileges: any user may have built the library
    /// that a server uses. Call it before any thread is started.
    pub fn read_apart(process: u32) -> Option<Self> {
        Self::found(process, sites_apart)
    }

    fn found(process: u32, find: fn(&File) -> Result<ProbeSites, SitesError>) -> Option<Self> {
        let files = executed_files(process).ok()?;
        if let Some(file) = files.iter().find(|file| file.name().starts_with("libssl")) {
            return Some(Self::open(file, find));
        }
        let program = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
        let file = files.iter().find(|file| program.to_str() == Some(file.path.as_str()))?;
        Some(Self::open(file, find)).filter(|library| library.sites.is_ok())
    }

    fn open(mapped: &MappedFile, find: fn(&File) -> Result<ProbeSites, SitesError>) -> Self {
        let file = mapped.open();
        let sites = match &file {
            Ok(file) => find(file),
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

/// What a helper says of a file: where it calls, returns, and whether that is cheap, for `SSL_read`, `SSL_write` and the same
/// with `_ex`; and the other two places. Or why there are none: `None` without the symbols.
type SaidSites = Result<([Option<(u64, u64, bool)>; 4], [Option<u64>; 2]), Option<String>>;

/// Finds the places in a file by a helper that has no privileges.
fn sites_apart(file: &File) -> Result<ProbeSites, SitesError> {
    let task = HelperTask {
        name: "sonar-sites",
        what: "looking into a TLS library",
        memory: TLS_HELPER_BYTES,
        keep: &[],
        duty: Duty::Showing,
    };
    let helper = helper_with(task, &[file.as_fd()], |socket| {
        Ok(serde_json::to_writer(socket, &said(ProbeSites::find(file)))?)
    });
    let socket = helper.as_ref().and_then(|helper| helper.socket().ok());
    socket.map_or_else(|| heard(io::empty()), heard)
}

fn said(found: Result<ProbeSites, SitesError>) -> SaidSites {
    let call = |sites: CallSites| (sites.called, sites.returned, sites.cheap);
    match found {
        Ok(found) => {
            let calls = [found.read, found.write, found.read_ex, found.write_ex].map(|sites| sites.map(call));
            Ok((calls, [found.handshake, found.free]))
        }
        Err(SitesError::NoSymbols) => Err(None),
        Err(SitesError::Format(why)) => Err(Some(why)),
    }
}

fn heard(answer: impl Read) -> Result<ProbeSites, SitesError> {
    let ended = |_| SitesError::Format("the process that looks into it has ended".to_owned());
    let said: SaidSites = serde_json::from_reader(answer.take(MAX_SAID)).map_err(ended)?;
    let call = |(called, returned, cheap)| CallSites { called, returned, cheap };
    match said {
        Ok((calls, [handshake, free])) => {
            let [read, write, read_ex, write_ex] = calls.map(|sites| sites.map(call));
            Ok(ProbeSites { read, write, read_ex, write_ex, handshake, free, ..ProbeSites::default() })
        }
        Err(None) => Err(SitesError::NoSymbols),
        Err(Some(why)) => Err(SitesError::Format(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_helper_finds_arrives_as_it_was() {
        let sent = |found: Result<ProbeSites, SitesError>| {
            heard(serde_json::to_vec(&said(found)).unwrap().as_slice())
        };
        let sites = |called, cheap| Some(CallSites { called, returned: called + 5, cheap });
        let found = ProbeSites {
            read: sites(1, true),
            write: sites(u64::MAX - 5, false),
            write_ex: sites(3, true),
            handshake: Some(4),
            free: None,
            ..ProbeSites::default()
        };
        let other = ProbeSites { read_ex: sites(6, true), free: Some(7), ..ProbeSites::default() };
        for found in [Ok(found), Ok(other), Err(SitesError::NoSymbols), Err(SitesError::Format("cut".into()))]
        {
            assert_eq!(sent(found.clone()), found);
        }
        assert!(matches!(heard(io::empty()), Err(SitesError::Format(why)) if why.contains("has ended")));
    }
}
