//! Readable names of files: the namespaces that the server reports for them.

use anyhow::{Context, Result, anyhow};
use sonar_mongo::files::StoredFile;
use sonar_mongo::{Server, Target};

use crate::args::connection::ServerArgs;
use crate::confinement::privileges;

/// The content of the server's files.
#[derive(Default)]
pub struct FileNames {
    held: Vec<StoredFile>,
}

impl FileNames {
    /// Asks the server, if one is named; see [`FileNames::ask_target`].
    pub fn ask(server: &ServerArgs, confined: bool) -> Result<Self> {
        Self::ask_target(server.named()?, confined)
    }

    /// Asks this server, if there is one. A thread reads its answers, and drops its privileges before if `confined`: the
    /// calling thread may still need its own.
    pub fn ask_target(target: Option<Target>, confined: bool) -> Result<Self> {
        let Some(target) = target else { return Ok(Self::default()) };
        let ask = move || {
            if confined {
                privileges::give_up_but_network([&target]);
            }
            Server::connect(target, 1)?.files()
        };
        let thread = std::thread::Builder::new().name("names".to_owned()).spawn(ask);
        let asked = thread.context("cannot start a thread")?.join();
        let held = asked.map_err(|_| anyhow!("the thread that asks the server has failed"))??;
        if held.is_empty() {
            eprintln!("mongosonar: the server names no files of WiredTiger, so files go by their own names");
        }
        Ok(Self { held })
    }

    /// The content of the file with this path in words, else the last part of the path.
    pub fn short(&self, path: &str) -> String {
        let last = || path.rsplit('/').next().unwrap_or(path).to_owned();
        self.of(path).map_or_else(last, StoredFile::label)
    }

    /// The content of the file with this path.
    pub fn of(&self, path: &str) -> Option<&StoredFile> {
        let ident = path.strip_suffix(".wt")?;
        self.held.iter().find(|held| {
            ident.strip_suffix(held.ident.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        })
    }
}
