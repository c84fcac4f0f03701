// Reports of logs, profiles and captures, and their comparison.

import type { Zone } from "../parts/time";
import type { About, Counters, Latency, Pair, Timeline, Unknown } from "./common";

export interface Tally {
  calls: number;
  statements: number;
  failed: Unknown;
  errors: Counters | null;
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
  time_share: Unknown;
  apps: { name: string; calls: number; failed: Unknown; latency_ns: Unknown }[];
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
  /** What takes the time, in one sentence. */
  answer?: string | null;
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
  /** What was read of each source, where there are several. */
  sources?: readonly unknown[];
  /** The same in words; missing in documents of earlier versions. */
  lost_in_words?: string[];
  /** What was not read although nothing of it was lost, and what is not known in full. */
  incomplete?: { way: string; what: string[] }[];
  zone: Zone;
  precision_ns: number;
  rows_total: number;
  rows: DigestRow[];
  /** Triples: microseconds since the first operation, microseconds of latency, row or -1. */
  points: number[] | null;
  points_seen: Unknown;
}

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
  not_judged_other_source?: number;
  not_compared: number;
  by: string;
  latencies_compared: boolean;
  precision_ns: number;
  worse: boolean;
  rows: ComparisonRow[];
}
