//! Saved output of `explain`: a report of its own, and a note beside logs, profiles and captures.

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use sonar_core::explain::ExplainedCommand;
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_decode::{explain, profile};
use sonar_view::explain::{self as view, ExplainOutput, ExplainView};
use sonar_view::kit::{Fitting, escape};

use super::args::DigestArgs;
use crate::exit::{OK, TRUNCATED, usage};
use crate::input::content::{self, FileContent};
use crate::{input, outfile, page, screen};

/// The most documents that are kept of a file.
const MAX_DOCUMENTS: usize = 1_000;
/// The most bytes of a BSON file that are read: a document has at most 48 MB.
const MAX_BSON: u64 = 256 << 20;

/// What is wrong with a file that lacks its end.
const CUT: &str = "it ends inside a document or array";

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
    match peeked.content {
        FileContent::ExplainBson => read_bson(peeked.reader, &mut file),
        _ => read_printed(peeked.reader, &mut file),
    }
    progress.finish_and_clear();
    if file.explained.is_empty() {
        let why = file.damage.map_or_else(String::new, |damage| format!(": {damage}"));
        bail!("{}: no output of explain in it could be read{why}", file.name);
    }
    Ok(file)
}

fn read_printed(mut input: impl Read, file: &mut ExplainFile) {
    let mut documents = Documents::default();
    let mut buffer = vec![0u8; 1 << 18];
    loop {
        let got = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                file.damage = Some(format!("cannot be read further: {error}"));
                return;
            }
        };
        let mut rest = &buffer[..got];
        while let Some(found) = documents.next(&mut rest) {
            file.add(match found {
                FoundDocument::Document(document) => explain::printed(document),
                FoundDocument::Broken => None,
            });
        }
    }
    file.damage = documents.is_cut().then(|| CUT.to_owned());
}

fn read_bson(input: impl Read, file: &mut ExplainFile) {
    let mut bytes = Vec::new();
    // What came before an error is read all the same.
    let failed = input.take(MAX_BSON).read_to_end(&mut bytes).err();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let document = match profile::length(rest) {
            Ok(Some(length)) => rest.get(..length),
            _ => None,
        };
        let Some(document) = document else {
            file.damage = Some(CUT.to_owned());
            break;
        };
        file.add(explain::bson(document));
        rest = &rest[document.len()..];
    }
    if let Some(error) = failed {
        file.damage = Some(format!("cannot be read further: {error}"));
    }
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
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| view::page(&outputs, out)))?;
    }
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout());
    for (at, ExplainOutput { file, view: shown }) in outputs.iter().enumerate() {
        if args.json {
            view::json(shown, &mut out)?;
            continue;
        }
        if at > 0 {
            writeln!(out)?;
        }
        if outputs.len() > 1 {
            writeln!(out, "{}:", escape(file))?;
        }
        view::text(shown, &mut Fitting::new(&mut out, screen::width()))?;
    }
    out.flush()?;
    for file in files.iter().filter(|file| file.other > 0) {
        let count = file.other;
        eprintln!(
            "mongosonar: {}: documents that are no output of explain, or could not be read: {count}",
            file.name
        );
    }
    for file in files {
        if let Some(damage) = &file.damage {
            eprintln!("mongosonar: {}: {damage}; all before it has been read", file.name);
        }
    }
    Ok(if files.iter().any(|file| file.damage.is_some()) { TRUNCATED } else { OK })
}
