//! Inputs that are pipes, given twice, cut, interrupted, or hold nothing that was asked for.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::*;

const LOG: &str = "mongod-4.0-mixed/mongod.log.gz";

/// Runs the program in bash, whose `<(…)` makes pipes. `W` and `L` in `words` stand for a capture and its log, both
/// compressed.
fn in_bash(words: &str) -> Output {
    let script = format!("exec {} {words}", env!("CARGO_BIN_EXE_mongosonar"));
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("HOME", "/nonexistent").env("XDG_CONFIG_HOME", "/nonexistent");
    bash.env("W", recording("mongod-4.0-mixed")).env("L", fixture(LOG)).stdin(Stdio::null());
    bash.output().unwrap()
}

/// The JSON object that a command wrote, without the names of its inputs.
fn object(words: &str) -> Value {
    let output = in_bash(words);
    let mut object: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    object.as_object_mut().unwrap().remove("about");
    for source in object["sources"].as_array_mut().into_iter().flatten() {
        source["files"] = Value::Null;
    }
    object
}

#[test]
fn a_pipe_gives_the_report_of_the_file() {
    let of_files = object("report --json $W $L");
    assert!(of_files["sources"][1]["totals"]["calls"].as_u64().unwrap() > 4_000, "{of_files}");
    for words in ["$W <(zcat $L)", "<(cat $W) <(cat $L)", "<(zcat $W) $L", "$W - < <(cat $L)"] {
        assert!(object(&format!("report --json {words}")) == of_files, "{words}");
    }
}

#[test]
fn pipes_are_compared_whole() {
    for words in ["<(zcat $L) $L", "<(cat $W) <(zcat $W)", "- $L < <(zcat $L)"] {
        let output = in_bash(&format!("compare {words}"));
        assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
    }
}

#[test]
fn a_baseline_may_be_a_pipe() {
    let output = in_bash("queries --read $W --baseline <(zcat $L)");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).len() > 200, "{output:?}");
}

#[test]
fn what_a_limited_report_leaves_out_is_neither_new_nor_gone() {
    let folder = Folder::new("limited");
    for limit in ["--limit 2", "--filter people"] {
        let saved = in_bash(&format!("logs report $L --json {limit}")).stdout;
        let saved = folder.file("limited.json", &saved);
        let saved = saved.display();
        for sides in [format!("{saved} $L"), format!("$L {saved}")] {
            let output = in_bash(&format!("compare {sides} --json"));
            assert_eq!(output.status.code(), Some(0), "{limit}, {sides}: {output:?}");
            let compared = &lines(&output)[0];
            assert!(compared["not_compared"].as_u64().unwrap() > 10, "{compared}");
            assert_eq!(compared["changed"], 0, "{compared}");
            assert!(compared["unchanged"].as_u64().unwrap() > 0, "{compared}");
        }
    }
}

#[test]
fn a_text_log_that_ends_inside_a_line_is_cut() {
    let folder = Folder::new("cut-line");
    let whole = inflated(LOG);
    let begin = whole.windows(11).position(|text| text == b"planSummary").unwrap();
    for (end, is_cut) in [(begin, true), (begin + 3, true), (whole.len(), false)] {
        let log = folder.file("mongod.log", &whole[..end]);
        let output = program(["logs", "report", "--json"]).arg(&log).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = if is_cut { (3, serde_json::json!(1)) } else { (0, Value::Null) };
        assert_eq!((output.status.code().unwrap(), report["lost"]["lines_unfinished"].clone()), expected);
        assert_eq!(text(&output.stderr).contains("ends inside a line"), is_cut, "{output:?}");
    }
    // A line that says how long its operation took is whole without a line feed, and so is one of an event.
    for last in [&b"ms\n"[..], b"now open)\n"] {
        let end = whole.windows(last.len()).position(|text| text == last).unwrap() + last.len() - 1;
        let log = folder.file("mongod.log", &whole[..end]);
        assert_eq!(program(["logs", "report"]).arg(&log).output().unwrap().status.code(), Some(0));
    }
}

#[test]
fn an_unknown_time_is_shown_as_unknown_in_every_output() {
    let folder = Folder::new("undated");
    let document =
        r#"{"op":"query","ns":"a.b","command":{"find":"b","$db":"a"},"docsExamined":9,"millis":7}"#;
    let file = folder.file("profile.json", document.as_bytes());
    let run = |words: &str| {
        let output =
            program(["profiler", "report"]).arg(&file).args(words.split_whitespace()).output().unwrap();
        text(&output.stdout).to_owned()
    };
    let shown = run("");
    assert!(shown.starts_with("1 operation, times unknown\n"), "{shown}");
    assert!(shown.contains("NOT IN FULL: operations_undated 1") && !shown.contains("1970"), "{shown}");
    let json: Value = serde_json::from_str(&run("--json")).unwrap();
    assert_eq!((&json["totals"]["first_seen"], &json["rows"][0]["last_seen"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&json["about"]["start_ns"], &json["lost"]["operations_undated"]),
        (&Value::Null, &serde_json::json!(1))
    );
    let csv = run("--csv");
    assert!(csv.lines().nth(1).unwrap().ends_with(",,"), "{csv}");
    // A range of time has none whose time is unknown.
    for range in ["--from 2026-01-01", "--to 2026-01-01"] {
        let json: Value = serde_json::from_str(&run(&format!("--json {range}"))).unwrap();
        assert_eq!(
            (&json["totals"]["calls"], &json["reading"]["entries_outside"]),
            (&serde_json::json!(0), &serde_json::json!(1)),
            "{range}: {json}"
        );
    }
}

#[test]
fn a_cut_capture_is_a_loss_in_every_output() {
    let folder = Folder::new("cut-capture");
    let whole = unpacked("mongod-4.0-mixed");
    let cut = folder.file("cut.pcap", &whole[..whole.len() / 2]);
    let summary = read(&cut, "");
    assert_eq!(summary.status.code(), Some(3));
    assert!(text(&summary.stdout).contains("the file is cut or damaged"), "{}", text(&summary.stdout));
    assert!(!text(&summary.stdout).contains("nothing lost"));
    for words in ["--json", "--json --interval 1s"] {
        let output = read(&cut, words);
        let last = text(&output.stdout).lines().next_back().unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["coverage"]["files_damaged"], 1, "{words}: {last}");
    }
    let digest: Value = serde_json::from_slice(&read(&cut, "--digest --json").stdout).unwrap();
    assert_eq!(digest["lost"]["files_damaged"], 1);
    assert!(digest["notes"][0].as_str().unwrap().starts_with("NOT IN FULL: "), "{}", digest["notes"]);
}

#[test]
fn a_report_of_one_source_leaves_out_what_the_command_of_that_source_leaves_out() {
    let profile = fixture("mongod-4.0-mixed/profile/shop.bson.gz");
    let profile = profile.display();
    for (one, file) in [("logs report", "$L".to_owned()), ("profiler report", profile.to_string())] {
        let (alone, joined) =
            (object(&format!("{one} --json {file}")), object(&format!("report --json {file}")));
        assert!(!alone["hidden"].as_array().unwrap().is_empty(), "{one}");
        assert_eq!(alone["hidden"], joined["hidden"], "{one}");
    }
}

#[test]
fn a_file_that_is_named_twice_is_refused() {
    let folder = Folder::new("twice");
    let log = folder.file("mongod.log", &inflated(LOG));
    std::os::unix::fs::symlink(&log, folder.path("link.log")).unwrap();
    let (log, link) = (log.display(), folder.path("link.log"));
    let link = link.display();
    let bson = fixture("mongod-4.0-mixed/profile/shop.bson.gz");
    for words in [
        format!("logs report {log} {log}"),
        format!("logs report {log} {link}"),
        "logs report - - < $L".to_owned(),
        format!("report $W {log} {link}"),
        "report $W $W".to_owned(),
        format!("profiler report {0} {0}", bson.display()),
    ] {
        let output = in_bash(&words);
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
        assert!(text(&output.stderr).contains("count twice"), "{words}: {output:?}");
    }
    assert_eq!(in_bash(&format!("compare {log} {link}")).status.code(), Some(0));
}

/// Sends a signal to the program, run on these words, once it has begun to read `file`.
fn interrupted(words: &str, file: &std::path::Path, name: &str) -> Output {
    let child = program(words.split_whitespace()).spawn().unwrap();
    let descriptors = format!("/proc/{}/fd", child.id());
    let is_reading = || {
        let open = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
        open.filter_map(|entry| {
            let is_file = std::fs::read_link(entry.path()).is_ok_and(|target| target == file);
            let info = format!("/proc/{}/fdinfo/{}", child.id(), entry.file_name().to_str()?);
            let info = std::fs::read_to_string(info).ok().filter(|_| is_file)?;
            info.lines().next()?.strip_prefix("pos:")?.trim().parse::<u64>().ok()
        })
        .any(|position| position > 1 << 20)
    };
    let begin = std::time::Instant::now();
    while !is_reading() {
        assert!(begin.elapsed().as_secs() < 60, "{words}: never read {}", file.display());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    signal(&child, name);
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupted_report_is_not_in_full() {
    let folder = Folder::new("interrupted");
    let log = inflated(LOG);
    let large = folder.file("large.log", &log.repeat((100 << 20) / log.len()));
    let page = folder.path("page.html");
    for (name, code, what) in [("INT", 130, "Ctrl-C"), ("TERM", 143, "SIGTERM")] {
        for words in ["logs report --html @page @", "logs report --json @", "report --json @"] {
            let words = words.replace("@page", page.to_str().unwrap()).replace('@', large.to_str().unwrap());
            let output = interrupted(&words, &large, name);
            assert_eq!(output.status.code(), Some(code), "{words}: {output:?}");
            let shown = text(&output.stdout);
            let note = format!("NOT IN FULL: {}: stopped by {what} after ", large.display());
            assert!(shown.contains(&note) && shown.contains(" %)"), "{words}: {shown}");
            assert!(shown.contains("files_stopped"), "{words}: {shown}");
            assert!(!shown.contains("all of it was read"), "{words}: {shown}");
        }
        assert!(std::fs::read_to_string(&page).unwrap().contains(&format!("stopped by {what} after ")));
        std::fs::remove_file(&page).unwrap();
    }
    // There is no result without all of it.
    let wire = recording("mongod-4.0-mixed");
    for words in [
        format!("compare {0} {0}", large.display()),
        format!("queries --read {} --baseline {}", wire.display(), large.display()),
    ] {
        let output = interrupted(&words, &large, "INT");
        assert_eq!(output.status.code(), Some(130), "{words}: {output:?}");
        assert_eq!(text(&output.stdout), "", "{words}");
    }
}

#[test]
fn an_interrupted_capture_is_not_in_full() {
    let folder = Folder::new("interrupted-capture");
    let (header, packets) = {
        let whole = unpacked("mongod-4.0-mixed");
        (whole[..24].to_vec(), whole[24..].to_vec())
    };
    let large = [header, packets.repeat((100 << 20) / packets.len())].concat();
    let large = folder.file("large.pcap", &large);
    let output = interrupted(&format!("queries --json --read {}", large.display()), &large, "INT");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let summary: Value = serde_json::from_str(text(&output.stdout).lines().next_back().unwrap()).unwrap();
    assert_eq!(summary["coverage"]["files_stopped"], 1, "{summary}");
    assert!(text(&output.stderr).contains("stopped by Ctrl-C after "), "{output:?}");
    let note = summary["notes"][0].as_str().unwrap();
    assert!(note.starts_with("NOT IN FULL: stopped by Ctrl-C after "), "{note}");
    // The text states it above the rows.
    let output = interrupted(&format!("queries --read {}", large.display()), &large, "INT");
    let shown = text(&output.stdout);
    let (note, rows) = (shown.find("NOT IN FULL: stopped by Ctrl-C after "), shown.find("\n   calls "));
    assert!(note.is_some() && note < rows, "{shown}");
}

#[test]
fn a_report_of_nothing_states_why() {
    let shown = |words: &str| {
        let output = in_bash(&format!("logs report $L {words}"));
        assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
        text(&output.stdout).to_owned()
    };
    let filtered = shown("--filter zzz");
    assert!(filtered.contains("\nNo row contains \"zzz\".\n"), "{filtered}");
    assert!(!filtered.contains("calls  time"), "{filtered}");
    let covers = "; the log covers 2026-11-21T00:39:39";
    for (words, within) in [
        ("--from 2027-01-01", "no operation at 2027-01-01T00:00:00"),
        ("--to 2026-01-01T00:00:00Z", "no operation before 2026-01-01T00:00:00"),
        ("--from 2026-11-20 --to 2026-11-21", "no operation between 2026-11-20T00:00:00"),
    ] {
        let shown = shown(words);
        assert!(shown.contains(within) && shown.contains(covers), "{words}: {shown}");
    }
    let report = object("logs report --json $L --from 2027-01-01");
    assert_eq!(report["reading"]["lines_outside"], report["reading"]["lines"], "{}", report["reading"]);
    assert_eq!(
        (&report["reading"]["lines_other"], &report["reading"]["entries_outside"]),
        (&0.into(), &0.into())
    );
    for command in ["logs report $L", "report $L"] {
        for words in [
            "--from 2026-11-21T01:00 --to 2026-11-21T00:00",
            "--from 2026-11-21T01:00:00Z --to 2026-11-21T02:30:00+02:00",
        ] {
            let output = in_bash(&format!("{command} {words}"));
            assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
            assert!(text(&output.stderr).contains("--to must be later than --from"), "{output:?}");
        }
    }
}
