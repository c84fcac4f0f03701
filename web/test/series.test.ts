// The pages of series, events and waits: how they group and name what documents have.

import { expect, test } from "vitest";

import { byMetric, lineName } from "../src/pages/series";
import { xsOf } from "../src/parts/timeline";
import { show } from "../src/parts/units";
import type { StoredSeriesJson } from "../src/report";

const one = (metric: string, name: string, mean: number, server: number | null = null): StoredSeriesJson => ({
  subject: "device",
  metric,
  meaning: "",
  unit: "percent",
  name,
  server,
  mean,
  min: mean,
  max: mean,
  values: [mean],
});

test("a chart has the series of a metric, the largest first", () => {
  const charts = byMetric([one("busy", "sda", 1), one("reads", "sda", 7), one("busy", "sdb", 5)]);
  expect(charts.map((chart) => chart.map(({ name }) => name))).toEqual([["sdb", "sda"], ["sda"]]);
});

test("a line is named after what it is about, and what an attacker named is shown", () => {
  expect(lineName(one("busy", "sda", 1))).toBe("sda");
  expect(lineName(one("busy", "", 1, 27017))).toBe("27017");
  expect(lineName(one("busy", "", 1))).toBe("busy");
  expect(lineName(one("busy", "a\u202eb", 1))).not.toContain("\u202e");
});

test("the middles of equal parts are within the span", () => {
  expect(xsOf([0, 40], 4)).toEqual([5, 15, 25, 35]);
  expect(xsOf([0, 40], 0)).toEqual([]);
});

test("shares get more digits where ticks are close", () => {
  const percent = show({ unit: "percent" });
  expect([percent(0.012), percent(0.012, 2)]).toEqual(["0.0%", "0.012%"]);
});
