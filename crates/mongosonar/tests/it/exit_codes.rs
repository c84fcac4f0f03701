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

/// What may be wrong with a file that a command is to read.
#[derive(Copy, Clone, Debug)]
enum Wrong {
    Missing,
    Denied,
    Empty,
    IsFolder,
    OtherKind,
}

const WRONG: [Wrong; 5] = [Wrong::Missing, Wrong::Denied, Wrong::Empty, Wrong::IsFolder, Wrong::OtherKind];

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// Files of each kind of fault.
struct WrongFiles(Folder);

impl WrongFiles {
    fn new(name: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new(name);
        let open = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(&folder.path(""), 0o755);
        open(&folder.file("denied", b"x"), 0);
        open(&folder.file("empty", b""), 0o644);
        open(&folder.file("other", b"# About\n\nSome text, and no line of a log.\n"), 0o644);
        std::fs::create_dir(folder.path("folder")).unwrap();
        // Where nobody may make a store: one that others can write to is refused.
        std::fs::create_dir(folder.path("nobody")).unwrap();
        let _ = std::os::unix::fs::chown(folder.path("nobody"), Some(NOBODY), Some(NOBODY));
        Self(folder)
    }

    fn path(&self, wrong: Wrong) -> String {
        let name = match wrong {
            Wrong::Missing => "missing",
            Wrong::Denied => "denied",
            Wrong::Empty => "empty",
            Wrong::IsFolder => "folder",
            Wrong::OtherKind => "other",
        };
        self.0.path(name).display().to_string()
    }

    /// `words`, where `@` is this file and `%` a new store.
    fn words(&self, words: &str, wrong: Wrong) -> Vec<String> {
        let place = if matches!(wrong, Wrong::Denied) { "nobody/history" } else { "history" };
        let store = self.0.path(place).display().to_string();
        let path = self.path(wrong);
        words.split_whitespace().map(|word| word.replace('@', &path).replace('%', &store)).collect()
    }

    /// The exit code of `words`, and what it said on standard error; without root's rights where these would open the file.
    /// `None` if nobody else can run the program.
    fn run(&self, words: &[String], wrong: Wrong) -> Option<(i32, String)> {
        use std::os::unix::process::CommandExt;
        let is_root = std::fs::read(self.path(Wrong::Denied)).is_ok();
        let as_nobody = |mut command: std::process::Command| {
            if is_root && matches!(wrong, Wrong::Denied) {
                command.uid(NOBODY).gid(NOBODY);
            }
            command.current_dir("/").output().ok()
        };
        as_nobody(program(["--version"])).filter(|output| output.status.success())?;
        let output = as_nobody(program(words)).unwrap();
        let said = text(&output.stderr).to_owned();
        assert!(!said.contains("os error") && !said.contains("panicked"), "{words:?}: {said}");
        // Without a result nothing was printed, and where part of it is missing that is said.
        let code = output.status.code().unwrap();
        match code {
            1 | 2 => assert!(output.stdout.is_empty() && !said.is_empty(), "{words:?}: {said}"),
            3 => assert!(!output.stdout.is_empty() && !said.is_empty(), "{words:?}: {said}"),
            _ => {}
        }
        Some((code, said))
    }
}

#[test]
fn a_file_that_cannot_be_read_has_the_same_exit_code_in_every_command() {
    let files = WrongFiles::new("wrong");
    let capture = crate::support::recording("mongod-4.0-mixed").display().to_string();
    let log = crate::support::fixture("mongod-4.0-mixed/mongod.log.gz").display().to_string();
    let day = crate::support::fixture("ftdc/day").display().to_string();
    for words in [
        "queries --read @",
        "queries --replay --read @",
        &format!("queries --read {capture} --baseline @"),
        "logs report @",
        "profiler report @",
        "report @",
        &format!("compare @ {log}"),
        &format!("compare {log} @"),
        "ftdc report @",
        "ftdc export @",
        &format!("ftdc compare @ {day}"),
        &format!("ftdc compare {day} @"),
        "io report @",
        &format!("io compare @ {capture}"),
        &format!("stacks compare @ {log}"),
        "disk estimate @ --documents 5",
        &format!("disk bench --compare @ {log}"),
        "disk check --root @",
        "agent --replay @ --store %",
        "agent --status --store @",
        "timeline --store @",
        "what-changed --store @",
        "queries --at -1m --store @",
        "report --from -1h --store @",
    ] {
        for wrong in WRONG {
            let path = files.path(wrong);
            let Some((code, said)) = files.run(&files.words(words, wrong), wrong) else { continue };
            assert_eq!(code, 1, "{words} {wrong:?}: {said}");
            assert!(said.contains(&path), "{words} {wrong:?}: {said}");
        }
    }
}

#[test]
fn a_device_in_place_of_a_file_is_refused() {
    let folder = Folder::new("device");
    let device = folder.path("device");
    // No machine has a driver for it: who opens it learns that.
    let made = std::process::Command::new("mknod").arg(&device).args(["c", "38", "0"]).status();
    if !made.is_ok_and(|status| status.success()) {
        return println!("skipped: only root can make a device");
    }
    let device = device.display();
    for (words, code) in [
        (format!("queries --read {device}"), 1),
        (format!("io report {device}"), 1),
        (format!("stacks compare {device} {device}"), 1),
        (format!("disk bench --compare {device} {device}"), 1),
        (format!("disk estimate {device} --documents 5"), 1),
        (format!("disk bench --mongoperf-config {device}"), 2),
        (format!("completions bash --config {device}"), 2),
    ] {
        let said = fails(&words, code);
        assert!(said.contains(": a device"), "{words}: {said}");
    }
}

#[test]
fn a_configuration_that_cannot_be_read_is_2() {
    let files = WrongFiles::new("configurations");
    let log = crate::support::fixture("mongod-4.0-mixed/mongod.log.gz").display().to_string();
    for words in [
        &format!("logs report {log} --config @"),
        "agent --check-config --config @",
        "agent --config @",
        "disk bench -r --mongoperf-config @",
    ] {
        for wrong in WRONG.into_iter().filter(|wrong| !matches!(wrong, Wrong::Empty)) {
            let path = files.path(wrong);
            let Some((code, said)) = files.run(&files.words(words, wrong), wrong) else { continue };
            assert_eq!(code, 2, "{words} {wrong:?}: {said}");
            assert!(said.contains(&path) || said.contains("no JSON"), "{words} {wrong:?}: {said}");
        }
    }
}

#[test]
fn beside_a_good_file_the_code_says_whether_there_is_a_result_and_all_of_it() {
    let files = WrongFiles::new("beside");
    let fixture = |name| crate::support::fixture(name).display().to_string();
    let (log, profile) =
        (fixture("mongod-4.0-mixed/mongod.log.gz"), fixture("mongod-4.0-mixed/profile/shop.bson.gz"));
    let day = fixture("ftdc/day");
    // In the order of `WRONG`.
    for (words, good, codes) in [
        ("logs report &", &log, [1, 1, 0, 1, 3]),
        ("profiler report &", &profile, [1, 1, 0, 1, 3]),
        ("report &", &log, [1; 5]),
        ("ftdc report &", &day, [3, 3, 0, 1, 3]),
        ("agent --replay & --store %", &log, [1; 5]),
    ] {
        for (wrong, expected) in WRONG.into_iter().zip(codes) {
            let bad = files.path(wrong);
            for both in [[good, &bad], [&bad, good]] {
                let words = files.words(words, wrong).into_iter().flat_map(|word| match &*word {
                    "&" => both.map(String::clone).to_vec(),
                    _ => vec![word],
                });
                let Some((code, said)) = files.run(&words.collect::<Vec<_>>(), wrong) else { continue };
                assert_eq!(code, expected, "{both:?} {wrong:?}: {said}");
                assert!(code == 0 || said.contains(&bad), "{both:?} {wrong:?}: {said}");
            }
        }
    }
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
fn where_there_is_nothing_to_read_or_the_arguments_are_wrong_no_empty_page_stays() {
    let folder = Folder::new("no-page");
    let (page, missing) = (folder.path("page.html"), folder.path("missing"));
    let log = folder.file("mongod.log", b"2026-05-01T10:00:00.000+0000 I NETWORK  [listener] hello\n");
    let (page, missing, log) = (page.display(), missing.display(), log.display());
    for (words, code) in [
        (format!("report --html {page}"), 2),
        (format!("report --html {page} {missing}"), 1),
        (format!("logs report --html {page} {missing}"), 1),
        (format!("compare --html {page} {missing} {missing}"), 1),
        (format!("queries --read {missing} --html {page}"), 1),
        (format!("timeline --store {missing} --html {page}"), 1),
        (format!("what-changed --store {missing} --html {page}"), 1),
        (format!("report --from 10:00 --store {missing} --html {page}"), 1),
        (format!("logs report --by user --html {page} {log}"), 2),
        (format!("report --by comment --html {page} {log}"), 2),
        (format!("logs report --from 2026-05-01T11:00 --to 2026-05-01T10:00 --html {page} {log}"), 2),
    ] {
        fails(&words, code);
        assert!(!folder.path("page.html").exists(), "{words}");
    }
}

/// It was made while the command still might, and cannot be removed any more.
#[test]
fn the_page_of_a_report_that_there_is_not_says_why() {
    let folder = Folder::new("no-report");
    let fixture = |name| crate::support::fixture(name).display().to_string();
    let (current, explained) = (fixture("kept/current-op.json"), fixture("explain/classic-4.4.json"));
    let day = fixture("ftdc/day");
    let empty = folder.file("empty.log", b"").display().to_string();
    let other = folder.file("other.txt", b"no line of a log\n").display().to_string();
    for (at, (words, code)) in [
        (format!("report --csv {current}"), 2),
        (format!("report --by plan {current}"), 2),
        (format!("report --limit 3 {explained}"), 2),
        (format!("report {explained} {current}"), 2),
        (format!("report {day}"), 1),
        (format!("report {empty}"), 1),
        (format!("logs report {empty}"), 1),
        (format!("logs report {other}"), 1),
        (format!("profiler report {other}"), 1),
        (format!("queries --read {other}"), 1),
        (format!("ftdc report {other}"), 1),
        (format!("io report {other}"), 1),
        (format!("stacks compare {other} {empty}"), 1),
        (format!("compare {other} {empty}"), 1),
    ]
    .into_iter()
    .enumerate()
    {
        let page = folder.path(&format!("{at}.html"));
        let said = fails(&format!("{words} --html {}", page.display()), code);
        let html = std::fs::read_to_string(&page).unwrap();
        let document = document_of(&html);
        assert_eq!(document["kind"], "problem", "{words}");
        let why = said.trim().strip_prefix("mongosonar: ").unwrap();
        assert_eq!(document["words"], why, "{words}");
    }
    // A page that was there stays.
    let page = folder.file("kept.html", b"<!doctype html>\n");
    fails(&format!("report --csv {current} --html {}", page.display()), 2);
    assert_eq!(std::fs::read(page).unwrap(), b"<!doctype html>\n");
}

/// The document in a page.
fn document_of(html: &str) -> serde_json::Value {
    let (_, rest) = html.split_once(r#"<script id="data" type="application/json">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn every_kind_of_input_of_a_report_has_a_page() {
    let folder = Folder::new("kinds");
    let fixture = |name| crate::support::fixture(name);
    let in_progress = bson::doc! {"inprog": [{
        "type": "op", "active": true, "opid": 7, "op": "query", "ns": "shop.orders", "secs_running": 3_i64,
        "command": {"find": "orders", "filter": {"user": 5}, "$db": "shop"},
    }]};
    let plan = bson::doc! {
        "queryPlanner": {
            "namespace": "shop.orders", "parsedQuery": {"user": {"$eq": 5}}, "rejectedPlans": [],
            "winningPlan": {"stage": "COLLSCAN", "filter": {"user": {"$eq": 5}}, "direction": "forward"},
        },
        "ok": 1.0,
    };
    let log = std::fs::read(fixture("mongod-4.0-mixed/mongod.log.gz")).unwrap();
    let tar = [crate::inputs::archived("mongod.log.gz", &log), vec![0; 1_024]].concat();
    for (name, file, kind) in [
        ("capture", crate::support::recording("mongod-4.0-mixed"), "digest"),
        ("log", fixture("mongod-4.0-mixed/mongod.log.gz"), "digest"),
        ("tar", folder.file("logs.tar", &tar), "digest"),
        ("profile", fixture("mongod-4.0-mixed/profile/shop.bson.gz"), "digest"),
        ("current", fixture("kept/current-op.json"), "current_operations_report"),
        (
            "current-bson",
            folder.file("current.bson", &in_progress.to_vec().unwrap()),
            "current_operations_report",
        ),
        ("explain", fixture("explain/mongosh-7.0.txt"), "explain_report"),
        ("explain-json", fixture("explain/sharded-5.0.json"), "explain_report"),
        ("explain-bson", folder.file("explain.bson", &plan.to_vec().unwrap()), "explain_report"),
    ] {
        let page = folder.path(&format!("{name}.html"));
        let output = program(["report"]).arg(&file).arg("--html").arg(&page).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        // Beside it the report is printed as without a page.
        let printed = program(["report"]).arg(&file).output().unwrap();
        assert_eq!(text(&output.stdout), text(&printed.stdout), "{name}");
        let document = document_of(&std::fs::read_to_string(&page).unwrap());
        assert_eq!(document["kind"], kind, "{name}");
        let json = program(["report", "--json"]).arg(&file).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let [list, count] = match kind {
            "explain_report" => ["outputs", "report"],
            "current_operations_report" => ["files", "report"],
            _ => continue,
        };
        assert_eq!(document[list][0][count], json, "{name}");
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
