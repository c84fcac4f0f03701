//! Encrypted connections: reads them inside the processes that serve the captured ports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use sonar_core::Coverage;
use sonar_decode::tls::{CallSites, ProbeSites, SitesError};
use sonar_sys::Host;
use sonar_sys::tls::{MappedFile, TlsCall, TlsLosses, TlsSites, TlsTracer, executed_files};

use super::pipeline::Pipeline;
use crate::privileges;
use crate::queries::ports::Listened;
use crate::when::now;

/// How late a part of a connection may be handed over.
const DELAY: Duration = Duration::from_millis(200);

/// The probes, attached until this is dropped.
pub struct TlsCapture {
    tracer: TlsTracer,
}

/// What became of the attempt to read encrypted connections.
pub struct TlsAttempt {
    /// The probes, if they are attached to any process.
    pub capture: Option<TlsCapture>,
    /// What is read, and what cannot be, for people.
    pub notes: Vec<String>,
}

impl TlsCapture {
    /// Attaches to each process that listens on these ports and has a TLS library. `any_cost`: also where a probe costs
    /// ten times as much.
    pub fn open(listened: &Listened, host: &Host, any_cost: bool) -> TlsAttempt {
        let mut attempt = TlsAttempt { capture: None, notes: Vec::new() };
        let processes = host.serving(&|port| listened.has(port)).unwrap_or_default();
        let with_library: Vec<_> =
            processes.into_iter().filter_map(|process| Some((process, library(process)?))).collect();
        if with_library.is_empty() {
            return attempt;
        }
        let mut tracer = match TlsTracer::load() {
            Ok(tracer) => tracer,
            Err(error) => {
                attempt.notes.push(format!("encrypted connections cannot be read: {error}"));
                return attempt;
            }
        };
        for (process, library) in with_library {
            match attach(&mut tracer, process, &library, any_cost) {
                Ok(()) => attempt.notes.push(format!(
                    "reads encrypted connections of process {process} in {}",
                    library.file.name()
                )),
                Err(error) => attempt.notes.push(format!(
                    "encrypted connections of process {process} cannot be read in {}: {error:#}",
                    library.file.path
                )),
            }
        }
        attempt.capture = tracer.is_attached().then_some(Self { tracer });
        attempt
    }

    /// Passes on what is read until `stop`.
    ///
    /// # Errors
    /// The kernel's ring cannot be read.
    pub(super) fn run(self, pipeline: Pipeline, stop: &Arc<AtomicBool>, confined: bool) -> Result<()> {
        let ready = || {
            if confined {
                privileges::confine_decoder();
            }
        };
        let tick = |pipeline: &mut Pipeline, losses: TlsLosses| {
            pipeline.kernel = coverage_of(losses);
            pipeline.sink.flush();
            pipeline.look_at_clock(now(), DELAY.as_nanos() as u64);
            !stop.load(Ordering::Relaxed) && !pipeline.orphaned
        };
        let mut pipeline = self
            .tracer
            .run(pipeline, ready, Pipeline::plaintext, tick)
            .context("cannot read encrypted connections")?;
        pipeline.finish(now());
        Ok(())
    }
}

/// The TLS library of a process, and where to attach to it.
struct TlsLibrary {
    file: MappedFile,
    sites: Result<ProbeSites, SitesError>,
}

/// The library that a process has mapped, or its program, if the library is linked into it; `None` if it has none.
fn library(process: u32) -> Option<TlsLibrary> {
    let files = executed_files(process).ok()?;
    let find = |file: &MappedFile| match file.open() {
        Ok(file) => ProbeSites::find(file),
        Err(error) => Err(SitesError::Format(error.to_string())),
    };
    if let Some(file) = files.iter().find(|file| file.name().starts_with("libssl")) {
        return Some(TlsLibrary { sites: find(file), file: file.clone() });
    }
    let program = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let file = files.into_iter().find(|file| program.to_str() == Some(file.path.as_str()))?;
    let sites = find(&file).ok()?;
    Some(TlsLibrary { file, sites: Ok(sites) })
}

fn attach(tracer: &mut TlsTracer, process: u32, library: &TlsLibrary, any_cost: bool) -> Result<()> {
    let found = library.sites.clone()?;
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
    tracer.attach(&library.file, &sites)?;
    tracer.follow(process)?;
    Ok(())
}

fn coverage_of(losses: TlsLosses) -> Coverage {
    let TlsLosses { ring_full, sessions_full, unreadable, unmapped, unsynced, pipelined } = losses;
    Coverage {
        tls_lost: ring_full + sessions_full + unreadable + pipelined,
        tls_unmapped: unmapped,
        tls_joined_late: unsynced,
        ..Coverage::default()
    }
}
