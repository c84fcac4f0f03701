//! One query in three forms, as BSON in a profile, as extended JSON in a log of 4.4, and as the shell's text in a log
//! of 4.2: one shape, both ids. And an ambiguous text has none.

use bson::{Binary, Bson, DateTime, Document, Timestamp, doc, oid::ObjectId};
use proptest::prelude::*;
use sonar_core::{Execution, Identity, Operation};
use sonar_decode::entry::EntrySink;
use sonar_decode::log::{LogReader, LogSettings};
use sonar_decode::profile::Profile;

#[derive(Default)]
struct Ids(Vec<(Identity, u64, u64, String)>);

impl EntrySink for Ids {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, _: &Execution<'_>, _: u64) {
        self.0.push((identity, op.shape.id.0, op.ordered_id.0, op.shape.typed.to_string()));
    }
}

fn from_bson(op: &str, command: &Document) -> (Identity, u64, u64, String) {
    let document = doc! {"op": op, "ns": "shop.orders", "command": command.clone(), "millis": 7};
    let (mut profile, mut ids) = (Profile::default(), Ids::default());
    profile.document(&document.to_vec().unwrap(), &mut ids);
    ids.0.pop().unwrap()
}

fn from_line(line: &str) -> (Identity, u64, u64, String) {
    let (mut log, mut ids) = (LogReader::new(LogSettings::default()), Ids::default());
    log.line(line.as_bytes(), &mut ids);
    log.finish(&mut ids);
    assert_eq!(ids.0.len(), 1, "{line}");
    ids.0.pop().unwrap()
}

fn from_json(op: &str, command: &Document) -> (Identity, u64, u64, String) {
    let command = extended(&Bson::Document(command.clone()));
    from_line(&format!(
        r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{{"type":"{op}","ns":"shop.orders","command":{command},"durationMillis":7}}}}"#
    ))
}

/// Relaxed extended JSON, as 4.4 and later write it, in the order of the document.
fn extended(value: &Bson) -> String {
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    match value {
        Bson::Document(document) => {
            let field = |(key, value): (&String, &Bson)| format!("{}:{}", quoted(key), extended(value));
            format!("{{{}}}", document.iter().map(field).collect::<Vec<_>>().join(","))
        }
        Bson::Array(array) => format!("[{}]", array.iter().map(extended).collect::<Vec<_>>().join(",")),
        Bson::String(text) => quoted(text),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Double(number) => serde_json::to_string(number).unwrap(),
        Bson::Boolean(flag) => flag.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::ObjectId(id) => format!(r#"{{"$oid":"{id}"}}"#),
        Bson::DateTime(date) => format!(r#"{{"$date":"{}"}}"#, date.try_to_rfc3339_string().unwrap()),
        Bson::Timestamp(time) => {
            format!(r#"{{"$timestamp":{{"t":{},"i":{}}}}}"#, time.time, time.increment)
        }
        Bson::Binary(binary) => {
            format!(r#"{{"$binary":{{"base64":"{}","subType":"0"}}}}"#, "QUJD".repeat(binary.bytes.len()))
        }
        Bson::RegularExpression(regex) => format!(
            r#"{{"$regularExpression":{{"pattern":{},"options":"i"}}}}"#,
            quoted(regex.pattern.as_str())
        ),
        other => panic!("{other:?} is not written"),
    }
}

fn text_line(op: &str, text: &str) -> String {
    let name = if op == "query" { "command" } else { op };
    let find = if op == "query" { "find " } else { "" };
    format!(
        "2019-05-01T10:00:00.120+0000 I  COMMAND  [conn7] {name} shop.orders appName: \"a\" command: {find}{text} planSummary: IXSCAN {{ a: 1 }} keysExamined:3 docsExamined:3 numYields:0 nreturned:1 reslen:7 locks:{{}} protocol:op_msg 7ms"
    )
}

/// As `BSONObj::toString` of 4.2 writes it.
fn shell(document: &Document) -> String {
    if document.is_empty() {
        return "{}".to_owned();
    }
    let fields: Vec<_> =
        document.iter().map(|(key, value)| format!("{key}: {}", shell_value(value))).collect();
    format!("{{ {} }}", fields.join(", "))
}

fn shell_value(value: &Bson) -> String {
    match value {
        Bson::Document(document) => shell(document),
        Bson::Array(array) if array.is_empty() => "[]".to_owned(),
        Bson::Array(array) => format!("[ {} ]", array.iter().map(shell_value).collect::<Vec<_>>().join(", ")),
        Bson::String(text) => format!("\"{text}\""),
        Bson::Int32(number) => number.to_string(),
        Bson::Int64(number) => number.to_string(),
        Bson::Double(number) if number.fract() == 0.0 => format!("{number:.1}"),
        Bson::Double(number) => number.to_string(),
        Bson::Boolean(flag) => flag.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::ObjectId(id) => format!("ObjectId('{id}')"),
        Bson::DateTime(date) => format!("new Date({})", date.timestamp_millis()),
        Bson::Timestamp(time) => format!("Timestamp({}, {})", time.time, time.increment),
        Bson::Binary(binary) => {
            format!("BinData({}, {})", u8::from(binary.subtype), "AB".repeat(binary.bytes.len()))
        }
        Bson::RegularExpression(regex) => format!("/{}/{}", regex.pattern.as_str(), regex.options.as_str()),
        other => panic!("{other:?} is not written"),
    }
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,6}",
        "[a-z]{1,3}\\.[a-z]{1,3}",
        "[a-z]{1,3}\\.[0-9]{1,2}\\.[a-z]",
        "[a-z ]{1,3}[a-z]"
    ]
}

fn literal() -> impl Strategy<Value = Bson> {
    prop_oneof![
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        (-1e6f64..1e6).prop_map(Bson::Double),
        // Without quotes and braces, which make the end of a string unclear.
        "[^\"{}\\p{C}]{0,40}".prop_map(Bson::String),
        "a{1000,1040}".prop_map(Bson::String),
        any::<bool>().prop_map(Bson::Boolean),
        Just(Bson::Null),
        any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(ObjectId::from_bytes(bytes))),
        (0i64..2_000_000_000_000).prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
        (any::<u32>(), any::<u32>())
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        proptest::collection::vec(any::<u8>(), 1..9)
            .prop_map(|bytes| Bson::Binary(Binary { subtype: bson::spec::BinarySubtype::Generic, bytes })),
        "[a-z.^]{1,6}".prop_map(|pattern| Bson::RegularExpression(bson::Regex {
            pattern: pattern.as_str().try_into().unwrap(),
            options: "i".try_into().unwrap(),
        })),
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    literal().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            proptest::collection::vec((key(), inner.clone()), 0..3)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
            (prop_oneof!["\\$gt", "\\$lte", "\\$ne", "\\$eq"], inner.clone())
                .prop_map(|(operator, value)| Bson::Document(doc! {operator: value})),
            proptest::collection::vec(inner, 1..4).prop_map(|all| Bson::Document(doc! {"$in": all})),
        ]
    })
}

fn filter() -> impl Strategy<Value = Document> {
    let plain = proptest::collection::vec((key(), value()), 0..4)
        .prop_map(|fields| fields.into_iter().collect::<Document>());
    plain.prop_recursive(2, 8, 3, |inner| {
        let branches = proptest::collection::vec(inner, 1..3);
        ("\\$(or|and|nor)", branches).prop_map(|(operator, all)| doc! {operator: all})
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("LONG").is_some() { 1_500 } else { 400 }))]

    #[test]
    fn a_find_has_one_shape_in_every_form(filter in filter(), sort in "[a-z]{1,4}", limit in 0i32..3, hint in any::<bool>()) {
        let mut command = doc! {"find": "orders", "filter": filter, "sort": {sort: -1}};
        if limit > 0 {
            command.insert("limit", limit);
        }
        if hint {
            command.insert("hint", "a_1");
        }
        command.insert("$db", "shop");
        let expected = from_bson("query", &command);
        prop_assert_eq!(expected.0, Identity::Exact);
        prop_assert_eq!(&from_json("query", &command), &expected);
        let text = shell(&command);
        prop_assert_eq!(&from_line(&text_line("query", &text)), &expected, "{}", text);
    }

    #[test]
    fn an_update_has_one_shape_in_every_form(filter in filter(), field in key(), value in value(), multi in any::<bool>()) {
        let command = doc! {"q": filter, "u": {"$set": {field: value}}, "multi": multi, "upsert": false};
        let expected = from_bson("update", &command);
        prop_assert_eq!(expected.0, Identity::Exact);
        prop_assert_eq!(&from_json("update", &command), &expected);
        prop_assert_eq!(&from_line(&text_line("update", &shell(&command))), &expected);
    }

    /// A string with one quote, or with quotes and braces as in people's texts: the shape of the text is the right
    /// one, or there is none.
    #[test]
    fn a_quote_in_a_string_never_makes_a_wrong_shape(
        before in "[a-z ,:{}]{0,8}", after in "[a-z:{}]{0,3}[a-z ,:{}]{0,6}", last in value(),
    ) {
        let command = doc! {"find": "orders", "filter": {"a": format!("{before}\"{after}"), "z": last}, "$db": "shop"};
        let expected = from_bson("query", &command);
        let said = from_line(&text_line("query", &shell(&command)));
        prop_assert!(said.0 != Identity::Exact || said == expected, "{said:?} {expected:?}");
    }

    #[test]
    fn no_line_makes_it_panic(line in "\\PC{0,200}", json in "[{}\\[\\]\",:$a-z0-9 ]{0,200}") {
        let mut log = LogReader::new(LogSettings::default());
        for line in [
            line.clone(),
            text_line("query", &line),
            format!("2019-05-01T10:00:00.120+0000 I  COMMAND  [conn7] {line} 7ms"),
            json.clone(),
            format!(r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"id":51803,"ctx":"conn7","attr":{{"type":"command",{json}"#),
        ] {
            log.line(line.as_bytes(), &mut Ids::default());
        }
        prop_assert_eq!(log.reading().imbalances(), Vec::<String>::new());
        Profile::default().printed(json.as_bytes(), &mut Ids::default());
    }
}
