// Which operations are compared with the rest: a rectangle of a heat map, or what its fields say.

import { createContext } from "preact";

import type { Range } from "./chart";
import type { Clock } from "./time";

/** A part of a heat map: seconds since 1970, null for all of the time; and nanoseconds, null without a bound. */
export interface Rectangle {
  x: Range | null;
  y: [low: number | null, high: number | null];
}

/** Times like `2026-05-01T10:00:00Z` or `-15m`, and latencies in nanoseconds; empty without a bound. */
export interface Selection {
  start: string;
  end: string;
  low: string;
  high: string;
}

export const NOTHING: Selection = { start: "", end: "", low: "", high: "" };

const FORMS: Record<keyof Selection, RegExp> = {
  start: /^(-\d{1,9}[smhd]|\d{4}-\d\d-\d\dT[\d:.]{5,18}(Z|[+-]\d\d:\d\d))$/,
  end: /^(-\d{1,9}[smhd]|\d{4}-\d\d-\d\dT[\d:.]{5,18}(Z|[+-]\d\d:\d\d))$/,
  low: /^\d{1,15}$/,
  high: /^\d{1,15}$/,
};
const FIELDS = Object.keys(FORMS) as (keyof Selection)[];

/** The selection of an address; what has no such form is none. */
export function readSelection(given: URLSearchParams): Selection {
  const selection = { ...NOTHING };
  for (const field of FIELDS) {
    const text = given.get(field) ?? "";
    if (FORMS[field].test(text)) selection[field] = text;
  }
  return selection;
}

/** Adds a selection to the parameters of an address or a request. */
export function writeSelection(parameters: URLSearchParams, selection: Selection): void {
  for (const field of FIELDS) if (selection[field] !== "") parameters.set(field, selection[field]);
}

const whole = (seconds: number): string => new Date(seconds * 1e3).toISOString().replace(".000Z", "Z");
const ns = (value: number | null): string => (value === null ? "" : String(Math.max(1, Math.round(value))));

/** The selection that a rectangle stands for, in whole seconds. */
export const selectionOf = ({ x, y: [low, high] }: Rectangle): Selection => ({
  start: x === null ? "" : whole(Math.floor(x[0])),
  end: x === null ? "" : whole(Math.ceil(x[1])),
  low: ns(low),
  high: ns(high),
});

const UNITS_NS: Record<string, number> = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, m: 6e10 };

/** The nanoseconds of a text like `100ms`, for a selection: empty without a bound, undefined if it is no latency. */
export function latencyOf(text: string): string | undefined {
  const given = text.trim().replace("\u03bc", "µ");
  if (given === "") return "";
  const found = /^(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m)$/.exec(given);
  if (!found) return undefined;
  const value = Math.round(Number(found[1]) * UNITS_NS[found[2]!]!);
  if (value === 0) return "";
  return value < 1e15 ? String(value) : undefined;
}

/** A moment in seconds since 1970 as an input of the browser has it, by a clock. */
export const inputTime = (clock: Clock, seconds: number): string => clock.full(seconds).replace(" ", "T");

/** The moment that an input of the browser has, by a clock; undefined if it has none. */
export function momentOf(clock: Clock, text: string): string | undefined {
  const local = Date.parse(`${text}Z`) / 1e3;
  if (Number.isNaN(local)) return undefined;
  return whole(Math.floor(local - clock.offset(local - clock.offset(local))));
}

/** What is compared: a selection, of the operations of one shape or namespace where these are not empty. */
export interface Compared {
  selection: Selection;
  /** Left out: as it is now. */
  shape?: string;
  namespace?: string;
}

/** What a page does with a selection; undefined where it has no history to ask. */
export const ChooseOperations = createContext<((compared: Compared) => void) | undefined>(undefined);
