//! What is written for people and for programs, from operations made up here.

use std::sync::Arc;

use crate::synthetic::{app, operation, shape};
use serde_json::{Value, json};
use sonar_core::internals::ServerGlance;
use sonar_core::operation::{ErrorCodes, InFlightOperations};
use sonar_core::time::NS_PER_S;
use sonar_core::time_split::{FileTotal, OTHER, TimePart, WaitTotal, WireOperation};
use sonar_core::window::WindowSettings;
use sonar_core::{
    Application, Class, Coverage, Endpoint, Execution, Identity, Operation, Outcome, Record, Role, ShapeId,
    ShapeInfo, Source, Timestamp, TlsSuite, Window,
};
use sonar_view::kit::{Reason, Zone};
use sonar_view::queries::json::ObjectKind;
use sonar_view::queries::{
    ClassSet, Column, Form, Grouping, NamespaceFilter, PacketOrigin, Selection, ServerState, Sort,
    WindowReport,
};
use sonar_view::queries::{csv, each, json, text};

const START: u64 = 1_777_629_600;

/// Two seconds: 4 finds of 1, 2, 3 and 4 ms by one application, an insert of two documents that
/// failed, a hello, and a query that has been running for five seconds.
fn window(sample: u32) -> Window {
    let start = Timestamp::from_unix(START, 0);
    let mut window =
        Window::new(start, WindowSettings { sample, split_by_order: false, ..WindowSettings::default() });
    let (web, late) = (app("web", "PyMongo", "4.7.3"), Arc::new(Application::joined_late()));
    let find = shape(0xa1, "find", "shop.orders", "{filter: {a: ?number}}", "{filter: {a: ?}}");
    let insert = shape(0xb2, "insert", "shop.carts", "{documents: ?}", "{documents: ?}");
    let hello = shape(0xc3, "hello", "admin", "{hello: ?number}", "{hello: ?}");
    for ms in 1..=4 {
        let end = start.plus_ns(ms * 100_000_000);
        window.record(&Operation { latency_ns: Some(ms * 1_000_000), ..operation(&find, &web, end) });
    }
    let end = start.plus_ns(NS_PER_S);
    window.record(&Operation {
        statement_count: 2,
        docs_returned: None,
        docs_affected: Some(1),
        client: Endpoint::v4([10, 0, 0, 7], 40_000),
        outcome: Outcome::Failed(ErrorCodes { codes: &[(11_000, 1)] }),
        latency_ns: Some(10_000_000),
        ..operation(&insert, &late, end)
    });
    window.record(&Operation { class: Class::Monitoring, ..operation(&hello, &web, end) });
    window.in_flight.push(InFlightOperations {
        server: crate::synthetic::server(),
        role: Role::Served,
        class: Class::User,
        shape: shape(0xd4, "count", "shop.orders", "{query: {b: ?string}}", "{query: {b: ?}}"),
        count: 1,
        oldest_ns: 5 * NS_PER_S,
        oldest: Vec::new(),
    });
    window.end = start.plus_ns(2 * NS_PER_S);
    window.coverage.frames = 40;
    window
}

fn parse(report: &WindowReport<'_>) -> Value {
    let mut out = Vec::new();
    json::report(report, ObjectKind::Interval, &mut out).unwrap();
    assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 1);
    serde_json::from_slice(&out).unwrap()
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn rates_are_what_arithmetic_says() {
    let (window, selection) = (window(1), Selection::default());
    let report = WindowReport::new(&window, &selection);
    let rates = report.totals.rates;
    // Five user operations in two seconds, 1+2+3+4+10 ms of latency.
    assert_eq!((rates.calls, rates.load, rates.errors), (Some(2.5), Some(0.010), Some(0.5)));
    assert_eq!((rates.request_bytes, rates.response_bytes), (Some(300.0), Some(8_500.0)));
    assert_eq!((rates.returned_per_call, rates.affected_per_call), (Some(12.0), Some(1.0)));
    assert_eq!(report.totals.quantiles.max, Some(10_000_000));
    let commands: Vec<_> = report.rows.iter().map(|row| row.command().unwrap()).collect();
    // What hangs is first: it has waited through the whole span.
    assert_eq!(commands, ["count", "find", "insert"]);
    let hanging = &report.rows[0].stats;
    assert_eq!((hanging.figures.calls, hanging.quantiles.p99), (0, None));
    assert_eq!(hanging.in_flight.unwrap().oldest_ns, Some(5 * NS_PER_S));
}

#[test]
fn a_sample_is_scaled_and_marked() {
    let (window, selection) = (window(10), Selection::default());
    let report = WindowReport::new(&window, &selection);
    assert_eq!((report.totals.rates.calls, report.totals.quantiles.max), (Some(25.0), Some(10_000_000)));
    let value = parse(&report);
    assert_eq!((&value["sample"], &value["totals"]["calls"]), (&10.into(), &50.into()));
    assert_eq!(value["totals"]["errors"]["11000"], 10);
    assert_eq!(value["coverage"]["frames"], 40, "what was seen is told as it was");
    let table = text(|out| text::interval(&report, Some(80), out));
    assert!(table.contains("~25 queries per second") && table.contains("~calls/s"), "{table}");
}

#[test]
fn an_interval_that_is_not_whole_is_marked() {
    let (window, selection) = (window(1), Selection::default());
    let mut report = WindowReport::new(&window, &selection);
    let line = |report: &WindowReport<'_>| {
        let shown = text(|out| text::interval(report, None, out));
        shown.lines().next().unwrap().to_owned()
    };
    assert_eq!(parse(&report)["partial"], false);
    assert!(!line(&report).contains("partial"), "{}", line(&report));
    report.is_partial = true;
    assert_eq!(parse(&report)["partial"], true);
    let length = sonar_view::kit::Nanos(report.length_ns).to_string();
    assert!(line(&report).contains(&format!("  (partial: {length})  ")), "{}", line(&report));
}

#[test]
fn json_has_the_documented_fields() {
    let (window, selection) = (window(1), Selection::default());
    let value = parse(&WindowReport::new(&window, &selection));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for name in ["schema", "kind", "start_ns", "end_ns", "sample", "totals", "coverage", "rows"] {
        assert!(keys(&value).iter().any(|key| key == name), "{name}");
    }
    assert_eq!(keys(&value["coverage"]).len(), window.coverage.iter().count());
    let row = &value["rows"][2];
    for name in "shape_id ordered_id ordered_ids command database collection shape role class server calls \
                 statements errors failed unanswered unacknowledged latency_ns transfer_ns request_bytes \
                 response_bytes docs_returned docs_affected tls_operations apps clients in_flight \
                 oldest_in_flight_ns first_seen last_seen"
        .split_whitespace()
    {
        assert!(keys(row).iter().any(|key| key == name), "{name}");
    }
    assert_eq!(row["shape_id"], "00000000000000b2");
    assert_eq!((&row["docs_returned"], &row["docs_affected"]), (&Value::Null, &1.into()));
    assert_eq!(row["errors"], serde_json::json!({"11000": 1}));
    assert_eq!(
        row["apps"],
        serde_json::json!([{"name": null, "driver": null, "driver_version": null, "joined_late": true,
                            "calls": 1, "failed": 1, "latency_ns": 10_000_000}])
    );
    assert_eq!(
        row["clients"],
        serde_json::json!([{"address": "10.0.0.7", "calls": 1, "failed": 1, "latency_ns": 10_000_000}])
    );
    let hanging = &value["rows"][0];
    assert_eq!((&hanging["in_flight"], &hanging["first_seen"]), (&1.into(), &Value::Null));
    assert_eq!(hanging["latency_ns"]["p50"], Value::Null);
}

#[test]
fn json_has_the_state_of_servers_and_null_for_what_they_do_not_report() {
    let (window, selection) = (window(1), Selection::default());
    let mut report = WindowReport::new(&window, &selection);
    assert_eq!(parse(&report)["servers"], serde_json::json!([]));
    let at = Timestamp::from_unix(5, 7);
    let glance = ServerGlance {
        at,
        queued_writes: Some(3),
        cache_dirty_percent: Some(4.5),
        ..ServerGlance::default()
    };
    report.servers = vec![ServerState { program: Some("mongod".to_owned()), port: 27_017, glance }];
    assert_eq!(
        parse(&report)["servers"],
        serde_json::json!([{"program": "mongod", "port": 27_017, "sampled_ns": 5_000_000_007_u64, "connections": null,
                            "queued_reads": null, "queued_writes": 3, "cache_used_percent": null,
                            "cache_dirty_percent": 4.5, "resident_bytes": null, "lag_ms": null}])
    );
}

#[test]
fn groups_have_the_same_figures_under_their_own_key() {
    let window = window(1);
    for (by, key, expected) in [
        (Grouping::Namespace, "namespace", vec!["shop.orders", "shop.carts"]),
        (Grouping::App, "app", vec!["", "web"]),
        (Grouping::Client, "client", vec!["10.0.0.9", "10.0.0.7"]),
    ] {
        let selection = Selection { by, ..Selection::default() };
        let value = parse(&WindowReport::new(&window, &selection));
        let rows = value["rows"].as_array().unwrap();
        let mut names: Vec<_> = rows.iter().map(|row| row[key].as_str().unwrap_or("")).collect();
        let mut expected = expected.clone();
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum::<u64>(), 5, "user alone");
        let in_flight = rows.iter().any(|row| !row["in_flight"].is_null());
        assert_eq!(in_flight, by == Grouping::Namespace, "not known by application and client");
    }
}

#[test]
fn filters_leave_totals_alone() {
    let window = window(1);
    let with = |change: fn(&mut Selection)| {
        let mut selection = Selection::default();
        change(&mut selection);
        let report = WindowReport::new(&window, &selection);
        assert_eq!(report.totals.figures.calls, if selection.classes == ClassSet::ALL { 6 } else { 5 });
        report.rows.iter().map(|row| row.command().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(with(|s| s.text = "A: ?NUM".into()), ["find"]);
    assert_eq!(with(|s| s.text = "00b2".into()), ["insert"]);
    assert_eq!(with(|s| s.namespace = NamespaceFilter::Prefix("shop.o".into())), ["count", "find"]);
    assert_eq!(with(|s| s.namespace = NamespaceFilter::Prefix("sho".into())).len(), 3);
    assert_eq!(with(|s| s.namespace = NamespaceFilter::Exactly("shop.o".into())).len(), 0);
    assert_eq!(with(|s| s.namespace = NamespaceFilter::Exactly("shop.carts".into())), ["insert"]);
    assert_eq!(with(|s| s.classes = ClassSet::ALL).len(), 4);
    assert_eq!(with(|s| s.limit = Some(1)), ["count"]);
    assert_eq!(with(|s| s.sort = Sort { column: Column::P50, reverse: false }), ["insert", "find", "count"]);
    let reversed = with(|s| s.sort = Sort { column: Column::P50, reverse: true });
    assert_eq!(reversed, ["find", "insert", "count"], "what is not known stays last");
    assert_eq!(
        with(|s| s.sort = Sort { column: Column::Command, reverse: true }),
        ["insert", "find", "count"]
    );
}

#[test]
fn totals_beside_filtered_rows_say_that_they_ignore_the_filter() {
    let window = window(1);
    let said = |text: &str| {
        let selection = Selection { text: text.to_owned(), ..Selection::default() };
        self::text(|out| text::summary(&WindowReport::new(&window, &selection), None, out))
    };
    let all = said("");
    assert!(all.contains("  user: 2.50 queries per second") && !all.contains("whatever"), "{all}");
    let filtered = said("nothing has this");
    assert!(filtered.contains("  user, before the filter: 2.50 queries per second"), "{filtered}");
    assert!(filtered.contains("  5 operations, 1 failed, before the filter\n"), "{filtered}");
}

#[test]
fn operations_that_the_log_and_the_wire_name_otherwise_are_in_two_rows_and_it_is_said() {
    let mut window = window(1);
    // The same finds, under the name that the log has.
    let find = shape(0xa1, "find", "shop.orders", "{filter: {a: ?number}}", "{filter: {a: ?}}");
    let end = Timestamp::from_unix(START + 1, 0);
    let billing = app("billing", "", "");
    let logged = operation(&find, &billing, end);
    let execution = Execution::default();
    for _ in 0..3 {
        let record = Record::server(Source::Log, &logged, &execution).read_as(Identity::Exact, 1);
        window.record_server(&record);
    }
    let said = |window: &Window, by| {
        let selection = Selection { by, ..Selection::default() };
        self::text(|out| text::summary(&WindowReport::new(window, &selection), None, out))
    };
    let by_app = said(&window, Grouping::App);
    let sentence = "In two rows: 3 operations, for which the log names another application than the wire\n";
    assert!(by_app.contains(sentence) && by_app.contains("  5 operations"), "{by_app}");
    // One application has no name.
    assert!(
        by_app.contains("joined late: connections that were open before the capture began; "),
        "{by_app}"
    );
    for by in [Grouping::Shape, Grouping::Client] {
        let others = said(&window, by);
        assert!(!others.contains("In two rows") && !others.contains("joined late: "), "{others}");
    }
    // Where nothing was observed, the figures are those of the log.
    window.observed = Some([0; Source::ALL.len()]);
    let unobserved = said(&window, Grouping::App);
    let sentence = ", none of it observed: these operations come from a log\n";
    assert!(unobserved.contains(sentence), "{unobserved}");
    assert!(
        unobserved.contains("joined late: connections that were open before the agent saw them"),
        "{unobserved}"
    );
}

#[test]
fn what_cut_messages_hide_is_neither_a_type_nor_a_success() {
    let start = Timestamp::from_unix(START, 0);
    let mut window = Window::new(start, WindowSettings::default());
    let find = shape(0xa1, "find", "shop.orders", "{filter: {a: ?number}}", "{filter: {a: ?}}");
    let unknown = shape(0xe5, "?", "", "?", "?");
    let web = app("web", "", "");
    window.record(&operation(&find, &web, start.plus_ns(1)));
    for _ in 0..9 {
        let cut = Operation { outcome: Outcome::Unknown, ..operation(&unknown, &web, start) };
        window.record(&cut);
    }
    window.end = start.plus_ns(NS_PER_S);
    window.coverage.messages_snapped = 18;
    let selection = Selection::default();
    let report = WindowReport::new(&window, &selection);
    assert_eq!((report.totals.rates.calls, report.totals.rates.errors), (Some(10.0), None));
    let said = self::text(|out| text::summary(&report, None, out));
    let types = "query 1/s  update 0/s  delete 0/s  getmore 0/s  command 0/s; 9 operations of unknown command; at least, \
                 as messages are cut\n";
    assert!(said.contains(types), "{said}");
}

/// `window`, with an oplog fetch by another server and a ping.
fn window_of_many_classes() -> Window {
    let mut window = window(1);
    let app = app("", "", "");
    let end = Timestamp::from_unix(START + 1, 0);
    let (fetch, ping) =
        (shape(5, "find", "local.oplog.rs", "{}", "{}"), shape(6, "ping", "admin", "{}", "{}"));
    let fetched = operation(&fetch, &app, end);
    window.record(&Operation { class: Class::Replication, role: Role::Issued, ..fetched });
    window.record(&Operation { class: Class::Monitoring, ..operation(&ping, &app, end) });
    window
}

#[test]
fn every_view_says_how_many_operations_it_leaves_out_and_what_shows_them() {
    let window = window_of_many_classes();
    type Change = fn(&mut Selection);
    let cases: [(Change, &[&str]); 5] = [
        // hello and ping; the fetch.
        (
            |_| {},
            &[
                "3 operations: 2 of class monitoring (--class all)",
                "1 sent by other servers, of class replication (--role all --class all)",
            ],
        ),
        (|s| s.classes = ClassSet::ALL, &["1 operation sent by other servers (--role all)"]),
        (|s| (s.classes, s.role) = (ClassSet::ALL, None), &[]),
        (|s| s.text = "insert".into(), &["5 that the filter leaves out (without --filter)"]),
        (|s| s.limit = Some(1), &["5 in further rows (a larger --limit)"]),
    ];
    for (change, expected) in cases {
        let mut selection = Selection { role: Some(Role::Served), ..Selection::default() };
        change(&mut selection);
        let report = WindowReport::new(&window, &selection);
        let summary = text(|out| text::summary(&report, None, out));
        let interval = text(|out| text::interval(&report, None, out));
        for view in [&summary, &interval] {
            expected.iter().for_each(|words| assert!(view.contains(words), "{words}\n{view}"));
            assert_eq!(view.contains("Not shown"), !expected.is_empty(), "{view}");
        }
        let value = parse(&report);
        let hidden = value["hidden"].as_array().unwrap();
        assert_eq!(hidden.is_empty(), expected.is_empty());
        let operations: u64 = hidden.iter().map(|part| part["operations"].as_u64().unwrap()).sum();
        // Nine in all: eight that ended and one in flight.
        let shown: u64 = report
            .rows
            .iter()
            .map(|row| row.stats.figures.calls + row.stats.in_flight.map_or(0, |waiting| waiting.count))
            .sum();
        assert_eq!(shown + operations, 9, "{value}");
        assert!(hidden.iter().all(|part| !part["show_with"].as_str().unwrap().is_empty()));
    }
}

#[test]
fn a_capture_of_monitoring_alone_does_not_say_that_there_are_no_operations() {
    let mut window = Window::new(Timestamp::from_unix(START, 0), WindowSettings::default());
    let (app, hello) = (app("", "", ""), shape(1, "hello", "admin", "{}", "{}"));
    for _ in 0..3 {
        let op = operation(&hello, &app, Timestamp::from_unix(START, 5));
        window.record(&Operation { class: Class::Monitoring, ..op });
    }
    let selection = Selection { role: Some(Role::Served), ..Selection::default() };
    let report = WindowReport::new(&window, &selection).explained(&window.coverage, &PacketOrigin::File);
    assert_eq!(report.silence, None);
    for view in
        [text(|out| text::summary(&report, None, out)), text(|out| text::interval(&report, Some(80), out))]
    {
        let words = view.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("No operations of class user, role served. Not shown: 3 operations of class monitoring (--class all)"),
            "{view}"
        );
    }
}

#[test]
fn why_there_is_nothing_is_said_in_the_table_and_in_json() {
    let mut window = Window::new(Timestamp::from_unix(START, 0), WindowSettings::default());
    window.coverage =
        Coverage { frames: 9, frames_decoded: 9, streams: 2, streams_tls: 2, ..Coverage::default() };
    let selection = Selection::default();
    let report = WindowReport::new(&window, &selection).explained(&window.coverage, &PacketOrigin::File);
    let summary = text(|out| text::summary(&report, Some(80), out));
    assert!(summary.contains("All 2 connections are encrypted with TLS."), "{summary}");
    assert!(
        summary.contains("Coverage: LOST: connections encrypted with TLS: 2 of 2 connections"),
        "{summary}"
    );
    assert!(
        summary.lines().skip(2).all(|line| line.starts_with("      ") || sonar_view::kit::width(line) <= 80)
    );
    let value = parse(&report);
    assert_eq!(value["empty_because"]["reason"], "tls");
    assert!(value["empty_because"]["next"].as_str().unwrap().contains("profiler tail"));
    assert_eq!(
        parse(&WindowReport::new(&window_of_many_classes(), &selection))["empty_because"],
        Value::Null
    );
}

#[test]
fn coverage_stands_below_the_rows_and_is_one_line_when_nothing_was_lost() {
    let mut window = window(1);
    window.coverage = Coverage {
        frames: 40,
        streams: 3,
        streams_joined_late: 2,
        replies_joined_late: 1,
        ..Coverage::default()
    };
    let selection = Selection { classes: ClassSet::ALL, ..Selection::default() };
    let report = WindowReport::new(&window, &selection);
    let summary = text(|out| text::summary(&report, None, out));
    assert_eq!(
        summary.lines().last(),
        Some("Coverage: nothing lost; 2 connections joined late"),
        "{summary}"
    );
    let interval = text(|out| text::interval(&report, None, out));
    let lines: Vec<_> = interval.lines().collect();
    assert!(!lines[0].contains("LOST") && lines[1].contains("calls/s"), "{interval}");
    assert_eq!(lines[lines.len() - 2], "nothing lost; 2 connections joined late");
    window.coverage.kernel_drops = 3;
    let report = WindowReport::new(&window, &selection);
    let summary = text(|out| text::summary(&report, None, out));
    let at = |words: &str| summary.find(words).unwrap_or_else(|| panic!("{words}\n{summary}"));
    assert!(
        at("insert")
            < at(
                "Coverage: LOST: packets that the kernel dropped because the ring was full: 3 of 43 packets"
            )
            && at("Coverage") < at("Packets that the kernel")
    );
}

/// As mongostat: documents of inserts, statements of updates and deletes, the rest once; getMores apart from the
/// find whose shape they have.
#[test]
fn operations_are_counted_by_type_of_command() {
    let mut window = Window::new(
        Timestamp::from_unix(START, 0),
        WindowSettings { sample: 2, split_by_order: false, ..WindowSettings::default() },
    );
    let app = app("", "", "");
    let end = Timestamp::from_unix(START, 5);
    let of = |command: &str| shape(command.len() as u64, command, "shop.orders", command, command);
    let (find, insert, update, delete, count) =
        (of("find"), of("insert"), of("update"), of("delete"), of("count"));
    window.record(&operation(&find, &app, end));
    window.record(&Operation { command: "getMore", ..operation(&find, &app, end) });
    window.record(&Operation { command: "getMore", ..operation(&find, &app, end) });
    window.record(&Operation { docs_matched: Some(7), ..operation(&insert, &app, end) });
    window.record(&Operation { statement_count: 3, ..operation(&update, &app, end) });
    window.record(&operation(&delete, &app, end));
    window.record(&operation(&count, &app, end));
    window.record(&Operation { class: Class::Monitoring, ..operation(&count, &app, end) });
    window.record(&Operation { outcome: Outcome::InFlight, ..operation(&count, &app, end) });
    window.end = window.start.plus_ns(NS_PER_S);
    let selection = Selection::default();
    let report = WindowReport::new(&window, &selection);
    let types =
        serde_json::json!({"insert": 14, "query": 2, "update": 6, "delete": 2, "getmore": 4, "command": 2});
    assert_eq!(parse(&report)["by_type"], types, "scaled up from the sample");
    let summary = text(|out| text::summary(&report, None, out));
    let line = "  insert ~14/s  query ~2/s  update ~6/s  delete ~2/s  getmore ~4/s  command ~2/s";
    assert!(summary.lines().any(|shown| shown == line), "{summary}");
    let mut twice = window.clone();
    twice.merge(&window);
    let report = WindowReport::new(&twice, &selection);
    assert_eq!(parse(&report)["by_type"]["insert"], 28);
}

#[test]
fn one_call_in_a_thousand_is_seen_in_p999_alone() {
    let mut window = Window::new(Timestamp::from_unix(START, 0), WindowSettings::default());
    let (app, find) = (app("", "", ""), shape(1, "find", "d.c", "{}", "{}"));
    for call in 0..1_000u64 {
        let ns = if call < 998 { 1_000_000 } else { 1_000_000_000 };
        window.record(&Operation {
            latency_ns: Some(ns),
            ..operation(&find, &app, Timestamp::from_unix(START, 5))
        });
    }
    let selection = Selection { sort: Sort { column: Column::P999, reverse: false }, ..Selection::default() };
    let report = WindowReport::new(&window, &selection);
    let latency = &parse(&report)["totals"]["latency_ns"];
    // At most one bucket of 2.2 % above the truth.
    let near = |name: &str, ns: f64| (ns..ns * 1.022).contains(&latency[name].as_f64().unwrap());
    assert!(near("p99", 1e6) && near("p999", 1e9), "{latency}");
    assert!(text(|out| text::interval(&report, None, out)).contains("p99.9"));
}

#[test]
fn operations_are_chosen_as_rows_are() {
    let (app, shape) = (app("web", "", ""), shape(0xa1, "find", "shop.orders", "{a: ?number}", "{a: ?}"));
    let op = Operation { command: "getMore", ..operation(&shape, &app, Timestamp::from_unix(START, 5)) };
    let with = |change: fn(&mut Selection)| {
        let mut selection = Selection::default();
        change(&mut selection);
        selection.accepts(&op)
    };
    assert!(with(|_| {}));
    assert!(with(|s| s.text = "GETMORE".into()), "as it was sent");
    assert!(with(|s| s.text = "find".into()), "and as its shape is called");
    assert!(!with(|s| s.text = "update".into()));
    assert!(!with(|s| s.namespace = NamespaceFilter::Exactly("shop.carts".into())));
    assert!(!with(|s| (s.text, s.namespace) = ("getMore".into(), NamespaceFilter::Exactly("shop".into()))));
    assert!(!with(|s| s.role = Some(Role::Issued)));
    assert!(!with(|s| s.classes = [Class::Waiting].into_iter().collect()));
    let selection = Selection { role: Some(Role::Issued), text: "update".into(), ..Selection::default() };
    assert_eq!(selection.refuses(&op), Some(Reason::Role));
    assert_eq!(Selection { role: None, ..selection }.refuses(&op), Some(Reason::Filter));
}

#[test]
fn rows_of_equal_plain_text_are_one() {
    let mut window = Window::new(Timestamp::from_unix(START, 0), WindowSettings::default());
    let web = app("web", "PyMongo", "4.7.3");
    for (id, typed) in [(1, "{filter: {a: ?number}}"), (2, "{filter: {a: ?string}}")] {
        let shape = shape(id, "find", "shop.orders", typed, "{filter: {a: ?}}");
        window.record(&operation(&shape, &web, Timestamp::from_unix(START, 5)));
    }
    for (form, rows) in [(Form::Typed, 2), (Form::Plain, 1)] {
        let selection = Selection { form, ..Selection::default() };
        let report = WindowReport::new(&window, &selection);
        assert_eq!(report.rows.len(), rows);
        let apps = report.rows[0].apps().unwrap();
        assert_eq!((apps.entries.len(), apps.entries[0].1.calls), (1, 3 - rows as u64));
    }
}

#[test]
fn orders_are_rows_of_their_own_only_when_asked() {
    let settings = WindowSettings { sample: 1, split_by_order: true, ..WindowSettings::default() };
    let mut window = Window::new(Timestamp::from_unix(START, 0), settings);
    let (web, one) = (app("web", "", ""), shape(1, "find", "shop.orders", "{}", "{}"));
    for order in [7, 8] {
        let op = operation(&one, &web, Timestamp::from_unix(START, 5));
        window.record(&Operation { ordered_id: ShapeId(order), ..op });
    }
    for (by, rows, ordered_id) in
        [(Grouping::Shape, 1, Value::Null), (Grouping::Order, 2, Value::String("0000000000000007".into()))]
    {
        let selection = Selection { by, ..Selection::default() };
        let value = parse(&WindowReport::new(&window, &selection));
        assert_eq!(value["rows"].as_array().unwrap().len(), rows);
        assert_eq!(value["rows"][0]["ordered_id"], ordered_id);
    }
}

/// A hostile client names itself, a database and a field so that a terminal would obey.
#[test]
fn no_name_from_the_wire_reaches_a_terminal_as_it_is() {
    let evil = "\x1b]0;owned\x07\u{9b}2J\r\n\u{202e}\",x";
    let mut window = Window::new(Timestamp::from_unix(START, 0), WindowSettings::default());
    let app = app(evil, evil, evil);
    let shape = Arc::new(ShapeInfo {
        id: ShapeId(1),
        command: evil.into(),
        database: evil.into(),
        collection: evil.into(),
        typed: evil.into(),
        plain: evil.into(),
        ..ShapeInfo::default()
    });
    let op = Operation { values: Some(evil), ..operation(&shape, &app, Timestamp::from_unix(START, 5)) };
    window.record(&op);
    for by in Grouping::ALL {
        let selection = Selection { by, ..Selection::default() };
        let report = WindowReport::new(&window, &selection);
        let outputs = [
            text(|out| text::interval(&report, Some(100), out)),
            text(|out| text::summary(&report, None, out)),
            text(|out| csv::rows(&report, ObjectKind::Interval, out)),
            text(|out| json::report(&report, ObjectKind::Interval, out)),
            text(|out| each::text(&op, Form::Typed, &Zone::utc(), out)),
            text(|out| each::json(&op, Form::Typed, out)),
        ];
        for output in outputs {
            let unsafe_char =
                output.chars().find(|&c| !matches!(c, '\r' | '\n') && !sonar_view::kit::is_safe(c));
            assert_eq!(unsafe_char, None, "{output:?}");
            assert!(!output.trim_end().trim_end_matches("\r\n").contains("\r"), "{output:?}");
        }
    }
    let value: Value = serde_json::from_str(&text(|out| each::json(&op, Form::Typed, out))).unwrap();
    assert_eq!(value["app"], evil, "JSON gives the name back as it was");
}

#[test]
fn csv_lines_have_as_many_fields_as_the_heading() {
    let window = window(1);
    for by in Grouping::ALL {
        let selection = Selection { by, ..Selection::default() };
        let report = WindowReport::new(&window, &selection);
        let lines = text(|out| {
            csv::heading(by, &mut *out).and_then(|()| csv::rows(&report, ObjectKind::Interval, out))
        });
        let fields = |line: &str| {
            let mut quoted = false;
            1 + line
                .chars()
                .filter(|&c| {
                    (c == '"' && {
                        quoted = !quoted;
                        false
                    }) || (c == ',' && !quoted)
                })
                .count()
        };
        let counts: Vec<_> = lines.lines().map(fields).collect();
        assert!(counts.len() > 1 && counts.iter().all(|&count| count == counts[0]), "{lines}");
    }
    let selection = Selection { text: "insert".into(), ..Selection::default() };
    let report = WindowReport::new(&window, &selection);
    insta::assert_snapshot!("csv", text(|out| csv::rows(&report, ObjectKind::Interval, out)));
}

#[test]
fn a_quote_in_a_csv_field_is_doubled() {
    let mut window = Window::new(Timestamp::from_unix(START, 0), WindowSettings::default());
    let (app, shape) = (app("a \"b\", c", "", ""), shape(1, "find", "d.c", "{}", "{}"));
    window.record(&operation(&shape, &app, Timestamp::from_unix(START, 5)));
    let selection = Selection { by: Grouping::App, ..Selection::default() };
    let line = text(|out| csv::rows(&WindowReport::new(&window, &selection), ObjectKind::Interval, out));
    assert!(line.contains(",\"a \"\"b\"\", c\",,,1,"), "{line}");
}

#[test]
fn each_operation_is_one_line() {
    let (app, shape) =
        (app("web", "PyMongo", "4.7.3"), shape(0xa1, "find", "shop.orders", "{a: ?number}", "{a: ?}"));
    let op = operation(&shape, &app, Timestamp::from_unix(START, 120_345_678));
    assert_eq!(
        text(|out| each::text(&op, Form::Typed, &Zone::utc(), out)),
        "2026-05-01T10:00:00.120345Z 10.0.0.9:51234 shop.orders find 1.20ms in=120 out=3.40k returned=12 ok {a: ?number}\n"
    );
    let failed = Operation {
        latency_ns: None,
        docs_returned: None,
        statement_count: 3,
        outcome: Outcome::Failed(ErrorCodes { codes: &[(11_000, 2), (121, 1)] }),
        values: Some("{a: 5}"),
        ..op
    };
    assert_eq!(
        text(|out| each::text(&failed, Form::Plain, &Zone::utc(), out)),
        "2026-05-01T10:00:00.120345Z 10.0.0.9:51234 shop.orders find - in=120 out=3.40k statements=3 \
         failed=11000x2,121 {a: ?} values={a: 5}\n"
    );
    let value: Value = serde_json::from_str(&text(|out| each::json(&failed, Form::Typed, out))).unwrap();
    assert_eq!(value["request_id"], 4_294_967_295_u64, "unsigned");
    assert_eq!(value["errors"], serde_json::json!({"11000": 2, "121": 1}));
    assert_eq!((&value["cursor_id"], &value["values"]), (&Value::Null, &"{a: 5}".into()));
    let plain: Value = serde_json::from_str(&text(|out| each::json(&op, Form::Typed, out))).unwrap();
    assert!(plain.get("values").is_none(), "values are never there unless asked for");
    insta::assert_snapshot!("each_json", text(|out| each::json(&op, Form::Typed, out)));
}

#[test]
fn tables_keep_their_width() {
    let mut workload = crate::synthetic::Workload::new();
    let mut window = workload.window(0);
    window.coverage.kernel_drops = 27;
    for (by, width) in [
        (Grouping::Shape, 80),
        (Grouping::Shape, 160),
        (Grouping::Namespace, 100),
        (Grouping::App, 100),
        (Grouping::Client, 80),
    ] {
        let selection = Selection { by, ..Selection::default() };
        let report = WindowReport::new(&window, &selection);
        let out = text(|out| text::interval(&report, Some(width), out));
        // The line of totals is as long as it is.
        let rows = out.lines().skip(1);
        assert!(rows.clone().all(|line| sonar_view::kit::width(line) <= width), "{out}");
        insta::assert_snapshot!(format!("table_{}_{width}", by.name()), out);
    }
    let selection = Selection::default();
    let report = WindowReport::new(&window, &selection);
    insta::assert_snapshot!("summary", text(|out| text::summary(&report, None, out)));
    for width in 0..40 {
        text(|out| text::interval(&report, Some(width), out));
    }
}

#[test]
fn every_grouping_adds_up_to_the_totals() {
    let window = crate::synthetic::Workload::new().window(0);
    for by in Grouping::ALL {
        for (form, classes) in
            [(Form::Typed, ClassSet::USER), (Form::Plain, ClassSet::ALL), (Form::Typed, ClassSet::ALL)]
        {
            let selection = Selection { by, form, classes, ..Selection::default() };
            let report = WindowReport::new(&window, &selection);
            let sums = report.rows.iter().map(|row| &row.stats.figures).fold([0; 4], |sums, figures| {
                let more = [
                    figures.calls,
                    figures.error_count(),
                    figures.response_bytes.total,
                    figures.latency.count(),
                ];
                std::array::from_fn(|at| sums[at] + more[at])
            });
            let totals = &report.totals.figures;
            let expected =
                [totals.calls, totals.error_count(), totals.response_bytes.total, totals.latency.count()];
            assert_eq!(sums, expected, "{by:?} {form:?}");
            assert!(totals.calls > 1_000);
        }
    }
}

#[test]
fn a_row_tells_which_share_of_its_operations_was_encrypted_and_no_column_does_where_none_was() {
    let mut window = window(2);
    let selection = Selection::default();
    let plain = text(|out| text::interval(&WindowReport::new(&window, &selection), Some(120), out));
    assert!(!plain.contains("tls"), "{plain}");
    let web = app("web", "PyMongo", "4.7.3");
    let find = shape(0xa1, "find", "shop.orders", "{filter: {a: ?number}}", "{filter: {a: ?}}");
    let delete = shape(0xe5, "delete", "shop.carts", "{deletes: ?}", "{deletes: ?}");
    for shape in [&find, &delete] {
        window.record(&Operation {
            tls: Some(TlsSuite::of_server_hello(0x0303, 0x1302)),
            ..operation(shape, &web, window.start)
        });
    }
    let sort = Sort { column: Column::Tls, reverse: false };
    let selection = Selection { sort, ..Selection::default() };
    let report = WindowReport::new(&window, &selection);
    let cells: Vec<_> =
        report.rows.iter().map(|row| (row.command().unwrap(), Column::Tls.cell(row, &report))).collect();
    let expected = [("delete", "100 %"), ("find", "20 %"), ("insert", "-"), ("count", "-")];
    assert_eq!(cells, expected.map(|(command, cell)| (command, cell.to_owned())));
    let value = parse(&report);
    let counts: Vec<_> = (0..4).map(|at| value["rows"][at]["tls_operations"].clone()).collect();
    assert_eq!(counts, [json!(2), json!(2), json!(0), Value::Null], "scaled; nothing ended of the last");
    assert_eq!(value["totals"]["tls_operations"], 4);
    assert_eq!(value["totals"]["tls_suites"], json!({"TLSv1.3 TLS_AES_256_GCM_SHA384": 4}));
    assert_eq!(value["rows"][2]["tls_suites"], json!({}));
    let table = text(|out| text::interval(&report, Some(120), out));
    assert!(table.contains(" tls ") && table.contains("100 %"), "{table}");
    let lines = text(|out| {
        csv::heading(selection.by, &mut *out)?;
        csv::rows(&report, ObjectKind::Interval, out)
    });
    let rows: Vec<Vec<_>> = lines.lines().map(|line| line.split(',').collect()).collect();
    // From the end: a shape may hold commas.
    let at = rows[0].iter().rev().position(|field| *field == "tls_operations").unwrap();
    let counts: Vec<_> = rows[1..].iter().map(|row| row[row.len() - 1 - at]).collect();
    assert_eq!(counts, ["2", "2", "0", ""]);
}

#[test]
fn a_row_tells_where_its_time_went_and_a_split_alone_makes_none() {
    let mut window = window(1);
    let web = app("web", "PyMongo", "4.7.3");
    let find = shape(0xa1, "find", "shop.orders", "{filter: {a: ?number}}", "{filter: {a: ?}}");
    let late = shape(0xe5, "delete", "shop.carts", "{deletes: ?}", "{deletes: ?}");
    for shape in [&find, &late] {
        let op = WireOperation::from(&operation(shape, &web, window.start));
        let (split, _) = window.shapes.split_of(&op).unwrap();
        (split.operations, split.unread_ns, split.duration_ns) = (4, 1_000_000, 9_000_000);
        split.split[TimePart::Cpu] = 2_000_000;
        split.split[TimePart::Read] = 6_000_000;
        let waits = WaitTotal { waits: 3, wait_ns: 5_000_000 };
        split.add_wait(TimePart::Read, &"cold read".into(), waits);
        split.add_wait(TimePart::Read, &OTHER.into(), waits);
        split.add_file(&"shop.orders".into(), FileTotal { reads: 3, bytes: 12_288, wait_ns: 5_000_000 });
    }
    let sort = Sort { column: Column::Wait, reverse: false };
    let selection = Selection { has_splits: true, sort, ..Selection::default() };
    let report = WindowReport::new(&window, &selection);
    let commands: Vec<_> = report.rows.iter().map(|row| row.command().unwrap()).collect();
    assert_eq!(commands, ["find", "insert", "count"], "nothing ended of the one that has a split alone");
    // Four operations in two seconds, each with 2 ms on no processor.
    assert_eq!(report.rows[0].waited(), Some(0.004));
    let value = parse(&report);
    let part = |part: &str, ns: u64, share: f64| json!({ "part": part, "ns": ns, "share": share });
    let split = json!({
        "operations": 4,
        "total_ns": 10_000_000,
        "parts": [
            part("file_read", 6_000_000, 0.6),
            part("cpu", 2_000_000, 0.2),
            part("not_yet_read", 1_000_000, 0.1),
            part("unexplained", 1_000_000, 0.1),
        ],
        "waits": [
            { "part": "file_read", "class": null, "waits": 3, "wait_ns": 5_000_000 },
            { "part": "file_read", "class": "cold read", "waits": 3, "wait_ns": 5_000_000 },
        ],
        "files": [{ "name": "shop.orders", "reads": 3, "bytes": 12_288, "wait_ns": 5_000_000 }],
        "device_bytes": 0,
    });
    assert_eq!(value["rows"][0]["split"], split);
    assert_eq!(value["rows"][1]["split"], Value::Null);
    let table = text(|out| text::interval(&report, Some(80), out));
    assert!(table.contains("CCDDDDDDOO") && table.contains("wait"), "{table}");
}
