// A digest: logs report, profiler report, queries --html.

import { useMemo, useState } from "preact/hooks";

import { Bars } from "../parts/bars";
import { Chart, type Range } from "../parts/chart";
import type { Column } from "../parts/columns";
import { brief, bytes, count, duration, exact, percent, plural, rounded, visible } from "../parts/format";
import { colour, COLOURS, REST } from "../parts/palette";
import { scatter, unpack } from "../parts/scatter";
import { type Fact, Facts, Lost, Shell, Tile, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { logTicks, timeTicks } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { begins, grid, rates, widest } from "../parts/timeline";
import type { Digest, DigestRow, Latency, Remark, Tally } from "../report";

const TITLES = { log: "Log report", profile: "Profile report", wire: "Capture report" };
const SOURCES = { log: "of a log", profile: "of a profile", wire: "captured on the wire" };
/** Columns of the chart over time. */
const MOST_COLUMNS = 160;

const DOUBTS: Record<string, string> = {
  partial: "(partial) ",
  ambiguous: "(ambiguous)",
  unsaid: "(statements not said)",
};

/** Who called: an application, else its driver. */
export const caller = (app: string, driver = ""): string =>
  visible(app) || (driver ? `(${visible(driver)})` : "(no name)");

/** What a row is about, as text. */
export function label(row: DigestRow): string {
  if (row.shape != null) {
    const doubt = DOUBTS[row.identity ?? ""] ?? "";
    return visible(row.identity === "exact" || row.identity === "partial" ? doubt + row.shape : doubt || row.shape);
  }
  if (row.plan != null) return visible(row.plan) || "(no plan)";
  if (row.client != null) return visible(row.client) || "(client unknown)";
  if (row.user != null) return visible(row.user) || "(no user)";
  if (row.comment != null) return visible(row.comment) || "(no comment)";
  return caller(row.namespace ?? row.app ?? "other");
}

/** Its command and namespace. */
const place = (row: DigestRow): string =>
  row.command == null ? "" : visible(`${row.command} ${row.database}${row.collection ? "." + row.collection : ""}`);

/** The plan that most of its operations had. */
function plan(row: DigestRow): string {
  const main = row.plans.reduce<DigestRow["plans"][number] | null>(
    (most, plan) => (most && most.calls >= plan.calls ? most : plan),
    null,
  );
  const others = row.plans.length > 1 ? ` +${row.plans.length - 1}` : "";
  return visible((main?.summary ?? "") + others + (row.memory_sorts ? " SORT" : "") + (row.used_disk ? " DISK" : ""));
}

const sum = (tally: Tally, name: string) => tally.sums[name]?.[0] ?? null;
const mean = (tally: Tally, name: string) => {
  const found = tally.sums[name];
  return found && found[1] > 0 ? found[0] / found[1] : null;
};

/** What operations can wait for: the sum in microseconds, and words. */
const WAITS: [string, string][] = [
  ["write_concern_us", "write concern"],
  ["remote_wait_us", "shards"],
  ["queued_us", "queues"],
  ["lock_wait_us", "locks"],
  ["storage_wait_us", "storage engine"],
  ["flow_control_us", "flow control"],
];

/** What operations waited for, the longest first: words, nanoseconds, and the share of all their time. */
export function waitsOf(tally: Tally): { words: string; ns: number; share: number }[] {
  const time = tally.latency_ns.sum ?? 0;
  return WAITS.map(([name, words]) => {
    const ns = (sum(tally, name) ?? 0) * 1e3;
    return { words, ns, share: time > 0 ? Math.min(1, ns / time) : 0 };
  })
    .filter((wait) => wait.share >= 0.01)
    .sort((a, b) => b.ns - a.ns);
}

/** A figure of `sums` by its unit. */
function sumText(name: string, value: number | null): string {
  if (value == null) return "-";
  if (name.endsWith("_us")) return duration(value * 1e3);
  if (name.endsWith("_ms")) return duration(value * 1e6);
  if (name.endsWith("_ns")) return duration(value);
  return name.endsWith("_bytes") ? bytes(value) : count(value);
}

/** Means of rounded times are lower bounds. */
function meanText(latency: Latency, precision: number): string {
  if (latency.mean == null) return "-";
  if (precision > 1 && latency.mean === 0) return rounded(0, precision);
  return (precision > 1 ? "≥" : "") + duration(latency.mean);
}

export function columnsOf(report: Digest): Column<DigestRow>[] {
  const time = (
    name: string,
    about: string,
    rank: number,
    of: (row: DigestRow) => number | null,
  ): Column<DigestRow> => ({
    name,
    value: of,
    format: (ns) => rounded(ns, report.precision_ns),
    about,
    rank,
    zero: true,
  });
  const each = (name: string, about: string, rank: number, sum: string): Column<DigestRow> => ({
    name,
    value: (row) => mean(row, sum),
    format: count,
    about,
    rank,
  });
  const all = (name: string, about: string, rank: number, of: string): Column<DigestRow> => ({
    name,
    value: (row) => sum(row, of),
    format: (value) => sumText(of, value),
    about,
    rank,
  });
  const columns: Column<DigestRow>[] = [
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

export function DigestPage({ report }: { report: Digest }) {
  const { totals, rows } = report;
  const begin = seconds(totals.first_seen ?? 0);
  const [first, last] = [begin, Math.max(seconds(totals.last_seen ?? 0), begin + 1e-3)];
  const clock = useMemo(() => new Clock(report.zone, first, last), []);
  const [range, setRange] = useState<Range | null>(null);
  const [chosen, choose] = useState<DigestRow | null>(null);
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

interface ChartsProps {
  report: Digest;
  clock: Clock;
  extent: Range;
  range: Range | null;
  onRange: (range: Range | null) => void;
  chosen: number | null;
}

const timeAxis = (clock: Clock) => ({
  name: `time (${clock.name})`,
  show: (at: number) => clock.full(at, 1),
  ticks: (min: number, max: number, most: number) => timeTicks(min, max, most, clock),
});

function OverTime({ report, clock, extent, range, onRange, chosen }: ChartsProps) {
  const { xs, series } = useMemo(() => {
    // Sources of different lengths have buckets of different widths.
    const timelines = [report.totals, ...report.rows].map((one) => one.timeline);
    const columns = grid(range ?? extent, widest(timelines), MOST_COLUMNS);
    const total = rates(report.totals.timeline, columns);
    const order = report.rows
      .map((_, at) => at)
      .sort((a, b) => (report.rows[b]!.time_share ?? 0) - (report.rows[a]!.time_share ?? 0));
    const alone = chosen !== null ? [chosen] : order.slice(0, COLOURS.length - 1);
    const lines = alone.map((at) => {
      const row = report.rows[at]!;
      const name = [place(row), label(row)].filter(Boolean).join(" ");
      return {
        name: `${at + 1}. ${name.slice(0, 60)}`,
        about: name.slice(0, 400),
        colour: colour(at),
        values: [...rates(row.timeline, columns), null],
      };
    });
    if (chosen === null && (report.rows.length > lines.length || report.rows_total > lines.length)) {
      const rest = total.map((value, at) =>
        Math.max(
          0,
          lines.reduce((left, line) => left - (line.values[at] ?? 0), value),
        ),
      );
      if (rest.some((value) => value > 1e-9))
        lines.push({ name: "others", about: "all other rows", colour: REST, values: [...rest, null] });
    }
    return { xs: begins(columns), series: lines };
  }, [range, chosen]);
  const y = { name: "operations a second", show: (value: number, more?: number) => count(value, more) + "/s" };
  return (
    <Chart
      title="Operations over time"
      x={timeAxis(clock)}
      y={y}
      xs={xs}
      series={series}
      stacked
      extent={extent}
      range={range}
      onRange={onRange}
      height={300}
    />
  );
}

/** Which operations have a point, and why the others have none. */
export function pointsNote(report: Digest, shown: number): string {
  const seen = report.points_seen ?? shown;
  // Of several sources, one has single operations.
  const several = (report.sources ?? []).length > 1;
  const without = several ? 0 : Math.max(0, report.totals.calls - report.totals.latency_ns.count);
  const which = without > 0 ? "operations with a latency" : several ? "operations of one source" : "operations";
  const shownText =
    shown < seen ? `${count(shown)} of ${count(seen)} ${which}, chosen at random.` : `All ${count(seen)} ${which}.`;
  return without > 0
    ? `${shownText} The other ${exact(without)} of ${count(report.totals.calls)} have none: ${report.source === "wire" ? "nothing answered them" : "the source states none"}.`
    : shownText;
}

function EachOperation({ report, clock, extent, range, onRange, chosen, points }: ChartsProps & { points: number[] }) {
  const isRounded = report.precision_ns > 1;
  // What is shorter than the source can say lies on a line of its own.
  const floor = isRounded ? report.precision_ns * 0.3 : 1e3;
  const dots = useMemo(() => unpack(points, report.totals.first_seen ?? 0, floor), []);
  const low = isRounded ? floor : dots.y.reduce((least, y) => Math.min(least, y), 1e6);
  const high = Math.max(report.totals.latency_ns.max ?? low, low * 10);
  const layer = useMemo(
    () =>
      scatter(
        dots,
        [extent, [low, high]],
        (row) => (row < 0 ? REST : colour(row)),
        (row) => chosen === null || row === chosen,
        (dot) => {
          const row = report.rows[dots.row[dot]!];
          const name = row ? `${place(row)} ${label(row)}` : "a row that is not listed";
          return `${clock.time(dots.x[dot]!, 3)}  ${rounded(dots.y[dot]!, report.precision_ns)}  ${name.slice(0, 300)}`;
        },
      ),
    [chosen],
  );
  const note = pointsNote(report, dots.x.length);
  const latency = {
    name: "latency",
    log: 10,
    show: (ns: number) => duration(ns),
    ticks: (min: number, max: number, most: number) => {
      const found = logTicks(isRounded ? Math.max(min, report.precision_ns) : min, max, most, 10, short);
      return isRounded
        ? { at: [floor, ...found.at], labels: [rounded(0, report.precision_ns), ...found.labels] }
        : found;
    },
  };
  return (
    <Chart
      title="Latency of each operation"
      x={timeAxis(clock)}
      y={latency}
      xs={[]}
      series={[]}
      layer={layer}
      extent={extent}
      range={range}
      onRange={onRange}
      height={300}
      note={note}
    />
  );
}

/** A duration of a tick, without decimals. */
const short = (ns: number): string => brief(duration(ns));

/** Latency as a histogram, in quarters of a power of two. */
function Histogram({ latency, precision }: { latency: Latency; precision: number }) {
  const bars = useMemo(() => {
    const groups = new Map<number, number>();
    for (const [index, n] of latency.buckets)
      groups.set(Math.floor(index / 8), (groups.get(Math.floor(index / 8)) ?? 0) + n);
    const keys = [...groups.keys()];
    if (keys.length === 0 && latency.count === 0) return null;
    const [first, last] = keys.length > 0 ? [Math.min(...keys), Math.max(...keys)] : [0, -1];
    const names = Array.from(
      { length: last - first + 1 },
      (_, at) => "≤" + duration(2 ** ((first + at + 1) / 4) * 1e9),
    );
    const values = names.map((_, at) => groups.get(first + at) ?? 0);
    const zero = latency.count - values.reduce((sum, value) => sum + value, 0);
    if (zero > 0) {
      names.unshift(precision > 1 ? rounded(0, precision) : "0");
      values.unshift(zero);
    }
    return { names, values };
  }, [latency]);
  if (!bars) return null;
  const { names, values } = bars;
  return (
    <Bars
      title="Latency"
      x="latency"
      y="operations"
      names={names}
      series={[{ name: "operations", colour: COLOURS[0]!, values }]}
    />
  );
}

function Detail({ row, report, clock }: { row: DigestRow; report: Digest; clock: Clock }) {
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

function Hints({ report }: { report: Digest }) {
  if (report.index_hints.length === 0) return null;
  return (
    <section>
      <h2>Indexes that may help</h2>
      <p class="dim">
        Equality, sort, range{report.indexes_known ? "; none that exists serves" : ""}. Look before you build.
      </p>
      <Table
        name="indexes that may help"
        rows={report.index_hints}
        by="time"
        rowClass={() => "hint"}
        columns={[
          {
            name: "time",
            value: (hint) => hint.time_share,
            format: (share) => percent(share, 1),
            about: "share of the time of all operations",
            zero: true,
          },
          { name: "where", value: (hint) => visible(hint.namespace), text: true, rank: 1 },
          { name: "index", value: (hint) => visible(hint.index), text: true, main: true },
          { name: "shapes", about: "shapes that want it", value: (hint) => hint.shapes.length, rank: 3 },
        ]}
        detail={(hint) => (
          <ul class="wanted">
            {hint.shapes.map((one) => (
              <li key={one.shape_id}>
                <b>{percent(one.time_share, 1)}</b>
                {one.examined_per_returned != null &&
                  `, ${count(one.examined_per_returned)} examined for each returned`}
                , {visible(one.plan) || "(no plan)"}
                {one.memory_sorts ? ", sorted in memory" : ""}
                <pre class="full">{visible(`${one.command} ${one.shape}`)}</pre>
              </li>
            ))}
          </ul>
        )}
      />
    </section>
  );
}

export const REMARKS: Column<Remark>[] = [
  {
    name: "time",
    value: ({ time_share }) => time_share,
    format: (share) => percent(share, 1),
    about: "share of the time of all operations",
    rank: 0,
    zero: true,
  },
  { name: "where", value: ({ command, namespace }) => visible(`${command} ${namespace}`), text: true, rank: 1 },
  { name: "what stands out", value: ({ words }) => visible(words), text: true, main: true },
];

/** What stands out about shapes, beside the indexes that they want. */
function Remarks({ remarks }: { remarks: readonly Remark[] }) {
  if (remarks.length === 0) return null;
  return (
    <section>
      <h2>What else stands out</h2>
      <Table
        name="what else stands out"
        rows={remarks}
        by="time"
        columns={REMARKS}
        detail={({ command, shape, shape_id, words }) => (
          <>
            <p>{visible(words)}</p>
            <pre class="full">{visible(`${command} ${shape}`)}</pre>
            <p class="dim">
              shape id <code class="id">{shape_id}</code>
            </p>
          </>
        )}
      />
    </section>
  );
}

function Server({ report, clock }: { report: Digest; clock: Clock }) {
  const { notices } = report;
  if (!notices) return null;
  const at = (ns: number) => clock.full(seconds(ns), 3);
  return (
    <section>
      <h2>The server</h2>
      <p>
        Connections: {exact(notices.accepted)} accepted, {exact(notices.ended)} ended
        {notices.most_open != null && `, ${exact(notices.most_open)} open at most`}. Versions:{" "}
        {notices.versions.map(visible).join(", ") || "not known"}.
        {notices.starts.length > 0 && ` ${plural(notices.starts.length, "start")}.`}
      </p>
      {notices.slow_replies && notices.slow_replies.count > 0 && (
        <p>
          {plural(notices.slow_replies.count, "reply", "replies")} took {duration(notices.slow_replies.total_ms * 1e6)}{" "}
          to send, the longest {duration(notices.slow_replies.longest_ms * 1e6)}: clients or the network took them
          slowly, not the server.
        </p>
      )}
      <div class="charts">
        {notices.starts.length > 0 && (
          <Table
            name="starts"
            rows={notices.starts}
            columns={[
              { name: "start", value: (start) => at(start.at), text: true, main: true },
              { name: "version", value: (start) => visible(start.version), text: true },
              { name: "pid", value: (start) => start.pid },
              { name: "port", value: (start) => start.port },
              { name: "host", value: (start) => visible(start.host), text: true, rank: 1 },
            ]}
          />
        )}
        {notices.clients.length > 0 && (
          <Table
            name="clients"
            rows={notices.clients}
            by="connections"
            columns={[
              { name: "application", value: (client) => caller(client.app, client.driver), text: true, main: true },
              {
                name: "driver",
                value: (client) => visible(`${client.driver} ${client.driver_version}`.trim()),
                text: true,
                rank: 1,
              },
              { name: "connections", value: (client) => client.connections, format: exact },
            ]}
          />
        )}
      </div>
      {notices.messages.length > 0 && (
        <>
          <h3>Errors and warnings</h3>
          <Table
            name="errors and warnings"
            rows={notices.messages}
            by="count"
            filter={{}}
            columns={[
              { name: "count", value: (message) => message.count, format: exact },
              {
                name: "severity",
                value: (message) => message.severity,
                text: true,
                rank: 1,
                tone: (message) => (/^(error|fatal)/i.test(message.severity) ? "bad" : ""),
              },
              { name: "component", value: (message) => visible(message.component), text: true, rank: 3 },
              { name: "id", value: (message) => message.id, rank: 4 },
              { name: "first", value: (message) => message.first, show: (message) => at(message.first), rank: 6 },
              { name: "last", value: (message) => message.last, show: (message) => at(message.last), rank: 5 },
              { name: "message", value: (message) => visible(message.text), text: true, main: true },
            ]}
          />
          {notices.messages_other > 0 && <p class="dim">{exact(notices.messages_other)} more of other kinds.</p>}
        </>
      )}
    </section>
  );
}

const WAYS: Record<string, string> = {
  "not read": "not all was read",
  "left out as asked": "some was left out as asked",
  "known in part": "some is known in part",
};

/** What was not read or is not known in full, a sentence for each way. */
export const incomplete = (report: Digest): string[] =>
  (report.incomplete ?? []).map(({ way, what }) => `${way[0]?.toUpperCase()}${way.slice(1)}: ${what.join("; ")}`);

/** Whether all of it was read, as the text says it. */
export function coverageTitle(report: Digest): string {
  const lost = Object.values(report.lost).some((n) => n > 0);
  const ways = (report.incomplete ?? []).map(({ way }) => WAYS[way] ?? way);
  const parts = [...new Set([...(lost ? ["not all was read"] : []), ...ways])];
  return `Coverage: ${parts.join(", ") || "all of it was read"}`;
}

function Coverage({ report }: { report: Digest }) {
  const counters = Object.entries({ ...report.reading, ...report.coverage }).filter(([, n]) => n > 0);
  if (counters.length === 0) return null;
  return (
    <section>
      <details>
        <summary>
          <h2>{coverageTitle(report)}</h2>
        </summary>
        <Table
          name="coverage"
          rows={counters}
          columns={[
            { name: "counter", value: ([name]) => name, text: true, main: true },
            { name: "count", value: ([, n]) => n, format: exact },
          ]}
        />
      </details>
    </section>
  );
}
