// disk bench: one run.

import { useMemo } from "preact/hooks";

import { type Column, latencyColumns } from "../../parts/columns";
import { count, duration, fixed, percent, plural, visible } from "../../parts/format";
import { type Fact, Shell, Tile, Words } from "../../parts/shell";
import { Table } from "../../parts/table";
import type { BenchDocument, BenchReport, DeviceRates, ProbeResult, RequestsJson, StepJson } from "../../report";
import { KINDS, Plots } from "./plots";
import { disk, machine, work } from "./run";

/** MB as mongoperf counts them. */
const MIB = 1_048_576;

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
  ...latencyColumns<StepRow>(({ of }) => of.latency_ns, { p50: 1, p95: 4, p99: 1, "p99.9": 4, max: 4 }).map(
    (column) => ({ ...column, zero: true }),
  ),
];

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
              ...latencyColumns<ProbeResult>((probe) => probe.latency_ns, { p50: 3, p99: 3 }),
            ]}
          />
        </section>
      )}
      <p class="dim">MB is 1,048,576 bytes, as mongoperf counts.</p>
    </Shell>
  );
}
