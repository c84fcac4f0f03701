import { describe, expect, it } from "vitest";

import { beginnings, rowsBetween } from "../src/parts/rows";

describe("rows of a long table", () => {
  it("are as high as they were measured, the others as these on average", () => {
    expect(beginnings([], 2)).toEqual([0, 28, 56]);
    expect(beginnings([10, undefined, 30], 4)).toEqual([0, 10, 30, 60, 80]);
    // Rows that are filtered out were measured, too.
    expect(beginnings([10, 20, 30], 1)).toEqual([0, 10]);
  });

  it("are drawn in groups that hold all in sight", () => {
    const places = beginnings([10], 1_000);
    expect(rowsBetween(places, 0, 100)).toEqual([0, 20]);
    expect(rowsBetween(places, 2_345, 2_845)).toEqual([220, 300]);
    expect(rowsBetween(places, 9_900, 12_000)).toEqual([980, 1_000]);
    // A table above or below the screen.
    expect(rowsBetween(places, -5_000, -4_000)).toEqual([0, 20]);
    expect(rowsBetween(places, 50_000, 51_000)).toEqual([980, 1_000]);
    expect(rowsBetween(beginnings([], 3), 0, 10)).toEqual([0, 3]);
  });

  it("fill the screen wherever it is", () => {
    const heights = Array.from({ length: 777 }, (_, at) => (at % 3 === 0 ? 20 + (at % 50) : undefined));
    const places = beginnings(heights, 777);
    const whole = places[777]!;
    for (let top = 0; top < whole - 500; top += 137) {
      const [first, end] = rowsBetween(places, top, top + 500);
      expect(places[first]).toBeLessThanOrEqual(top);
      expect(places[end]).toBeGreaterThanOrEqual(top + 500);
      expect(end - first).toBeLessThanOrEqual(80);
    }
  });
});
