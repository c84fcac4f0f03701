// `diagnostic.data`.

import type { Zone } from "../parts/time";
import type { About, Unknown } from "./common";

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
