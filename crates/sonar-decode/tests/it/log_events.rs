//! What happened, as logs say it.

use sonar_core::history::{ApplicationWatch, Event};
use sonar_core::{Endpoint, Execution, Identity, Operation, Timestamp};
use sonar_decode::entry;
use sonar_decode::log::{LogReader, LogSettings};
use sonar_decode::testing::fixtures::inflated;

struct Nothing;

impl entry::EntrySink for Nothing {
    fn operation(&mut self, _: &Operation<'_>, _: Identity, _: &Execution<'_>, _: u64) {}
}

const SERVER: Endpoint = Endpoint::v4([0; 4], 27_017);

/// The events of a log.
fn events(log: &[u8]) -> Vec<Event> {
    let mut reader =
        LogReader::new(LogSettings { reference_ms: 1_430_000_000_000, ..LogSettings::default() });
    reader.collect_events(SERVER, ApplicationWatch::default());
    let mut found = Vec::new();
    for line in log.split(|byte| *byte == b'\n') {
        reader.line(line, &mut Nothing);
    }
    reader.finish(&mut Nothing);
    let (events, left_out) = reader.take_events();
    assert_eq!(left_out, 0);
    found.extend(events);
    assert_eq!(reader.reading().imbalances(), Vec::<String>::new());
    found
}

/// The events of some lines, as `kind [subject] text`.
fn shown(lines: &[&str]) -> Vec<String> {
    let one = |event: Event| {
        let count = if event.count > 1 { format!(" x{}", event.count) } else { String::new() };
        format!("{} [{}] {}{count}", event.kind.name(), event.subject, event.text)
    };
    events(lines.join("\n").as_bytes()).into_iter().map(one).collect()
}

/// A line of 4.4 or later, at this second of a minute.
fn json(second: u32, id: u32, attributes: &str) -> String {
    severe(second, ("I", id), attributes)
}

fn severe(second: u32, (severity, id): (&str, u32), attributes: &str) -> String {
    format!(
        "{{\"t\":{{\"$date\":\"2026-11-21T21:26:{second:02}.813+00:00\"}},\"s\":\"{severity}\",  \"c\":\"CONTROL\",  \
         \"id\":{id},   \"ctx\":\"conn2\",\"msg\":\"x\",\"attr\":{attributes}}}"
    )
}

/// Lines of a real server of 4.4: what somebody did to it is there, and nothing else.
#[test]
fn what_was_done_to_a_server_of_4_4() {
    let lines = [
        r#"{"t":{"$date":"2026-11-21T21:24:02.813+00:00"},"s":"I",  "c":"COMMAND",  "id":51806,   "ctx":"conn2","msg":"CMD: dropIndexes","attr":{"namespace":"shop.carts","uuid":{"uuid":{"$uuid":"2f844519-27b6-4d99-a814-363130932d39"}},"indexes":"\"user_1\""}}"#,
        r#"{"t":{"$date":"2026-11-21T21:24:02.813+00:00"},"s":"I",  "c":"STORAGE",  "id":22206,   "ctx":"conn2","msg":"Deferring table drop for index","attr":{"index":"user_1","namespace":"shop.carts","uuid":{"uuid":{"$uuid":"2f844519-27b6-4d99-a814-363130932d39"}},"ident":"index-31--2697458182853404949","commitTimestamp":{"$timestamp":{"t":1795296242,"i":52}}}}"#,
        r#"{"t":{"$date":"2026-11-21T21:24:22.813+00:00"},"s":"I",  "c":"INDEX",    "id":20438,   "ctx":"conn2","msg":"Index build: registering","attr":{"buildUUID":{"uuid":{"$uuid":"78bcffb0-69a3-48b3-8018-51fac097991e"}},"namespace":"shop.carts","collectionUUID":{"uuid":{"$uuid":"2f844519-27b6-4d99-a814-363130932d39"}},"indexes":1,"firstIndex":{"name":"user_1"}}}"#,
        r#"{"t":{"$date":"2026-11-21T21:24:22.818+00:00"},"s":"I",  "c":"INDEX",    "id":20384,   "ctx":"IndexBuildsCoordinatorMongod-2","msg":"Index build: starting","attr":{"namespace":"shop.carts","buildUUID":{"uuid":{"$uuid":"78bcffb0-69a3-48b3-8018-51fac097991e"}},"properties":{"v":2,"key":{"user":1},"name":"user_1"},"method":"Hybrid","maxTemporaryMemoryUsageMB":200}}"#,
        r#"{"t":{"$date":"2026-11-21T21:24:22.830+00:00"},"s":"I",  "c":"INDEX",    "id":20391,   "ctx":"IndexBuildsCoordinatorMongod-2","msg":"Index build: collection scan done","attr":{"buildUUID":{"uuid":{"$uuid":"78bcffb0-69a3-48b3-8018-51fac097991e"}},"totalRecords":8000,"durationMillis":0}}"#,
        r#"{"t":{"$date":"2026-11-21T21:24:22.838+00:00"},"s":"I",  "c":"INDEX",    "id":20345,   "ctx":"IndexBuildsCoordinatorMongod-2","msg":"Index build: done building","attr":{"buildUUID":{"uuid":{"$uuid":"78bcffb0-69a3-48b3-8018-51fac097991e"}},"namespace":"shop.carts","index":"user_1","commitTimestamp":{"$timestamp":{"t":1795296262,"i":45}}}}"#,
        r#"{"t":{"$date":"2026-11-21T21:25:02.813+00:00"},"s":"I",  "c":"COMMAND",  "id":20461,   "ctx":"conn2","msg":"CMD fsync","attr":{"lock":true}}"#,
        r#"{"t":{"$date":"2026-11-21T21:25:02.879+00:00"},"s":"I",  "c":"COMMAND",  "id":20462,   "ctx":"conn2","msg":"mongod is locked and no writes are allowed","attr":{"lockCount":1,"seeAlso":"http://dochub.mongodb.org/core/fsynccommand"}}"#,
        r#"{"t":{"$date":"2026-11-21T21:25:06.813+00:00"},"s":"I",  "c":"COMMAND",  "id":20465,   "ctx":"conn2","msg":"command: unlock requested"}"#,
        r#"{"t":{"$date":"2026-11-21T21:25:06.815+00:00"},"s":"I",  "c":"COMMAND",  "id":20466,   "ctx":"conn2","msg":"fsyncUnlock complete","attr":{"lockCount":0}}"#,
        r#"{"t":{"$date":"2026-11-21T21:25:17.813+00:00"},"s":"I",  "c":"STORAGE",  "id":22376,   "ctx":"conn2","msg":"Reconfiguring WiredTiger storage engine","attr":{"config":"cache_size=40MB"}}"#,
        r#"{"t":{"$date":"2026-11-21T21:25:17.814+00:00"},"s":"I",  "c":"COMMAND",  "id":23435,   "ctx":"conn2","msg":"Successfully set parameter to new value","attr":{"parameterName":"wiredTigerEngineRuntimeConfig","newValue":"\"cache_size=40MB\"","oldValue":"\"\""}}"#,
        r#"{"t":{"$date":"2026-11-21T21:25:59.706+00:00"},"s":"I",  "c":"STORAGE",  "id":22430,   "ctx":"WTCheckpointThread","msg":"WiredTiger message","attr":{"message":"[1795296359:706907][12309:0x7fbf157fa6c0], WT_SESSION.checkpoint: [WT_VERB_CHECKPOINT_PROGRESS] saving checkpoint snapshot min: 7457, snapshot max: 7457 snapshot count: 0, oldest timestamp: (1795296354, 19) , meta checkpoint timestamp: (1795296359, 15)"}}"#,
        r#"{"t":{"$date":"2026-11-21T21:26:49.813+00:00"},"s":"I",  "c":"CONTROL",  "id":23166,   "ctx":"conn2","msg":"Log rotation initiated"}"#,
        r#"{"t":{"$date":"2026-11-21T21:26:49.813+00:00"},"s":"I",  "c":"CONTROL",  "id":20721,   "ctx":"conn2","msg":"Process Details","attr":{"pid":"12309","port":27117,"architecture":"64-bit","host":"vm"}}"#,
        r#"{"t":{"$date":"2026-11-21T21:26:54.816+00:00"},"s":"I",  "c":"COMMAND",  "id":48742,   "ctx":"conn2","msg":"Profiler settings changed","attr":{"from":{"level":0,"slowms":20,"ratelimit":1,"sampleRate":1.0},"to":{"level":2,"slowms":20,"ratelimit":1,"sampleRate":1.0}}}"#,
        r#"{"t":{"$date":"2026-11-21T21:27:27.463+00:00"},"s":"I",  "c":"REPL",     "id":21216,   "ctx":"ReplCoord-1","msg":"Member is now in state RS_DOWN","attr":{"hostAndPort":"127.0.0.1:27118","heartbeatMessage":"Error connecting to 127.0.0.1:27118 :: caused by :: Connection refused"}}"#,
        r#"{"t":{"$date":"2026-11-21T21:27:36.579+00:00"},"s":"I",  "c":"CONTROL",  "id":20565,   "ctx":"SignalHandler","msg":"Now exiting"}"#,
        r#"{"t":{"$date":"2026-11-21T21:27:36.579+00:00"},"s":"I",  "c":"CONTROL",  "id":23138,   "ctx":"SignalHandler","msg":"Shutting down","attr":{"exitCode":0}}"#,
    ];
    let expected = [
        "index_drop [shop.carts] index user_1 was dropped",
        "index_build_begin [shop.carts] build of index user_1 began",
        "index_build_end [shop.carts] index user_1 was built",
        "writes_lock [] writes were locked by fsyncLock",
        "writes_lock [] writes were unlocked by fsyncUnlock",
        "setting_change [wiredTigerEngineRuntimeConfig] set to cache_size=40MB",
        "log_rotation [] the log was rotated",
        "profiler_change [] level 2, was 0",
        "state_change [127.0.0.1:27118] the member is now DOWN",
        "server_stop [] shut down, exit code 0",
    ];
    assert_eq!(shown(&lines), expected);
}

/// The ids of messages are those of the servers' sources.
#[test]
fn elections_and_states_of_a_replica_set() {
    let lines = [
        json(1, 21_358, r#"{"newState":"SECONDARY","oldState":"PRIMARY"}"#),
        json(2, 21_215, r#"{"hostAndPort":"db2.example.com:27017","newState":"PRIMARY"}"#),
        json(3, 21_217, r#"{"hostAndPort":"db3.example.com:27017"}"#),
        json(20, 4_615_652, r#"{"electionTimeoutPeriodMillis":10000}"#),
        json(21, 21_448, "{}"),
        json(30, 4_615_660, "{}"),
        json(31, 21_450, r#"{"term":7}"#),
        json(
            32,
            21_392,
            r#"{"config":{"_id":"rs0","version":5,"term":7,"members":[{"_id":0,"host":"a:1"},{"_id":1,"host":"b:1","tags":{"x":"y"}},{"_id":2,"host":"c:1"}],"settings":{}}}"#,
        ),
        json(40, 22_271, r#"{"lockFile":"/data/db/mongod.lock"}"#),
        json(41, 20_499, r#"{"timeStats":{"after basic":0,"at end":4300}}"#),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let expected = [
        "state_change [] changed from PRIMARY to SECONDARY",
        "state_change [db2.example.com:27017] the member is now PRIMARY",
        "state_change [db3.example.com:27017] the member is now UNKNOWN",
        "election [] stands for election: no primary was seen in time",
        "election [] did not win the election: too few votes",
        "election [] stands for election: it has a higher priority",
        "election [] won the election of term 7",
        "reconfiguration [] version 5 of the configuration, term 7, 3 members",
        "server_stop [] had not shut down cleanly before this start",
        "stall [] serverStatus took over a second",
    ];
    assert_eq!(shown(&lines), expected);
}

/// Later versions have more attributes, and WiredTiger's messages are documents since 6.0.
#[test]
fn lines_of_5_0_to_8() {
    let uuid = r#""buildUUID":{"uuid":{"$uuid":"11111111-2222-3333-4444-555555555555"}}"#;
    let lines = [
        json(
            1,
            20_384,
            &format!(
                r#"{{{uuid},"collectionUUID":{{"uuid":{{"$uuid":"66666666-2222-3333-4444-555555555555"}}}},"namespace":"shop.orders","properties":{{"v":2,"key":{{"a":1}},"name":"a_1","partialFilterExpression":{{"name":"SECRET"}}}},"specIndex":0,"numSpecs":1,"method":"Hybrid","ident":"index-1"}}"#
            ),
        ),
        json(
            2,
            20_649,
            &format!(
                r#"{{{uuid},"namespace":"shop.orders","error":{{"code":11000,"codeName":"DuplicateKey","errmsg":"E11000 dup key: {{ a: \"SECRET\" }}"}}}}"#
            ),
        ),
        json(
            3,
            20_384,
            &format!(
                r#"{{{uuid},"namespace":"shop.orders","properties":{{"v":2,"key":{{"b":1}},"name":"b_1"}}}}"#
            ),
        ),
        json(4, 465_611, &format!("{{{uuid}}}")),
        json(5, 51_806, r#"{"namespace":"shop.orders","indexes":["c_1","d_1"]}"#),
        json(10, 51_806, r#"{"namespace":"shop.users","indexes":"{ mail: \"SECRET\" }"}"#),
        json(20, 22_206, r#"{"index":"e_1","namespace":"shop.old"}"#),
        json(20, 22_206, r#"{"index":"_id_","namespace":"shop.old"}"#),
        json(20, 20_318, r#"{"namespace":"shop.old"}"#),
        json(30, 518_070, r#"{"namespace":"shop.carts"}"#),
        json(30, 20_318, r#"{"namespace":"shop.carts"}"#),
        json(31, 20_337, r#"{"db":"stats"}"#),
        json(
            40,
            22_430,
            r#"{"message":{"ts_sec":1795296359,"ts_usec":1,"thread":"1:0x7f","session_name":"WT_SESSION.checkpoint","category":"WT_VERB_CHECKPOINT_PROGRESS","category_id":6,"verbose_level":"INFO","verbose_level_id":0,"msg":"Checkpoint ran for 64 seconds and wrote: 81234 pages (2210 MB)"}}"#,
        ),
        json(
            41,
            23_435,
            r#"{"parameterName":"cursorTimeoutMillis","newValue":"SECRET{","oldValue":"600000"}"#,
        ),
        json(
            42,
            48_742,
            r#"{"from":{"level":0,"slowms":100,"sampleRate":1.0},"to":{"level":1,"slowms":5,"sampleRate":0.5,"filter":"{ ns: \"SECRET\" }"},"db":"shop"}"#,
        ),
        severe(43, ("E", 22_435), r#"{"error":28,"message":"SECRET"}"#),
        severe(44, ("E", 22_435), r#"{"error":28,"message":"SECRET"}"#),
        severe(45, ("F", 23_091), r#"{"msgid":50853,"file":"x","line":1}"#),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let expected = [
        "index_build_begin [shop.orders] build of index a_1 began",
        "index_build_end [shop.orders] the build of index a_1 failed: DuplicateKey",
        "index_build_begin [shop.orders] build of index b_1 began",
        "index_build_end [shop.orders] the build of index b_1 failed: IndexBuildAborted",
        "index_drop [shop.orders] index c_1 was dropped",
        "index_drop [shop.users] indexes were dropped",
        "collection_drop [shop.old] the collection was dropped",
        "collection_drop [shop.carts] the collection was dropped",
        "collection_drop [stats] the database was dropped",
        "long_checkpoint [] the checkpoint took 64 s and wrote 81234 pages, 2210 MB",
        "setting_change [cursorTimeoutMillis] changed",
        "profiler_change [shop] level 1, was 0; slowms 5, was 100; sampleRate 0.5, was 1",
        "log_error [CONTROL] x x2",
        "log_fatal [CONTROL] x",
    ];
    assert_eq!(shown(&lines), expected);
}

/// The texts of messages are those of the servers' sources.
#[test]
fn lines_of_2_4_to_4_2() {
    let lines = [
        // 2.4
        "Mon Aug  5 20:20:43.100 [initandlisten] MongoDB starting : pid=771 port=27017 dbpath=/data/db 64-bit host=db1",
        "Mon Aug  5 20:20:43.101 [initandlisten] db version v2.4.14",
        "Mon Aug  5 20:21:43.100 [conn4] build index shop.carts { user: 1 }",
        "Mon Aug  5 20:21:44.100 [conn4] build index done.  scanned 8000 total records. 0.9 secs",
        "Mon Aug  5 20:22:10.100 [rsMgr] replSet info electSelf 1",
        "Mon Aug  5 20:22:11.100 [rsMgr] replSet PRIMARY",
        "Mon Aug  5 20:22:12.100 [rsHealthPoll] replSet member db2:27017 is now in state SECONDARY",
        "Mon Aug  5 20:23:11.100 [conn7] CMD: drop shop.old",
        "Mon Aug  5 20:23:30.100 [conn7] dropDatabase stats starting",
        "Mon Aug  5 20:23:31.100 [conn7] dropDatabase stats finished",
        "Mon Aug  5 20:24:00.100 [signalProcessingThread] dbexit: ",
        "Mon Aug  5 20:24:00.900 [signalProcessingThread] dbexit: really exiting now",
        // 2.6
        "2014-08-05T20:25:43.100+0200 [conn4] build index on: shop.carts properties: { v: 1, key: { user: 1.0 }, name: \"user_1\", ns: \"shop.carts\" }",
        "2014-08-05T20:25:44.100+0200 [conn4] build index done.  scanned 8000 total records. 0.9 secs",
        // 3.0
        "2015-08-05T20:26:43.100+0000 I REPL     [ReplicationExecutor] transition to SECONDARY",
        "2015-08-05T20:26:44.100+0000 I REPL     [rsSync] transition to primary complete; database writes are now permitted",
        "2015-08-05T20:27:00.100+0000 I CONTROL  [signalProcessingThread] dbexit:  rc: 0",
        // 3.4
        "2017-08-05T20:26:43.100+0000 W STORAGE  [initandlisten] Detected unclean shutdown - /data/db/mongod.lock is not empty.",
        "2017-08-05T20:26:50.100+0000 I COMMAND  [conn1] CMD: dropIndexes shop.carts",
        "2017-08-05T20:26:51.100+0000 I COMMAND  [conn1] mongod is locked and no writes are allowed. db.fsyncUnlock() to unlock",
        "2017-08-05T20:26:55.100+0000 I COMMAND  [conn1] fsyncUnlock completed. mongod is now unlocked and free to accept writes",
        "2017-08-05T20:27:01.100+0000 I COMMAND  [conn1] successfully set parameter cursorTimeoutMillis to 1000 (was 600000)",
        "2017-08-05T20:27:02.100+0000 I CONTROL  [conn1] Log rotation initiated",
        "2017-08-05T20:27:10.100+0000 I COMMAND  [ftdc] serverStatus was very slow: { after basic: 0, at end: 1430 }",
        // 4.2
        "2020-08-05T20:27:10.100+0000 I  INDEX    [conn9] index build: starting on shop.carts properties: { v: 2, key: { user: 1 }, name: \"user_1\", ns: \"shop.carts\" } using method: Hybrid",
        "2020-08-05T20:27:11.100+0000 I  INDEX    [conn9] index build: done building index user_1 on ns shop.carts",
        "2020-08-05T20:27:20.100+0000 I  INDEX    [conn9] Index build failed: 11111111-2222-3333-4444-555555555555: shop.users ( 66666666-2222-3333-4444-555555555555 ): DuplicateKey: E11000 dup key: { a: \"SECRET\" }",
        "2020-08-05T20:27:30.100+0000 I  COMMAND  [conn9] CMD: dropIndexes shop.carts: \"user_1\"",
        "2020-08-05T20:28:10.100+0000 I  STORAGE  [WTCheckpointThread] WiredTiger message [1596659290:1][1:0x7f], WT_SESSION.checkpoint: Checkpoint ran for 27 seconds and wrote: 4000 pages (120 MB)",
        "2020-08-05T20:28:20.100+0000 E  STORAGE  [conn9] WiredTiger error (28) [1:2] No space left on device \"SECRET\"",
        "2020-08-05T20:28:30.100+0000 I  CONTROL  [signalProcessingThread] shutting down with code:0",
    ];
    let expected = [
        "server_start [] started, process 771, version 2.4.14",
        "index_build_begin [shop.carts] build of an index began",
        "index_build_end [shop.carts] an index was built",
        "election [] stands for election: no primary was seen",
        "state_change [] changed to PRIMARY",
        "state_change [db2:27017] the member is now SECONDARY",
        "collection_drop [shop.old] the collection was dropped",
        "collection_drop [stats] the database was dropped",
        "server_stop [] shut down",
        "index_build_begin [shop.carts] build of index user_1 began",
        "index_build_end [shop.carts] index user_1 was built",
        "state_change [] changed to SECONDARY",
        "server_stop [] shut down, exit code 0",
        "server_stop [] had not shut down cleanly before this start",
        "index_drop [shop.carts] indexes were dropped",
        "writes_lock [] writes were locked by fsyncLock",
        "writes_lock [] writes were unlocked by fsyncUnlock",
        "setting_change [cursorTimeoutMillis] set to 1000, was 600000",
        "log_rotation [] the log was rotated",
        "stall [] serverStatus took over a second",
        "index_build_begin [shop.carts] build of index user_1 began",
        "index_build_end [shop.carts] index user_1 was built",
        "index_build_end [shop.users] the build failed: DuplicateKey",
        "index_drop [shop.carts] index user_1 was dropped",
        "long_checkpoint [] the checkpoint took 27 s and wrote 4000 pages, 120 MB",
        "log_error [STORAGE] WiredTiger error (#) [#:#] No space left on device #",
        "server_stop [] shut down, exit code 0",
    ];
    assert_eq!(shown(&lines), expected);
}

/// The recorded logs of 4.0 have what was done to their servers, and nothing else.
#[test]
fn recorded_logs_of_4_0() {
    let kinds = |name: &str| -> Vec<String> {
        let events = events(&inflated(name)).into_iter();
        events.map(|event| format!("{} {}", event.kind.name(), event.subject)).collect()
    };
    let mixed = [
        "server_start ",
        "reconfiguration ",
        "state_change ",
        "state_change ",
        "state_change ",
        "election ",
        "state_change ",
        "collection_drop shop.system.profile",
        "collection_drop stats.system.profile",
        "index_build_begin shop.people",
        "index_build_end shop.people",
        "index_build_begin shop.people",
        "index_build_end shop.people",
        "server_stop ",
    ];
    assert_eq!(kinds("mongod-4.0-mixed/mongod.log.gz"), mixed);
    assert_eq!(kinds("mongod-4.0-sharded/27217.log.gz"), ["server_start ", "server_stop "], "a mongos");
}

/// Connections and clients of a log of 4.4: a storm of one application, which is new too.
#[test]
fn a_storm_of_a_new_application() {
    let connection = |second: u32, number: u32, app: &str| {
        let time = format!("2026-11-21T21:{:02}:{:02}.000+00:00", second / 60, second % 60);
        let head = |id, message| {
            format!(
                "{{\"t\":{{\"$date\":\"{time}\"}},\"s\":\"I\",\"c\":\"NETWORK\",\"id\":{id},\"ctx\":\"conn{number}\",\"msg\":\"{message}\",\"attr\":"
            )
        };
        let accepted = format!(
            "{}{{\"remote\":\"127.0.0.1:{}\",\"connectionCount\":9}}}}",
            head(22_943, "Connection accepted"),
            10_000 + number
        );
        let document = format!(
            "{{\"application\":{{\"name\":\"{app}\"}},\"driver\":{{\"name\":\"PyMongo\",\"version\":\"4.7.3\"}}}}"
        );
        let client = format!(
            "{}{{\"remote\":\"127.0.0.1:1\",\"client\":\"conn{number}\",\"doc\":{document}}}}}",
            head(51_800, "client metadata")
        );
        [accepted, client]
    };
    let quiet = (0..180u32).step_by(10).flat_map(|second| connection(second, second, "shop-api"));
    let storm = (0..150u32).flat_map(|number| connection(180 + number / 100, 1_000 + number, "storm"));
    let after = connection(200, 5_000, "shop-api");
    let lines: Vec<String> = quiet.chain(storm).chain(after).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let expected = [
        "new_application [storm] first connection, by PyMongo 4.7.3",
        "connection_storm [] 150 opened within 2 s, usually 0.1 per second",
    ];
    assert_eq!(shown(&lines), expected);
}

#[test]
fn no_value_of_a_query_is_in_an_event() {
    let hostile = [
        json(1, 21_358, r#"{"newState":"SECRET { a: 1 }","oldState":"x SECRET"}"#),
        json(2, 21_215, r#"{"hostAndPort":"SECRET db","newState":"x SECRET"}"#),
        json(3, 20_384, r#"{"namespace":"SECRET \"x","properties":{"name":"{SECRET"}}"#),
        json(4, 23_138, r#"{"exitCode":"1 SECRET"}"#),
        json(5, 20_649, r#"{"namespace":"a.b","error":"DuplicateKey: SECRET"}"#),
        "2020-08-05T20:28:20.100+0000 I  REPL  [conn9] transition to SECRET from SECRET".to_owned(),
        "2020-08-05T20:28:20.100+0000 I  INDEX  [conn9] index build: starting on a.b properties: { v: 2, partialFilterExpression: { name: \"SECRET\" }, x: \"\" name: \"SECRET\" }".to_owned(),
    ];
    let lines: Vec<&str> = hostile.iter().map(String::as_str).collect();
    for event in shown(&lines) {
        assert!(!event.contains("SECRET"), "{event}");
    }
}

#[test]
fn settings_that_differ_from_those_of_the_last_start_are_an_event() {
    let options = |second, options: &str| json(second, 21_951, &format!(r#"{{"options":{options}}}"#));
    let first = r#"{"net":{"port":27017,"bindIp":"127.0.0.1"},"storage":{"wiredTiger":{"engineConfig":{"cacheSizeGB":2.5}}},"security":{"ldap":{"bind":{"queryPassword":"hunter2"}}},"setParameter":{"a":[1,2]}}"#;
    let second = r#"{"net":{"port":27017,"bindIp":"127.0.0.1"},"storage":{"wiredTiger":{"engineConfig":{"cacheSizeGB":1.0}}},"security":{"ldap":{"bind":{"queryPassword":"hunter3"}}}}"#;
    // A log that was rotated begins with the same ones again.
    let lines =
        [options(1, first), options(2, first), options(3, second), options(4, "{}"), options(5, second)];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let text = "since this start storage.wiredTiger.engineConfig.cacheSizeGB 1, was 2.5";
    assert_eq!(shown(&lines), [format!("setting_change [] {text}")]);
    for damaged in ["null", "[1]", "7", r#"{"a":{"b"#] {
        assert_eq!(shown(&[&options(1, first), &options(2, damaged)]), Vec::<String>::new(), "{damaged}");
    }
}

#[test]
fn events_are_bounded() {
    let lines: Vec<String> =
        (0..10_000).map(|n| json(1, 518_070, &format!(r#"{{"namespace":"shop.c{n}"}}"#))).collect();
    let mut reader = LogReader::new(LogSettings::default());
    reader.collect_events(SERVER, ApplicationWatch::default());
    for line in &lines {
        reader.line(line.as_bytes(), &mut Nothing);
    }
    let (events, left_out) = reader.take_events();
    assert_eq!(events.len() as u64 + left_out, 10_000);
    assert!(events.len() <= 2_000 && reader.take_events() == (Vec::new(), 0));
}

proptest::proptest! {
    #[test]
    fn no_line_panics(text in "[ -~é]{0,200}", id in 20_000u32..24_000, cut in 0usize..300) {
        let texts = [
            "transition to ", "build index on: ", "build index ", "index build: done building index ", "CMD: drop ",
            "Index build failed: ", "dropDatabase ", "successfully set parameter ", "Member ", "replSet ",
            "New replica set config in use: {", "dbexit: ", "WiredTiger message Checkpoint ran for ",
        ];
        let mut lines: Vec<String> =
            texts.iter().map(|begin| format!("2020-08-05T20:28:20.100+0000 I  REPL  [conn9] {begin}{text}")).collect();
        let quoted = text.replace(['\\', '"'], "");
        for name in ["namespace", "index", "indexes", "message", "newState", "error", "hostAndPort"] {
            lines.push(json(1, id, &format!(r#"{{"{name}":"{quoted}","buildUUID":{{"uuid":{{"$uuid":"{quoted}"}}}}}}"#)));
        }
        let cut: Vec<&[u8]> = lines.iter().map(|line| &line.as_bytes()[..cut.min(line.len())]).collect();
        events(&cut.join(&b'\n'));
        events(lines.join("\n").as_bytes());
    }
}

#[test]
fn the_beginning_of_a_shutdown_is_known_and_no_event() {
    let begins = [
        // 8.0, by a signal; the shutdown command logs the rest.
        r#"{"t":{"$date":"2026-11-21T21:27:30.000+00:00"},"s":"I",  "c":"CONTROL",  "id":23381,   "ctx":"SignalHandler","msg":"will terminate after current cmd ends"}"#,
        r#"{"t":{"$date":"2026-11-21T21:27:30.000+00:00"},"s":"I",  "c":"REPL",     "id":4784900, "ctx":"conn9","msg":"Stepping down the ReplicationCoordinator for shutdown","attr":{"waitTimeMillis":15000}}"#,
        r#"{"t":{"$date":"2026-11-21T21:27:30.000+00:00"},"s":"I",  "c":"NETWORK",  "id":20562,   "ctx":"SignalHandler","msg":"Shutdown: going to close listening sockets"}"#,
        // 4.2 and before.
        "2026-11-21T21:27:30.000+0000 I  CONTROL  [signalProcessingThread] got signal 15 (Terminated), will terminate after current cmd ends",
        "2026-11-21T21:27:30.000+0000 I NETWORK  [conn9] shutdown: going to close listening sockets...",
        // mongos
        "2026-11-21T21:27:30.000+0000 I  NETWORK  [signalProcessingThread] shutdown: going to close all sockets...",
    ];
    let others = [
        r#"{"t":{"$date":"2026-11-21T21:27:30.000+00:00"},"s":"I",  "c":"CONTROL",  "id":23377,   "ctx":"SignalHandler","msg":"Received signal","attr":{"signal":10,"error":"User defined signal 1"}}"#,
        "2026-11-21T21:27:30.000+0000 I CONTROL  [signalProcessingThread] got signal 10 (User defined signal 1), will rotate",
    ];
    let read = |line: &str| {
        let mut reader = LogReader::new(LogSettings::default());
        reader.collect_events(SERVER, ApplicationWatch::default());
        reader.line(line.as_bytes(), &mut Nothing);
        let taken = (reader.take_shutdown(), reader.take_events().0);
        assert_eq!(reader.take_shutdown(), None, "it is taken once");
        taken
    };
    for line in begins {
        assert_eq!(read(line), (Some(Timestamp::from_unix(1_795_296_450, 0)), vec![]), "{line}");
    }
    for line in others {
        assert_eq!(read(line), (None, vec![]), "{line}");
    }
}
