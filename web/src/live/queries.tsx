// The queries of a range, in rows by what was chosen.

import { createContext, type VNode } from "preact";
import { useContext, useMemo } from "preact/hooks";

import { type Column, latencyColumns, type MoreText, shown } from "../parts/columns";
import { bytes, count, duration, percent, plural, visible } from "../parts/format";
import { LaneCharts } from "../parts/lanes";
import { Facts, Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import type { Clock } from "../parts/time";
import { seconds } from "../parts/time";
import type { Grouping } from "./address";
import { grouped } from "./groups";
import type {
  About,
  NamedCounts,
  QueriesDocument,
  QueryAppJson,
  QueryClientJson,
  QueryNamespaceJson,
  QueryRowJson,
  QueryShapeJson,
  TimelineReport,
} from "../report";

/** A row, whatever it is about: what others have is missing. */
type ShapeRow = QueryRowJson & QueryShapeJson;
type Row = QueryRowJson & Partial<QueryShapeJson & QueryNamespaceJson & QueryAppJson & QueryClientJson>;

/** A namespace; the database alone where a command names no collection. */
export const namespaceOf = ({ namespace, database, collection }: Partial<Row>): string =>
  visible(namespace ?? [database, collection].filter(Boolean).join("."));

/** An application in words; one that connected before the capture did not say its name. */
export function applicationOf({ app, other, joined_late }: Partial<Row>): string {
  if (other) return "all others";
  if (app) return visible(app);
  return joined_late ? "unknown (connected before the capture)" : "without a name";
}

const text = (name: string, value: (row: Row) => string, rank: number, main = false): Column<Row> => ({
  name,
  value,
  text: true,
  rank,
  main,
});

const NAMES: Record<Grouping, Column<Row>[]> = {
  shape: [
    text("command", ({ command }) => command ?? "", 2),
    text("namespace", namespaceOf, 1),
    text("shape", ({ shape }) => visible(shape ?? ""), 0, true),
    text("server", ({ server }) => visible(server ?? ""), 6),
  ],
  namespace: [text("namespace", namespaceOf, 0, true)],
  app: [
    text("application", applicationOf, 0, true),
    text("driver", ({ driver, driver_version }) => visible([driver, driver_version].filter(Boolean).join(" ")), 4),
  ],
  client: [text("client", ({ client, other }) => (other ? "all others" : visible(client ?? "-")), 0, true)],
  command: [text("command", ({ command }) => command ?? "", 0, true)],
  server: [text("server", ({ server }) => visible(server ?? ""), 0, true)],
};

/** The filter that finds the shapes of a row of others; undefined where none does. */
export function filterOf(row: Row, by: Grouping): string | undefined {
  const [column] = NAMES[by];
  if (by === "shape" || row.other) return undefined;
  const name = shown(column!, row);
  // No quotes stand around quotes.
  return name.includes('"') ? name : `${column!.name}:"${name}"`;
}

/** What is looked through beside the names of a row. */
const words = ({ shape_id, apps, clients }: Row): MoreText => ({
  ...(shape_id !== undefined && { id: [shape_id] }),
  ...(apps && { application: apps.map(({ name, joined_late }) => applicationOf({ app: name, joined_late })) }),
  ...(clients && { client: clients.map(({ address }) => visible(address)) }),
});

const FIGURES: Column<Row>[] = [
  {
    name: "time",
    about: "share of the time of all operations",
    value: ({ time_share }) => time_share,
    format: (share) => percent(share, 1),
    bar: true,
    rank: 0,
  },
  { name: "load", about: "operations in progress", value: ({ load }) => load, format: count, rank: 3 },
  { name: "calls", value: ({ calls }) => calls, format: count, rank: 2 },
  { name: "calls/s", value: ({ calls_per_s }) => calls_per_s, format: count, rank: 1 },
  ...latencyColumns<Row>((row) => row.latency_ns, { mean: 3, p50: 4, p95: 4, p99: 1, max: 5 }),
  {
    name: "failed",
    value: ({ failed }) => failed,
    format: count,
    rank: 2,
    tone: ({ failed }) => ((failed ?? 0) > 0 ? "bad" : ""),
  },
  { name: "in flight", value: ({ in_flight }) => in_flight, format: count, rank: 5 },
  {
    name: "sent",
    about: "bytes of replies",
    value: ({ response_bytes }) => response_bytes,
    unit: "bytes",
    format: bytes,
    rank: 5,
  },
  {
    name: "received",
    about: "bytes of requests",
    value: ({ request_bytes }) => request_bytes,
    unit: "bytes",
    format: bytes,
    rank: 6,
  },
  {
    name: "returned",
    about: "documents returned",
    value: ({ docs_returned }) => docs_returned,
    format: count,
    rank: 6,
  },
  { name: "changed", about: "documents changed", value: ({ docs_affected }) => docs_affected, format: count, rank: 6 },
];

/** Error codes with how often each was answered. */
export const errorWords = (errors: NamedCounts | null): string =>
  Object.entries(errors ?? {})
    .map(([code, times]) => `${code} (${plural(times, "time")})`)
    .join(", ");

/** A link to the view of the shape with this id. */
export const LinkToShape = createContext<((shape: string) => VNode) | undefined>(undefined);

/** A link to the shapes that a filter finds. */
export const LinkToShapes = createContext<((filter: string) => VNode) | undefined>(undefined);

function Detail({ row, by, clock }: { row: Row; by: Grouping; clock: Clock }) {
  const linkToShape = useContext(LinkToShape);
  const linkToShapes = useContext(LinkToShapes);
  const filter = filterOf(row, by);
  const at = (ns: number | null | undefined) => (ns == null ? "" : clock.full(seconds(ns)));
  const apps = (row.apps ?? []).map(
    (one) => `${applicationOf({ app: one.name, joined_late: one.joined_late })}: ${count(one.calls)}`,
  );
  const clients = (row.clients ?? []).map(({ address, calls }) => `${visible(address)}: ${count(calls)}`);
  return (
    <Facts
      kind="list"
      facts={[
        ["shape over time", row.shape_id && linkToShape?.(row.shape_id)],
        ["its shapes", filter !== undefined && linkToShapes?.(filter)],
        ["first seen", at(row.first_seen)],
        ["last seen", at(row.last_seen)],
        ["errors", errorWords(row.errors)],
        ["applications, calls", apps.join("; ")],
        ["clients, calls", clients.join("; ")],
        [
          "where its time went",
          (row.split?.parts ?? []).map(({ part, share }) => `${part} ${percent(share)}`).join(", "),
        ],
      ]}
    />
  );
}

export interface QueriesProps {
  report: QueriesDocument;
  about: About;
  clock: Clock;
  /** All queries over time; undefined if that is not known. */
  timeline: TimelineReport | undefined;
  by: Grouping;
  filter: string;
  onFilter: (filter: string) => void;
}

export function QueriesView({ report, about, clock, timeline, by, filter, onFilter }: QueriesProps) {
  const rows = useMemo(
    () => (by === "command" || by === "server" ? grouped(report.rows as ShapeRow[], by) : report.rows) as Row[],
    [report, by],
  );
  const left = report.rows_total - report.rows.length;
  const { totals } = report;
  const facts: [string, string][] = [
    ["calls/s", count(totals.calls_per_s)],
    ["p50", duration(totals.latency_ns.p50)],
    ["p99", duration(totals.latency_ns.p99)],
    ["failed", count(totals.failed)],
  ];
  return (
    <Shell title="Queries" about={about} clock={clock} facts={facts}>
      <Words tone="bad" lines={report.notes} />
      {timeline && <LaneCharts report={timeline} clock={clock} group="queries" />}
      <Table<Row>
        key={by}
        name="queries"
        rows={rows}
        columns={[...NAMES[by], ...FIGURES]}
        filter={{ words, text: filter, commit: onFilter }}
        document={(rows) => ({ ...report, by, rows })}
        detail={(row) => <Detail row={row} by={by} clock={clock} />}
      />
      {left > 0 && (
        <p class="dim">and {plural(left, "more row")}, with less load, which the filter does not look through</p>
      )}
    </Shell>
  );
}
