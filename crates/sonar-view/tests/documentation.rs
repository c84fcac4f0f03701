//! `docs/queries.md` names everything that is shown.
#![allow(missing_docs, clippy::unwrap_used)]

use sonar_core::Coverage;
use sonar_core::window::WindowSettings;
use sonar_core::{Timestamp, Window};
use sonar_view::json::Kind;
use sonar_view::live::KEYS;
use sonar_view::{By, Report, Selection, csv, json, table};

const PAGE: &str = include_str!("../../../docs/queries.md");

/// Fails unless a line of a table begins with these cells.
fn needs_line(cells: &str) {
    assert!(PAGE.lines().any(|line| line.starts_with(cells)), "docs/queries.md lacks the line\n{cells}");
}

#[test]
fn every_coverage_counter_is_documented_as_it_documents_itself() {
    for (name, meaning, _) in Coverage::default().iter() {
        needs_line(&format!("| `{name}` | {meaning} |"));
    }
}

#[test]
fn every_counter_of_logs_and_profiles_is_documented_as_it_documents_itself() {
    const LOGS: &str = include_str!("../../../docs/logs.md");
    for (name, meaning, _) in sonar_core::Reading::default().iter() {
        assert!(LOGS.contains(&format!("\n| `{name}` | {meaning} |\n")), "docs/logs.md lacks {name}");
    }
    for by in sonar_view::digest::By::ALL {
        assert!(LOGS.contains(by.name()), "docs/logs.md lacks --sort {}", by.name());
    }
}

#[test]
fn every_column_and_key_is_documented() {
    for (name, title, meaning) in table::legend() {
        needs_line(&format!("| {title} | `{name}` | {meaning} |"));
    }
    for (key, meaning) in KEYS {
        needs_line(&format!("| {key} | {meaning} |"));
    }
}

#[test]
fn every_field_is_documented() {
    let window = Window::new(Timestamp::from_unix(5, 0), WindowSettings::default());
    let selection = Selection::default();
    let (mut object, mut heading) = (Vec::new(), Vec::new());
    json::report(&Report::new(&window, &selection), Kind::Interval, &mut object).unwrap();
    let object: serde_json::Value = serde_json::from_slice(&object).unwrap();
    let names = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for name in names(&object).into_iter().chain(names(&object["totals"])) {
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
    }
    csv::heading(By::Shape, &mut heading).unwrap();
    for name in String::from_utf8(heading).unwrap().trim_end().split(',') {
        assert!(PAGE.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name), "{name}");
    }
}
