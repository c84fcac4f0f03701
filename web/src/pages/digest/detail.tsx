// What a row shows when it is chosen.

import { exact, rounded, visible } from "../../parts/format";
import { type Fact, Facts } from "../../parts/shell";
import { Table } from "../../parts/table";
import { type Clock, seconds } from "../../parts/time";
import type { DigestDocument, DigestRowJson } from "../../report";
import { Histogram } from "./charts";
import { caller, label, sumText } from "./row";

export function Detail({ row, report, clock }: { row: DigestRowJson; report: DigestDocument; clock: Clock }) {
  const sums = Object.entries(row.sums);
  const errors = Object.entries(row.errors ?? {});
  const facts: Fact[] = [
    ["shape id", row.shape_id],
    ["ids by order of keys", row.ordered_ids.join(" ") || null],
    ["query hash", row.query_hash],
    ["class", row.class],
    ["index that may help", row.index_hint],
    [
      "first and last seen",
      row.first_seen === null || row.last_seen === null
        ? null
        : `${clock.full(seconds(row.first_seen), 3)} and ${clock.full(seconds(row.last_seen), 3)}`,
    ],
    ["statements", row.statements === row.calls ? null : exact(row.statements)],
    [
      "errors",
      errors.length > 0
        ? errors.map(([code, n]) => `${code}: ${exact(n)}`).join(", ") +
          (row.errors_other ? `, others: ${exact(row.errors_other)}` : "")
        : null,
    ],
  ];
  return (
    <div class="details">
      <pre class="full">{row.shape != null ? visible(row.shape) : label(row)}</pre>
      {row.shape_cut && <p class="bad">This text was cut.</p>}
      <Facts kind="list" facts={facts} />
      <div class="charts">
        <Histogram latency={row.latency_ns} precision={report.precision_ns} />
        <div class="lists">
          {sums.length > 0 && (
            <Table
              name="sums"
              rows={sums}
              columns={[
                { name: "figure", value: ([name]) => name.replaceAll("_", " "), text: true, main: true },
                { name: "in all", value: ([, [all]]) => all, show: ([name, [all]]) => sumText(name, all), zero: true },
                {
                  name: "a call",
                  value: ([, [all, known]]) => all / known,
                  show: ([name, [all, known]]) => sumText(name, known ? all / known : null),
                  zero: true,
                },
              ]}
            />
          )}
          {row.plans.length > 0 && (
            <Table
              name="plans"
              rows={row.plans}
              columns={[
                { name: "plan", value: (plan) => visible(plan.summary) || "(no plan)", text: true, main: true },
                { name: "calls", value: (plan) => plan.calls, format: exact },
                { name: "sorts in memory", value: (plan) => plan.memory_sorts, format: exact },
              ]}
            />
          )}
          {row.apps.length > 0 && (
            <Table
              name="applications"
              rows={row.apps}
              columns={[
                { name: "application", value: (app) => caller(app.name), text: true, main: true },
                { name: "calls", value: (app) => app.calls, format: exact },
                {
                  name: "time",
                  value: (app) => app.latency_ns,
                  format: (ns) => rounded(ns, report.precision_ns),
                  zero: true,
                },
                { name: "failed", value: (app) => app.failed, format: exact },
              ]}
            />
          )}
        </div>
      </div>
    </div>
  );
}
