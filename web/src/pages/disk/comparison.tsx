// disk bench --compare: two runs side by side.

import { count, duration, fixed, visible } from "../../parts/format";
import { type Fact, Shell, Words } from "../../parts/shell";
import { Table } from "../../parts/table";
import type { DiskComparisonDocument } from "../../report";
import { Plots } from "./plots";
import { disk, machine, when, work } from "./run";

const FASTER: Record<string, string> = { A: "A is faster", B: "B is faster", neither: "no visible difference" };

export function DiskComparisonPage({ report }: { report: DiskComparisonDocument }) {
  // Letters distinguish two runs of the same name.
  const names = report.names.map((name, at) => `${"AB"[at]} ${visible(name)}`);
  const facts = report.runs.map((run, at): Fact => {
    const host = run.place.host ? `${visible(run.place.host)}, ` : "";
    return [
      "AB"[at] ?? "",
      <>
        <b>{visible(report.names[at] ?? "")}</b>: {host}
        {visible(run.place.dir)}: {disk(run)}; {work(run)}; {when(run)}; {machine(run)}
      </>,
    ];
  });
  const p99 = (pair: DiskComparisonDocument["steps"][number]) =>
    pair.p99_ns[0] && pair.p99_ns[1] != null ? pair.p99_ns[1] / pair.p99_ns[0] : null;
  return (
    <Shell title="Two disk tests" about={{ ...report.about, sources: [] }} facts={facts}>
      <Words tone="verdict" lines={[report.answer]} />
      <Plots runs={report.runs} names={names} />
      <section>
        <h2>Side by side</h2>
        <Table
          name="side by side"
          rows={report.steps}
          columns={[
            { name: "in flight", value: (pair) => pair.in_flight, rank: 0 },
            { name: "A ops/s", value: (pair) => pair.operations_per_second[0], format: count, rank: 1 },
            { name: "B ops/s", value: (pair) => pair.operations_per_second[1], format: count, rank: 1 },
            { name: "B/A", value: (pair) => pair.ratio, format: (ratio) => fixed(ratio, 3), rank: 0 },
            {
              name: "95% interval",
              value: (pair) => pair.interval?.[0],
              show: (pair) => (pair.interval ? `${fixed(pair.interval[0], 3)} to ${fixed(pair.interval[1], 3)}` : "-"),
              rank: 3,
            },
            {
              name: "verdict",
              value: (pair) => FASTER[pair.faster ?? ""] ?? "too short to judge",
              text: true,
              rank: 2,
            },
            { name: "A p99", value: (pair) => pair.p99_ns[0], format: duration, rank: 4 },
            { name: "B p99", value: (pair) => pair.p99_ns[1], format: duration, rank: 4 },
            { name: "B/A p99", value: p99, format: fixed, rank: 4 },
          ]}
        />
      </section>
      <Words lines={report.words} />
      <p class="dim">MB is 1,048,576 bytes, as mongoperf counts.</p>
    </Shell>
  );
}
