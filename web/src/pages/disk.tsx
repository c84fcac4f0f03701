// disk bench: one run, and two side by side.

import { useMemo, useState } from "preact/hooks";

import { Chart, type Range, type Series } from "../parts/chart";
import type { Column } from "../parts/columns";
import { count, duration, fixed, percent, plural, visible } from "../parts/format";
import { COLOURS } from "../parts/palette";
import { type Fact, Shell, Tile, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { logTicks } from "../parts/ticks";
import { seconds, utc } from "../parts/time";
import type {
  BenchDocument,
  BenchReport,
  DeviceRates,
  DiskComparisonDocument,
  RequestsJson,
  StepJson,
} from "../report";

/** MB as mongoperf counts them. */
const MIB = 1_048_576;

const KINDS = [
  ["read", COLOURS[0]!, (step: StepJson) => step.reads],
  ["write", COLOURS[1]!, (step: StepJson) => step.writes],
  ["flush", COLOURS[2]!, (step: StepJson) => step.flushes],
] as const;

/** What the folder of a run lies on. */
function disk({ place }: BenchReport): string {
  const parts = [
    `${place.file_system ?? "unknown file system"}${place.device ? ` on ${place.device}` : ""}${place.model ? ` (${place.model})` : ""}`,
  ];
  if (place.disks.length > 0) parts.push(`made of ${place.disks.join(", ")}`);
  if (place.scheduler) parts.push(`scheduler ${place.scheduler}`);
  return visible(parts.join(", "));
}

/** What a run did, in words. */
function work({ settings, engine }: BenchReport): string {
  const what = settings.r && settings.w ? "reads and writes" : settings.w ? "writes" : "reads";
  const flush = settings.w && settings.fdatasync && !settings.mmf ? ", fdatasync after each write" : "";
  const way = settings.mmf ? "mapped" : settings.direct ? "direct I/O" : "through the page cache";
  return visible(
    `${settings.access} ${what} of ${settings.recSizeKB} KiB in a file of ${settings.fileSizeMB} MiB${flush}, ${way}, engine ${engine}`,
  );
}

/** When a run began and how long it took. */
function when(run: BenchReport): string {
  const length = run.steps.reduce((sum, step) => sum + step.seconds, 0);
  return `${utc().full(seconds(run.started_ns))} UTC (${plural(run.steps.length, "step")}, ${duration(length * 1e9)})`;
}

const machine = ({ place, settings }: BenchReport): string =>
  visible(`Linux ${place.kernel ?? "unknown"}, ${place.processors} processors, seed ${settings.seed}`);

const positive = (value: number | null | undefined): number | null =>
  value != null && Number.isFinite(value) && value > 0 ? value : null;

/** Numbers in flight of all runs, each once. */
const inFlight = (runs: readonly BenchReport[]): number[] =>
  [...new Set(runs.flatMap((run) => run.steps.map((step) => step.in_flight)))]
    .filter((n) => n > 0)
    .sort((a, b) => a - b);

const valuesOf = (run: BenchReport, xs: readonly number[], of: (step: StepJson) => number | null | undefined) =>
  xs.map((n) => {
    const step = run.steps.find((step) => step.in_flight === n);
    return step ? positive(of(step)) : null;
  });

/** Throughput and latency over the number of requests in flight, of one run or several. */
function Plots({
  runs,
  names,
  knee,
}: {
  runs: readonly BenchReport[];
  names: readonly string[];
  knee?: number | null;
}) {
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => inFlight(runs), []);
  const series = useMemo(() => {
    const isOne = runs.length === 1;
    const rates: Series[] = runs.map((run, at) => ({
      name: isOne ? "operations/s" : names[at]!,
      colour: COLOURS[at]!,
      dots: true,
      values: valuesOf(run, xs, (step) => step.operations_per_second),
    }));
    const waits = runs.flatMap((run, at) => {
      const kinds = KINDS.filter(([, , kind]) => run.steps.some((step) => kind(step)));
      return (isOne ? kinds : kinds.slice(0, 1)).flatMap(([name, own, kind]): Series[] => {
        const colour = isOne ? own : COLOURS[at]!;
        const full = isOne ? name : `${names[at]} ${name}`;
        return [
          { name: `${full} p50`, colour, dots: true, values: valuesOf(run, xs, (step) => kind(step)?.latency_ns.p50) },
          {
            name: `${full} p99`,
            colour,
            dots: true,
            dashed: true,
            values: valuesOf(run, xs, (step) => kind(step)?.latency_ns.p99),
          },
        ];
      });
    });
    return { rates, waits };
  }, []);
  if (xs.length === 0) return <p class="dim">Nothing was measured.</p>;
  const x = {
    name: "requests in flight",
    log: 2,
    show: (n: number) => `${Math.round(n)} in flight`,
    ticks: (min: number, max: number, most: number) => logTicks(min, max, most, 2, (n) => String(Math.round(n))),
  };
  const extent: Range = [xs[0]! * 0.9, Math.max(xs[xs.length - 1]!, 2) * 1.1];
  const shared = {
    x,
    xs,
    extent,
    range,
    onRange: setRange,
    height: 320,
    ...(knee ? { marks: [{ at: knee, name: "knee" }] } : {}),
  };
  return (
    <div class="charts">
      <Chart
        title="Throughput"
        y={{ name: "operations a second", show: (v, more) => count(v, more) + "/s" }}
        series={series.rates}
        {...shared}
      />
      <Chart title="Latency" y={{ name: "latency", log: 10, show: duration }} series={series.waits} {...shared} />
    </div>
  );
}

interface StepRow {
  step: StepJson;
  kind: string;
  of: RequestsJson;
}

const stepColumns = (run: BenchReport): Column<StepRow>[] => [
  { name: "in flight", value: ({ step }) => step.in_flight, rank: 0 },
  { name: "ops/s", value: ({ step }) => step.operations_per_second, format: count, rank: 0 },
  {
    name: "MB/s",
    value: ({ step }) => (run.settings.mmf ? null : step.bytes_per_second / MIB),
    format: count,
    about: "of 1,048,576 bytes, as mongoperf counts",
    rank: 3,
  },
  {
    name: "cpu/op",
    value: ({ step }) => step.cpu.ns_per_operation,
    format: duration,
    about: "processor time of one read or write",
    rank: 5,
    zero: true,
  },
  {
    name: "busy",
    value: ({ step }) => step.cpu.machine_busy,
    format: percent,
    about: "share of all processors that was busy with anything",
    rank: 6,
  },
  { name: "kind", value: ({ kind }) => kind, text: true, rank: 1 },
  { name: "count", value: ({ of }) => of.count, format: count, rank: 7 },
  ...QUANTILES.map(([name, rank]): Column<StepRow> => ({
    name,
    value: ({ of }) => of.latency_ns[name],
    format: duration,
    rank,
    zero: true,
  })),
];

const QUANTILES = [
  ["p50", 1],
  ["p95", 4],
  ["p99", 1],
  ["p99.9", 4],
  ["max", 4],
] as const;

interface DeviceRow {
  step: StepJson;
  rates: DeviceRates;
}

/** The columns of iostat -x, in its order and units, with how much each matters here. */
const IOSTAT: [name: Exclude<keyof DeviceRates, "device">, rank: number][] = [
  ["r/s", 2],
  ["rkB/s", 4],
  ["rrqm/s", 8],
  ["%rrqm", 9],
  ["r_await", 2],
  ["rareq-sz", 7],
  ["w/s", 2],
  ["wkB/s", 4],
  ["wrqm/s", 8],
  ["%wrqm", 9],
  ["w_await", 2],
  ["wareq-sz", 7],
  ["d/s", 10],
  ["dkB/s", 10],
  ["drqm/s", 10],
  ["%drqm", 10],
  ["d_await", 10],
  ["dareq-sz", 10],
  ["f/s", 6],
  ["f_await", 5],
  ["aqu-sz", 2],
  ["%util", 1],
];

const DEVICES: Column<DeviceRow>[] = [
  { name: "in flight", value: ({ step }) => step.in_flight, rank: 0 },
  { name: "device", value: ({ rates }) => visible(rates.device), text: true, rank: 0 },
  ...IOSTAT.map(([name, rank]): Column<DeviceRow> => ({
    name,
    value: ({ rates }) => rates[name],
    format: fixed,
    rank,
  })),
];

export function DiskPage({ report: run }: { report: BenchDocument }) {
  const { verdict } = run;
  const knee = verdict && !verdict.still_scaling ? verdict.knee_in_flight : null;
  const rows = useMemo(
    () =>
      run.steps.flatMap((step) =>
        KINDS.flatMap(([kind, , of]): StepRow[] => {
          const found = of(step);
          return found ? [{ step, kind, of: found }] : [];
        }),
      ),
    [],
  );
  const columns = useMemo(() => stepColumns(run), []);
  const devices = useMemo(
    () =>
      run.steps.flatMap((step) =>
        [...(step.device ? [step.device] : []), ...step.disks].map((rates): DeviceRow => ({ step, rates })),
      ),
    [],
  );
  const facts: Fact[] = [
    ["disk", disk(run)],
    ["test", `${work(run)}, ${plural(run.steps.length, "step")}`],
    ["machine", machine(run)],
  ];
  return (
    <Shell title="Disk test" about={run.about} facts={facts}>
      <div class="tiles">
        {verdict && <Tile name="best, operations a second" value={count(verdict.best_per_second)} />}
        {knee !== null && <Tile name="in flight at the knee" value={String(knee)} />}
        {verdict && !["not-reached", "unknown"].includes(verdict.limit) && (
          <Tile name="limited by" value={verdict.limit.replace("-", " ")} />
        )}
        {verdict?.class != null && <Tile name="comes nearest to" value={visible(verdict.class)} />}
      </div>
      <Words lines={[...(verdict?.words ?? []), ...run.notes]} tone="verdict" />
      <Plots runs={[run]} names={[""]} knee={knee} />
      <section>
        <h2>Steps</h2>
        <Table
          name="steps"
          columns={columns}
          rows={rows}
          rowClass={({ step }) => (step.in_flight === knee ? "knee" : "")}
        />
        {knee !== null && (
          <p class="dim">The knee is marked: the lowest number in flight that gives nine tenths of the best rate.</p>
        )}
      </section>
      <section>
        <h2>
          The device meanwhile, as <code>iostat -x</code> shows it
        </h2>
        {devices.length > 0 ? (
          <Table name="devices" columns={DEVICES} rows={devices} />
        ) : (
          <p>The kernel counts no device below this file system.</p>
        )}
      </section>
      {run.probes.length > 0 && (
        <section>
          <h2>Probes</h2>
          <Table
            name="probes"
            rows={run.probes}
            columns={[
              {
                name: "probe",
                value: (probe) => `${probe.sequential ? "sequential" : "random"}, ${probe.record_bytes / 1024} KiB`,
                text: true,
                rank: 0,
              },
              { name: "in flight", value: (probe) => probe.in_flight, rank: 1 },
              { name: "ops/s", value: (probe) => probe.operations_per_second, format: count, rank: 1 },
              { name: "MB/s", value: (probe) => probe.bytes_per_second / MIB, format: count, rank: 2 },
              { name: "p50", value: (probe) => probe.latency_ns.p50, format: duration, rank: 3 },
              { name: "p99", value: (probe) => probe.latency_ns.p99, format: duration, rank: 3 },
            ]}
          />
        </section>
      )}
      <p class="dim">MB is 1,048,576 bytes, as mongoperf counts.</p>
    </Shell>
  );
}

const FASTER: Record<string, string> = { A: "A is faster", B: "B is faster", neither: "no visible difference" };

export function DiskComparisonPage({ report }: { report: DiskComparisonDocument }) {
  // Two runs of one name are told apart by their letters.
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
