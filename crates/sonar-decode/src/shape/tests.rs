//! The rules by example: each line is a command as a driver sends it, and its shape.

use bson::{Bson, Document, doc, oid::ObjectId};
use sonar_core::operation::Opcode;

use super::Rendered;
use crate::identity::{self, Ids};
use crate::message::{MessageBody, MessageSource, Request};

/// Reads a command as OP_MSG kind 0; `chunk` bytes at a time.
pub fn read(command: &Document, chunk: usize) -> (Ids, String, String) {
    let document = command.to_vec().unwrap();
    let body = [&[0u8; 5], document.as_slice()].concat();
    read_body(Opcode::Msg, &body, chunk)
}

pub fn read_body(opcode: Opcode, body: &[u8], chunk: usize) -> (Ids, String, String) {
    let mut with_text = Request::<Rendered>::default();
    let mut without = Request::<()>::default();
    feed(&mut with_text, opcode, body, chunk);
    feed(&mut without, opcode, body, chunk);
    let (ids, ()) = identity::ids_of(&mut without);
    let mut again = Request::<Rendered>::default();
    feed(&mut again, opcode, body, chunk);
    let (rendered, _) = identity::ids_of(&mut again);
    assert_eq!((ids.shape, ids.ordered), (rendered.shape, rendered.ordered), "ids with and without text");
    let info = identity::info_of(&mut with_text);
    assert_eq!(info.id, ids.shape);
    (ids, info.typed.into(), info.plain.into())
}

fn feed<T: super::Text>(request: &mut Request<T>, opcode: Opcode, bytes: &[u8], chunk: usize) {
    request.reset(opcode);
    let mut body = MessageBody::default();
    body.begin(opcode, bytes.len() as u64);
    let mut carry = Vec::new();
    for piece in bytes.chunks(chunk) {
        carry.extend_from_slice(piece);
        let used = body.feed(&carry, &mut MessageSource::Request(request)).unwrap();
        carry.drain(..used);
    }
    assert_eq!(body.left(), 0);
}

fn find(filter: Document) -> Document {
    doc! {"find": "orders", "filter": filter, "$db": "shop"}
}

fn typed(command: &Document) -> String {
    read(command, 1 << 20).1
}

fn same(a: &Document, b: &Document) {
    let ((one, text, _), (two, other, _)) = (read(a, 1 << 20), read(b, 1 << 20));
    assert_eq!(text, other);
    assert_eq!(one.shape, two.shape, "{text}");
}

fn differ(a: &Document, b: &Document) {
    assert_ne!(read(a, 1 << 20).0.shape, read(b, 1 << 20).0.shape, "{a} and {b}");
}

fn regex(pattern: &str) -> Bson {
    Bson::RegularExpression(bson::Regex {
        pattern: pattern.try_into().unwrap(),
        options: "".try_into().unwrap(),
    })
}

#[test]
fn literals_become_typed_placeholders() {
    let id = ObjectId::new();
    let filter = doc! {"n": 1, "s": "x", "i": id, "b": true, "d": bson::DateTime::now(), "z": Bson::Null,
    "r": regex("^a"), "o": {"x": 1}, "e": [], "l": [1, 2.5], "m": [1, "a"], "v": [[1], ["a"]]};
    assert_eq!(
        typed(&find(filter)),
        "{filter: {b: ?bool, d: ?date, e: [], i: ?objectId, l: ?array<?number>, m: ?array<>, n: ?number, \
         o: ?object, r: {$regex: ?regex}, s: ?string, v: ?array<?array>, z: ?null}}"
    );
}

#[test]
fn order_without_a_meaning_is_removed() {
    same(&find(doc! {"a": 1, "b": "x"}), &find(doc! {"b": "y", "a": 2}));
    same(&find(doc! {"a": 5}), &find(doc! {"a": {"$eq": 7}}));
    same(&find(doc! {"$and": [{"a": 1}, {"b": 1}]}), &find(doc! {"b": 1, "a": 1}));
    same(
        &find(doc! {"a": {"$gt": 1, "$lt": 2}}),
        &find(doc! {"$and": [{"a": {"$lt": 1}}, {"a": {"$gt": 2}}]}),
    );
    same(&find(doc! {"$or": [{"a": 1}, {"b": 1}]}), &find(doc! {"$or": [{"b": 1}, {"a": 1}, {"b": 3}]}));
    same(&find(doc! {"a": {"$in": [1]}}), &find(doc! {"a": {"$in": [1, 2, 3]}}));
    differ(&find(doc! {"a": 1}), &find(doc! {"a": "x"}));
    differ(&find(doc! {"a": 1}), &find(doc! {"b": 1}));
    differ(&find(doc! {"a": {"$gt": 1}}), &find(doc! {"a": {"$gte": 1}}));
    differ(&find(doc! {"$or": [{"a": 1}, {"b": 1}]}), &find(doc! {"$nor": [{"a": 1}, {"b": 1}]}));
    differ(&find(doc! {"a": {"$exists": true}}), &find(doc! {"a": {"$exists": false}}));
    let (one, two) = (read(&find(doc! {"a": 1, "b": 1}), 99).0, read(&find(doc! {"b": 1, "a": 1}), 99).0);
    assert_ne!(one.ordered, two.ordered);
}

#[test]
fn what_decides_the_plan_is_kept() {
    let base = || doc! {"find": "orders", "filter": {"a": 1}, "$db": "shop"};
    let with = |key: &str, value: Bson| {
        let mut command = base();
        command.insert(key, value);
        command
    };
    let up = with("sort", doc! {"a": 1, "b": -1}.into());
    assert_eq!(typed(&up), "{filter: {a: ?number}, sort: {a: 1, b: -1}}");
    differ(&up, &with("sort", doc! {"b": -1, "a": 1}.into()));
    differ(&up, &with("sort", doc! {"a": 1, "b": 1}.into()));
    same(&up, &with("sort", doc! {"a": 1.0, "b": -1i64}.into()));
    differ(&base(), &with("limit", 5.into()));
    same(&with("limit", 5.into()), &with("limit", 7.into()));
    same(&base(), &with("limit", 0.into()));
    same(&base(), &with("batchSize", 10.into()));
    same(&base(), &with("lsid", doc! {"id": 1}.into()));
    same(&base(), &with("comment", "why".into()));
    differ(&with("hint", "a_1".into()), &with("hint", "b_1".into()));
    differ(
        &with("collation", doc! {"locale": "fr"}.into()),
        &with("collation", doc! {"locale": "de"}.into()),
    );
    assert_eq!(
        typed(&with("projection", doc! {"a": 1, "b": true, "c": "$x", "d": {"$slice": 3}}.into())),
        "{filter: {a: ?number}, projection: {a: 1, b: 1, c: '$x', d: {$slice: 1}}}"
    );
    same(&find(doc! {}), &doc! {"find": "orders", "$db": "shop"});
}

#[test]
fn paths_stand_for_any_number_and_any_id() {
    let with = |key: &str| find(doc! {key: 1});
    same(&with("users.507f1f77bcf86cd799439011.x"), &with("users.507f191e810c19729de860ea.x"));
    assert_eq!(typed(&with("a.17.b")), "{filter: {a.<n>.b: ?number}}");
    assert_eq!(typed(&with("with space")), "{filter: {\"with space\": ?number}}");
}

#[test]
fn operators_keep_their_structure() {
    assert_eq!(
        typed(&find(doc! {"a": {"$not": {"$gt": 3}}, "b": {"$elemMatch": {"x": 1, "y": {"$lt": 2}}},
        "c": {"$elemMatch": {"$gt": 1}}, "d": {"$all": [{"$elemMatch": {"q": 1}}]}, "$where": "x",
        "$expr": {"$gt": ["$a", {"$add": ["$b.3", 5]}]}, "$text": {"$search": "coffee"}, "$comment": "c",
        "g": {"$near": {"$geometry": {"type": "Point", "coordinates": [1, 2]}, "$maxDistance": 5}}})),
        "{filter: {$expr: {$gt: ['$a', {$add: ['$b.<n>', ?number]}]}, $text: {$search: ?string}, \
         $where: ?javascript, a: {$not: {$gt: ?number}}, b: {$elemMatch: {x: ?number, y: {$lt: ?number}}}, \
         c: {$elemMatch: {$gt: ?number}}, d: {$all: [{$elemMatch: {q: ?number}}]}, \
         g: {$near: {$geometry: ?object, $maxDistance: ?number}}}}"
    );
}

#[test]
fn the_plain_form_masks_all_and_enters_sub_documents() {
    let query = doc! {"find": "people", "filter": {"country": "RU", "city": "Moscow"}, "sort": {"age": -1}, "$db": "x"};
    assert_eq!(read(&query, 99).2, "{$orderby: {age: ?}, city: ?, country: ?}");
    assert_eq!(
        read(&find(doc! {"a": {"b": 5, "c": {"d": "x"}}, "n": {"$in": [1, 2]}}), 99).2,
        "{a: {b: ?, c: {d: ?}}, n: {$in: ?}}"
    );
}

/// OP_QUERY as old drivers send it.
fn legacy(namespace: &str, limit: i32, query: &Document) -> (Ids, String, String) {
    let body = [
        &[0u8; 4],
        namespace.as_bytes(),
        &[0],
        &0i32.to_le_bytes(),
        &limit.to_le_bytes(),
        query.to_vec().unwrap().as_slice(),
    ]
    .concat();
    read_body(Opcode::Query, &body, 1 << 20)
}

#[test]
fn a_legacy_query_has_the_shape_of_the_modern_command() {
    let modern = read(
        &doc! {"find": "people", "filter": {"country": "RU", "city": "M"}, "sort": {"age": -1}, "$db": "x"},
        99,
    );
    for query in [
        doc! {"country": "RU", "city": "Moscow", "$orderby": {"age": -1}},
        doc! {"$query": {"city": "Moscow", "country": "RU"}, "$orderby": {"age": -1}},
        doc! {"query": {"city": "Moscow", "country": "RU"}, "orderby": {"age": -1}},
    ] {
        let (ids, typed, plain) = legacy("x.people", 0, &query);
        assert_eq!(plain, "{$orderby: {age: ?}, city: ?, country: ?}");
        assert_eq!(typed, modern.1);
        assert_eq!(ids.shape, modern.0.shape, "{query}");
    }
}

#[test]
fn statements_of_a_bulk_are_distinguished() {
    let one = |n: i32| doc! {"q": {"_id": n}, "u": {"$set": {"a": n, "b": 1}}};
    let other = doc! {"q": {"_id": 1}, "u": {"$inc": {"a": 1}}, "multi": true, "upsert": false};
    let update = |updates: Vec<Document>| doc! {"update": "c", "updates": updates, "$db": "x"};
    let single = read(&update(vec![one(1)]), 99);
    assert_eq!(single.1, "{q: {_id: ?number}, u: {$set: {a: ?number, b: ?number}}}");
    same(&update(vec![one(1)]), &update(vec![one(2), one(3)]));
    same(&update(vec![one(1), other.clone()]), &update(vec![other.clone(), one(2), other.clone()]));
    let mixed = read(&update(vec![one(1), other.clone(), one(2)]), 99);
    assert_eq!(mixed.0.statements.len(), 2);
    assert_eq!(mixed.0.statements.iter().map(|one| one.count).sum::<u32>(), 3);
    assert!(mixed.1.contains("multi: true") && mixed.1.contains("$inc"), "{}", mixed.1);
    assert!(mixed.0.statements.iter().any(|statement| statement.shape == single.0.shape));
    let replace = doc! {"q": {"a": 1}, "u": {"x": 1}};
    assert_eq!(typed(&update(vec![replace])), "{q: {a: ?number}, u: ?replacement}");
    let pipeline = doc! {"q": {"a": 1}, "u": [{"$set": {"x": "$y"}}]};
    assert_eq!(typed(&update(vec![pipeline])), "{q: {a: ?number}, u: [{$set: {x: '$y'}}]}");
    let delete = doc! {"delete": "c", "deletes": [{"q": {"a": 1}, "limit": 1}], "$db": "x"};
    assert_eq!(typed(&delete), "{q: {a: ?number}, limit: ?number}");
}

#[test]
fn bulk_write_names_its_namespaces() {
    let ops = |first: i32, second: i32| {
        doc! {"bulkWrite": 1, "ops": [{"insert": first, "document": {"a": 1}}, {"update": second, "filter": {"a": 1},
        "updateMods": {"$set": {"b": 1}}, "multi": true}], "nsInfo": [{"ns": "x.a"}, {"ns": "x.b"}], "$db": "admin"}
    };
    let (ids, text, _) = read(&ops(0, 1), 99);
    assert_eq!(ids.statements.len(), 2);
    assert_eq!(
        text,
        "[x.a {insert: {}}; x.b {update: {filter: {a: ?number}, updateMods: {$set: {b: ?number}}, multi: true}}]"
    );
    differ(&ops(0, 1), &ops(0, 0));
}

#[test]
fn pipelines_keep_the_order_of_stages() {
    let aggregate =
        |pipeline: Vec<Document>| doc! {"aggregate": "c", "pipeline": pipeline, "cursor": {}, "$db": "x"};
    let stages = vec![
        doc! {"$match": {"b": 1, "a": {"$in": [1, 2]}}},
        doc! {"$group": {"_id": {"k": "$k", "j": 5}, "n": {"$sum": 1}}},
        doc! {"$sort": {"n": -1}},
        doc! {"$limit": 10},
        doc! {"$lookup": {"from": "d", "localField": "x", "foreignField": "y", "as": "z", "pipeline": [{"$match": {"q": 1}}]}},
        doc! {"$unwind": "$z"},
    ];
    assert_eq!(
        typed(&aggregate(stages.clone())),
        "{pipeline: [{$match: {a: {$in: ?array<?number>}, b: ?number}}, \
         {$group: {_id: {j: ?number, k: '$k'}, n: {$sum: ?number}}}, {$sort: {n: -1}}, {$limit: ?number}, \
         {$lookup: {as: 'z', foreignField: 'y', from: 'd', localField: 'x', pipeline: [{$match: {q: ?number}}]}}, \
         {$unwind: {path: '$z'}}]}"
    );
    let mut turned = stages.clone();
    turned.swap(2, 3);
    differ(&aggregate(stages), &aggregate(turned));
}

#[test]
fn five_thousand_equal_branches_are_one() {
    let branches =
        |n: i32| find(doc! {"$or": (0..n).map(|i| doc! {"a": i, "b": {"$gt": i}}).collect::<Vec<_>>()});
    same(&branches(1), &branches(5_000));
    let large = find(doc! {"a": {"$in": (0..100_000).collect::<Vec<i32>>()}});
    same(&large, &find(doc! {"a": {"$in": [1]}}));
    let many = read(&find((0..3_000).map(|i| (format!("f{i}x"), Bson::Int32(i))).collect()), 1 << 20);
    assert!(many.1.len() < 5_000, "{}", many.1.len());
}

#[test]
fn depth_is_capped() {
    let mut deep = doc! {"a": 1};
    for _ in 0..300 {
        deep = doc! {"$and": [deep]};
    }
    read(&find(deep), 77);
}

#[test]
fn other_commands_are_their_name_and_namespace() {
    let explain = doc! {"explain": {"find": "orders", "filter": {"a": 1}}, "verbosity": "executionStats", "$db": "shop"};
    assert_eq!(typed(&explain), "{filter: {a: ?number}}");
    differ(&explain, &find(doc! {"a": 1}));
    same(&doc! {"ping": 1, "$db": "admin"}, &doc! {"ping": 1, "x": 3, "$db": "admin"});
    differ(&doc! {"ping": 1, "$db": "admin"}, &doc! {"ping": 1, "$db": "x"});
    same(
        &doc! {"findAndModify": "c", "query": {"a": 1}, "update": {"$set": {"b": 1}}, "$db": "x"},
        &doc! {"findandmodify": "c", "query": {"a": 2}, "update": {"$set": {"b": 2}}, "new": false, "$db": "x"},
    );
}

#[test]
fn chunks_of_every_size_give_the_same_ids() {
    let command = doc! {"update": "c", "updates": [{"q": {"a.b": 1, "$or": [{"x": {"$in": [1, 2]}}, {"y": regex("x")}]},
    "u": {"$set": {"long_field_name_here": "text"}}}], "$db": "x"};
    let whole = read(&command, 1 << 20);
    for chunk in 1..200 {
        let part = read(&command, chunk);
        assert_eq!(
            (part.0.shape, part.0.ordered, &part.1),
            (whole.0.shape, whole.0.ordered, &whole.1),
            "{chunk}"
        );
    }
}
