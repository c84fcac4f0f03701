//! Operations in flight from saved output of `currentOp`: alone, and beside logs, profiles and captures.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use sonar_core::CurrentOperations;
use sonar_decode::current_op::CurrentOpReader;
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_view::current_op::{self, CurrentFileView, CurrentView};
use sonar_view::kit::{Fitting, Zone};
use sonar_view::queries::ClassSet;

use super::args::DigestArgs;
use super::show::{ROWS, code_of, heading};
use crate::args::values::{ClassArg, ShapeArg};
use crate::exit::{OK, usage};
use crate::input;
use crate::input::content::{self, FileContent};
use crate::input::documents;
use crate::report_output::{page_and_print, to_stdout, write_page};
use crate::screen;

/// The operations of a file, and whether it is whole.
pub struct CurrentFile {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub current: CurrentOperations,
    /// Why it was not read to its end.
    pub damage: Option<String>,
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or no document in it can.
pub fn read(path: &Path, stop: &Arc<AtomicBool>) -> Result<CurrentFile> {
    let name = input::name(path);
    let (input, progress) = input::open(path, &name, stop)?;
    let peeked = content::peek(input, &name)?;
    let mut reader = CurrentOpReader::default();
    let damage = match peeked.content {
        FileContent::CurrentOpBson => {
            documents::bson(peeked.reader, None, |document| reader.bson(document)).end.damage()
        }
        _ => read_printed(peeked.reader, &mut reader),
    };
    progress.finish_and_clear();
    let current = reader.finish();
    if current.operations.is_empty() && current.idle == 0 && (current.malformed > 0 || damage.is_some()) {
        let why = damage.map_or_else(String::new, |damage| format!(": {damage}"));
        bail!("{name}: no document of currentOp could be read{why}");
    }
    Ok(CurrentFile { name, current, damage })
}

/// Reads printed documents; returns why not to their end.
fn read_printed(input: impl Read, reader: &mut CurrentOpReader) -> Option<String> {
    let mut documents = Documents::default();
    let read = documents::printed(input, &mut documents, None, |found| match found {
        FoundDocument::Document(document) => reader.document(document),
        FoundDocument::Broken => reader.broken(),
    });
    reader.cut(documents.unfinished());
    read.end.damage()
}

/// What a report of other sources says of it.
pub fn note(file: &CurrentFile, zone: &Zone) -> String {
    let cut = file.damage.as_ref().map_or_else(String::new, |damage| format!("; {damage}"));
    format!("{}: {}{cut}.", file.name, current_op::sentence(&file.current, zone))
}

/// The operations of a file that were asked for, up to `limit`.
fn view<'a>(args: &DigestArgs, file: &'a CurrentFile, limit: usize) -> CurrentView<'a> {
    let classes: ClassSet = ClassArg::classes(&args.class);
    let needle = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let mut view = CurrentView::new(&file.current, limit, |operation| {
        let texts =
            [operation.command.to_string(), operation.shape.namespace(), operation.shape.typed.to_string()];
        classes.contains(operation.class)
            && (needle.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&needle)))
    });
    view.zone = args.zone.asked().unwrap_or_default();
    view.form = ShapeArg::form(args.shape);
    view
}

/// Shows the operations of these files. Returns the exit code.
///
/// # Errors
/// Arguments that only reports of ended operations have.
pub fn show(args: &DigestArgs, files: &[CurrentFile]) -> Result<u8> {
    if args.csv || args.by.is_some() || args.sort.is_some() {
        return Err(usage!(
            "operations in flight are shown as text, --json or --html, with --class, --filter, --limit and --shape"
        ));
    }
    let all = args.limit.unwrap_or(usize::MAX);
    let page = write_page(args.html.as_deref(), |out| {
        let views =
            files.iter().map(|file| CurrentFileView { name: &file.name, view: view(args, file, all) });
        current_op::page(&views.collect::<Vec<_>>(), out)
    });
    let write = |out: &mut dyn Write| {
        for (at, file) in files.iter().enumerate() {
            if args.json {
                current_op::json(&view(args, file, all), &mut *out)?;
                continue;
            }
            heading(at, files.len(), &file.name, out)?;
            let view = view(args, file, args.limit.unwrap_or(ROWS));
            current_op::text(&view, &mut Fitting::new(&mut *out, screen::width()))?;
        }
        Ok(())
    };
    page_and_print(page, || to_stdout(write))?;
    Ok(files.iter().map(|file| code_of(&file.name, file.damage.as_deref())).max().unwrap_or(OK))
}
