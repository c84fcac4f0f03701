// Rows of query shapes, put together by what all of them have: the command or the server.

import type { QueryLatencyJson, QueryRowJson, QueryShapeJson } from "../report";

/** What rows can be put together by here; the server puts them together by the rest. */
export const OWN_GROUPINGS = ["command", "server"] as const;
export type OwnGrouping = (typeof OWN_GROUPINGS)[number];

type ShapeRow = QueryRowJson & QueryShapeJson;

type Known = number | null;

/** What some rows know together; null if none knows anything. */
const sum = (values: readonly Known[]): Known =>
  values.reduce((sum, value) => (value === null ? sum : (sum ?? 0) + value), null);

/** The bound of an extreme of some rows. */
const extreme = (values: readonly Known[], of: (...values: number[]) => number): Known => {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? known.reduce((a, b) => of(a, b)) : null;
};

/** The latencies of some rows together, with quantiles from their histograms, in nanoseconds. */
export function joined(all: readonly QueryLatencyJson[]): QueryLatencyJson {
  const of = (field: "sum" | "min" | "max" | "count") => all.map((one) => one[field]);
  const [count, min, max] = [sum(of("count")) ?? 0, extreme(of("min"), Math.min), extreme(of("max"), Math.max)];
  const buckets = new Map<number, number>();
  for (const [index, times] of all.flatMap((one) => one.buckets ?? []))
    buckets.set(index, (buckets.get(index) ?? 0) + times);
  const ordered = [...buckets].sort(([a], [b]) => a - b);
  const zero = sum(all.map((one) => one.zero ?? 0)) ?? 0;
  const quantile = (q: number): Known => {
    if (count === 0) return null;
    const rank = Math.max(1, Math.ceil(q * count));
    let seen = zero;
    if (seen >= rank) return 0;
    for (const [index, times] of ordered) {
      seen += times;
      // The upper bound of the bucket, as in the rows.
      if (seen >= rank) return Math.min(Math.max(2 ** ((index + 1) / 32) * 1e9, min ?? 0), max ?? Infinity);
    }
    return max;
  };
  const whole = sum(of("sum"));
  const mean = count > 0 && whole !== null ? whole / count : null;
  const [p50, p95, p99, p999] = [0.5, 0.95, 0.99, 0.999].map(quantile) as [Known, Known, Known, Known];
  return { p50, p95, p99, p999, min, max, sum: whole, count, mean, zero, buckets: ordered };
}

/** Figures that add up. */
const SUMS = [
  "time_share",
  "load",
  "calls",
  "calls_per_s",
  "statements",
  "failed",
  "in_flight",
  "response_bytes",
  "request_bytes",
  "docs_returned",
  "docs_affected",
] as const;

/** A row for each command or server, those with the most load first. */
export function grouped(rows: readonly ShapeRow[], by: OwnGrouping): Partial<ShapeRow>[] {
  const groups = new Map<string, ShapeRow[]>();
  for (const row of rows) groups.set(row[by], [...(groups.get(row[by]) ?? []), row]);
  return [...groups]
    .map(([name, of]): Partial<ShapeRow> => {
      const errors: Record<string, number> = {};
      for (const [code, times] of of.flatMap((row) => Object.entries(row.errors ?? {})))
        errors[code] = (errors[code] ?? 0) + times;
      return {
        [by]: name,
        ...Object.fromEntries(SUMS.map((field) => [field, sum(of.map((row) => row[field]))])),
        latency_ns: joined(of.map((row) => row.latency_ns)),
        errors: of.every((row) => row.errors === null) ? null : errors,
        first_seen: extreme(
          of.map((row) => row.first_seen),
          Math.min,
        ),
        last_seen: extreme(
          of.map((row) => row.last_seen),
          Math.max,
        ),
      };
    })
    .sort((a, b) => (b.load ?? 0) - (a.load ?? 0));
}
