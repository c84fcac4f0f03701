// The disk test.

import type { About, Pair, Unknown } from "./common";

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
    class: string | null;
    words: string[];
  } | null;
  notes: string[];
}

export interface DiskComparison {
  kind: "disk_compare";
  about: About;
  /** Which run is faster, in one sentence. */
  answer: string;
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
