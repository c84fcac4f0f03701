//! What the files of a replay hold, and which servers they are of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use sonar_core::Timestamp;
use sonar_decode::log::server_port;

use super::captured_host::CaptureHead;
use crate::agent::servers::LocalServers;
use crate::digest::log_files;
use crate::exit::usage;
use crate::ftdc::input as ftdc_input;
use crate::input;
use crate::input::content::{self, FileContent};
use crate::servers::data_folders;

/// The port of a server that does not state one.
const DEFAULT_PORT: u16 = 27_017;

/// The files of a replay, by content and server.
#[derive(Debug, Default)]
pub struct ReplayInputs {
    /// Captures with the time of their first packet, in the order of these.
    pub captures: Vec<(Timestamp, PathBuf)>,
    /// Logs, by the port of their server.
    pub logs: BTreeMap<u16, Vec<PathBuf>>,
    /// Files of `diagnostic.data`, by the port of their server.
    pub internals: BTreeMap<u16, Vec<PathBuf>>,
    /// Recordings of accesses to files.
    pub recordings: Vec<PathBuf>,
    /// The servers whose logs or `diagnostic.data` are among them.
    pub servers: LocalServers,
    /// The folder of the data of each server.
    pub folders: BTreeMap<u16, String>,
}

impl ReplayInputs {
    /// Recognises each file by its first bytes. `port` is that of the server of logs that do not state one.
    ///
    /// # Errors
    /// One cannot be read, holds something else, or does not say which server it is of.
    pub fn of(paths: &[PathBuf], port: Option<u16>, stop: &Arc<AtomicBool>) -> Result<Self> {
        input::refuse_repeated(paths)?;
        let mut inputs = Self::default();
        let mut captures = Vec::new();
        for path in paths {
            if path.is_dir() {
                inputs.add_internals(ftdc_input::files(std::slice::from_ref(path))?, stop);
                continue;
            }
            input::make_rereadable(path, stop)?;
            let name = input::name(path);
            let content = content::peek(input::open(path, &name, stop)?.0, &name)?.content;
            match content {
                FileContent::Capture => {
                    let first = CaptureHead::of(path, stop)?;
                    inputs.servers.addresses.extend(first.host());
                    captures.push((first.time, path.clone()));
                }
                FileContent::Log => {
                    let found = log_files::find(path, stop, |line, _| server_port(line))?;
                    let Some(port) = found.or(port) else {
                        return Err(usage!(
                            "{name}: no line of it states the port of its server; state it with --port"
                        ));
                    };
                    inputs.logs.entry(port).or_default().push(path.clone());
                }
                FileContent::Diagnostic => inputs.add_internals(vec![path.clone()], stop),
                FileContent::Accesses => inputs.recordings.push(path.clone()),
                FileContent::Empty => bail!("{name}: this is an empty file"),
                _ => bail!(
                    "{name}: {}; --replay reads captures, logs, diagnostic.data and recordings of io record",
                    content::advice(content)
                ),
            }
        }
        captures.sort();
        inputs.captures = captures;
        inputs.servers.ports.extend(inputs.logs.keys().chain(inputs.internals.keys()).chain(&port));
        Ok(inputs)
    }

    /// Adds files of one server.
    fn add_internals(&mut self, files: Vec<PathBuf>, stop: &Arc<AtomicBool>) {
        let server = ftdc_input::server(&files, stop);
        let port = server.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT);
        if let Some(folder) = server.dbpath {
            self.folders.insert(port, folder);
        }
        self.internals.entry(port).or_default().extend(files);
    }

    /// The port of the server that has this file, by the folder of its data.
    pub fn server_of_file(&self, path: &str) -> Option<u16> {
        let folders = self.folders.iter().map(|(port, folder)| (*port, Path::new(folder)));
        data_folders::of_file(Path::new(path), folders).map(|(port, _)| port)
    }
}
