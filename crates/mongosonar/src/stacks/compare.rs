//! `stacks compare`: two saved results side by side.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, anyhow};
use sonar_view::kit::json::line;
use sonar_view::kit::{About, Fitting};
use sonar_view::stacks::{MOST_BYTES, StackComparison, StackReport};

use super::args::StacksCompareArgs;
use crate::exit::{OK, usage};
use crate::input::content::FileContent;
use crate::{input, input::content, screen};

/// Runs the command; returns the exit code.
pub fn run(args: &StacksCompareArgs) -> Result<u8> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let names = [&args.before, &args.after].map(|path| input::name(path));
    if before.full_names != after.full_names {
        return Err(usage!(
            "only one of the two has full function names (--full-names), so they cannot be compared"
        ));
    }
    let comparison = StackComparison::new(
        &before,
        &after,
        About::of_sides([&before, &after].map(|side| side.about.host.as_deref()), names.to_vec()),
    );
    let text = |out: &mut dyn Write| comparison.text(&mut Fitting::new(out, Some(screen::reading_width())));
    args.output.write(|out| line(&comparison, out), text)?;
    Ok(OK)
}

/// Reads a result of `stacks --format json`; - is standard input.
fn read(path: &Path) -> Result<StackReport> {
    let name = input::name(path);
    let bytes = input::result_of("stacks", path, MOST_BYTES)?;
    StackReport::read(&bytes).map_err(|why| match FileContent::of(&bytes) {
        foreign @ FileContent::Foreign(_) => anyhow!("{name}: {}", content::advice(foreign)),
        _ => anyhow!("{name}: {why}"),
    })
}
