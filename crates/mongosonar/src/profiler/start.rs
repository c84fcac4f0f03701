//! What the commands open before they drop privileges.

use std::path::Path;

use anyhow::Result;
use sonar_mongo::Target;

use crate::confinement::{privileges, start_order};
use crate::{outfile, stop};

/// Opens what a command uses besides its server, and drops all privileges but those that asking it takes. Call it before a
/// thread is started.
///
/// # Errors
/// The page cannot be written.
pub fn begin(server: &Target, page: Option<&Path>) -> Result<()> {
    open(page)?;
    start_order::drop_privileges(true, || privileges::drop_privileges_but_asking(server));
    Ok(())
}

/// Opens the page that a command writes, and what it takes to watch the standard streams.
///
/// # Errors
/// The page cannot be written.
pub fn open(page: Option<&Path>) -> Result<()> {
    page.map_or(Ok(()), outfile::prepare)?;
    stop::prepare()
}
