import { readFileSync } from "node:fs";

import { describe, expect, it } from "vitest";

import { waitedBy } from "../src/pages/why/files";
import { activity, LIMITS_TABLE, processors, processorsText, sinceStart, tiles } from "../src/pages/why/page";
import { partRows } from "../src/pages/why/shape";
import { partOf, unseen } from "../src/pages/why/words";
import { shown } from "../src/parts/columns";
import type { ShapeTimeJson, WhyReport } from "../src/report";

describe("the time of operations", () => {
  it("has a name and a colour of its own for each part that the program knows", () => {
    // The stable names are those of the arms of `TimePart::name`.
    const source = readFileSync("../crates/sonar-core/src/time_split/mod.rs", "utf8");
    const names = [...source.matchAll(/Self::\w+ => "(\w+)"/g)].map((found) => found[1]!);
    expect(names.length).toBeGreaterThan(10);
    const parts = [...names, "not_yet_read", "unexplained"].map(partOf);
    for (const [at, [words]] of parts.entries()) expect(words).not.toBe(names[at]);
    expect(new Set(parts.map(([, colour]) => colour)).size).toBe(parts.length);
    expect(partOf("new")[0]).toBe("new");
  });

  it("has no length for an operation that began before the trace", () => {
    expect([sinceStart(null), sinceStart(2_500_000_000)]).toEqual(["since before the trace", "2.50s"]);
  });

  it("counts the operations that the report is about, as --namespace and the like choose them", () => {
    const part = { part: "cpu", ns: 1, share: 0.25 };
    const report = { seconds: 5, operations: 40, active: 1.5, active_parts: [part], coverage: { joined: 2323 } };
    expect(tiles(report as unknown as WhyReport)).toEqual([
      ["operations in 5.00s", "40"],
      ["in progress on average", "1.50"],
      ["on a processor", "25%"],
    ]);
  });

  it("says of each count what was not seen, in the words of the text report", () => {
    const folder = "../crates/sonar-view/src/why";
    const document = readFileSync(`${folder}/document.rs`, "utf8").split("pub struct SplitCoverageJson {")[1]!;
    const names = [...document.split("\n}\n")[0]!.matchAll(/pub (\w+): u64/g)].map((found) => found[1]!);
    expect(names).toContain("joined");
    const text = readFileSync(`${folder}/text.rs`, "utf8");
    const words = new Map(
      [...text.matchAll(/self\.(\w+),\s*"([^"]+)",?\s*\)/g)].map(([, name, said]) => [name!, said!]),
    );
    const { limits, losses } = unseen(Object.fromEntries(names.map((name, at) => [name, at + 1])));
    const expected = names.flatMap((name, at) => (name === "joined" ? [] : [[words.get(name), at + 1]]));
    expect([...limits, ...losses].sort(([, a], [, b]) => a - b)).toEqual(expected);
    expect(losses.map(([said]) => said)).toContain("Packets dropped by the kernel");
    expect(unseen({ joined: 5, ring_full: 0 })).toEqual({ limits: [], losses: [] });
  });

  it("says how many processors control groups allow, and how often they stopped threads", () => {
    const limit = { process: 77, processors: 1.5, throttled: 0.4, throttled_ns: 900e6 };
    const report = (limits: object[], processes = [77]) =>
      processors({ limits, processes, processors: 16 } as unknown as WhyReport);
    expect(report([limit])).toBe("1.5 of 16 processors");
    // A second process may use all of them.
    expect(report([limit], [77, 78])).toBe("16 processors");
    expect(report([])).toBe("16 processors");
    expect(report([{ ...limit, processors: 32 }])).toBe("16 processors");
    expect([1, 1.004, 1.5, 2].map(processorsText)).toEqual([
      "1 processor",
      "1 processor",
      "1.5 processors",
      "2 processors",
    ]);
    const cells = LIMITS_TABLE.map((column) => [column.name, shown(column, limit)]);
    expect(cells).toEqual([
      ["process", "77"],
      ["allowed", "1.5 processors"],
      ["throttled", "40.0%"],
      ["stopped for", "900ms"],
    ]);
    const unknown = { ...limit, throttled: null, throttled_ns: null };
    expect(LIMITS_TABLE.slice(2).map((column) => shown(column, unknown))).toEqual(["-", "-"]);
    expect(LIMITS_TABLE[2]!.tone!(limit)).toBe("bad");
    expect(LIMITS_TABLE[2]!.tone!({ ...limit, throttled: 0.01 })).toBe("");
  });

  it("names the shapes that waited for a file", () => {
    const shape = { shape_id: "00000000000000ab", command: "find shop.orders", reads: 3, wait_ns: 30, share: 0.75 };
    const file = { name: null, inode: 7, reads: 4, bytes: 16_384, wait_ns: 40 };
    const other = { ...shape, shape_id: "00000000000000cd", command: "update shop.orders", share: 0.25 };
    expect(waitedBy({ ...file, shapes: [shape, other] })).toBe(
      "find shop.orders (00000000000000ab) 75%, update shop.orders (00000000000000cd) 25%",
    );
  });

  it("is drawn from the start of each interval to the end of the last one", () => {
    const { xs, series } = activity({
      start_ns: 1_000_000_000_000,
      end_ns: 1_000_450_000_000,
      width_ns: 125_000_000,
      parts: [
        { part: "cpu", active: [1, 2, 0.5] },
        { part: "file_read", active: [0, 4, 1] },
      ],
    });
    expect(xs).toEqual([1000, 1000.125, 1000.25, 1000.45]);
    expect(series.map(({ name, values }) => [name, values])).toEqual([
      ["on a processor", [1, 2, 0.5, null]],
      ["waiting for reads of files", [0, 4, 1, null]],
    ]);
    expect(activity({ start_ns: 0, end_ns: 1e9, width_ns: 125e6, parts: [] }).series).toEqual([]);
  });

  it("names what long waits were for, below their part", () => {
    const part = (part: string, ns: number, classes: object[] = []) => ({ part, ns, share: ns / 1000, classes });
    const ticket = { class: "execution ticket", waits: 2, wait_ns: 600, share: 0.6 };
    const shape = { operations: 10, parts: [part("futex", 700, [ticket]), part("cpu", 300)] };
    const rows = partRows(shape as unknown as ShapeTimeJson);
    expect(rows.map(({ name, each, share }) => [name, each, share])).toEqual([
      ["waiting for a mutex, a ticket or a condition", 70, 0.7],
      ["↳ execution ticket", 60, 0.6],
      ["on a processor", 30, 0.3],
    ]);
  });
});
