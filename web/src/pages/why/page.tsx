// why: where the time of each query shape went inside the server.

import { useMemo, useState } from "preact/hooks";

import { Chart, type Range } from "../../parts/chart";
import type { Column } from "../../parts/columns";
import { count, duration, exact, fixed, percent, plural, visible } from "../../parts/format";
import { Facts, Shell, Tile, Words } from "../../parts/shell";
import { Table } from "../../parts/table";
import { timeAxis } from "../../parts/ticks";
import { seconds, utc } from "../../parts/time";
import type { InProgressJson, ProcessLimitJson, WhyReport } from "../../report";
import { FILES_OF_ALL } from "./files";
import { Shape } from "./shape";
import { partOf, unseen } from "./words";

/** Share of the periods in which threads were stopped, from which on that is worth a look. */
const MIN_THROTTLED = 0.05;
/** Figures of the whole report that stand out. */
export const tiles = (report: WhyReport): [name: string, value: string][] => [
  [`operations in ${duration(report.seconds * 1e9)}`, count(report.operations)],
  ["in progress on average", fixed(report.active)],
  ...report.active_parts.slice(0, 4).map(({ part, share }): [string, string] => [partOf(part)[0], percent(share)]),
];

/** How many processors the processes can use at a time: those of the machine, or what all their groups allow together. */
const usable = ({ limits = [], processes, processors }: WhyReport): number => {
  const allowed = limits.reduce((sum, limit) => sum + limit.processors, 0);
  return limits.length > 0 && limits.length >= processes.length ? Math.min(allowed, processors) : processors;
};

/** A number of processors that may be a fraction: `1.5 processors`. */
export function processorsText(n: number): string {
  const shown = String(Math.round(n * 100) / 100);
  return `${shown} ${shown === "1" ? "processor" : "processors"}`;
}

/** The processors that can be used: `16 processors`; where control groups allow less, `1.5 of 16 processors`. */
export function processors(report: WhyReport): string {
  const all = plural(report.processors, "processor");
  const few = usable(report);
  return few < report.processors ? `${Math.round(few * 100) / 100} of ${all}` : all;
}

export const LIMITS_TABLE: Column<ProcessLimitJson>[] = [
  { name: "process", value: ({ process }) => process, show: ({ process }) => String(process), rank: 0, zero: true },
  {
    name: "allowed",
    value: ({ processors }) => processors,
    show: (one) => processorsText(one.processors),
    about: "processor time that its control group allows",
    rank: 0,
  },
  {
    name: "throttled",
    value: ({ throttled }) => throttled,
    show: ({ throttled }) => percent(throttled, 1),
    zero: true,
    about: "share of the periods in which its threads were stopped",
    rank: 0,
    tone: ({ throttled }) => ((throttled ?? 0) >= MIN_THROTTLED ? "bad" : ""),
  },
  {
    name: "stopped for",
    value: ({ throttled_ns }) => throttled_ns,
    show: ({ throttled_ns }) => duration(throttled_ns),
    about: "time that its threads were stopped",
    rank: 1,
  },
];

export function WhyPage({ report }: { report: WhyReport }) {
  const { limits, losses } = unseen(report.coverage);
  return (
    <Shell
      title="Where the time goes"
      about={report.about}
      facts={[
        ["process", report.processes.join(", ")],
        ["processors", processors(report)],
        ["connections", report.sample_every > 1 && `1/${report.sample_every} of them`],
      ]}
    >
      <Words tone="bad" lines={losses.map(([what, n]) => `${what}: ${exact(n)}`)} />
      <div class="tiles">
        {tiles(report).map(([name, value]) => (
          <Tile key={name} name={name} value={value} />
        ))}
      </div>
      <Activity report={report} />
      {(report.limits ?? []).length > 0 && (
        <section>
          <h2>Limits of processor time</h2>
          <p class="dim">
            What control groups allow. Time in which they stop threads counts as waiting for a processor.
          </p>
          <Table name="limits" rows={report.limits!} columns={LIMITS_TABLE} />
        </section>
      )}
      {report.shapes.length === 0 && <Words tone="verdict" lines={["No operation was divided."]} />}
      {report.shapes.map((shape) => (
        <Shape key={`${shape.shape_id} ${shape.class} ${shape.role}`} shape={shape} />
      ))}
      {report.shapes_left_out > 0 && (
        <p class="dim">{plural(report.shapes_left_out, "more shape")} not shown: --limit shows more.</p>
      )}
      {report.unseen.map((shape) => (
        <Shape key={shape.command} shape={shape} />
      ))}
      {report.files.length > 0 && (
        <section>
          <h2>Files</h2>
          <p class="dim">What all shapes waited for, and which shapes waited for each file.</p>
          <Table name="files of all shapes" rows={report.files} columns={FILES_OF_ALL} />
        </section>
      )}
      {report.in_progress.length > 0 && (
        <section>
          <h2>
            Still in progress at the end{" "}
            {report.in_progress_total > report.in_progress.length && (
              <span class="dim">
                ({report.in_progress.length} of {exact(report.in_progress_total)})
              </span>
            )}
          </h2>
          <Table name="operations in progress" rows={report.in_progress} columns={IN_PROGRESS} />
        </section>
      )}
      {report.threads.length > 0 && (
        <section>
          <h2>Outside operations</h2>
          <p class="dim">Time of threads in per cent of one processor.</p>
          <Table name="threads" rows={report.threads} by="on a processor" columns={threads(report)} />
        </section>
      )}
      {report.server.sentences.length > 0 && (
        <section>
          <h2>What the server says</h2>
          <Words lines={report.server.sentences} />
        </section>
      )}
      <Facts kind="list" facts={limits.map(([what, n]) => [what, exact(n)])} />
    </Shell>
  );
}

const IN_PROGRESS: Column<InProgressJson>[] = [
  { name: "so far", value: ({ elapsed_ns }) => elapsed_ns, show: (one) => sinceStart(one.elapsed_ns), rank: 0 },
  { name: "now", value: ({ doing }) => doing && partOf(doing)[0], text: true, rank: 1 },
  { name: "for", value: ({ doing_ns }) => doing_ns, format: duration, rank: 2 },
  { name: "class", value: (one) => one.class && visible(one.class), text: true, rank: 1 },
  { name: "thread", value: (one) => visible(one.thread_name), text: true, rank: 3 },
  { name: "application", value: ({ app }) => app && visible(app), text: true, rank: 3 },
  { name: "client", value: ({ client }) => client, text: true, rank: 4 },
  {
    name: "operation",
    value: (one) => visible([one.command, one.namespace, one.typed].filter(Boolean).join(" ") || "not captured"),
    text: true,
    main: true,
  },
];

/** How long an operation has taken; one that began before the trace has no known length. */
export const sinceStart = (ns: number | null): string => (ns == null ? "since before the trace" : duration(ns));

/** The series of the chart, and the borders of their intervals in seconds. */
export function activity({ start_ns, end_ns, width_ns, parts }: WhyReport["activity"]) {
  const length = parts[0]?.active.length ?? 0;
  const xs = Array.from({ length }, (_, at) => seconds(start_ns + at * width_ns));
  const series = parts.map(({ part, active }) => {
    const [name, colour] = partOf(part);
    return { name, colour, values: [...active, null] };
  });
  return { xs: [...xs, seconds(end_ns)], series };
}

function Activity({ report }: { report: WhyReport }) {
  const [range, setRange] = useState<Range | null>(null);
  const { xs, series } = useMemo(() => activity(report.activity), []);
  const clock = utc();
  if (series.length === 0) return null;
  return (
    <Chart
      title="Operations in progress"
      x={timeAxis(clock, 1)}
      y={{ name: "operations in progress", show: (value, more) => count(value, more) }}
      xs={xs}
      series={series}
      stacked
      level={{ at: usable(report), name: processorsText(usable(report)) }}
      extent={[seconds(report.activity.start_ns), seconds(report.activity.end_ns)]}
      range={range}
      onRange={setRange}
      height={300}
    />
  );
}

function threads(report: WhyReport): Column<WhyReport["threads"][number]>[] {
  const share = (ns: number) => ns / 1e9 / report.seconds;
  const format = (value: number | null) => percent(value, 1);
  return [
    { name: "threads", value: ({ threads }) => threads, rank: 3 },
    { name: "on a processor", value: ({ cpu_ns }) => share(cpu_ns), format, rank: 0 },
    { name: "run queue", value: ({ run_queue_ns }) => share(run_queue_ns), format, rank: 2 },
    { name: "reads", value: ({ read_ns }) => share(read_ns), format, rank: 1 },
    { name: "writes", value: ({ write_ns }) => share(write_ns), format, rank: 1 },
    { name: "name", value: ({ role }) => visible(role), text: true, main: true },
  ];
}
