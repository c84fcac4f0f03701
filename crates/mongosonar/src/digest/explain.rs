//! Saved output of `explain`: a report of its own, and a note beside logs, profiles and captures.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use sonar_core::explain::ExplainedCommand;
use sonar_decode::explain;
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_view::explain::{self as view, ExplainOutput, ExplainView};
use sonar_view::kit::Fitting;

use super::args::DigestArgs;
use super::show::{code_of, heading};
use crate::exit::{OK, usage};
use crate::input::content::{self, FileContent};
use crate::input::documents;
use crate::report_output::{page_and_print, to_stdout, write_page};
use crate::{input, screen};

/// The most documents that are kept of a file.
const MAX_DOCUMENTS: usize = 1_000;
/// The most bytes of a BSON file that are read: a document has at most 48 MB.
const MAX_BSON: u64 = 256 << 20;

/// What a file holds.
pub struct ExplainFile {
    /// Its name.
    pub name: String,
    /// What was explained, in order.
    pub explained: Vec<ExplainedCommand>,
    /// Documents that could not be read, or are something else.
    other: u64,
    /// Why it was not read to its end.
    damage: Option<String>,
}

impl ExplainFile {
    fn add(&mut self, explained: Option<ExplainedCommand>) {
        match explained.filter(|_| self.explained.len() < MAX_DOCUMENTS) {
            Some(explained) => self.explained.push(explained),
            None => self.other += 1,
        }
    }
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or no document in it can.
pub fn read(path: &Path, stop: &Arc<AtomicBool>) -> Result<ExplainFile> {
    let name = input::name(path);
    let (input, progress) = input::open(path, &name, stop)?;
    let peeked = content::peek(input, &name)?;
    let mut file = ExplainFile { name, explained: Vec::new(), other: 0, damage: None };
    let read = match peeked.content {
        FileContent::ExplainBson => {
            documents::bson(peeked.reader.take(MAX_BSON), None, |document| file.add(explain::bson(document)))
        }
        _ => documents::printed(peeked.reader, &mut Documents::default(), None, |found| {
            file.add(match found {
                FoundDocument::Document(document) => explain::printed(document),
                FoundDocument::Broken => None,
            });
        }),
    };
    file.damage = read.end.damage();
    progress.finish_and_clear();
    if file.explained.is_empty() {
        let why = file.damage.map_or_else(String::new, |damage| format!(": {damage}"));
        bail!("{}: no output of explain in it could be read{why}", file.name);
    }
    Ok(file)
}

/// What a report of other sources says of it.
pub fn notes(file: &ExplainFile) -> impl Iterator<Item = String> {
    file.explained.iter().map(|explained| format!("{}: {}.", file.name, view::summary(explained)))
}

/// What a file explains, as it was asked for.
fn output<'a>(
    args: &DigestArgs,
    file: &'a ExplainFile,
    explained: &'a ExplainedCommand,
) -> ExplainOutput<'a> {
    let view = ExplainView { shows_values: args.show_values, ..ExplainView::new(explained) };
    ExplainOutput { file: &file.name, view }
}

/// Shows what these files explain. Returns the exit code.
///
/// # Errors
/// Arguments that only reports of operations have.
pub fn show(args: &DigestArgs, files: &[ExplainFile]) -> Result<u8> {
    let has_others = args.csv || args.by.is_some() || args.sort.is_some() || args.filter.is_some();
    if has_others || args.limit.is_some() || !args.class.is_empty() {
        return Err(usage!("the output of explain is shown as text, --json or --html, with --show-values"));
    }
    let outputs: Vec<_> =
        files.iter().flat_map(|file| file.explained.iter().map(|one| output(args, file, one))).collect();
    let page = write_page(args.html.as_deref(), |out| view::page(&outputs, out));
    let write = |out: &mut dyn Write| {
        for (at, ExplainOutput { file, view: shown }) in outputs.iter().enumerate() {
            if args.json {
                view::json(shown, &mut *out)?;
                continue;
            }
            heading(at, outputs.len(), file, out)?;
            view::text(shown, &mut Fitting::new(&mut *out, screen::width()))?;
        }
        Ok(())
    };
    page_and_print(page, || to_stdout(write))?;
    for file in files.iter().filter(|file| file.other > 0) {
        let count = file.other;
        eprintln!(
            "mongosonar: {}: documents that are no output of explain, or could not be read: {count}",
            file.name
        );
    }
    Ok(files.iter().map(|file| code_of(&file.name, file.damage.as_deref())).max().unwrap_or(OK))
}
