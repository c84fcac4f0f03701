//! The namespace and the shape of commands that name their collection, or say what failed, in a place of their own: on
//! the wire, in profiles and in logs.

use std::sync::Arc;

use bson::{Document, doc};
use sonar_core::command_types::CommandType;
use sonar_core::window::WindowSettings;
use sonar_core::{Class, Execution, Identity, Operation, Outcome, Role, Timestamp, Window};
use sonar_decode::log::{LogReader, LogSettings};
use sonar_decode::profile::Profile;
use sonar_decode::testing::{Conversation, ConversationEnd, op_msg};
use sonar_decode::{Decoder, Settings, Shared, Sink, entry};

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    command: String,
    pub namespace: String,
    pub typed: String,
    pub id: u64,
    pub identity: Identity,
    statements: u32,
    codes: Vec<(i32, u32)>,
    returned: Option<u64>,
    matched: Option<u64>,
    affected: Option<u64>,
}

impl Seen {
    fn of(op: &Operation<'_>, identity: Identity) -> Self {
        Self {
            command: op.command.into(),
            namespace: op.shape.namespace(),
            typed: op.shape.typed.to_string(),
            id: op.shape.id.0,
            identity,
            statements: op.statement_count,
            codes: match op.outcome {
                Outcome::Failed(errors) => errors.codes.to_vec(),
                _ => Vec::new(),
            },
            returned: op.docs_returned,
            matched: op.docs_matched,
            affected: op.docs_affected,
        }
    }
}

pub struct All {
    pub seen: Vec<Seen>,
    window: Window,
    over_cap: u64,
}

impl Default for All {
    fn default() -> Self {
        let settings = WindowSettings { sample: 1, split_by_order: false, ..WindowSettings::default() };
        Self { seen: Vec::new(), window: Window::new(Timestamp::default(), settings), over_cap: 0 }
    }
}

impl Sink for All {
    fn operation(&mut self, op: &Operation<'_>) {
        self.seen.push(Seen::of(op, op.shape.identity()));
        self.window.record(op);
    }
}

impl entry::EntrySink for All {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, _: &Execution<'_>, _: u64) {
        self.seen.push(Seen::of(op, identity));
    }
}

/// Sends commands, each with its reply, on one connection.
pub fn exchange(messages: &[(Vec<u8>, Document)]) -> All {
    let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    talk.handshake();
    for (id, (request, reply)) in (1..).zip(messages) {
        let mut request = request.clone();
        request[4..8].copy_from_slice(&u32::to_le_bytes(id));
        talk.send(ConversationEnd::Client, &request);
        talk.send(ConversationEnd::Server, &op_msg(1_000 + id, id, &reply.to_vec().unwrap()));
    }
    let (mut decoder, mut all) =
        (Decoder::new(Settings::default(), Arc::new(Shared::default())), All::default());
    for packet in &talk.packets {
        decoder.packet(&packet.as_packet(), &mut all);
    }
    decoder.finish(talk.now(), &mut all);
    all.over_cap = decoder.coverage().shapes_over_cap;
    assert_eq!(all.seen.len(), messages.len());
    all
}

pub fn message(command: &Document) -> Vec<u8> {
    op_msg(0, 0, &command.to_vec().unwrap())
}

pub fn on_the_wire(command: &Document) -> Seen {
    exchange(&[(message(command), doc! {"ok": 1.0})]).seen.remove(0)
}

pub fn in_a_profile(document: &Document) -> Seen {
    let (mut profile, mut all) = (Profile::default(), All::default());
    profile.document(&document.to_vec().unwrap(), &mut all);
    assert_eq!(all.seen.len(), 1, "{document}");
    all.seen.remove(0)
}

pub fn in_a_log(line: &str) -> Seen {
    let (mut log, mut all) = (LogReader::new(LogSettings::default()), All::default());
    log.line(line.as_bytes(), &mut all);
    log.finish(&mut all);
    assert_eq!(all.seen.len(), 1, "{line}");
    all.seen.remove(0)
}

/// A profile document of a command, as 2.4 to 4.0 write it.
pub fn profiled(namespace: &str, command: &Document) -> Document {
    doc! {"op": "command", "ns": namespace, "command": command, "millis": 5, "ts": bson::DateTime::from_millis(0)}
}

#[test]
fn a_group_has_its_collection_and_its_shape_in_every_source() {
    let group = |ns: &str, key: &str, condition: &str| {
        let inner = doc! {"ns": ns, "key": {key: 1}, "cond": {condition: {"$gt": 5}},
        "$reduce": bson::Bson::JavaScriptCode("function(a, b) { b.n++; }".into()), "initial": {"n": 0}};
        doc! {"group": inner}
    };
    let orders = group("orders", "shop", "at");
    let mut sent = orders.clone();
    sent.insert("$db", "shop");
    let wire = on_the_wire(&sent);
    assert_eq!(wire.namespace, "shop.orders");
    assert_eq!(wire.typed, "{key: {shop: 1}, cond: {at: {$gt: ?number}}}");
    assert_eq!(wire.identity, Identity::Exact);
    // 2.4 has `$cmd` as the collection, 4.0 the real one.
    for namespace in ["shop.$cmd", "shop.orders"] {
        let seen = in_a_profile(&profiled(namespace, &orders));
        assert_eq!((seen.id, &seen.namespace, seen.identity), (wire.id, &wire.namespace, Identity::Exact));
    }
    let line = "2018-05-01T10:00:00.120+0000 I COMMAND  [conn7] command shop.orders command: group { group: { \
                ns: \"orders\", key: { shop: 1.0 }, cond: { at: { $gt: 5.0 } }, $reduce: function(a, b) { b.n++; }, \
                initial: { n: 0.0 } } } planSummary: COLLSCAN keysExamined:0 docsExamined:9 numYields:0 reslen:80 \
                locks:{} protocol:op_msg 5ms";
    let logged = in_a_log(line);
    assert_eq!(logged.namespace, "shop.orders");
    // Code in this place cannot be read for certain.
    assert!(logged.id == wire.id || logged.identity != Identity::Exact, "{logged:?}");
    let explained =
        on_the_wire(&doc! {"explain": orders.clone(), "verbosity": "queryPlanner", "$db": "shop"});
    assert_eq!((explained.command.as_str(), explained.namespace.as_str()), ("explain", "shop.orders"));
    assert_eq!(explained.typed, wire.typed);
    for other in [group("items", "shop", "at"), group("orders", "city", "at"), group("orders", "shop", "age")]
    {
        let seen = in_a_profile(&profiled("shop.$cmd", &other));
        assert_eq!(seen.identity, Identity::Exact);
        assert_ne!(seen.id, wire.id, "{other}");
    }
}

/// The places are those that the server's `jstests/core/commands_namespace_parsing.js` tries.
#[test]
fn each_command_is_on_the_namespace_that_it_names() {
    for (command, expected) in [
        (doc! {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}, "$db": "admin"}, "admin"),
        (
            doc! {"aggregate": "orders", "pipeline": [{"$out": "sums"}], "cursor": {}, "$db": "shop"},
            "shop.orders",
        ),
        (
            doc! {"mapReduce": "orders", "map": "m", "reduce": "r", "out": {"merge": "sums"}, "$db": "shop"},
            "shop.orders",
        ),
        (doc! {"explain": {"count": "orders"}, "$db": "shop"}, "shop.orders"),
        (doc! {"renameCollection": "shop.orders", "to": "shop.old", "$db": "admin"}, "shop.orders"),
        (doc! {"moveChunk": "shop.orders", "find": {"_id": 1}, "to": "s1", "$db": "admin"}, "shop.orders"),
        (doc! {"split": "shop.orders", "middle": {"_id": 1}, "$db": "admin"}, "shop.orders"),
        (doc! {"shardCollection": "shop.orders", "key": {"_id": 1}, "$db": "admin"}, "shop.orders"),
        (doc! {"mergeChunks": "shop.orders", "bounds": [], "$db": "admin"}, "shop.orders"),
        (doc! {"reshardCollection": "shop.orders", "key": {"a": 1}, "$db": "admin"}, "shop.orders"),
        (doc! {"cleanupOrphaned": "shop.orders", "$db": "admin"}, "shop.orders"),
        (doc! {"dataSize": "shop.orders", "$db": "shop"}, "shop.orders"),
        (doc! {"enableSharding": "shop", "$db": "admin"}, "shop"),
        (doc! {"movePrimary": "shop", "to": "s1", "$db": "admin"}, "shop"),
        (doc! {"flushRouterConfig": "shop.orders", "$db": "admin"}, "shop.orders"),
        (doc! {"flushRouterConfig": "shop", "$db": "admin"}, "shop"),
        (doc! {"flushRouterConfig": 1, "$db": "admin"}, "admin"),
        (doc! {"mapreduce.shardedfinish": {"mapreduce": "orders"}, "$db": "shop"}, "shop"),
        (doc! {"filemd5": 7, "root": "photos", "$db": "shop"}, "shop.photos.chunks"),
        (doc! {"filemd5": 7, "$db": "shop"}, "shop.fs.chunks"),
        (doc! {"getMore": 5_i64, "collection": "orders", "$db": "shop"}, "shop.orders"),
        (doc! {"dbCheck": "orders", "$db": "shop"}, "shop.orders"),
        (doc! {"createUser": "ann", "pwd": "x", "roles": [], "$db": "shop"}, "shop"),
        (doc! {"planCacheClear": "orders", "query": {"a": 1}, "$db": "shop"}, "shop.orders"),
        (doc! {"text": "orders", "search": "coffee", "$db": "shop"}, "shop.orders"),
        (doc! {"setAllowMigrations": "shop.orders", "allowMigrations": false, "$db": "admin"}, "shop.orders"),
        (doc! {"_shardsvrParticipantBlock": "orders", "blockType": "Unblock", "$db": "shop"}, "shop.orders"),
        (doc! {"_clusterQueryWithoutShardKey": 1, "writeCmd": {"delete": "orders"}, "$db": "shop"}, "shop"),
        (doc! {"streams_getStats": "", "name": "one", "$db": "admin"}, "admin"),
    ] {
        let seen = on_the_wire(&command);
        assert_eq!(seen.namespace, expected, "{command}");
        assert_eq!(seen.identity, Identity::Exact, "{command}");
        let mut body = command.clone();
        let database = body.remove("$db").unwrap();
        if !command.contains_key("getMore") {
            let namespace = format!("{}.$cmd", database.as_str().unwrap());
            let profiled = in_a_profile(&profiled(&namespace, &body));
            assert_eq!((profiled.id, profiled.namespace), (seen.id, seen.namespace), "{command}");
        }
    }
}

/// OP_QUERY on `$cmd`, as drivers send it to a mongos with a read preference.
#[test]
fn a_command_in_a_wrapper_of_the_old_protocol_is_that_command() {
    let distinct = doc! {"distinct": "orders", "key": "city", "query": {"a": 1}};
    let mut modern = distinct.clone();
    modern.insert("$db", "shop");
    let wire = on_the_wire(&modern);
    for name in ["$query", "query"] {
        let wrapped = doc! {name: distinct.clone(), "$readPreference": {"mode": "nearest"}}.to_vec().unwrap();
        let limits = [0_i32, -1].map(i32::to_le_bytes).concat();
        let body = [&[0; 4], b"shop.$cmd\0".as_slice(), &limits, &wrapped].concat();
        let header = [body.len() as u32 + 16, 0, 0, 2004].map(u32::to_le_bytes);
        let seen = exchange(&[([&header.concat(), &*body].concat(), doc! {"ok": 1.0})]).seen.remove(0);
        assert_eq!(
            (seen.id, seen.namespace.as_str(), seen.typed),
            (wire.id, "shop.orders", wire.typed.clone())
        );
    }
}

#[test]
fn commands_with_a_query_beside_them_have_its_shape() {
    for (one, other) in [
        (
            doc! {"geoNear": "places", "near": [1, 2], "query": {"type": "a"}},
            doc! {"geoNear": "places", "near": [1, 2], "query": {"age": 1}},
        ),
        (
            doc! {"listCollections": 1, "filter": {"name": "a"}},
            doc! {"listCollections": 1, "filter": {"type": "a"}},
        ),
        (doc! {"planCacheClear": "c", "query": {"a": 1}}, doc! {"planCacheClear": "c", "query": {"b": 1}}),
        (
            doc! {"text": "c", "search": "x", "filter": {"a": 1}},
            doc! {"text": "c", "search": "x", "filter": {"b": 1}},
        ),
    ] {
        let id = |command: &Document| in_a_profile(&profiled("shop.$cmd", command)).id;
        assert_ne!(id(&one), id(&other), "{one}");
    }
}

#[test]
fn a_command_that_no_server_has_is_never_exact() {
    let command = doc! {"findPeople": "people", "where": {"a": 1}, "$db": "shop"};
    let wire = on_the_wire(&command);
    assert_eq!((wire.namespace.as_str(), wire.typed.as_str()), ("shop", "?"));
    assert_eq!(wire.identity, Identity::Partial);
    let profiled = in_a_profile(&profiled("shop.$cmd", &command));
    assert_eq!((profiled.id, profiled.identity), (wire.id, Identity::Partial));
    let line = r#"{"t":{"$date":"2026-05-01T10:00:00.120+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{"type":"command","ns":"shop.$cmd","command":{"findPeople":"people","where":{"a":1},"$db":"shop"},"numYields":0,"reslen":38,"locks":{},"remote":"10.0.0.9:51234","protocol":"op_msg","durationMillis":5}}"#;
    let logged = in_a_log(line);
    assert_eq!((logged.id, logged.identity), (wire.id, Identity::Partial));
}

/// A bulkWrite as a driver sends it: sections of operations and namespaces.
fn bulk_write(operations: &[Document], namespaces: &[&str]) -> Vec<u8> {
    let body = doc! {"bulkWrite": 1, "errorsOnly": true, "ordered": false, "$db": "admin"}.to_vec().unwrap();
    let section = |name: &str, documents: Vec<Document>| {
        let documents: Vec<u8> = documents.iter().flat_map(|one| one.to_vec().unwrap()).collect();
        let length = (4 + name.len() + 1 + documents.len()) as u32;
        [&[1], &length.to_le_bytes()[..], name.as_bytes(), &[0], &documents].concat()
    };
    let names = namespaces.iter().map(|name| doc! {"ns": *name}).collect();
    let sections = [section("ops", operations.to_vec()), section("nsInfo", names)].concat();
    let content = [&[0; 5], &*body, &sections].concat();
    let header = [content.len() as u32 + 16, 0, 0, 2013].map(u32::to_le_bytes);
    [&header.concat(), &*content].concat()
}

/// The reply of mongod 8.0: the cursor first, then the counts in this order, then `ok`.
fn bulk_reply(results: &[Document], counts: [i32; 6]) -> Document {
    let [errors, inserted, matched, modified, upserted, deleted] = counts;
    doc! {
        "cursor": {"id": 0_i64, "firstBatch": results, "ns": "admin.$cmd.bulkWrite"},
        "nErrors": errors, "nInserted": inserted, "nMatched": matched, "nModified": modified,
        "nUpserted": upserted, "nDeleted": deleted, "ok": 1.0,
    }
}

fn insert(namespace: i32) -> Document {
    doc! {"insert": namespace, "document": {"_id": 1}}
}

fn duplicate(index: i32) -> Document {
    doc! {"ok": 0.0, "idx": index, "code": 11000, "errmsg": "E11000 duplicate key error", "keyPattern": {"_id": 1},
    "keyValue": {"_id": 1}, "n": 0}
}

#[test]
fn a_bulk_write_is_on_the_namespaces_of_its_statements() {
    let update = doc! {"update": 0, "filter": {"a": 1}, "updateMods": {"$set": {"b": 1}}, "multi": false};
    let ok = || bulk_reply(&[], [0, 1, 0, 0, 0, 0]);
    let one = bulk_write(&[insert(0), update.clone()], &["shop.orders"]);
    let alone = bulk_write(std::slice::from_ref(&update), &["shop.orders"]);
    let two = bulk_write(&[update, insert(1), insert(1)], &["shop.orders", "shop.items"]);
    let far = bulk_write(&[insert(0), insert(1)], &["shop.orders", "stats.daily"]);
    let seen = exchange(&[(one, ok()), (alone, ok()), (two, ok()), (far, ok())]).seen;
    let texts: Vec<_> = seen.iter().map(|seen| (seen.namespace.as_str(), seen.typed.as_str())).collect();
    let update = "{update: {filter: {a: ?number}, updateMods: {$set: {b: ?number}}}}";
    assert_eq!(
        texts,
        [
            ("shop.orders", format!("[{{insert: {{}}}}; {update}]").as_str()),
            ("shop.orders", update),
            ("shop", format!("[shop.items {{insert: {{}}}}; shop.orders {update}]").as_str()),
            ("admin", "[shop.orders {insert: {}}; stats.daily {insert: {}}]"),
        ]
    );
    assert_eq!(seen.iter().map(|seen| seen.statements).collect::<Vec<_>>(), [2, 1, 3, 2]);
}

/// A line of a log of 8.0.
fn slow(of: &str, namespace: &str, command: &str, second: u32) -> String {
    format!(
        r#"{{"t":{{"$date":"2026-05-01T10:00:{second:02}.000+00:00"}},"s":"I","c":"WRITE","id":51803,"ctx":"conn7","msg":"Slow query","attr":{{"type":"{of}","ns":"{namespace}","command":{command},"docsExamined":100,"nModified":1,"durationMillis":300}}}}"#
    )
}

#[test]
fn a_statement_of_a_bulk_write_has_the_shape_of_one_with_it_alone() {
    let update = doc! {"update": 0, "filter": {"a": 1}, "updateMods": {"$set": {"b": 1}}, "multi": false};
    let pipeline = vec![doc! {"$set": {"b": 1}}];
    let update_all =
        doc! {"update": 0, "filter": {"a": 1}, "updateMods": pipeline, "multi": true, "upsert": true};
    let [delete, delete_one] =
        [true, false].map(|multi| doc! {"delete": 0, "filter": {"a": 1}, "multi": multi});
    let sent = [insert(0), update.clone(), delete.clone(), update, update_all, delete, delete_one];
    let wire = exchange(&sent.map(|one| {
        let reply = bulk_reply(&[], [0, 1, 0, 0, 0, 0]);
        (bulk_write(std::slice::from_ref(&one), &["shop.orders"]), reply)
    }));
    // As the server writes them: several inserts together, and the index of a list that is not there.
    let written = [
        doc! {"insert": 3, "documents": [{"a": 10}, {"a": 11}]},
        doc! {"update": 1, "filter": {"a": 2}, "multi": false, "updateMods": {"$set": {"b": 2}}, "upsert": false},
        doc! {"delete": 2, "filter": {"a": 2}, "multi": true},
        // In the form of an update and of a delete.
        doc! {"q": {"a": 2}, "u": {"$set": {"b": 2}}, "multi": false, "upsert": false},
        doc! {"q": {"a": 2}, "u": [{"$set": {"b": 2}}], "multi": true, "upsert": true},
        doc! {"q": {"a": 2}, "limit": 0},
        doc! {"q": {"a": 2}, "limit": 1},
    ];
    for (sent, command) in wire.seen.iter().zip(written) {
        let document = doc! {"op": "bulkWrite", "ns": "shop.orders", "command": &command, "millis": 5};
        let line = slow("bulkWrite", "shop.orders", &serde_json::to_string(&command).unwrap(), 0);
        for found in [in_a_profile(&document), in_a_log(&line)] {
            assert_eq!((found.id, found.identity), (sent.id, Identity::Exact), "{command}");
            assert_eq!((&found.namespace, &found.typed), (&sent.namespace, &sent.typed));
        }
    }
}

#[test]
fn statements_of_a_bulk_write_in_a_log_are_one_operation_with_their_command() {
    let ops = [
        doc! {"update": 0, "filter": {"a": 1}, "updateMods": {"$set": {"b": 1}}},
        doc! {"delete": 1, "filter": {"c": 1}, "multi": true},
    ];
    let wire =
        exchange(&[(bulk_write(&ops, &["shop.orders", "shop.items"]), bulk_reply(&[], [0, 0, 1, 1, 0, 1]))]);
    let namespaces = [doc! {"ns": "shop.orders"}, doc! {"ns": "shop.items"}];
    let whole = doc! {"bulkWrite": 1, "ops": ops.to_vec(), "nsInfo": namespaces.to_vec(), "$db": "admin"};
    let without = doc! {"bulkWrite": 1, "nsInfo": namespaces.to_vec(), "$db": "admin"};
    let update =
        r#"{"update":0,"filter":{"a":1},"multi":false,"updateMods":{"$set":{"b":1}},"upsert":false}"#;
    let delete = r#"{"delete":1,"filter":{"c":1},"multi":true}"#;
    for command in [whole, without] {
        let (mut log, mut all) = (LogReader::new(LogSettings::default()), All::default());
        let command = serde_json::to_string(&command).unwrap();
        for line in [
            slow("bulkWrite", "shop.orders", update, 1),
            slow("bulkWrite", "shop.items", delete, 1),
            slow("command", "admin.$cmd", &command, 1),
        ] {
            log.line(line.as_bytes(), &mut all);
        }
        log.finish(&mut all);
        assert_eq!(all.seen.len(), 1, "{command}");
        assert_eq!(all.seen[0].id, wire.seen[0].id, "{command}");
    }
}

#[test]
fn namespaces_of_a_bulk_write_beyond_the_cap_are_not_taken_for_others() {
    let names: Vec<String> = (0..300).map(|index| format!("shop.c{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let of = |index: i32| bulk_write(&[insert(index)], &names);
    let ok = || bulk_reply(&[], [0, 1, 0, 0, 0, 0]);
    let all = exchange(&[(of(255), ok()), (of(256), ok()), (of(299), ok())]);
    let namespaces: Vec<_> = all.seen.iter().map(|seen| seen.namespace.as_str()).collect();
    assert_eq!(namespaces, ["shop.c255", "admin", "admin"]);
    assert_eq!(all.over_cap, 3, "they are counted");
    let alone = exchange(&[(bulk_write(&[insert(0)], &["shop.c255"]), ok())]);
    assert_eq!(alone.seen[0].id, all.seen[0].id);
    assert_eq!(alone.over_cap, 0);
}

#[test]
fn the_statements_of_a_bulk_write_are_counted_by_what_they_do() {
    let delete = doc! {"delete": 1, "filter": {"a": 1}, "multi": true};
    let update = |field: &str| doc! {"update": 0, "filter": {field: 1}, "updateMods": {"$set": {"b": 1}}};
    let operations = [insert(0), insert(1), insert(1), update("a"), update("b"), update("a"), delete];
    let bulk = bulk_write(&operations, &["shop.orders", "shop.items"]);
    let single = bulk_write(&[insert(0), insert(0)], &["shop.orders"]);
    let all = exchange(&[
        (bulk, bulk_reply(&[], [0, 3, 2, 2, 1, 1])),
        (single, bulk_reply(&[], [0, 2, 0, 0, 0, 0])),
    ]);
    let counts = all.window.types.get(Role::Served, Class::User);
    let of = |kind: CommandType| counts[kind as usize];
    assert_eq!(of(CommandType::Insert), 5);
    assert_eq!((of(CommandType::Update), of(CommandType::Delete), of(CommandType::Command)), (3, 1, 0));
    // nInserted + nModified + nUpserted + nDeleted.
    assert_eq!(all.seen.iter().map(|seen| seen.affected).collect::<Vec<_>>(), [Some(7), Some(2)]);
}

#[test]
fn failed_statements_of_a_bulk_write_are_failures_and_not_documents() {
    let bulk = || bulk_write(&[insert(0), insert(0), insert(0)], &["shop.orders"]);
    let done = doc! {"ok": 1.0, "idx": 0, "n": 1};
    let more = doc! {
        "cursor": {"id": 77_i64, "firstBatch": [done.clone()], "ns": "admin.$cmd.bulkWrite"},
        "nErrors": 1, "nInserted": 2, "nMatched": 0, "nModified": 0, "nUpserted": 0, "nDeleted": 0, "ok": 1.0,
    };
    let next = |batch: &[Document]| doc! {"cursor": {"id": 0_i64, "nextBatch": batch, "ns": "admin.$cmd.bulkWrite"}, "ok": 1.0};
    let get_more = message(&doc! {"getMore": 77_i64, "collection": "$cmd.bulkWrite", "$db": "admin"});
    let find = |collection: &str| message(&doc! {"find": collection, "filter": {}, "$db": "shop"});
    // Documents of a collection that look like results.
    let alike = doc! {"cursor": {"id": 0_i64, "firstBatch": [duplicate(1)], "ns": "shop.results"}, "ok": 1.0};
    // Twice, because what is known of the first reply is used for the second one.
    for _ in 0..2 {
        let all = exchange(&[
            (bulk(), bulk_reply(&[], [0, 3, 0, 0, 0, 0])),
            (bulk(), bulk_reply(&[duplicate(1)], [1, 2, 0, 0, 0, 0])),
            (bulk(), bulk_reply(&[done.clone(), duplicate(1), duplicate(2)], [2, 1, 0, 0, 0, 0])),
            (bulk(), bulk_reply(&[], [2, 1, 0, 0, 0, 0])),
            (bulk(), more.clone()),
            (get_more.clone(), next(&[duplicate(1)])),
            (find("results"), alike.clone()),
        ]);
        // The one whose error comes with the getMore has failed, too, but its error counts once.
        let totals = all.window.totals(&[Class::User]);
        assert_eq!((totals.failed, totals.error_count()), (5, 1 + 2 + 2 + 1));
        let seen = all.seen;
        let codes: Vec<_> = seen.iter().map(|seen| seen.codes.as_slice()).collect();
        assert_eq!(codes, [&[][..], &[(11_000, 1)], &[(11_000, 2)], &[(0, 2)], &[], &[(11_000, 1)], &[]]);
        let returned: Vec<_> = seen.iter().map(|seen| seen.returned).collect();
        assert_eq!(returned, [None, None, None, None, None, None, Some(1)]);
        assert_eq!((seen[5].command.as_str(), seen[5].namespace.as_str()), ("getMore", "shop.orders"));
    }
}

/// Replies of a server: an error of a statement, of the write concern, of both, and of the whole command.
#[test]
fn no_error_in_a_reply_counts_as_a_success() {
    let insert = || message(&doc! {"insert": "orders", "documents": [{"_id": 1}, {"_id": 2}], "$db": "shop"});
    let modify =
        || message(&doc! {"findAndModify": "orders", "query": {"a": 1}, "remove": true, "$db": "shop"});
    let find = || message(&doc! {"find": "orders", "filter": {}, "$db": "shop"});
    let get_more = message(&doc! {"getMore": 7_i64, "collection": "orders", "$db": "shop"});
    let write_error =
        |index: i32| doc! {"index": index, "code": 11000, "errmsg": "E11000 duplicate key error"};
    let concern =
        doc! {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out"};
    let batch = doc! {"cursor": {"firstBatch": [{"a": 1}], "id": 7_i64, "ns": "shop.orders"}, "ok": 1.0};
    let all = exchange(&[
        (insert(), doc! {"n": 2, "ok": 1.0}),
        (insert(), doc! {"n": 1, "writeErrors": [write_error(1)], "ok": 1.0}),
        (insert(), doc! {"n": 0, "writeErrors": [write_error(0), write_error(1)], "ok": 1.0}),
        (insert(), doc! {"n": 2, "writeConcernError": concern.clone(), "ok": 1.0}),
        (
            insert(),
            doc! {"n": 1, "writeErrors": [write_error(1)], "writeConcernError": concern.clone(), "ok": 1.0},
        ),
        // An error without a code is one nevertheless.
        (insert(), doc! {"n": 1, "writeErrors": [{"index": 1, "errmsg": "it failed"}], "ok": 1.0}),
        (insert(), doc! {"n": 2, "writeConcernError": {"errmsg": "it failed"}, "ok": 1.0}),
        (
            modify(),
            doc! {"lastErrorObject": {"n": 1}, "value": {"a": 1}, "writeConcernError": concern, "ok": 1.0},
        ),
        (find(), batch.clone()),
        (
            get_more.clone(),
            doc! {"ok": 0.0, "errmsg": "cursor id 7 not found", "code": 43, "codeName": "CursorNotFound"},
        ),
        (find(), batch),
        (get_more, doc! {"ok": 0.0, "errmsg": "operation exceeded time limit", "code": 50}),
    ]);
    let codes: Vec<_> = all.seen.iter().map(|seen| seen.codes.as_slice()).collect();
    let expected: [&[(i32, u32)]; 12] = [
        &[],
        &[(11_000, 1)],
        &[(11_000, 2)],
        &[(64, 1)],
        &[(11_000, 1), (64, 1)],
        &[(0, 1)],
        &[(0, 1)],
        &[(64, 1)],
        &[],
        &[(43, 1)],
        &[],
        &[(50, 1)],
    ];
    assert_eq!(codes, expected);
    assert_eq!(all.window.totals(&[Class::User]).failed, 9);
}

/// The collection that a command writes to or moves is its namespace where the command names no other; the target of a
/// stage is a part of the shape, because a query that writes elsewhere is another one.
#[test]
fn the_targets_of_commands_are_known() {
    let on = |command: Document| on_the_wire(&command);
    for (command, namespace) in [
        (doc! {"renameCollection": "shop.orders", "to": "shop.old", "$db": "admin"}, "shop.orders"),
        (doc! {"moveChunk": "shop.orders", "find": {"a": 1}, "to": "shard2", "$db": "admin"}, "shop.orders"),
        (
            doc! {"aggregate": "orders", "pipeline": [{"$out": "copy"}], "cursor": {}, "$db": "shop"},
            "shop.orders",
        ),
        (
            doc! {"mapReduce": "orders", "map": "f", "reduce": "g", "out": {"merge": "sums"}, "$db": "shop"},
            "shop.orders",
        ),
    ] {
        assert_eq!(on(command).namespace, namespace);
    }
    let aggregate =
        |stage: Document| on(doc! {"aggregate": "orders", "pipeline": [stage], "cursor": {}, "$db": "shop"});
    for (one, other, target) in [
        (doc! {"$out": "copy"}, doc! {"$out": "archive"}, "copy"),
        (doc! {"$out": {"db": "far", "coll": "copy"}}, doc! {"$out": {"db": "near", "coll": "copy"}}, "far"),
        (doc! {"$merge": {"into": "sums"}}, doc! {"$merge": {"into": "totals"}}, "sums"),
        (
            doc! {"$merge": {"into": {"db": "far", "coll": "sums"}}},
            doc! {"$merge": {"into": {"db": "near", "coll": "sums"}}},
            "far",
        ),
    ] {
        let (one, other) = (aggregate(one), aggregate(other));
        assert_ne!(one.id, other.id, "{}", one.typed);
        assert!(one.typed.contains(target), "{}", one.typed);
    }
    let map_reduce = |out: Document| {
        on(doc! {"mapReduce": "orders", "map": "f", "reduce": "g", "out": out, "$db": "shop"})
    };
    let (one, other) = (map_reduce(doc! {"merge": "sums"}), map_reduce(doc! {"merge": "totals"}));
    assert_ne!(one.id, other.id, "{}", one.typed);
    assert!(one.typed.contains("sums"), "{}", one.typed);
}

/// 3.x counts the new document as matched and modified too; 4.0 and later do not.
#[test]
fn an_upsert_affects_one_document_in_every_version() {
    let line = |counts: &str| {
        format!(
            "2016-05-01T10:00:00.120+0000 I WRITE    [conn7] update shop.orders query: {{ a: 1.0 }} update: {{ $set: \
             {{ b: 1.0 }} }} planSummary: COLLSCAN keysExamined:0 docsExamined:9 {counts} numYields:0 locks:{{}} 5ms"
        )
    };
    for counts in ["nMatched:1 nModified:1 upsert:1", "nMatched:0 nModified:0 upsert:1"] {
        let seen = in_a_log(&line(counts));
        assert_eq!((seen.matched, seen.affected), (Some(1), Some(1)), "{counts}");
    }
    let seen = in_a_log(&line("nMatched:3 nModified:2"));
    assert_eq!((seen.matched, seen.affected), (Some(3), Some(2)));
    let mut document = doc! {"op": "update", "ns": "shop.orders", "query": {"a": 1}, "updateobj": {"$set": {"b": 1}},
    "millis": 5, "ts": bson::DateTime::from_millis(0), "nMatched": 1, "nModified": 1, "upsert": true};
    assert_eq!(in_a_profile(&document).affected, Some(1));
    document.insert("upsert", false);
    assert_eq!(in_a_profile(&document).affected, Some(1));
}
