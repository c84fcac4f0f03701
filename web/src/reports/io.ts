// Reads of files.

import type { About, Counters, Unknown } from "./common";

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
  /** The same in words; missing in documents of earlier versions. */
  lost_in_words?: string[];
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
