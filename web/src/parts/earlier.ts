// The same figures at an earlier time, drawn behind the present ones.

import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { Report } from "../report";
import type { Range } from "./chart";
import { percent } from "./format";
import { span } from "./timeline";

/** A document of an earlier time. */
export interface EarlierReport {
  report: Report;
  /** How much earlier, in seconds. */
  shift: number;
  /** When that was, in words: `the day before`. */
  words: string;
}

/** What the charts of a page are compared with. */
export const ComparedWith = createContext<EarlierReport | undefined>(undefined);

/** Values in equal parts of an earlier span, at places of the present; null where there is none. */
export function shifted(
  values: readonly (number | null)[],
  [from, to]: Range,
  shift: number,
  xs: readonly number[],
): (number | null)[] {
  const width = (to - from) / Math.max(values.length, 1);
  // Places are the middles of parts, or the border of two where spans have parts of different widths.
  return xs.map((x) => values[Math.floor((x - shift - from) / width + 1e-6)] ?? null);
}

/** Finds the values of a series in the document of the earlier time, if it is of this kind, for `xs` of the present. */
export function useEarlier<Kind extends Report["kind"]>(kind: Kind, xs: readonly number[]) {
  const compared = useContext(ComparedWith);
  return (find: (report: Extract<Report, { kind: Kind }>) => readonly (number | null)[] | undefined) => {
    if (compared?.report.kind !== kind) return {};
    const report = compared.report as Extract<Report, { kind: Kind }>;
    const values = find(report);
    return values && "about" in report ? { earlier: shifted(values, span(report.about), compared.shift, xs) } : {};
  };
}

/** By how much a value differs from an earlier one, which is shown too: `+20% on 10/s`. */
export function difference(
  value: number | null | undefined,
  earlier: number | null | undefined,
  show: (value: number) => string,
): string {
  if (value == null || earlier == null) return earlier == null ? "" : `was ${show(earlier)}`;
  if (earlier === 0) return value === 0 ? "as before" : "was 0";
  const change = percent((value - earlier) / earlier);
  return change === "0%" ? "as before" : `${change.startsWith("-") ? "" : "+"}${change} on ${show(earlier)}`;
}
