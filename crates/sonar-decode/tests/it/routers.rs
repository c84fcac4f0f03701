//! One query has one shape: as a client sends it, and as a router (mongos) sends it to a shard, where it is on the wire,
//! in the profile and in the log.

use bson::{Document, bson, doc};
use sonar_core::Identity;

use crate::commands::{exchange, in_a_log, in_a_profile, on_the_wire, profiled};

fn command(json: &str) -> Document {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// A command on `shop`, with fields that a router adds to it.
fn with(command: &Document, more: &Document) -> Document {
    let mut all = command.clone();
    all.extend(more.clone());
    all.insert("$db", "shop");
    all
}

/// What each version of a mongos puts beside the fields of a client. Sources: `appendShardVersion`,
/// `appendDbVersionIfPresent`, `applyReadWriteConcern`, `genericTransformForShards`, `OperationSessionInfo`,
/// `ClusterFind`, `EgressMetadataHookList` and `TransactionRouter` in <https://github.com/mongodb/mongo>.
const BESIDE: &[(&str, &str)] = &[
    ("2.4", r#"{"$queryOptions": {"$readPreference": {"mode": "secondary"}}}"#),
    (
        "2.6",
        r#"{"metadata": {"shardName": "s1", "shardVersion": [{"$timestamp": {"t": 1, "i": 0}}, {"$oid":
        "507f1f77bcf86cd799439011"}], "session": 3}}"#,
    ),
    ("3.0", r#"{"maxTimeMS": 500, "$readPreference": {"mode": "primaryPreferred"}}"#),
    (
        "3.2",
        r#"{"shardVersion": [{"$timestamp": {"t": 1, "i": 0}}, {"$oid": "507f1f77bcf86cd799439011"}],
        "$configServerState": {"opTime": {"ts": {"$timestamp": {"t": 1, "i": 0}}, "t": 4}}, "fromRouter": true}"#,
    ),
    ("3.4", r#"{"fromRouter": true, "$ssm": {"$secondaryOk": true}, "$replData": 1}"#),
    (
        "3.6",
        r#"{"fromMongos": true, "needsMerge": true, "$clusterTime": {"clusterTime": {"$timestamp": {"t": 1,
        "i": 1}}}, "lsid": {"id": 1, "uid": 2}, "txnNumber": 4, "stmtId": 0, "allowImplicitCollectionCreation": false,
        "readConcern": {"level": "local"}, "$client": {"mongos": {"host": "r:27017"}}}"#,
    ),
    (
        "4.0",
        r#"{"databaseVersion": {"uuid": 1, "lastMod": 2}, "startTransaction": true, "autocommit": false,
        "coordinator": true, "writeConcern": {"w": 1}}"#,
    ),
    (
        "4.2",
        r#"{"runtimeConstants": {"localNow": {"$date": "2026-05-01T10:00:00Z"}, "clusterTime": {"$timestamp":
        {"t": 1, "i": 1}}}, "exchange": {"policy": "roundrobin", "consumers": 2}, "use44SortKeys": true}"#,
    ),
    (
        "4.4",
        r#"{"runtimeConstants": {"localNow": 1, "jsScope": {}, "isMapReduce": true}, "useNewUpsert": true,
        "isMapReduceCommand": true, "clientOperationKey": 7, "$configTime": 3, "$topologyTime": 4,
        "collectionUUID": 5, "$_useNewUpsert": 1}"#,
    ),
    (
        "5.0",
        r#"{"let": {"NOW": {"$date": "2026-05-01T10:00:00Z"}, "CLUSTER_TIME": 1}, "apiVersion": "1",
        "apiStrict": false, "legacyRuntimeConstants": {"localNow": 1}, "$_requestReshardingResumeToken": true,
        "mayBypassWriteBlocking": false, "stmtIds": [1]}"#,
    ),
    (
        "6.0",
        r#"{"shardVersion": {"e": 1, "t": 2, "v": 3}, "$_generateV2ResumeTokens": true, "sampleId": 5,
        "encryptionInformation": {"type": 1, "schema": {}}, "mayBypassWriteBlocking": true}"#,
    ),
    (
        "7.0",
        r#"{"shardVersion": {"e": 1, "t": 2, "v": 3}, "$_isClusterQueryWithoutShardKeyCmd": true,
        "includeQueryStatsMetrics": true, "expectPrefix": false, "isClusteredQuery": true}"#,
    ),
    (
        "8.0",
        r#"{"querySettings": {"queryFramework": "classic"}, "versionContext": {"fcv": "8.0"}, "rawData": true,
        "$audit": {"$impersonatedUser": {}}, "isHybridSearch": true, "releaseMemory": 1, "mayBypassWriteBlocking":
        false, "$tenant": 1, "originalQueryShapeHash": "AB", "requestGossipRoutingCache": [], "fromRouter": true}"#,
    ),
    (
        "8.2",
        r#"{"shardVersion": {"e": 1, "t": 2, "v": 3}, "databaseVersion": {"uuid": 1, "timestamp": 2, "lastMod": 3},
        "originalQueryShapeHash": "AB", "includeQueryStatsMetrics": true, "rawData": false, "isHybridSearch": false,
        "versionContext": {"OFCV": "8.2"}, "$configTime": 3, "$topologyTime": 4, "fromRouter": true}"#,
    ),
    (
        "9.0",
        r#"{"shardVersion": {"e": 1, "t": 2, "v": 3}, "querySettings": {"reject": false}, "originalQueryShapeHash":
        "AB", "includeQueryStatsMetrics": true, "versionContext": {"OFCV": "9.0"}, "rawData": true, "maxTimeMSOpOnly":
        50, "txnRetryCounter": 0, "clientOperationKey": 7, "requestGossipRoutingCache": ["shop.orders"],
        "mayBypassWriteBlocking": false, "fromRouter": true}"#,
    ),
];

/// Commands as drivers send them.
fn sent_by_clients() -> Vec<Document> {
    [
        r#"{"find": "orders", "filter": {"a": 1}, "sort": {"b": 1}}"#,
        r#"{"aggregate": "orders", "pipeline": [{"$match": {"a": 1}}, {"$sort": {"b": -1}}], "cursor": {}}"#,
        r#"{"count": "orders", "query": {"a": 1}}"#,
        r#"{"distinct": "orders", "key": "b", "query": {"a": 1}}"#,
        r#"{"update": "orders", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}, "multi": true}]}"#,
        r#"{"delete": "orders", "deletes": [{"q": {"a": 1}, "limit": 1}]}"#,
        r#"{"insert": "orders", "documents": [{"a": 1}]}"#,
        r#"{"findAndModify": "orders", "query": {"a": 1}, "update": {"$set": {"b": 1}}, "new": true}"#,
        r#"{"mapReduce": "orders", "map": "m", "reduce": "r", "query": {"a": 1}}"#,
    ]
    .map(command)
    .to_vec()
}

#[test]
fn what_a_router_puts_beside_a_command_is_not_part_of_the_query() {
    for sent in sent_by_clients() {
        let wire = on_the_wire(&with(&sent, &doc! {}));
        assert_eq!(wire.identity, Identity::Exact);
        for (version, beside) in BESIDE {
            let mut routed = with(&sent, &command(beside));
            let seen = on_the_wire(&routed);
            assert_eq!((seen.id, &seen.typed), (wire.id, &wire.typed), "{version}: {routed}");
            routed.remove("$db");
            // Writes stand in profiles by their statements.
            if sent.contains_key("update") || sent.contains_key("delete") || sent.contains_key("insert") {
                continue;
            }
            let seen = in_a_profile(&profiled("shop.orders", &routed));
            assert_eq!((seen.id, seen.identity), (wire.id, Identity::Exact), "{version}: {routed}");
        }
    }
}

/// A command as a client sends it, and as a router sends it to a shard.
const REWRITTEN: &[(&str, &str, &str)] = &[
    // `ExpressionConstant::serialize`.
    (
        "the constants of $addFields",
        r#"{"aggregate": "c", "pipeline": [{"$addFields": {"b": "x", "c": 12345, "d": true, "e": [1, 2], "f": {"g": "y",
            "h": 1}, "i": ["$a", "z"], "j": null}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$addFields": {"b": {"$const": "x"}, "c": {"$const": 12345}, "d": {"$const":
            true}, "e": [{"$const": 1}, {"$const": 2}], "f": {"g": {"$const": "y"}, "h": {"$const": 1}}, "i": ["$a",
            {"$const": "z"}], "j": {"$const": null}}}], "cursor": {}}"#,
    ),
    (
        "an array that is a constant of $set",
        r#"{"aggregate": "c", "pipeline": [{"$set": {"e": [1, 2], "f": {"$literal": {"g": 1}}}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$set": {"e": {"$const": [1, 2]}, "f": {"$const": {"g": 1}}}}], "cursor": {}}"#,
    ),
    (
        "the constants of $project",
        r#"{"aggregate": "c", "pipeline": [{"$project": {"a": "x", "b": {"$literal": 5}, "c": {"$literal": false}, "d":
            {"$literal": [1, 0]}, "e": {"$literal": {"f": 1}}, "g": 1}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$project": {"_id": true, "a": {"$const": "x"}, "b": {"$const": 5}, "c":
            {"$const": false}, "d": {"$const": [1, 0]}, "e": {"$const": {"f": 1}}, "g": true}}], "cursor": {}}"#,
    ),
    (
        "$merge by name",
        r#"{"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$merge": "t1"}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$merge": {"into": "t1"}}], "cursor": {}}"#,
    ),
    // Of a collection without a collation of its own, for each pipeline (3.6 to 8.x: `getCollation` of the router).
    (
        "the simple collation",
        r#"{"aggregate": "c", "pipeline": [{"$match": {"a": 1}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$match": {"a": 1}}], "cursor": {}, "collation": {"locale": "simple"}}"#,
    ),
    (
        "the simple collation of a statement",
        r#"{"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}}]}"#,
        r#"{"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}, "collation": {"locale": "simple"},
            "hint": {}, "arrayFilters": [], "multi": false, "upsert": false}]}"#,
    ),
    (
        "$count",
        r#"{"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$count": "n"}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$group": {"_id": {"$const": null}, "n": {"$sum":
            {"$const": 1}}}}, {"$project": {"n": true, "_id": false}}], "cursor": {}}"#,
    ),
    (
        "$count, as 3.4 writes it",
        r#"{"aggregate": "c", "pipeline": [{"$count": "n"}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": {"$const": null}, "n": {"$sum": {"$const": 1.0}}}},
            {"$project": {"_id": false, "n": true}}], "cursor": {}}"#,
    ),
    (
        "$sortByCount",
        r#"{"aggregate": "c", "pipeline": [{"$sortByCount": "$a"}, {"$limit": 5}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": "$a", "count": {"$sum": {"$const": 1}}}}, {"$sort":
            {"count": -1}}, {"$limit": 5}], "cursor": {}}"#,
    ),
    (
        "$sortByCount of an expression",
        r#"{"aggregate": "c", "pipeline": [{"$sortByCount": {"$floor": "$a"}}, {"$skip": 5}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": {"$floor": ["$a"]}, "count": {"$sum": {"$const": 1}}}},
            {"$sort": {"count": -1}}, {"$skip": 5}], "cursor": {}}"#,
    ),
    (
        "$unset of one field",
        r#"{"aggregate": "c", "pipeline": [{"$unset": "a"}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$project": {"a": false, "_id": true}}], "cursor": {}}"#,
    ),
    (
        "$unset",
        r#"{"aggregate": "c", "pipeline": [{"$unset": ["a", "b"]}, {"$limit": 5}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$project": {"b": false, "a": false, "_id": true}}, {"$limit": 5}],
            "cursor": {}}"#,
    ),
    (
        "$replaceWith of a path",
        r#"{"aggregate": "c", "pipeline": [{"$replaceWith": "$a"}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$replaceRoot": {"newRoot": "$a"}}], "cursor": {}}"#,
    ),
    (
        "$replaceWith",
        r#"{"aggregate": "c", "pipeline": [{"$replaceWith": {"$mergeObjects": ["$a", "$b"]}}, {"$limit": 5}],
            "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$replaceRoot": {"newRoot": {"$mergeObjects": ["$a", "$b"]}}}, {"$limit":
            5}], "cursor": {}}"#,
    ),
    (
        "the fields that stay",
        r#"{"aggregate": "c", "pipeline": [{"$project": {"a": 1, "b": "$x"}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$project": {"_id": true, "a": true, "b": "$x"}}], "cursor": {}}"#,
    ),
    (
        "$unwind",
        r#"{"aggregate": "c", "pipeline": [{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": false}}], "cursor":
            {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$unwind": {"path": "$a"}}], "cursor": {}}"#,
    ),
    (
        "$sort of 8.0",
        r#"{"aggregate": "c", "pipeline": [{"$sort": {"a": 1}}, {"$limit": 5}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$sort": {"a": 1, "$_internalLimit": 5, "$_internalOutputSortKeyMetadata":
            true}}, {"$limit": 5}], "cursor": {}}"#,
    ),
    (
        "expressions with one operand",
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": {"$toLower": "$a"}, "n": {"$sum": {"$abs": "$b"}}}},
            {"$project": {"x": {"$floor": "$a"}, "y": {"$size": {"$literal": [1, 2]}}}}, {"$match": {"$expr": {"$not":
            "$x"}}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": {"$toLower": ["$a"]}, "n": {"$sum": {"$abs": ["$b"]}}}},
            {"$project": {"_id": true, "x": {"$floor": ["$a"]}, "y": {"$size": [{"$const": [1, 2]}]}}}, {"$match":
            {"$expr": {"$not": ["$x"]}}}], "cursor": {}}"#,
    ),
    (
        "$cond",
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": null, "n": {"$sum": {"$cond": {"if": {"$gt": ["$a", 5]},
            "then": 1, "else": {"$abs": "$b"}}}}}}, {"$project": {"x": {"$cond": {"if": "$a", "then": 1, "else": 0}}}}],
            "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": {"$const": null}, "n": {"$sum": {"$cond": [{"$gt": ["$a",
            {"$const": 5}]}, {"$const": 1}, {"$abs": ["$b"]}]}}}}, {"$project": {"_id": true, "x": {"$cond": ["$a",
            {"$const": 1}, {"$const": 0}]}}}], "cursor": {}}"#,
    ),
    (
        "parts of dates",
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": {"y": {"$year": "$at"}, "m": {"$month": ["$at"]}}}},
            {"$addFields": {"d": {"$dayOfMonth": {"$toDate": "$x"}}}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": {"y": {"$year": {"date": "$at"}}, "m": {"$month": {"date":
            "$at"}}}}}, {"$addFields": {"d": {"$dayOfMonth": {"date": {"$toDate": "$x"}}}}}], "cursor": {}}"#,
    ),
    (
        "a find with defaults",
        r#"{"find": "c", "filter": {"a": 1}}"#,
        r#"{"find": "c", "filter": {"a": 1}, "projection": {}, "sort": {}, "hint": {}, "collation": {}, "singleBatch":
            false, "tailable": false, "min": {}, "max": {}, "returnKey": false}"#,
    ),
    (
        "a findAndModify with defaults",
        r#"{"findAndModify": "c", "query": {"a": 1}, "remove": true}"#,
        r#"{"findAndModify": "c", "query": {"a": 1}, "fields": {}, "sort": {}, "hint": {}, "collation": {}, "remove":
            true, "upsert": false, "new": false, "arrayFilters": []}"#,
    ),
    ("a count", r#"{"count": "c"}"#, r#"{"count": "c", "query": {}, "fields": {}, "limit": 0, "skip": 0}"#),
];

#[test]
fn a_query_that_a_router_rewrites_has_the_shape_that_the_client_sent() {
    for (name, sent, routed) in REWRITTEN {
        let (sent, routed) = (command(sent), command(routed));
        let wire = on_the_wire(&with(&sent, &doc! {}));
        let shard = on_the_wire(&with(&routed, &doc! {"shardVersion": [1], "fromMongos": true}));
        assert_eq!((&shard.typed, shard.id), (&wire.typed, wire.id), "{name}: {routed}");
        if routed.contains_key("update") {
            continue;
        }
        let logged = in_a_log(&format!(
            r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{{"type":"command","ns":"shop.c","command":{},"numYields":0,"reslen":38,"locks":{{}},"remote":"10.0.0.9:51234","protocol":"op_msg","durationMillis":5}}}}"#,
            serde_json::to_string(&with(&routed, &doc! {})).unwrap()
        ));
        assert_eq!((logged.id, logged.identity), (wire.id, Identity::Exact), "{name} in a log");
        let profile = in_a_profile(&profiled("shop.c", &routed));
        assert_eq!((profile.id, profile.identity), (wire.id, Identity::Exact), "{name} in a profile");
    }
}

#[test]
fn what_differs_stays_different() {
    let id = |pipeline: &str| {
        let sent = command(&format!(r#"{{"aggregate": "c", "pipeline": [{pipeline}], "cursor": {{}}}}"#));
        on_the_wire(&with(&sent, &doc! {})).id
    };
    for (one, other) in [
        (r#"{"$count": "n"}"#, r#"{"$count": "m"}"#),
        (r#"{"$merge": "t1"}"#, r#"{"$merge": "t2"}"#),
        (r#"{"$project": {"a": 1}}"#, r#"{"$project": {"a": {"$literal": 1}}}"#),
        (r#"{"$addFields": {"a": "$b"}}"#, r#"{"$addFields": {"a": {"$literal": "$b"}}}"#),
        (r#"{"$count": "n"}"#, r#"{"$group": {"_id": null, "n": {"$sum": 1}}}"#),
        (r#"{"$sortByCount": "$a"}"#, r#"{"$sortByCount": "$b"}"#),
        (r#"{"$unset": "a"}"#, r#"{"$unset": ["a", "b"]}"#),
        (r#"{"$unset": "a"}"#, r#"{"$project": {"a": 1}}"#),
        (r#"{"$replaceWith": "$a"}"#, r#"{"$replaceWith": "$b"}"#),
        (r#"{"$project": {"_id": 1}}"#, r#"{"$project": {"_id": 0}}"#),
        (r#"{"$project": {"_id": 1}}"#, r#"{"$project": {"a": 1}}"#),
        (r#"{"$project": {"_id": 0, "a": 1}}"#, r#"{"$project": {"_id": 1, "a": 1}}"#),
        (
            r#"{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": true}}"#,
            r#"{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": false}}"#,
        ),
        (
            r#"{"$group": {"_id": 1, "n": {"$push": ["$a"]}}}"#,
            r#"{"$group": {"_id": 1, "n": {"$push": "$a"}}}"#,
        ),
        (
            r#"{"$addFields": {"x": {"$year": {"date": "$a", "timezone": "$b"}}}}"#,
            r#"{"$addFields": {"x": {"$year": "$a"}}}"#,
        ),
        (r#"{"$addFields": {"x": {"$year": {"$add": "$a"}}}}"#, r#"{"$addFields": {"x": {"$year": "$a"}}}"#),
        (
            r#"{"$addFields": {"x": {"$cond": ["$a", "$b", "$c"]}}}"#,
            r#"{"$addFields": {"x": {"$cond": ["$a", "$c", "$b"]}}}"#,
        ),
        (
            r#"{"$addFields": {"x": {"$cond": ["$a", ["$b"], 0]}}}"#,
            r#"{"$addFields": {"x": {"$cond": ["$a", "$b", 0]}}}"#,
        ),
    ] {
        assert_ne!(id(one), id(other), "{one} {other}");
    }
    let find = |collation: Document| {
        on_the_wire(&doc! {"find": "c", "filter": {"a": 1}, "collation": collation, "$db": "shop"})
    };
    let simple = find(doc! {"locale": "simple"});
    assert_eq!(simple.typed, "{filter: {a: ?number}}");
    for other in [doc! {"locale": "fr"}, doc! {"locale": "en", "strength": 2}] {
        assert_ne!(find(other).id, simple.id);
    }
    assert!(find(doc! {"locale": "fr"}).typed.contains("fr"));
}

/// `$addFields` and `$set` assign values: they include nothing, and no value is shown.
#[test]
fn what_a_pipeline_assigns_is_a_value() {
    for stage in ["$set", "$addFields"] {
        let pipeline = || bson!([{stage: {"b": 12345, "c": 1, "d": true, "e": 0}}]);
        for sent in [
            doc! {"aggregate": "c", "pipeline": pipeline(), "cursor": {}, "$db": "shop"},
            doc! {"update": "c", "updates": [{"q": {"a": 1}, "u": pipeline()}], "$db": "shop"},
            doc! {"findAndModify": "c", "query": {"a": 1}, "update": pipeline(), "$db": "shop"},
            doc! {"bulkWrite": 1, "ops": [{"update": 0, "filter": {"a": 1}, "updateMods": pipeline()}],
            "nsInfo": [{"ns": "shop.c"}], "$db": "admin"},
        ] {
            let seen = on_the_wire(&sent);
            let expected = format!("[{{{stage}: {{b: ?number, c: ?number, d: ?bool, e: ?number}}}}]");
            assert!(seen.typed.contains(&expected), "{} has no {expected}", seen.typed);
        }
    }
    let target = |target: &str| {
        on_the_wire(&doc! {"aggregate": "c", "pipeline": [{"$merge": target}], "cursor": {}, "$db": "shop"})
    };
    assert!(target("t1").typed.contains("{into: 't1'}"), "{}", target("t1").typed);
}

/// Before 4.4, a router gives the results on each shard a collection of their own for each call.
#[test]
fn a_map_reduce_on_shards_is_one_shape_for_all_calls() {
    let first = |name: &str| {
        on_the_wire(
            &doc! {"mapreduce": "c", "map": "m", "reduce": "r", "out": name, "shardedFirstPass": true,
            "$db": "shop"},
        )
    };
    assert_eq!(first("tmp.mrs.c_1540000000_0"), first("tmp.mrs.c_1540000077_12"));
    assert_ne!(first("sums").id, first("totals").id);
}

/// Up to 3.0, a mongos passes the read preference on in `$queryOptions`.
#[test]
fn the_wrapper_of_an_old_router_is_not_part_of_the_query() {
    let query = |document: &Document| {
        let limits = [0_i32, 0].map(i32::to_le_bytes).concat();
        let body = [&[0; 4], b"shop.c\0".as_slice(), &limits, &document.to_vec().unwrap()].concat();
        let header = [body.len() as u32 + 16, 0, 0, 2004].map(u32::to_le_bytes);
        exchange(&[([&header.concat(), &*body].concat(), doc! {"ok": 1.0})]).seen.remove(0).id
    };
    let wire = on_the_wire(&doc! {"find": "c", "filter": {"a": 1}, "sort": {"b": 1}, "$db": "shop"});
    for extra in [
        doc! {},
        doc! {"$queryOptions": {"$readPreference": {"mode": "secondary"}}},
        doc! {"$readPreference": {"mode": "secondary"}},
        doc! {"$maxTimeMS": 500},
        doc! {"$comment": "why"},
    ] {
        let mut wrapped = doc! {"$query": {"a": 1}, "$orderby": {"b": 1}};
        wrapped.extend(extra);
        assert_eq!(query(&wrapped), wire.id, "{wrapped}");
    }
}

/// Of the parts of a bulkWrite, each shard gets its own.
#[test]
fn a_bulk_write_on_a_shard_is_that_of_the_client() {
    let ops = bson!([{"update": 0, "filter": {"a": 1}, "updateMods": {"$set": {"b": 1}}, "multi": false}]);
    let sent = doc! {"bulkWrite": 1, "ops": ops.clone(), "nsInfo": [{"ns": "shop.c"}], "$db": "admin"};
    let routed = doc! {"bulkWrite": 1, "ops": ops, "nsInfo": [{"ns": "shop.c", "shardVersion": {"v": 1},
    "databaseVersion": {"v": 1}, "isTimeseriesNamespace": false}], "errorsOnly": true, "originalQuery": {"a": 1},
    "stmtIds": [1], "bypassDocumentValidation": false, "$db": "admin"};
    let (sent, routed) = (on_the_wire(&sent), on_the_wire(&routed));
    assert_eq!((routed.id, routed.namespace), (sent.id, sent.namespace));
}

/// What a mongos makes of a pipeline before it sends it to the shards.
#[test]
fn what_a_router_adds_is_not_part_of_the_query() {
    let id = |pipeline: Vec<Document>| {
        on_the_wire(&doc! {"aggregate": "orders", "pipeline": pipeline, "cursor": {}, "$db": "shop"}).id
    };
    let group = |extra: Document, two: bson::Bson, list: bson::Bson| {
        let mut group = doc! {"_id": "$city", "n": {"$sum": {"$multiply": ["$price", two]}},
        "k": {"$sum": {"$cond": [{"$in": ["$state", list]}, 1, 0]}}};
        group.extend(extra);
        vec![doc! {"$group": group}]
    };
    let list = || bson::bson!(["a", "b"]);
    let sent = id(group(doc! {}, bson::bson!(2), list()));
    for extra in [doc! {"$willBeMerged": true}, doc! {"$willBeMerged": false}, doc! {"$doingMerge": true}] {
        assert_eq!(id(group(extra, bson::bson!(2), list())), sent);
    }
    for constant in ["$const", "$literal"] {
        assert_eq!(
            id(group(doc! {}, bson::bson!({constant: 2}), bson::bson!({constant: list()}))),
            sent,
            "{constant}"
        );
    }
    // A literal is no path.
    assert_ne!(
        id(group(doc! {}, bson::bson!("$two"), list())),
        id(group(doc! {}, bson::bson!({"$literal": "$two"}), list()))
    );
    let project = |constant: &str| vec![doc! {"$project": {"a": {constant: "x"}}}];
    assert_eq!(id(project("$const")), id(project("$literal")));
    let unwind = |value: bson::Bson| vec![doc! {"$unwind": value}];
    assert_eq!(id(unwind(bson::bson!({"path": "$tags"}))), id(unwind(bson::bson!("$tags"))));
    assert_ne!(id(unwind(bson::bson!("$names"))), id(unwind(bson::bson!("$tags"))));
    // Of a find with a sort, a router asks its shards for the keys.
    let mut find = doc! {"find": "orders", "filter": {"a": 1}, "sort": {"b": 1}, "$db": "shop"};
    let sorted = on_the_wire(&find);
    find.insert("projection", doc! {"$sortKey": {"$meta": "sortKey"}});
    assert_eq!(on_the_wire(&find), sorted);
    find.insert("projection", doc! {"c": 1, "$sortKey": {"$meta": "sortKey"}});
    let with_keys = on_the_wire(&find);
    find.insert("projection", doc! {"c": 1});
    assert_eq!(on_the_wire(&find), with_keys);
    let add = |value: bson::Bson| vec![doc! {"$addFields": {"a": {"$concat": ["$b", value]}}}];
    assert_eq!(id(add(bson::bson!({"$const": "x"}))), id(add(bson::bson!("x"))));
}
