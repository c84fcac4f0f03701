//! `docs/queries.md` and `docs/disk.md` name everything that is shown.

use sonar_core::Coverage;
use sonar_core::window::WindowSettings;
use sonar_core::{Timestamp, Window};
use sonar_view::queries::json::ObjectKind;
use sonar_view::queries::live::KEYS;
use sonar_view::queries::{Grouping, Selection, WindowReport};
use sonar_view::queries::{csv, json, text};

const PAGE: &str = include_str!("../../../../docs/queries.md");

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
    const LOGS: &str = include_str!("../../../../docs/logs.md");
    for (name, meaning, _) in sonar_core::Reading::default().iter() {
        assert!(LOGS.contains(&format!("\n| `{name}` | {meaning} |\n")), "docs/logs.md lacks {name}");
    }
    for (name, _) in sonar_core::Figures::default().sums() {
        assert!(LOGS.contains(&format!("\n| `{name}` | ")), "docs/logs.md lacks the figure {name}");
    }
    for name in sonar_view::digest::RowOrder::names() {
        assert!(LOGS.contains(name), "docs/logs.md lacks --sort {name}");
    }
}

#[test]
fn every_column_and_key_is_documented() {
    for (name, title, meaning) in text::legend() {
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
    json::report(&WindowReport::new(&window, &selection), ObjectKind::Interval, &mut object).unwrap();
    let object: serde_json::Value = serde_json::from_slice(&object).unwrap();
    let names = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for name in names(&object).into_iter().chain(names(&object["totals"])) {
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
    }
    csv::heading(Grouping::Shape, &mut heading).unwrap();
    for name in String::from_utf8(heading).unwrap().trim_end().split(',') {
        assert!(PAGE.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name), "{name}");
    }
}

const DISK: &str = include_str!("../../../../docs/disk.md");

/// Names of all members of a document, its inner ones too.
fn members(value: &serde_json::Value, names: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (name, value) in map {
                names.push(name.clone());
                members(value, names);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| members(value, names)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_disk_run_is_documented() {
    use sonar_view::disk::run::{BenchReport, BenchVerdict, ProbeResult, RequestsJson, StepJson};
    let kind = || Some(RequestsJson::default());
    let step = StepJson { reads: kind(), writes: kind(), flushes: kind(), ..StepJson::default() };
    let run = BenchReport {
        kind: "disk_bench".into(),
        probes: vec![ProbeResult::default()],
        steps: vec![step],
        verdict: Some(BenchVerdict::default()),
        ..BenchReport::default()
    };
    let mut names = Vec::new();
    members(&serde_json::to_value(&run).unwrap(), &mut names);
    assert!(names.len() > 60, "{}", names.len());
    for name in names {
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        assert!(
            DISK.split(|c| !is_word(c)).any(|word| word.trim_matches('.') == name),
            "docs/disk.md lacks {name}"
        );
    }
    let mut columns = Vec::new();
    members(&serde_json::to_value(sonar_view::disk::run::DeviceRates::default()).unwrap(), &mut columns);
    for name in columns.into_iter().filter(|name| name != "device") {
        assert!(DISK.contains(&format!("`{name}`")), "docs/disk.md lacks the column {name}");
    }
    // A document that was written is read back as it was.
    let mut bytes = Vec::new();
    run.json(&mut bytes).unwrap();
    assert_eq!(BenchReport::read(&bytes).unwrap(), run);
    assert!(BenchReport::read(b"{}").is_err() && BenchReport::read(b"[").is_err());
    let newer = String::from_utf8(bytes).unwrap().replacen("\"schema\":0", "\"schema\":99", 1);
    assert!(BenchReport::read(newer.as_bytes()).unwrap_err().contains("newer"));
}

#[test]
fn every_check_is_documented() {
    use sonar_core::disk::check::{Disk, DiskArray, FileSystem, MachineFacts, findings};
    let facts = MachineFacts {
        has_mongod: true,
        kernel: Some("6.1".into()),
        version: Some((8, 0)),
        file_system: Some(FileSystem { kind: "nfs4".into(), space: Some((2, 1)), ..FileSystem::default() }),
        readahead: Some(("sda".into(), 128)),
        arrays: vec![DiskArray { degraded: 1, action: Some("resync".into()), ..DiskArray::default() }],
        disks: vec![Disk {
            rotational: Some(true),
            scheduler: Some(("none".into(), Vec::new())),
            ..Disk::default()
        }],
        huge_pages: Some("always".into()),
        huge_pages_defrag: Some("always".into()),
        max_ptes_none: Some(511),
        swappiness: Some(60),
        numa_nodes: Some(2),
        zone_reclaim: Some(1),
        max_map_count: Some(1),
        limits: vec![("Max open files".into(), Some(1))],
        ..MachineFacts::default()
    };
    let all = findings(&facts);
    assert!(all.len() >= 16, "{}", all.len());
    for finding in all {
        assert!(DISK.contains(&format!("`{}`", finding.name)), "docs/disk.md lacks {}", finding.name);
    }
}
