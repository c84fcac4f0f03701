//! The TLS library of a process, and where to attach to it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sonar_decode::tls::{CallSites, ProbeSites, SitesError};
use sonar_sys::helper::{Helper, InheritedDescriptors};
use sonar_sys::privileges::Duty;
use sonar_sys::questions::FileCloser;
use sonar_sys::tls::{TlsCall, TlsSites, executed_files, file_name};

use crate::confinement::privileges::{HelperTask, TLS_HELPER_BYTES};
use crate::confinement::reading_apart::{APART_PATIENCE, read_each};
use crate::input::follow::ForeignFile;

/// The longest answer of the helper that looks into a file, in bytes.
const MAX_SAID: u64 = 4_096;
/// What does not work where libraries cannot be found.
const WHAT: &str = "dividing the time of encrypted operations";

/// The TLS library of a process, and what was found in it.
pub struct TlsLibrary {
    /// The library, or the program into which it is linked: its path, as the process sees it.
    pub path: String,
    /// The file in which `sites` were found; a path may lead to another one by now.
    file: Result<ForeignFile, String>,
    sites: Result<ProbeSites, SitesError>,
}

/// A file that may be the TLS library of a process.
#[derive(Serialize, Deserialize)]
struct MappedLibrary {
    path: String,
    /// It is the program, and counts only if the library is linked into it.
    is_program: bool,
    /// Device and inode: servers of one machine mostly share the file.
    identity: Option<[u64; 2]>,
    /// Why it could not be opened.
    error: Option<String>,
}

impl MappedLibrary {
    /// That of a process, opened.
    fn of(process: u32) -> Option<(Self, Option<File>)> {
        let files = executed_files(process).ok()?;
        let library = files.iter().find(|file| file.name().starts_with("libssl"));
        let program = || {
            let program = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
            files.iter().find(|file| program.to_str() == Some(file.path.as_str()))
        };
        let mapped = library.or_else(program)?;
        let (file, error) = match mapped.open() {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let identity =
            file.as_ref().and_then(|file| file.metadata().ok()).map(|found| [found.dev(), found.ino()]);
        Some((Self { path: mapped.path.clone(), is_program: library.is_none(), identity, error }, file))
    }

    /// With what was found in the file, which is `None` if it could not be opened.
    fn with(
        self,
        file: Option<File>,
        find: impl FnOnce(&File) -> Result<ProbeSites, SitesError>,
    ) -> Option<TlsLibrary> {
        let file = file.map(ForeignFile::from).ok_or(self.error.unwrap_or_default());
        let sites = file.as_ref().map_err(|error| SitesError::Format(error.clone()));
        let unknown = |error: io::Error| SitesError::Format(error.to_string());
        let sites = sites.and_then(|file| find(file.get().map_err(unknown)?));
        // That it has none is not known where nobody can say it.
        let counts = !self.is_program || sites.is_ok() || sites == unanswered();
        counts.then_some(TlsLibrary { path: self.path, file, sites })
    }
}

impl TlsLibrary {
    /// The library that a process has mapped, or its program, if the library is linked into it; `None` if it has none.
    pub fn of(process: u32) -> Option<Self> {
        let (mapped, file) = MappedLibrary::of(process)?;
        mapped.with(file, |file| ProbeSites::find(file))
    }

    /// The same of each of these processes that has one, for a process that has privileges. A helper finds the files, which
    /// processes may withhold, and others look into them: any user may have built the library that a server uses. What
    /// is not found in time is left out, which is said. Call it before any thread is started.
    pub fn read_apart(processes: &[u32]) -> Vec<(u32, Self)> {
        let found = read_each(WHAT, processes, |process| match MappedLibrary::of(process) {
            Some((mapped, file)) => (Some(mapped), file.into_iter().collect()),
            None => (None, Vec::new()),
        });
        let found: Vec<(u32, MappedLibrary, Option<File>)> =
            found.into_iter().filter_map(|mut one| Some((one.process, one.said?, one.files.pop()))).collect();
        // A helper for each file, all of them first: one that does not answer holds up no other one.
        let until = Instant::now() + APART_PATIENCE;
        let mut helpers = HashMap::new();
        for (_, mapped, file) in &found {
            helpers.entry(mapped.identity).or_insert_with(|| file.as_ref().and_then(sites_helper));
        }
        let sites: HashMap<_, _> =
            helpers.into_iter().map(|(identity, helper)| (identity, sites_of(helper, until))).collect();
        let library = |(process, mapped, file): (u32, MappedLibrary, Option<File>)| {
            let sites = sites.get(&mapped.identity).cloned();
            let library = mapped.with(file, |_| sites.unwrap_or_else(unanswered))?;
            Some((process, library))
        };
        found.into_iter().filter_map(library).collect()
    }

    /// Lets others close its file.
    pub fn set_closer(&mut self, closer: FileCloser) {
        if let Ok(file) = &mut self.file {
            file.set_closer(closer);
        }
    }

    /// The open file to attach to.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn file(&self) -> Result<&File> {
        Ok(self.file.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?.get()?)
    }

    /// Its name without folders.
    pub fn name(&self) -> &str {
        file_name(&self.path)
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

/// A helper that has no privileges, and finds the places in a file.
fn sites_helper(file: &File) -> Option<Helper> {
    let task = HelperTask {
        name: "sonar-sites",
        what: "looking into a TLS library",
        memory: TLS_HELPER_BYTES,
        keep: &[],
        duty: Duty::Showing,
    };
    task.start_with(&InheritedDescriptors::These(&[file.as_fd()]), |socket| {
        Ok(serde_json::to_writer(socket, &said(ProbeSites::find(file)))?)
    })
}

/// What it has found by `until`.
fn sites_of(helper: Option<Helper>, until: Instant) -> Result<ProbeSites, SitesError> {
    // No time at all would be an error.
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let socket = helper.as_ref().and_then(|helper| helper.socket().ok());
    let socket = socket.filter(|socket| socket.set_read_timeout(Some(left)).is_ok());
    let found = socket.map_or_else(|| heard(io::empty()), heard);
    // One that is late is not waited for again.
    helper.iter().for_each(Helper::kill);
    found
}

/// The answer where nothing is known of a file in time.
fn unanswered() -> Result<ProbeSites, SitesError> {
    Err(SitesError::Format("it does not answer".to_owned()))
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
    let said: SaidSites = match serde_json::from_reader(answer.take(MAX_SAID)) {
        Ok(said) => said,
        Err(error) if error.io_error_kind() == Some(ErrorKind::WouldBlock) => return unanswered(),
        Err(_) => {
            return Err(SitesError::Format("the process that looks into it has ended".to_owned()));
        }
    };
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
        let (silent, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        silent.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(heard(silent), unanswered());
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
