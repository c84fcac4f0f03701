// The page of files and disks: what stands beside a figure, and what lines are about.

import { expect, test } from "vitest";

import {
  besideTest,
  cached,
  change,
  fileLanes,
  grown,
  isSlow,
  lines,
  testLevel,
  withChange,
} from "../src/pages/storage";
import { utc } from "../src/parts/time";
import type { DiskTestJson, FileUseJson, PlaceFigureJson, StorageDeviceJson, StorageFileJson } from "../src/report";

const of = (mean: number | null, values: (number | null)[] = [mean]): PlaceFigureJson => ({
  meaning: "",
  unit: "milliseconds",
  mean,
  max: mean ?? 0,
  last: values.at(-1) ?? 0,
  before: null,
  values,
});

const TEST: DiskTestJson = {
  file: "disk-bench.json",
  started_ns: Date.parse("2026-05-01T12:00:00Z") * 1e6,
  record_bytes: 4096,
  reads_per_second: 80_000,
  reads_in_flight: 16,
  read_ms: 0.2,
  read_alone_ms: 0.03,
  writes_per_second: null,
  write_ms: null,
};

const disk = (name: string, reads: number, read_ms: number | null, test: DiskTestJson | null): StorageDeviceJson => ({
  name,
  figures: { "disk.reads_per_second": of(reads), "disk.read_wait_ms": of(read_ms) },
  test,
});

const file = (name: string | null, values: (number | null)[]): StorageFileJson => ({
  name,
  server: 27017,
  role: "",
  usage: {} as FileUseJson,
  before: null,
  values,
});

test("a figure says what became of it since the time before", () => {
  expect([change(110, 100), change(50, 100), change(340, 100), change(100.2, 100)]).toEqual([
    "+10%",
    "-50%",
    "×3.4",
    "",
  ]);
  expect([change(5, 0), change(0, 0), change(5, null), change(null, 5), change(0, 5)]).toEqual([
    "new",
    "",
    "",
    "",
    "-100%",
  ]);
  expect([withChange("110", 110, 100), withChange("110", 110, null)]).toEqual(["110 +10%", "110"]);
});

test("what did not come from the device was cached, and reading ahead is no negative share", () => {
  const share = (read_bytes_per_second: number, device_bytes_per_second: number) =>
    cached({ read_bytes_per_second, device_bytes_per_second } as FileUseJson);
  expect([share(100, 25), share(100, 0), share(100, 300), share(0, 0)]).toEqual([0.75, 1, 0, null]);
});

test("a disk stands beside its test, and one that takes far longer than alone stands out", () => {
  expect(besideTest(disk("vda", 8_000, 0.3, TEST), utc())).toBe(
    "vda served at most 8.00k reads per second, 10% of the 80.0k random reads per second that disk bench measured on " +
      "2026-05-01; a read took 300µs on average, and 30.0µs in the test when it was alone.",
  );
  expect(besideTest(disk("vda", 8_000, 0.3, null), utc())).toBe("");
  expect(besideTest(disk("v\u202eda", 8_000, null, TEST), utc())).not.toContain("\u202e");
  expect([disk("a", 1, 0.3, TEST), disk("a", 1, 0.1, TEST), disk("a", 1, 9, null)].map(isSlow)).toEqual([
    true,
    false,
    false,
  ]);
});

test("a chart has a line of the test only where there is one disk", () => {
  const [one, other] = [disk("a", 1, 1, TEST), disk("b", 1, 1, TEST)];
  expect(testLevel([one], "disk.reads_per_second")).toEqual({ at: 80_000, name: "disk bench" });
  expect(testLevel([one], "disk.read_wait_ms")?.at).toBe(0.03);
  expect([testLevel([one], "disk.writes_per_second"), testLevel([one, other], "disk.reads_per_second")]).toEqual([
    undefined,
    undefined,
  ]);
});

test("the busiest disk comes first, and one without the figure has no line", () => {
  const without = { name: "c", figures: {}, test: null };
  const found = lines([disk("a", 5, 1, null), without, disk("b", 50, 1, null)], "disk.reads_per_second");
  expect(found.map(({ name }) => name)).toEqual(["b", "a"]);
});

test("what has no lane of its own is added up, and what was not observed stays unknown", () => {
  const many = Array.from({ length: 14 }, (_, at) => file(`/data/db/c-${at}.wt`, [1, null]));
  const lanes = fileLanes([...many, file(null, [5, null])]);
  expect([lanes.length, lanes[0]?.name, lanes.at(-1)?.name]).toEqual([12, "db/c-0.wt", "all others"]);
  expect(lanes.at(-1)?.values).toEqual([3 + 5, null]);
  expect(fileLanes(many.slice(0, 2)).map(({ name }) => name)).toEqual(["db/c-0.wt", "db/c-1.wt"]);
  expect(fileLanes([])).toEqual([]);
});

test("growth is from the first known value to the last", () => {
  expect(grown(of(7, [null, 5, null, 9]))).toBe(4);
  expect([grown(of(7, [9])), grown(undefined)]).toEqual([null, null]);
});
