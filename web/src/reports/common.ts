// What several documents have.

export type Unknown = number | null;

export type Counters = Record<string, number>;

export type Pair = [number, number];

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
  sum: Unknown;
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

/** A time from and to, in nanoseconds since 1970. */
export interface Span {
  start_ns: number;
  end_ns: number;
}
