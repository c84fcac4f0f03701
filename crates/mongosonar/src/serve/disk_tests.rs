//! Results of `disk bench` in the folder of a history, beside which the page shows what the disks do.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use sonar_sys::host::regular;
use sonar_view::disk::BenchReport;
use sonar_view::past::storage::{DiskTests, KeptDiskTest};

use crate::exit;

/// What names of results begin and end with.
const BEGIN: &str = "disk-bench";
const END: &str = ".json";
/// The most results that are read.
const MAX_FILES: usize = 16;
/// The most bytes of one: a long ramp takes some 50 kB.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the results in a folder, `disk-bench*.json`, the first by name.
pub fn read(folder: &Path) -> DiskTests {
    let mut tests = DiskTests::default();
    let mut names: Vec<String> = match fs::read_dir(folder) {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(BEGIN) && name.ends_with(END))
            .collect(),
        Err(_) => Vec::new(),
    };
    names.sort_unstable();
    if names.len() > MAX_FILES {
        tests.problems.push(format!("of {} results of disk bench, {MAX_FILES} are read", names.len()));
        names.truncate(MAX_FILES);
    }
    for file in names {
        match result_in(&folder.join(&file)) {
            Ok(run) => tests.kept.push(KeptDiskTest { file, run }),
            Err(error) => tests.problems.push(format!("{file}: {}", exit::message(&error))),
        }
    }
    tests
}

fn result_in(path: &Path) -> Result<BenchReport> {
    let mut bytes = Vec::new();
    let file = regular::open(path).context("cannot be read")?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).context("cannot be read")?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("longer than {} MiB", MAX_BYTES >> 20);
    }
    BenchReport::read(&bytes).map_err(|why| anyhow!(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &[u8] = include_bytes!("../../../../fixtures/disk-bench.json");

    #[test]
    fn results_are_found_by_name_and_what_is_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(read(&folder.join("none")).kept.is_empty());
        fs::write(folder.join("disk-bench-vda.json"), RESULT).unwrap();
        fs::write(folder.join("disk-bench.json"), "{}").unwrap();
        fs::write(folder.join("disk-bench-long.json"), vec![b' '; MAX_BYTES as usize + 1]).unwrap();
        fs::write(folder.join("status.json"), RESULT).unwrap();
        fs::create_dir(folder.join("disk-bench-folder.json")).unwrap();
        let tests = read(folder);
        let files: Vec<_> = tests.kept.iter().map(|one| one.file.as_str()).collect();
        assert_eq!(files, ["disk-bench-vda.json"]);
        let said = |begin: &str| tests.problems.iter().any(|line| line.starts_with(begin));
        assert!(said("disk-bench.json: this is not a result"), "{:?}", tests.problems);
        assert!(said("disk-bench-long.json: longer than 1 MiB"), "{:?}", tests.problems);
        assert!(said("disk-bench-folder.json: cannot be read"), "{:?}", tests.problems);
        assert_eq!(tests.problems.len(), 3);
    }

    #[test]
    fn no_more_results_are_read_than_there_is_room_for() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MAX_FILES + 3 {
            fs::write(folder.path().join(format!("disk-bench-{number:02}.json")), RESULT).unwrap();
        }
        let tests = read(folder.path());
        assert_eq!((tests.kept.len(), tests.kept[0].file.as_str()), (MAX_FILES, "disk-bench-00.json"));
        assert_eq!(tests.problems, ["of 19 results of disk bench, 16 are read"]);
    }
}
