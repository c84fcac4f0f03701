//! Exit codes are the same in every command, and an error names its cause once, in words.

use crate::support::{Folder, program, run, text};

/// Every command that does something.
const COMMANDS: [&str; 18] = [
    "queries",
    "logs report",
    "profiler status",
    "profiler set",
    "profiler tail",
    "profiler report",
    "profiler impact",
    "compare",
    "disk bench",
    "disk estimate",
    "disk stat",
    "disk check",
    "io live",
    "io record",
    "io report",
    "io compare",
    "io reorder",
    "doctor",
];

/// Runs it; gives what it says, which must be an error that a person can read.
fn fails(words: &str, code: i32) -> String {
    let output = run(words);
    let said = text(&output.stderr).to_owned();
    assert_eq!(output.status.code(), Some(code), "{words}: {said}");
    assert!(!said.trim().is_empty(), "{words}");
    for debug in ["os error", "Error {", "Error(", "Some(", "Kind::", "source: None", "\\n", "panicked"] {
        assert!(!said.contains(debug), "{words}: {said}");
    }
    // A cause is not repeated.
    let parts: Vec<_> = said.trim().split(": ").filter(|part| part.len() > 12).collect();
    for (at, part) in parts.iter().enumerate() {
        assert!(!parts[at + 1..].contains(part), "{words}: {part:?} twice in {said}");
    }
    said
}

#[test]
fn an_unknown_flag_is_2_in_every_command() {
    for command in COMMANDS {
        let said = fails(&format!("{command} --nosuch"), 2);
        assert!(said.contains("--nosuch"), "{command}: {said}");
    }
    assert_eq!(run("").status.code(), Some(2));
    fails("nosuch", 2);
    assert!(fails("why --shape xyz --pid 1", 2).contains("is no id of a shape"));
    fails("completions fishy", 2);
}

#[test]
fn wrong_arguments_are_2_also_when_that_shows_late() {
    let folder = Folder::new("late");
    let log = folder.file("mongod.log", b"2026-05-01T10:00:00.000+0000 I NETWORK  [listener] hello\n");
    let recording = crate::support::recording("mongod-4.0-mixed");
    let (log, recording) = (log.display(), recording.display());
    let bad = folder.file("bad.toml", b"[queries]\nthreads = 0\n");
    let bad = bad.display();
    for (words, part) in [
        (format!("queries --read {recording} --interface lo"), "--interface"),
        (format!("queries --read {recording} --sort taste"), "taste"),
        (format!("queries --read {recording} --digest --by client"), "client"),
        (format!("queries --read {recording} --digest --sort load"), "load"),
        (format!("queries --read {recording} --html {log}"), "name another file"),
        (format!("queries --read {recording} --html {}", folder.path("").display()), "folder"),
        (format!("queries --read {recording} --config {bad}"), "queries.threads"),
        (format!("logs report {log} --config {bad}"), "queries.threads"),
        (format!("logs report {log} --sort taste"), "taste"),
        (format!("logs report {log} --from someday"), "someday"),
        (format!("profiler report {log} --db shop"), "--db"),
        (format!("profiler report {log} --duration 1s"), "--duration"),
        ("disk bench".to_owned(), "--r, --w"),
        ("disk bench -r --nThreads 0".to_owned(), "nThreads"),
        ("disk bench -r --mmf --engine uring".to_owned(), "mmap"),
        ("disk estimate --rate 100".to_owned(), "--documents"),
        ("disk estimate --documents 5".to_owned(), "--rate"),
        (format!("disk check --root {}", folder.path("").display()), "proc"),
    ] {
        let said = fails(&words, 2);
        assert!(said.contains(part), "{words}: {said}");
    }
}

#[test]
fn a_missing_file_is_1_and_is_named() {
    let recording = crate::support::recording("mongod-4.0-mixed");
    let recording = recording.display();
    for words in [
        "queries --read /no/such/file".to_owned(),
        format!("queries --read {recording} --baseline /no/such/file"),
        "logs report /no/such/file".to_owned(),
        "profiler report /no/such/file".to_owned(),
        format!("compare /no/such/file {recording}"),
        format!("compare {recording} /no/such/file"),
        "disk bench -r --mongoperf-config /no/such/file".to_owned(),
        "disk bench --compare /no/such/file /no/such/file".to_owned(),
        "disk estimate /no/such/file --documents 5".to_owned(),
        "disk check --root /no/such/file".to_owned(),
        "io report /no/such/file".to_owned(),
        "io compare /no/such/file /no/such/file".to_owned(),
    ] {
        let said = fails(&words, 1);
        assert!(said.contains("/no/such/file") && said.contains("No such file"), "{words}: {said}");
        assert_eq!(said.matches("/no/such/file").count(), 1, "{words}: {said}");
    }
}

#[test]
fn an_empty_file_is_1_as_nothing_could_be_read() {
    let folder = Folder::new("none");
    let empty = folder.file("nothing", b"");
    let recording = crate::support::recording("mongod-4.0-mixed");
    let (empty, recording) = (empty.display(), recording.display());
    for words in [
        format!("queries --read {empty}"),
        format!("queries --read {recording} --baseline {empty}"),
        format!("logs report {empty}"),
        format!("profiler report {empty}"),
        format!("compare {empty} {recording}"),
        format!("compare {recording} {empty}"),
        format!("disk bench --compare {empty} {empty}"),
        format!("disk estimate {empty} --documents 5"),
        format!("io report {empty}"),
        format!("io compare {empty} {empty}"),
    ] {
        let said = fails(&words, 1);
        assert!(said.contains("empty"), "{words}: {said}");
    }
    // An empty configuration leaves everything at its default, and mongoperf's says too little.
    assert_eq!(run(&format!("completions bash --config {empty}")).status.code(), Some(0));
    fails(&format!("disk bench --mongoperf-config {empty}"), 2);
}

#[test]
fn a_file_in_the_place_of_an_option_or_a_command_gets_a_tip() {
    let file = env!("CARGO_MANIFEST_PATH");
    for (command, tip) in [("queries", "queries --read"), ("logs", "logs report"), ("io", "io report")] {
        let output = run(&format!("{command} {file}"));
        assert_eq!(output.status.code(), Some(2));
        let expected = format!("To read a file: mongosonar {tip} {file}");
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
        let output = run(&format!("{command} no-such-file"));
        assert!(!text(&output.stderr).contains("To read a file"));
    }
}

#[test]
fn a_file_that_must_be_new_says_what_is_in_its_way() {
    let folder = Folder::new("new");
    let existing = folder.file("old.pcapng", b"x");
    let write = |path: &str| run(&format!("queries --interface lo --port 1 --duration 1s --write {path}"));
    let output = write(existing.to_str().unwrap());
    let message = text(&output.stderr);
    if message.contains("doctor") {
        return eprintln!("skipped: capturing needs CAP_NET_RAW");
    }
    assert!(message.contains("already exists and is not overwritten"), "{message}");
    let output = write("/nowhere/new.pcapng");
    let message = text(&output.stderr);
    assert!(message.contains("there is no folder /nowhere"), "{message}");
}

#[test]
fn what_others_put_into_a_file_name_is_shown_and_not_obeyed() {
    let name = "/nowhere/\u{1b}[2J\nmongosonar: all is well\u{9b}0m";
    for command in [&["logs", "report"][..], &["ftdc", "report"], &["queries", "--read"], &["io", "report"]] {
        let output = program(command.iter().chain(&[name])).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{command:?}: {said:?}");
        assert!(!said.contains(['\u{1b}', '\u{9b}']), "{command:?}: {said:?}");
    }
}

#[test]
fn a_configuration_that_is_missing_or_no_text_is_2() {
    let folder = Folder::new("configuration");
    let binary = folder.file("binary.toml", b"[queries]\nport = \xff\xfe\n");
    let missing = folder.path("missing.toml");
    let log = folder.file("mongod.log", b"");
    for (path, why) in [(&binary, "it is not a text in UTF-8"), (&missing, "there is no such file")] {
        let config = path.display();
        for words in [
            format!("queries --config {config} --read {}", log.display()),
            format!("agent --config {config} --check-config"),
        ] {
            assert!(fails(&words, 2).contains(&format!("{config}: {why}")), "{words}");
        }
    }
}

#[test]
fn a_page_is_not_written_through_the_link_of_another_user() {
    let folder = Folder::new("link");
    let log = folder.file("mongod.log", b"2026-05-01T10:00:00.000+0000 I NETWORK  [listener] hello\n");
    let (target, link) = (folder.path("target.html"), folder.path("report.html"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    if std::os::unix::fs::lchown(&link, Some(65_532), None).is_err() {
        println!("skipped: only root can give a link to another user");
        return;
    }
    let words = format!("logs report {} --html {}", log.display(), link.display());
    assert!(fails(&words, 1).contains("is a symbolic link of another user (id 65532)"));
    assert!(!target.exists());
    std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
    assert!(run(&words).status.success() && target.exists());
}
