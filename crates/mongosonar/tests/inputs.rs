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
