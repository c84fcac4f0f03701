//! What commands that only read files do before they read: they open what they write, and give up the rest.

use std::path::Path;

use anyhow::Result;
use sonar_store::SqliteHistory;

use super::start_order::{self, StartStep};
use crate::args::connection::ServerArgs;
use crate::{confinement::privileges, input, outfile, stop};

/// What a command reads and writes that only reads files.
#[derive(Default)]
pub struct FileReading<'a> {
    /// Files, folders and pipes.
    pub inputs: Vec<&'a Path>,
    /// The page that it writes.
    pub page: Option<&'a Path>,
    /// Names a server that it asks too.
    pub server: Option<&'a ServerArgs>,
}

impl<'a> FileReading<'a> {
    /// Reads these.
    pub fn of<P: AsRef<Path> + ?Sized + 'a>(inputs: impl IntoIterator<Item = &'a P>) -> Self {
        Self { inputs: inputs.into_iter().map(AsRef::as_ref).collect(), ..Self::default() }
    }

    /// The same, and writes a page.
    pub fn with_page<P: AsRef<Path>>(self, page: Option<&'a P>) -> Self {
        Self { page: page.map(AsRef::as_ref), ..self }
    }

    /// Opens what is written, and drops all privileges but those that reading takes. Call it before a thread is started.
    ///
    /// # Errors
    /// The page cannot be written, or options that name the server contradict each other.
    pub fn begin(&self) -> Result<()> {
        let target = self.server.map(ServerArgs::named).transpose()?.flatten();
        // Where there is nothing to read the command fails, and no empty page stays.
        if let Some(page) = self.page.filter(|_| self.has_input()) {
            start_order::take(StartStep::Opened);
            outfile::prepare(page)?;
        }
        stop::prepare()?;
        self.inputs
            .iter()
            .filter(|input| input.is_dir())
            .for_each(|store| SqliteHistory::prepare_reading(store));
        input::prepare_copies(self.inputs.iter().copied());
        start_order::drop_privileges(true, || {
            privileges::drop_privileges_but_reading(&self.inputs, target.as_ref());
        });
        Ok(())
    }

    /// Whether any of its inputs is there.
    fn has_input(&self) -> bool {
        self.inputs.iter().any(|path| *path == Path::new("-") || path.exists())
    }
}
