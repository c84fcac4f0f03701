import { describe, expect, it } from "vitest";

import { brief, bytes, count, duration, exact, percent, rounded, visible } from "../src/parts/format";

describe("figures", () => {
  // As the terminal has them: the cases of sonar-view/src/units.rs.
  it.each([
    [0, "0ns"],
    [999, "999ns"],
    [1_000, "1.00µs"],
    [12_340, "12.3µs"],
    [999_499, "999µs"],
    [999_500, "1.00ms"],
    [1_200_000, "1.20ms"],
    [999_500_000, "1.00s"],
    [1.5e9, "1.50s"],
    [312e9, "5m12s"],
    [3_600e9, "1h00m"],
    [11_100e9, "3h05m"],
    [187_200e9, "2d04h"],
    [null, "-"],
    [undefined, "-"],
    [Number.NaN, "-"],
    [-1_200_000, "-1.20ms"],
  ])("shows %s ns as %s", (ns, text) => expect(duration(ns)).toBe(text));

  it.each([
    [0, "0"],
    [0.051, "0.051"],
    [0.0001, "<.001"],
    [3.4, "3.40"],
    [123, "123"],
    [999.4, "999"],
    [999.5, "1.00k"],
    [3_400, "3.40k"],
    [12_300_000, "12.3M"],
    [null, "-"],
    [Infinity, "-"],
    [-5, "-5"],
  ])("shows %s as %s", (value, text) => expect(count(value)).toBe(text));

  it("says that a rounded duration may be less", () => {
    expect(rounded(0, 1_000_000)).toBe("<1ms");
    expect(rounded(2_700_000, 1_000_000)).toBe("2.00ms");
    expect(rounded(2_700_000, 1)).toBe("2.70ms");
    expect(rounded(null, 1_000_000)).toBe("-");
  });

  it("shows shares, bytes and whole numbers", () => {
    expect(percent(0.2578, 1)).toBe("25.8%");
    expect(percent(-0.0001, 1)).toBe("0.0%");
    expect(bytes(4_100)).toBe("4.10kB");
    expect(exact(49_559)).toBe("49,559");
  });

  it("has no zeros on ticks that say nothing", () => {
    expect(["1.00ms", "80.0k/s", "1.20k", "100ms", "0.10s", "500/s", "0ns"].map(brief)).toEqual([
      "1ms",
      "80k/s",
      "1.2k",
      "100ms",
      "0.1s",
      "500/s",
      "0s",
    ]);
  });
});

describe("names", () => {
  it("are shown as they are, but for what hides or reorders", () => {
    expect(visible("größe_用户 </script>")).toBe("größe_用户 </script>");
    expect(visible("a\u202ecod.exe")).toBe("a\\u{202e}cod.exe");
    expect(visible("a\u0000\n\u200b\ufeff\u{e0041}")).toBe("a\\u{0}\\u{a}\\u{200b}\\u{feff}\\u{e0041}");
  });
});
