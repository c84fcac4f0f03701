import { expect, test } from "vitest";

import { asked, between, moved, read, span, written } from "../src/live/address";

const NOW = Date.parse("2026-05-01T12:00:00Z");

test("what an address says is read from it again", () => {
  const hour = read("");
  expect(hour).toEqual({
    view: "incident",
    from: "-1h",
    to: "",
    zone: "",
    by: "shape",
    against: "",
    shape: "",
    filter: "",
    kind: "",
    selection: { start: "", end: "", low: "", high: "" },
  });
  for (const address of [
    hour,
    { ...hour, view: "queries" as const, zone: "UTC", by: "app" as const, against: "yesterday" as const },
    between(hour, NOW - 5e3, NOW),
    { ...hour, view: "shape" as const, shape: "00ff" },
    { ...hour, view: "events" as const, filter: "a & b", kind: "server_start" },
    { ...hour, view: "queries" as const, by: "command" as const, against: "before" as const, filter: 'app:"a b"' },
  ])
    expect(read(written(address))).toEqual(address);
  expect(read("?view=shape&id=<b>&kind=<b>")).toEqual(hour);
  expect(read("?view=toString&from=-7d&against=toString")).toEqual({ ...hour, from: "-7d" });
});

test("queries and operations that run are filtered by the page, which asks for all of them", () => {
  const queries = { ...read("?view=queries&by=app"), filter: "etl" };
  expect(asked(queries)).toEqual({ ...queries, filter: "" });
  const running = read("?view=now&filter=orders&kind=internal");
  expect(asked(running)).toEqual({ ...running, filter: "", kind: "" });
  const events = { ...queries, view: "events" as const };
  expect(asked(events)).toBe(events);
});

test("a range has two ends, the first before the last", () => {
  const of = (from: string, to = "") => span({ ...read(""), from, to }, NOW);
  expect(of("-15m")).toEqual([NOW - 900_000, NOW]);
  expect(of("2026-05-01T11:00:00Z", "2026-05-01T11:30:00Z")).toEqual([NOW - 3_600_000, NOW - 1_800_000]);
  for (const [from, to] of [
    ["-1y", ""],
    ["yesterday", ""],
    ["2026-05-01T13:00:00Z", ""],
    ["2026-05-01T11:00:00Z", "2026-05-01T11:00:00Z"],
  ] as const)
    expect(of(from, to)).toBeUndefined();
});

test("a range moves by its own length, and never into the future", () => {
  const hour = read("");
  const earlier = moved(hour, -1, NOW);
  expect([earlier.from, earlier.to]).toEqual(["2026-05-01T10:00:00Z", "2026-05-01T11:00:00Z"]);
  const later = moved(moved(earlier, -1, NOW), 1, NOW);
  expect(later).toEqual(earlier);
  expect(moved(earlier, 1, NOW)).toEqual({ ...hour, from: "-3600s" });
  const selected = { ...hour, selection: { ...hour.selection, start: "-15m", low: "7" } };
  expect(moved(selected, -1, NOW).selection, "a selected time may lie outside").toEqual({
    ...hour.selection,
    low: "7",
  });
  const nonsense = { ...hour, from: "never" };
  expect(moved(nonsense, 1, NOW)).toBe(nonsense);
});
