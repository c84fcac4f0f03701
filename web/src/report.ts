// The documents that the commands write with --json, as far as the page reads them. What is not known is null.

import type { Zone } from "./parts/time";

export type Unknown = number | null;
type Counters = Record<string, number>;

/** Where a document comes from. */
export interface About {
  tool: string;
  version: string;
  host: string | null;
  sources: string[];
  /** The time that it covers. */
  start_ns: Unknown;
  end_ns: Unknown;
}

export interface Latency {
  count: number;
  sum: number;
  min: Unknown;
  max: Unknown;
  mean: Unknown;
  p50: Unknown;
  p95: Unknown;
  p99: Unknown;
  /** Index of OpenTelemetry (scale 5, seconds) and count. */
  buckets: [number, number][];
}

export interface Timeline {
  width_ns: number;
  /** Begin, calls, sum of latencies, documents or keys examined. */
  buckets: [number, number, number, number][];
}

export interface Tally {
  calls: number;
  statements: number;
  failed: number;
  errors: Counters;
  errors_other: number;
  latency_ns: Latency;
  sums: Record<string, [number, number]>;
  examined_per_returned: Unknown;
  collection_scans: number;
  memory_sorts: number;
  used_disk: number;
  replanned: number;
  plans: { summary: string; calls: number; memory_sorts: number }[];
  plans_other: number;
  /** Null if the source has no times. */
  first_seen: Unknown;
  last_seen: Unknown;
  timeline: Timeline;
}

export interface DigestRow extends Tally {
  shape_id: string | null;
  ordered_ids: string[];
  identity: string | null;
  class: string | null;
  command: string | null;
  database: string | null;
  collection: string | null;
  shape: string | null;
  plain: string | null;
  shape_cut: boolean | null;
  app: string | null;
  namespace: string | null;
  plan: string | null;
  client?: string;
  user?: string;
  comment?: string;
  query_hash: string | null;
  index_hint: string | null;
  time_share: number;
  apps: { name: string; calls: number; failed: number; latency_ns: number }[];
}

export interface Notices {
  accepted: number;
  ended: number;
  most_open: Unknown;
  versions: string[];
  starts: { at: number; version: string; pid: Unknown; port: Unknown; host: string }[];
  clients: { app: string; driver: string; driver_version: string; connections: number }[];
  messages: {
    severity: string;
    component: string;
    id: Unknown;
    text: string;
    count: number;
    first: number;
    last: number;
  }[];
  messages_other: number;
  slow_replies?: { count: number; total_ms: number; longest_ms: number; first: Unknown; last: Unknown };
}

/** What stands out about a shape. */
export interface Remark {
  /** `skip`, `view` or `replanned`. */
  kind: string;
  shape_id: string;
  command: string;
  namespace: string;
  shape: string;
  time_share: number;
  /** What stands out, and what to do. */
  words: string;
}

export interface Digest {
  kind: "digest";
  about: About;
  source: "log" | "profile" | "wire";
  by: string;
  totals: Tally;
  reading: Counters | null;
  coverage: Counters | null;
  notices: Notices | null;
  indexes_known: boolean;
  index_hints: {
    namespace: string;
    index: string;
    time_share: number;
    shapes: {
      shape_id: string;
      command: string;
      shape: string;
      time_share: number;
      examined_per_returned: Unknown;
      plan: string;
      memory_sorts: number;
    }[];
  }[];
  /** What else stands out about shapes. */
  remarks?: Remark[];
  notes: string[];
  /** Operations that the rows do not show, by reason, and the switch that shows them. */
  hidden?: { reason: string; operations: number; classes: Counters; show_with: string }[];
  lost: Counters;
  zone: Zone;
  precision_ns: number;
  rows_total: number;
  rows: DigestRow[];
  /** Triples: microseconds since the first operation, microseconds of latency, row or -1. */
  points: number[] | null;
  points_seen: Unknown;
}

type Pair = [number, number];

export interface ComparisonRow {
  verdict: string;
  not_judged: string | null;
  least_latency_factor: number | null;
  least_rate_factor: number | null;
  in_a: boolean;
  in_b: boolean;
  shape_id: string | null;
  identity: string | null;
  class: string | null;
  command: string;
  namespace: string;
  text: string;
  calls: Pair;
  calls_per_s: [Unknown, Unknown];
  rate_p: number;
  effect: Unknown;
  latency_p: Unknown;
  p50_ns: Pair | null;
  p95_ns: Pair | null;
  p99_ns: Pair | null;
  examined_per_returned: [Unknown, Unknown];
  examined_p: Unknown;
  growth: Unknown;
}

export interface Comparison {
  kind: "comparison";
  about: About;
  sides: {
    name: string;
    host: string | null;
    source: string;
    calls: number;
    first_seen: number;
    last_seen: number;
    zone: Zone;
  }[];
  changed: number;
  unchanged: number;
  not_judged: number;
  not_judged_in_one: number;
  not_judged_few_latencies?: number;
  not_compared: number;
  by: string;
  latencies_compared: boolean;
  precision_ns: number;
  worse: boolean;
  rows: ComparisonRow[];
}

export interface DiskLatency {
  mean: Unknown;
  p50: Unknown;
  p95: Unknown;
  p99: Unknown;
  "p99.9": Unknown;
  max: Unknown;
}

export interface DiskKind {
  count: number;
  bytes: number;
  latency_ns: DiskLatency;
}

export interface DeviceRates {
  device: string;
  [column: string]: number | string | null;
}

export interface DiskStep {
  in_flight: number;
  threads: number;
  seconds: number;
  operations: number;
  operations_per_second: number;
  bytes_per_second: number;
  reads: DiskKind | null;
  writes: DiskKind | null;
  flushes: DiskKind | null;
  cpu: { user_ns: number; system_ns: number; ns_per_operation: Unknown; machine_busy: Unknown };
  device: DeviceRates | null;
  disks: DeviceRates[];
}

export interface DiskRun {
  kind: "disk_bench";
  about: About;
  started_ns: number;
  settings: {
    fileSizeMB: number;
    sleepMicros: number;
    mmf: boolean;
    r: boolean;
    w: boolean;
    recSizeKB: number;
    step_seconds: number;
    access: string;
    fdatasync: boolean;
    direct: boolean;
    seed: number;
  };
  place: {
    host: string | null;
    dir: string;
    file_system: string | null;
    mount_options: string[];
    device: string | null;
    disks: string[];
    model: string | null;
    scheduler: string | null;
    kernel: string | null;
    processors: number;
  };
  engine: string;
  probes: {
    sequential: boolean;
    record_bytes: number;
    in_flight: number;
    operations_per_second: number;
    bytes_per_second: number;
    latency_ns: DiskLatency;
  }[];
  steps: DiskStep[];
  verdict: {
    knee_in_flight: number;
    knee_per_second: number;
    best_per_second: number;
    still_scaling: boolean;
    limit: string;
    class: string;
    words: string[];
  } | null;
  notes: string[];
}

export interface DiskComparison {
  kind: "disk_compare";
  about: About;
  names: [string, string];
  steps: {
    in_flight: number;
    operations_per_second: Pair;
    p99_ns: [Unknown, Unknown];
    ratio: Unknown;
    interval: Pair | null;
    faster: string | null;
  }[];
  words: string[];
  runs: [DiskRun, DiskRun];
}

export interface IoFlow {
  count: number;
  errors: number;
  faults: number;
  bytes: number;
  touched_bytes: number;
  blocks: number;
  amplification: Unknown;
  device_bytes: Unknown;
  device_bytes_per_byte: Unknown;
  readahead_wasted_at_least_bytes: Unknown;
  cached_share: Unknown;
  sequential_share: Unknown;
  randomness: Unknown;
  distances: { from: number; count: number }[];
  run_mean: Unknown;
  run_longest: Unknown;
  latency_ns: { count: number; sum: number; p50: Unknown; p95: Unknown; p99: Unknown; max: Unknown };
}

export interface IoFile {
  file: number;
  path: string | null;
  label: string | null;
  role: string | null;
  reads: IoFlow;
  writes: IoFlow | null;
  page_ins: { count: number; bytes: number; wasted_bytes: number; wasted_share: Unknown } | null;
  syncs: number;
  sync_ns: { p50: Unknown; p99: Unknown; max: Unknown };
  phases: {
    start_ns: number;
    length_ns: number;
    path: string;
    reads: number;
    bytes: number;
    read_ns: number;
    randomness: Unknown;
  }[];
}

/** The reads of a file over time and offset. */
export interface IoPicture {
  file: number;
  name: string;
  columns: number;
  rows: number;
  length: number;
  span_ns: number;
  /** Column, row, reads, mean latency: four numbers a cell. */
  cells: number[];
  /** Of each column: reads, median, 99th percentile. */
  over: ([number, number, number] | null)[];
  /** Upper bound in nanoseconds, reads from the page cache, from the device, not known which. */
  buckets: [number, number, number, number][];
}

export interface IoReport {
  kind: "io_report";
  about: About;
  start_ns: Unknown;
  end_ns: Unknown;
  accesses: number;
  lost: Counters;
  left_out: number;
  incomplete: string | null;
  info: Record<string, string>;
  verdict: { finding: string; file: Unknown; words: string[] };
  files_total: number;
  files: IoFile[];
  threads: {
    thread: number;
    name: string | null;
    role: string | null;
    reads: number;
    read_bytes: number;
    read_ns: number;
    read_share: Unknown;
    writes: number;
    write_ns: number;
  }[];
  pictures: IoPicture[] | null;
}

export interface ImpactCell {
  clients: number;
  level: number;
  name: string;
  throughput: number;
  operations: number;
  measured_ns: number;
  loss: Unknown;
  loss_low: Unknown;
  loss_high: Unknown;
  differs: boolean | null;
  p50_ns: Unknown;
  p95_ns: Unknown;
  p99_ns: Unknown;
  max_ns: Unknown;
  server_cpu_ns: Unknown;
  load_cpu_ns: Unknown;
  host_busy_ns: Unknown;
  disk_busy_ns: Unknown;
  written_bytes: Unknown;
  log_bytes: Unknown;
  lock_waits: Unknown;
  lock_wait_us: Unknown;
}

export interface Impact {
  kind: "profiler_impact";
  about: About;
  started_ns: number;
  server: string;
  documents: number;
  confidence: number;
  processors: Unknown;
  variants: string[];
  cells: ImpactCell[];
  verdicts: string[];
  bottleneck: string;
  slices: {
    clients: number;
    variant: number;
    round: number;
    start_ns: number;
    length_ns: number;
    operations: number;
    bucket_ns: number;
    buckets: number[];
  }[];
}

export interface LongImpact {
  kind: "profiler_impact_long";
  about: About;
  started_ns: number;
  server: string;
  clients: number;
  level: Unknown;
  seconds: number[];
  wrapped_ns: Unknown;
  profile_bytes: Unknown;
  loss: Unknown;
  verdict: string;
}

export interface FtdcExceedance {
  total_ns: number;
  longest_ns: number;
  longest_start_ns: Unknown;
}

export interface FtdcFigure {
  id: string;
  group: string;
  title: string;
  unit: string;
  count: number;
  p50: number;
  p95: number;
  max: number;
  verdict: "ok" | "amber" | "red" | null;
  limits: {
    amber: number;
    red: Unknown;
    below: boolean;
    rule: string;
    meaning: string;
    source: string;
    over_amber: FtdcExceedance;
    over_red: FtdcExceedance;
  } | null;
  trend: {
    width_ns: number;
    /** Begin, smallest value, mean, largest value. */
    buckets: [number, number, number, number][];
  };
}

export interface FtdcReport {
  kind: "ftdc_report";
  about: About;
  zone: Zone;
  server: {
    version: string | null;
    host: string | null;
    port: Unknown;
    dbpath: string | null;
    is_router: boolean;
    replica_set: string | null;
    processors: Unknown;
    /** Null if that is not less than all. */
    processors_available: Unknown;
    memory_mib: Unknown;
    /** Null if there is no limit below the memory of the machine. */
    memory_limit_mib: Unknown;
    system: string | null;
  };
  samples: number;
  reading: {
    files: number;
    chunks: number;
    chunks_damaged: number;
    documents_unknown: number;
    samples_repeated: number;
    samples_outside: number;
    damage: string[];
  };
  incidents: { time_ns: number; kind: string; words: string }[];
  incidents_other: number;
  figures: FtdcFigure[];
}

/** A time from and to, in nanoseconds since 1970. */
export interface Span {
  start_ns: number;
  end_ns: number;
}

/** One change: a sentence, its evidence, and what it caused. */
export interface Change {
  /** `event`, `application`, `shape`, `errors`, `growth`, `server` or `series`. */
  kind: string;
  server: string | null;
  since_ns: number;
  /** Time that operations took beyond what they took before. */
  cost_ns: number;
  sentence: string;
  evidence: string[];
  /** The arguments of the command that shows more. */
  command: string[];
  effects: Change[];
}

/** What changed within some windows. */
export interface Moment extends Span {
  changes: Change[];
  context: Change[];
  left_out: number;
}

/** A time that was not observed. */
export interface Gap extends Span {
  what: string;
  /** The share that was observed nevertheless, 0 to 1. */
  observed: number;
}

export interface Changes {
  kind: "what-changed";
  about: About;
  zone: Zone;
  /** Null if each moment was compared with the time before it. */
  compared_with: Span | null;
  /** The answer in one sentence. */
  summary: string;
  moments: Moment[];
  gaps: Gap[];
  notes: string[];
}

/** A figure over time: a value for each part of the axis. */
export interface Lane {
  group: string;
  id: string;
  title: string;
  unit: string;
  server: Unknown;
  /** `amber` or `red` if it is over a limit somewhere. */
  verdict: string | null;
  /** That limit. */
  limit: Unknown;
  values: Unknown[];
}

export interface LaneEvent {
  time_ns: number;
  kind: string;
  server: Unknown;
  sentence: string;
}

export interface TimelineReport {
  kind: "timeline";
  about: About;
  zone: Zone;
  /** Equal parts of the axis. */
  parts: number;
  lanes: Lane[];
  events: LaneEvent[];
  events_left_out: number;
  gaps: Gap[];
}

export interface QueryRow {
  command: string | null;
  database: string | null;
  collection: string | null;
  shape: string | null;
  load: number;
  calls: number;
  failed: number;
  latency_ns: Latency;
}

export interface SeriesFigure {
  group: string;
  server: Unknown;
  title: string;
  unit: string;
  mean: number;
  min: number;
  max: number;
  verdict: string | null;
}

export interface IncidentReport {
  kind: "incident";
  about: About;
  zone: Zone;
  changes: Changes;
  timeline: TimelineReport;
  queries: { rows: QueryRow[] };
  figures: SeriesFigure[];
}

/** A part of the time of operations. */
export interface TimePart {
  part: string;
  ns: number;
  share: number;
  operations: Unknown;
  p50_ns: Unknown;
  p99_ns: Unknown;
  /** What its long waits were for. */
  classes: { class: string; waits: number; wait_ns: number; share: number }[];
}

export interface ShapeTime {
  /** `wire`, `log`, `profile`, or `thread_name` for operations without a shape. */
  origin: string;
  shape_id: string;
  command: string;
  namespace: string;
  typed: string;
  role: string;
  class: string;
  apps: string[];
  operations: number;
  share: number;
  mean_ns: number;
  p50_ns: Unknown;
  p99_ns: Unknown;
  max_ns: Unknown;
  parts: TimePart[];
  files: { name: string | null; inode: number; reads: number; bytes: number; wait_ns: number }[];
  has_other_files: boolean;
  blockers: {
    thread: number;
    thread_name: string | null;
    /** Other threads with the same shape ended waits, too. */
    has_others: boolean;
    shape_id: string | null;
    command: string | null;
    waits: number;
    wait_ns: number;
    share: number;
  }[];
  answer: string[];
}

/** A file, and the shapes that waited for it. */
export interface FileWaits {
  name: string | null;
  inode: number;
  reads: number;
  bytes: number;
  wait_ns: number;
  shapes: { shape_id: string; command: string; reads: number; wait_ns: number; share: number }[];
}

/** An operation that had not ended when the trace did. */
export interface UnfinishedOperation {
  thread_name: string;
  client: string | null;
  app: string | null;
  shape_id: string | null;
  command: string | null;
  namespace: string | null;
  typed: string | null;
  elapsed_ns: Unknown;
  doing: string | null;
  doing_ns: Unknown;
  class: string | null;
}

/** What the control group of a process allows. */
export interface ProcessLimit {
  process: number;
  processors: number;
  /** Share of the periods of the trace in which its threads were stopped. */
  throttled: Unknown;
  throttled_ns: Unknown;
}

export interface WhyReport {
  kind: "why";
  about: About;
  processes: number[];
  seconds: number;
  processors: number;
  /** Processes whose control group limits processor time. */
  limits?: ProcessLimit[];
  /** Every how many connections one was followed; 1 if all were. */
  sample_every: number;
  /** Counted operations of all shapes. */
  operations: number;
  active: number;
  active_parts: TimePart[];
  /** Operations in progress in each interval; the last one goes on to the end. */
  activity: { start_ns: number; end_ns: number; width_ns: number; parts: { part: string; active: number[] }[] };
  shapes: ShapeTime[];
  shapes_left_out: number;
  /** Operations without a shape, by the names of their threads. */
  unseen: ShapeTime[];
  files: FileWaits[];
  in_progress: UnfinishedOperation[];
  in_progress_total: number;
  threads: {
    role: string;
    threads: number;
    cpu_ns: number;
    run_queue_ns: number;
    read_ns: number;
    write_ns: number;
  }[];
  coverage: Counters;
  /** What the server's log and profile say of it. */
  server: { sentences: string[] };
}

export interface StackRow {
  class: string;
  idle: boolean;
  role: string | null;
  state: string;
  call: string | null;
  samples: number;
  threads: number;
  cut: string | null;
  /** The innermost first. `machinery` only passes a call on. */
  frames: { function: string; library: string | null; machinery?: boolean }[];
}

export interface StackReport {
  kind: "stacks";
  about: About;
  process: { pid: number; name: string };
  snapshots: number;
  threads: number;
  samples: number;
  shown: number;
  idle: number;
  not_asked: number;
  cut: number;
  without_frames: number;
  lost: number;
  walk_ns_per_thread: Unknown;
  full_names: boolean;
  limits: string[];
  stacks: StackRow[];
}

export interface ShareChange {
  name: string;
  share: Pair;
}

export interface StackComparison {
  kind: "stacks_compare";
  about: About;
  samples: Pair;
  words: string[];
  classes: { changed: ShareChange[]; unchanged: number };
  functions: { changed: ShareChange[]; unchanged: number };
}

export type Report =
  | Digest
  | Comparison
  | DiskRun
  | DiskComparison
  | IoReport
  | Impact
  | LongImpact
  | FtdcReport
  | Changes
  | TimelineReport
  | IncidentReport
  | WhyReport
  | StackReport
  | StackComparison;

/** Reads the document of a page. */
export function parse(text: string): Report {
  const report: unknown = JSON.parse(text);
  if (typeof report !== "object" || report === null || !("kind" in report))
    throw new Error("this file holds no report");
  return report as Report;
}
