//! Completions and manual pages, made from the arguments themselves.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;

/// Prints completions for a shell.
pub fn completions(command: &mut Command, shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "mongosonar", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Prints the main page, or writes all pages into a folder.
pub fn pages(command: Command, dir: Option<&Path>) -> Result<()> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return Ok(io::stdout().write_all(&page)?);
    };
    fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("cannot write manual pages into {}", dir.display()))
}
