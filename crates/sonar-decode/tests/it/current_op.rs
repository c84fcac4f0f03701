//! Operations in flight, in each form in which people save them.

use sonar_core::{CurrentOperation, CurrentOperations, CurrentWait, Identity};
use sonar_decode::current_op::{CurrentOpReader, is_current};
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_decode::top_level::TopFields;

fn read(text: &str) -> CurrentOperations {
    let (mut reader, mut documents) = (CurrentOpReader::default(), Documents::default());
    let mut rest = text.as_bytes();
    while let Some(found) = documents.next(&mut rest) {
        match found {
            FoundDocument::Document(document) => {
                assert!(is_current(&TopFields::of_text(document)), "{text}");
                reader.document(document);
            }
            FoundDocument::Broken => reader.broken(),
        }
    }
    assert!(!documents.is_cut(), "{text}");
    reader.finish()
}

/// With the fields of the manual's pages on `currentOp` and `$currentOp`.
const UPDATE: &str = r#"{"type":"op","host":"db1:27017","desc":"conn42","connectionId":42,"client":"10.0.0.9:51234","appName":"shop-api","active":true,"currentOpTime":"2026-05-01T10:00:00.120+00:00","effectiveUsers":[{"user":"alice","db":"admin"}],"opid":4711,"secs_running":{"$numberLong":"312"},"microsecs_running":{"$numberLong":"312000007"},"op":"update","ns":"shop.orders","command":{"q":{"st":1},"u":{"$set":{"a":2}},"multi":true,"upsert":false},"planSummary":"COLLSCAN","numYields":17,"locks":{"Global":"w"},"waitingForLock":true,"waitingForFlowControl":false,"lockStats":{"Global":{"acquireCount":{"w":{"$numberLong":"3"}},"timeAcquiringMicros":{"w":{"$numberLong":"5000"}}}}}"#;

fn check(one: &CurrentOperation) {
    assert_eq!((&*one.command, one.shape.namespace().as_str()), ("update", "shop.orders"));
    assert_eq!((one.age_us, one.yields, one.lock_wait_us), (Some(312_000_007), Some(17), Some(5_000)));
    assert_eq!((&*one.id, &*one.thread, &*one.client), ("4711", "conn42", "10.0.0.9:51234"));
    assert_eq!((&*one.app, &*one.plan), ("shop-api", "COLLSCAN"));
    assert_eq!(one.waits, [CurrentWait::Lock]);
    // From `date -d 2026-05-01T10:00:00.120Z +%s%3N`.
    assert_eq!(one.at.unwrap().unix_ns(), 1_777_629_600_120_000_000);
}

#[test]
fn each_form_gives_the_same_operation() {
    let shell = UPDATE.replace(r#"{"$numberLong":"312"}"#, "NumberLong(312)");
    let pretty = shell.replace("{", "{\n\t").replace(",\"", ",\n\t\"");
    for text in [
        UPDATE.to_owned(),
        format!("[{UPDATE}]"),
        format!("{{\"inprog\":[{UPDATE}],\"ok\":1}}"),
        format!("{{\n\t\"inprog\" : [\n\t\t{pretty}\n\t],\n\t\"ok\" : 1\n}}"),
        format!("{{ inprog: [ {shell} ], ok: 1 }}"),
        format!(
            "{{\"cursor\":{{\"firstBatch\":[{UPDATE}],\"id\":0,\"ns\":\"admin.$cmd.aggregate\"}},\"ok\":1}}"
        ),
    ] {
        let current = read(&text);
        assert_eq!((current.operations.len(), current.idle, current.malformed), (1, 0, 0), "{text}");
        check(&current.operations[0]);
        assert_eq!(current.operations[0].identity, Identity::Exact, "{text}");
        assert_eq!(
            &*current.operations[0].shape.typed,
            "{q: {st: ?number}, u: {$set: {a: ?number}}, multi: true}"
        );
    }
    // JSON.stringify of mongosh.
    let lost =
        UPDATE.replace(r#"{"$numberLong":"312000007"}"#, r#"{"low":312000007,"high":0,"unsigned":false}"#);
    let current = read(&format!("[{lost}]"));
    check(&current.operations[0]);
    assert_eq!(current.operations[0].identity, Identity::Partial);
}

/// From 4.2 on, the command that opened the cursor is inside `cursor`.
#[test]
fn a_get_more_has_the_shape_of_the_command_that_opened_its_cursor_or_none() {
    let one = |more: &str| {
        read(&format!(
            r#"[{{"type":"op","active":true,"opid":7,"op":"getmore","ns":"shop.orders","command":{{"getMore":{{"$numberLong":"9"}},"collection":"orders","$db":"shop"}},"secs_running":3{more},"numYields":5}}]"#
        ))
        .operations
        .remove(0)
    };
    let origin = r#""originatingCommand":{"find":"orders","filter":{"a":7,"b":{"$gt":1}},"$db":"shop"}"#;
    let known = [
        format!(r#","cursor":{{"cursorId":{{"$numberLong":"9"}},{origin},"tailable":false,"numYields":8}}"#),
        format!(r#","cursor":{{{origin}}},"planSummary":"COLLSCAN""#),
        format!(",{origin}"),
    ];
    for more in known {
        let seen = one(&more);
        assert_eq!((&*seen.command, seen.identity), ("getMore", Identity::Exact), "{more}");
        assert_eq!(&*seen.shape.typed, "{filter: {a: ?number, b: {$gt: ?number}}}", "{more}");
        assert_eq!((&*seen.shape.namespace(), seen.yields), ("shop.orders", Some(5)), "{more}");
    }
    let cut =
        one(r#","cursor":{"originatingCommand":{"$truncated":"{ find: \"orders\", filter: { a: 7, b: 1"}}"#);
    assert_eq!(cut.identity, Identity::Partial);
    for more in ["", r#","cursor":{"cursorId":{"$numberLong":"9"},"command":{"find":"other"}}"#] {
        let seen = one(more);
        assert_eq!((&*seen.command, seen.identity), ("getMore", Identity::Unknown), "{more}");
    }
    // As mongosh prints it.
    let printed = read(
        "{ inprog: [ { type: 'op', active: true, opid: 4707, secs_running: Long('312'), op: 'getmore', ns: 'shop.orders', \
         command: { getMore: Long('5'), collection: 'orders', '$db': 'shop' }, cursor: { cursorId: Long('5'), \
         originatingCommand: { find: 'orders', filter: { a: /x/i }, '$db': 'shop' } }, numYields: 3 } ], ok: 1 }",
    );
    let printed = &printed.operations[0];
    assert_eq!(
        (printed.identity, &*printed.shape.typed),
        (Identity::Exact, "{filter: {a: {$regex: ?regex}}}")
    );
}

#[test]
fn waits_progress_and_idle_entries_are_told_apart() {
    let one = |more: &str| {
        format!(
            r#"{{"type":"op","active":true,"opid":"rs1:7","op":"command","ns":"shop.$cmd","command":{{"find":"orders","filter":{{}},"$db":"shop"}},"secs_running":3{more}}}"#
        )
    };
    let all = [
        one(
            r#","waitingForLatch":{"timestamp":{"$date":"2026-05-01T10:00:00Z"},"captureName":"ServiceExecutor::_mutex"}"#,
        ),
        one(r#","waitingForFlowControl":true"#),
        one(r#","currentQueue":{"name":"execution","timeQueuedMicros":5}"#),
        one(r#","msg":"Index Build","progress":{"done":25,"total":100},"killPending":true"#),
        r#"{"type":"idleSession","active":false,"opid":1}"#.to_owned(),
        r#"{"type":"op","active":false,"opid":2,"desc":"conn1"}"#.to_owned(),
        one(r#","desc":"a <b>""#),
    ];
    let current = read(&format!("{{\"inprog\":[{}],\"ok\":1}}", all.join(",")));
    assert_eq!((current.operations.len(), current.idle), (5, 2));
    let waits: Vec<_> = current.operations.iter().map(|one| one.waits.clone()).collect();
    assert_eq!(waits[0], [CurrentWait::Latch("ServiceExecutor::_mutex".into())]);
    assert_eq!(waits[1], [CurrentWait::FlowControl]);
    assert_eq!(waits[2], [CurrentWait::Queue("execution".into())]);
    let index = &current.operations[3];
    assert_eq!((index.progress, index.is_killed, index.age_us), (Some((25, 100)), true, Some(3_000_000)));
    assert_eq!((&*current.operations[4].thread, &*index.id), ("?", "rs1:7"));
    assert_eq!(current.waiting(|wait| matches!(wait, CurrentWait::Latch(_))), 1);
}

#[test]
fn no_cut_document_makes_it_panic() {
    for end in 0..UPDATE.len() {
        let mut reader = CurrentOpReader::default();
        reader.document(&UPDATE.as_bytes()[..end]);
        reader.document(format!("{{\"inprog\":[{}", &UPDATE[..end]).as_bytes());
        assert!(reader.finish().operations.is_empty());
    }
}

/// The document of `text` as BSON.
fn bson(text: &str) -> Vec<u8> {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    let plain = |value: &serde_json::Value| match value.get("$numberLong") {
        Some(number) => bson::Bson::Int64(number.as_str().unwrap().parse().unwrap()),
        None => bson::serialize_to_bson(value).unwrap(),
    };
    let document: bson::Document =
        value.as_object().unwrap().iter().map(|(key, value)| (key.clone(), plain(value))).collect();
    document.to_vec().unwrap()
}

#[test]
fn bson_gives_the_same_operations() {
    let operation = bson::Document::from_reader(bson(UPDATE).as_slice()).unwrap();
    let idle = bson::doc! {"type": "idleSession", "active": false, "opid": 1};
    for document in [
        operation.clone(),
        bson::doc! {"inprog": [operation.clone()], "ok": 1},
        bson::doc! {"cursor": {"firstBatch": [operation.clone()], "id": 0i64, "ns": "admin.$cmd.aggregate"}, "ok": 1},
    ] {
        let bytes = document.to_vec().unwrap();
        assert!(is_current(&TopFields::of_bson(&bytes)), "{document}");
        let mut reader = CurrentOpReader::default();
        reader.bson(&bytes);
        reader.bson(&bson::doc! {"inprog": [idle.clone()]}.to_vec().unwrap());
        reader.bson(b"\x05\0\0\0\x01");
        let current = reader.finish();
        assert_eq!((current.operations.len(), current.idle, current.malformed), (1, 1, 1), "{document}");
        check(&current.operations[0]);
        assert_eq!(
            &*current.operations[0].shape.typed,
            "{q: {st: ?number}, u: {$set: {a: ?number}}, multi: true}"
        );
    }
}

#[test]
fn an_operation_with_such_a_field_in_its_filter_is_one_operation() {
    let filter =
        UPDATE.replace(r#""q":{"st":1}"#, r#""q":{"inprog":[{"opid":1}],"cursor":{"firstBatch":[]}}"#);
    let current = read(&format!("[{filter}]"));
    assert_eq!((current.operations.len(), current.idle, current.malformed), (1, 0, 0));
    let entry = r#"{"op":"query","ns":"a.b","command":{"filter":{"opid":7,"active":true,"inprog":[1]}}}"#;
    assert!(!is_current(&TopFields::of_text(entry.as_bytes())));
}

#[test]
fn whole_operations_before_a_cut_are_read() {
    for text in [
        format!("{{\"inprog\":[{UPDATE},{}", &UPDATE[..80]),
        format!("{{\"cursor\":{{\"firstBatch\":[{UPDATE},{UPDATE}"),
    ] {
        let (mut reader, mut documents) = (CurrentOpReader::default(), Documents::default());
        assert_eq!(documents.next(&mut text.as_bytes()), None);
        reader.cut(documents.unfinished());
        let current = reader.finish();
        assert_eq!(current.operations.len(), text.matches(",\"op\":").count(), "{text}");
        check(&current.operations[0]);
    }
}
