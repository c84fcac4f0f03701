//! The output of `explain`, in each form in which servers and shells give it.

use serde_json::{Value, json};
use sonar_core::explain::{
    BoundWidth, ExplainFinding, ExplainStage, ExplainedCommand, QueryEngine, findings,
};
use sonar_decode::explain::{bson, is_explain, is_explain_bson, printed};
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_decode::testing::fixtures;
use sonar_decode::top_level::TopFields;

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(fixtures::fixture("explain").join(name)).unwrap()
}

/// The only output in a text.
fn read(text: &[u8]) -> ExplainedCommand {
    let (mut documents, mut rest) = (Documents::default(), text);
    match documents.next(&mut rest) {
        Some(FoundDocument::Document(document)) => {
            assert!(is_explain(&TopFields::of_text(document), document));
            printed(document).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

fn names(stage: &ExplainStage) -> Vec<&str> {
    let mut names = Vec::new();
    stage.visit(&mut |stage| names.push(stage.name.as_str()));
    names
}

fn kinds(explained: &ExplainedCommand) -> Vec<ExplainFinding> {
    findings(explained).into_iter().map(|one| one.finding).collect()
}

/// The stages by name.
fn stage<'a>(explained: &'a ExplainedCommand, name: &str) -> &'a ExplainStage {
    let mut found = None;
    explained.stages.visit(&mut |stage| {
        if stage.name == name {
            found = Some(stage);
        }
    });
    found.unwrap_or_else(|| panic!("no {name} in {:?}", names(&explained.stages)))
}

#[test]
fn a_plan_of_the_classic_engine_has_the_figures_of_each_stage() {
    let one = read(&fixture("classic-4.4.json"));
    assert_eq!((one.namespace.as_str(), one.is_executed, one.is_incomplete), ("shop.orders", true, false));
    assert_eq!(one.version.as_deref(), Some("4.4.29"));
    assert_eq!(one.plans[0].engine, Some(QueryEngine::Classic));
    assert_eq!(names(&one.stages), ["SORT", "FETCH", "IXSCAN"]);
    assert_eq!(
        (one.totals.returned, one.totals.docs_examined, one.totals.keys_examined, one.totals.time_ms),
        (Some(412), Some(48_210), Some(48_210), Some(187))
    );
    let index = stage(&one, "IXSCAN");
    assert_eq!(index.key_pattern.as_deref(), Some("{ status: 1 }"));
    assert_eq!((index.keys_examined, index.docs_examined, index.works), (Some(48_210), None, Some(48_211)));
    assert_eq!(index.bounds[0].width, BoundWidth::Points(1));
    // 160 ms with the index scan, which took 45 ms.
    assert_eq!(stage(&one, "FETCH").own_ms(), Some(115));
    assert_eq!(
        one.plans[0].asked,
        "{filter: {status: ?string, total: {$gt: ?number, $lt: ?number}}, sort: {at: -1}}"
    );
    assert_eq!(one.plans[0].rejected[0].summary(), "IXSCAN { total: 1 }");
    let found = kinds(&one);
    assert!(
        matches!(&found[..], [ExplainFinding::FetchFilter { index, documents: 48_210, kept: 412, .. }] if index == "{ status: 1 }"),
        "{found:?}"
    );
}

#[test]
fn what_a_skip_dropped_counts_not_what_the_stage_says() {
    let one = read(&fixture("shell-3.6.txt"));
    assert_eq!(one.version.as_deref(), Some("3.6.23"));
    assert_eq!(kinds(&one), [ExplainFinding::DeepSkip(20_000)]);
    assert_eq!(stage(&one, "IXSCAN").bounds[1].width, BoundWidth::Ranges(1));
}

#[test]
fn a_node_of_the_slot_based_engine_has_the_figures_of_the_stages_that_execute_it() {
    let one = read(&fixture("mongosh-7.0.txt"));
    assert_eq!(one.plans[0].engine, Some(QueryEngine::SlotBased));
    assert_eq!((one.command.as_str(), names(&one.stages)), ("find", vec!["SORT", "COLLSCAN"]));
    let scan = stage(&one, "COLLSCAN");
    // The filter above the scan has the same node: 240,000 read, 61 kept.
    assert_eq!((scan.docs_examined, scan.returned, scan.time_ms), (Some(240_000), Some(61), Some(316)));
    assert_eq!(stage(&one, "SORT").memory_bytes, Some(31_720));
    assert_eq!(
        kinds(&one),
        [ExplainFinding::CollectionScan { is_whole: true, documents: Some(240_000), kept: Some(61) }]
    );
    let shape = one.shape.unwrap();
    assert_eq!(&*shape.typed, "{filter: {city: ?string, total: {$gt: ?number}}, sort: {at: -1}}");
    assert!(one.values.contains("Lima"));
}

#[test]
fn a_lookup_of_either_engine_names_the_field_without_an_index() {
    let slots = read(&fixture("mongosh-8.0.txt"));
    assert_eq!(slots.plans[0].is_cached, Some(true));
    let keys_and_docs = |name: &str| (stage(&slots, name).keys_examined, stage(&slots, name).docs_examined);
    assert_eq!(keys_and_docs("EQ_LOOKUP"), (None, Some(400_000)));
    assert_eq!(keys_and_docs("FETCH"), (None, Some(200)));
    assert_eq!(keys_and_docs("IXSCAN"), (Some(200), None));
    let classic = read(&fixture("aggregate-6.0.json"));
    assert_eq!(
        names(&classic.stages),
        ["$sort", "$group", "$lookup", "$cursor", "PROJECTION_SIMPLE", "FETCH", "IXSCAN"]
    );
    assert_eq!(classic.totals.docs_examined, Some(6_003_000));
    let foreign = |namespace: &str, scans, documents| ExplainFinding::ForeignScan {
        namespace: namespace.to_owned(),
        field: "code".to_owned(),
        scans,
        documents: Some(documents),
    };
    assert_eq!(kinds(&slots), [foreign("shop.products", None, 400_000)]);
    assert_eq!(kinds(&classic), [foreign("products", Some(3_000), 6_000_000)]);
}

#[test]
fn shards_have_a_plan_each() {
    let one = read(&fixture("sharded-5.0.json"));
    assert_eq!((one.command.as_str(), one.namespace.as_str()), ("find", "shop.carts"));
    assert_eq!(one.stages.name, "SHARD_MERGE");
    assert_eq!(
        one.plans.iter().map(|plan| plan.shard.as_deref()).collect::<Vec<_>>(),
        [Some("s0"), Some("s1")]
    );
    assert_eq!(one.totals.docs_examined, Some(910_000));
    assert_eq!(one.stages.own_ms(), None, "shards work at the same time");
    let found = findings(&one);
    let on: Vec<_> = found.iter().map(|one| one.shard.as_deref()).collect();
    assert_eq!(on, [Some("s0"), Some("s1"), None]);
    assert_eq!(found[2].finding, ExplainFinding::AllShards(2));
}

#[test]
fn a_pipeline_that_shards_execute_is_merged_above_them() {
    let shard = json!({"host": "s0.example:27018", "explainVersion": "1", "queryPlanner": {
        "namespace": "shop.orders", "parsedQuery": {}, "winningPlan": {"stage": "COLLSCAN", "direction": "forward"},
        "rejectedPlans": []}, "executionStats": {"executionSuccess": true, "nReturned": 5, "executionTimeMillis": 3,
        "totalKeysExamined": 0, "totalDocsExamined": 700, "executionStages": {"stage": "COLLSCAN", "nReturned": 5,
        "executionTimeMillisEstimate": 1, "works": 701, "docsExamined": 700}}});
    let document = json!({"serverInfo": {"host": "router", "port": 27017, "version": "6.0.14"}, "mergeType": "mongos",
        "splitPipeline": {"shardsPart": [], "mergerPart": [{"$mergeCursors": {}}, {"$group": {"_id": "$a"}}]},
        "shards": {"s0": shard, "s1": shard}, "ok": 1});
    let one = read(document.to_string().as_bytes());
    assert_eq!(names(&one.stages), ["$group", "SHARD_MERGE", "SHARD s0", "COLLSCAN", "SHARD s1", "COLLSCAN"]);
    assert_eq!((one.totals.docs_examined, one.server.as_deref()), (Some(1_400), Some("router:27017")));
}

/// A plan of two indexes, and the trial of both.
fn rivals(productive: u64, failed: bool) -> Value {
    let scan = |name: &str| json!({"stage": "FETCH", "inputStage": {"stage": "IXSCAN", "keyPattern": {name: 1}, "indexName": format!("{name}_1")}});
    let trial = |name: &str, returned: u64, failed: bool| {
        let mut stages = scan(name);
        stages["works"] = json!(1_000);
        if failed {
            stages["failed"] = json!(true);
        }
        json!({"nReturned": returned, "totalKeysExamined": 1_000, "totalDocsExamined": 1_000, "executionStages": stages})
    };
    json!({"queryPlanner": {"namespace": "a.b", "parsedQuery": {"a": {"$eq": 1}}, "winningPlan": scan("a"),
        "rejectedPlans": [scan("b")]}, "executionStats": {"executionSuccess": true, "nReturned": 100,
        "executionTimeMillis": 1, "totalKeysExamined": 100, "totalDocsExamined": 100,
        "executionStages": scan("a"), "allPlansExecution": [trial("a", 100, false), trial("b", productive, failed)]},
        "ok": 1})
}

#[test]
fn a_rival_counts_by_what_it_returned_for_its_work() {
    let found = |productive, failed| kinds(&read(rivals(productive, failed).to_string().as_bytes()));
    let rival = ExplainFinding::CloseRival { plan: "b_1".to_owned(), ratio: 0.95 };
    assert_eq!(found(95, false), [rival]);
    assert_eq!(found(80, false), []);
    assert_eq!(found(0, true), [ExplainFinding::FailedTrial("b_1".to_owned())]);
}

/// The findings of `find(filter).sort({ts: -1}).limit(limit)` on the index `{ts: 1}`, if it reads so much for so much
/// that it keeps.
fn found_by_time(filter: Value, limit: Option<u64>, (keys, kept): (u64, u64)) -> Vec<ExplainFinding> {
    let mut stages = json!({"stage": "FETCH", "filter": filter, "nReturned": kept, "docsExamined": keys,
        "inputStage": {"stage": "IXSCAN", "nReturned": keys, "keysExamined": keys, "keyPattern": {"ts": 1},
            "indexName": "ts_1", "direction": "backward", "indexBounds": {"ts": ["[MaxKey, MinKey]"]}}});
    if let Some(limit) = limit {
        stages = json!({"stage": "LIMIT", "limitAmount": limit, "nReturned": kept, "inputStage": stages});
    }
    let document = json!({"queryPlanner": {"namespace": "a.b", "parsedQuery": filter, "winningPlan": stages,
        "rejectedPlans": []}, "executionStats": {"executionSuccess": true, "nReturned": kept,
        "executionTimeMillis": 9, "totalKeysExamined": keys, "totalDocsExamined": keys,
        "executionStages": stages}, "ok": 1});
    kinds(&read(document.to_string().as_bytes()))
}

#[test]
fn an_index_from_its_end_is_wrong_only_if_keys_are_wasted() {
    assert_eq!(found_by_time(json!({}), Some(5_000), (5_000, 5_000)), [], "the best plan");
    assert_eq!(found_by_time(json!({}), None, (5_000, 5_000)), [], "all of it, in order");
    let through = |found: &[ExplainFinding]| match found {
        [ExplainFinding::WholeIndex { is_whole, index, keys, kept }, ExplainFinding::FetchFilter { .. }] => {
            assert_eq!(index, "{ ts: 1 }");
            Some((*is_whole, *keys, *kept))
        }
        _ => None,
    };
    let filter = || json!({"a": {"$eq": 1}});
    assert_eq!(through(&found_by_time(filter(), Some(5), (5_000, 5))), Some((false, 5_000, 5)));
    // The limit was not reached.
    assert_eq!(through(&found_by_time(filter(), Some(50), (5_000, 5))), Some((true, 5_000, 5)));
    assert_eq!(through(&found_by_time(filter(), None, (5_000, 5))), Some((true, 5_000, 5)));
}

#[test]
fn a_collection_is_read_as_a_whole_unless_a_limit_ends_it() {
    let found = |above: Value| {
        let scan =
            json!({"stage": "COLLSCAN", "filter": {"a": {"$eq": 1}}, "nReturned": 5, "docsExamined": 5_000});
        let mut stages = scan.clone();
        for above in above.as_array().unwrap() {
            let mut above = above.clone();
            above["inputStage"] = stages;
            stages = above;
        }
        let document = json!({"queryPlanner": {"namespace": "a.b", "parsedQuery": {"a": {"$eq": 1}},
            "winningPlan": stages, "rejectedPlans": []}, "executionStats": {"executionSuccess": true,
            "nReturned": 5, "executionTimeMillis": 9, "totalKeysExamined": 0, "totalDocsExamined": 5_000,
            "executionStages": stages}, "ok": 1});
        match &kinds(&read(document.to_string().as_bytes()))[..] {
            [ExplainFinding::CollectionScan { is_whole, .. }] => *is_whole,
            found => panic!("{found:?}"),
        }
    };
    let limit = json!({"stage": "LIMIT", "limitAmount": 5, "nReturned": 5});
    let sort = json!({"stage": "SORT", "sortPattern": {"b": 1}, "nReturned": 5});
    assert!(found(json!([])));
    assert!(!found(json!([limit])));
    assert!(found(json!([sort, limit])), "a sort reads all first");
}

#[test]
fn a_failed_execution_and_a_spill_are_named() {
    let document = json!({"queryPlanner": {"namespace": "a.b", "indexFilterSet": true, "maxIndexedOrSolutionsReached": true,
        "parsedQuery": {}, "winningPlan": {"stage": "SORT", "sortPattern": {"a": 1}, "inputStage": {"stage": "COLLSCAN"}},
        "rejectedPlans": []}, "executionStats": {"executionSuccess": false, "errorMessage": "Sort exceeded", "errorCode": 292,
        "nReturned": 0, "executionTimeMillis": 900, "totalKeysExamined": 0, "totalDocsExamined": 5_000,
        "executionStages": {"stage": "SORT", "sortPattern": {"a": 1}, "usedDisk": true, "spills": 2, "spilledDataStorageSize": 4_096,
            "inputStage": {"stage": "COLLSCAN", "nReturned": 5_000, "docsExamined": 5_000}}}, "ok": 1});
    let found = kinds(&read(document.to_string().as_bytes()));
    assert_eq!(found[0], ExplainFinding::Failed("code 292".to_owned()));
    assert!(matches!(&found[1], ExplainFinding::Wasteful { examined: 5_000, returned: 0 }), "{found:?}");
    assert!(matches!(&found[2], ExplainFinding::Sort { by_index: true, documents: Some(5_000), .. }));
    assert_eq!(found[3], ExplainFinding::Spilled { stage: "SORT".to_owned(), bytes: Some(4_096) });
    assert_eq!(found[4], ExplainFinding::IndexFilter);
    assert!(matches!(found[5], ExplainFinding::PlannerLimit(_)));
}

#[test]
fn bson_gives_the_same_as_its_text() {
    let text = fixture("classic-4.4.json");
    let value: Value = serde_json::from_slice(&text).unwrap();
    let bytes = bson::serialize_to_vec(&value).unwrap();
    assert!(is_explain_bson(&TopFields::of_bson(&bytes), &bytes));
    assert_eq!(bson(&bytes).unwrap(), read(&text));
}

#[test]
fn without_execution_figures_stay_unknown() {
    let planner = json!({"queryPlanner": {"namespace": "a.b", "parsedQuery": {"x": {"$eq": 1}},
        "winningPlan": {"stage": "COLLSCAN", "filter": {"x": {"$eq": 1}}}, "rejectedPlans": []}, "ok": 1});
    let one = read(planner.to_string().as_bytes());
    assert_eq!((one.is_executed, one.totals), (false, Default::default()));
    assert_eq!(kinds(&one), [ExplainFinding::CollectionScan { is_whole: true, documents: None, kept: None }]);
}

#[test]
fn what_a_shell_left_out_makes_it_incomplete() {
    let text = "{ queryPlanner: { namespace: 'a.b', winningPlan: { stage: 'FETCH', inputStage: [Object] }, rejectedPlans: [] }, ok: 1 }";
    assert!(read(text.as_bytes()).is_incomplete);
}

#[test]
fn other_documents_are_none() {
    for text in [
        "{\"a\": 1}",
        "{\"op\": \"query\", \"ns\": \"a.b\", \"execStats\": {\"stage\": \"COLLSCAN\"}}",
        "{\"op\": \"query\", \"ns\": \"a.b\", \"command\": {\"filter\": {\"queryPlanner\": {\"a\": 1}}}, \"stages\": []}",
    ] {
        assert!(!is_explain(&TopFields::of_text(text.as_bytes()), text.as_bytes()), "{text}");
    }
    assert!(printed(b"{\"a\": 1}").is_none());
    assert!(printed(b"{").is_none());
}

proptest::proptest! {
    #[test]
    fn nothing_makes_it_panic(text in "\\{(\"?(queryPlanner|winningPlan|stage|stages|inputStage|shards|\\$cursor)\"?: ?[\\[{\"a1,:}\\] ]{0,8},? ?){0,8}\\}") {
        let _ = printed(text.as_bytes());
    }
}
