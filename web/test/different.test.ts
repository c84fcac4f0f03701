// What is different: how an address and a request write the selected rectangle, and the words for what differs.

import { expect, test } from "vitest";

import { read, written } from "../src/live/address";
import { ranked, selectedInWords, selectionNow, sentence } from "../src/pages/different";
import { heatMap, outlined } from "../src/parts/heat";
import {
  inputTime,
  latencyOf,
  momentOf,
  NOTHING,
  readSelection,
  selectionOf,
  writeSelection,
} from "../src/parts/selection";
import { Clock, utc } from "../src/parts/time";
import type { DifferentReport, DimensionJson, DimensionValueJson } from "../src/report";

const NS = 1e9;
/** 2026-05-01T12:00:00Z. */
const NOON = Date.UTC(2026, 4, 1, 12) / 1e3;

const value = (name: string | null, these_share: number, rest_share: number): DimensionValueJson => ({
  name,
  shape_id: null,
  typed: null,
  start_ns: null,
  these: 100 * these_share,
  rest: 1_000 * rest_share,
  these_share,
  rest_share,
  differs: true,
});

const dimension = (words: string, difference: number, values: DimensionValueJson[] = []): DimensionJson => ({
  dimension: words,
  words,
  unit: "operations",
  difference,
  these: 100,
  rest: 1_000,
  estimated: 0,
  basis: null,
  values,
  left_out: 0,
});

function report(selected: Partial<DifferentReport["selected"]>, dimensions: DimensionJson[] = []): DifferentReport {
  const [start_ns, end_ns] = [NOON * NS, (NOON + 3_600) * NS];
  const about = { tool: "mongosonar", version: "1", host: null, sources: [], start_ns, end_ns };
  return {
    schema: 1,
    kind: "different",
    about,
    zone: { name: "UTC", utc_offsets_s: [0, 0] },
    source: "wire",
    shape: null,
    namespace: null,
    selected: { start_ns, end_ns, low_ns: null, high_ns: null, is_default: false, ...selected },
    these: 100,
    rest: 1_000,
    notes: [],
    dimensions,
    bounds_ns: [],
    latencies: [],
    gaps: [],
  };
}

test("a rectangle becomes whole seconds and nanoseconds, which an address keeps", () => {
  const selection = selectionOf({ x: [NOON + 0.4, NOON + 59.2], y: [97_912_345.6, null] });
  expect(selection).toEqual({
    start: "2026-05-01T12:00:00Z",
    end: "2026-05-01T12:01:00Z",
    low: "97912346",
    high: "",
  });
  expect(selectionOf({ x: null, y: [null, 0.2] })).toEqual({ ...NOTHING, high: "1" });
  const parameters = new URLSearchParams();
  writeSelection(parameters, selection);
  expect([...parameters.keys()]).toEqual(["start", "end", "low"]);
  expect(readSelection(parameters)).toEqual(selection);
  const address = { ...read(""), view: "different" as const, shape: "00ff", filter: "shop.orders", selection };
  expect(read(written(address))).toEqual(address);
});

test("what is no selection is none", () => {
  const nonsense = new URLSearchParams({ start: "<b>", end: "yesterday", low: "-1", high: "1e9" });
  expect(readSelection(nonsense)).toEqual(NOTHING);
  expect(readSelection(new URLSearchParams({ start: "-15m", high: "1000" }))).toEqual({
    ...NOTHING,
    start: "-15m",
    high: "1000",
  });
});

test("latencies are read with their units", () => {
  const read = ["100ms", " 1.5 s", "250µs", "250\u03bcs", "3us", "2m", "7ns", "", "0ms"].map(latencyOf);
  expect(read).toEqual(["100000000", "1500000000", "250000", "250000", "3000", "120000000000", "7", "", ""]);
  for (const wrong of ["100", "ms", "-1ms", "1h", "1e3ms", "99999999m"]) expect(latencyOf(wrong)).toBeUndefined();
});

test("moments of inputs are those of the clock of the page", () => {
  const clock = new Clock({ name: "Europe/Berlin", utc_offsets_s: [7_200, 7_200] }, NOON, NOON + 60);
  expect(inputTime(clock, NOON)).toBe("2026-05-01T14:00:00");
  expect(momentOf(clock, "2026-05-01T14:00:00")).toBe("2026-05-01T12:00:00Z");
  // Browsers leave out seconds of zero.
  expect(momentOf(clock, "2026-05-01T14:00")).toBe("2026-05-01T12:00:00Z");
  expect(momentOf(clock, "")).toBeUndefined();
});

test("what is selected is said in words, and can be changed bound by bound", () => {
  const all = report({});
  expect(selectedInWords(all, utc())).toBe("all of this time");
  expect(selectionNow(all)).toEqual(NOTHING);
  const slowest = report({ is_default: true, low_ns: 97_912_346 });
  expect(selectedInWords(slowest, utc())).toBe("the slowest twentieth, longer than 97.9ms");
  expect(selectionNow(slowest)).toEqual({ ...NOTHING, low: "97912346" });
  const part = report({ start_ns: (NOON + 600) * NS, low_ns: 1e8, high_ns: 1e9 });
  expect(selectedInWords(part, utc())).toBe(
    "longer than 100ms, at most 1.00s, from 2026-05-01 12:10:00 to 2026-05-01 13:00:00",
  );
  expect(selectionNow(part)).toEqual({ start: "2026-05-01T12:10:00Z", end: "", low: "100000000", high: "1000000000" });
});

test("what differs most is said first, and what an attacker named is shown", () => {
  const [differing, same] = ranked(
    report({}, [dimension("application", 0.9), dimension("server", 0), dimension("client", 0.4)]),
  );
  expect(differing.map(({ words }) => words)).toEqual(["application", "client"]);
  expect(same).toEqual(["server"]);
  const of = (one: DimensionJson) => sentence(one, utc());
  expect(of(dimension("application", 0.9, [value("e\u202etl", 0.95, 0.021)]))).toBe(
    "application: e\\u{202e}tl is 95% of these operations, and 2.1% of the rest.",
  );
  const times = dimension("time", 0.9, [{ ...value("2026", 1, 0), start_ns: NOON * NS }]);
  expect(of(times)).toBe("time: from 2026-05-01 12:00:00 on is 100% of these operations, and 0% of the rest.");
  const parts = { ...dimension("where their time went", 0.5, [value(null, 0.5, 0)]), unit: "ns" };
  expect(of(parts)).toBe(
    "where their time went: all others is 50% of the time of these operations, and 0% of that of the rest.",
  );
  expect(of(dimension("plan", 0))).toBe("");
});

test("a heat map names the cell below the cross-hair, also with a frame", () => {
  const layer = heatMap([1e6, 2e6], [[[0, 3]], [[1, 1]]], [0, 20]);
  const plot = (x: number, y: number) => ({ posToVal: (_: number, axis: string) => (axis === "x" ? x : y) }) as never;
  const framed = outlined(layer, { x: [0, 10], y: [null, 1e6] });
  expect(framed.read(plot(5, 9e5), 0, 0)).toBe("3 operations of 841µs to 1.00ms");
  expect(layer.read(plot(15, 1.9e6), 0, 0)).toBe("1 operation of 1.68ms to 2.00ms");
  expect(layer.read(plot(5, 1.9e6), 0, 0)).toBeNull();
  expect(layer.read(plot(99, 1e6), 0, 0)).toBeNull();
  expect(layer.bounds[0]).toEqual([0, 20]);
});
