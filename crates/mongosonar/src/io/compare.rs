//! `io compare`: two recordings side by side.

use anyhow::Result;
use sonar_view::files::compare::{json, text};

use super::args::IoCompareArgs;
use super::report::{code_of, load};
use crate::report_output::{fitted, print};

/// Runs the command; returns the exit code.
pub fn run(args: &IoCompareArgs) -> Result<u8> {
    let (a, b) = (load(&args.a)?, load(&args.b)?);
    let sides = [&a.recording(), &b.recording()];
    let limit = args.limit.unwrap_or(20);
    let names = [args.a.to_string_lossy(), args.b.to_string_lossy()];
    print(
        args.json,
        |out| json(sides, limit, out),
        fitted(|out| text([&names[0], &names[1]], sides, limit, out)),
    )?;
    let [a, b] = [(&args.a, &a), (&args.b, &b)].map(|(path, side)| code_of(path, side.damage.as_deref()));
    Ok(a.max(b))
}
