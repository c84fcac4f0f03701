// A timeline: charts of figures on one axis, with the events as marks.

import { useMemo, useState } from "preact/hooks";

import type { Lane, LaneEvent, TimelineReport } from "../report";
import { Chart, type Mark, type Range, type Series } from "./chart";
import { visible } from "./format";
import { colour } from "./palette";
import { Table } from "./table";
import { timeTicks } from "./ticks";
import { type Clock, seconds } from "./time";
import { axis, show } from "./units";

/** Lanes of one group and unit, which share a chart. */
export function charts(lanes: readonly Lane[]): [title: string, lanes: Lane[]][] {
  const groups = new Map<string, Lane[]>();
  for (const lane of lanes) {
    const key = `${lane.group}, ${axis(lane)}`;
    groups.set(key, [...(groups.get(key) ?? []), lane]);
  }
  return [...groups];
}

export function TimelineView({ report, clock }: { report: TimelineReport; clock: Clock }) {
  const extent: Range = [seconds(report.about.start_ns ?? 0), seconds(report.about.end_ns ?? 0)];
  const [range, setRange] = useState<Range | null>(null);
  const width = (extent[1] - extent[0]) / Math.max(report.parts, 1);
  const xs = useMemo(() => Array.from({ length: report.parts }, (_, at) => extent[0] + (at + 0.5) * width), []);
  const marks = useMemo(
    () => report.events.map(({ time_ns, kind }): Mark => ({ at: seconds(time_ns), name: kind.replaceAll("_", " ") })),
    [],
  );
  return (
    <>
      <div class="charts">
        {charts(report.lanes).map(([title, lanes]) => (
          <Chart
            key={title}
            title={title}
            x={{
              name: `time (${clock.name})`,
              show: (at) => clock.full(at),
              ticks: (min, max, most) => timeTicks(min, max, most, clock),
            }}
            y={{ name: axis(lanes[0]!), show: show(lanes[0]!) }}
            xs={xs}
            series={lanes.map((lane, at): Series => ({
              name: lane.server == null ? lane.title : `${lane.server} ${lane.title}`,
              colour: colour(at),
              values: lane.values,
            }))}
            marks={marks}
            extent={extent}
            range={range}
            onRange={setRange}
            height={220}
          />
        ))}
      </div>
      {report.events.length > 0 && (
        <Table<LaneEvent>
          name="events"
          rows={report.events}
          columns={[
            { name: "time", value: ({ time_ns }) => clock.full(seconds(time_ns)), text: true, rank: 0 },
            { name: "server", value: ({ server }) => server, show: ({ server }) => String(server ?? "-"), rank: 2 },
            { name: "what", value: ({ sentence }) => visible(sentence), text: true, rank: 0, main: true },
          ]}
        />
      )}
    </>
  );
}
