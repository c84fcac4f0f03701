import { expect, test } from "vitest";

import { grouped, joined } from "../src/live/groups";
import { filterOf } from "../src/live/queries";
import type { QueryLatencyJson, QueryRowJson, QueryShapeJson } from "../src/report";

const latency = (found: Partial<QueryLatencyJson>): QueryLatencyJson => ({
  p50: null,
  p95: null,
  p99: null,
  p999: null,
  max: null,
  min: null,
  sum: null,
  mean: null,
  count: 0,
  zero: 0,
  buckets: [],
  ...found,
});

test("latencies of several rows have the quantiles of all their operations", () => {
  // Bucket i holds up to 2^((i+1)/32) seconds: -1 one second, -33 half a second.
  const slow = latency({ count: 10, min: 0.9e9, max: 1e9, sum: 9.5e9, buckets: [[-1, 10]] });
  const quick = latency({ count: 90, min: 0, max: 0.5e9, sum: 40e9, zero: 10, buckets: [[-33, 80]] });
  const both = joined([slow, quick]);
  expect(both).toMatchObject({ count: 100, min: 0, max: 1e9, sum: 49.5e9, mean: 0.495e9, zero: 10 });
  expect([both.p50, both.p95, both.p99]).toEqual([0.5e9, 1e9, 1e9]);
  expect(both.buckets).toEqual([
    [-33, 80],
    [-1, 10],
  ]);
  expect(joined([latency({ count: 3, zero: 3, min: 0, max: 0, sum: 0 })]).p99).toBe(0);
  expect(joined([latency({}), latency({})])).toMatchObject({ count: 0, p50: null, max: null, sum: null, mean: null });
});

test("rows of shapes are put together by command and by server; what none knows stays unknown", () => {
  const row = (command: string, server: string, load: number, failed: number | null) =>
    ({
      command,
      server,
      load,
      calls: 10,
      failed,
      docs_returned: null,
      errors: failed === null ? null : { 50: failed },
      first_seen: load,
      last_seen: load,
      latency_ns: latency({}),
    }) as unknown as QueryRowJson & QueryShapeJson;
  const rows = [row("find", "a:1", 1, null), row("insert", "a:1", 5, 2), row("find", "b:1", 3, 4)];
  expect(grouped(rows, "command")).toMatchObject([
    { command: "insert", load: 5, calls: 10, failed: 2 },
    {
      command: "find",
      load: 4,
      calls: 20,
      failed: 4,
      errors: { 50: 4 },
      first_seen: 1,
      last_seen: 3,
      docs_returned: null,
    },
  ]);
  expect(grouped(rows, "server").map(({ server, calls }) => [server, calls])).toEqual([
    ["a:1", 20],
    ["b:1", 10],
  ]);
  expect(grouped([rows[0]!], "server")).toMatchObject([{ failed: null, errors: null }]);
});

test("a row leads to its shapes by a filter", () => {
  const of = (row: object, by: "app" | "namespace" | "shape") => filterOf(row as never, by);
  expect(of({ app: "shop api", joined_late: false }, "app")).toBe('application:"shop api"');
  expect(of({ app: 'the "new" api', joined_late: false }, "app")).toBe('the "new" api');
  expect(of({ namespace: "shop.carts" }, "namespace")).toBe('namespace:"shop.carts"');
  expect([of({ other: true }, "app"), of({ shape: "{}" }, "shape")]).toEqual([undefined, undefined]);
});
