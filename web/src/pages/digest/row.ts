// A row of a digest in words: its label, place, plan and waits.

import { bytes, count, duration, rounded, visible } from "../../parts/format";
import type { DigestRowJson, FiguresObject, LatencyObject } from "../../report";

const DOUBTS: Record<string, string> = {
  partial: "(partial) ",
  ambiguous: "(ambiguous)",
  unsaid: "(statements not said)",
};

/** Who called: an application, else its driver. */
export const caller = (app: string, driver = ""): string =>
  visible(app) || (driver ? `(${visible(driver)})` : "(no name)");

/** What a row is about, as text. */
export function label(row: DigestRowJson): string {
  if (row.shape != null) {
    const doubt = DOUBTS[row.identity ?? ""] ?? "";
    return visible(row.identity === "exact" || row.identity === "partial" ? doubt + row.shape : doubt || row.shape);
  }
  if (row.plan != null) return visible(row.plan) || "(no plan)";
  if (row.client != null) return visible(row.client) || "(client unknown)";
  if (row.user != null) return visible(row.user) || "(no user)";
  if (row.comment != null) return visible(row.comment) || "(no comment)";
  return caller(row.namespace ?? row.app ?? "other");
}

/** Its command and namespace. */
export const place = (row: DigestRowJson): string =>
  row.command == null ? "" : visible(`${row.command} ${row.database}${row.collection ? "." + row.collection : ""}`);

/** The plan that most of its operations had. */
export function plan(row: DigestRowJson): string {
  const main = row.plans.reduce<DigestRowJson["plans"][number] | null>(
    (most, plan) => (most && most.calls >= plan.calls ? most : plan),
    null,
  );
  const others = row.plans.length > 1 ? ` +${row.plans.length - 1}` : "";
  return visible((main?.summary ?? "") + others + (row.memory_sorts ? " SORT" : "") + (row.used_disk ? " DISK" : ""));
}

export const sum = (tally: FiguresObject, name: string) => tally.sums[name]?.[0] ?? null;
export const mean = (tally: FiguresObject, name: string) => {
  const found = tally.sums[name];
  return found && found[1] > 0 ? found[0] / found[1] : null;
};

/** What operations can wait for: the sum in microseconds, and words. */
const WAITS: [string, string][] = [
  ["write_concern_us", "write concern"],
  ["remote_wait_us", "shards"],
  ["queued_us", "queues"],
  ["lock_wait_us", "locks"],
  ["storage_wait_us", "storage engine"],
  ["flow_control_us", "flow control"],
];

/** What operations waited for, the longest first: words, nanoseconds, and the share of all their time. */
export function waitsOf(tally: FiguresObject): { words: string; ns: number; share: number }[] {
  const time = tally.latency_ns.sum ?? 0;
  return WAITS.map(([name, words]) => {
    const ns = (sum(tally, name) ?? 0) * 1e3;
    return { words, ns, share: time > 0 ? Math.min(1, ns / time) : 0 };
  })
    .filter((wait) => wait.share >= 0.01)
    .sort((a, b) => b.ns - a.ns);
}

/** A figure of `sums` by its unit. */
export function sumText(name: string, value: number | null): string {
  if (value == null) return "-";
  if (name.endsWith("_us")) return duration(value * 1e3);
  if (name.endsWith("_ms")) return duration(value * 1e6);
  if (name.endsWith("_ns")) return duration(value);
  return name.endsWith("_bytes") ? bytes(value) : count(value);
}

/** Means of rounded times are lower bounds. */
export function meanText(latency: LatencyObject, precision: number): string {
  if (latency.mean == null) return "-";
  if (precision > 1 && latency.mean === 0) return rounded(0, precision);
  return (precision > 1 ? "≥" : "") + duration(latency.mean);
}
