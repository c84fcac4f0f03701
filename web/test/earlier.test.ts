// The time that a range is compared with, and its figures behind the present ones.

import { expect, test } from "vitest";

import { read } from "../src/live/address";
import { earlier, isComparable } from "../src/live/earlier";
import { sameSeries } from "../src/pages/series";
import { rate } from "../src/pages/shape";
import { spoken } from "../src/parts/chart";
import { difference, shifted } from "../src/parts/earlier";
import { sameLane } from "../src/parts/lanes";
import type { AllSeriesReport, LaneJson, ShapeHistory, StoredSeriesJson, TimelineReport } from "../src/report";

const NOW = Date.parse("2026-05-01T12:00:00Z");
const HOUR = 3_600_000;

test("a range is compared with the time before it, the day or the week before", () => {
  const of = (against: string, more = "&zone=UTC") => earlier(read(`?view=timeline&against=${against}${more}`), NOW);
  expect(of("")).toBeUndefined();
  expect(of("before")?.address).toMatchObject({ from: "2026-05-01T10:00:00Z", to: "2026-05-01T11:00:00Z" });
  expect(of("yesterday")?.address).toMatchObject({ from: "2026-04-30T11:00:00Z", to: "2026-04-30T12:00:00Z" });
  expect(of("last-week")?.address).toMatchObject({ from: "2026-04-24T11:00:00Z", to: "2026-04-24T12:00:00Z" });
  expect(of("yesterday")).toMatchObject({ shiftMs: 24 * HOUR, words: "the day before" });
  expect(of("before", "&from=2026-05-01T11:00:00Z&to=2026-05-01T11:00:30Z")).toMatchObject({ shiftMs: 30_000 });
  // By the clock of the browser, whatever its zone.
  const local = of("last-week", "");
  const [then, now] = [new Date(NOW - HOUR - local!.shiftMs), new Date(NOW - HOUR)];
  expect([then.getHours(), then.getDay(), local!.words]).toEqual([now.getHours(), now.getDay(), "the week before"]);
});

test("what is asked for has what the charts of the view draw", () => {
  const of = (search: string) => earlier(read(`${search}&against=before`), NOW)?.address;
  expect(of("?view=incident")?.view).toBe("timeline");
  expect(of("?view=queries")?.view).toBe("timeline");
  expect(of("?view=shape&id=1f")).toMatchObject({ view: "shape", shape: "1f" });
  expect(of("?view=series&filter=cache&kind=server")).toMatchObject({
    view: "series",
    filter: "cache",
    kind: "server",
  });
  expect([of("?view=events"), of("?view=status"), of("?from=never")]).toEqual([undefined, undefined, undefined]);
  expect([isComparable("queries"), isComparable("events")]).toEqual([true, false]);
});

test("earlier values lie on the time axis of the present; gaps stay gaps", () => {
  const xs = [105, 115, 125, 135];
  expect(shifted([1, null, 3, 0], [0, 40], 100, xs)).toEqual([1, null, 3, 0]);
  // It is known for a part of the time, and in parts of another width.
  expect(shifted([1, 2], [0, 20], 100, xs)).toEqual([1, 2, null, null]);
  expect(shifted([1, 2], [-10, 30], 100, xs)).toEqual([1, 2, 2, null]);
  expect(shifted([], [0, 40], 100, xs)).toEqual([null, null, null, null]);
});

test("both values are said, and the change in per cent", () => {
  const show = (value: number) => `${value}/s`;
  expect(difference(12, 10, show)).toBe("+20% on 10/s");
  expect(difference(5, 10, show)).toBe("-50% on 10/s");
  expect(difference(0, 10, show)).toBe("-100% on 10/s");
  expect([difference(10, 10, show), difference(0, 0, show)]).toEqual(["as before", "as before"]);
  expect([difference(5, 0, show), difference(null, 7, show)]).toEqual(["was 0", "was 7/s"]);
  expect([difference(5, null, show), difference(5, undefined, show)]).toEqual(["", ""]);
  const series = [{ name: "calls", colour: "", values: [12], earlier: [10] }];
  expect(spoken("12:00:00", series, 0, { name: "", show })).toBe("12:00:00: calls 12/s +20% on 10/s");
});

test("a series is found in the earlier document by what it is about", () => {
  const lane = (found: Partial<LaneJson>) =>
    ({ group: "queries", id: "calls", title: "queries", server: null, ...found }) as LaneJson;
  const lanes = [lane({ server: 27017, values: [1] }), lane({ values: [2] }), lane({ group: "machine", values: [3] })];
  const find = (found: Partial<LaneJson>) => sameLane(lane(found))({ lanes } as TimelineReport);
  expect([find({}), find({ server: 27017 }), find({ group: "machine" }), find({ id: "p99" })]).toEqual([
    [2],
    [1],
    [3],
    undefined,
  ]);
  // The log has the slow ones only.
  expect(find({ title: "slow queries in the log" })).toBeUndefined();
  const one = (found: Partial<StoredSeriesJson>) =>
    ({ subject: "device", metric: "busy", name: "sda", server: null, ...found }) as StoredSeriesJson;
  const series = [one({ name: "sdb", values: [1] }), one({ subject: "disk", values: [2] }), one({ values: [3] })];
  expect(sameSeries(one({}))({ series } as AllSeriesReport)).toEqual([3]);
  expect(sameSeries(one({ metric: "reads" }))({ series } as AllSeriesReport)).toBeUndefined();
});

test("operations a second are unknown where nothing was observed, never zero", () => {
  const parts = [
    { calls: 20, observed_s: 10 },
    { calls: 0, observed_s: 10 },
    { calls: 0, observed_s: 0 },
  ];
  expect(rate("calls")({ parts } as ShapeHistory)).toEqual([2, 0, null]);
});
