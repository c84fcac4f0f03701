//! No value of a document leaves the decoder: marked strings are put wherever a document can have one, in every
//! format and version, and searched in every text that it gives out.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use proptest::prelude::*;
use sonar_core::{Execution, Identity, Operation};
use sonar_decode::log::{LogReader, LogSettings};
use sonar_decode::profile::Profile;
use sonar_decode::testing::{Conversation, ConversationEnd};
use sonar_decode::{Decoder, Shared, entry};

/// The mark of a value.
const MARK: &str = "ZQX7";

/// Values, some of which look like something else.
const VALUES: [&str; 10] = [
    "ZQX7",
    "$ZQX7",
    "ZQX7 with words",
    "db.ZQX7",
    "ZQX7ms",
    "ZQX7 } , { x: 1",
    " planSummary: IXSCAN { ZQX7: 1 } ",
    "COLLSCAN ZQX7",
    "find { find: ZQX7 }",
    " ns:ZQX7 appName: ZQX7 ",
];

/// Every text that is given out.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    commands: Vec<String>,
}

impl Texts {
    fn add(&mut self, op: &Operation<'_>) {
        let shape = op.shape;
        self.commands.push(op.command.to_owned());
        self.all.push(format!(
            "{} | {} | {} | {} | {} | {}",
            op.command, shape.command, shape.database, shape.collection, shape.typed, shape.plain
        ));
    }
}

impl sonar_decode::Sink for Texts {
    fn operation(&mut self, op: &Operation<'_>) {
        self.add(op);
    }
}

impl entry::EntrySink for Texts {
    fn operation(&mut self, op: &Operation<'_>, _: Identity, execution: &Execution<'_>, _: u64) {
        self.add(op);
        self.all.push(format!("{execution:?}"));
    }
}

fn assert_unmarked(texts: &Texts, source: &str) {
    for text in &texts.all {
        assert!(!text.contains(MARK), "{text}\nof {source}");
    }
}

/// A document of a user, with marked values and keys that mean something elsewhere.
fn user_document() -> impl Strategy<Value = Document> {
    let value = prop::sample::select(VALUES.as_slice()).prop_map(|text| Bson::String(text.into()));
    let key = prop::sample::select(
        [
            "a",
            "b",
            "name",
            "find",
            "insert",
            "aggregate",
            "ns",
            "op",
            "type",
            "command",
            "query",
            "planSummary",
            "_id",
            "code",
        ]
        .as_slice(),
    );
    let leaf = prop_oneof![4 => value, 1 => Just(Bson::Int32(1)), 1 => Just(Bson::Null)];
    let nested = leaf.prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            prop::collection::vec((key.clone(), inner), 0..4).prop_map(|all| Bson::Document(
                all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    });
    let key = prop::sample::select(["a", "find", "insert", "x", "count", "drop", "_id", "$msg"].as_slice());
    prop::collection::vec((key, nested), 1..5)
        .prop_map(|all| all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Commands with the user's document and value in every place that can have one.
fn commands(user: &Document, value: &str) -> Vec<Document> {
    // `{find: "x"}` as a command names a collection.
    let is_command =
        matches!(user.keys().next().map(String::as_str), Some("find" | "insert" | "count" | "drop"));
    // In an expression a string that begins with `$` is the path of a field.
    let plain = value.trim_start_matches('$');
    vec![
        doc! {"find": "d", "filter": user, "sort": {"a": value}, "projection": {"a": plain}, "hint": {"a": value},
        "collation": {"locale": value, "caseFirst": value}, "comment": value, "let": user, "min": user, "max": user},
        doc! {"find": "d", "filter": {"a": {"$in": [value, value]}, "b": {"$regex": value}, "$where": value,
        "$text": {"$search": value, "$language": value}, "c": {"$elemMatch": user}, "$or": [user, {"d": value}],
        "e": {"$not": {"$eq": value}}, "f": {"$type": value}, "$comment": value, "g": {"$meta": value},
        "$expr": {"$eq": [plain, {"$literal": value}, {"$const": [value]}]}, "$jsonSchema": user}},
        doc! {"aggregate": "d", "pipeline": [{"$match": user}, {"$group": {"_id": {"$literal": value}, "n": {"$sum": plain}}},
        {"$search": {"text": {"query": value, "path": value}, "index": value}}, {"$documents": [user]},
        {"$lookup": {"from": "x", "let": user, "as": "y", "pipeline": [{"$match": user}], "other": value, "more": [value]}},
        {"$graphLookup": {"from": "x", "startWith": plain, "restrictSearchWithMatch": user, "as": "y"}},
        {"$merge": {"into": "m", "whenMatched": value, "on": ["a"]}}, {"$vectorSearch": user},
        {"$unwind": {"path": plain}}, {"$currentOp": user}, {"$listSessions": {"users": [{"user": value}]}},
        {"$geoNear": {"near": value, "query": user}}, {"$facet": {"f": [{"$match": user}]}},
        {"$setWindowFields": {"sortBy": {"a": value}, "output": {"x": {"$sum": plain}}}},
        {"$unknownStage": value}, {"$unknownStage": user}], "cursor": {"batchSize": 1}},
        doc! {"update": "d", "updates": [{"q": user, "u": {"$set": user, "$push": {"a": {"$each": [value], "$sort": value}}},
        "arrayFilters": [user], "collation": {"locale": value}, "hint": {"a": value}}, {"q": {"a": value}, "u": user}]},
        doc! {"delete": "d", "deletes": [{"q": user, "limit": 1}]},
        doc! {"insert": "d", "documents": [user, {"insert": value}], "ordered": true},
        doc! {"findAndModify": "d", "query": user, "update": {"$set": user}, "fields": {"a": plain}, "sort": {"a": value}},
        doc! {"distinct": "d", "key": "a", "query": user},
        doc! {"count": "d", "query": user},
        doc! {"mapReduce": "d", "map": value, "reduce": value, "query": user, "out": {"inline": 1}, "scope": user},
        doc! {"createIndexes": "d", "indexes": [{"key": {"a": value}, "name": value, "partialFilterExpression": user,
        "default_language": value, "collation": {"locale": value}, "storageEngine": {"wiredTiger": {"configString": value}}}]},
        doc! {"explain": {"find": "d", "filter": user}, "verbosity": value},
        doc! {"explain": {"fooBar": value, "filter": user}},
        doc! {"$eval": value, "args": [value]},
        doc! {"eval": value},
        doc! {"group": {"ns": "d", "key": user, "$reduce": value, "cond": user}},
        doc! {"group": value},
        doc! {"fooBar": value, "x": user},
        doc! {"_configsvrAddShard": value, "name": value},
        doc! {"_configsvrMoveChunk": "db.d", "toShard": value},
        doc! {"_fooBar": value},
        doc! {"moveChunk": "db.d", "find": user, "to": value},
        doc! {"splitVector": "db.d", "keyPattern": user},
        doc! {"shardCollection": "db.d", "key": user},
        doc! {"renameCollection": "db.d", "to": value},
        doc! {"createUser": value, "pwd": value, "roles": [value]},
        doc! {"authenticate": value, "user": value, "key": value},
        doc! {"getLog": value},
        doc! {"setParameter": value},
        doc! {"ping": value},
        doc! {"hello": value},
        doc! {"$msg": value},
        doc! {"getMore": 5i64, "collection": "d", "comment": value},
        doc! {"killCursors": "d", "cursors": [5i64, value]},
        doc! {"saslStart": 1, "mechanism": value, "payload": value},
        if is_command {
            doc! {}
        } else {
            user.clone()
        },
    ]
}

fn message(opcode: i32, body: &[u8]) -> Vec<u8> {
    let header = [16 + body.len() as i32, 7, 0, opcode].map(i32::to_le_bytes).concat();
    [header.as_slice(), body].concat()
}

/// The output of the wire decoder.
fn wire(messages: &[Vec<u8>]) -> Texts {
    let mut conversation = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
    conversation.handshake();
    for message in messages {
        conversation.send(ConversationEnd::Client, message);
        let reply = doc! {"ok": 1}.to_vec().unwrap();
        let is_legacy = message[12..16] != 2013i32.to_le_bytes();
        let mut answer = if is_legacy {
            self::message(1, &[&[0; 16], 1i32.to_le_bytes().as_slice(), &reply].concat())
        } else {
            self::message(2013, &[&[0; 5], reply.as_slice()].concat())
        };
        answer[8..12].copy_from_slice(&7i32.to_le_bytes());
        conversation.send(ConversationEnd::Server, &answer);
    }
    conversation.close();
    let (mut decoder, mut texts) =
        (Decoder::new(sonar_decode::Settings::default(), Arc::new(Shared::default())), Texts::default());
    let mut last = conversation.now();
    for packet in &conversation.packets {
        decoder.packet(&packet.as_packet(), &mut texts);
        last = packet.as_packet().time;
    }
    decoder.finish(last, &mut texts);
    texts
}

/// A document as servers up to 4.2 write it.
fn shell(value: &Bson) -> String {
    match value {
        Bson::String(text) => format!("\"{text}\""),
        Bson::Document(document) if document.is_empty() => "{}".into(),
        Bson::Document(document) => {
            let fields: Vec<String> =
                document.iter().map(|(key, value)| format!("{key}: {}", shell(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Bson::Array(all) if all.is_empty() => "[]".into(),
        Bson::Array(all) => format!("[ {} ]", all.iter().map(shell).collect::<Vec<_>>().join(", ")),
        Bson::Int64(number) => number.to_string(),
        other => other.to_string(),
    }
}

fn shell_of(document: &Document) -> String {
    shell(&Bson::Document(document.clone()))
}

fn log(lines: &[String]) -> Texts {
    let (mut log, mut texts) = (LogReader::new(LogSettings::default()), Texts::default());
    for line in lines {
        let before = texts.all.len();
        log.line(line.as_bytes(), &mut texts);
        for text in &texts.all[before..] {
            assert!(!text.contains(MARK), "{text}\nof {line}");
        }
    }
    log.finish(&mut texts);
    for message in log.notices().messages.keys() {
        assert!(!message.text.contains(MARK), "{message:?}");
    }
    texts
}

/// Lines of 2.4 to 4.2 about a document of a user.
fn text_lines(user: &Document, value: &str) -> Vec<String> {
    let (doc, update) = (shell_of(user), shell_of(&doc! {"$set": user}));
    let old = |rest: String| {
        format!("Mon Aug  5 20:21:43.100 [conn4] {rest} keyUpdates:0 locks(micros) r:5400 131ms")
    };
    let new = |rest: String| {
        format!(
            "2015-04-20T08:00:00.000+0000 I COMMAND  [conn2] {rest} keyUpdates:0 writeConflicts:0 numYields:0 reslen:62 locks:{{}} 210ms"
        )
    };
    let mut lines = Vec::new();
    for write in [&old as &dyn Fn(String) -> String, &new] {
        lines.extend([
            write(format!("insert t.d query: {doc} ninserted:1")),
            write(format!("query t.d query: {doc} planSummary: COLLSCAN ntoreturn:0")),
            write(format!("query t.d query: {{ $query: {doc}, $orderby: {doc} }} ntoreturn:0")),
            write(format!("getmore t.d query: {doc} cursorid:5 ntoreturn:0")),
            write(format!("getmore t.d query: {{ find: \"{value}\" }} cursorid:5")),
            write(format!("update t.d query: {doc} update: {update} nscanned:1")),
            write(format!("update t.d query: {doc} update: {doc} nscanned:1")),
            write(format!("remove t.d query: {doc} ndeleted:1")),
            write(format!(
                "command t.d command: getMore {{ getMore: 5, collection: \"d\" }} originatingCommand: {doc}"
            )),
            write(format!("command t.$cmd command: insert {{ $msg: \"{value}\" }}")),
        ]);
        for command in commands(user, value) {
            let name = command.keys().next().cloned().unwrap_or_default();
            lines.push(write(format!(
                "command t.$cmd command: {name} {} planSummary: COLLSCAN",
                shell_of(&command)
            )));
            lines.push(write(format!("command t.$cmd command: {}", shell_of(&command))));
        }
    }
    let entry = shell_of(&doc! {"ts": 1, "op": "u", "ns": "t.d", "o2": user, "o": user});
    lines.push(format!(
        "2019-04-20T08:00:00.000+0000 I REPL     [repl writer worker 3] applied op: CRUD {entry}, took 120ms"
    ));
    let entry = shell_of(&doc! {"ts": 1, "op": "c", "ns": "t.$cmd", "o": user});
    lines.push(format!("2019-04-20T08:00:00.000+0000 I REPL     [repl writer worker 3] applied op: command {entry}, took 120ms"));
    for severity in ['W', 'E', 'F'] {
        for about in [
            format!("bad document: {doc}"),
            format!("E11000 duplicate key error dup key: {{ : \"{value}\" }}"),
            format!("no '{value}' here"),
        ] {
            lines.push(format!("2019-04-20T08:00:00.000+0000 {severity} WRITE    [conn3] {about}"));
        }
    }
    lines
}

/// The same document with sorted keys, at every level.
fn sorted(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            let by_key: std::collections::BTreeMap<_, _> = fields.iter().collect();
            Value::Object(by_key.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(all) => Value::Array(all.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

fn json_of(document: &Document) -> String {
    sorted(&serde_json::from_str(&ordered(&Bson::Document(document.clone()))).unwrap()).to_string()
}

/// Attributes in the server's order, written by hand: serde_json sorts keys.
fn ordered(value: &Bson) -> String {
    match value {
        Bson::Document(document) => {
            let fields: Vec<String> = document
                .iter()
                .map(|(key, value)| format!("{}:{}", serde_json::Value::from(key.as_str()), ordered(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Bson::Array(all) => format!("[{}]", all.iter().map(ordered).collect::<Vec<_>>().join(",")),
        Bson::String(text) => serde_json::Value::from(text.as_str()).to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Null => "null".into(),
        other => other.to_string(),
    }
}

fn json_line(id: u32, message: &str, attributes: &Document) -> String {
    format!(
        r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":{id},"ctx":"conn7","msg":"{message}","attr":{}}}"#,
        ordered(&Bson::Document(attributes.clone()))
    )
}

/// Lines of 4.4 and later about a document of a user.
fn json_lines(user: &Document, value: &str) -> Vec<String> {
    let mut all = Vec::new();
    for command in commands(user, value) {
        for kind in ["command", "none", "query", "getmore", "insert", "update", "remove", "somethingNew"] {
            let attributes = doc! {"type": kind, "ns": "t.d", "command": &command, "planSummary": value, "queryHash": value,
            "errMsg": value, "errName": value, "durationMillis": 12};
            all.push(json_line(51_803, "Slow query", &attributes));
        }
        let attributes = doc! {"type": "command", "ns": "t.d", "command": {"getMore": 5i64, "collection": "d"},
        "originatingCommand": command, "durationMillis": 12};
        all.push(json_line(51_803, "Slow query", &attributes));
    }
    for op in ["i", "u", "c", "d", value] {
        let entry = doc! {"op": op, "ns": "t.d", "o2": user, "o": user};
        all.push(json_line(51_801, "Applied op", &doc! {"CRUD": &entry, "durationMillis": 30}));
        all.push(json_line(51_801, "Applied op", &doc! {"command": &entry, "durationMillis": 30}));
    }
    all.push(json_line(
        51_802,
        "transaction",
        &doc! {"parameters": user, "terminationCause": value, "durationMillis": 30},
    ));
    all.push(
        json_line(12_345, "Something failed", &doc! {"error": value, "doc": user})
            .replace(r#""s":"I""#, r#""s":"E""#),
    );
    // Passed on by other programs, with sorted keys.
    for line in all.clone() {
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        all.push(sorted(&parsed).to_string());
        all.push(serde_json::json!({"log": format!("{line}\n"), "stream": "stdout"}).to_string());
    }
    all
}

/// Documents of profiles of every version about a document of a user.
fn profiles(user: &Document, value: &str) -> Vec<Document> {
    let mut all = vec![
        doc! {"op": "insert", "ns": "t.d", "query": user, "ninserted": 1, "millis": 3},
        doc! {"op": "query", "ns": "t.d", "query": user, "ntoreturn": 0, "nscanned": 9, "millis": 3},
        doc! {"op": "query", "ns": "t.d", "query": {"$query": user, "$orderby": user, "$comment": value}, "nscanned": 9, "millis": 3},
        doc! {"op": "getmore", "ns": "t.d", "query": user, "cursorid": 5i64, "millis": 3},
        doc! {"op": "update", "ns": "t.d", "query": user, "updateobj": user, "millis": 3},
        doc! {"op": "remove", "ns": "t.d", "query": user, "millis": 3},
        doc! {"op": "getmore", "ns": "t.d", "command": {"getMore": 5i64, "collection": "d"}, "originatingCommand": user, "millis": 3},
        doc! {"op": value, "ns": "t.d", "command": {"fooBar": value, "x": user}, "millis": 3},
    ];
    for command in commands(user, value) {
        for op in ["command", "query", "insert", "update", "remove", "getmore"] {
            all.push(
                doc! {"op": op, "ns": "t.d", "command": &command, "planSummary": value, "queryHash": value,
                "queryShapeHash": value, "errMsg": value, "exception": value, "execStats": user, "millis": 3},
            );
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn no_value_comes_out(user in user_document(), value in prop::sample::select(VALUES.as_slice())) {
        // The wire.
        let mut messages = Vec::new();
        for mut command in commands(&user, value) {
            let plain = command.to_vec().unwrap();
            messages.push(message(2004, &[&[0; 4], b"t.$cmd\0".as_slice(), &[0; 4], &[255; 4], &plain].concat()));
            command.insert("$db", "t");
            messages.push(message(2013, &[&[0; 5], command.to_vec().unwrap().as_slice()].concat()));
        }
        let bytes = user.to_vec().unwrap();
        let fields = doc! {"a": 1, "b": {"$slice": 2}}.to_vec().unwrap();
        messages.push(message(2004, &[&[0; 4], b"t.d\0".as_slice(), &[0; 8], &bytes, &fields].concat()));
        messages.push(message(2002, &[&[0; 4], b"t.d\0".as_slice(), &bytes, &bytes].concat()));
        messages.push(message(2001, &[&[0; 4], b"t.d\0".as_slice(), &[0; 4], &bytes, &bytes].concat()));
        messages.push(message(2006, &[&[0; 4], b"t.d\0".as_slice(), &[0; 4], &bytes].concat()));
        let texts = wire(&messages);
        prop_assert!(texts.all.len() >= messages.len() / 3);
        assert_unmarked(&texts, "the wire");
        // Logs.
        prop_assert!(!log(&text_lines(&user, value)).all.is_empty());
        let quoted = format!("{value}\" quoted \"{MARK}");
        log(&text_lines(&doc! {"a": &quoted, "b": user.clone()}, &quoted));
        prop_assert!(!log(&json_lines(&user, value)).all.is_empty());
        // Profiles.
        for document in profiles(&user, value) {
            let (mut profile, mut texts) = (Profile::default(), Texts::default());
            profile.document(&document.to_vec().unwrap(), &mut texts);
            profile.printed(json_of(&document).as_bytes(), &mut texts);
            profile.printed(ordered(&Bson::Document(document.clone())).as_bytes(), &mut texts);
            assert_unmarked(&texts, &document.to_string());
        }
    }
}

/// An insert as 2.6 and 3.0 log it: with the whole document.
#[test]
fn an_insert_that_is_logged_with_its_document_is_an_insert() {
    for line in [
        r#"2014-11-03T18:28:32.450-0500 [conn1] insert shop.people query: { find: "Alice", city: "Rome" } ninserted:1 keyUpdates:0 numYields:0 locks(micros) w:160 120ms"#,
        r#"2015-04-20T08:00:00.000+0000 I WRITE    [conn2] insert shop.people query: { name: "he said "no"", city: "Rome" } ninserted:1 keyUpdates:0 writeConflicts:0 numYields:0 locks:{} 120ms"#,
    ] {
        let texts = log(&[line.to_owned()]);
        assert_eq!(texts.all[0], "insert | insert | shop | people | {} | {}", "{line}");
    }
}

#[test]
fn a_query_that_the_server_left_out_is_unknown() {
    let texts = log(&[
        r#"2014-11-03T18:28:32.450-0500 [conn1] command t.$cmd command: insert { $msg: "query not recording (too large)" } keyUpdates:0 reslen:40 120ms"#.to_owned(),
        r#"2014-11-03T18:28:32.450-0500 [conn1] query t.d query: { $msg: "query not recording (too large)" } ntoreturn:0 keyUpdates:0 reslen:40 120ms"#.to_owned(),
    ]);
    assert_eq!(texts.commands, ["insert", "find"]);
    assert!(!texts.all.iter().any(|text| text.contains("large")), "{:?}", texts.all);
}

#[test]
fn a_path_is_shown_and_a_literal_is_not() {
    let pipeline = doc! {"aggregate": "d", "pipeline": [
    {"$group": {"_id": "$city", "n": {"$sum": 1}}}, {"$project": {"x": {"$literal": "$ZQX7"}, "y": "$a.b"}},
    {"$search": {"text": {"query": "$ZQX7"}}}], "cursor": {}, "$db": "t"};
    let texts = wire(&[message(2013, &[&[0; 5], pipeline.to_vec().unwrap().as_slice()].concat())]);
    assert!(texts.all[0].contains("'$city'") && texts.all[0].contains("'$a.b'"), "{}", texts.all[0]);
    assert_unmarked(&texts, "a pipeline");
}
