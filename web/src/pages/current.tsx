// report of currentOp: the operations that a server was working on at one moment.

import type { Column } from "../parts/columns";
import { duration, exact, percent, visible } from "../parts/format";
import { Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import type { CurrentOperationJson, CurrentReportDocument, CurrentWaitJson } from "../report";

function wait({ kind, name }: CurrentWaitJson): string {
  const named = name == null ? "" : ` ${name}`;
  return { lock: "a lock", latch: `the latch${named}`, flow_control: "flow control" }[kind] ?? `the ${kind}${named}`;
}

/** What an operation waits for, in the words of the text report. */
export function waitsFor({ waits, awaits_topology, killed }: CurrentOperationJson): string {
  const all = [...waits.map(wait), ...(awaits_topology ? ["topology (by design)"] : []), ...(killed ? ["killed"] : [])];
  return all.join(", ");
}

/** Nanoseconds of microseconds. */
const ns = (us: number | null) => (us == null ? null : us * 1e3);

const text = (name: string, rank: number, value: (row: CurrentOperationJson) => string) =>
  ({ name, rank, text: true, value: (row) => visible(value(row)) }) satisfies Column<CurrentOperationJson>;

const COLUMNS: Column<CurrentOperationJson>[] = [
  { name: "age", value: ({ age_us }) => ns(age_us), format: duration, rank: 0, about: "how long it had run" },
  text("waits for", 1, waitsFor),
  { name: "lock wait", value: (row) => ns(row.lock_wait_us), format: duration, rank: 4, about: "for locks so far" },
  { name: "yields", value: ({ yields }) => yields, format: exact, rank: 5 },
  {
    name: "done",
    value: ({ progress }) => (progress ? progress[0] / Math.max(progress[1], 1) : null),
    format: (share) => percent(share),
    rank: 3,
  },
  text("thread", 6, ({ thread }) => thread),
  text("opid", 2, ({ opid }) => opid),
  text("client", 7, ({ client }) => client),
  text("application", 8, ({ app }) => app),
  text("plan", 3, ({ plan }) => plan),
  text("command", 1, ({ command }) => command),
  text("namespace", 1, ({ namespace }) => namespace),
  {
    name: "shape",
    value: ({ shape, identity }) =>
      ({ exact: visible(shape), partial: `(partial) ${visible(shape)}` })[identity] ?? "-",
    text: true,
    main: true,
  },
];

export function CurrentPage({ report }: { report: CurrentReportDocument }) {
  return (
    <Shell title="Operations in flight" about={report.about}>
      {report.files.map(({ name, sentence, left_out, report: { operations, matching } }) => (
        <section key={name}>
          {report.files.length > 1 && <h2>{visible(name)}</h2>}
          <Words tone="verdict" lines={[sentence]} />
          <Words lines={left_out} />
          <Table name={`operations of ${name}`} rows={operations} columns={COLUMNS} filter={{}} />
          {matching > operations.length && <p class="dim">… and {exact(matching - operations.length)} more</p>}
        </section>
      ))}
    </Shell>
  );
}
