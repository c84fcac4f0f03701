// Where the time of operations went, over time: how many operations were in each part of it at once.

import { useMemo, useState } from "preact/hooks";

import { GapList, gapSummary } from "../parts/changes";
import { Chart, type Range, type Series } from "../parts/chart";
import type { Column } from "../parts/columns";
import { bytes, count, duration, percent, visible } from "../parts/format";
import { ShowOnly } from "../parts/lanes";
import { colour } from "../parts/palette";
import { Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { timeAxis } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { span, xsOf } from "../parts/timeline";
import type { ClassLaneJson, WaitBlockerJson, WaitFileJson, WaitsReport } from "../report";
import { partOf } from "./why/words";

/** A name, or what stands for all that have no row of their own. */
export const named = (name: string | null): string => (name === null ? "all others" : visible(name));

const classColumns = (whole: number): Column<ClassLaneJson>[] => [
  { name: "what they waited for", value: (one) => named(one.class), text: true, rank: 0, main: true },
  { name: "waits", value: ({ waits }) => waits, format: count, rank: 2 },
  { name: "time", value: ({ wait_ns }) => wait_ns, format: duration, rank: 1 },
  { name: "mean", value: (one) => one.wait_ns / Math.max(one.waits, 1), format: duration, rank: 3 },
  {
    name: "share",
    about: "of the time of all operations",
    value: ({ wait_ns }) => wait_ns / Math.max(whole, 1),
    format: (share) => percent(share, 1),
    bar: true,
    rank: 0,
  },
];

const blockers: Column<WaitBlockerJson>[] = [
  { name: "command", value: ({ command }) => command, text: true, rank: 2 },
  { name: "namespace", value: ({ namespace }) => visible(namespace), text: true, rank: 1 },
  {
    name: "shape",
    value: ({ shape_id, typed }) => named(shape_id === null ? null : typed),
    text: true,
    rank: 0,
    main: true,
  },
  { name: "waits it ended", value: ({ waits }) => waits, format: count, rank: 2 },
  { name: "time others waited", value: ({ wait_ns }) => wait_ns, format: duration, rank: 0 },
];

const files: Column<WaitFileJson>[] = [
  { name: "file", value: ({ name }) => named(name), text: true, rank: 0, main: true },
  { name: "reads", value: ({ reads }) => reads, format: count, rank: 2 },
  { name: "read", value: (one) => one.bytes, format: bytes, rank: 2 },
  { name: "time waited", value: ({ wait_ns }) => wait_ns, format: duration, rank: 0 },
];

export function WaitsPage({ report }: { report: WaitsReport }) {
  const { about, zone, lanes, classes, processors } = report;
  const clock = useMemo(() => new Clock(zone, seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)), [report]);
  const extent = span(about);
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => xsOf(extent, lanes[0]?.values.length ?? 1), [report]);
  const whole = lanes.reduce((sum, { ns }) => sum + ns, 0);
  const shared = { x: timeAxis(clock), xs, extent, range, onRange: setRange, stacked: true };
  return (
    <Shell title="Waits" about={about} clock={clock} facts={[["operations", count(report.operations)]]}>
      <Words tone="bad" lines={gapSummary(report.gaps, clock)} />
      {lanes.length === 0 ? (
        <p class="dim">
          No operation of this time was traced inside a server. The agent needs eBPF and the source “split” for it:
          Health says what it lacks.
        </p>
      ) : (
        <div class="lists">
          <ShowOnly range={range} clock={clock} />
          <Chart
            {...shared}
            title="What operations did"
            y={{ name: "operations at once", show: count }}
            series={lanes.map(({ part, words, values }): Series => ({ name: words, colour: partOf(part)[1], values }))}
            {...(processors === null ? {} : { level: { at: processors, name: `${count(processors)} processors` } })}
            height={320}
            note="The area of a colour is the time that operations spent on it. Above the line of the processors, operations wait for each other, for disks or for a processor."
          />
          {classes.length > 0 && (
            <Chart
              {...shared}
              title="What they waited for"
              y={{ name: "operations that wait", show: count }}
              series={classes.map((one, at): Series => ({
                name: named(one.class),
                colour: colour(at),
                values: one.values,
              }))}
              height={260}
              note="Only long waits, whose stacks were taken."
            />
          )}
        </div>
      )}
      {classes.length > 0 && (
        <section>
          <h2>Long waits</h2>
          <Table name="waits" rows={classes} columns={classColumns(whole)} />
        </section>
      )}
      {report.blockers.length > 0 && (
        <section>
          <h2>What made others wait</h2>
          <Table name="blockers" rows={report.blockers} columns={blockers} />
        </section>
      )}
      {report.files.length > 0 && (
        <section>
          <h2>Files that operations waited for</h2>
          <Table name="files" rows={report.files} columns={files} />
        </section>
      )}
      <GapList gaps={report.gaps} clock={clock} />
    </Shell>
  );
}
