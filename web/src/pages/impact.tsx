// profiler impact: what profiling costs.

import { useMemo, useState } from "preact/hooks";

import { Chart, type Range, type Series } from "../parts/chart";
import type { Column } from "../parts/columns";
import { brief, bytes, count, duration, percent, plural, visible } from "../parts/format";
import { colour } from "../parts/palette";
import { type Fact, Shell, Tile, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { linearTicks } from "../parts/ticks";
import type { ImpactCellJson, ImpactDocument, LongImpactDocument } from "../report";

const SECOND = 1e9;

const elapsed = {
  name: "time measured",
  show: (at: number) => `after ${duration(at * SECOND)}`,
  ticks: (min: number, max: number, most: number) =>
    linearTicks(min, max, most, (at, more) => brief(duration(at * SECOND, more))),
};
const throughput = { name: "operations a second", show: (value: number, more?: number) => count(value, more) + "/s" };

/** Slices beside each other: the time that none covers (filling, settling) is left out. */
export function placed(report: ImpactDocument) {
  let at = 0;
  let clients: number | null = null;
  const xs: number[] = [];
  const values: (number | null)[][] = report.variants.map(() => []);
  const marks = [];
  const put = (x: number, variant: number | null, value: number | null) => {
    xs.push(x);
    values.forEach((line, of) => line.push(of === variant ? value : null));
  };
  for (const slice of report.slices) {
    if (slice.clients !== clients) {
      clients = slice.clients;
      marks.push({ at, name: plural(clients, "client") });
    }
    const bucket = slice.bucket_ns / SECOND;
    // The last bucket may not be whole.
    const whole = Math.max(1, Math.floor(slice.length_ns / slice.bucket_ns));
    slice.buckets
      .slice(0, whole)
      .forEach((operations, n) => put(at + (n + 0.5) * bucket, slice.variant, operations / bucket));
    at += slice.length_ns / SECOND;
    // A line does not go on into the next slice.
    put(at, null, null);
  }
  return { xs, values, marks, length: at };
}

const atMostOne = (part: number | null, of = 1): number | null => (part == null ? null : Math.min(1, part / of));

function columnsOf(report: ImpactDocument): { cost: Column<ImpactCellJson>[]; used: Column<ImpactCellJson>[] } {
  const share = (
    name: string,
    about: string,
    rank: number,
    of: (cell: ImpactCellJson) => number | null,
  ): Column<ImpactCellJson> => ({ name, value: of, format: percent, about, rank, zero: true });
  const part = (cell: ImpactCellJson, ns: number | null) => (ns == null ? null : ns / Math.max(cell.measured_ns, 1));
  const rate = (cell: ImpactCellJson, n: number | null) =>
    n == null ? null : (n * SECOND) / Math.max(cell.measured_ns, 1);
  const head: Column<ImpactCellJson>[] = [
    { name: "clients", value: (cell) => cell.clients, rank: 0 },
    { name: "level", value: (cell) => visible(cell.name), text: true, rank: 0 },
  ];
  const host = (cell: ImpactCellJson) =>
    report.processors ? atMostOne(part(cell, cell.host_busy_ns), report.processors) : null;
  const disk = (cell: ImpactCellJson) => atMostOne(part(cell, cell.disk_busy_ns));
  return {
    cost: [
      ...head,
      { name: "ops/s", value: (cell) => cell.throughput, format: count, rank: 0 },
      {
        name: "loss",
        value: (cell) => cell.loss,
        format: (loss) => (loss == null ? "" : percent(loss, 1)),
        rank: 0,
        zero: true,
        tone: (cell) => (cell.differs ? "worse" : ""),
      },
      {
        name: `loss, ${percent(report.confidence)} sure`,
        about: "the loss is within these bounds with this confidence",
        value: (cell) => cell.loss_low,
        show: (cell) => (cell.loss_low == null ? "" : `${percent(cell.loss_low, 1)} to ${percent(cell.loss_high, 1)}`),
        rank: 2,
        zero: true,
      },
      { name: "p50", value: (cell) => cell.p50_ns, format: duration, rank: 3 },
      { name: "p95", value: (cell) => cell.p95_ns, format: duration, rank: 4 },
      { name: "p99", value: (cell) => cell.p99_ns, format: duration, rank: 3 },
      { name: "max", value: (cell) => cell.max_ns, format: duration, rank: 5 },
      {
        name: "verdict",
        value: (cell) => (cell.differs == null ? "" : cell.differs ? "different" : "no difference"),
        show: (cell) => (cell.differs == null ? "" : cell.differs ? "different" : "no difference"),
        text: true,
        rank: 1,
      },
    ],
    used: [
      ...head,
      share("server cpu", "of one processor", 1, (cell) => part(cell, cell.server_cpu_ns)),
      share("load cpu", "of one processor", 2, (cell) => part(cell, cell.load_cpu_ns)),
      share("host cpu", "of all processors", 1, host),
      share("disk", "of its time", 1, disk),
      { name: "written/s", value: (cell) => rate(cell, cell.written_bytes), format: bytes, rank: 3, zero: true },
      { name: "log/s", value: (cell) => rate(cell, cell.log_bytes), format: bytes, rank: 3, zero: true },
      { name: "lock waits/s", value: (cell) => rate(cell, cell.lock_waits), format: count, rank: 4, zero: true },
      {
        name: "lock wait/s",
        value: (cell) => rate(cell, cell.lock_wait_us == null ? null : cell.lock_wait_us * 1e3),
        format: duration,
        rank: 4,
        zero: true,
      },
    ],
  };
}

export function ImpactPage({ report }: { report: ImpactDocument }) {
  const [range, setRange] = useState<Range | null>(null);
  const drawn = useMemo(() => placed(report), []);
  const columns = useMemo(() => columnsOf(report), []);
  const series = useMemo(
    () =>
      report.variants.map((name, at): Series => ({
        name: `level ${visible(name)}`,
        colour: colour(at),
        values: drawn.values[at]!,
      })),
    [],
  );
  const first = report.slices[0];
  const rounds = Math.max(0, ...report.slices.map((slice) => slice.round + 1));
  const facts: Fact[] = [
    [
      "test",
      `OLTP mix on ${plural(report.documents, "document")}, ${plural(rounds, "round")} of ${duration(first?.length_ns ?? 0)} for each level and number of clients, in alternation`,
    ],
  ];
  return (
    <Shell title="Impact of profiling" about={report.about} facts={facts}>
      <Words tone="verdict" lines={[...report.verdicts, report.bottleneck].filter(Boolean)} />
      {drawn.xs.length > 0 && (
        <Chart
          title="Throughput over time, by profiling level"
          x={elapsed}
          y={throughput}
          xs={drawn.xs}
          series={series}
          marks={drawn.marks}
          extent={[0, Math.max(drawn.length, 1e-3)]}
          range={range}
          onRange={setRange}
          height={380}
        />
      )}
      <section>
        <h2>Throughput and latency</h2>
        <Table name="throughput and latency" columns={columns.cost} rows={report.cells} />
      </section>
      <section>
        <h2>What was used meanwhile</h2>
        <Table name="what was used" columns={columns.used} rows={report.cells} />
      </section>
    </Shell>
  );
}

export function LongImpactPage({ report }: { report: LongImpactDocument }) {
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => report.seconds.map((_, at) => at + 0.5), []);
  const series = useMemo(
    (): Series[] => [{ name: `level ${report.level ?? "-"}`, colour: colour(0), values: report.seconds }],
    [],
  );
  const marks = report.wrapped_ns == null ? [] : [{ at: report.wrapped_ns / SECOND, name: "system.profile wraps" }];
  const facts: Fact[] = [["test", `level ${report.level ?? "-"}, ${plural(report.clients, "client")}`]];
  return (
    <Shell title="Impact of profiling, long run" about={report.about} facts={facts}>
      <Words tone="verdict" lines={[report.verdict]} />
      <div class="tiles">
        <Tile name="max, operations a second" value={count(report.seconds.reduce((most, n) => Math.max(most, n), 0))} />
      </div>
      {xs.length > 0 && (
        <Chart
          title="Throughput over time"
          x={elapsed}
          y={throughput}
          xs={xs}
          series={series}
          marks={marks}
          extent={[0, Math.max(report.seconds.length, 1)]}
          range={range}
          onRange={setRange}
          height={380}
        />
      )}
    </Shell>
  );
}
