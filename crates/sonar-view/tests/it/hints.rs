//! Which indexes a report suggests, and how its text fits a terminal.

use crate::synthetic::{app, operation, shape};
use sonar_core::{Digest, Execution, Operation, PlanFlags, Reading, Record, Timestamp};
use sonar_view::digest::remarks::RowRemark;
use sonar_view::digest::{self, DigestView, Source, ViewOptions, index_hint};
use sonar_view::kit::Fitting;

/// Ten calls of each (shape, plan, milliseconds), each examining 500 documents and returning one.
fn digest(calls: &[(&str, &str, u64)]) -> Digest {
    let mut digest = Digest::default();
    let app = app("api", "rust", "3");
    for (typed, plan, ms) in calls {
        let number = calls.iter().position(|call| call.0 == *typed).unwrap();
        let shape = shape(number as u64 + 1, "find", "shop.people", typed, typed);
        for call in 0..10 {
            let op = Operation {
                latency_ns: Some(ms * 1_000_000),
                docs_returned: Some(1),
                ..operation(&shape, &app, Timestamp::from_unix(1_000 + call, 0))
            };
            let execution = Execution {
                plan,
                keys_examined: Some(500),
                docs_examined: Some(500),
                ..Execution::default()
            };
            digest.record(&Record::server(Source::Log, &op, &execution));
        }
    }
    digest
}

fn view(digest: &Digest) -> DigestView<'_> {
    DigestView::new(digest, Source::Log, &ViewOptions::default())
}

fn suggested(digest: &Digest) -> Vec<(String, usize)> {
    index_hint::all(&view(digest)).into_iter().map(|one| (one.hint.index, one.rows.len())).collect()
}

const CITY: &str = "{filter: {city: ?string}}";

#[test]
fn a_plan_that_uses_the_index_gives_no_hint_whatever_its_stage() {
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 10)])), [("{city: 1}".to_owned(), 1)]);
    for plan in [
        "IXSCAN { city: 1 }",
        "IXSCAN { city: -1, age: 1 }",
        "COUNT_SCAN { city: 1 }",
        "DISTINCT_SCAN { city: 1 }",
        "EXPRESS_IXSCAN { city: 1 },EXPRESS_FETCH",
        "IXSCAN { age: 1 }, IXSCAN { city: 1 }",
    ] {
        assert_eq!(suggested(&digest(&[(CITY, plan, 10)])), [], "{plan}");
    }
    let by_id = "{filter: {_id: ?objectId}}";
    for plan in ["IDHACK", "EXPRESS_CLUSTERED_IXSCAN", "EXPRESS_IXSCAN { _id: 1 }"] {
        assert_eq!(suggested(&digest(&[(by_id, plan, 10)])), [], "{plan}");
    }
    // An index that another plan of the same shape used exists too.
    let both = digest(&[(CITY, "COLLSCAN", 10), (CITY, "IXSCAN { city: 1 }", 10)]);
    assert_eq!(suggested(&both), []);
}

/// Ten calls of a shape that examine and return this much each.
fn executed(command: &str, typed: &str, execution: &Execution<'_>, returned: u64) -> Digest {
    let mut digest = Digest::default();
    let (app, shape) = (app("api", "rust", "3"), shape(1, command, "shop.orders", typed, typed));
    for call in 0..10 {
        let op = Operation {
            latency_ns: Some(10_000_000),
            docs_returned: Some(returned),
            ..operation(&shape, &app, Timestamp::from_unix(1_000 + call, 0))
        };
        digest.record(&Record::server(Source::Log, &op, execution));
    }
    digest
}

#[test]
fn a_lookup_without_an_index_wants_one_on_the_foreign_collection() {
    let by = |stages: &str| {
        format!(
            "{{pipeline: [{stages}{{$lookup: {{as: 'p', foreignField: 'code', from: 'products', localField: 'sku'}}}}]}}"
        )
    };
    let wanted = |typed: &str, plan: &str, keys: u64, documents: u64| {
        let execution = Execution {
            plan,
            keys_examined: Some(keys),
            docs_examined: Some(documents),
            ..Execution::default()
        };
        let digest = executed("aggregate", typed, &execution, 20);
        let hints: Vec<_> = index_hint::all(&view(&digest)).into_iter().map(|one| one.hint).collect();
        hints.into_iter().map(|hint| format!("{} {}", hint.namespace, hint.index)).collect::<Vec<_>>()
    };
    let open = by("{$match: {status: ?string}}, ");
    let (served, code) = ("IXSCAN { status: 1 }", "shop.products {code: 1}");
    // 20 documents by the index, and 2,000 of the foreign collection for each of them.
    assert_eq!(wanted(&open, served, 20, 40_020), [code]);
    // With an index, each foreign document has its key, however many there are.
    assert_eq!(wanted(&open, served, 1_020, 1_020), [""; 0]);
    // What the collection itself examined cannot be told apart.
    assert_eq!(wanted(&open, "COLLSCAN", 0, 40_020), ["shop.orders {status: 1}"]);
    // All 20 documents of the collection are returned; the others are foreign.
    assert_eq!(wanted(&by(""), "COLLSCAN", 0, 40_020), [code]);
    assert_eq!(wanted(&by("{$unwind: {path: '$a'}}, "), "COLLSCAN", 0, 40_020), [""; 0]);
    let grouped = open.replace("]}", ", {$group: {_id: '$sku'}}]}");
    assert_eq!(wanted(&grouped, served, 20, 40_020), [""; 0]);
    let by_id = open.replace("'code'", "'_id'");
    assert_eq!(wanted(&by_id, served, 20, 40_020), [""; 0]);
}

#[test]
fn the_foreign_index_is_not_that_of_the_row() {
    let typed =
        "{pipeline: [{$lookup: {as: 'p', foreignField: 'code', from: 'products', localField: 'sku'}}]}";
    let execution = Execution {
        plan: "COLLSCAN",
        keys_examined: Some(0),
        docs_examined: Some(40_020),
        ..Execution::default()
    };
    let digest = executed("aggregate", typed, &execution, 20);
    let mut out = Vec::new();
    digest::json(&view(&digest), &mut out).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["index_hints"][0]["namespace"], "shop.products");
    assert!(value["rows"][0]["index_hint"].is_null());
}

#[test]
fn a_large_skip_is_named_where_nothing_else_explains_what_was_examined() {
    let remarks = |typed: &str, plan: &str| {
        let execution = Execution {
            plan,
            keys_examined: Some(20_020),
            docs_examined: Some(20_020),
            ..Execution::default()
        };
        let digest = executed("find", typed, &execution, 20);
        let all: Vec<_> = digest::remarks::remarks(&view(&digest)).into_iter().map(|(_, one)| one).collect();
        all
    };
    let page = "{filter: {user: ?string}, sort: {at: 1}, limit: ?number, skip: ?number}";
    assert_eq!(remarks(page, "IXSCAN { user: 1, at: 1 }"), [RowRemark::Skip]);
    assert_eq!(remarks(page, "IXSCAN { user: 1 }"), [], "the index does not serve the sort");
    assert_eq!(remarks(&page.replace(", skip: ?number", ""), "IXSCAN { user: 1, at: 1 }"), []);
    let regex = page.replace("?string", "{$regex: ?regex}");
    assert_eq!(remarks(&regex, "IXSCAN { at: 1, user: 1 }"), []);
    let piped =
        "{pipeline: [{$match: {user: ?string}}, {$sort: {at: 1}}, {$skip: ?number}, {$limit: ?number}]}";
    assert_eq!(remarks(piped, "IXSCAN { user: 1, at: 1 }"), [RowRemark::Skip]);
}

#[test]
fn a_view_has_no_indexes() {
    let execution = Execution {
        plan: "COLLSCAN",
        view_of: "shop.all_orders",
        keys_examined: Some(0),
        docs_examined: Some(20_000),
        ..Execution::default()
    };
    let digest = executed("find", CITY, &execution, 20);
    assert_eq!(suggested(&digest), []);
    let mut out = Vec::new();
    digest::text(&view(&digest), &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains("shop.orders is a view of shop.all_orders, and indexes for it belong there"),
        "{text}"
    );
}

#[test]
fn replanning_is_named() {
    let flags = PlanFlags { replanned: true, ..PlanFlags::default() };
    let execution = Execution { plan: "IXSCAN { city: 1 }", flags, ..Execution::default() };
    let digest = executed("find", CITY, &execution, 1);
    let mut out = Vec::new();
    digest::text(&view(&digest), &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains("10 of 10 calls gave the cached plan up and planned again: find shop.orders {filter: {city: ?string}}"),
        "{text}"
    );
    let mut out = Vec::new();
    digest::json(&view(&digest), &mut out).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(
        (&value["remarks"][0]["kind"], &value["remarks"][0]["calls"]),
        (&"replanned".into(), &10.into())
    );
    let remark = &value["remarks"][0];
    assert_eq!(remark["words"], "10 of 10 calls gave the cached plan up and planned again");
    assert_eq!((&remark["command"], &remark["shape"]), (&"find".into(), &CITY.into()));
    assert_eq!(remark["time_share"], 1.0);
}

#[test]
fn below_one_percent_of_the_time_nothing_is_suggested() {
    let busy = "{filter: {_id: ?objectId}}";
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 1), (busy, "IDHACK", 200)])), []);
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 3), (busy, "IDHACK", 200)])).len(), 1);
    // Nothing took a millisecond: there is nothing to win.
    assert_eq!(suggested(&digest(&[(CITY, "COLLSCAN", 0)])), []);
}

#[test]
fn an_index_is_suggested_once_with_all_shapes_that_want_it() {
    let all = digest(&[
        (CITY, "COLLSCAN", 10),
        ("{filter: {city: ?string}, limit: ?number}", "COLLSCAN", 20),
        ("{filter: {age: ?number}}", "COLLSCAN", 5),
    ]);
    assert_eq!(suggested(&all), [("{city: 1}".to_owned(), 2), ("{age: 1}".to_owned(), 1)]);
    let mut out = Vec::new();
    digest::text(&view(&all), &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches("shop.people {city: 1}: 85.7% of the time").count(), 1, "{text}");
    assert!(
        text.contains(
            "57.1%, 500 examined for each returned, COLLSCAN: find {filter: {city: ?string}, limit"
        )
    );
    let mut out = Vec::new();
    digest::json(&view(&all), &mut out).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["index_hints"][0]["shapes"].as_array().unwrap().len(), 2);
    assert_eq!(value["rows"][0]["index_hint"], "{city: 1}");
}

#[test]
fn what_took_less_than_a_millisecond_is_said_so() {
    let mut out = Vec::new();
    digest::text(&view(&digest(&[(CITY, "COLLSCAN", 0)])), &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("time <10.0ms  mean <1ms  p50 <1ms"), "{text}");
    assert!(!text.contains("0ns"), "{text}");
}

#[test]
fn what_could_not_be_parsed_stands_below_the_answer() {
    let digest = digest(&[(CITY, "COLLSCAN", 10)]);
    let reading = Reading { lines: 1_000, lines_empty: 100, lines_malformed: 90, ..Reading::default() };
    let mut out = Vec::new();
    let view = DigestView::new(&digest, Source::Log, &ViewOptions::default()).with_reading(Some(&reading));
    digest::text(&view, &mut Fitting::new(&mut out, None)).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.lines()
            .nth(1)
            .unwrap()
            .starts_with("NOTE: 90 of 900 lines look like MongoDB's but could not be parsed (10.0%)"),
        "{text}"
    );
    let assumed = digest::assumed_weights(&Reading { entries_weighted: 3, ..Reading::default() }).unwrap();
    assert!(assumed.contains("assumed") && assumed.contains("4.4.8-9"), "{assumed}");
    assert_eq!(digest::assumed_weights(&Reading::default()), None);
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let long = format!("{{filter: {{{}: ?string}}}}", "very_long_name".repeat(20));
    let digest = digest(&[(CITY, "IXSCAN { country: 1, city: 1, age: 1 }", 10), (&long, "COLLSCAN", 99_999)]);
    for width in [60, 80, 120, 200] {
        let mut out = Vec::new();
        digest::text(&view(&digest), &mut Fitting::new(&mut out, Some(width))).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in text.lines() {
            assert!(sonar_view::kit::width(line) <= width, "{width}: {line}");
        }
        let head = text.lines().find(|line| line.starts_with("calls")).unwrap();
        assert!(["time", "namespace", "shape"].iter().all(|name| head.contains(name)), "{width}: {head}");
    }
}

fn text_of(view: &DigestView<'_>) -> String {
    let mut out = Vec::new();
    digest::text(view, &mut Fitting::new(&mut out, None)).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_answer_stands_first_then_what_is_wrong_then_the_rows_then_what_was_read() {
    let all = digest(&[
        (CITY, "COLLSCAN", 60),
        ("{filter: {age: ?number}}", "IXSCAN { age: 1 }", 30),
        ("{filter: {_id: ?number}}", "IDHACK", 10),
    ]);
    let reading = Reading { lines: 30, lines_operation: 30, ..Reading::default() };
    let text = text_of(&view(&all).with_reading(Some(&reading)));
    assert!(
        text.starts_with(
            "The 2 largest of 3 shapes take 90.0% of the time of all operations (1.00s); the largest, 60.0%: \
             find shop.people {filter: {city: ?string}}, by a collection scan; an index {city: 1} may help.\n"
        ),
        "{text}"
    );
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is not in {text}"));
    let order = ["30 operations in", "Indexes that may help", "\ncalls", "\nCoverage: "].map(at);
    assert!(order.is_sorted(), "{order:?} {text}");
    // The counters that are no losses take one line.
    assert!(text.contains("\nCoverage: all of it was read\n  lines 30  lines_operation 30\n"), "{text}");
    let one = text_of(&view(&digest(&[(CITY, "IXSCAN { city: 1 }", 60)])));
    assert!(one.starts_with("One shape takes 100.0% of the time of all operations (600ms): find "), "{one}");
}

#[test]
fn nothing_is_answered_where_nothing_took_time() {
    assert!(text_of(&view(&digest(&[(CITY, "COLLSCAN", 0)]))).starts_with("10 operations in"));
}

#[test]
fn of_many_indexes_the_first_are_shown_and_the_others_counted() {
    let shapes: Vec<_> = (0..9).map(|field| format!("{{filter: {{field{field}: ?string}}}}")).collect();
    let calls: Vec<_> = shapes.iter().map(|shape| (shape.as_str(), "COLLSCAN", 10)).collect();
    let text = text_of(&view(&digest(&calls)));
    assert_eq!(text.matches(": 11.1% of the time\n").count(), 5, "{text}");
    assert!(text.contains("  … and 4 more indexes (--json has all)\n"), "{text}");
    assert!(text.starts_with("The 5 largest of 9 shapes take 55.6% of the time"), "{text}");
}

#[test]
fn no_answer_is_made_of_the_few_latencies_that_are_known() {
    let app = app("api", "rust", "3");
    let shape = shape(1, "find", "shop.people", CITY, CITY);
    let mut digest = Digest::default();
    for call in 0..10 {
        // A capture of requests alone knows no other latency than those that a neighbour says.
        let latency_ns = (call == 0).then_some(4_000_000);
        let op = Operation { latency_ns, ..operation(&shape, &app, Timestamp::from_unix(1_000 + call, 0)) };
        digest.record(&Record::wire(&op));
        let latency_ns = Some(6_000_000);
        digest.record(&Record::server(Source::Log, &Operation { latency_ns, ..op }, &Execution::default()));
    }
    let summary =
        |source| digest::SourceSummary::new(source, vec!["x".to_owned()], [].into_iter(), [].into_iter());
    let summaries = [Source::Wire, Source::Log].map(summary);
    let text = text_of(&DigestView { summaries: &summaries, ..view(&digest) });
    assert!(
        text.starts_with(
            "Latencies are known of only 1 of 10 operations, so that it is not known what takes the time; the log alone \
             knows those of 10.\n"
        ),
        "{text}"
    );
}
