// The time that a range is compared with.

import { type Address, between, type Comparison, span, type View } from "./address";

const DAY_MS = 86_400_000;

/** How the lines of an earlier time are called. */
const WORDS: Record<Exclude<Comparison, "">, string> = {
  before: "the time before",
  yesterday: "the day before",
  "last-week": "the week before",
};

/** Which view has, for an earlier time, what stands behind the charts of a view. */
const BEHIND: Partial<Record<View, View>> = {
  incident: "timeline",
  timeline: "timeline",
  queries: "timeline",
  series: "series",
  shape: "shape",
};

/** Whether the charts of a view have lines of an earlier time behind them. */
export const isComparable = (view: View): boolean => view in BEHIND;

/** The same time of the clock so many days earlier, in UTC or in the zone of the browser. */
function daysEarlier(ms: number, days: number, zone: string): number {
  if (zone === "UTC") return ms - days * DAY_MS;
  const at = new Date(ms);
  at.setDate(at.getDate() - days);
  return at.getTime();
}

/** What an earlier time is asked for, and how much earlier it is. */
export interface Earlier {
  address: Address;
  shiftMs: number;
  words: string;
}

/** The time that a range is compared with; undefined if with none. */
export function earlier(address: Address, now: number): Earlier | undefined {
  const { against, zone } = address;
  const view = BEHIND[address.view];
  const range = span(address, now);
  if (against === "" || view === undefined || range === undefined) return undefined;
  const [from, to] = range;
  const first = against === "before" ? from - (to - from) : daysEarlier(from, against === "yesterday" ? 1 : 7, zone);
  const shiftMs = Math.round((from - first) / 1e3) * 1e3;
  return { address: between({ ...address, view }, from - shiftMs, to - shiftMs), shiftMs, words: WORDS[against] };
}
