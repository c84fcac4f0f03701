// why: where the time of each query shape went inside the server.

import { useMemo, useState } from "preact/hooks";

import { Chart, type Range } from "../parts/chart";
import type { Column } from "../parts/columns";
import { bytes, count, duration, exact, fixed, percent, plural, visible } from "../parts/format";
import { REST } from "../parts/palette";
import { Facts, Shell, Tile, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { timeTicks } from "../parts/ticks";
import { seconds, utc } from "../parts/time";
import type { FileWaitsJson, InProgressJson, PartJson, ProcessLimitJson, ShapeTimeJson, WhyReport } from "../report";

/** Parts in words, with their colours: what runs is green, disks are blue, locks are red. */
const PARTS: Record<string, [words: string, colour: string]> = {
  cpu: ["on a processor", "#2a9d63"],
  run_queue: ["waiting for a processor", "#b59a00"],
  yield: ["giving way to other threads", "#6b8e23"],
  file_read: ["waiting for reads of files", "#3b7dd8"],
  page_fault: ["waiting for pages of memory", "#1aa3b5"],
  file_write: ["waiting for writes to files", "#5566aa"],
  flush: ["waiting for flushes to disk", "#8a6fd1"],
  futex: ["waiting for a mutex, a ticket or a condition", "#d64545"],
  poll: ["waiting for a lock, replication or another server", "#c0428a"],
  backoff: ["pausing for a busy page (WiredTiger)", "#e07b39"],
  sleep: ["pausing after a write conflict", "#cc77aa"],
  send: ["waiting for the client to take the reply", "#a0622d"],
  other_server: ["waiting for a socket of another server", "#7a5195"],
  other: ["waiting in other system calls", REST],
  not_yet_read: ["not yet read by the server", "#b9a27c"],
  unexplained: ["unexplained: events were lost", "#c3c8cf"],
};

/** What a part is called, and its colour. */
export const partOf = (name: string): [words: string, colour: string] => PARTS[name] ?? [name, REST];

/** Counts of operations and events that the figures leave out or estimate, in words as in the text report. */
const LIMITS: Record<string, string> = {
  without_wire: "Operations of the server's threads that were not seen on the wire",
  without_thread: "Operations on the wire that no traced thread executed",
  continued: "Parts of replies that no request asked for",
  pipelined: "Operations that cannot be divided, because several requests came at once",
  answered_elsewhere:
    "Operations that cannot be divided, because another thread sent the reply: the server uses a thread pool",
  foreign_replies: "Operations that cannot be divided, because their thread serves several requests at once",
  switches_missed: "Context switches that the kernel did not report; their times come from the scheduler",
  waits_without_class: "Long waits without a class, because there were too many; those with one stand for them",
};
/** Counts of what was lost. */
const LOSSES: Record<string, string> = {
  ring_full: "Operations lost because the kernel's ring buffer was full",
  threads_full: "Events lost because the table of threads was full",
  unreadable: "Message headers that could not be read",
  programs_skipped: "Events skipped by the kernel",
  blockers_turned_away: "Waits whose blocker was not kept, because there were too many",
  packets_dropped: "Packets dropped by the kernel",
  encrypted_unread: "Connections encrypted with TLS that could not be read",
  encrypted_unmapped: "Reads and writes of TLS sessions whose connection is unknown",
  encrypted_lost: "Parts of encrypted connections lost in the kernel",
};
/** Share of the periods in which threads were stopped, from which on that is worth a look. */
const MIN_THROTTLED = 0.05;
/** The one count that is neither a limit nor a loss. */
const JOINED = "joined";

/** What was not seen: what the figures leave out or estimate, and what was lost. */
export function unseen(coverage: Record<string, number>): { limits: [string, number][]; losses: [string, number][] } {
  const limits: [string, number][] = [];
  const losses: [string, number][] = [];
  for (const [name, n] of Object.entries(coverage)) {
    if (n === 0 || name === JOINED) continue;
    if (name in LIMITS) limits.push([LIMITS[name]!, n]);
    else losses.push([LOSSES[name] ?? name, n]);
  }
  return { limits, losses };
}

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
          <Table name="files of all shapes" rows={report.files} columns={FILES} />
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

const FILES: Column<FileWaitsJson>[] = [
  { name: "waited", value: ({ wait_ns }) => wait_ns, format: duration, rank: 0 },
  { name: "reads", value: ({ reads }) => reads, format: count, rank: 1 },
  { name: "bytes", value: ({ bytes }) => bytes, format: bytes, rank: 2 },
  { name: "file", value: (file) => visible(file.name ?? `inode ${file.inode}`), text: true, rank: 0 },
  { name: "shapes", value: waitedBy, text: true, main: true },
];

/** The shapes that waited for a file, each with its share of the time. */
export function waitedBy({ shapes }: Pick<FileWaitsJson, "shapes">): string {
  return shapes.map(({ shape_id, command, share }) => `${visible(command)} (${shape_id}) ${percent(share)}`).join(", ");
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
      x={{
        name: `time (${clock.name})`,
        show: (at) => clock.full(at, 1),
        ticks: (min, max, most) => timeTicks(min, max, most, clock),
      }}
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

function Shape({ shape }: { shape: ShapeTimeJson }) {
  const name = [shape.command, shape.namespace].filter(Boolean).join(" ");
  return (
    <section>
      <h2>
        {visible(name)} <span class="dim">{percent(shape.share)} of the time</span>
      </h2>
      <pre>{visible(shape.typed)}</pre>
      <Facts
        kind="facts"
        facts={[
          ["shape", shape.shape_id && <code class="id">{shape.shape_id}</code>],
          ["shape known from", shape.origin === "log" || shape.origin === "profile" ? shape.origin : ""],
          ["application", shape.apps.join(", ")],
          ["class", /user|unknown/.test(shape.class) ? "" : shape.class],
          ["operations", exact(shape.operations)],
          ["mean", duration(shape.mean_ns)],
          ["p50", duration(shape.p50_ns)],
          ["p99", duration(shape.p99_ns)],
          ["max", duration(shape.max_ns)],
        ]}
      />
      <Words tone="verdict" lines={shape.answer} />
      <div class="split" role="img" aria-label={shape.parts.map(inWords).join(", ")}>
        {shape.parts.map((part) => (
          <i
            key={part.part}
            title={inWords(part)}
            style={{ width: `${part.share * 100}%`, background: partOf(part.part)[1] }}
          />
        ))}
      </div>
      <Table name="parts" rows={partRows(shape)} columns={PARTS_TABLE} mark={({ colour }) => colour} />
      {shape.files.length > 0 && (
        <>
          <h3>Files that it waited for{shape.has_other_files && ", and others"}</h3>
          <Table
            name="files"
            rows={shape.files}
            columns={[
              { name: "waited", value: ({ wait_ns }) => wait_ns, format: duration, rank: 0 },
              { name: "reads", value: ({ reads }) => reads, format: count, rank: 1 },
              { name: "bytes", value: ({ bytes }) => bytes, format: bytes, rank: 2 },
              { name: "file", value: (file) => visible(file.name ?? `inode ${file.inode}`), text: true, main: true },
            ]}
          />
        </>
      )}
      {shape.blockers.length > 0 && (
        <>
          <h3>Who ended its waits</h3>
          <Table
            name="blockers"
            rows={shape.blockers}
            columns={[
              { name: "waited", value: ({ wait_ns }) => wait_ns, format: duration, rank: 0 },
              { name: "share", value: ({ share }) => share, format: percent, bar: true, rank: 1 },
              { name: "waits", value: ({ waits }) => waits, format: count, rank: 2 },
              {
                name: "thread",
                value: (one) =>
                  visible(one.thread_name ?? `thread ${one.thread}`) + (one.has_others ? " and others" : ""),
                text: true,
                rank: 1,
              },
              { name: "shape", value: ({ shape_id }) => shape_id, text: true, rank: 4 },
              {
                name: "operation",
                value: ({ command }) => visible(command ?? "none, or not followed"),
                text: true,
                main: true,
              },
            ]}
          />
        </>
      )}
    </section>
  );
}

const inWords = ({ part, share }: PartJson): string => `${partOf(part)[0]} ${percent(share)}`;

/** A part of the time of a shape, or what its long waits were for. */
interface PartRow {
  name: string;
  colour: string;
  each: number;
  share: number;
  part: PartJson | null;
}

/** The parts, each with the classes of its long waits below it. */
export const partRows = ({ parts, operations }: ShapeTimeJson): PartRow[] =>
  parts.flatMap((part) => {
    const [name, colour] = partOf(part.part);
    const classes = part.classes.map((one): PartRow => ({
      name: `↳ ${visible(one.class)}`,
      colour: "transparent",
      each: one.wait_ns / operations,
      share: one.share,
      part: null,
    }));
    return [{ name, colour, each: part.ns / operations, share: part.share, part }, ...classes];
  });

const PARTS_TABLE: Column<PartRow>[] = [
  { name: "each", value: ({ each }) => each, format: duration, rank: 1, about: "mean of all operations" },
  { name: "share", value: ({ share }) => share, format: percent, bar: true, rank: 0 },
  { name: "operations", value: ({ part }) => part?.operations, format: count, rank: 3, about: "those that had any" },
  { name: "p50", value: ({ part }) => part?.p50_ns, format: duration, rank: 2, about: "of those that had any" },
  { name: "p99", value: ({ part }) => part?.p99_ns, format: duration, rank: 1, about: "of those that had any" },
  { name: "part", value: ({ name }) => name, text: true, main: true },
];

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
