// Operations over time: timelines with buckets of any width, put into the columns of a chart.

import type { About, TimelineObject } from "../report";
import { seconds } from "./time";

/** The span of a document in seconds since 1970. */
export const span = ({ start_ns, end_ns }: About): [from: number, to: number] => [
  seconds(start_ns ?? 0),
  seconds(end_ns ?? 0),
];

/** The middles of so many equal parts of a span. */
export function xsOf([from, to]: [number, number], parts: number): number[] {
  const width = (to - from) / Math.max(parts, 1);
  return Array.from({ length: parts }, (_, at) => from + (at + 0.5) * width);
}

/** Columns of equal width, by their beginnings in seconds since 1970. */
export interface Grid {
  begin: number;
  step: number;
  columns: number;
}

/** The width of the widest buckets of some timelines, in nanoseconds: that of the columns which they can share. */
export const widest = (timelines: readonly TimelineObject[]): number =>
  timelines.reduce((most, timeline) => Math.max(most, timeline.width_ns), 0);

/**
 * Columns that hold a range: whole buckets each, and at most `most`. Buckets begin at multiples of their width since
 * 1970, so each bucket that is not wider lies in one column.
 */
export function grid([from, to]: [number, number], bucketNs: number, most: number): Grid {
  const width = Math.max(bucketNs / 1e9, 1e-6);
  const first = Math.floor(from / width);
  const buckets = Math.max(1, Math.ceil(to / width) - first);
  const each = Math.ceil(buckets / Math.max(1, most));
  return { begin: first * width, step: each * width, columns: Math.ceil(buckets / each) };
}

/** Calls a second in each column. The calls of a bucket that is wider than a column are spread over it. */
export function rates(timeline: TimelineObject, { begin, step, columns }: Grid): number[] {
  const calls = new Array<number>(columns).fill(0);
  const wide = timeline.width_ns / 1e9 / step;
  for (const [start, count] of timeline.buckets) {
    const from = (start / 1e9 - begin) / step;
    const to = from + wide;
    for (let at = Math.max(0, Math.floor(from)); at < Math.min(columns, to); at++) {
      calls[at]! += count * ((Math.min(to, at + 1) - Math.max(from, at)) / wide);
    }
  }
  return calls.map((count) => count / step);
}

/** The beginnings of columns. */
export const begins = ({ begin, step, columns }: Grid): number[] =>
  Array.from({ length: columns + 1 }, (_, at) => begin + at * step);
