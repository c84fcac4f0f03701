import { describe, expect, it } from "vitest";

import { findings, machine, plots } from "../src/pages/ftdc";
import type { FtdcFigureJson, FtdcReport } from "../src/report";

const passed = (total_ns: number) => ({ total_ns, longest_ns: total_ns, longest_start_ns: 1 });

const figure = (id: string, more: Partial<FtdcFigureJson>): FtdcFigureJson => ({
  id,
  group: "cache",
  title: id,
  unit: "percent",
  count: 2,
  p50: 1,
  p95: 1,
  max: 1,
  verdict: null,
  limits: null,
  trend: { width_ns: 1e9, buckets: [] },
  ...more,
});

const limits = (amber: number, red: number) => ({
  amber: 5,
  red: 20,
  below: false,
  rule: "lasting",
  meaning: "",
  source: "",
  over_amber: passed(amber),
  over_red: passed(red),
});

describe("findings", () => {
  it("lists red before amber, and what lasted longest first", () => {
    const figures = [
      figure("none", {}),
      figure("short", { verdict: "amber", limits: limits(2, 0) }),
      figure("fine", { verdict: "ok", limits: limits(0, 0) }),
      figure("long", { verdict: "amber", limits: limits(9, 1) }),
      figure("bad", { verdict: "red", limits: limits(3, 1) }),
    ];
    expect(findings(figures).map(({ id }) => id)).toEqual(["bad", "long", "short"]);
  });
});

describe("plots", () => {
  it("puts figures of one group and unit into one chart, on one axis of time", () => {
    const figures = [
      figure("used", {
        trend: {
          width_ns: 1e9,
          buckets: [
            [1e9, 1, 2, 3],
            [3e9, 4, 5, 6],
          ],
        },
      }),
      figure("dirty", { trend: { width_ns: 1e9, buckets: [[2e9, 7, 8, 9]] } }),
      figure("read", { unit: "bytes_per_second" }),
      figure("never", { max: 0 }),
    ];
    const [percent, bytes, ...others] = plots(figures);
    expect(others).toEqual([]);
    expect(percent!.xs).toEqual([1, 2, 3]);
    expect(percent!.series.map(({ values }) => values)).toEqual([
      [3, null, 6],
      [null, 9, null],
    ]);
    expect([percent!.title, bytes!.title]).toEqual(["Used and dirty", "Read"]);
    const many = ["used", "dirty", "updates"].map((id) => figure(id, { unit: "bytes" }));
    expect(plots(many).map(({ title }) => title)).toEqual(["Cache, in bytes"]);
  });
});

describe("the machine", () => {
  const server = {
    processors: 16,
    processors_available: null,
    memory_mib: 65_536,
    memory_limit_mib: null,
    system: null,
  } as FtdcReport["server"];

  it("is what the server may use of it, in the words of the text report", () => {
    expect(machine(server)).toBe("16 processors, 64.0 GiB of memory");
    expect(machine({ ...server, processors_available: 4, memory_limit_mib: 8_192, system: "Linux" })).toBe(
      "4 of 16 processors, limited to 8.0 GiB of 64.0 GiB of memory, Linux",
    );
    expect(machine({ ...server, processors: null, memory_mib: null, memory_limit_mib: 512 })).toBe(
      "limited to 0.5 GiB of memory",
    );
    expect(machine({ ...server, processors: null, memory_mib: null })).toBe("");
  });
});
