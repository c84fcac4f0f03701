//! `report` on the output of `explain`.

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::support::{Folder, fixture, program};

fn run(words: &str, files: &[PathBuf]) -> Output {
    program(words.split(' ').collect::<Vec<_>>()).args(files).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_plan_is_a_report_of_its_own_and_a_note_beside_others() {
    let file = fixture("explain/mongosh-7.0.txt");
    let alone = run("report", std::slice::from_ref(&file));
    assert_eq!(alone.status.code(), Some(0), "{alone:?}");
    let shown = text(&alone.stdout);
    let summary = "explain of find shop.orders: COLLSCAN; 318ms altogether, 61 returned, 240,000 documents examined, 0 keys examined";
    assert!(shown.starts_with(summary), "{shown}");
    assert!(shown.contains("shop.orders {city: 1, at: -1, total: 1}"), "{shown}");
    let json: Value =
        serde_json::from_slice(&run("report --json", std::slice::from_ref(&file)).stdout).unwrap();
    assert_eq!((&json["kind"], &json["findings"][0]["kind"]), (&"explain".into(), &"collection_scan".into()));
    assert_eq!(json["indexes"][0]["index"], "{city: 1, at: -1, total: 1}");
    assert_eq!(json["stages"]["inputs"][0]["docs_examined"], 240_000);
    let joined = run("report", &[fixture("kept/get-log.json"), file.clone()]);
    assert!(text(&joined.stdout).contains(&format!("{summary}.")), "{joined:?}");
    for command in ["profiler report", "logs report", "queries --read"] {
        let refused = run(command, std::slice::from_ref(&file));
        assert_eq!(refused.status.code(), Some(1), "{command}: {refused:?}");
        let why = text(&refused.stderr);
        assert!(why.contains("the output of explain") && why.contains("mongosonar report FILE"), "{why}");
    }
    assert_eq!(run("report --csv", &[file]).status.code(), Some(2));
}

#[test]
fn values_of_the_query_are_shown_only_on_request() {
    for (name, value) in [
        ("explain/mongosh-7.0.txt", "Lima"),
        ("explain/mongosh-8.0.txt", "open"),
        ("explain/classic-4.4.json", "paid"),
        ("explain/shell-3.6.txt", "ada"),
    ] {
        let file = fixture(name);
        for (words, is_shown) in [
            ("report", false),
            ("report --json", false),
            ("report --show-values", true),
            ("report --json --show-values", true),
        ] {
            let shown = text(&run(words, std::slice::from_ref(&file)).stdout);
            // In JSON, quotes inside a text have a backslash before them.
            let is_there = shown.replace("\\\"", "\"").contains(&format!("\"{value}\""));
            assert_eq!(is_there, is_shown, "{words} {name}: {shown}");
        }
    }
    // A report of operations has values only with a grouping by what clients chose.
    assert_eq!(run("logs report --show-values", &[fixture("kept/get-log.json")]).status.code(), Some(2));
}

#[test]
fn an_index_that_exists_is_not_proposed() {
    let folder = Folder::new("explain-index");
    let plan = |index: &str| {
        format!(
            r#"{{"queryPlanner":{{"namespace":"a.b","parsedQuery":{{"x":{{"$eq":1}}}},"winningPlan":{{"stage":"COLLSCAN","filter":{{"x":{{"$eq":1}}}}}},"rejectedPlans":[{{"stage":"FETCH","inputStage":{{"stage":"IXSCAN","keyPattern":{{"{index}":1}},"indexName":"i"}}}}]}},"ok":1}}"#
        )
    };
    let shown = |index: &str| {
        let file = folder.file(&format!("{index}.json"), plan(index).as_bytes());
        text(&run("report", &[file]).stdout)
    };
    assert!(shown("y").contains("a.b {x: 1}"));
    assert!(!shown("x").contains("Indexes that may help"));
}

#[test]
fn a_file_that_ends_inside_a_document_says_so() {
    let folder = Folder::new("explain-cut");
    let mut bytes = std::fs::read(fixture("explain/mongosh-7.0.txt")).unwrap();
    let half = bytes[..bytes.len() / 2].to_vec();
    bytes.extend(b"\n");
    bytes.extend(half);
    let cut = run("report", &[folder.file("cut.txt", &bytes)]);
    assert_eq!(cut.status.code(), Some(3), "{cut:?}");
    assert!(text(&cut.stderr).contains("ends inside a document"));
}
