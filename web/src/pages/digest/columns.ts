// The columns of the table of rows.

import type { Column } from "../../parts/columns";
import { count, percent, rounded } from "../../parts/format";
import type { DigestDocument, DigestRowJson } from "../../report";
import { label, mean, meanText, place, plan, sum, sumText, waitsOf } from "./row";

export function columnsOf(report: DigestDocument): Column<DigestRowJson>[] {
  const time = (
    name: string,
    about: string,
    rank: number,
    of: (row: DigestRowJson) => number | null,
  ): Column<DigestRowJson> => ({
    name,
    value: of,
    format: (ns) => rounded(ns, report.precision_ns),
    about,
    rank,
    zero: true,
  });
  const each = (name: string, about: string, rank: number, sum: string): Column<DigestRowJson> => ({
    name,
    value: (row) => mean(row, sum),
    format: count,
    about,
    rank,
  });
  const all = (name: string, about: string, rank: number, of: string): Column<DigestRowJson> => ({
    name,
    value: (row) => sum(row, of),
    format: (value) => sumText(of, value),
    about,
    rank,
  });
  const columns: Column<DigestRowJson>[] = [
    { name: "calls", value: (row) => row.calls, format: count, about: "operations", rank: 1, zero: true },
    {
      name: "time",
      value: (row) => row.time_share,
      format: (share) => percent(share, 1),
      about: "share of the time of all operations",
      rank: 0,
      zero: true,
    },
    {
      ...time("mean", "mean latency", 2, (row) => row.latency_ns.mean),
      show: (row) => meanText(row.latency_ns, report.precision_ns),
    },
    time("p50", "median latency", 5, (row) => row.latency_ns.p50),
    time("p95", "95th percentile of latency", 2, (row) => row.latency_ns.p95),
    time("p99", "99th percentile of latency", 4, (row) => row.latency_ns.p99),
    time("max", "longest latency", 3, (row) => row.latency_ns.max),
    each("keys", "index keys examined by an operation", 6, "keys_examined"),
    each("examined", "documents examined by an operation", 6, "docs_examined"),
    each("ret", "documents returned by an operation", 7, "returned"),
    {
      name: "ex/ret",
      value: (row) => row.examined_per_returned,
      format: count,
      about: "examined for each document returned or changed",
      rank: 3,
    },
    all("yields", "times that operations yielded", 12, "yields"),
    all("conflicts", "write conflicts, which were retried", 12, "write_conflicts"),
    {
      name: "waits",
      about: "what operations waited for longest, as a share of their time",
      value: (row) => waitsOf(row)[0]?.share ?? null,
      show: (row) => {
        const [wait] = waitsOf(row);
        return wait ? `${wait.words} ${percent(wait.share, 1)}` : "-";
      },
      rank: 4,
      tone: (row) => ((waitsOf(row)[0]?.share ?? 0) >= 0.5 ? "bad" : ""),
    },
    all("lock wait", "time spent waiting for locks", 10, "lock_wait_us"),
    all("queued", "time spent in the server's queues", 11, "queued_us"),
    all("concern", "time spent waiting for the write concern", 11, "write_concern_us"),
    all("shards", "time spent waiting for shards", 11, "remote_wait_us"),
    all("spilled", "bytes that stages spilled to disk", 11, "spilled_bytes"),
    all("read", "bytes read into the storage engine's cache", 9, "storage_read_bytes"),
    all("reply", "bytes of replies", 11, "response_bytes"),
    {
      name: "failed",
      value: (row) => row.failed,
      format: count,
      about: "operations that failed",
      rank: 3,
      tone: (row) => (row.failed ? "bad" : ""),
    },
    {
      name: "plan",
      about: "the plan that most operations had; SORT sorted in memory, DISK spilled",
      value: plan,
      show: (row) => plan(row) || "-",
      text: true,
      rank: 3,
    },
    {
      name: "where",
      about: "command and namespace",
      value: place,
      text: true,
      rank: report.by === "shape" || report.by === "order" ? 2 : 20,
    },
  ];
  // Rows by plan are named by it.
  const others = columns.filter((column) => column.name !== report.by);
  return [...others, { name: report.by, value: label, text: true, main: true }];
}
