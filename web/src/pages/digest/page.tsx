// A digest: logs report, profiler report, queries --html.

import { useMemo, useState } from "preact/hooks";

import type { Range } from "../../parts/chart";
import { count, duration, exact, percent, plural, rounded } from "../../parts/format";
import { colour } from "../../parts/palette";
import { Lost, Shell, Tile, Words } from "../../parts/shell";
import { Table } from "../../parts/table";
import { Clock, seconds } from "../../parts/time";
import type { DigestDocument, DigestRowJson } from "../../report";
import { Hints, Remarks } from "./advice";
import { EachOperation, OverTime } from "./charts";
import { columnsOf } from "./columns";
import { Coverage, incomplete } from "./coverage";
import { Detail } from "./detail";
import { meanText, sum, waitsOf } from "./row";
import { Server } from "./server";

const TITLES = { log: "Log report", profile: "Profile report", wire: "Capture report" };
const SOURCES = { log: "of a log", profile: "of a profile", wire: "captured on the wire" };

export function DigestPage({ report }: { report: DigestDocument }) {
  const { totals, rows } = report;
  const begin = seconds(totals.first_seen ?? 0);
  const [first, last] = [begin, Math.max(seconds(totals.last_seen ?? 0), begin + 1e-3)];
  const clock = useMemo(() => new Clock(report.zone, first, last), []);
  const [range, setRange] = useState<Range | null>(null);
  const [chosen, choose] = useState<DigestRowJson | null>(null);
  const places = useMemo(() => new Map(rows.map((row, at) => [row, at])), []);
  const columns = useMemo(() => columnsOf(report), []);
  const time = (ns: number | null) => rounded(ns, report.precision_ns);
  const charts = {
    report,
    clock,
    extent: [first, last] as Range,
    range,
    onRange: setRange,
    chosen: chosen ? places.get(chosen)! : null,
  };
  return (
    <Shell title={TITLES[report.source] ?? "Report"} about={report.about} clock={clock}>
      <Words tone="verdict" lines={report.answer ? [report.answer] : []} />
      <Words tone="bad" lines={report.notes} />
      <Lost lost={report.lost} words={report.lost_in_words} />
      <Words lines={incomplete(report)} />
      <div class="tiles">
        <Tile
          name="operations"
          value={count(totals.calls)}
          about={`${plural(totals.calls, "operation")} ${SOURCES[report.source] ?? ""}`}
        />
        <Tile name="time" value={duration(totals.latency_ns.sum)} about="of all operations together" />
        <Tile name="mean" value={meanText(totals.latency_ns, report.precision_ns)} />
        <Tile name="p50" value={time(totals.latency_ns.p50)} />
        <Tile name="p95" value={time(totals.latency_ns.p95)} />
        <Tile name="p99" value={time(totals.latency_ns.p99)} />
        <Tile name="max" value={time(totals.latency_ns.max)} />
        {sum(totals, "keys_examined") != null && (
          <Tile name="keys examined" value={count(sum(totals, "keys_examined"))} />
        )}
        {sum(totals, "docs_examined") != null && (
          <Tile name="documents examined" value={count(sum(totals, "docs_examined"))} />
        )}
        {sum(totals, "returned") != null && <Tile name="returned" value={count(sum(totals, "returned"))} />}
        {totals.collection_scans > 0 && <Tile name="collection scans" value={count(totals.collection_scans)} />}
        {totals.memory_sorts > 0 && <Tile name="sorts in memory" value={count(totals.memory_sorts)} />}
        <Tile name="failed" value={count(totals.failed)} tone={totals.failed ? "bad" : ""} />
        {waitsOf(totals).map((wait) => (
          <Tile
            key={wait.words}
            name={`waited for ${wait.words}`}
            value={`${duration(wait.ns)} (${percent(wait.share, 1)})`}
          />
        ))}
      </div>
      {report.precision_ns > 1 && (
        <p class="dim">
          Times are whole milliseconds, rounded down by the server: 0 is less than 1 ms, so means and quantiles are
          bounds.
        </p>
      )}
      {totals.calls > 0 && (
        <div class="charts">
          <OverTime {...charts} />
          {report.points && <EachOperation {...charts} points={report.points} />}
        </div>
      )}
      <section>
        <h2>
          Rows by {report.by}{" "}
          {report.rows_total > rows.length && (
            <span class="dim">
              ({rows.length} of {exact(report.rows_total)})
            </span>
          )}
        </h2>
        <Table
          name={`rows by ${report.by}`}
          columns={columns}
          rows={rows}
          by="time"
          filter={{ words: (row) => [row.shape_id, row.query_hash, ...row.ordered_ids].filter(Boolean).join(" ") }}
          chosen={chosen}
          onChoose={choose}
          mark={(row) => colour(places.get(row)!)}
          detail={(row) => <Detail row={row} report={report} clock={clock} />}
        >
          <span class="dim hint-line">Choose a row to see it alone in the charts.</span>
        </Table>
        {(report.hidden ?? []).map((part) => (
          <p key={part.reason} class="dim">
            Not shown: {plural(part.operations, "operation")} ({part.reason}
            {Object.entries(part.classes).map(([name, n]) => `, ${name} ${exact(n)}`)}); {part.show_with} shows them.
          </p>
        ))}
      </section>
      <Hints report={report} />
      <Remarks remarks={report.remarks ?? []} />
      <Server report={report} clock={clock} />
      <Coverage report={report} />
    </Shell>
  );
}
