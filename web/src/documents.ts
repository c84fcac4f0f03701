// The documents that the commands write with --json. What is not known is null. Made from the types in crates/sonar-view:
// SNAPSHOTS=overwrite cargo test -p sonar-view typescript

export type Report = DigestDocument | ComparisonDocument | BenchDocument | DiskComparisonDocument | IoReportDocument | ImpactDocument | LongImpactDocument | FtdcReport | ChangesReport | TimelineReport | IncidentReport | ShapeHistory | WaitsReport | AllSeriesReport | EventsReport | StorageReport | DifferentReport | WhyReport | StackReport | StackComparison | CurrentReportDocument | ExplainReportDocument | ProblemDocument;

/** Where a document comes from. */
export type About = {
/** The program that wrote it. */
tool: string,
/** The version of the program. */
version: string,
/** The host that the figures are of; null where nothing says which. */
host: string | null,
/** Files, servers or interfaces that were read, by name. */
sources: Array<string>,
/** The start of the time that the figures cover, in nanoseconds since 1970; null where there is none, or two. */
start_ns: number | null,
/** Its end. */
end_ns: number | null, };

/** Average number of operations in progress, by interval. */
export type ActivityJson = {
/** The start of the first interval, in nanoseconds since 1970. */
start_ns: number,
/** The end of the last one, which may be longer than the others. */
end_ns: number,
/** The width of an interval, in nanoseconds. */
width_ns: number,
/** Parts that operations had, the largest first. */
parts: Array<PartActivityJson>, };

/** A running agent. */
export type AgentStatus = {
/** The program's version. */
version: string,
/** Its process. */
pid: number,
/** When that started, in clock ticks since boot: distinguishes it from a later process of its number. */
started_ticks: number,
/** When it started, in nanoseconds since 1970. */
started_ns: number,
/** When this was written. */
written_ns: number,
/** The folder of the store. */
store: string,
/** Size of the store in bytes. */
store_bytes: number,
/** Windows stored since the start. */
windows: number,
/** Windows that could not be stored. */
windows_lost: number,
/** Why windows cannot be stored now; `None` if they can. */
store_problem: string | null,
/** End of the last stored window, in nanoseconds since 1970. */
last_window_ns: number | null,
/** Why the last change of the configuration was refused; `None` if it was not. */
refused_configuration: string | null,
/** What the store reported, the newest last. */
notices: Array<string>,
/** Processor time of the whole agent so far, in nanoseconds. */
cpu_ns: number,
/** Processor time of its helper processes so far, in nanoseconds. */
helpers_cpu_ns: number,
/** Its memory in bytes. */
memory_bytes: number,
/** What holds it, and how much at most. */
held: Array<HeldBytes>,
/** Its page; `None` if it is off. */
page: ServedPageStatus | null,
/** Its collectors. */
collectors: Array<CollectorStatus>,
/** The servers that it watches. */
servers: Array<WatchedServer>, };

/** Series over time. */
export type AllSeriesReport = {
/** Version of the schema. */
schema: number,
/** `all_series`. */
kind: "all_series",
/** Where it comes from; its span is the axis. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** What the stored series of this time are about, without the filter. */
subjects: Array<string>,
/** The series, by subject, metric, server and name. */
series: Array<StoredSeriesJson>,
/** Series that were left out because there are too many; counted up to 20,000. */
left_out: number,
/** Times that were not observed. */
gaps: Array<GapJson>, };

export type AppCallerJson = { name: string | null, driver: string | null, driver_version: string | null, joined_late: boolean, calls: number, failed: number | null, latency_ns: number | null, };

/** A run of `disk bench`, with where it comes from. */
export type BenchDocument = { about: About,
/** Version of the schema. */
schema: number,
/** `disk_bench`. */
kind: "disk_bench",
/** Version of mongosonar. */
version: string,
/** When it began, nanoseconds since 1970. */
started_ns: number,
/** The settings. */
settings: BenchSettings,
/** Where it ran. */
place: RunPlace,
/** The engine that made the requests: `uring`, `threads` or `mmap`. */
engine: string,
/** Short tests before the ramp. */
probes: Array<ProbeResult>,
/** The ramp. */
steps: Array<StepJson>,
/** What it means. */
verdict: BenchVerdict | null,
/** What a reader should know: fallbacks, shared memory, an interrupted run. */
notes: Array<string>, };

/** A run of `disk bench`. What is not known is `null`. */
export type BenchReport = {
/** Version of the schema. */
schema: number,
/** `disk_bench`. */
kind: "disk_bench",
/** Version of mongosonar. */
version: string,
/** When it began, nanoseconds since 1970. */
started_ns: number,
/** The settings. */
settings: BenchSettings,
/** Where it ran. */
place: RunPlace,
/** The engine that made the requests: `uring`, `threads` or `mmap`. */
engine: string,
/** Short tests before the ramp. */
probes: Array<ProbeResult>,
/** The ramp. */
steps: Array<StepJson>,
/** What it means. */
verdict: BenchVerdict | null,
/** What a reader should know: fallbacks, shared memory, an interrupted run. */
notes: Array<string>, };

/** Settings of a run, with mongoperf's names where it has them. */
export type BenchSettings = {
/** Most requests in flight. */
nThreads: number,
/** Size of the file in MiB. */
fileSizeMB: number,
/** Pause after each round, shared by those in flight, in microseconds. */
sleepMicros: number,
/** Whether the file was mapped. */
mmf: boolean,
/** Whether it was read. */
r: boolean,
/** Whether it was written. */
w: boolean,
/** Size of a record in KiB. */
recSizeKB: number,
/** Seconds between two `msync`. */
syncDelay: number,
/** Length of a step in seconds. */
step_seconds: number,
/** `random` or `sequential`. */
access: string,
/** Whether each write was followed by `fdatasync`. */
fdatasync: boolean,
/** Whether requests went past the page cache. */
direct: boolean,
/** The seed of the offsets. */
seed: number, };

/** What the steps mean. */
export type BenchVerdict = {
/** The lowest number in flight that gives nine tenths of the best rate. */
knee_in_flight: number,
/** Its reads and writes per second. */
knee_per_second: number,
/** The best rate of any step. */
best_per_second: number,
/** Whether the last step was still better than the one before. */
still_scaling: boolean,
/** `not-reached`, `cap`, `processor`, `device`, `file-system`, `memory` or `unknown`. */
limit: string,
/** By the probes: `capped`, `seeks`, `parallel` or `flat`; null without them, and where the processor was the limit. */
volume: string | null,
/** The known kind of disk that comes nearest; null where the processor was the limit. */
class: string | null,
/** All of it in sentences. */
words: Array<string>, };

/** Who ended waits. */
export type BlockerJson = {
/** The thread's id. */
thread: number,
/** Its name; null if it ended. */
thread_name: string | null,
/** Whether other threads that executed the same shape ended waits, too; the figures cover all these threads. */
has_others: boolean,
/** The shape that it executed; null if it executed none, or serves a connection that is not followed. */
shape_id: string | null,
/** The command of that shape with its namespace. */
command: string | null,
/** Waits. */
waits: number,
/** How long they had lasted, in nanoseconds. */
wait_ns: number,
/** Share of the time that operations waited in futexes and polls. */
share: number, };

/** What each source knows about a row; null where it knows nothing. */
export type BySource = { wire: WireObject | null, profile: FiguresObject | null, log: FiguresObject | null, };

/** What is not known of any operation of the row is not known of those of a caller. */
export type CallerShareJson = { calls: number, failed: number | null, latency_ns: number | null, };

export type ChangeEventJson = { kind: string, time_ns: number, subject: string | null, text: string, count: number, };

/** The figures of one change; those of each kind of change have a form of their own. */
export type ChangeFiguresJson = Array<ChangeEventJson> | NewApplicationJson | ShapeChangeJson | ErrorChangeJson | GrowthJson | ServerChangeJson | MachineChangeJson | SeriesChangeJson;

/** One change. */
export type ChangeJson = {
/** `event`, `application`, `shape`, `errors`, `growth`, `server`, `machine` or `series`. */
kind: string,
/** The server; null if it is not about one. */
server: string | null,
/** When what the sentence says happened or began. */
since_ns: number,
/** The start of the time that its figures cover; they are compared with the time before it. */
from_ns: number,
/** The end of the time that its figures cover. */
until_ns: number,
/** Time that operations took beyond what they took before; below 0: less. */
cost_ns: number,
/** In words. */
sentence: string,
/** The figures, a line each. */
evidence: Array<string>,
/** The arguments of the command that shows more; empty if there is none. */
command: Array<string>,
/** The same figures for programs. */
figures: ChangeFiguresJson,
/** What it caused, or what began with it. */
effects: Array<ChangeJson>, };

/** What changed, at each moment of change. */
export type ChangesReport = {
/** Version of the schema. */
schema: number,
/** `what-changed`. */
kind: "what-changed",
/** Where it comes from; its span is what was looked at. */
about: About,
/** The zone of times in sentences. */
zone: ZoneObject,
/** What the figures of the span were compared with; null if each moment was compared with the time before it. */
compared_with: SpanJson | null,
/** The time before that shows what is usual; null unless it is longer than `compared_with`. */
usual: SpanJson | null,
/** The answer in one sentence. */
summary: string,
/** The moments at which something changed, by time. */
moments: Array<MomentJson>,
/** Times within the span that were not observed. */
gaps: Array<GapJson>,
/** What was lost in the span, by the name of its counter. */
lost: { [key in string]: number },
/** What a reader must know before the changes: what was lost, and what was not observed at all. */
notes: Array<string>, };

/** Long waits of one class, over time. */
export type ClassLaneJson = {
/** In which part of the time; null for all others. */
part: ShownPart | null,
/** Its name, as in `mongosonar stacks`; null for all others. */
class: string | null,
/** How many. */
waits: number,
/** How long they lasted, in nanoseconds. */
wait_ns: number,
/** How many operations waited at once, on average. */
values: Array<number | null>, };

export type ClientCallerJson = { address: string, calls: number, failed: number | null, latency_ns: number | null, };

/** How a collector is. */
export type CollectorState = "off" | "waiting" | "working" | "needs_you";

/** One collector. */
export type CollectorStatus = {
/** Its stable name. */
name: string,
/** How it is. */
state: CollectorState,
/** Since when, in nanoseconds since 1970; `None` if it never worked or failed. */
since_ns: number | null,
/** When it last delivered data. */
last_data_ns: number | null,
/** Records that it lost so far: packets, lines, samples, accesses. */
lost: number,
/** Processor time that its threads have used so far in user mode, in nanoseconds. */
user_ns: number,
/** The same in the kernel. */
system_ns: number,
/** How long its eBPF programs have run so far, in the threads that they trace; `None` if it has none, or the kernel
 * does not measure it. */
ebpf_ns: number | null,
/** Why it waits, or it or a part of it fails, and what helps: a text for each server or interface. */
problems: Array<string>,
/** What it collects, where that differs from server to server. */
notes: Array<string>, };

/** A shape whose operations are compared with each other. */
export type ComparedShapeJson = {
/** Its id. */
shape_id: string,
/** The command. */
command: string,
/** The namespace; empty if the command names none. */
namespace: string,
/** Its text with typed placeholders. */
typed: string, };

export type ComparedSideJson = { name: string, host: string | null, source: string, calls: number,
/** Nanoseconds since 1970. */
first_seen: number, last_seen: number, zone: ZoneObject,
/** What must be known of it before its figures are believed. */
notes: Array<string>, };

/** Two digests, compared row by row. */
export type ComparisonDocument = { schema: number, kind: "comparison", about: About,
/** A and B. */
sides: [ComparedSideJson, ComparedSideJson],
/** Rows that changed. */
changed: number, unchanged: number,
/** Rows of which too little is known, for any reason. */
not_judged: number, not_judged_few_latencies: number, not_judged_in_one: number, not_judged_other_source: number,
/** Rows whose latency moved, but varies too much from second to second. */
not_judged_varies: number,
/** Rows of one side only, where messages of a capture, or these commands, were read in part. */
not_judged_in_part: number,
/** Rows that only one side has, where the other does not have all of its rows. */
not_compared: number, by: string, latencies_compared: boolean,
/** Durations are rounded down to a multiple of this, in nanoseconds. */
precision_ns: number, worse: boolean, rows: Array<RowPairJson>, };

export type CurrentDocument = { schema: number, kind: string, at_ns: number | null, in_flight: number, matching: number, oldest_us: number | null, awaiting_topology: number, waiting_for_lock: number, waiting_for_latch: number, waiting_for_flow_control: number, waiting_in_queues: number, idle: number, malformed: number, beyond_cap: number, operations: Array<CurrentOperationJson>, };

/** The operations of a file on a page. */
export type CurrentFileJson = {
/** The name of the file. */
name: string,
/** How many there are, how old the oldest is, and what they wait for. */
sentence: string,
/** What is not shown, and why. */
left_out: Array<string>,
/** What `--json` writes. */
report: CurrentDocument, };

export type CurrentOperationJson = { age_us: number | null, waits: Array<CurrentWaitJson>, lock_wait_us: number | null, yields: number | null,
/** Done, and of how many. */
progress: [number, number] | null, killed: boolean, awaits_topology: boolean, opid: string, thread: string, client: string, app: string, plan: string, class: string, command: string, namespace: string, shape_id: string, identity: string, shape: string, };

/** Operations in flight on a page. */
export type CurrentReportDocument = {
/** Version of the schema. */
schema: number,
/** `current_operations_report`. */
kind: "current_operations_report",
/** Where it comes from. */
about: About,
/** What each file holds. */
files: Array<CurrentFileJson>, };

export type CurrentWaitJson = { kind: string, name: string | null, };

/** The columns of `iostat -x` for one device. */
export type DeviceRates = {
/** Its name. */
device: string,
/** Reads per second. */
"r/s": number,
/** Kibibytes read per second. */
"rkB/s": number,
/** Reads merged per second. */
"rrqm/s": number,
/** Share of reads that were merged, per cent. */
"%rrqm": number,
/** Milliseconds of a read. */
r_await: number,
/** Kibibytes of a read. */
"rareq-sz": number,
/** Writes per second. */
"w/s": number,
/** Kibibytes written per second. */
"wkB/s": number,
/** Writes merged per second. */
"wrqm/s": number,
/** Share of writes that were merged, per cent. */
"%wrqm": number,
/** Milliseconds of a write. */
w_await: number,
/** Kibibytes of a write. */
"wareq-sz": number,
/** Discards per second. */
"d/s": number | null,
/** Kibibytes discarded per second. */
"dkB/s": number | null,
/** Discards merged per second. */
"drqm/s": number | null,
/** Share of discards that were merged, per cent. */
"%drqm": number | null,
/** Milliseconds of a discard. */
d_await: number | null,
/** Kibibytes of a discard. */
"dareq-sz": number | null,
/** Flushes per second. */
"f/s": number | null,
/** Milliseconds of a flush. */
f_await: number | null,
/** Requests in flight on average. */
"aqu-sz": number,
/** Share of the time with a request in flight, per cent. */
"%util": number, };

/** In what some operations differ from the rest of the same span. */
export type DifferentReport = {
/** Version of the schema. */
schema: number,
/** `different`. */
kind: "different",
/** Where it comes from; its span is the axis. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** `wire`, `log` or `profile`: what the operations come from. */
source: string,
/** The shape whose operations are compared with each other; null if they are of all shapes. */
shape: ComparedShapeJson | null,
/** Likewise the namespace. */
namespace: string | null,
/** Which operations are compared with the rest. */
selected: SelectedOperationsJson,
/** How many these are. */
these: number,
/** How many the rest are. */
rest: number,
/** What all of this was counted in, and what it leaves out. */
notes: Array<string>,
/** What they can differ in, first what differs most. */
dimensions: Array<DimensionJson>,
/** The upper bounds of the rows of latencies, in nanoseconds, ascending; a row is a quarter of an octave. */
bounds_ns: Array<number>,
/** In each of the equal parts of the axis: the number of a row, and how many operations are in it. */
latencies: Array<Array<[number, number]>>,
/** Times that were not observed. */
gaps: Array<GapJson>, };

export type DigestAppJson = { name: string, calls: number,
/** Null where that of the row is. */
failed: number | null,
/** Null where the latency of no operation of the row is known. */
latency_ns: number | null, };

/** A digest as it is saved. */
export type DigestDocument = { schema: number, kind: "digest",
/** Version of the rules that the shape ids follow. */
shape_rules: number, about: About,
/** What takes the time, in one sentence; null if no row took any. */
answer: string | null, source: "log" | "profile" | "wire", by: string,
/** What was read of each source, where there are several; `totals` and rows then have latencies of the first
 * that has them, and what the server says of execution. */
sources?: Array<SourceObject>, totals: FiguresObject,
/** When the source was observed; null where no operation tells. */
observed: ObservedJson | null, reading: { [key in string]: number } | null,
/** Counters of the wire. */
coverage: { [key in string]: number } | null, notices: NoticesJson | null,
/** Rows were left out by a filter. */
filtered: boolean,
/** Operations that the report leaves out, by reason. */
hidden: Array<HiddenObject>,
/** Hints leave out what an index that exists serves. */
indexes_known: boolean,
/** Indexes that may help, each once. */
index_hints: Array<IndexHintJson>,
/** What else stands out about shapes. */
remarks: Array<RemarkJson>,
/** What a reader must know before the figures. */
notes: Array<string>,
/** What was not read in full, by reason. */
lost: { [key in string]: number },
/** The same in words, one loss each. */
lost_in_words: Array<string>,
/** What was not read although nothing of it was lost, and what is not known in full. */
incomplete: Array<IncompletePart>,
/** The zone in which people see its times. */
zone: ZoneObject,
/** Durations are rounded down to a multiple of this, in nanoseconds. */
precision_ns: number,
/** Single operations, three numbers each: microseconds from the first operation to the end of this one,
 * microseconds of latency, and the row (-1 where it is not listed). Null where no page was asked for. */
points: Array<number> | null,
/** How many operations the points were chosen from. */
points_seen: number | null, rows_total: number, rows: Array<DigestRowJson>, };

export type DigestRowJson = { shape_id: string | null, ordered_ids: Array<string>, identity: string | null, class: string | null, command: string | null, database: string | null, collection: string | null, shape: string | null, plain: string | null, shape_cut: boolean | null, app: string | null, namespace: string | null, plan: string | null,
/** Only in rows by client, like the next two in rows by user and by comment. Empty if the source does not say it. */
client?: string, user?: string, comment?: string, query_hash: string | null,
/** Only where the report has several sources. */
by_source?: BySource, index_hint: string | null,
/** Null if the latency of no operation is known. */
time_share: number | null, apps: Array<DigestAppJson>, calls: number, entries: number, statements: number,
/** Null, as `errors` is, if the outcome of no operation is known. */
failed: number | null, errors: { [key in string]: number } | null, errors_other: number, latency_ns: LatencyObject,
/** Each sum, and of how many operations it is known. */
sums: { [key in string]: [number, number] }, examined_per_returned: number | null, collection_scans: number, memory_sorts: number, used_disk: number, replanned: number, plans: Array<PlanObject>, plans_other: number,
/** Nanoseconds since the Unix epoch; null where no time is known. */
first_seen: number | null, last_seen: number | null, timeline: TimelineObject, };

/** How a dimension differs. */
export type DimensionJson = {
/** `shape`, `namespace`, `command`, `application`, `client`, `server`, `plan`, `outcome`, `part` or `time`. */
dimension: string,
/** The same in words. */
words: string,
/** What values are counted in: `operations`, or `ns` of their time. */
unit: string,
/** The largest difference of shares that is more than chance, 0 to 1; 0 if there is none. */
difference: number,
/** How much of these operations is known in this dimension, in its unit. */
these: number,
/** The same of the rest. */
rest: number,
/** How much of `these` is estimated, not counted. */
estimated: number,
/** How it is estimated, or of which operations it speaks; null where all are counted. */
basis: string | null,
/** The values: first those that differ, by how much they do, then the most frequent ones; last all others together. */
values: Array<DimensionValueJson>,
/** How many values the last one stands for. */
left_out: number, };

/** How a value differs. */
export type DimensionValueJson = {
/** Its name; null for all others. */
name: string | null,
/** Of a shape, its id; else null. */
shape_id: string | null,
/** Of a shape, its text with typed placeholders; else null. */
typed: string | null,
/** Of a part of the time, its start in nanoseconds since 1970; else null. */
start_ns: number | null,
/** How many of these operations have it, or how much of their time it is. */
these: number,
/** The same of the rest. */
rest: number,
/** The share of these, 0 to 1. */
these_share: number,
/** The share of the rest. */
rest_share: number,
/** Whether the shares differ by more than chance, and noticeably. */
differs: boolean, };

/** The disk that was tested, and how long the reads would take on it. */
export type DiskBenchJson = { device: string | null, disks: Array<string>, host: string | null, started_ns: number,
/** Whether it is the disk that was read; null if that is not known. */
same_device: boolean | null, through_page_cache: boolean, record_bytes: number, depth: number, in_order_bytes_per_s: number | null, in_order_ns: number | null, one_by_one_bytes_per_s: number | null, one_by_one_ns: number | null, random_reads_per_s: number | null, random_once_ns: number | null, random_all_ns: number | null, };

/** Two runs of `disk bench`, compared. */
export type DiskComparisonDocument = { about: About,
/** Which one is faster, in one sentence. */
answer: string,
/** What the table means, a sentence each. */
words: Array<string>,
/** A and B. */
runs: [BenchReport, BenchReport],
/** Version of the schema of this document. */
schema: number,
/** What this document is. */
kind: "disk_compare",
/** What the runs are called: A and B. */
names: [string, string],
/** The steps that both have. */
steps: Array<StepPair>,
/** Settings that differ. */
differences: Array<string>, };

/** The load of a disk during the trace, by all processes. */
export type DiskLoadJson = {
/** Its name, as in `/proc/diskstats`. */
name: string,
/** Device, in the kernel's own encoding, as in `files`. */
device: number,
/** Reads per second. */
reads_per_second: number,
/** Mean milliseconds from queueing a read to its completion; 0 if there were no reads. */
read_await_ms: number,
/** Mean number of requests in flight. */
queue: number,
/** Share of the time in which at least one request was in flight. */
busy: number,
/** The most reads at random per second in the test of the disk that was named; null if none was. */
best_reads_per_second: number | null, };

/** What `disk bench` measured on a disk. */
export type DiskTestJson = {
/** The name of the file with its result, in the folder of the history. */
file: string,
/** When it began, in nanoseconds since 1970. */
started_ns: number,
/** Bytes of a record. */
record_bytes: number,
/** The most reads at random per second; null if it did not read at random. */
reads_per_second: number | null,
/** Requests in flight meanwhile. */
reads_in_flight: number | null,
/** Mean time of such a read, in milliseconds. */
read_ms: number | null,
/** The same with one request in flight. */
read_alone_ms: number | null,
/** The most writes per second; null if it did not write. */
writes_per_second: number | null,
/** Mean time of such a write, in milliseconds. */
write_ms: number | null, };

export type DistanceCountJson = {
/** In bytes; below 0 backwards. */
from: number, count: number, };

export type EarlierBlockerJson = { thread: number, thread_name: string | null, wait_ns: number, };

export type ErrorChangeJson = { code: number, namespace: string, commands: Array<string>, applications: Array<string>, before: ErrorCountJson, after: ErrorCountJson, };

export type ErrorCountJson = { errors: number, seconds: number, };

/** One event. */
export type EventJson = {
/** When, in nanoseconds since 1970. */
time_ns: number,
/** What kind of event. */
kind: string,
/** The port of the server; null if it is not about one. */
server: number | null,
/** Its address with the port, if the port alone is not its name; else missing. */
address?: string,
/** In words. */
sentence: string, };

/** What happened. */
export type EventsReport = {
/** Version of the schema. */
schema: number,
/** `events`. */
kind: "events",
/** Where it comes from. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** How many events there are of each kind, without the filter. */
kinds: { [key in string]: number },
/** The events, by time. */
events: Array<EventJson>,
/** Earlier ones that the filter lets pass, and that were left out because there are too many. */
left_out: number,
/** Times that were not observed. */
gaps: Array<GapJson>, };

/** How long a limit was passed. */
export type ExceedanceJson = {
/** In total, in nanoseconds. */
total_ns: number,
/** The longest time without a break, in nanoseconds. */
longest_ns: number,
/** When that began, in nanoseconds since 1970; null if the limit was never passed. */
longest_start_ns: number | null, };

export type ExplainDocument = { schema: number, kind: string, command: string, namespace: string, shape_id: string | null, shape: string | null, identity: string | null, server: string | null, version: string | null, executed: boolean, incomplete: boolean, time_ms: number | null, returned: number | null, docs_examined: number | null, keys_examined: number | null, findings: Array<FindingJson>, indexes: Array<IndexHint>, stages: StageJson, plans: Array<ServerPlanJson>,
/** Only where they were asked for. */
values?: string, };

/** An output of `explain` on a page. */
export type ExplainOutputJson = {
/** The name of its file. */
file: string,
/** What was explained, and what it did. */
summary: string,
/** The query; empty if it is not known. */
query: string,
/** Server, version and engine, as far as they are known; null if none is. */
server: string | null,
/** What stands out, or that nothing does. */
findings: Array<string>,
/** What is missing; null if nothing is. */
incomplete: string | null,
/** Plans that were rejected. */
rejected: Array<string>,
/** What `--json` writes. */
report: ExplainDocument, };

/** Outputs of `explain` on a page. */
export type ExplainReportDocument = {
/** Version of the schema. */
schema: number,
/** `explain_report`. */
kind: "explain_report",
/** Where it comes from. */
about: About,
/** The outputs. */
outputs: Array<ExplainOutputJson>, };

export type FiguresObject = { calls: number, entries: number, statements: number,
/** Null, as `errors` is, if the outcome of no operation is known. */
failed: number | null, errors: { [key in string]: number } | null, errors_other: number, latency_ns: LatencyObject,
/** Each sum, and of how many operations it is known. */
sums: { [key in string]: [number, number] }, examined_per_returned: number | null, collection_scans: number, memory_sorts: number, used_disk: number, replanned: number, plans: Array<PlanObject>, plans_other: number,
/** Nanoseconds since the Unix epoch; null where no time is known. */
first_seen: number | null, last_seen: number | null, timeline: TimelineObject, };

/** A file that operations waited for. */
export type FileJson = {
/** The collection or index, else the name of the file; null if that is no longer known. */
name: string | null,
/** Device, in the kernel's own encoding. */
device: number,
/** Inode. */
inode: number,
/** Reads that waited. */
reads: number,
/** Those of them that began where the thread's last read of the file had ended. */
in_order: number,
/** Their bytes. */
bytes: number,
/** Time blocked in them, in nanoseconds. */
wait_ns: number, };

/** The reads of a file over time and offset. */
export type FilePictureJson = { file: number, name: string, columns: number, rows: number, length: number, span_ns: number,
/** Column, row, reads, mean latency in nanoseconds: four numbers for each cell. */
cells: Array<number>,
/** Of each column: reads, median, 99th percentile in nanoseconds; null without reads. */
over: Array<[number, number, number] | null>,
/** Upper bound in nanoseconds; reads from the page cache, from the device, and of unknown origin. */
buckets: Array<[number, number, number, number]>, };

/** Files that hold the same over time. */
export type FileRoleLaneJson = {
/** What they hold; empty for files whose names do not say it. */
role: string,
/** How many reads and writes were in progress at once, on average. */
at_once: number,
/** The same in each part of the axis; null where files were not observed. */
values: Array<number | null>, };

/** What one shape waited for in a file. */
export type FileShapeJson = {
/** The id of the shape. */
shape_id: string,
/** The command with its namespace. */
command: string,
/** Reads that waited. */
reads: number,
/** Time blocked in them, in nanoseconds. */
wait_ns: number,
/** Share of the time that all shapes were blocked in the file. */
share: number, };

/** What was done to a file, by the time that files were observed. */
export type FileUseJson = {
/** Reads per second. */
reads_per_second: number,
/** Bytes that they returned, per second. */
read_bytes_per_second: number,
/** Bytes of the file that were read from the device, per second. Without reading ahead, the rest was in the page cache. */
device_bytes_per_second: number,
/** Mean time of a read, in milliseconds; null if there was none. */
read_ms: number | null,
/** Writes per second. */
writes_per_second: number,
/** Bytes that they wrote, per second. */
written_bytes_per_second: number,
/** Mean time of a write, in milliseconds; null if there was none. */
write_ms: number | null,
/** How many reads and writes were in progress at once, on average. */
at_once: number, };

/** A file with the shapes that waited for it. */
export type FileWaitsJson = {
/** The shapes, the longest waits first; at most 8. */
shapes: Array<FileShapeJson>,
/** The collection or index, else the name of the file; null if that is no longer known. */
name: string | null,
/** Device, in the kernel's own encoding. */
device: number,
/** Inode. */
inode: number,
/** Reads that waited. */
reads: number,
/** Those of them that began where the thread's last read of the file had ended. */
in_order: number,
/** Their bytes. */
bytes: number,
/** Time blocked in them, in nanoseconds. */
wait_ns: number, };

export type FindingJson = { kind: string, shard: string | null, text: string, };

/** Reads or writes of a file. */
export type FlowJson = { count: number, errors: number, faults: number, asked_bytes: number, bytes: number, again_bytes: number, touched_bytes: number, granule_bytes: number, blocks: number, amplification: number | null, device_bytes: number | null, device_bytes_per_byte: number | null, readahead_wasted_at_least_bytes: number | null, device_beyond_touched_bytes: number | null, cached_share: number | null, sequential_share: number | null, randomness: number | null, contiguous: number, skips: number, jumps: number, back: number, distances: Array<DistanceCountJson>, runs: Array<RunCountJson>, run_mean: number | null, run_longest: number, latency_ns: FlowLatencyJson, latency_cached_ns: FlowLatencyJson, latency_uncached_ns: FlowLatencyJson, };

export type FlowLatencyJson = { count: number, sum: number, p50: number | null, p95: number | null, p99: number | null, max: number | null, };

/** A figure. */
export type FtdcFigureJson = {
/** Stable name. */
id: string,
/** What it belongs to. */
group: string,
/** Name for people. */
title: string,
/** Its unit. */
unit: string,
/** Number of values. */
count: number,
/** Median. */
p50: number,
/** 95th percentile. */
p95: number,
/** Largest value. */
max: number,
/** Null for a figure without limits. */
verdict: "ok" | "amber" | "red" | null,
/** When it is worth a look; null if never. */
limits: LimitsJson | null,
/** Values over time. */
trend: TrendJson, };

/** What happened at one moment. */
export type FtdcIncidentJson = {
/** When, in nanoseconds since 1970. */
time_ns: number,
/** `restart`, `gap`, `lost`, `state` or `clock_back`. */
kind: string,
/** In words. */
words: string, };

/** How the reading went. */
export type FtdcReading = {
/** Files. */
files: number,
/** Chunks that were decoded. */
chunks: number,
/** Chunks that are damaged; their samples are lost. */
chunks_damaged: number,
/** Documents that are none of `diagnostic.data`, or of a kind that is not known. */
documents_unknown: number,
/** Samples that stand in two files, and were counted once. */
samples_repeated: number,
/** Samples outside of the time that was asked for. */
samples_outside: number,
/** What is wrong with files, a sentence each. */
damage: Array<string>, };

/** The JSON document of `ftdc report`. */
export type FtdcReport = {
/** Version of the schema of this document. */
schema: number,
/** What this document is. */
kind: "ftdc_report",
/** Where it comes from. */
about: About,
/** The zone of its times in text and on the page. */
zone: ZoneObject,
/** The server. */
server: ServerJson,
/** Number of samples. */
samples: number,
/** How the reading went. */
reading: FtdcReading,
/** Starts, gaps and the like, by time. */
incidents: Array<FtdcIncidentJson>,
/** Incidents beyond those. */
incidents_other: number,
/** Figures, by group. */
figures: Array<FtdcFigureJson>, };

/** A time that was not observed. */
export type GapJson = {
/** What did not observe: `agent`, or the name of a collector. */
what: string,
/** What was not observed, with its verb: `logs were`; null for everything. */
subject: string | null,
/** The share of it that was observed nevertheless, 0 to 1. */
observed: number,
/** Its start. */
start_ns: number,
/** Its end. */
end_ns: number, };

export type GrownPartJson = { part: ShownPart, before_ns: number, after_ns: number, class: string | null, file: string | null,
/** The shape whose operations ended its waits. */
ended_by: NamedShapeJson | null, };

/** A figure that grew with others, which are its parts. */
export type GrowthJson = { parts: Array<SeriesChangeJson>, subject: string, name: string | null, metric: string, title: string, unit: string, before: number, lowest_before: number, highest_before: number, after: number,
/** Before and after; null for a figure without limits. */
verdicts: [string, string] | null, };

/** What holds memory in the agent, in a helper process of it, or in the kernel. */
export type HeldBytes = {
/** The holder. */
name: string,
/** `agent`, `mapped`, `helper` or `kernel`. */
place: string,
/** What it holds now, in bytes; `None` if only its limit is known. */
bytes: number | null,
/** The most that it may hold, in bytes; `None` if it has no limit of its own. */
max_bytes: number | null, };

/** Operations that are left out for one reason. */
export type HiddenObject = { reason: string, operations: number, classes: { [key in string]: number }, show_with: string, };

export type HintedShapeJson = { shape_id: string, command: string, shape: string, time_share: number, examined_per_returned: number | null, plan: string, memory_sorts: number, };

/** A variant of the profiler with a number of clients. */
export type ImpactCellJson = { clients: number, level: number, rate_limit: number | null, name: string, throughput: number, operations: number, measured_ns: number,
/** Share of the throughput without the profiler, with the ends of its interval. */
loss: number | null, loss_low: number | null, loss_high: number | null, differs: boolean | null, p50_ns: number | null, p95_ns: number | null, p99_ns: number | null, max_ns: number | null, server_cpu_ns: number | null, load_cpu_ns: number | null, host_busy_ns: number | null, disk_busy_ns: number | null, written_bytes: number | null, log_bytes: number | null, lock_waits: number | null, lock_wait_us: number | null, };

/** What profiling costs, by level and number of clients. */
export type ImpactDocument = { schema: number, kind: "profiler_impact", about: About, started_ns: number, server: string, documents: number, confidence: number, processors: number | null, variants: Array<string>, cells: Array<ImpactCellJson>, verdicts: Array<string>, bottleneck: string, slices: Array<LoadSliceJson>, };

/** An operation in progress. */
export type InProgressJson = {
/** The thread that executes it. */
thread: number,
/** Its name. */
thread_name: string,
/** The client's address; null if unknown. */
client: string | null,
/** The application; null if unknown. */
app: string | null,
/** The id of the shape; null if the request was not captured. */
shape_id: string | null,
/** The command. */
command: string | null,
/** `db.collection`. */
namespace: string | null,
/** The shape with typed placeholders. */
typed: string | null,
/** How long it has taken so far, in nanoseconds; null if it began before the trace. */
elapsed_ns: number | null,
/** What its thread does now; null if it began before the trace. */
doing: ShownPart | null,
/** For how long, in nanoseconds. */
doing_ns: number | null,
/** The wait class of its stack, as in `mongosonar stacks`. */
class: string | null,
/** Where its time went so far, the largest part first. */
parts: Array<PartJson>, };

/** A report about an incident. It is the JSON document in memory; text and the web page are made from it. */
export type IncidentReport = {
/** Version of the schema. */
schema: number,
/** `incident`. */
kind: "incident",
/** Where it comes from. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** What changed. */
changes: ChangesReport,
/** Queries, internals, machine and events over time. */
timeline: TimelineReport,
/** The queries of the whole span, as `queries --json` writes them. */
queries: QueriesDocument,
/** What the machine and the servers measured of themselves. */
figures: Array<SeriesFigureJson>,
/** Times that were not observed. */
gaps: Array<GapJson>, };

/** What was not read, or is not known in full. */
export type IncompletePart = {
/** `not read`, `left out as asked`, or `known in part`. */
way: string,
/** What, in words, one counter each. */
what: Array<string>, };

/** An index that would serve. */
export type IndexHint = {
/** Namespace. */
namespace: string,
/** Fields and directions: `{city: 1, age: -1}`. */
index: string, };

/** An index that may help, and the shapes that would use it, the one with the most time first. */
export type IndexHintJson = { namespace: string, index: string, time_share: number, shapes: Array<HintedShapeJson>, };

export type IoFileJson = { file: number, path: string | null,
/** What it holds, where the server names it. */
label: string | null, role: string | null, reads: FlowJson, writes: FlowJson | null, page_ins: PageInsJson | null, syncs: number, sync_ns: SyncLatencyJson, phases: Array<PhaseJson>, };

/** What `io report` found. */
export type IoReportDocument = {
/** Null where no page was asked for. */
pictures: Array<FilePictureJson> | null, schema: number, kind: "io_report", about: About, start_ns: number | null, end_ns: number | null, accesses: number, lost: NamedCounts, lost_in_words: Array<string>, left_out: number,
/** Why the recording could not be read to its end. */
incomplete: string | null, info: { [key in string]: string }, verdict: IoVerdictJson, files_total: number, files: Array<IoFileJson>, threads: Array<IoThreadJson>, };

export type IoThreadJson = { thread: number, name: string | null, role: string | null, reads: number, read_bytes: number, read_ns: number, read_share: number | null, writes: number, write_ns: number, };

export type IoVerdictJson = { finding: string, file: number | null, path: string | null, label: string | null, index: number | null, index_path: string | null, reads: number, device_reads: number | null, blocks: number, bytes: number, touched_bytes: number, amplification: number | null, randomness: number | null, far_share: number | null, read_ns: number, thread: number | null, thread_name: string | null, thread_role: string | null, thread_read_share: number | null, role_threads: number, role_share: number | null, device_per_touched_byte: number | null, of_memory: boolean | null, depth: number | null, in_order_ns: number | null, in_order_bytes_per_s: number | null, bench: DiskBenchJson | null, words: Array<string>, };

/** One figure over time. */
export type LaneJson = {
/** `queries`, `internals` or `machine`. */
group: string,
/** Stable name for programs. */
id: string,
/** Name for people. */
title: string,
/** The unit of the values. */
unit: string,
/** The port of the server; null for all servers, and for the machine. */
server: number | null,
/** Its address with the port, if the port alone is not its name; else missing. */
address?: string,
/** `amber` or `red` if it is over a limit somewhere, for figures with limits. */
verdict: string | null,
/** That limit. */
limit: number | null,
/** The values; null where nothing was observed. */
values: Array<number | null>, };

export type LatencyObject = { count: number, zero: number,
/** Null if the latency of no operation is known. */
sum: number | null, min: number | null, max: number | null, mean: number | null, p50: number | null, p95: number | null, p99: number | null,
/** OpenTelemetry's index (scale 5, seconds) and the count. */
buckets: Array<[number, number]>, };

/** Quantiles in nanoseconds; null when there was no request. */
export type LatencyQuantiles = {
/** Mean. */
mean: number | null,
/** Median. */
p50: number | null,
/** 95th percentile. */
p95: number | null,
/** 99th percentile. */
p99: number | null,
/** 99.9th percentile. */
"p99.9": number | null,
/** The longest. */
max: number | null, };

/** When a figure is worth a look, and for how long it was. */
export type LimitsJson = {
/** From here on it deserves attention. */
amber: number,
/** From here on it is a problem; null if it is none at any value. */
red: number | null,
/** Smaller values are worse. */
below: boolean,
/** `lasting` or `any`: it counts if it was passed for 5 % of the time (red also for 10 s on end), or at any moment. */
rule: string,
/** What it means; of processor time also whose it was. */
meaning: string,
/** Who says so. */
source: string,
/** How long it was over the amber limit. */
over_amber: ExceedanceJson,
/** How long it was over the red limit. */
over_red: ExceedanceJson, };

export type LoadSliceJson = { clients: number,
/** Index of the variant. */
variant: number, round: number, start_ns: number, length_ns: number, operations: number, bucket_ns: number, buckets: Array<number>, };

export type LogClientJson = { app: string, driver: string, driver_version: string, connections: number, };

export type LogMessageJson = { severity: string, component: string, id: number | null, text: string, count: number, first: number, last: number, };

/** The throughput of one long run, second by second. */
export type LongImpactDocument = { schema: number, kind: "profiler_impact_long", about: About, started_ns: number, server: string, clients: number, level: number | null,
/** Operations in each second. */
seconds: Array<number>, wrapped_ns: number | null, profile_bytes: number | null, loss: number | null, loss_low: number | null, loss_high: number | null, differs: boolean | null, verdict: string, };

export type MachineChangeJson = { cause: string,
/** The member of the replica set; null if it is not about one. */
member: string | null, figures: Array<MachineFigureJson>, };

export type MachineFigureJson = { figure: string, unit: string, before: number, after: number, };

/** A moment of change. */
export type MomentJson = {
/** What changed, the most important first. */
changes: Array<ChangeJson>,
/** What the machine and the server measured at the same time. */
context: Array<ChangeJson>,
/** Changes that were left out. */
left_out: number,
/** Over how long costs were measured, in nanoseconds: at least as long as the moment. */
measured_ns: number,
/** Its start. */
start_ns: number,
/** Its end. */
end_ns: number, };

/** Counts by name, in the order in which they were given. Each name must be given once. */
export type NamedCounts = { [name in string]: number };

/** Which shape it is. */
export type NamedShapeJson = { shape_id: string, command: string, namespace: string, shape: string, };

export type NewApplicationJson = { name: string, driver: string | null, version: string | null, versions_before: Array<string>, calls: number, time_ns: number, has_ended: boolean, pause_ns: number | null, };

/** What a log tells beside operations. */
export type NoticesJson = { accepted: number, ended: number, most_open: number | null, versions: Array<string>, starts: Array<ServerStartJson>, clients: Array<LogClientJson>, slow_replies: SlowRepliesJson, messages: Array<LogMessageJson>, messages_other: number, };

/** The thread that ended the longest earlier wait of an operation: it held what was waited for. */
export type NowBlocker = {
/** The name of the thread, or its number. */
thread: string,
/** How long the operation had waited until then, in nanoseconds. */
wait_ns: number,
/** Command and namespace of the operation that it executed then, if that still runs; null if not. */
runs: string | null,
/** The client of that operation. */
client: string | null,
/** The id of its shape. */
shape_id: string | null, };

/** An operation that has not ended. Unknown figures are null; texts that are too long are cut. */
export type NowOperation = {
/** Sources of the agent that show it: `queries`, `split`, `status`. */
sources: Array<string>,
/** The server: its port, or its address with the port where the port alone is not its name. */
server: string,
/** Address and port of the client; null for an operation of the server itself. */
client: string | null,
/** The application, in words. */
app: string,
/** Whether a client sent it (`served`), or another server (`issued`). */
role: string,
/** Its purpose: `user`, `internal`, `monitoring` or `replication`. */
class: string,
/** The command. */
command: string,
/** Database and collection. */
namespace: string,
/** The id of its shape; null if the source does not have the whole command. */
shape_id: string | null,
/** The text of its shape, with typed placeholders. */
typed: string,
/** When it began, in nanoseconds since 1970. */
started_ns: number | null,
/** For how long it has been running, in nanoseconds. */
running_ns: number | null,
/** The thread of the server that executes it, like `conn42`. */
thread_name: string | null,
/** What the server says that it waits for, in words. */
waits: Array<string>,
/** What its thread does. */
thread: NowThread | null,
/** Its number, as `killOp` takes it. */
opid: string | null,
/** Plan summary. */
plan: string | null,
/** How long it has waited for locks so far, in nanoseconds. */
lock_wait_ns: number | null,
/** How often it has yielded. */
yields: number | null,
/** How much of its work it has done, 0 to 1 (index builds). */
done: number | null,
/** It was killed, and has not noticed that yet. */
is_killed: boolean, };

/** Operations that run now. */
export type NowReport = {
/** Version of the schema. */
schema: number,
/** `now`. */
kind: "now",
/** The version of mongosonar. */
version: string,
/** The time of the answer, in nanoseconds since 1970. */
now_ns: number,
/** Why nothing can be listed, and what helps; null if something can. */
problem: string | null,
/** What the sources of the agent show of operations that run, and what they lack. */
sources: Array<NowSourceJson>,
/** What ran when the agent last looked; null if it has not answered yet. */
listed: NowSnapshot | null, };

/** Operations that run, at one moment. */
export type NowSnapshot = {
/** When, in nanoseconds since 1970. */
at_ns: number,
/** The operations, the oldest first. */
operations: Array<NowOperation>,
/** Younger ones that were left out because there are too many. */
left_out: number,
/** Operations that wait on purpose, as change streams do, and that are not listed. */
waiting: number,
/** What is missing, a sentence each: servers that did not say what they work on, requests that were not listed in time. */
problems: Array<string>, };

/** A source of operations that run. */
export type NowSourceJson = {
/** Its name: `queries`, `split` or `status`. */
name: string,
/** What it shows. */
shows: string,
/** Whether it works. */
is_working: boolean,
/** What it lacks and how to get it; null if nothing. */
lacks: string | null, };

/** What the thread of an operation did when it was looked at. */
export type NowThread = {
/** The part of its time, as in `mongosonar why`: `cpu`, `futex`, `file_read` … */
doing: string,
/** The same in words. */
words: string,
/** For how long, in nanoseconds. */
doing_ns: number,
/** The class of the wait, as in `mongosonar stacks`; null if its stack was not taken. */
class: string | null,
/** The file for which it has waited longest; null if it does not read one. */
file: string | null,
/** Who ended its longest earlier wait; null if there was none. */
blocker: NowBlocker | null, };

/** The time that rates are divided by, in nanoseconds since the Unix epoch. */
export type ObservedJson = { start_ns: number, end_ns: number, };

export type PageInsJson = { count: number, bytes: number, wasted_bytes: number, wasted_share: number | null, };

/** What a history has, and what the agent that writes it is doing. */
export type PageStatus = {
/** Version of the schema. */
schema: number,
/** `page_status`. */
kind: "page_status",
/** The version of mongosonar. */
version: string,
/** The folder of the history. */
history: string,
/** The time of the answer, in nanoseconds since 1970. */
now_ns: number,
/** The host that the history is of, if it is known. */
host: string | null,
/** The start of the time that the history covers; null if it is empty. */
start_ns: number | null,
/** Its end. */
end_ns: number | null,
/** What was not observed in its last hour. */
gaps: Array<GapJson>,
/** What the agent does; null if none has written for a minute. */
agent: AgentStatus | null,
/** Why it is not known what the agent does. */
agent_problem: string | null,
/** How much was refused since the start of the page, by its reason. */
refused: { [key in string]: number }, };

/** Operations that did one thing. */
export type PartActivityJson = {
/** What they did. */
part: ShownPart,
/** Average number at a time, by interval. */
active: Array<number>, };

/** A part of a time. */
export type PartJson = {
/** Which part; in JSON its stable name. */
part: ShownPart,
/** Nanoseconds, of all operations. */
ns: number,
/** Share of the whole, 0 to 1. */
share: number,
/** Operations that had any. */
operations: number | null,
/** Median of those, in nanoseconds. */
p50_ns: number | null,
/** Their 99th percentile. */
p99_ns: number | null,
/** What its waits were for, the longest first. Those whose stacks were not taken are `waits without a stack`, if
 * there are also others. For `cpu`, the functions with five samples or more. */
classes: Array<WaitClassJson>, };

/** A part of the time of operations, over time. */
export type PartLaneJson = {
/** Which part. */
part: ShownPart,
/** What operations did meanwhile, in words. */
words: string,
/** Nanoseconds, of all operations. */
ns: number,
/** How many operations were in this part at once, on average, in each part of the axis; null where nothing was
 * observed. */
values: Array<number | null>, };

/** A time in which a file was read in one way. */
export type PhaseJson = { start_ns: number, length_ns: number, path: string, reads: number, bytes: number, read_ns: number, randomness: number | null, };

/** A figure of a device or a file system over time. */
export type PlaceFigureJson = {
/** What it means. */
meaning: string,
/** The unit of the values. */
unit: string,
/** Mean of all of the span; null without a value. */
mean: number | null,
/** The largest value. */
max: number,
/** The last value. */
last: number,
/** The mean of the time before; null if nothing is known of it. */
before: number | null,
/** Means of the parts of the axis; null where nothing was observed. */
values: Array<number | null>, };

/** Operations with a plan. */
export type PlanCountJson = {
/** Its summary, as the server writes it. */
plan: string,
/** Operations. */
operations: number, };

export type PlanObject = { summary: string, calls: number, memory_sorts: number, };

/** A short test beside the ramp. */
export type ProbeResult = {
/** Whether records were taken in order. */
sequential: boolean,
/** Bytes of a record. */
record_bytes: number,
/** Requests in flight. */
in_flight: number,
/** Requests per second. */
operations_per_second: number,
/** Bytes per second. */
bytes_per_second: number,
/** Their latency, nanoseconds. */
latency_ns: LatencyQuantiles, };

/** Why there is no report. */
export type ProblemDocument = {
/** Version of the schema. */
schema: number,
/** `problem`. */
kind: "problem",
/** Version of mongosonar. */
version: string,
/** What went wrong. */
words: string, };

/** A process whose control group limits processor time. */
export type ProcessLimitJson = {
/** Its number. */
process: number,
/** How many processors its control group allows. */
processors: number,
/** Share of the periods of the trace in which its threads were stopped, because they had used what is allowed; null
 * if there was no period. */
throttled: number | null,
/** Time that its threads were stopped, in nanoseconds; null if the kernel does not count it. */
throttled_ns: number | null, };

/** The profiler of a database. */
export type ProfiledDatabaseJson = {
/** Its name. */
database: string,
/** Its level after the trace: 0 off, 1 slow operations, 2 all. */
level: number,
/** All that was written during the trace was read; false if the collection may have wrapped meanwhile. */
is_whole: boolean, };

/** What `queries` saw in an interval or in all. Counts are scaled up from a sample. */
export type QueriesDocument = { schema: number, kind: "interval" | "summary", start_ns: number, end_ns: number, observed_ns: number, partial: boolean, sample: number, by: string, classes: Array<string>, role: string | null, totals: QueryFiguresJson, by_type: NamedCounts | null, hidden: Array<HiddenObject>, empty_because: Silence | null, notes: Array<string>, servers: Array<ServerStateJson>, coverage: NamedCounts, rows_total: number, rows: Array<QueryRowJson>, };

export type QueryAppJson = { app: string | null,
/** Whether it is all applications that had no row. */
other: boolean, driver: string | null, driver_version: string | null, joined_late: boolean, };

export type QueryBaselineJson = { since: string, effect: number | null, p: number | null, p50_ns: number | null, p95_ns: number | null, p99_ns: number | null, };

export type QueryClientJson = { client: string | null,
/** Whether it is all clients that had no row. */
other: boolean, };

/** The figures of a row or of the totals. */
export type QueryFiguresJson = { calls: number, calls_per_s: number | null, load: number | null, statements: number, errors: NamedCounts | null, failed: number | null, unanswered: number, unacknowledged: number, outcome_unknown: number, latency_ns: QueryLatencyJson, transfer_ns: number | null, request_bytes: number | null, response_bytes: number | null, docs_returned: number | null, docs_affected: number | null, tls_operations: number | null, tls_suites: NamedCounts, in_flight: number | null, oldest_in_flight_ns: number | null, first_seen: number | null, last_seen: number | null, };

export type QueryLatencyJson = { p50: number | null, p95: number | null, p99: number | null, p999: number | null, max: number | null, sum: number | null, min: number | null, count: number, mean: number | null,
/** Only in summaries, like `buckets`: both would be most of an interval's document. */
zero?: number,
/** OpenTelemetry's index (scale 5, seconds) and the count. */
buckets?: Array<[number, number]>, };

export type QueryNamespaceJson = { namespace: string, database: string | null, collection: string | null, };

export type QueryRowJson = { time_share: number | null, baseline: QueryBaselineJson | null, split: RowSplitJson | null, in_progress: Array<WaitingOperationJson>,
/** Only in rows by shape or namespace, like the next three. */
apps?: Array<AppCallerJson>, apps_other?: CallerShareJson | null, clients?: Array<ClientCallerJson>, clients_other?: CallerShareJson | null, } & (QueryShapeJson | QueryNamespaceJson | QueryAppJson | QueryClientJson) & { calls: number, calls_per_s: number | null, load: number | null, statements: number, errors: NamedCounts | null, failed: number | null, unanswered: number, unacknowledged: number, outcome_unknown: number, latency_ns: QueryLatencyJson, transfer_ns: number | null, request_bytes: number | null, response_bytes: number | null, docs_returned: number | null, docs_affected: number | null, tls_operations: number | null, tls_suites: NamedCounts, in_flight: number | null, oldest_in_flight_ns: number | null, first_seen: number | null, last_seen: number | null, };

export type QueryShapeJson = { shape_id: string,
/** Null if there are several. */
ordered_id: string | null, ordered_ids: number, command: string, database: string | null, collection: string | null, shape: string, shape_cut: boolean, statement_shapes: Array<string>, role: string, class: string, server: string, };

/** What else stands out about a shape. */
export type RemarkJson = {
/** `skip`, `view` or `replanned`. */
kind: string, shape_id: string, namespace: string, calls: number, view_of: string | null, command: string, shape: string, time_share: number,
/** What stands out, and what to do. */
words: string, };

/** Why a request was refused. */
export type RequestProblem = {
/** Version of the schema. */
schema: number,
/** `problem`. */
kind: "problem",
/** The version of mongosonar. */
version: string,
/** The reason, for programs. */
reason: string,
/** What is wrong, and what helps. */
words: string,
/** The parameter that is wrong, if it is one. */
parameter: string | null, };

/** Requests of one kind in a step. */
export type RequestsJson = {
/** How many. */
count: number,
/** Bytes that they moved. */
bytes: number,
/** Their latency. */
latency_ns: LatencyQuantiles,
/** Histogram: `[i, n]` says that n took `(2^(i/32), 2^((i+1)/32)]` seconds. */
buckets: Array<[number, number]>, };

export type RowFileJson = {
/** Null for all others. */
name: string | null, reads: number, bytes: number, wait_ns: number, };

/** A row of both sides; pairs are of A and B. */
export type RowPairJson = { verdict: string,
/** `more calls` or `fewer calls`, if they changed besides. */
calls_change: string | null,
/** Why it is not judged, if it is not. */
not_judged: string | null,
/** The smallest changes that would have been seen. */
least_latency_factor: number | null, least_rate_factor: number | null, mean_ns: [number, number] | null, in_a: boolean, in_b: boolean, shape_id: string | null, identity: string | null, class: string | null, command: string, namespace: string, text: string, calls: [number, number], calls_per_s: [number | null, number | null], rate_p: number,
/** Cliff's delta of the latencies. */
effect: number | null, latency_p: number | null, p50_ns: [number, number] | null, p95_ns: [number, number] | null, p99_ns: [number, number] | null, examined_per_returned: [number | null, number | null], examined_p: number | null, growth: number | null, };

export type RowPartJson = { part: ShownPart, ns: number, share: number, };

/** Where the time of the operations that were traced went; not scaled. */
export type RowSplitJson = { operations: number, total_ns: number,
/** The longest first; waits and files, too. */
parts: Array<RowPartJson>, waits: Array<RowWaitJson>, files: Array<RowFileJson>, device_bytes: number, };

export type RowWaitJson = { part: string,
/** Null for all others. */
class: string | null, waits: number, wait_ns: number, };

export type RunCountJson = { from: number, count: number, };

/** Where a run took place. */
export type RunPlace = {
/** Name of the machine. */
host: string | null,
/** The folder. */
dir: string,
/** Type of the file system. */
file_system: string | null,
/** Its options. */
mount_options: Array<string>,
/** The device that it lies on. */
device: string | null,
/** The disks below, where they are others. */
disks: Array<string>,
/** What the disk calls itself. */
model: string | null,
/** Scheduler of the disk's queue. */
scheduler: string | null,
/** Release of the kernel. */
kernel: string | null,
/** Processors that the test may run on; 0 if unknown. */
processors: number, };

/** Which operations are compared with the rest: whole windows of time, and whole buckets of latency. */
export type SelectedOperationsJson = {
/** The start of their time, in nanoseconds since 1970. */
start_ns: number,
/** Its end. */
end_ns: number,
/** All of them took longer than so many nanoseconds; null without a bound. */
low_ns: number | null,
/** None of them took longer than so many nanoseconds; null without a bound. */
high_ns: number | null,
/** Nothing was selected: they are the slowest twentieth of all. */
is_default: boolean, };

export type SeriesChangeJson = { subject: string, name: string | null, metric: string, title: string, unit: string, before: number, lowest_before: number, highest_before: number, after: number,
/** Before and after; null for a figure without limits. */
verdicts: [string, string] | null, };

/** A series over the whole span. */
export type SeriesFigureJson = {
/** `internals`, `collections` or `machine`. */
group: string,
/** What it is about: `server`, `machine`, `device` … */
subject: string,
/** The port of the server; null if it is not about one. */
server: number | null,
/** Its address with the port, if the port alone is not its name; else missing. */
address?: string,
/** Which device, file system …; null if there is only one. */
name: string | null,
/** Stable name of the metric. */
metric: string,
/** Name for people. */
title: string,
/** Unit. */
unit: string,
/** Mean over time. */
mean: number,
/** The smallest value. */
min: number,
/** The largest value. */
max: number,
/** How its mean is judged; null for a figure without limits. */
verdict: string | null, };

/** The page of an agent. */
export type ServedPageStatus = {
/** Its address, with the port. */
address: string,
/** What links to it begin with; `None` if it is not served. */
url: string | null,
/** Why it is not served; `None` if it is. */
problem: string | null,
/** Requests refused since the start, by reason, without reasons that did not occur. */
refused: { [key in string]: number }, };

export type ServerChangeJson = { levels: Array<ServerLevelJson>, new_shapes: number, new_shapes_share: number, applications: Array<string>, };

/** What the server's log or profiler says of operations of a shape. */
export type ServerEvidenceJson = {
/** Operations that it describes: the slow ones. */
operations: number,
/** Their plans, the most frequent first; those beyond the bound have the plan `others`. */
plans: Array<PlanCountJson>,
/** Operations that scanned the whole collection. */
collection_scans: number,
/** Operations that sorted in memory. */
memory_sorts: number,
/** Operations that used files for intermediate results. */
used_disk: number,
/** Operations for which several plans were tried. */
multi_planner: number,
/** Operations whose cached plan was discarded. */
replanned: number,
/** Sums of the figures that the server gives, by name: those of reports on logs and profiles, and `selected`, the
 * documents that were returned or, by a write, inserted, matched or deleted. */
figures: { [key in string]: ServerFigureJson }, };

/** A figure of the server. */
export type ServerFigureJson = {
/** Sum. */
total: number,
/** Operations that have it. */
operations: number,
/** Mean of those. */
mean: number, };

/** Operations of a log or a profile. */
export type ServerJoinJson = {
/** They belong to an operation of a thread. */
joined: number,
/** No operation of a thread fits: it was not followed, or was lost. */
without_partner: number,
/** Several fit, so that it is not certain which one it is. */
ambiguous: number,
/** They were too many: the shortest were given up. */
too_many: number, };

/** What the server is. */
export type ServerJson = { version: string | null, host: string | null, port: number | null, is_router: boolean, dbpath: string | null, replica_set: string | null, processors: number | null,
/** Processors that the server may run on; null if that is not less than all. */
processors_available: number | null, memory_mib: number | null,
/** Memory that the control group of the server allows; null if there is no limit below the memory of the machine. */
memory_limit_mib: number | null, system: string | null, };

export type ServerLevelJson = { measure: string, before: number, lowest_before: number, highest_before: number, after: number, };

/** What one server or shard planned. */
export type ServerPlanJson = { shard: string | null, namespace: string, engine: string | null, cached: boolean | null, asked: string, winning: string, rejected: Array<StageJson>, trials: Array<TrialJson>, };

/** Where the profile of the named server was read, and what of it was not. */
export type ServerProfileJson = {
/** Address of the server; empty if it was not reached. */
server: string,
/** Its databases whose profile was read. */
databases: Array<ProfiledDatabaseJson>,
/** Databases beyond the bound of 64. */
databases_left_out: number,
/** Documents that could not be read. */
documents_unread: number,
/** There were too many documents, or they took too long: the oldest were not read. */
is_cut: boolean,
/** Why it was not read, or not to the end; null if it was. */
problem: string | null, };

/** Which logs and profiles were read, and what belonged to an operation of a thread. */
export type ServerSourcesJson = {
/** Paths of the logs. */
logs: Array<string>,
/** Slow operations in them, between the beginning and the end of the trace; null if no log was read. */
log: ServerJoinJson | null,
/** Lines of logs that could not be read. */
log_lines_unread: number,
/** Operations in the profile, between the beginning and the end of the trace; null if no server was named. */
profile: ServerJoinJson | null,
/** Where the profile was read; null if no server was named. */
profiler: ServerProfileJson | null,
/** All of it in words. */
sentences: Array<string>, };

export type ServerStartJson = { at: number, version: string, pid: number | null, port: number | null, host: string, };

/** A server as last sampled; what is not known is null. */
export type ServerStateJson = { program: string | null, port: number, sampled_ns: number, connections: number | null, queued_reads: number | null, queued_writes: number | null, cache_used_percent: number | null, cache_dirty_percent: number | null, resident_bytes: number | null, lag_ms: number | null, };

export type ShapeChangeJson = { source: string, ways: Array<string>, applications: Array<string>, before: ShapeSideJson, after: ShapeSideJson, pause_ns: number | null, split: SplitChangeJson | null, shape_id: string, command: string, namespace: string, shape: string, };

/** How long the operations of one shape took, how many there were and how many failed. */
export type ShapeHistory = {
/** Version of the schema. */
schema: number,
/** `shape`. */
kind: "shape",
/** Where it comes from; its span is the axis. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** Its id. */
shape_id: string,
/** The command. */
command: string,
/** The namespace; empty if the command names none. */
namespace: string,
/** Its text with typed placeholders. */
typed: string,
/** `wire`, `log` or `profile`: what the figures come from. */
source: string,
/** Operations that ended, in all of the span. A window that is wider than a part counts for each part that it covers. */
calls: number,
/** Those with an error. */
failed: number,
/** The upper bounds of the rows of latencies, in nanoseconds, ascending; a row is a quarter of an octave. */
bounds_ns: Array<number>,
/** The equal parts of the axis, by time. */
parts: Array<ShapePartJson>,
/** Times that were not observed. */
gaps: Array<GapJson>, };

/** What happened in one part of the axis. */
export type ShapePartJson = {
/** How much of it was observed, in seconds; if that is 0, nothing is known of it. */
observed_s: number,
/** Operations that ended. */
calls: number,
/** Those with an error. */
failed: number,
/** Quantiles of the latency in nanoseconds; null without operations. */
p50: number | null,
/** The same. */
p95: number | null,
/** The same. */
p99: number | null,
/** The longest latency. */
max: number | null,
/** Operations by latency: the number of a row, and how many. */
latencies: Array<[number, number]>, };

/** A shape before or after a change. */
export type ShapeSideJson = { calls: number, seconds: number, time_ns: number, p50_ns: number | null, p99_ns: number | null, max_ns: number | null, stalled: number, logged: number, plans: NamedCounts, examined_per_returned: number | null, };

/** Where the time of one shape went. */
export type ShapeTimeJson = {
/** What names the shape: `wire`, or `log` or `profile` for operations that were not captured; `thread_name` for
 * those without a shape. */
origin: string,
/** The id of the shape; empty without a shape. */
shape_id: string,
/** The command; without a shape, the role of the threads. */
command: string,
/** `db.collection`. */
namespace: string,
/** The shape with typed placeholders. */
typed: string,
/** `served` or `issued`. */
role: string,
/** `user`, `internal` and so on; `unknown` without a shape. */
class: string,
/** The applications, those with the most operations first. */
apps: Array<string>,
/** Operations. */
operations: number,
/** Their time, from the arrival of the request until the reply was sent, in nanoseconds. */
total_ns: number,
/** Share of the time of all operations that are counted. */
share: number,
/** Mean time of an operation, in nanoseconds. */
mean_ns: number,
/** Median. */
p50_ns: number | null,
/** 99th percentile. */
p99_ns: number | null,
/** Longest. */
max_ns: number | null,
/** Where the time went, the largest part first. They add up to `total_ns`. */
parts: Array<PartJson>,
/** Reads of files by system calls, from the page cache or not. */
reads: number,
/** Their bytes. */
read_bytes: number,
/** Bytes that came from devices. */
device_bytes: number,
/** Bytes written to files. */
write_bytes: number,
/** Page faults that read from a device. */
faults: number,
/** How often operations blocked or lost the processor. */
switches: number,
/** Operations without a reply. */
unacknowledged: number,
/** Files that they waited for, the longest first. */
files: Array<FileJson>,
/** There were more files. */
has_other_files: boolean,
/** Who ended their waits, the longest first. */
blockers: Array<BlockerJson>,
/** Whether there were more blockers. */
has_other_blockers: boolean,
/** What the server's log or profiler says of them; null if it says nothing. */
server: ServerEvidenceJson | null,
/** In words: what the time was spent on, the evidence, and what would help where the figures show it. */
answer: Array<string>, };

/** One class or function. */
export type ShareChange = {
/** Its name. */
name: string,
/** Its share of the samples of A and of B, from 0 to 1. */
share: [number, number], };

/** What differs in one respect. */
export type ShareChanges = {
/** Those that differ beyond chance. */
changed: Array<ShareChange>,
/** How many others there are. */
unchanged: number, };

/** What an operation spent a part of its time on. */
export type ShownPart = string;

/** Why no operation was seen. */
export type Silence = {
/** The stable name in JSON. */
reason: string,
/** What was found. */
what: string,
/** What to do next; may be empty. */
next: string, };

export type SlowRepliesJson = { count: number, total_ms: number, longest_ms: number, first: number | null, last: number | null, };

/** What was read of one source. */
export type SourceObject = { source: string, files: Array<string>,
/** Nanoseconds since the Unix epoch; null where it has no operations. */
first_seen: number | null, last_seen: number | null,
/** Null where it has no operations. */
totals: FiguresObject | null,
/** Counters that are not zero. */
counters: { [key in string]: number },
/** Those of them that could not be shown in full. */
losses: { [key in string]: number }, damaged: boolean, };

/** A span of time in nanoseconds since 1970. */
export type SpanJson = {
/** Its start. */
start_ns: number,
/** Its end. */
end_ns: number, };

/** Where the time of a shape went before and after, and which parts of it grew. */
export type SplitChangeJson = { before: SplitSideJson, after: SplitSideJson, grown: Array<GrownPartJson>, };

/** What was seen and what was not. */
export type SplitCoverageJson = {
/** Operations whose time was divided. */
joined: number,
/** Operations of threads that were not seen on the wire. */
without_wire: number,
/** Operations of the wire that no traced thread executed, for example because they were in progress at the
 * start. */
without_thread: number,
/** Parts of replies that no request asked for. */
continued: number,
/** Operations that cannot be divided, because their request came together with another one. */
pipelined: number,
/** Operations that cannot be divided, because another thread sent their reply. */
answered_elsewhere: number,
/** Replies of threads that do not serve one request after the other. */
foreign_replies: number,
/** Operations that the kernel could not report: its ring buffer was full. */
ring_full: number,
/** Events that were lost because the table of threads was full. */
threads_full: number,
/** Message headers that could not be read. */
unreadable: number,
/** Events that the kernel skipped. */
programs_skipped: number,
/** How often a thread got or left a processor unseen. */
switches_missed: number,
/** Waits whose blocker was not kept. */
blockers_turned_away: number,
/** Long waits without a class: there were too many. */
waits_without_class: number,
/** Packets that the kernel dropped. */
packets_dropped: number,
/** Connections encrypted with TLS that could not be read. */
encrypted_unread: number,
/** Reads and writes of TLS sessions whose connection is unknown. */
encrypted_unmapped: number,
/** Parts of encrypted connections that were lost in the kernel. */
encrypted_lost: number, };

export type SplitSideJson = { operations: number, total_ns: number,
/** Nanoseconds of each part. */
parts: NamedCounts, };

/** The comparison of two runs. */
export type StackComparison = {
/** Version of the schema of this document. */
schema: number,
/** `stacks_compare`. */
kind: "stacks_compare",
/** Where it comes from: the names of the runs are its sources. */
about: About,
/** Samples of A and B. */
samples: [number, number],
/** The differences, a sentence each. */
words: Array<string>,
/** Classes with the role of the threads, the largest difference first. */
classes: ShareChanges,
/** Functions, wherever they stand on a stack of a thread that is not idle. */
functions: ShareChanges, };

/** A function on a stack. */
export type StackFrame = {
/** Its name; `?` if no symbol covers the address. */
function: string,
/** The file of the library; null in the program itself. */
library: string | null,
/** Whether it only passes a call on; in JSON only if true. */
machinery?: boolean, };

/** The process that was sampled. */
export type StackProcess = {
/** Its number. */
pid: number,
/** The name of its program. */
name: string, };

/** What was seen of a process. */
export type StackReport = {
/** Version of the schema. */
schema: number,
/** `stacks`. */
kind: "stacks",
/** Where it comes from. */
about: About,
/** The process. */
process: StackProcess,
/** How often all its threads were looked at. */
snapshots: number,
/** The most threads of a snapshot. */
threads: number,
/** Samples of all threads: one for each thread and snapshot. The sum of the three below. */
samples: number,
/** Those in `stacks`. */
shown: number,
/** Of threads with nothing to do, left out. */
idle: number,
/** Of other threads that were not asked for. */
not_asked: number,
/** Samples in `stacks` whose stack is not whole. */
cut: number,
/** Samples in `stacks` whose frames had no room. */
without_frames: number,
/** Samples of running threads that the kernel had no room for. */
lost: number,
/** Processor time of the kernel's walk for one thread, in nanoseconds; null without a thread. */
walk_ns_per_thread: number | null,
/** Processor time of the program in all, in seconds: sampling, reading symbols, unwinding. */
cpu_seconds: number,
/** Whether function names have their arguments and templates, and shown stacks leave no function out. */
full_names: boolean,
/** What could not be seen, a sentence each. */
limits: Array<string>,
/** The stacks, the most frequent first. */
stacks: Array<StackRow>, };

/** Samples with the same stack. */
export type StackRow = {
/** What the threads wait for, or that they run. */
class: string,
/** They have nothing to do. */
idle: boolean,
/** Their role; null for other threads. */
role: string | null,
/** What they did: `on CPU`, `runnable`, `sleeping`, `uninterruptible`, `stopped`. */
state: string,
/** Their system call; null outside of one. */
call: string | null,
/** How often they were seen. */
samples: number,
/** In how many threads. */
threads: number,
/** Why the stack is not whole; null if it is. */
cut: string | null,
/** The functions, the innermost first. */
frames: Array<StackFrame>, };

/** A stage and its inputs. */
export type StageJson = { stage: string, shard: string | null, returned: number | null, affected: number | null, time_ms: number | null, own_ms: number | null, docs_examined: number | null, keys_examined: number | null, works: number | null, index: string | null, key_pattern: string | null, sort: string | null, limit: number | null, skip: number | null, memory_bytes: number | null, used_disk: boolean, spills: number | null, spilled_bytes: number | null, estimated: number | null, failed: boolean, filter: string | null, details: string, inputs: Array<StageJson>, };

/** Processor time of a step. */
export type StepCpuJson = {
/** In user mode, nanoseconds. */
user_ns: number,
/** In the kernel, nanoseconds. */
system_ns: number,
/** Of one read or write, nanoseconds. */
ns_per_operation: number | null,
/** Share of all processors of the machine that was busy with anything, 0 to 1. */
machine_busy: number | null,
/** How many processors the test was allowed to use. */
usable_processors: number | null,
/** Share of the periods in which its control group stopped it for lack of processor time, 0 to 1; null without a quota. */
throttled: number | null, };

/** One step of the ramp. */
export type StepJson = {
/** Requests in flight. */
in_flight: number,
/** Threads that made them. */
threads: number,
/** From the first request to the last completion, seconds. */
seconds: number,
/** Reads and writes. */
operations: number,
/** Of them, per second. */
operations_per_second: number,
/** Bytes read and written per second. */
bytes_per_second: number,
/** Reads and writes that ended in each full second. */
per_second: Array<number>,
/** Reads; null when there were none. */
reads: RequestsJson | null,
/** Writes. */
writes: RequestsJson | null,
/** Flushes: `fdatasync`, or `msync` of a mapped file. */
flushes: RequestsJson | null,
/** Processor time. */
cpu: StepCpuJson,
/** The device below, as the kernel counted. */
device: DeviceRates | null,
/** The disks that it is made of. */
disks: Array<DeviceRates>,
/** Bytes that the kernel counted as read for this process. */
kernel_read_bytes: number | null,
/** Bytes that it counted as written. */
kernel_written_bytes: number | null, };

/** One step of each. */
export type StepPair = {
/** Requests in flight. */
in_flight: number,
/** Reads and writes per second of A and B. */
operations_per_second: [number, number],
/** The 99th percentile of latency in nanoseconds, of reads where there were any. */
p99_ns: [number | null, number | null],
/** B for one of A; null with fewer than two full seconds or without operations. */
ratio: number | null,
/** Its 95% interval. */
interval: [number, number] | null,
/** Probability of a ratio at least this far from 1 if both were as fast; null without one. */
p: number | null,
/** `B`, `A`, or `neither` where the interval holds 1; null without one. */
faster: string | null, };

/** A block device over time. */
export type StorageDeviceJson = {
/** Its name, as in `/proc/diskstats`. */
name: string,
/** Its figures, by metric. */
figures: { [key in string]: PlaceFigureJson },
/** What `disk bench` measured on it; null if no result is kept. */
test: DiskTestJson | null, };

/** A file over time. */
export type StorageFileJson = {
/** Its path; null for all others. */
name: string | null,
/** The port of its server; null if it is of none. */
server: number | null,
/** The address of its server with the port, if the port alone is not its name; else missing. */
address?: string,
/** What it holds, by its name: `collection`, `index`, `journal` …; empty if that does not say it. */
role: string,
/** What was done to it. */
usage: FileUseJson,
/** The same of the time before; null if that is not known. */
before: FileUseJson | null,
/** How many reads and writes of it were in progress at once, on average, in each part of the axis; null where files were
 * not observed. */
values: Array<number | null>, };

/** Files, disks and space over time. */
export type StorageReport = {
/** Version of the schema. */
schema: number,
/** `storage`. */
kind: "storage",
/** Where it comes from; its span is the axis. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** When the time before begins, in nanoseconds since 1970: as long as the span, and up to its start; null if nothing is
 * stored of it. */
before_ns: number | null,
/** Block devices, by name. */
devices: Array<StorageDeviceJson>,
/** Files, those first that reads and writes took longest. */
files: Array<StorageFileJson>,
/** The same by what files hold. */
roles: Array<FileRoleLaneJson>,
/** Mounted file systems, by name. */
file_systems: Array<StorageSpaceJson>,
/** Collections and indexes, the largest first. */
sizes: Array<StoredSizeJson>,
/** Devices, file systems, collections and indexes that were left out because there are too many; counted up to 1,000 of
 * each. */
left_out: number,
/** Results of `disk bench` that cannot be used, a sentence each. */
notes: Array<string>,
/** Times that were not observed. */
gaps: Array<GapJson>, };

/** A file system over time. */
export type StorageSpaceJson = {
/** Where it is mounted. */
name: string,
/** Its figures, by metric. */
figures: { [key in string]: PlaceFigureJson }, };

/** A series over time. */
export type StoredSeriesJson = {
/** What it is about: `machine`, `disk`, `server` … */
subject: string,
/** The stable name of the metric. */
metric: string,
/** What it means; empty if this version does not know it. */
meaning: string,
/** The unit of the values. */
unit: string,
/** The device, interface, file …; empty if there is only one. */
name: string,
/** The port of the server; null if it is not about one. */
server: number | null,
/** Its address with the port, if the port alone is not its name; else missing. */
address?: string,
/** Mean of all of the span. */
mean: number | null,
/** The smallest value. */
min: number,
/** The largest value. */
max: number,
/** Means of the parts of the axis; null where nothing was observed. */
values: Array<number | null>, };

/** A collection or an index. */
export type StoredSizeJson = {
/** `collection` or `index`; null for all others. */
subject: string | null,
/** `db.collection`, for an index with its name behind it; null for all others. */
name: string | null,
/** The port of its server; null if it is not known. */
server: number | null,
/** The address of its server with the port, if the port alone is not its name; else missing. */
address?: string,
/** Bytes of its file at the end. */
bytes: number,
/** By how many bytes the file grew within the span; less than 0 if it shrank. */
grown_bytes: number,
/** Bytes in the file that can be reused; null for an index, and if the server does not say it. */
reusable_bytes: number | null,
/** Documents; null for an index. */
documents: number | null, };

export type SyncLatencyJson = { p50: number | null, p99: number | null, max: number | null, };

/** What the threads of one name did outside operations. */
export type ThreadRoleJson = {
/** The name without numbers: `conn`, `JournalFlusher`. */
role: string,
/** Threads. */
threads: number,
/** On a processor, in nanoseconds. */
cpu_ns: number,
/** Waiting for a processor. */
run_queue_ns: number,
/** Blocked in reads of files and in page faults. */
read_ns: number,
/** Blocked in writes and flushes. */
write_ns: number, };

export type TimelineObject = { width_ns: number,
/** Begin, calls, sum of latencies in nanoseconds, documents or keys examined. */
buckets: Array<[number, number, number, number]>,
/** Documents returned or changed, of each bucket. */
returned: Array<number>, };

/** Figures and events on one axis of time. */
export type TimelineReport = {
/** Version of the schema. */
schema: number,
/** `timeline`. */
kind: "timeline",
/** Where it comes from; its span is the axis. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** The number of equal parts of the axis: each lane has a value for each. */
parts: number,
/** The lanes, from top to bottom. */
lanes: Array<LaneJson>,
/** The number of figures of the internals of servers that have limits and were observed, over them or not. */
internals_judged: number,
/** The events, by time. */
events: Array<EventJson>,
/** Events that were left out because there are too many: the less important and the older ones. */
events_left_out: number,
/** Times that were not observed. */
gaps: Array<GapJson>, };

/** Values over time. */
export type TrendJson = {
/** Width of a bucket in nanoseconds. */
width_ns: number,
/** Begin in nanoseconds since 1970, smallest value, mean and largest value of each bucket that has any. */
buckets: Array<[number, number, number, number]>, };

export type TrialJson = { access: Array<string>, returned: number | null, docs_examined: number | null, keys_examined: number | null, works: number | null, score: number | null, failed: boolean, };

/** A shape whose operations ended waits of others: they held what was waited for. */
export type WaitBlockerJson = {
/** Its id; null for all others. */
shape_id: string | null,
/** The command. */
command: string,
/** The namespace. */
namespace: string,
/** Its text with typed placeholders. */
typed: string,
/** Waits that it ended. */
waits: number,
/** How long they lasted, in nanoseconds. */
wait_ns: number, };

/** Long waits of one class, or samples of one function. */
export type WaitClassJson = {
/** Its name, as in `mongosonar stacks`; for a function `in NAME`. */
class: string,
/** Waits, or samples; 0 for waits without a stack, which are not counted. */
waits: number,
/** How long they lasted, in nanoseconds, together with those that they stand for; for a function, its share of the
 * measured time. */
wait_ns: number,
/** Share of the whole time of the operations, 0 to 1. */
share: number, };

/** A file that operations waited for. */
export type WaitFileJson = {
/** What it holds, or its path; null for all others. */
name: string | null,
/** Reads. */
reads: number,
/** Bytes that they asked for. */
bytes: number,
/** How long they lasted, in nanoseconds. */
wait_ns: number, };

/** An operation in flight, with what its thread does. */
export type WaitingOperationJson = { client: string, request_id: number, elapsed_ns: number, thread_name: string, doing: string, doing_since_ns: number, doing_ns: number, class: string | null, file: string | null, earlier_blocker: EarlierBlockerJson | null, };

/** Where the time of operations went over time, as far as the threads of servers were traced. */
export type WaitsReport = {
/** Version of the schema. */
schema: number,
/** `waits`. */
kind: "waits",
/** Where it comes from; its span is the axis. */
about: About,
/** The zone of times in text. */
zone: ZoneObject,
/** Operations whose time is known. */
operations: number,
/** The number of processors of the machine, if it is known. */
processors: number | null,
/** The parts of their time, the largest first. */
lanes: Array<PartLaneJson>,
/** The long waits by class, those first that lasted longest. */
classes: Array<ClassLaneJson>,
/** The shapes whose operations ended waits of others, those first for which operations waited longest. */
blockers: Array<WaitBlockerJson>,
/** The files that operations waited for, likewise. */
files: Array<WaitFileJson>,
/** Times that were not observed. */
gaps: Array<GapJson>, };

/** A server that the agent watches. */
export type WatchedServer = {
/** Its program. */
name: string,
/** Its version, if its `diagnostic.data` states it. */
version: string | null,
/** Its process. */
pid: number,
/** Its port. */
port: number,
/** Its log, if it is known. */
log: string | null,
/** Why its log is not followed; `None` if it is. */
log_problem: string | null,
/** Its `diagnostic.data`, if it is known. */
diagnostic_data: string | null,
/** Why that is not followed; `None` if it is. */
diagnostic_problem: string | null, };

/** Where the time of operations went. */
export type WhyReport = {
/** Version of the schema. */
schema: number,
/** `why`. */
kind: "why",
/** Where it comes from. */
about: About,
/** Processes that were traced. */
processes: Array<number>,
/** Every how many connections one was followed, 1 if all were; the others are left out, also of `threads`. */
sample_every: number,
/** Length of the trace in seconds. */
seconds: number,
/** Processors of the machine. */
processors: number,
/** Processes whose control group limits processor time. */
limits: Array<ProcessLimitJson>,
/** Counted operations of all shapes. */
operations: number,
/** Average number of counted operations in progress at a time. */
active: number,
/** The same by part. */
active_parts: Array<PartJson>,
/** The same over time. */
activity: ActivityJson,
/** The requested shapes, those with the most time first. */
shapes: Array<ShapeTimeJson>,
/** Shapes beyond those. */
shapes_left_out: number,
/** Operations of threads that no source names a shape of, by the name of the thread. They are in none of the sums
 * above. */
unseen: Array<ShapeTimeJson>,
/** Files that operations of all shapes waited for, with these shapes; at most 8, the longest waits first. */
files: Array<FileWaitsJson>,
/** What the disks with these files did, as far as the kernel counts it: file systems without a block device of their
 * own have none. */
disks: Array<DiskLoadJson>,
/** Operations of 100 ms or more that had not ended when the trace did; at most 20, the longest first. */
in_progress: Array<InProgressJson>,
/** Number of these operations, whether listed or not. */
in_progress_total: number,
/** What threads did outside operations, by the name of the thread. */
threads: Array<ThreadRoleJson>,
/** What was seen and what was not. */
coverage: SplitCoverageJson,
/** Which logs and profiles of the server were read. */
server: ServerSourcesJson, };

/** What the wire alone knows, beside what every source says. */
export type WireObject = { unanswered: number, unacknowledged: number, outcome_unknown: number,
/** Null where no reply was seen. */
transfer_ns: number | null, request_bytes: number,
/** Operations in flight when the capture ended. */
in_flight: number, oldest_in_flight_ns: number | null, calls: number, entries: number, statements: number,
/** Null, as `errors` is, if the outcome of no operation is known. */
failed: number | null, errors: { [key in string]: number } | null, errors_other: number, latency_ns: LatencyObject,
/** Each sum, and of how many operations it is known. */
sums: { [key in string]: [number, number] }, examined_per_returned: number | null, collection_scans: number, memory_sorts: number, used_disk: number, replanned: number, plans: Array<PlanObject>, plans_other: number,
/** Nanoseconds since the Unix epoch; null where no time is known. */
first_seen: number | null, last_seen: number | null, timeline: TimelineObject, };

/** A zone in JSON: its name, and its offsets at the first and at the last moment of the document. */
export type ZoneObject = { name: string,
/** Seconds east of UTC. */
utc_offsets_s: [number, number], };
