// Two digests beside each other: compare.

import { useMemo, useState } from "preact/hooks";

import type { Column } from "../parts/columns";
import { count, exact, fixed, plural, rounded, visible } from "../parts/format";
import { type Fact, Facts, Shell, spanText, Tile, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { Clock, seconds } from "../parts/time";
import type { ComparisonDocument, RowPairJson } from "../report";

const TONES: Record<string, string> = {
  new: "worse",
  slower: "worse",
  heavier: "worse",
  faster: "better",
  gone: "better",
};
const ABOUT: Record<string, string> = {
  new: "not in A",
  slower: "slower than in A",
  heavier: "no slower, but examines more for what it returns",
  "more calls": "more calls per second",
  "fewer calls": "fewer calls per second",
  faster: "faster than in A",
  gone: "not in B",
  same: "unchanged",
  "not judged": "too little is known to say whether it changed",
};

type Two = readonly [number | null, number | null] | null;

/** What a source is called in a sentence. */
const KINDS: Record<string, string> = { wire: "capture" };

/** What stands above the rows: how many changed, how many did not, and how many could not be judged or compared. */
export function outcome(report: ComparisonDocument): string {
  const unknown = report.not_judged_few_latencies ?? 0;
  const other = report.not_judged_other_source ?? 0;
  const varies = report.not_judged_varies ?? 0;
  const inPart = report.not_judged_in_part ?? 0;
  const few = report.not_judged - report.not_judged_in_one - unknown - other - varies - inPart;
  const reasons = [
    few > 0 ? `${few} with too few calls` : "",
    unknown > 0 ? `${unknown} with too few known latencies` : "",
    report.not_judged_in_one > 0 ? `${report.not_judged_in_one} in one side only and too rare to be new or gone` : "",
    other > 0 ? `${other} counted by different sources` : "",
    varies > 0 ? `${varies} whose latency moved, but varies too much` : "",
    inPart > 0 ? `${inPart} in one side only, where messages were read in part` : "",
  ].filter(Boolean);
  const parts = [
    `${report.changed} changed`,
    `${report.unchanged} unchanged`,
    reasons.length > 0 ? `${report.not_judged} not judged (${reasons.join(", ")})` : "",
    report.not_compared > 0
      ? `${report.not_compared} not compared, as the other side does not have all of its rows`
      : "",
  ];
  return parts.filter(Boolean).join("; ");
}

/** Why a row has its verdict. */
/** What a reader must know of A and of B before their figures. */
export function notesOf(report: ComparisonDocument): string[] {
  return report.sides.flatMap((side, at) => side.notes.map((note) => `${"AB"[at] ?? ""} ${note}`));
}

function why(row: RowPairJson): string {
  if (row.not_judged === "few calls") return "fewer than 20 calls on a side";
  if (row.not_judged === "few latencies") return "fewer than 20 known latencies on a side";
  if (row.not_judged === "only in one") return "in one side only, and too rare to be new or gone";
  if (row.not_judged === "other source") return "a log or a profile need not hold what is faster than slowms";
  if (row.not_judged === "varies") return "the latency moved, but varies too much to tell it from chance";
  if (row.not_judged === "in part") return "in one side only, where messages were read in part";
  const about = ABOUT[row.verdict] ?? "";
  return row.calls_change ? `${about}; ${row.calls_change}` : about;
}

/** The smallest change that would have been seen. */
const least = (factor: number | null): string | null => (factor == null ? null : `${fixed(factor, 2)} times as high`);

/** `1.00ms → 2.00ms`. */
export const pair = (two: Two, show: (value: number | null) => string): string =>
  two == null || (two[0] == null && two[1] == null) ? "-" : `${show(two[0])} → ${show(two[1])}`;

/** How many times A the value of B is: what a pair is sorted by. */
export const ratio = (two: Two): number | null =>
  two && two[0] != null && two[1] != null ? two[1] / Math.max(two[0], Number.MIN_VALUE) : null;

function columnsOf(report: ComparisonDocument): Column<RowPairJson>[] {
  const time = (value: number | null) => rounded(value, report.precision_ns);
  const two = (of: (row: RowPairJson) => Two, show: (value: number | null) => string) => ({
    value: (row: RowPairJson) => ratio(of(row)),
    show: (row: RowPairJson) => pair(of(row), show),
    zero: true,
  });
  return [
    {
      name: "verdict",
      value: (row) => row.verdict,
      text: true,
      rank: 0,
      tone: (row) => `verdict ${TONES[row.verdict] ?? ""}`,
    },
    { name: "calls/s", about: "in A and in B; sorted by B/A", ...two((row) => row.calls_per_s, count), rank: 2 },
    {
      name: "p50",
      about: "median latency; sorted by B/A",
      ...two((row) => row.p50_ns, time),
      rank: 3,
    },
    {
      name: "p95",
      about: "95th percentile of latency; sorted by B/A",
      ...two((row) => row.p95_ns, time),
      rank: 1,
    },
    {
      name: "p99",
      about: "99th percentile of latency; sorted by B/A",
      ...two((row) => row.p99_ns, time),
      rank: 4,
    },
    {
      name: "effect",
      about: "Cliff's delta: 1 where every operation of B is slower than every one of A",
      value: (row) => row.effect,
      show: (row) => (row.effect != null && row.effect > 0 ? "+" : "") + fixed(row.effect),
      rank: 3,
      zero: true,
    },
    { name: "examined/returned", ...two((row) => row.examined_per_returned, count), rank: 5 },
    { name: "calls", about: "in A and in B; sorted by B/A", ...two((row) => row.calls, count), rank: 6 },
    {
      name: "where",
      value: (row) => visible([row.command, row.namespace].filter(Boolean).join(" ")),
      text: true,
      rank: 2,
    },
    { name: report.by, value: (row) => visible(row.text) || "(no name)", text: true, main: true },
  ];
}

export function ComparisonPage({ report }: { report: ComparisonDocument }) {
  const [all, setAll] = useState(report.changed === 0);
  const columns = useMemo(() => columnsOf(report), []);
  const rows = useMemo(
    () => report.rows.filter((row) => all || (row.verdict !== "same" && row.verdict !== "not judged")),
    [all],
  );
  const facts = report.sides.map((side, at): Fact => {
    const clock = new Clock(side.zone, seconds(side.first_seen), seconds(side.last_seen));
    const host = side.host ? `${visible(side.host)}: ` : "";
    const span =
      side.first_seen > 0
        ? spanText(side.first_seen, side.last_seen, clock)
        : side.calls > 0
          ? "times unknown"
          : "no operations";
    return [
      "AB"[at] ?? "",
      <>
        {host}
        <b>{visible(side.name)}</b>: {plural(side.calls, "operation")} of a {KINDS[side.source] ?? side.source}, {span}
      </>,
    ];
  });
  const verdicts = Object.keys(ABOUT).map(
    (verdict) => [verdict, report.rows.filter((row) => row.verdict === verdict).length] as const,
  );
  return (
    <Shell title="Comparison" about={{ ...report.about, sources: [] }} facts={facts}>
      <Words tone="bad" lines={notesOf(report)} />
      <h2 id="outcome" class={report.worse ? "worse" : ""}>
        {outcome(report)}
      </h2>
      {!report.latencies_compared && (
        <p>Latencies are not compared: A and B are of different kinds of sources, which measure them differently.</p>
      )}
      <div class="tiles">
        {verdicts
          .filter(([, n]) => n > 0)
          .map(([verdict, n]) => (
            <Tile
              key={verdict}
              name={verdict}
              value={String(n)}
              tone={TONES[verdict] ?? ""}
              about={ABOUT[verdict] ?? ""}
            />
          ))}
      </div>
      <Table
        name="rows of both"
        columns={columns}
        rows={rows}
        filter={{ words: (row) => `${row.shape_id ?? ""} ${row.class ?? ""}` }}
        detail={(row) => <Detail row={row} />}
      >
        <label class="same">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> show what
          did not change
        </label>
      </Table>
      <p class="dim">
        Latencies are tested with Mann-Whitney's test, all rows at once (Holm); effect is Cliff's delta, 1 where every
        operation of B is slower than every one of A.
      </p>
    </Shell>
  );
}

function Detail({ row }: { row: RowPairJson }) {
  const chance = (p: number | null) => (p == null ? null : p.toExponential(2));
  const facts: Fact[] = [
    ["verdict", `${row.verdict}: ${why(row)}`],
    ["smallest change of the latency that would have been seen", least(row.least_latency_factor)],
    ["smallest change of calls/s that would have been seen", least(row.least_rate_factor)],
    ["shape id", row.shape_id],
    ["class", row.class],
    ["calls in A and B", pair(row.calls, exact)],
    ["p of the rates", chance(row.rate_p)],
    ["p of the latencies", chance(row.latency_p)],
    ["p of examined/returned", chance(row.examined_p)],
    [
      "examines more over time",
      row.growth != null && row.growth > 1 ? `${fixed(row.growth)} times as much in the second half of B` : null,
    ],
  ];
  return (
    <div class="details">
      <pre class="full">{visible(row.text)}</pre>
      <Facts kind="list" facts={facts} />
    </div>
  );
}
