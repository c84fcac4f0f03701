//! What is new or slower than a baseline, as a person and as a program sees it.

use std::sync::Arc;

use crate::synthetic::Workload;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::Value;
use sonar_core::time_split::TimePart;
use sonar_core::{Baseline, Digest, Histogram, Identity, Row, ShapeId, Source, Subject, Window};
use sonar_view::queries::json::ObjectKind;
use sonar_view::queries::live::{App, LiveSettings};
use sonar_view::queries::{Column, Grouping, Selection, Sort, WindowReport};
use sonar_view::queries::{csv, json};

fn windows() -> Vec<Window> {
    let mut workload = Workload::new();
    (0..12).map(|second| workload.window(second)).collect()
}

fn together(windows: &[Window]) -> Window {
    let mut all = windows[0].clone();
    windows[1..].iter().for_each(|window| all.merge(window));
    all
}

/// As it was, but that `customers` were found four times as quickly, and nothing was aggregated.
fn baseline(all: &Window) -> Arc<Baseline> {
    let mut digest = Digest::default();
    for row in all.shapes.iter() {
        if &*row.shape().command == "aggregate" {
            continue;
        }
        let latency = match &*row.shape().collection {
            "customers" => {
                let mut quick = Histogram::new();
                for (index, count) in row.figures().latency.buckets() {
                    quick.record_many(sonar_core::histogram::upper_bound_ns(index) / 4, count);
                }
                quick
            }
            _ => row.figures().latency.clone(),
        };
        let (identity, shape, order) = (Identity::Exact, row.shape().clone(), ShapeId(0));
        let mut before = Row::new(Subject::Shape { identity, shape, order }, row.class);
        let figures = &mut before.observed_by_mut(Source::Wire).figures;
        (figures.calls, figures.entries) = (latency.count(), latency.count());
        figures.latency = latency;
        digest.restore(&before);
    }
    Arc::new(Baseline::new(&digest, true, true))
}

fn selection(all: &Window) -> Selection {
    Selection { baseline: Some(baseline(all)), ..Selection::default() }
}

#[test]
fn the_live_view_marks_what_is_new_and_slower() {
    let windows = windows();
    let selection = selection(&together(&windows));
    let mut app = App::new(LiveSettings {
        selection,
        source: "eth0, port 27017".to_string(),
        ..LiveSettings::default()
    });
    windows.into_iter().for_each(|window| app.window(window));
    let screen = |app: &mut App, columns| {
        let mut terminal = Terminal::new(TestBackend::new(columns, 24)).unwrap();
        terminal.draw(|frame| app.draw(frame)).unwrap();
        terminal.backend().to_string()
    };
    insta::assert_snapshot!("since", screen(&mut app, 140));
    let narrow = screen(&mut app, 80);
    assert!(narrow.contains("since") && narrow.contains("slower ×4"), "{narrow}");
    // The row that hangs or is slower opens with its quantiles of then.
    app.key(KeyEvent::new(KeyCode::Char('/'), KeyModifiers::NONE));
    "customers".chars().for_each(|c| {
        app.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    });
    for key in [KeyCode::Enter, KeyCode::Enter] {
        screen(&mut app, 140);
        app.key(KeyEvent::new(key, KeyModifiers::NONE));
    }
    let opened = screen(&mut app, 140);
    assert!(opened.contains("since the baseline slower") && opened.contains("p50 then"), "{opened}");
}

#[test]
fn programs_are_told_the_same() {
    let all = together(&windows());
    let selection = Selection { sort: Sort { column: Column::Since, reverse: false }, ..selection(&all) };
    let report = WindowReport::new(&all, &selection);
    let mut out = Vec::new();
    json::report(&report, ObjectKind::Summary, &mut out).unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    let rows = value["rows"].as_array().unwrap();
    let since = |row: &Value| row["baseline"]["since"].as_str().map(str::to_owned);
    for row in rows {
        let expected = match (row["command"].as_str().unwrap(), row["collection"].as_str()) {
            ("aggregate", _) => "new",
            (_, Some("customers")) => "slower",
            _ => "same",
        };
        let told = since(row);
        // A handful of calls is not judged.
        let few = row["latency_ns"]["count"].as_u64().unwrap() < Baseline::MIN_CALLS && expected != "new";
        assert_eq!(told.as_deref(), Some(if few { "known" } else { expected }), "{row}");
    }
    assert_eq!(since(&rows[0]).as_deref(), Some("new"), "what is new comes first");
    let slower = rows.iter().find(|row| since(row).as_deref() == Some("slower")).unwrap();
    let (then, now) = (&slower["baseline"]["p50_ns"], &slower["latency_ns"]["p50"]);
    let factor = now.as_f64().unwrap() / then.as_f64().unwrap();
    assert!((3.8..4.2).contains(&factor) && slower["baseline"]["effect"].as_f64().unwrap() > 0.5, "{slower}");
    // A program can add histograms up, and shares of the time make a whole.
    let buckets = slower["latency_ns"]["buckets"].as_array().unwrap();
    let sum: u64 = buckets.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
    assert_eq!(sum + slower["latency_ns"]["zero"].as_u64().unwrap(), slower["latency_ns"]["count"]);
    let shares: f64 = rows.iter().map(|row| row["time_share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let mut lines = Vec::new();
    csv::rows(&report, ObjectKind::Summary, &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    for (line, row) in lines.lines().zip(rows) {
        // Behind it are the fields of the split and the count of encrypted operations.
        assert_eq!(line.rsplit(',').nth(TimePart::ALL.len() + 4), since(row).as_deref());
    }
}

#[test]
fn namespaces_are_told_too_and_applications_are_not() {
    let all = together(&windows());
    let by_namespace = Selection { by: Grouping::Namespace, ..selection(&all) };
    let report = WindowReport::new(&all, &by_namespace);
    let customers = report.rows.iter().find(|row| row.namespace().unwrap() == "shop.customers").unwrap();
    assert_eq!(customers.against.unwrap().status.name(), "slower");
    for by in [Grouping::App, Grouping::Client] {
        let selection = Selection { by, ..selection(&all) };
        assert!(WindowReport::new(&all, &selection).rows.iter().all(|row| row.against.is_none()));
    }
}
