//! `stacks compare`: two saved results side by side.

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use sonar_sys::host::regular;
use sonar_view::kit::{About, Fitting};
use sonar_view::stacks::{MOST_BYTES, StackComparison, StackReport};

use super::args::StacksCompareArgs;
use crate::exit::{OK, usage};
use crate::input::content::FileContent;
use crate::{input, input::content, outfile, page, screen};

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
    let mut out = io::stdout().lock();
    if args.json {
        comparison.json(&mut out)?;
    } else {
        comparison.text(&mut Fitting::new(&mut out, Some(screen::reading_width())))?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        outfile::write(path, |out| page::write(out, |out| comparison.json(out)))?;
    }
    Ok(OK)
}

/// Reads a result of `stacks --format json`; - is standard input.
fn read(path: &Path) -> Result<StackReport> {
    let name = input::name(path);
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().take(MOST_BYTES + 1).read_to_end(&mut bytes)
    } else {
        regular::open_no_device(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{name}: longer than {} MiB, which no result of stacks is", MOST_BYTES >> 20);
    }
    StackReport::read(&bytes).map_err(|why| match FileContent::of(&bytes) {
        foreign @ FileContent::Foreign(_) => anyhow!("{name}: {}", content::advice(foreign)),
        _ => anyhow!("{name}: {why}"),
    })
}
