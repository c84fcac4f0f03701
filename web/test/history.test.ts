import { describe, expect, it } from "vitest";

import { cost, gapWords } from "../src/parts/changes";
import { charts } from "../src/parts/lanes";
import { utc } from "../src/parts/time";
import type { Lane } from "../src/report";

const lane = (group: string, id: string, unit: string): Lane => ({
  group,
  id,
  title: id,
  unit,
  server: null,
  verdict: null,
  values: [1, null, 3],
});

describe("the history", () => {
  it("shows what a change cost with its sign, and nothing for no cost", () => {
    expect([cost(1_200_000_000), cost(-5_000_000), cost(0)]).toEqual(["+1.20s", "-5.00ms", ""]);
  });

  it("draws lanes of one group and unit in one chart", () => {
    const lanes = [
      lane("machine", "cpu", "percent"),
      lane("queries", "calls", "per_second"),
      lane("machine", "disk", "percent"),
    ];
    expect(charts(lanes).map(([title, lanes]) => [title, lanes.map(({ id }) => id)])).toEqual([
      ["machine, per cent", ["cpu", "disk"]],
      ["queries, a second", ["calls"]],
    ]);
  });

  it("says who did not observe", () => {
    const span = { start_ns: 1_700_000_000e9, end_ns: 1_700_000_060e9 };
    const gaps = [
      { what: "agent", ...span, observed: 0 },
      { what: "queries", ...span, observed: 0.81 },
    ];
    expect(gapWords(gaps, utc())).toEqual([
      "Not observed (agent): 2023-11-14 22:13:20 to 2023-11-14 22:14:20",
      "Only 81% observed (queries): 2023-11-14 22:13:20 to 2023-11-14 22:14:20",
    ]);
  });
});
