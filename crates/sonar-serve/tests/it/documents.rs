//! The documents of the API.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use sonar_core::Role;
use sonar_core::history::Span;
use sonar_serve::PageLimits;
use sonar_view::agent::AgentStatus;
use sonar_view::kit::Zone;
use sonar_view::kit::json::line;
use sonar_view::now::ListedOperations;
use sonar_view::past::what_changed::{self, AskedChanges, AskedTime};
use sonar_view::past::{HistoryView, PastIncident, timeline};
use sonar_view::queries::Selection;

use crate::support::{TestHistory, TestPage, at, get};

#[test]
fn documents_are_those_that_commands_write() {
    let (history, page) = (TestHistory::hour(), TestPage::of_an_hour());
    let view = HistoryView::new(&history.stored, "memory", at(3_600)).unwrap();
    let zone = Zone::named("Europe/Berlin").unwrap();
    let span = Span { from: at(600), to: at(3_000) };
    let query = "from=2023-11-14T22:10:00Z&to=2023-11-14T22:50:00Z&zone=Europe/Berlin";
    let mut expected = Vec::new();
    line(&timeline::report(&view, span, timeline::PARTS, &zone).unwrap(), &mut expected).unwrap();
    let answer = page.read(&format!("/api/v1/timeline?{query}"));
    assert_eq!((answer.status, answer.text.as_bytes()), (StatusCode::OK, &*expected));
    assert_eq!(answer.headers[CONTENT_TYPE], "application/json");
    expected.clear();
    let asked = AskedChanges { when: AskedTime::Span(span), against: None };
    let report = what_changed::report(&view, &asked, &zone).unwrap();
    assert!(report.has_changes(), "queries take longer from half past on");
    line(&report, &mut expected).unwrap();
    assert_eq!(page.read(&format!("/api/v1/what-changed?{query}")).text.as_bytes(), &*expected);
    expected.clear();
    let selection = Selection { role: Some(Role::Served), zone, ..Selection::default() };
    line(&PastIncident::of(&view, span, &selection).unwrap().report, &mut expected).unwrap();
    assert_eq!(page.read(&format!("/api/v1/incident?{query}")).text.as_bytes(), &*expected);
}

#[test]
fn queries_are_answered_as_a_whole_and_by_interval() {
    let page = TestPage::of_an_hour();
    let whole = page.read("/api/v1/queries?from=-30m").json();
    assert_eq!((&whole["kind"], &whole["rows_total"]), (&"summary".into(), &1.into()));
    assert_eq!(whole["totals"]["calls"], 180 * 50);
    let answer = page.read("/api/v1/queries/intervals?from=-30m&width=600&by=namespace");
    assert_eq!(answer.headers[CONTENT_TYPE], "application/x-ndjson");
    let intervals: Vec<serde_json::Value> =
        answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(intervals.len(), 3);
    for interval in intervals {
        assert_eq!((&interval["kind"], &interval["by"]), (&"interval".into(), &"namespace".into()));
        assert_eq!(interval["totals"]["calls"], 60 * 50);
    }
    assert_eq!(page.read("/api/v1/queries?filter=customers").json()["rows_total"], 0);
    let one = page.read("/api/v1/queries?port=27017").json();
    assert!(one["notes"].to_string().contains("only the server at port 27017"), "{}", one["notes"]);
}

#[test]
fn the_status_says_what_is_stored_and_what_the_agent_does() {
    let agent = Some(AgentStatus { windows: 7, ..AgentStatus::default() });
    let page = TestPage::new(TestHistory { agent, ..TestHistory::hour() }, PageLimits::default());
    assert_eq!(page.read("/nothing").status, StatusCode::NOT_FOUND);
    let status = page.read("/api/v1/status").json();
    assert_eq!(status["kind"], "page_status");
    assert_eq!(
        (status["start_ns"].as_u64(), status["end_ns"].as_u64()),
        (Some(at(0).unix_ns()), Some(at(3_600).unix_ns()))
    );
    assert_eq!(status["agent"]["windows"], 7);
    assert_eq!((&status["refused"]["address"], &status["refused"]["host"]), (&1.into(), &0.into()));
    let empty = TestPage::new(TestHistory::default(), PageLimits::default());
    let status = empty.read("/api/v1/status").json();
    assert!(status["start_ns"].is_null() && status["agent"].is_null());
    let queries = empty.read("/api/v1/queries");
    assert_eq!(
        (queries.status, &queries.json()["reason"]),
        (StatusCode::NOT_FOUND, &"nothing_stored".into())
    );
}

#[test]
fn what_runs_now_is_as_the_agent_listed_it() {
    let page = TestPage::new(TestHistory::running(), PageLimits::default());
    let now = page.read("/api/v1/now").json();
    assert_eq!((&now["kind"], &now["problem"]), (&"now".into(), &serde_json::Value::Null));
    let one = &now["listed"]["operations"][0];
    assert_eq!((&one["command"], &one["namespace"]), (&"find".into(), &"shop.orders".into()));
    assert_eq!((one["running_ns"].as_u64(), &one["app"]), (Some(10_000_000_000), &"api".into()));
    let lacks: Vec<_> = now["sources"].as_array().unwrap().iter().map(|one| one["lacks"].is_null()).collect();
    assert_eq!(lacks, [true, false, false], "only queries works");
    // An agent that has not answered yet; a history without an agent.
    let answer = |listed| {
        let page = TestPage::new(TestHistory { listed, ..TestHistory::running() }, PageLimits::default());
        page.read("/api/v1/now").json()
    };
    let not_yet = answer(ListedOperations::NotYet);
    assert!(not_yet["listed"].is_null() && not_yet["problem"].is_null());
    assert_eq!(not_yet["sources"].as_array().map(Vec::len), Some(3));
    let without = TestPage::of_an_hour().read("/api/v1/now").json();
    assert!(without["problem"].as_str().unwrap().contains("running agent"), "{without}");
}

#[test]
fn a_shape_has_its_latencies_over_time() {
    let page = TestPage::of_an_hour();
    let queries = page.read("/api/v1/queries").json();
    let row = &queries["rows"][0];
    let id = row["shape_id"].as_str().unwrap();
    let shape = page.read(&format!("/api/v1/shape?id={id}")).json();
    assert_eq!((&shape["kind"], &shape["shape_id"]), (&"shape".into(), &row["shape_id"]));
    assert_eq!((&shape["namespace"], &shape["source"]), (&"shop.orders".into(), &"wire".into()));
    let parts = shape["parts"].as_array().unwrap();
    let bounds: Vec<u64> =
        shape["bounds_ns"].as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).collect();
    assert!(bounds.is_sorted());
    let sum = |field: &str| parts.iter().map(|part| part[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("calls"), sum("failed")), (row["calls"].as_u64().unwrap(), 0));
    assert_eq!((&shape["calls"], &shape["failed"]), (&row["calls"], &0.into()));
    for (at, part) in parts.iter().enumerate() {
        let cells: Vec<(usize, u64)> = part["latencies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cell| (cell[0].as_u64().unwrap() as usize, cell[1].as_u64().unwrap()))
            .collect();
        let counted: u64 = cells.iter().map(|(_, count)| count).sum();
        assert_eq!(Some(counted), part["calls"].as_u64());
        // It takes 3 ms in the first half and 40 ms in the second.
        let (low, high) =
            if 2 * at < parts.len() { (3_000_000, 4_500_000) } else { (40_000_000, 55_000_000) };
        assert!(cells.iter().all(|(row, _)| (low..high).contains(&bounds[*row])), "{at}: {part}");
        let p50 = part["p50"].as_u64().unwrap();
        assert!(
            p50 >= low && part["p95"].as_u64() >= Some(p50) && part["p99"].as_u64() <= part["max"].as_u64()
        );
    }
    let unknown = page.read("/api/v1/shape?id=1f");
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(unknown.text.contains("no operation of the shape 000000000000001f"), "{}", unknown.text);
}

#[test]
fn waits_storage_series_and_events_have_the_span_and_take_their_filters() {
    let page = TestPage::of_an_hour();
    for (path, kind, list) in [
        ("waits", "waits", "lanes"),
        ("storage", "storage", "devices"),
        ("series?subject=machine&filter=processor&limit=5", "all_series", "series"),
        ("events?kind=index_build_end&filter=orders&limit=5", "events", "events"),
    ] {
        let document = page.read(&format!("/api/v1/{path}")).json();
        assert_eq!(document["kind"], kind);
        assert_eq!(document["about"]["end_ns"].as_u64(), Some(at(3_600).unix_ns()), "{kind}");
        assert!(document[list].is_array(), "{kind}");
    }
}

#[test]
fn storage_has_the_disks_with_their_tests_and_the_files() {
    let history = TestHistory::storing();
    let page = TestPage::new(history, PageLimits::default());
    let storage = page.read("/api/v1/storage?from=-20s").json();
    let disk = &storage["devices"][0];
    assert_eq!((&disk["name"], &disk["figures"]["disk.busy_percent"]["mean"]), (&"vda".into(), &30.0.into()));
    assert_eq!((&disk["test"]["file"], &storage["notes"][0]), (&"disk-bench.json".into(), &"broken".into()));
    let file = &storage["files"][0];
    assert_eq!((&file["name"], &file["role"]), (&"/data/index-1-2.wt".into(), &"index".into()));
    assert_eq!((&file["usage"]["reads_per_second"], &file["server"]), (&7.0.into(), &27_017.into()));
    let lane = &storage["roles"][0];
    assert_eq!((&lane["role"], lane["values"].as_array().map(Vec::len)), (&"index".into(), Some(2)));
    let without = page.read("/api/v1/storage?from=-20s&port=27017").json();
    assert_eq!(without["devices"][0]["name"], "vda", "the machine is of all servers");
}

#[test]
fn some_operations_are_compared_with_the_rest() {
    let page = TestPage::of_an_hour();
    let ask = |query: &str| page.read(&format!("/api/v1/different?{query}")).json();
    let slow = ask("low=10000000&high=1000000000&zone=UTC");
    assert_eq!((&slow["kind"], &slow["source"]), (&"different".into(), &"wire".into()));
    assert_eq!((slow["these"].as_u64(), slow["rest"].as_u64()), (Some(180 * 50), Some(180 * 50)));
    let selected = &slow["selected"];
    assert_eq!(selected["start_ns"].as_u64(), Some(at(0).unix_ns()));
    // Whole buckets.
    let bound = |name: &str| selected[name].as_f64().unwrap();
    assert!(bound("low_ns") <= 10e6 && bound("low_ns") > 9.7e6, "{selected}");
    assert!(bound("high_ns") >= 1e9 && bound("high_ns") < 1.03e9, "{selected}");
    let first = &slow["dimensions"][0];
    assert_eq!((&first["dimension"], &first["values"][0]["differs"]), (&"time".into(), &true.into()));
    assert!(first["values"][0]["start_ns"].as_u64() >= Some(at(1_800).unix_ns()), "{first}");
    assert_eq!(slow["dimensions"][1]["difference"], 0.0);
    let of_shape = ask("id=1&namespace=shop.orders&start=-10m&end=-5m");
    assert_eq!((of_shape["these"].as_u64(), of_shape["rest"].as_u64()), (Some(30 * 50), Some(330 * 50)));
    assert_eq!(of_shape["shape"]["namespace"], "shop.orders");
    assert!(of_shape["selected"]["low_ns"].is_null());
    assert_eq!(ask("")["selected"]["is_default"], true);
    assert_eq!(ask("id=99")["reason"], "nothing_stored");
    assert_eq!(ask("start=2023-11-14T20:00:00Z&end=2023-11-14T21:00:00Z")["reason"], "question");
}

#[test]
fn who_asks_the_same_a_moment_later_gets_the_same_answer_which_is_made_once() {
    let history = TestHistory::hour();
    let opened = history.opened.clone();
    let page = TestPage::new(history, PageLimits::default());
    let first = page.read("/api/v1/incident?from=-30m");
    let made = opened.load(Ordering::Relaxed);
    let again = page.read("/api/v1/incident?from=-30m");
    assert_eq!(first.text, again.text);
    assert_eq!(again.headers[CONTENT_TYPE], "application/json");
    let looks = opened.load(Ordering::Relaxed) - made;
    assert!(looks <= 1, "it looks for a newer window at most");
    page.read("/api/v1/incident?from=-20m");
    assert!(opened.load(Ordering::Relaxed) > made + looks, "another question has an answer of its own");
    let without_token = page.ask(get("/api/v1/incident?from=-30m").body(Body::empty()).unwrap());
    assert_eq!(without_token.status, StatusCode::UNAUTHORIZED);
}

#[test]
fn a_wrong_parameter_is_named() {
    let page = TestPage::of_an_hour();
    for (query, parameter) in [
        ("timeline?from=14:05", "from"),
        ("timeline?to=-1x", "to"),
        ("timeline?from=-10m&to=-20m", "to"),
        ("timeline?fro=-10m", "fro"),
        ("timeline?zone=Nowhere", "zone"),
        ("timeline?port=0", "port"),
        ("timeline?port=1&port=2", "port"),
        ("queries?by=order", "by"),
        ("queries?by=app&port=27017", "port"),
        ("queries?sort=taste", "sort"),
        ("queries?limit=0", "limit"),
        ("series?subject=weather", "subject"),
        ("series?limit=1001", "limit"),
        ("events?kind=party", "kind"),
        ("events?limit=5001", "limit"),
        ("queries/intervals?width=15", "width"),
        ("shape", "id"),
        ("shape?id=", "id"),
        ("shape?id=12345678901234567", "id"),
        ("shape?id=+1", "id"),
        ("different?low=100&high=100", "high"),
        ("different?low=-1", "low"),
        ("different?high=0", "high"),
        ("different?start=-5m&end=-10m", "end"),
        ("different?id=x", "id"),
        ("what-changed?against=tomorrow", "against"),
        ("what-changed?at=-5m&from=-10m", "from"),
        ("what-changed?at=-5m&precision=61", "precision"),
        ("status?from=-1h", "from"),
        ("now?limit=5", "limit"),
    ] {
        let answer = page.read(&format!("/api/v1/{query}"));
        let problem = answer.json();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}: {problem}");
        assert_eq!(
            (&problem["kind"], &problem["parameter"]),
            (&"problem".into(), &parameter.into()),
            "{query}"
        );
        assert!(problem["words"].as_str().is_some_and(|words| !words.is_empty()));
    }
    let unknown = page.read("/api/v1/timeline?port=5").json();
    assert!(unknown["words"].as_str().unwrap().contains("no server at port 5"), "{unknown}");
    let future = page.read("/api/v1/timeline?from=2030-01-01T00:00:00Z").json();
    assert!(future["words"].as_str().unwrap().contains("nothing is stored after 2030"), "{future}");
}
