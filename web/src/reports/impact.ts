// What the profiler costs.

import type { About, Unknown } from "./common";

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
