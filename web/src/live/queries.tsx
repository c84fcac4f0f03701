// The queries of a range, in rows by what was chosen.

import { createContext, type VNode } from "preact";
import { useContext } from "preact/hooks";

import { type Column, latencyColumns } from "../parts/columns";
import { bytes, count, duration, percent, plural, visible } from "../parts/format";
import { LaneCharts } from "../parts/lanes";
import { Facts, Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import type { Clock } from "../parts/time";
import { seconds } from "../parts/time";
import type { Grouping } from "./address";
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
};

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
  { name: "sent", about: "bytes of replies", value: ({ response_bytes }) => response_bytes, format: bytes, rank: 5 },
  { name: "received", about: "bytes of requests", value: ({ request_bytes }) => request_bytes, format: bytes, rank: 6 },
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

function Detail({ row, clock }: { row: Row; clock: Clock }) {
  const linkToShape = useContext(LinkToShape);
  const at = (ns: number | null) => (ns === null ? "" : clock.full(seconds(ns)));
  const apps = (row.apps ?? []).map(
    (one) => `${applicationOf({ app: one.name, joined_late: one.joined_late })}: ${count(one.calls)}`,
  );
  const clients = (row.clients ?? []).map(({ address, calls }) => `${visible(address)}: ${count(calls)}`);
  return (
    <Facts
      kind="list"
      facts={[
        ["shape over time", row.shape_id && linkToShape?.(row.shape_id)],
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
}

export function QueriesView({ report, about, clock, timeline }: QueriesProps) {
  const by = report.by as Grouping;
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
        rows={report.rows as Row[]}
        columns={[...NAMES[by], ...FIGURES]}
        filter={{ words: ({ shape_id }) => shape_id ?? "" }}
        detail={(row) => <Detail row={row} clock={clock} />}
      />
      {left > 0 && <p class="dim">and {plural(left, "more row")}, with less load</p>}
    </Shell>
  );
}
