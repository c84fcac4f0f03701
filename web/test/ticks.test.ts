import { describe, expect, it } from "vitest";

import { duration } from "../src/parts/format";
import { linearTicks, logTicks, niceStep, placeTicks, timeTicks } from "../src/parts/ticks";
import { Clock, utc } from "../src/parts/time";

const at = (text: string) => Date.parse(text) / 1000;

describe("ticks", () => {
  it("divide an axis into a few parts by 1, 2 or 5", () => {
    for (const top of [0.3, 1, 7, 99, 250, 123_456]) {
      const step = niceStep(top, 5);
      expect(top / step).toBeGreaterThanOrEqual(2);
      expect(top / step).toBeLessThanOrEqual(5.001);
      expect([1, 2, 5]).toContain(Number((step / 10 ** Math.floor(Math.log10(step) + 1e-9)).toFixed(6)));
    }
    expect(niceStep(0, 5)).toBe(1);
  });

  it("are round numbers, and labels differ", () => {
    expect(linearTicks(0, 1, 5, String).at).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    const close = linearTicks(12.34e9, 12.36e9, 5, duration);
    expect(new Set(close.labels).size).toBe(close.labels.length);
    expect(close.labels).toContain("12.345s");
  });

  it("on a logarithmic axis are powers, or more where there is room", () => {
    expect(logTicks(1e4, 1e8, 6, 10, duration).labels).toEqual(["10.0µs", "100µs", "1.00ms", "10.0ms", "100ms"]);
    expect(logTicks(1, 100, 12, 10, String).at).toEqual([1, 2, 5, 10, 20, 50, 100]);
    expect(logTicks(0.9, 17.6, 10, 2, String).at).toEqual([1, 2, 4, 8, 16]);
    expect(logTicks(1e3, 1e12, 4, 10, String).at.length).toBeLessThanOrEqual(4);
  });

  it("of time are at round times of the clock, with the date once a day", () => {
    const clock = utc();
    const day = timeTicks(at("2026-05-01T20:00:00Z"), at("2026-05-02T04:00:00Z"), 8, clock);
    expect(day.labels).toEqual(
      ["20:00\n2026-05-01", "21:00", "22:00", "23:00", "00:00\n2026-05-02", "01:00", "02:00", "03:00", "04:00"].filter(
        (_, n) => day.at.length === 9 || n % 2 === 0,
      ),
    );
    const short = timeTicks(at("2026-05-01T10:00:00.100Z"), at("2026-05-01T10:00:00.200Z"), 5, clock);
    expect(short.labels[0]).toBe("10:00:00.10\n2026-05-01");
    const long = timeTicks(at("2026-01-01T00:00:00Z"), at("2026-03-01T00:00:00Z"), 8, clock);
    expect(long.labels.every((label) => /^\d{4}-\d\d-\d\d$/.test(label))).toBe(true);
  });

  it("are two at least, wherever the range lies", () => {
    const clock = utc();
    for (const span of [0.004, 0.35, 3.49, 59, 4_000, 90_000, 4e6]) {
      for (let n = 0; n < 40; n++) {
        const begin = at("2026-05-01T00:00:00Z") + n * 1_234.567;
        for (const most of [2, 3, 5, 12]) {
          const found = timeTicks(begin, begin + span, most, clock).at.length;
          expect(found, `${span} ${n} ${most}`).toBeGreaterThanOrEqual(2);
          expect(found).toBeLessThanOrEqual(3 * most);
          expect(linearTicks(begin, begin + span, most, String).at.length).toBeGreaterThanOrEqual(2);
        }
      }
    }
    expect(logTicks(5, 7, 6, 2, String).at.length).toBeGreaterThanOrEqual(2);
  });

  it("of time follow the zone of the report", () => {
    const india = new Clock({ name: "+05:30", utc_offsets_s: [19_800, 19_800] }, 0, 1);
    const ticks = timeTicks(at("2026-05-01T20:10:00Z"), at("2026-05-01T23:10:00Z"), 4, india);
    expect(ticks.labels[0]).toBe("02:00\n2026-05-02");
    expect(ticks.at[0]).toBe(at("2026-05-01T20:30:00Z"));
  });

  it("below places leave out labels that have no room", () => {
    const names = Array.from({ length: 30 }, (_, n) => `n${n}`);
    expect(placeTicks(-0.6, 29.6, 5, names).labels).toEqual(["n0", "n6", "n12", "n18", "n24"]);
    expect(placeTicks(3.2, 6.8, 10, names).labels).toEqual(["n4", "n5", "n6"]);
    expect(placeTicks(0, 0, 5, []).at).toEqual([]);
  });
});

describe("a clock", () => {
  it("that was changed within the report has an offset for each half", () => {
    const [first, last] = [at("2026-10-25T00:30:00Z"), at("2026-10-25T02:30:00Z")];
    const berlin = new Clock({ name: "Europe/Berlin", utc_offsets_s: [7_200, 3_600] }, first, last);
    expect(berlin.full(first)).toBe("2026-10-25 02:30:00");
    expect(berlin.full(last)).toBe("2026-10-25 03:30:00");
  });
});
