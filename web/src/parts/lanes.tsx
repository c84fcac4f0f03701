// A timeline: charts of figures on one axis, with the events as marks.

import { createContext } from "preact";
import { useContext, useMemo, useState } from "preact/hooks";

import type { EventJson, LaneJson, TimelineReport } from "../report";
import { Chart, type Mark, type Range, type Series } from "./chart";
import { useEarlier } from "./earlier";
import { plural, visible } from "./format";
import { colour } from "./palette";
import { Table } from "./table";
import { timeAxis } from "./ticks";
import { type Clock, seconds } from "./time";
import { span, xsOf } from "./timeline";
import { axis, chartTitle, show } from "./units";

/** Groups of lanes, and what charts of several figures of theirs are called. */
const GROUPS: Record<string, string> = {
  queries: "Queries",
  internals: "Internals of the server",
  machine: "Machine",
};

/** What the axis of values is called: the figure if there is only one, else the unit. */
export function yName(lanes: readonly LaneJson[]): string {
  const titles = new Set(lanes.map(({ title }) => visible(title)));
  return titles.size === 1 ? [...titles][0]! : axis(lanes[0]!);
}

/** What a line of a chart is called: the server, the figure, and the limit that it is over. */
export function laneName({ server, address, title, verdict, limit, unit }: LaneJson): string {
  const name = server == null ? visible(title) : `${visible(address ?? String(server))} ${visible(title)}`;
  return verdict == null || limit == null ? name : `${name} (${verdict} from ${show({ unit })(limit)})`;
}

/** Lanes of one group and unit, which share a chart. */
export function charts(lanes: readonly LaneJson[]): [title: string, lanes: LaneJson[]][] {
  const groups = new Map<string, LaneJson[]>();
  for (const lane of lanes) {
    const key = `${lane.group} ${lane.unit}`;
    groups.set(key, [...(groups.get(key) ?? []), lane]);
  }
  return [...groups.values()].map((lanes) => {
    const [{ group }] = lanes as [LaneJson];
    return [chartTitle(GROUPS[group] ?? group, lanes), lanes];
  });
}

/** The values of the same lane in another timeline. The title says whether it is of the wire or of the log. */
export const sameLane =
  ({ group, id, title, server, address }: LaneJson) =>
  ({ lanes }: TimelineReport): readonly (number | null)[] | undefined =>
    lanes.find(
      (one) =>
        one.group === group && one.id === id && one.title === title && one.server === server && one.address === address,
    )?.values;

/** Why a group has no chart. */
export const withoutLanes = ({
  lanes,
  internals_judged,
}: Pick<TimelineReport, "lanes" | "internals_judged">): string[] =>
  Object.entries(GROUPS)
    .filter(([group]) => lanes.every((lane) => lane.group !== group))
    .map(
      ([group, title]) =>
        `${title}: ${group === "internals" && internals_judged > 0 ? "no judged figure is over its limit" : "nothing observed"}.`,
    );

/** What a page does with a part of its time that somebody has zoomed into; undefined where it can show no other time. */
export const ChooseRange = createContext<((seconds: Range) => void) | undefined>(undefined);

/** Shows only what somebody has zoomed into, in all views. */
export function ShowOnly({ range, clock }: { range: Range | null; clock: Clock }) {
  const choose = useContext(ChooseRange);
  return choose && range ? (
    <p>
      <button type="button" onClick={() => choose(range)}>
        show only {clock.full(range[0])} to {clock.time(range[1])}
      </button>
    </p>
  ) : null;
}

/** The charts of a timeline, those of one group or of all. */
export function LaneCharts({ report, clock, group }: { report: TimelineReport; clock: Clock; group?: string }) {
  const extent = span(report.about);
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => xsOf(extent, report.parts), [report]);
  const earlier = useEarlier("timeline", xs);
  const marks = useMemo(() => report.events.map(markOf), [report]);
  const lanes = report.lanes.filter((lane) => group === undefined || lane.group === group);
  return (
    <>
      <ShowOnly range={range} clock={clock} />
      <div class="charts timeline">
        {charts(lanes).map(([title, lanes]) => (
          <Chart
            key={`${lanes[0]!.group} ${lanes[0]!.unit}`}
            title={title}
            x={timeAxis(clock)}
            y={{ name: yName(lanes), show: show(lanes[0]!) }}
            xs={xs}
            series={lanes.map((lane, at): Series => ({
              name: laneName(lane),
              colour: colour(at),
              values: lane.values,
              ...earlier(sameLane(lane)),
            }))}
            marks={marks}
            extent={extent}
            range={range}
            onRange={setRange}
            height={220}
          />
        ))}
      </div>
    </>
  );
}

/** An event as a mark. */
export const markOf = ({ time_ns, kind, sentence }: EventJson): Mark => ({
  at: seconds(time_ns),
  name: kind.replaceAll("_", " "),
  about: visible(sentence),
});

export function TimelineView({ report, clock }: { report: TimelineReport; clock: Clock }) {
  return (
    <>
      <LaneCharts report={report} clock={clock} />
      {withoutLanes(report).map((line) => (
        <p key={line} class="dim">
          {line}
        </p>
      ))}
      {report.events.length === 0 && <p class="dim">Events: none.</p>}
      {report.events.length > 0 && (
        <Table<EventJson>
          name="events"
          rows={report.events}
          columns={[
            { name: "time", value: ({ time_ns }) => clock.full(seconds(time_ns)), text: true, rank: 0 },
            {
              name: "server",
              value: ({ server }) => server,
              show: ({ server, address }) => visible(address ?? String(server ?? "-")),
              rank: 2,
            },
            { name: "what", value: ({ sentence }) => visible(sentence), text: true, rank: 0, main: true },
          ]}
        />
      )}
      {report.events_left_out > 0 && (
        <p class="dim">and {plural(report.events_left_out, "more event")}, less important or older</p>
      )}
    </>
  );
}
