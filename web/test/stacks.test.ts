import { describe, expect, it } from "vitest";

import { classes, functions } from "../src/pages/stacks";
import { flame, hue, matching, path, placed, type FlameBox } from "../src/parts/stacks";
import type { StackRow } from "../src/report";

/** A stack: its class, its functions from the innermost on (`-` before one that only passes a call on), its samples. */
const row = (name: string, names: string, samples: number, role: string | null = "client connection"): StackRow => ({
  class: name,
  idle: false,
  role,
  state: "sleeping",
  call: "futex",
  samples,
  threads: 1,
  cut: null,
  frames: names.split(" ").map((one) => ({
    function: one.replace(/^-/, ""),
    library: null,
    ...(one.startsWith("-") ? { machinery: true } : {}),
  })),
});

const rows = [
  row("execution ticket", "wait mongo::ticket mongo::runQuery -start_thread", 6),
  row("on CPU", "mongo::match mongo::runQuery -start_thread", 3),
  row("on CPU", "__wt_evict", 1, null),
];
const names = (boxes: FlameBox[]) => boxes.map(({ name, samples }) => `${name} ${samples}`);

describe("stacks", () => {
  it("begin with the role and end with the class, without functions that only pass a call on", () => {
    expect(path(rows[0]!, false)).toEqual([
      "client connection",
      "mongo::runQuery",
      "mongo::ticket",
      "wait",
      "[execution ticket]",
    ]);
    expect(path(rows[0]!, true)[1]).toBe("start_thread");
    expect(functions({ ...rows[0]!, cut: "deeper" }, false)).toBe("wait < ticket < runQuery < … (deeper)");
    expect(functions(rows[1]!, true)).toBe("mongo::match < mongo::runQuery < start_thread");
    // The innermost function stays, whatever it is.
    expect(path(row("idle", "-clone -start_thread", 1), false)).toEqual(["client connection", "clone", "[idle]"]);
  });

  it("are added up by class and role", () => {
    const found = classes([...rows, row("on CPU", "other", 4)]);
    expect(found.map(({ name, role, samples }) => [name, role, samples])).toEqual([
      ["on CPU", "client connection", 7],
      ["execution ticket", "client connection", 6],
      ["on CPU", "other threads", 1],
    ]);
  });
});

describe("a flame graph", () => {
  const root = flame(rows, false);
  const query = root.inside[0]!.inside[0]!;

  it("puts stacks with equal beginnings into one box, the widest first", () => {
    expect(names([root, ...root.inside])).toEqual(["all 10", "client connection 9", "other threads 1"]);
    expect(names(query.inside)).toEqual(["mongo::ticket 6", "mongo::match 3"]);
  });

  it("gives each box the width of its share, below its caller", () => {
    const found = new Map(placed(root, 0).map((one) => [one.box.name, one]));
    expect(found.get("mongo::match")).toMatchObject({ row: 3, width: 0.3 });
    expect(found.get("mongo::match")!.left).toBeCloseTo(0.6);
    expect(found.get("other threads")).toMatchObject({ row: 1, left: 0.9, width: 0.1 });
    expect(placed(root, 0.2).some(({ box }) => box.name === "__wt_evict")).toBe(false);
  });

  it("zooms into a box, below all of its callers", () => {
    const found = placed(query.inside[1]!, 0);
    expect(found.map(({ box, row, width }) => [box.name, row, width])).toEqual([
      ["all", 0, 1],
      ["client connection", 1, 1],
      ["mongo::runQuery", 2, 1],
      ["mongo::match", 3, 1],
      ["[on CPU]", 4, 1],
    ]);
  });

  it("draws the widest of too many boxes", () => {
    const many = flame(
      Array.from({ length: 5000 }, (_, at) => row("on CPU", `f${at}`, at + 1)),
      false,
    );
    const found = placed(many, 0);
    expect(found).toHaveLength(4000);
    expect(found.some(({ box }) => box.name === "f4999")).toBe(true);
    expect(found.some(({ box }) => box.name === "f0")).toBe(false);
    const drawn = new Set(found.map(({ box }) => box));
    expect(found.every(({ box }) => !box.parent || drawn.has(box.parent))).toBe(true);
  });

  it("counts samples that hold a text once", () => {
    expect(matching(root, "mongo::")).toBe(9);
    expect(matching(root, "ticket")).toBe(6);
    expect(matching(root, "nothing")).toBe(0);
  });

  it("gives equal names equal colours, by kind", () => {
    const base = (name: string) => Number(/hsl\((\d+)/.exec(hue(name))![1]);
    expect(hue("mongo::a")).toBe(hue("mongo::a"));
    expect(base("[on CPU]")).toBeGreaterThanOrEqual(205);
    expect(base("__wti_evict")).toBeGreaterThanOrEqual(120);
    expect(base("__wti_evict")).toBeLessThan(145);
    expect(base("main")).toBeLessThan(55);
  });
});
