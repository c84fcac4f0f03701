import { describe, expect, it } from "vitest";

import { spoken, stack } from "../src/parts/chart";
import { placeLabels } from "../src/parts/marks";
import { lonePoints } from "../src/parts/plot";
import { clampRange, zoomed } from "../src/parts/zoom";
import { bounds, heat, logShare } from "../src/parts/density";
import { unpack } from "../src/parts/scatter";
import { begins, grid, rates, widest } from "../src/parts/timeline";
import { placed } from "../src/pages/impact";
import type { ImpactDocument, FilePictureJson } from "../src/report";

describe("a range", () => {
  it("stays within the whole, and is none where it is the whole", () => {
    expect(clampRange([-5, 5], [0, 100])).toEqual([0, 10]);
    expect(clampRange([95, 105], [0, 100])).toEqual([90, 100]);
    expect(clampRange([-50, 200], [0, 100])).toBeNull();
  });

  it("cannot be zoomed to nothing", () => {
    const [from, to] = clampRange([50, 50], [0, 100])!;
    expect(to - from).toBeCloseTo(0.01);
  });

  it("is zoomed around a place that stays where it is", () => {
    expect(zoomed([0, 100], 25, 0.5)).toEqual([12.5, 62.5]);
  });
});

describe("names of marks", () => {
  const measure = (text: string) => 10 * text.length;
  const place = (marks: [name: string, left: number][], ends: [number, number]) =>
    placeLabels(
      marks.map(([name, left]) => ({ name, left })),
      { ends, gap: 8, measure },
    );

  it("lie on no other name and within the chart", () => {
    const marks = [0, 10, 60, 95, 300].map((left): [string, number] => ["name", left]);
    // The fourth is below the label of the third, which has no room to say so.
    expect(place(marks, [5, 100])).toEqual([
      { text: "name", left: 10, width: 40 },
      { text: "name", left: 60, width: 40 },
    ]);
    expect(place([["name", 90]], [5, 100])).toEqual([{ text: "name", left: 60, width: 40 }]);
    expect(place([["much too long", 50]], [5, 100])).toEqual([]);
  });

  it("count the marks beside them that have no room", () => {
    const found = place(
      [
        ["drop", 20],
        ["build", 25],
        ["drop", 60],
        ["stop", 200],
        ["start", 390],
      ],
      [0, 400],
    );
    expect(found).toEqual([
      { text: "drop +2", left: 20, width: 70 },
      { text: "stop", left: 200, width: 40 },
      { text: "start", left: 350, width: 50 },
    ]);
  });

  it("never overlap, wherever the marks are", () => {
    let seed = 1;
    const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
    for (let round = 0; round < 300; round++) {
      const marks = Array.from({ length: random(60) }, (): [string, number] => [
        "x".repeat(1 + random(16)),
        random(900),
      ]);
      const labels = place(marks, [50, 850]);
      for (const [at, { text, left, width }] of labels.entries()) {
        expect(width).toBe(measure(text));
        expect(left).toBeGreaterThanOrEqual(at === 0 ? 50 : labels[at - 1]!.left + labels[at - 1]!.width + 8);
        expect(left + width).toBeLessThanOrEqual(850);
      }
      const named = labels.reduce((sum, { text }) => sum + 1 + Number(/ \+(\d+)$/.exec(text)?.[1] ?? 0), 0);
      expect(named).toBeLessThanOrEqual(marks.filter(([, left]) => left >= 50 && left <= 850).length);
    }
  });
});

describe("a place of the cross-hair", () => {
  it("is spoken with the values of a few series, by their units", () => {
    const series = ["reads", "writes", "a", "b", "c", "d"].map((name, at) => ({
      name,
      colour: "",
      values: [at, null],
    }));
    const axis = { name: "", show: (value: number) => `${value}/s` };
    expect(spoken("12:00:00", series.slice(0, 2), 0, axis)).toBe("12:00:00: reads 0/s, writes 1/s");
    expect(spoken("12:00:10", series, 1, axis)).toBe("12:00:10: reads -, writes -, a -, b - and 2 more");
    // A picture has a place, and no series.
    expect(spoken("12:00:00", series, null, axis)).toBe("12:00:00");
  });
});

describe("series", () => {
  it("show a value without neighbours as a point, as no line leads to it", () => {
    expect(lonePoints([1])).toEqual([0]);
    expect(lonePoints([null, 1, null, 2, 3, undefined, 4])).toEqual([1, 6]);
    expect(lonePoints([1, 2, null])).toBeNull();
    expect(lonePoints([])).toBeNull();
  });

  it("are put on top of each other; what one does not know is nothing, what none knows is a gap", () => {
    expect(
      stack([
        [1, null, 3, null],
        [10, 20, 30, null],
      ]),
    ).toEqual([
      [1, 0, 3, null],
      [11, 20, 33, null],
    ]);
  });
});

describe("a timeline", () => {
  it("keeps its calls, however wide columns and buckets are", () => {
    const timeline = {
      width_ns: 4e9,
      buckets: [
        [0, 8, 0, 0],
        [4e9, 2, 0, 0],
        [12e9, 6, 0, 0],
      ] as [number, number, number, number][],
      returned: [],
    };
    for (const [width, most] of [
      [1e9, 16],
      [4e9, 100],
      [1e9, 3],
      [7e9, 100],
    ] as const) {
      const columns = grid([0, 16], width, most);
      const calls = rates(timeline, columns).reduce((sum, rate) => sum + rate * columns.step, 0);
      expect(calls).toBeCloseTo(16);
      expect(begins(columns)).toHaveLength(columns.columns + 1);
    }
    // A wide bucket is spread evenly.
    expect(rates(timeline, grid([0, 4], 1e9, 100))).toEqual([2, 2, 2, 2]);
  });

  it("shares its columns with others of longer sources, each bucket in one of them", () => {
    const of = (seconds: number, buckets: [number, number][]) => ({
      width_ns: seconds * 1e9,
      buckets: buckets.map(([at, calls]): [number, number, number, number] => [at * 1e9, calls, 0, 0]),
      returned: [],
    });
    const row = of(1, [
      [1001, 5],
      [1003, 1],
    ]);
    const all = of(4, [
      [1000, 6],
      [1004, 8],
    ]);
    const columns = grid([1001.5, 1006], widest([row, all]), 100);
    expect(begins(columns)).toEqual([1000, 1004, 1008]);
    expect([rates(row, columns), rates(all, columns)]).toEqual([
      [1.5, 0],
      [1.5, 2],
    ]);
  });
});

describe("dots", () => {
  it("are unpacked to seconds and nanoseconds", () => {
    const dots = unpack([0, 5, 0, 1_500_000, 0, -1], 10e9, 300);
    expect([...dots.x]).toEqual([10, 11.5]);
    expect([...dots.y]).toEqual([5_000, 300]);
    expect([...dots.row]).toEqual([0, -1]);
  });
});

describe("the picture of a file", () => {
  it("goes from blue to red by the logarithm", () => {
    expect(logShare(1, 1, 10_000)).toBe(0);
    expect(logShare(100, 1, 10_000)).toBeCloseTo(0.5);
    expect(logShare(7, 7, 7)).toBe(0);
    expect(heat(0)).toContain("240");
    expect(heat(1)).toContain("hsl(0 ");
    const picture = { cells: [0, 0, 3, 900, 1, 1, 5, 100] } as unknown as FilePictureJson;
    expect(bounds(picture, "latency")).toEqual([100, 900]);
    expect(bounds(picture, "reads")).toEqual([3, 5]);
  });
});

describe("slices of an impact measurement", () => {
  it("stand beside each other, each in the line of its level", () => {
    const slice = (clients: number, variant: number) => ({
      clients,
      variant,
      round: 0,
      start_ns: 9e9,
      length_ns: 1e9,
      operations: 6,
      bucket_ns: 5e8,
      buckets: [2, 4, 1],
    });
    const report = {
      variants: ["0", "2"],
      slices: [slice(1, 0), slice(1, 1), slice(4, 0)],
    } as unknown as ImpactDocument;
    const { xs, values, marks, length } = placed(report);
    expect(length).toBe(3);
    expect(xs).toEqual([0.25, 0.75, 1, 1.25, 1.75, 2, 2.25, 2.75, 3]);
    expect(values[0]).toEqual([4, 8, null, null, null, null, 4, 8, null]);
    expect(values[1]).toEqual([null, null, null, 4, 8, null, null, null, null]);
    expect(marks).toEqual([
      { at: 0, name: "1 client" },
      { at: 2, name: "4 clients" },
    ]);
  });
});
