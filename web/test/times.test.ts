import { expect, test } from "vitest";

import { inputText, momentOf, rangeProblem } from "../src/live/times";

const DAY = 86_400_000;
const NOW = Date.parse("2026-05-31T12:00:00Z");

test("a moment is entered in UTC, or in the zone of the browser", () => {
  expect(inputText(NOW, "UTC")).toBe("2026-05-31T12:00:00");
  expect(momentOf("2026-05-31T12:00:00", "UTC")).toBe(NOW);
  expect(momentOf(inputText(NOW, ""), "")).toBe(NOW);
  expect(momentOf("", "UTC")).toBeNaN();
});

test("a range that cannot be shown is refused with the reason", () => {
  const kept: [number, number] = [NOW - 20 * DAY, NOW - 1_000];
  const problem = (from: number, to: number, known: typeof kept | null = kept) =>
    rangeProblem(from, to, { now: NOW, kept: known }, "UTC");
  expect(problem(NOW - DAY, NOW)).toBe("");
  // A part of it is kept.
  expect(problem(NOW - 25 * DAY, NOW - 19 * DAY)).toBe("");
  expect(problem(NaN, NOW)).toContain("start");
  expect(problem(NOW, NaN)).toContain("end");
  expect(problem(NOW - DAY, NOW - DAY)).toBe("The end is not later than the start.");
  expect(problem(NOW, NOW - DAY)).toBe("The end is not later than the start.");
  expect(problem(NOW, NOW + DAY)).toBe("The start is still to come.");
  expect(problem(NOW - 31 * DAY, NOW)).toBe("");
  expect(problem(NOW - 31 * DAY - 1, NOW)).toBe("At most 31 days can be shown at once; these are 32.");
  expect(problem(NOW - 25 * DAY, NOW - 20 * DAY)).toBe(
    "Nothing is kept of this time: the history begins at 2026-05-11 12:00:00. Choose a later end.",
  );
  expect(problem(NOW - 500, NOW)).toBe(
    "Nothing is stored of this time: the history ends at 2026-05-31 11:59:59. Choose an earlier start.",
  );
  expect(problem(NOW - 25 * DAY, NOW - 20 * DAY, null)).toBe("");
  // The clock of the host is ahead.
  expect(problem(NOW + 1, NOW + DAY, [NOW, NOW + DAY])).toBe("");
});
