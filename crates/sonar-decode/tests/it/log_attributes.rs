//! The attributes of `Slow query` lines, from 4.4 to the sources of 9.0: each is read, or left out for a reason.
//!
//! Sources: `OpDebug::report` in `src/mongo/db/curop.cpp`, `op_debug.cpp` from 8.2, of <https://github.com/mongodb/mongo>,
//! and <https://www.mongodb.com/docs/manual/reference/log-messages/>. `docs/logs.md` says which figure of a report is made
//! of what.

use std::collections::BTreeSet;

use sonar_core::{Execution, Identity, Operation};
use sonar_decode::entry::EntrySink;
use sonar_decode::log::{LogReader, LogSettings};

/// What becomes of an attribute.
enum Use {
    /// It is read: then this is what an operation has of it.
    Read(&'static str),
    /// It is read where other attributes, or other lines, take it: alone it changes nothing here.
    Context(&'static str),
    /// It is left out.
    LeftOut(&'static str),
}
use Use::{Context, LeftOut, Read};

/// An attribute: its name, the first version that has it, a value, and what becomes of it.
type Attribute = (&'static str, &'static str, &'static str, Use);

const ATTRIBUTES: &[Attribute] = &[
    // Which operation it was: rows by shape, namespace, application, client.
    ("type", "4.4", r#""update""#, Read(r#"command: "update""#)),
    (
        "ns",
        "4.4",
        r#""t.other""#,
        Context("where the command does not name its collection, and for views: logs.rs, hints"),
    ),
    ("command", "4.4", r#"{"count":"d","query":{"b":1},"$db":"t"}"#, Read(r#"command: "count""#)),
    ("appName", "4.4", r#""shop-api""#, Read("shop-api")),
    ("remote", "4.4", r#""10.0.0.9:51234""#, Read("10.0.0.9")),
    ("protocol", "4.4", r#""op_query""#, Read("opcode: Query")),
    ("durationMillis", "4.4", "9", Read("latency_ns: Some(9000000)")),
    ("queryHash", "4.4", r#""AB12CD34""#, Read(r#"query_hash: "AB12CD34""#)),
    ("planCacheShapeHash", "8.0", r#""AB12CD34""#, Read(r#"query_hash: "AB12CD34""#)),
    ("queryShapeHash", "8.0", r#""AB12CD34""#, Read(r#"query_shape_hash: "AB12CD34""#)),
    (
        "resolvedViews",
        "5.0",
        r#"[{"viewNamespace":"t.d","dependencyChain":["d","e"]}]"#,
        Read(r#"view_of: "t.e""#),
    ),
    // How it was executed: examined documents, plans, remarks.
    ("planSummary", "4.4", r#""COLLSCAN""#, Read(r#"plan: "COLLSCAN""#)),
    ("keysExamined", "4.4", "5", Read("keys_examined: Some(5)")),
    ("docsExamined", "4.4", "5", Read("docs_examined: Some(5)")),
    ("hasSortStage", "4.4", "true", Read("memory_sort: true")),
    ("usedDisk", "4.4", "true", Read("used_disk: true")),
    ("fromMultiPlanner", "4.4", "true", Read("multi_planner: true")),
    ("replanned", "4.4", "true", Read("replanned: true")),
    ("nreturned", "4.4", "5", Read("docs_returned: Some(5)")),
    ("nMatched", "4.4", "5", Read("docs_matched: Some(5)")),
    ("nModified", "4.4", "5", Read("docs_affected: Some(5)")),
    ("ninserted", "4.4", "5", Read("docs_affected: Some(5)")),
    ("ndeleted", "4.4", "5", Read("docs_affected: Some(5)")),
    ("nUpserted", "4.4", "5", Read("docs_affected: Some(5)")),
    ("numYields", "4.4", "5", Read("yields: Some(5)")),
    ("writeConflicts", "4.4", "5", Read("write_conflicts: Some(5)")),
    ("prepareReadConflicts", "4.4", "5", Read("prepare_read_conflicts: Some(5)")),
    ("reslen", "4.4", "5", Read("response_bytes: 5,")),
    ("sortSpills", "8.1", "5", Read("spills: Some(5)")),
    ("sortSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("groupSpills", "8.1", "5", Read("spills: Some(5)")),
    ("groupSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("hashLookupSpills", "8.1", "5", Read("spills: Some(5)")),
    ("hashLookupSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("setWindowFieldsSpills", "8.1", "5", Read("spills: Some(5)")),
    ("setWindowFieldsSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("bucketAutoSpills", "8.1", "5", Read("spills: Some(5)")),
    ("bucketAutoSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("graphLookupSpills", "8.1", "5", Read("spills: Some(5)")),
    ("graphLookupSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("geoNearSpills", "8.1", "5", Read("spills: Some(5)")),
    ("geoNearSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("textOrSpills", "8.1", "5", Read("spills: Some(5)")),
    ("textOrSpilledBytes", "8.1", "5", Read("spilled_bytes: Some(5)")),
    ("hashJoinSpills", "9.0", "5", Read("spills: Some(5)")),
    ("hashJoinSpilledBytes", "9.0", "5", Read("spilled_bytes: Some(5)")),
    // Where its time went: the column of waits.
    ("locks", "4.4", r#"{"Global":{"timeAcquiringMicros":{"r":5}}}"#, Read("lock_wait_us: Some(5)")),
    ("flowControl", "4.4", r#"{"acquireCount":1,"timeAcquiringMicros":5}"#, Read("flow_control_us: Some(5)")),
    (
        "storage",
        "4.4",
        r#"{"data":{"bytesRead":5,"timeReadingMicros":6,"bytesWritten":7,"timeWritingMicros":8},"timeWaitingMicros":{"cache":9}}"#,
        Read("storage_read_bytes: Some(5)"),
    ),
    ("remoteOpWaitMillis", "5.0", "5", Read("remote_wait_us: Some(5000)")),
    ("waitForWriteConcernDurationMillis", "4.4", "5", Read("write_concern_us: Some(5000)")),
    ("planningTimeMicros", "7.0", "5", Read("planning_us: Some(5)")),
    ("cpuNanos", "7.0", "5", Read("cpu_ns: Some(5)")),
    (
        "queues",
        "8.0",
        r#"{"execution":{"admissions":1,"totalTimeQueuedMicros":5}}"#,
        Read("queued_us: Some(5)"),
    ),
    ("workingMillis", "8.0", "5", Read("working_ms: Some(5)")),
    // How it failed: the column of errors.
    ("ok", "4.4", "0", Read("is_failed")),
    ("errMsg", "4.4", r#""no""#, Read("is_failed")),
    ("errName", "4.4", r#""Interrupted""#, Read("is_failed")),
    ("errCode", "4.4", "11601", Read("11601")),
    // Of which cursor it is: a getMore has the shape of the command that opened the cursor.
    ("cursorid", "4.4", "77", Context("joins a getMore to the command before it: logs.rs")),
    (
        "originatingCommand",
        "4.4",
        r#"{"find":"e","filter":{"z":1},"$db":"t"}"#,
        Context("the shape of a getMore, whose command does not have it: logs.rs"),
    ),
    ("nShards", "4.4", "2", Read("shards: Some(2)")),
    // What it is part of.
    ("exhaust", "4.4", "true", LeftOut("how replies are sent, not what is asked")),
    (
        "cursorExhausted",
        "4.4",
        "true",
        LeftOut("whether it was the last batch; that one has no getMore after it"),
    ),
    ("keysInserted", "4.4", "5", LeftOut("work of indexes; no other source has it")),
    ("keysDeleted", "4.4", "5", LeftOut("as keysInserted")),
    ("replanReason", "4.4", r#""x""#, LeftOut("has values of the query; that it was replanned is read")),
    ("planCacheKey", "4.4", r#""AB12CD34""#, LeftOut("changes with the indexes; the shape's hash does not")),
    ("readConcern", "4.4", r#"{"level":"local"}"#, LeftOut("a copy of what the command has")),
    ("writeConcern", "4.4", r#"{"w":1}"#, LeftOut("a copy of what the command has; the wait for it is read")),
    (
        "mirrored",
        "4.4",
        "true",
        LeftOut("a read that a primary repeats on a secondary is executed like any other"),
    ),
    ("prepareConflictDurationMillis", "5.0", "5", LeftOut("part of the time; prepareReadConflicts is read")),
    ("catalogCacheDatabaseLookupDurationMillis", "5.0", "5", LeftOut("a router's work, part of its time")),
    ("catalogCacheCollectionLookupDurationMillis", "5.0", "5", LeftOut("as for databases")),
    ("catalogCacheIndexLookupDurationMillis", "6.0", "5", LeftOut("as for databases")),
    ("databaseVersionRefreshDurationMillis", "5.0", "5", LeftOut("a shard's work, part of its time")),
    ("shardVersionRefreshDurationMillis", "5.0", "5", LeftOut("as for databases")),
    ("placementVersionRefreshDurationMillis", "8.0", "5", LeftOut("as for databases")),
    ("totalOplogSlotDurationMicros", "7.0", "5", LeftOut("a part of the time of writes")),
    ("dataThroughputLastSecondMBperSec", "4.4", "5.0", LeftOut("of validate alone")),
    ("dataThroughputAverageMBPerSec", "4.4", "5.0", LeftOut("of validate alone")),
    ("mongot", "6.0", r#"{"cursorid":5}"#, LeftOut("of another program")),
    (
        "temporarilyUnavailableErrors",
        "6.0",
        "5",
        LeftOut("retries inside the storage engine; their time is in the waits"),
    ),
    ("queryFramework", "6.0", r#""sbe""#, LeftOut("the plan says what was executed")),
    ("fromPlanCache", "6.0", "true", LeftOut("no reason for anything; replanned is")),
    ("admissionPriority", "6.0", r#""low""#, LeftOut("the wait in queues is read")),
    ("operationMetrics", "5.0", r#"{"docBytesRead":5}"#, LeftOut("off, except in one service")),
    (
        "authorization",
        "5.0",
        r#"{"startedUserCacheAcquisitionAttempts":1}"#,
        LeftOut("once for a connection"),
    ),
    ("LDAPOperations", "6.0", r#"{"LDAPNumberOfSuccessfulReferrals":1}"#, LeftOut("once for a connection")),
    (
        "isFromUserConnection",
        "8.0",
        "true",
        LeftOut("the class of an operation is that of its application and namespace"),
    ),
    ("isFromPriorityPortConnection", "9.0", "true", LeftOut("as isFromUserConnection")),
    ("collectionType", "8.0", r#""normal""#, LeftOut("the namespace says it")),
    ("opid", "8.2", "5", LeftOut("a number of this run of the server")),
    (
        "writeConcernError",
        "8.0",
        r#"{"code":64}"#,
        LeftOut("the write itself worked; the wire has these errors"),
    ),
    ("estimatedCost", "8.2", "5.0", LeftOut("what the planner expected; explain has it")),
    ("estimatedCardinality", "8.2", "5.0", LeftOut("what the planner expected; explain has it")),
    ("sortTotalDataSizeBytes", "8.1", "5", LeftOut("what was sorted; that it spilled is read")),
    ("sortSpilledRecords", "8.1", "5", LeftOut("the bytes are read")),
    ("sortSpilledDataStorageSize", "8.1", "5", LeftOut("the bytes before compression are read")),
    (
        "spillStorage",
        "8.2",
        r#"{"data":{"bytesWritten":5}}"#,
        LeftOut("the bytes that were spilled are read"),
    ),
    ("inUseTrackedMemBytes", "8.2", "5", LeftOut("memory at the end of the operation")),
    ("peakTrackedMemBytes", "8.2", "5", LeftOut("memory; what it leads to, spilling, is read")),
    ("numInterruptChecks", "8.2", "5", LeftOut("of use for the server's developers")),
    (
        "delinquencyInfo",
        "8.2",
        r#"{"totalDelinquentAcquisitions":1}"#,
        LeftOut("of use for the server's developers"),
    ),
    ("priorityLowered", "9.0", "true", LeftOut("the wait in queues is read")),
    ("wasMarkedNonDeprioritizable", "9.0", "true", LeftOut("the wait in queues is read")),
    ("nBatches", "9.0", "5", LeftOut("each batch of a cursor is an operation")),
    ("extensionMetrics", "9.0", r#"{"a":5}"#, LeftOut("of other programs")),
    ("storageInterruptResponseNanos", "9.0", "5", LeftOut("how fast a killed operation ended")),
    ("interruptLatencyNanos", "8.2", "5", LeftOut("how fast a killed operation ended")),
    ("deadline", "8.2", r#"{"$date":"2026-05-01T10:00:10.000Z"}"#, LeftOut("maxTimeMS of the command")),
];

/// Everything that an operation has.
#[derive(Default)]
struct Everything(Vec<String>);

impl EntrySink for Everything {
    fn operation(&mut self, op: &Operation<'_>, identity: Identity, execution: &Execution<'_>, entries: u64) {
        let failed = if op.outcome == sonar_core::Outcome::Ok { "" } else { "is_failed" };
        self.0.push(format!("{op:?} {identity:?} {execution:?} {entries} {failed}"));
    }
}

/// What is read of a line with this attribute beside, or in the place of, those that each line has.
fn operation_with(attribute: Option<(&str, &str)>) -> String {
    let mut attributes = vec![
        ("type", r#""command""#),
        ("ns", r#""t.d""#),
        ("command", r#"{"find":"d","filter":{"a":1},"$db":"t"}"#),
        ("durationMillis", "7"),
    ];
    if let Some((name, value)) = attribute {
        match attributes.iter_mut().find(|known| known.0 == name) {
            Some(known) => known.1 = value,
            None => attributes.insert(3, (name, value)),
        }
    }
    let attributes: Vec<String> =
        attributes.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let line = format!(
        r#"{{"t":{{"$date":"2026-05-01T10:00:00.120+00:00"}},"s":"I","c":"COMMAND","id":51803,"ctx":"conn7","msg":"Slow query","attr":{{{}}}}}"#,
        attributes.join(",")
    );
    let (mut log, mut read) = (LogReader::new(LogSettings::default()), Everything::default());
    log.line(line.as_bytes(), &mut read);
    log.finish(&mut read);
    assert_eq!(log.reading().lines_operation, 1, "{line}");
    let [operation] = &read.0[..] else { panic!("{line}: {:?}", read.0) };
    operation.clone()
}

#[test]
fn each_attribute_of_a_slow_operation_is_read_or_left_out_for_a_reason() {
    let base = operation_with(None);
    let mut wrong = Vec::new();
    for (name, since, value, what) in ATTRIBUTES {
        let with = operation_with(Some((name, value)));
        match what {
            Read(part) if !with.contains(part) => {
                wrong.push(format!("{name} ({since}): no {part} in {with}"))
            }
            Read(part) if base.contains(part) => wrong.push(format!("{name}: {part} is there without it")),
            LeftOut(why) if with != base => wrong.push(format!("{name} ({why}) is read: {with}")),
            Context(why) | LeftOut(why) if why.is_empty() => wrong.push(format!("{name}: no reason")),
            Read(_) | LeftOut(_) | Context(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names of profiles and of logs before 4.4.
const OTHER_NAMES: &[&str] = &[
    "op",
    "ts",
    "millis",
    "micros",
    "durationMicros",
    "totalKeysExamined",
    "totalDocsExamined",
    "nscanned",
    "nscannedObjects",
    "keyUpdates",
    "nupdated",
    "upsert",
    "responseLength",
    "numYield",
    "ntoreturn",
    "ntoskip",
    "scanAndOrder",
    "client",
    "user",
    "exceptionCode",
    "exception",
    "code",
    "rateLimit",
    "waitForWriteConcernDuration",
    // Of transactions and applied operations, which have lines of their own.
    "terminationCause",
];

#[test]
fn each_name_that_is_read_stands_in_the_table() {
    let source = include_str!("../../src/entry/fields.rs");
    let (_, scalars) = source.split_once("pub fn scalar(").unwrap();
    let (scalars, _) = scalars.split_once("_ => return false").unwrap();
    let named = |text: &'static str| text.split("b\"").skip(1).filter_map(|rest| rest.split('"').next());
    let names: BTreeSet<&str> = named(scalars).filter(|name| *name != "committed").collect();
    assert!(names.len() > 50, "{names:?}");
    let is_known = |name: &str| {
        let ends = ["Spills", "SpilledBytes"].contains(&name);
        ends || OTHER_NAMES.contains(&name) || ATTRIBUTES.iter().any(|one| one.0 == name)
    };
    let unknown: Vec<_> = names.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let mut twice: Vec<&str> = ATTRIBUTES.iter().map(|one| one.0).collect();
    twice.sort_unstable();
    assert!(twice.windows(2).all(|pair| pair[0] != pair[1]), "a name stands twice");
}
