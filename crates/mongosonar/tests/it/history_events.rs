//! All views of the history have one list of events.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::history::json;

/// The events of changes and of what they caused, each with its time and kind, and its sentence if it stands alone. A new
/// application is a change of its own.
fn events_of(report: &Value) -> BTreeMap<(u64, String), Option<String>> {
    let mut found = BTreeMap::new();
    let moments = report["moments"].as_array().unwrap().iter();
    let mut changes: Vec<&Value> = moments.flat_map(|moment| moment["changes"].as_array().unwrap()).collect();
    while let Some(change) = changes.pop() {
        changes.extend(change["effects"].as_array().unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        if change["kind"] == "application" {
            found.insert((0, text(&change["figures"]["name"])), None);
        } else if change["kind"] == "event" {
            let events = change["figures"].as_array().unwrap();
            let sentence = (events.len() == 1).then(|| text(&change["sentence"]));
            found.extend(
                events.iter().map(|event| {
                    ((event["time_ns"].as_u64().unwrap(), text(&event["kind"])), sentence.clone())
                }),
            );
        }
    }
    found
}

#[test]
fn the_timeline_the_report_and_the_changes_have_one_list_of_events() {
    let span = ["--from", "2026-11-21T21:23:40", "--to", "21:27:20"];
    let [timeline, changes, report] =
        ["timeline", "what-changed", "report"].map(|command| json(&[&[command][..], &span].concat()));
    assert_eq!(report["timeline"]["events"], timeline["events"]);
    let told = events_of(&changes);
    assert_eq!(events_of(&report["changes"]), told);
    assert_eq!((&timeline["events_left_out"], told.len()), (&0.into(), 14), "the timeline leaves none out");
    let mut shown = BTreeSet::new();
    for event in timeline["events"].as_array().unwrap() {
        let sentence = event["sentence"].as_str().unwrap();
        let key = (event["time_ns"].as_u64().unwrap(), event["kind"].as_str().unwrap().to_owned());
        let of_application = sentence
            .strip_prefix("a new application connected: ")
            .and_then(|rest| rest.split(':').next())
            .map(|name| (0, name.to_owned()));
        let key = of_application.filter(|key| told.contains_key(key)).unwrap_or(key);
        let said = told.get(&key).unwrap_or_else(|| panic!("{sentence} is no change: {told:#?}"));
        assert!(said.as_ref().is_none_or(|said| said == sentence), "{said:?} {sentence}");
        shown.insert(key);
    }
    assert!(told.keys().all(|key| shown.contains(key)), "{told:#?}");
}
