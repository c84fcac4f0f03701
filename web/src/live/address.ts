// What the address of the live page says: a link shows somebody else the same.

import { readSelection, type Selection, writeSelection } from "../parts/selection";

/** Views, by the documents that they draw. */
export const VIEWS = {
  incident: "Overview",
  now: "Now",
  queries: "Queries",
  "what-changed": "What changed",
  timeline: "Timeline",
  waits: "Waits",
  different: "What is different",
  storage: "Files and disk",
  series: "Internals",
  events: "Events",
  status: "Health",
} as const;
/** Those, and one query shape. */
export type View = keyof typeof VIEWS | "shape";

/** What rows of queries can be about. */
export const GROUPINGS = ["shape", "namespace", "app", "client", "command", "server"] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** What a range is compared with, and how that is called. */
export const COMPARISONS = {
  "": "nothing",
  before: "the time before",
  yesterday: "yesterday",
  "last-week": "last week",
} as const;
export type Comparison = keyof typeof COMPARISONS;

/** Ranges that end now. */
export const RANGES = ["15m", "1h", "6h", "24h", "7d", "30d"] as const;

export interface Address {
  view: View;
  /** `-1h`, or a time of RFC 3339. */
  from: string;
  /** A time of RFC 3339; empty if the range ends now. */
  to: string;
  /** The name of a time zone; empty for that of the browser. */
  zone: string;
  /** What rows of queries are about. */
  by: Grouping;
  /** What the range is compared with; empty for nothing, and in what changed for the time before it. */
  against: Comparison;
  /** The id of the query shape that is shown, or whose operations are compared; empty for none. */
  shape: string;
  /**
   * Words that queries, series, events or operations that run have, or the namespace whose operations are compared; empty
   * for all.
   */
  filter: string;
  /** What series are about, or the kind of events or of operations that run; empty for all. */
  kind: string;
  /** Which operations are compared with the rest. */
  selection: Selection;
}

const UNITS_MS: Record<string, number> = { s: 1e3, m: 6e4, h: 36e5, d: 864e5 };

export function read(search: string): Address {
  const given = new URLSearchParams(search);
  const view = given.get("view") ?? "";
  const against = given.get("against") ?? "";
  const id = given.get("id") ?? "";
  const shape = (view === "shape" || view === "different") && /^[0-9a-f]{1,16}$/.test(id) ? id : "";
  return {
    view: Object.hasOwn(VIEWS, view) || shape !== "" ? (view as View) : "incident",
    from: given.get("from") ?? "-1h",
    to: given.get("to") ?? "",
    zone: given.get("zone") ?? "",
    by: GROUPINGS.find((by) => by === given.get("by")) ?? "shape",
    against: Object.hasOwn(COMPARISONS, against) ? (against as Comparison) : "",
    shape,
    filter: given.get("filter") ?? "",
    kind: /^[a-z_]{1,40}$/.exec(given.get("kind") ?? "")?.[0] ?? "",
    selection: readSelection(given),
  };
}

/** The address, without what it would have anyway. */
export function written(address: Address): string {
  const { view, from, to, zone, by, against, shape, filter, kind } = address;
  const parameters = new URLSearchParams({ view, from });
  if (to !== "") parameters.set("to", to);
  if (zone !== "") parameters.set("zone", zone);
  if (by !== "shape") parameters.set("by", by);
  if (against !== "") parameters.set("against", against);
  if (shape !== "" && (view === "shape" || view === "different")) parameters.set("id", shape);
  if (filter !== "") parameters.set("filter", filter);
  if (kind !== "") parameters.set("kind", kind);
  writeSelection(parameters, address.selection);
  return `?${parameters.toString()}`;
}

/** The address as far as the server is asked for it: the page filters queries and operations that run itself. */
export const asked = (address: Address): Address =>
  address.view === "queries" || address.view === "now" ? { ...address, filter: "", kind: "" } : address;

/** First and last millisecond since 1970; undefined if the address names no time. */
export function span({ from, to }: Address, now: number): [from: number, to: number] | undefined {
  const last = to === "" ? now : Date.parse(to);
  const ago = /^-(\d{1,9})([smhd])$/.exec(from);
  const first = ago ? now - Number(ago[1]) * UNITS_MS[ago[2]!]! : Date.parse(from);
  return first < last ? [first, last] : undefined;
}

const whole = (ms: number) => new Date(Math.round(ms / 1e3) * 1e3).toISOString().replace(".000Z", "Z");

/** The same for any range: a selected time may lie outside of another one. */
export const withoutTimes = (address: Address): Address => ({
  ...address,
  selection: { ...address.selection, start: "", end: "" },
});

/** The same range, earlier (-1) or later (1) by its own length. What would end in the future ends now. */
export function moved(address: Address, by: -1 | 1, now: number): Address {
  const range = span(address, now);
  if (range === undefined) return address;
  const length = range[1] - range[0];
  const last = range[1] + by * length;
  if (last >= now) return { ...withoutTimes(address), from: `-${Math.round(length / 1e3)}s`, to: "" };
  return { ...withoutTimes(address), from: whole(range[0] + by * length), to: whole(last) };
}

/** The range between two milliseconds since 1970. */
export const between = (address: Address, from: number, to: number): Address => ({
  ...withoutTimes(address),
  from: whole(from),
  to: whole(to),
});
