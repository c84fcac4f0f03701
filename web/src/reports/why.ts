// Where the time of operations goes.

import type { About, Counters, Unknown } from "./common";

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
