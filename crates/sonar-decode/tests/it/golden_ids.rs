//! The ids of a table of commands, which must not change without a new `RULES_VERSION`: saved reports and scripts
//! that search for an id rely on them.
//!
//! `golden/ids-vN.tsv` has a row for each command: how it is sent, what is sent, its id, its id with the order as
//! sent, and its text. Lines that begin with `#` are headings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bson::{Document, doc};
use sonar_core::shape::RULES_VERSION;
use sonar_core::{Execution, Identity, Operation};
use sonar_decode::log::LogReader;
use sonar_decode::profile::Profile;
use sonar_decode::testing::{Conversation, ConversationEnd};
use sonar_decode::{Decoder, Settings, Shared, Sink, entry, log};

/// Set to `write`, the test fills in ids that the table has as `?`.
const SWITCH: &str = "GOLDEN_IDS";

/// The result of a row: its id, its id with the order as sent, its text.
type Ids = (String, String, String);

#[derive(Default)]
struct Operations(Vec<Ids>);

impl Operations {
    fn add(&mut self, op: &Operation<'_>) {
        let namespace = op.shape.namespace();
        let text = format!("{} {namespace} {}", op.shape.command, op.shape.typed);
        self.0.push((op.shape.id.to_string(), op.ordered_id.to_string(), text));
    }
}

impl Sink for Operations {
    fn operation(&mut self, op: &Operation<'_>) {
        self.add(op);
    }
}

impl entry::EntrySink for Operations {
    fn operation(&mut self, op: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {
        self.add(op);
    }
}

fn table(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/golden/ids-v{version}.tsv"))
}

fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

/// A message with its header.
fn message(id: u32, answers: u32, opcode: u32, body: &[u8]) -> Vec<u8> {
    let header = [body.len() as u32 + 16, id, answers, opcode].map(u32::to_le_bytes);
    [&header.concat(), body].concat()
}

/// The opcode and body of a row of the wire.
fn request(kind: &str, input: &str) -> (u32, Vec<u8>) {
    let given: Document = serde_json::from_str(input).unwrap_or_else(|error| panic!("{input}: {error}"));
    let number = |key: &str| given.get_i32(key).or(given.get_i64(key).map(|n| n as i32)).unwrap_or(0);
    let part = |key: &str| given.get_document(key).map(bytes).unwrap_or_default();
    let many = |key: &str| -> Vec<u8> {
        let list = given.get_array(key).unwrap();
        list.iter().flat_map(|one| bytes(one.as_document().unwrap())).collect()
    };
    let namespace = [given.get_str("ns").unwrap_or_default().as_bytes(), &[0]].concat();
    let word = |number: i32| number.to_le_bytes();
    match kind {
        "msg" => (2013, [&[0; 5], &*bytes(&given)].concat()),
        "sections" => {
            let name = [given.get_str("section").unwrap().as_bytes(), &[0]].concat();
            let documents = many("documents");
            let length = (4 + name.len() + documents.len()) as u32;
            let section = [&[1], &length.to_le_bytes()[..], &name, &documents].concat();
            (2013, [&[0; 5], &*part("body"), &section].concat())
        }
        "query" => {
            let limits = [word(number("skip")), word(number("limit"))].concat();
            (
                2004,
                [&word(number("flags"))[..], &namespace, &limits, &part("query"), &part("fields")].concat(),
            )
        }
        "insert" => (2002, [&word(0)[..], &namespace, &many("documents")].concat()),
        "update" => {
            let flags = word(number("flags"));
            (2001, [&word(0)[..], &namespace, &flags, &part("q"), &part("u")].concat())
        }
        "delete" => (2006, [&word(0)[..], &namespace, &word(number("flags")), &part("q")].concat()),
        "getmore" => {
            let cursor = i64::from(number("cursor")).to_le_bytes();
            (2005, [&word(0)[..], &namespace, &word(0), &cursor].concat())
        }
        _ => panic!("no such kind: {kind}"),
    }
}

fn ids(kind: &str, input: &str) -> Ids {
    let mut operations = Operations::default();
    match kind {
        "profile" => {
            let mut profile = Profile::default();
            profile.printed(input.as_bytes(), &mut operations);
        }
        "log" => {
            let mut log = LogReader::new(log::LogSettings::default());
            log.line(input.as_bytes(), &mut operations);
            log.finish(&mut operations);
        }
        _ => {
            let (opcode, body) = request(kind, input);
            let mut talk = Conversation::new("10.0.0.9:51234", "10.0.0.1:27017");
            talk.handshake().send(ConversationEnd::Client, &message(7, 0, opcode, &body));
            let ok = bytes(&doc! {"ok": 1});
            match opcode {
                2013 => {
                    talk.send(ConversationEnd::Server, &message(8, 7, 2013, &[&[0; 5], &*ok].concat()));
                }
                2004 | 2005 => {
                    let head = [[0; 16].as_slice(), &1i32.to_le_bytes()].concat();
                    talk.send(ConversationEnd::Server, &message(8, 7, 1, &[head, ok].concat()));
                }
                _ => {}
            }
            let mut decoder = Decoder::new(Settings::default(), Arc::new(Shared::default()));
            for packet in &talk.packets {
                decoder.packet(&packet.as_packet(), &mut operations);
            }
            decoder.finish(talk.now(), &mut operations);
        }
    }
    assert_eq!(operations.0.len(), 1, "{kind} {input}: {:?}", operations.0);
    operations.0.remove(0)
}

/// What to do if the table does not fit.
fn advice() -> String {
    format!(
        "If this is meant: raise RULES_VERSION in crates/sonar-core/src/shape.rs, copy the newest table to \
         {} with ? in place of ids and texts, run {SWITCH}=write cargo test -p sonar-decode --test it golden_ids, read \
         the difference, and delete the old table.",
        table(RULES_VERSION + 1).display()
    )
}

#[test]
fn no_id_changes_without_a_new_version_of_the_rules() {
    let path = table(RULES_VERSION);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "RULES_VERSION is {RULES_VERSION}, and there is no table for it: {}: {error}. {}",
            path.display(),
            advice()
        )
    });
    let writes = std::env::var(SWITCH).is_ok_and(|value| value == "write");
    let (mut out, mut changed, mut texts) = (String::new(), Vec::new(), BTreeMap::new());
    for line in text.lines() {
        if line.starts_with('#') {
            writeln!(out, "{line}").unwrap();
            continue;
        }
        let cells: Vec<_> = line.split('\t').collect();
        let [kind, input, id, ordered, shape] = cells[..] else { panic!("not five columns: {line}") };
        let now = ids(kind, input);
        if id == "?" && writes {
            writeln!(out, "{kind}\t{input}\t{}\t{}\t{}", now.0, now.1, now.2).unwrap();
        } else {
            if (id, ordered) != (&now.0, &now.1) {
                changed.push(format!(
                    "  {kind} {input}\n    was {id} {ordered} {shape}\n    is  {} {} {}",
                    now.0, now.1, now.2
                ));
            }
            writeln!(out, "{line}").unwrap();
        }
        // One id has one text, however it was sent; commands with aliases keep the name that was sent.
        let first = texts.entry(now.0.clone()).or_insert_with(|| now.2.clone());
        assert!(first.eq_ignore_ascii_case(&now.2), "{} has two texts: {first} and {}", now.0, now.2);
    }
    if writes {
        std::fs::write(&path, out).unwrap();
    }
    assert!(
        changed.is_empty(),
        "{} ids changed while RULES_VERSION is {RULES_VERSION} still:\n{}\n{}",
        changed.len(),
        changed.join("\n"),
        advice()
    );
}

#[test]
fn the_table_covers_the_rules() {
    let text = std::fs::read_to_string(table(RULES_VERSION)).unwrap();
    let rows: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let count = |kind: &str| rows.iter().filter(|row| row.split('\t').next() == Some(kind)).count();
    for kind in ["msg", "sections", "query", "insert", "update", "delete", "getmore", "profile", "log"] {
        assert!(count(kind) > 0, "{kind}");
    }
    let names = "find aggregate count distinct insert update delete findAndModify bulkWrite getMore killCursors explain \
                 mapReduce createIndexes hello isMaster $and $or $nor $not $in $nin $all $elemMatch $exists $type $mod $size \
                 $regex $expr $text $where $jsonSchema $near $geoWithin $geoIntersects $bitsAllSet $set $unset $inc $mul $min \
                 $max $rename $currentDate $setOnInsert $push $addToSet $pop $pull $pullAll $bit arrayFilters $match $project \
                 $addFields $group $sort $limit $skip $lookup $graphLookup $unionWith $merge $out $unwind $facet $bucket \
                 $replaceRoot $redact $geoNear $setWindowFields $fill $literal $explain $orderby hint collation projection";
    for name in names.split_whitespace() {
        assert!(text.contains(&format!("\"{name}\"")), "{name}");
    }
}
