//! Saved runs: compares two of them, and estimates how long reading takes on the disk of one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use sonar_core::disk::estimate::Work;
use sonar_view::disk::compare::RunComparison;
use sonar_view::disk::estimate::Estimate;
use sonar_view::disk::run::{BenchReport, MOST_BYTES};
use sonar_view::kit::Fitting;
use sonar_view::kit::json::line;

use super::args::{BenchArgs, EstimateArgs};
use crate::exit::{OK, usage};
use crate::input;
use crate::input::content::{self, FileContent};
use crate::report_output::{OutputArgs, print};
use crate::screen;

/// Reads a result of `disk bench --json`; - is standard input.
pub fn read(path: &Path) -> Result<BenchReport> {
    let bytes = input::result_of("disk bench", path, MOST_BYTES)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        bail!("{} is empty, and no result of `disk bench --json`", path.display());
    }
    BenchReport::read(&bytes).map_err(|why| {
        let why = content::instead(&bytes, io::empty(), FileContent::DiskBench, &why);
        anyhow!("{}: {why}", path.display())
    })
}

/// Sets two runs side by side.
pub fn run(files: &[PathBuf], args: &BenchArgs) -> Result<u8> {
    let [a_path, b_path] = files else { return Err(usage!("--compare needs two files")) };
    let (a, b) = (read(a_path)?, read(b_path)?);
    let names = [a_path, b_path].map(|path| path.display().to_string());
    let comparison = RunComparison::new(&a, &b, names);
    let text =
        |out: &mut dyn Write| comparison.text(&a, &b, &mut Fitting::new(out, Some(screen::reading_width())));
    let output = OutputArgs { json: args.json, html: args.html.clone() };
    output.write(|out| comparison.json(&a, &b, out), text)?;
    Ok(OK)
}

/// Estimates how long reading a number of documents takes.
pub fn estimate(args: &EstimateArgs) -> Result<u8> {
    let run = args.run.as_deref().map(read).transpose()?;
    let record_bytes = run.as_ref().map_or(4_096, |run| u64::from(run.settings.rec_size_kb) << 10);
    let document_bytes = match (args.document_bytes, args.size, args.documents) {
        (Some(bytes), ..) => bytes,
        (None, Some(size), Some(documents)) => (size / documents.max(1)).max(1),
        _ => record_bytes,
    };
    let documents = match (args.documents, args.size) {
        (Some(documents), _) => documents,
        (None, Some(size)) => size.div_ceil(document_bytes.max(1)),
        (None, None) => {
            return Err(usage!("say how much is read: --documents N, or --size of the collection, or both"));
        }
    };
    let work = Work { documents, document_bytes, record_bytes };
    let estimate = match (&run, args.rate) {
        (Some(run), None) => Estimate::from_run(&work, run).map_err(|why| anyhow!(why))?,
        (None, Some(rate)) => Estimate::at_rate(&work, rate),
        _ => return Err(usage!("give a result of disk bench --json, or --rate with reads per second")),
    };
    let text = |out: &mut dyn Write| estimate.text(&mut Fitting::new(out, Some(screen::reading_width())));
    print(args.json, |out| line(&estimate, out), text)?;
    Ok(OK)
}
