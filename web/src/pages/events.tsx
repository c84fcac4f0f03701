// What happened: the events of servers, of the machine and of the agent.

import { useMemo } from "preact/hooks";

import { GapList, gapSummary } from "../parts/changes";
import { plural, visible } from "../parts/format";
import { Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { Clock, seconds } from "../parts/time";
import type { EventJson, EventsReport } from "../report";

/** The name of a kind, as people read it. */
export const kindInWords = (kind: string): string => kind.replaceAll("_", " ");

export function EventsPage({ report }: { report: EventsReport }) {
  const { about, zone, events, left_out } = report;
  const clock = useMemo(() => new Clock(zone, seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)), [report]);
  const newest = useMemo(() => events.toReversed(), [report]);
  return (
    <Shell title="Events" about={about} clock={clock}>
      <Words tone="bad" lines={gapSummary(report.gaps, clock)} />
      {events.length === 0 && <p class="dim">No event of this time fits.</p>}
      {left_out > 0 && (
        <p class="dim">{plural(left_out, "earlier event")} left out: choose a shorter range, or a kind.</p>
      )}
      <Table<EventJson>
        name="events"
        rows={newest}
        filter={{}}
        columns={[
          { name: "time", value: ({ time_ns }) => clock.full(seconds(time_ns)), text: true, rank: 0 },
          { name: "kind", value: ({ kind }) => kindInWords(kind), text: true, rank: 2 },
          {
            name: "server",
            value: ({ server }) => server,
            show: ({ server, address }) => visible(address ?? String(server ?? "-")),
            rank: 3,
          },
          { name: "what", value: ({ sentence }) => visible(sentence), text: true, rank: 0, main: true },
        ]}
      />
      <GapList gaps={report.gaps} clock={clock} />
    </Shell>
  );
}
