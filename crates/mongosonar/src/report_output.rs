//! How commands write their reports: text or JSON to standard output, and a page into a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use sonar_view::kit::Fitting;

use crate::outfile::{self, OutFile};
use crate::{page, screen};

/// In which forms a command writes its report.
#[derive(Args, Debug, Clone, Default)]
pub struct OutputArgs {
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the report as one self-contained page into this file too
    #[arg(long, value_name = "FILE", value_parser = outfile::parse)]
    pub html: Option<PathBuf>,
}

impl OutputArgs {
    /// Whether the report is also wanted as JSON, which its page draws.
    pub const fn needs_json(&self) -> bool {
        self.json || self.html.is_some()
    }

    /// Writes a report; `json` is also what its page draws.
    ///
    /// # Errors
    /// The page cannot be written, or standard output cannot; each is written whatever happens to the other.
    pub fn write<E>(
        &self,
        json: impl Fn(&mut dyn Write) -> io::Result<()>,
        text: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<()>
    where
        anyhow::Error: From<E>,
    {
        page_and_print(write_page(self.html.as_deref(), &json), || print(self.json, &json, text))
    }
}

/// Prints a report, as JSON or as text.
///
/// # Errors
/// Standard output cannot be written.
pub fn print<E>(
    as_json: bool,
    json: impl Fn(&mut dyn Write) -> io::Result<()>,
    text: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<()>
where
    anyhow::Error: From<E>,
{
    to_stdout(|out| {
        if as_json {
            json(out)?;
        } else {
            text(out)?;
        }
        Ok(())
    })
}

/// A text that keeps to the width of the screen.
pub fn fitted<E>(
    text: impl FnOnce(&mut Fitting<&mut dyn Write>) -> Result<(), E>,
) -> impl FnOnce(&mut dyn Write) -> Result<(), E> {
    move |out: &mut dyn Write| text(&mut Fitting::new(out, screen::width()))
}

/// Passes standard output to `write`.
///
/// # Errors
/// Those of `write`, or standard output cannot be written.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write(&mut out)?;
    Ok(out.flush()?)
}

/// Prints a report whose page was written, or could not be: what was measured for an hour is not lost with the page. The page
/// comes first, as whoever reads standard output may leave early.
///
/// # Errors
/// That of the page, else that of `print`.
pub fn page_and_print<E>(page: Result<(), E>, print: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let printed = print();
    page.and(printed)
}

/// Writes the page of a report, if one was asked for; see [`page_and_print`].
///
/// # Errors
/// The file cannot be written.
pub fn write_page(path: Option<&Path>, json: impl Fn(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    path.map_or(Ok(()), |path| outfile::write(path, |out| page_of(json, out)))
}

/// Likewise, into a file that was opened while that was still possible.
///
/// # Errors
/// The file cannot be written.
pub fn write_opened_page(
    file: Option<&OutFile>,
    json: impl Fn(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    file.map_or(Ok(()), |file| file.write(|out| page_of(json, out)))
}

fn page_of(json: impl Fn(&mut dyn Write) -> io::Result<()>, out: &mut BufWriter<File>) -> io::Result<()> {
    page::write(out, |out| json(out))
}
