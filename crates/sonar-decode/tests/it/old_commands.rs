//! Commands that newer servers do not have any more, or that only administrators run: each has the same namespace and the
//! same shape on the wire, in a profile and in a log, or says that its shape is not certain.

use bson::{Bson, Document, doc};
use proptest::prelude::*;
use sonar_core::Identity;

use crate::commands::{Seen, exchange, in_a_log, in_a_profile, on_the_wire, profiled};

/// The namespace, and the command without its `$db`.
fn commands(word: &str) -> Vec<(String, Document)> {
    let on = |database: &str| format!("{database}.{word}");
    let code = |text: &str| Bson::JavaScriptCode(text.to_owned());
    vec![
        (
            on("shop"),
            doc! {"group": {"ns": word, "key": {"city": 1.0}, "cond": {"a": {"$gt": 5.0}}, "$reduce": code("function(a, b) { b.n++; }"), "initial": {"n": 0.0}}},
        ),
        (
            on("shop"),
            doc! {"mapReduce": word, "map": code("function() { emit(this.a, 1); }"), "reduce": code("function(k, v) { return 1; }"), "out": {"merge": "sums"}, "query": {"a": 1.0}, "sort": {"a": 1.0}},
        ),
        (
            on("shop"),
            doc! {"mapreduce": word, "map": "m", "reduce": "r", "out": {"inline": 1.0}, "query": {"a": {"$lt": 3.0}}},
        ),
        (
            on("shop"),
            doc! {"geoNear": word, "near": [1.0, 2.0], "num": 10.0, "query": {"type": "a"}, "spherical": true},
        ),
        (
            on("shop"),
            doc! {"geoSearch": word, "near": [1.0, 2.0], "maxDistance": 6.0, "search": {"type": "a"}, "limit": 30.0},
        ),
        ("shop".to_owned(), doc! {"eval": code("function(x) { return x; }"), "args": [1.0], "nolock": true}),
        ("shop".to_owned(), doc! {"$eval": "f()", "args": [word]}),
        (on("shop"), doc! {"parallelCollectionScan": word, "numCursors": 4.0}),
        ("admin".to_owned(), doc! {"copydb": 1.0, "fromhost": word, "fromdb": "shop", "todb": "copy"}),
        ("shop".to_owned(), doc! {"clone": format!("{word}:27017")}),
        (on("shop"), doc! {"cloneCollection": on("shop"), "from": "db2:27017", "query": {"a": 1.0}}),
        (on("shop"), doc! {"reIndex": word}),
        (on("shop"), doc! {"touch": word, "data": true, "index": true}),
        ("shop".to_owned(), doc! {"repairDatabase": 1.0, "preserveClonedFilesOnFailure": true}),
    ]
}

/// A value as servers of 4.2 and earlier print it.
fn printed(value: &Bson) -> String {
    match value {
        Bson::Document(document) if document.is_empty() => "{}".to_owned(),
        Bson::Document(document) => {
            let fields: Vec<String> =
                document.iter().map(|(key, value)| format!("{key}: {}", printed(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Bson::Array(values) if values.is_empty() => "[]".to_owned(),
        Bson::Array(values) => format!("[ {} ]", values.iter().map(printed).collect::<Vec<_>>().join(", ")),
        Bson::String(text) => format!("\"{text}\""),
        Bson::Double(number) => format!("{number:.1}"),
        Bson::JavaScriptCode(code) => code.clone(),
        other => other.to_string(),
    }
}

/// Lines of a log about a command: of 2.6, of 3.x, and of 4.x, which has the real namespace and `$db`.
fn logged(database: &str, namespace: &str, command: &Document) -> Vec<String> {
    let name = command.keys().next().unwrap();
    let text = printed(&command.clone().into());
    let mut with_database = command.clone();
    with_database.insert("$db", database);
    let with_database = printed(&with_database.into());
    vec![
        format!(
            "2014-05-01T10:00:00.120+0000 [conn7] command {database}.$cmd command: {text} keyUpdates:0 numYields:0 locks(micros) r:9 reslen:37 5ms"
        ),
        format!(
            "2015-05-01T10:00:00.120+0000 I COMMAND  [conn7] command {database}.$cmd command: {name} {text} keyUpdates:0 writeConflicts:0 numYields:0 reslen:37 locks:{{}} 5ms"
        ),
        format!(
            "2018-05-01T10:00:00.120+0000 I COMMAND  [conn7] command {namespace} command: {name} {with_database} numYields:0 reslen:37 locks:{{}} protocol:op_msg 5ms"
        ),
    ]
}

/// OP_QUERY on `$cmd`, as drivers sent commands before 3.6.
fn in_the_old_protocol(database: &str, command: &Document) -> Seen {
    let limits = [0_i32, -1].map(i32::to_le_bytes).concat();
    let collection = format!("{database}.$cmd\0");
    let body = [&[0; 4], collection.as_bytes(), &limits, &command.to_vec().unwrap()].concat();
    let header = [body.len() as u32 + 16, 0, 0, 2004].map(u32::to_le_bytes);
    exchange(&[([&header.concat(), &*body].concat(), doc! {"ok": 1.0})]).seen.remove(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn each_has_one_namespace_and_one_shape_in_every_source(word in "[a-z]{3,8}") {
        for (namespace, command) in commands(&word) {
            let name = command.keys().next().unwrap().clone();
            let database = if name == "copydb" { "admin" } else { "shop" };
            let mut sent = command.clone();
            sent.insert("$db", database);
            let wire = on_the_wire(&sent);
            prop_assert_eq!((&wire.namespace, wire.identity), (&namespace, Identity::Exact), "{}", name);
            let real = if namespace.contains('.') { namespace.clone() } else { format!("{database}.$cmd") };
            let mut others = vec![in_the_old_protocol(database, &command)];
            for ns in [&format!("{database}.$cmd"), &real] {
                for body in [&command, &sent] {
                    others.push(in_a_profile(&profiled(ns, body)));
                }
            }
            for other in others {
                prop_assert_eq!((&other.namespace, other.id, other.identity), (&namespace, wire.id, Identity::Exact), "{}", name);
            }
            // Code in a text cannot be read for certain: then no shape is claimed.
            let has_code = printed(&command.clone().into()).contains("function");
            for line in logged(database, &real, &command) {
                let seen = in_a_log(&line);
                let is_same = seen.id == wire.id && seen.identity == Identity::Exact;
                prop_assert!(is_same || has_code && seen.identity != Identity::Exact, "{line}: {seen:?}");
                prop_assert_eq!(&seen.namespace, &namespace, "{}", line);
            }
        }
    }
}
