//! The answer stands first in every report.
//!
//! Tables on purpose, which are read from top to bottom, begin with names and figures: `stacks`, `timeline`, a run of `disk
//! bench`, `disk stat`, `disk estimate`, `io live`, and the summary of `queries`. `why` and `profiler impact`, which take a
//! server, are tested in `sonar-view`.

use std::ffi::OsString;
use std::path::Path;

use crate::support::*;

/// A report, `@` before a fixture; and what its first line says. A heading in capitals may stand above it.
const REPORTS: [(&str, &str); 14] = [
    ("logs report @mongod-4.0-mixed/mongod.log.gz", " of the time of all operations "),
    ("profiler report @mongod-4.4-minutes/profile.bson.gz", " of the time of all operations "),
    (
        "report @mongod-4.4-minutes/profile.bson.gz @mongod-4.4-minutes/mongod.log.gz",
        " of the time of all operations ",
    ),
    ("queries --digest --read @mongod-4.4-minutes/wire.pcap.gz", " of the time of all operations "),
    ("report @kept/current-op.json", " in flight at "),
    ("report @explain/mongosh-7.0.txt", "COLLSCAN; 318ms altogether, 61 returned"),
    ("compare @mongod-4.0-mixed/mongod.log.gz @mongod-4.4-minutes/mongod.log.gz", " changed; "),
    ("what-changed --store @history --utc --from 2026-11-21T21:23:40 --to 21:27:20", " the largest: "),
    ("report --store @history --utc --from 2026-11-21T21:23:40 --to 21:27:20", " the largest: "),
    ("ftdc report @ftdc/day", " figures are over a limit"),
    (
        "ftdc compare @ftdc/killed @ftdc/day",
        "1 figure got worse: keys examined for each document returned; 2 better, ",
    ),
    ("ftdc compare @ftdc/day @ftdc/day", "No figure got worse; "),
    (
        "stacks compare @stacks-before.json @stacks-after.json",
        " functions changed; most of all mutex in the server, client connection: ",
    ),
    ("disk bench --compare @disk-bench.json @disk-bench.json", "Nothing differs beyond noise at "),
];

/// The first line that is no heading.
fn first_line(shown: &str) -> &str {
    let is_heading = |line: &&str| line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    shown.lines().find(|line| !is_heading(line)).unwrap_or_default()
}

/// The arguments of a report.
fn arguments(words: &str) -> Vec<OsString> {
    let words = words.split(' ').map(|word| match word.strip_prefix('@') {
        Some(name) => fixture(name).into_os_string(),
        None => word.into(),
    });
    words.collect()
}

#[test]
fn a_page_that_cannot_be_written_fails_the_command_and_loses_no_report() {
    for (words, answer) in REPORTS.into_iter().filter(|(words, _)| !words.starts_with("ftdc compare")) {
        let mut words = arguments(words);
        words.extend(["--html", "/dev/full"].map(OsString::from));
        let output = program(&words).output().unwrap();
        let (shown, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(first_line(shown).contains(answer), "{words:?}: {shown} {errors}");
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(errors.contains("cannot write /dev/full: No space left on device"), "{words:?}: {errors}");
    }
}

#[test]
fn the_first_line_of_each_report_is_its_answer() {
    for (words, answer) in REPORTS {
        let words = arguments(words);
        let output = program(&words).output().unwrap();
        let shown = text(&output.stdout);
        assert!(first_line(shown).contains(answer), "{words:?}: {shown} {}", text(&output.stderr));
    }
    let folder = Folder::new("answers");
    let recording = folder.file("reads.msio", &recorded_reads("sortById-hashed"));
    let shown = run(&format!("io report {}", recording.display())).stdout;
    assert!(first_line(text(&shown)).starts_with("A fetch through an index"), "{}", text(&shown));
    let other = folder.file("other.msio", &recorded_reads("createIndex-hashed"));
    let compared = |a: &Path, b: &Path| {
        let shown = run(&format!("io compare {} {}", a.display(), b.display())).stdout;
        first_line(text(&shown)).to_owned()
    };
    let changed = compared(&recording, &other);
    assert!(changed.contains(" changed; the largest: ") && changed.ends_with(" in B)."), "{changed}");
    assert_eq!(compared(&recording, &recording), "Nothing changed beyond noise.");
}

#[test]
fn a_check_begins_with_its_counts_and_its_problems() {
    let machine = Folder::new("machine");
    let (script, tree) = (fixture("machines/tree.py"), fixture("machines/limited.txt"));
    let made = std::process::Command::new("python3").arg(script).arg(tree).arg(machine.path("root")).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    let root = machine.path("root");
    let output = program(["disk", "check", "--root", root.to_str().unwrap()]).output().unwrap();
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[0], "2 problems, 1 warning, 15 ok, 1 not seen.");
    let graded = lines.iter().filter_map(|line| line.split_once(' ').map(|(grade, _)| grade));
    let graded: Vec<_> = graded.filter(|grade| ["problem", "warning", "ok", "not"].contains(grade)).collect();
    assert_eq!(graded, [&["problem"; 2][..], &["warning"], &["ok"; 15], &["not"]].concat());
}
