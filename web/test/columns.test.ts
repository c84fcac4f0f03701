import { describe, expect, it } from "vitest";

import { type Column, charactersOf, csv, filtered, isEmpty, layout, shown, sorted } from "../src/parts/columns";

interface Row {
  name: string;
  calls: number | null;
}

const rows: Row[] = [
  { name: "b", calls: 2 },
  { name: "a10", calls: null },
  { name: "a9", calls: 30 },
  { name: "c", calls: 2 },
];
const calls: Column<Row> = { name: "calls", value: (row) => row.calls };
const name: Column<Row> = { name: "name", value: (row) => row.name, text: true, main: true };
const names = (rows: Row[]) => rows.map((row) => row.name);

describe("rows", () => {
  it("are sorted by number, what is not known last, equal ones as they were", () => {
    expect(names(sorted(rows, calls, true))).toEqual(["a9", "b", "c", "a10"]);
    expect(names(sorted(rows, calls, false))).toEqual(["b", "c", "a9", "a10"]);
  });

  it("are sorted by text, numbers within it by their size", () => {
    expect(names(sorted(rows, name, false))).toEqual(["a9", "a10", "b", "c"]);
  });

  it("are found by text, by more words, in any case", () => {
    expect(names(filtered(rows, [name], "A1"))).toEqual(["a10"]);
    expect(names(filtered(rows, [name, calls], "30"))).toEqual([]);
    expect(names(filtered(rows, [name], "ID9", (row) => (row.name === "c" ? "id9" : "")))).toEqual(["c"]);
    expect(filtered(rows, [name], "  ")).toHaveLength(4);
  });

  it("are found by what has a name", () => {
    const more = (row: Row) => ({ client: row.name === "b" ? ["10.0.0.5", "10.0.0.50 a9"] : ["10.0.0.6"] });
    const of = (needle: string) => names(filtered(rows, [name, calls], needle, more));
    expect(of("name:A")).toEqual(["a10", "a9"]);
    expect(of("client:10.0.0.5")).toEqual(["b"]);
    expect(of("a9")).toEqual(["b", "a9"]);
    expect(of("name:a9 client:10.0")).toEqual(["a9"]);
    expect(of("name:a 10.0.0.6")).toEqual(["a10", "a9"]);
    // In quotes exactly.
    expect([of('name:"a9"'), of('name:"a"'), of('client:"10.0.0.50 A9"')]).toEqual([["a9"], [], ["b"]]);
    // Figures have no text, and nothing else has this name.
    expect([of("calls:2"), of("toString:a")]).toEqual([[], []]);
    expect(filtered([], [name], "name:a", more)).toEqual([]);
  });

  it("are saved as CSV with figures as they are, and no text that a spreadsheet would compute", () => {
    const latency: Column<Row> = { ...calls, name: "p50", unit: "ns", format: (value) => `${value}ns` };
    const evil = [{ name: '=cmd|"x",1', calls: 1_500 }, { name: " a\n", calls: -2 }, ...rows.slice(1, 2)];
    expect(csv([name, latency], evil)).toBe('name,p50 (ns)\r\n"\'=cmd|""x"",1",1500\r\n" a\n",-2\r\na10,\r\n');
  });
});

describe("a column", () => {
  it("shows its value with a unit, what is not known without one", () => {
    const unit = (value: number | null) => (value == null ? "?" : `${value} calls`);
    expect(rows.slice(0, 2).map((row) => shown({ ...calls, format: unit }, row))).toEqual(["2 calls", "?"]);
    expect(shown({ ...calls, format: unit, show: () => "own" }, rows[0]!)).toBe("own");
    expect(rows.slice(0, 2).map((row) => shown(calls, row))).toEqual(["2", "-"]);
  });

  it("is empty where it says nothing of any row", () => {
    const of = (value: () => number | string | null, zero = false): Column<Row> => ({ name: "x", value, zero });
    expect(
      isEmpty(
        of(() => null),
        rows,
      ),
    ).toBe(true);
    expect(
      isEmpty(
        of(() => ""),
        rows,
      ),
    ).toBe(true);
    expect(
      isEmpty(
        of(() => 0),
        rows,
      ),
    ).toBe(true);
    expect(
      isEmpty(
        of(() => 0, true),
        rows,
      ),
    ).toBe(false);
    expect(isEmpty(calls, rows)).toBe(false);
    expect(isEmpty({ ...name, value: () => "" }, rows)).toBe(false);
  });

  it("is as wide as its heading and what is shown, within bounds", () => {
    expect(charactersOf(calls, rows)).toBe(6);
    expect(charactersOf({ ...name, value: () => "x".repeat(1_000) }, rows)).toBeLessThanOrEqual(40);
  });
});

describe("a layout", () => {
  const columns = [
    { width: 10, rank: 0, main: false },
    { width: 10, rank: 5, main: false },
    { width: 10, rank: 1, main: false },
    { width: 40, rank: 0, main: true },
  ];

  it("has all columns where they fit", () => {
    expect(layout(columns, 70)).toEqual({ shown: [true, true, true, true], stacked: false });
  });

  it("leaves out what matters least first", () => {
    expect(layout(columns, 55)).toEqual({ shown: [true, false, true, true], stacked: false });
  });

  it("puts the main column below where the others need the room", () => {
    expect(layout(columns, 40)).toEqual({ shown: [true, true, true, true], stacked: true });
    expect(layout(columns, 25)).toEqual({ shown: [true, false, true, true], stacked: true });
  });

  it("never leaves out the main column, and never takes more room than there is", () => {
    for (let available = 0; available < 120; available++) {
      const { shown, stacked } = layout(columns, available);
      expect(shown[3]).toBe(true);
      const used = columns.reduce((sum, column, at) => sum + (shown[at] && !column.main ? column.width : 0), 0);
      expect(used).toBeLessThanOrEqual(Math.max(0, available));
      if (!stacked) expect(available - used).toBeGreaterThanOrEqual(32);
    }
  });
});
