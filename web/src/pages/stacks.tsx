// stacks: what the threads of a server do and wait for, and what differs in another run.

import { useMemo } from "preact/hooks";

import type { Column } from "../parts/columns";
import { Flame } from "../parts/flame";
import { count, duration, exact, percent, plural, visible } from "../parts/format";
import { type Fact, Facts, Shell, Tile, Words } from "../parts/shell";
import { flame, path } from "../parts/stacks";
import { Table } from "../parts/table";
import type { ShareChange, StackComparison, StackReport, StackRow } from "../report";

/** Samples of one class in threads of one role. */
export interface ClassRow {
  name: string;
  role: string;
  samples: number;
  idle: boolean;
}

/** Samples by class and role, the most frequent first. */
export function classes(rows: readonly StackRow[]): ClassRow[] {
  const found = new Map<string, ClassRow>();
  for (const { class: name, role, idle, samples } of rows) {
    const key = `${name}\n${role}`;
    const row = found.get(key) ?? { name, role: role ?? "other threads", samples: 0, idle };
    row.samples += samples;
    found.set(key, row);
  }
  return [...found.values()].sort((a, b) => b.samples - a.samples);
}

const one = (value: number | null) => percent(value, 1);

export function StacksPage({ report }: { report: StackReport }) {
  const { stacks: rows, shown } = report;
  const root = useMemo(() => flame(rows, report.full_names), []);
  const groups = useMemo(() => classes(rows), []);
  const facts: Fact[] = [
    ["samples of threads with nothing to do, not shown (--all)", report.idle],
    ["samples of other threads, not shown", report.not_asked],
    ["samples without a whole stack", report.cut],
    ["samples of running threads lost: no room in the kernel", report.lost],
    ["samples without functions: too many different stacks", report.without_frames],
  ].map(([name, n]): Fact => [String(name), n ? exact(Number(n)) : null]);
  const columns: Column<ClassRow>[] = [
    { name: "samples", value: ({ samples }) => samples, format: exact, rank: 1 },
    { name: "share", value: ({ samples }) => samples / shown, format: one, bar: true, rank: 0 },
    { name: "threads", value: ({ role }) => role, text: true, rank: 1 },
    {
      name: "what they do",
      value: ({ name, idle }) => visible(name) + (idle ? " (idle)" : ""),
      text: true,
      main: true,
    },
  ];
  return (
    <Shell title="Stacks" about={report.about} facts={[["process", `${report.process.name} (${report.process.pid})`]]}>
      <Words tone="bad" lines={report.limits} />
      <div class="tiles">
        <Tile name="samples shown" value={count(shown)} about={exact(shown)} />
        <Tile name="of all samples" value={count(report.samples)} about={exact(report.samples)} />
        <Tile name="threads" value={exact(report.threads)} />
        <Tile name="snapshots" value={exact(report.snapshots)} />
        {report.walk_ns_per_thread != null && (
          <Tile name="CPU time per thread and snapshot" value={duration(report.walk_ns_per_thread)} />
        )}
      </div>
      <Facts kind="list" facts={facts} />
      <section>
        <h2>What threads do</h2>
        <Table name="classes" rows={groups} by="samples" columns={columns} />
      </section>
      {shown > 0 && (
        <section>
          <h2>Flame graph</h2>
          <Flame root={root} />
        </section>
      )}
      <section>
        <h2>Stacks</h2>
        <Table
          name="stacks"
          rows={rows}
          by="samples"
          filter={{ words: (row) => path(row, true).join(" ") }}
          detail={(row) => <StackDetail row={row} />}
          columns={[
            { name: "samples", value: ({ samples }) => samples, format: exact, rank: 1 },
            { name: "share", value: ({ samples }) => samples / shown, format: one, bar: true, rank: 0 },
            { name: "different", value: ({ threads }) => threads, format: exact, rank: 3, about: "different threads" },
            { name: "class", value: (row) => visible(row.class), text: true, rank: 1 },
            { name: "threads", value: ({ role }) => role ?? "other threads", text: true, rank: 2 },
            { name: "call", value: ({ call }) => call, text: true, rank: 3, about: "system call" },
            { name: "functions", value: (row) => functions(row, report.full_names), text: true, main: true },
          ]}
        />
      </section>
    </Shell>
  );
}

/** Functions in one line, the innermost first. */
export function functions(row: StackRow, isFull: boolean): string {
  // Without the class and the role.
  const names = path(row, isFull).slice(1, -1).reverse();
  const plain = names.map((name) => visible(isFull ? name : name.replace(/^mongo::/, "")));
  return [...plain, ...(row.cut ? [`… (${row.cut})`] : [])].join(" < ");
}

const StackDetail = ({ row }: { row: StackRow }) => (
  <div class="details">
    <Facts
      kind="list"
      facts={[
        ["state", row.state],
        ["system call", row.call],
        ["different threads", exact(row.threads)],
        ["not whole", row.cut],
      ]}
    />
    <ol class="frames">
      {row.frames.map(({ function: name, library }, at) => (
        <li key={at}>
          <code>{visible(name)}</code> {library && <span class="dim">{visible(library)}</span>}
        </li>
      ))}
    </ol>
  </div>
);

export function StackComparisonPage({ report }: { report: StackComparison }) {
  const columns: Column<ShareChange>[] = [
    { name: "in A", value: ({ share }) => share[0], format: one, zero: true, rank: 0 },
    { name: "in B", value: ({ share }) => share[1], format: one, zero: true, rank: 0 },
    {
      name: "more in B",
      value: ({ share }) => share[1] - share[0],
      format: (value) => (value != null && value > 0 ? "+" : "") + one(value),
      rank: 1,
    },
    { name: "name", value: ({ name }) => visible(name), text: true, main: true },
  ];
  return (
    <Shell
      title="Stacks compared"
      about={report.about}
      facts={report.samples.map((n, at): Fact => [
        "AB"[at]!,
        `${report.about.sources[at] ?? "?"}: ${plural(n, "sample")}`,
      ])}
    >
      <Words tone="verdict" lines={report.words} />
      {(
        [
          ["What threads do", report.classes],
          ["Functions", report.functions],
        ] as const
      ).map(([title, changes]) => (
        <section key={title}>
          <h2>{title}</h2>
          <Table name={title} rows={changes.changed} columns={columns} />
          <p class="dim">{exact(changes.unchanged)} unchanged within noise.</p>
        </section>
      ))}
    </Shell>
  );
}
