// what-changed, timeline, and report of a span: what an agent remembers.

import { useMemo } from "preact/hooks";

import { ChangesView, GapList, gapSummary, InShort } from "../parts/changes";
import { type Column, latencyColumns } from "../parts/columns";
import { count, visible } from "../parts/format";
import { TimelineView } from "../parts/lanes";
import { Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { Clock, seconds } from "../parts/time";
import { show } from "../parts/units";
import type {
  About,
  ChangesReport,
  IncidentReport,
  QueryRowJson,
  QueryShapeJson,
  SeriesFigureJson,
  TimelineReport,
  ZoneObject,
} from "../report";

const useClock = ({ about, zone }: { about: About; zone: ZoneObject }): Clock =>
  useMemo(() => new Clock(zone, seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)), [about, zone]);

export function ChangesPage({ report }: { report: ChangesReport }) {
  const clock = useClock(report);
  return (
    <Shell title="What changed" about={report.about} clock={clock}>
      <ChangesView report={report} clock={clock} />
    </Shell>
  );
}

export function TimelinePage({ report }: { report: TimelineReport }) {
  const clock = useClock(report);
  return (
    <Shell title="Timeline" about={report.about} clock={clock}>
      <Words tone="bad" lines={gapSummary(report.gaps, clock)} />
      <TimelineView report={report} clock={clock} />
      <GapList gaps={report.gaps} clock={clock} />
    </Shell>
  );
}

/** The rows of an incident are by shape. */
type QueryRow = QueryRowJson & QueryShapeJson;

const queries: Column<QueryRow>[] = [
  { name: "command", value: ({ command }) => command, text: true, rank: 2 },
  {
    name: "namespace",
    value: ({ database, collection }) => [database, collection].filter(Boolean).join("."),
    text: true,
    rank: 1,
  },
  { name: "shape", value: ({ shape }) => shape, text: true, rank: 0, main: true },
  {
    name: "load",
    value: ({ load }) => load,
    show: ({ load }) => count(load),
    about: "operations in progress",
    rank: 0,
  },
  { name: "calls", value: ({ calls }) => calls, show: ({ calls }) => count(calls), rank: 1 },
  ...latencyColumns<QueryRow>((row) => row.latency_ns, { p50: 4, p99: 1, max: 3 }),
  { name: "failed", value: ({ failed }) => failed, show: ({ failed }) => count(failed), rank: 3 },
];

export const figures: Column<SeriesFigureJson>[] = [
  { name: "figure", value: ({ title }) => visible(title), text: true, rank: 0, main: true },
  {
    name: "server",
    value: ({ server }) => server,
    show: ({ server, address }) => visible(address ?? String(server ?? "-")),
    rank: 3,
  },
  { name: "verdict", value: ({ verdict }) => verdict, text: true, rank: 1 },
  { name: "mean", value: ({ mean }) => mean, show: (one) => show(one)(one.mean), rank: 1 },
  { name: "min", value: ({ min }) => min, show: (one) => show(one)(one.min), rank: 4 },
  { name: "max", value: ({ max }) => max, show: (one) => show(one)(one.max), rank: 2 },
];

// Groups of figures, and their headings.
const groups = {
  internals: "Internals of the server",
  collections: "Collections and indexes",
  machine: "Machine",
};

export function IncidentPage({ report }: { report: IncidentReport }) {
  const clock = useClock(report);
  const group = (name: string) => report.figures.filter(({ group }) => group === name);
  return (
    <Shell title="Incident" about={report.about} clock={clock}>
      <InShort report={report.changes} clock={clock} />
      <section>
        <h2>Timeline</h2>
        <TimelineView report={report.timeline} clock={clock} />
      </section>
      <section>
        <h2>What changed</h2>
        <ChangesView report={report.changes} clock={clock} rest />
      </section>
      <section>
        <h2>Queries</h2>
        <Table name="queries" rows={report.queries.rows as QueryRow[]} columns={queries} filter={{}} />
      </section>
      {Object.entries(groups).map(
        ([name, title]) =>
          group(name).length > 0 && (
            <section key={name}>
              <h2>{title}</h2>
              <Table name={name} rows={group(name)} columns={figures} filter={{}} />
            </section>
          ),
      )}
    </Shell>
  );
}
