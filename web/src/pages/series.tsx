// Every stored series: a chart for each metric, with a line for each device, file or server.

import { useMemo, useState } from "preact/hooks";

import { GapList, gapSummary } from "../parts/changes";
import { Chart, type Range, type Series } from "../parts/chart";
import { useEarlier } from "../parts/earlier";
import { count, plural, visible } from "../parts/format";
import { ShowOnly } from "../parts/lanes";
import { colour, COLOURS } from "../parts/palette";
import { Shell, Words } from "../parts/shell";
import { timeAxis } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { span, xsOf } from "../parts/timeline";
import { axis, show } from "../parts/units";
import type { AllSeriesReport, StoredSeriesJson } from "../report";

/** Series by metric, those with the largest values of each first. */
export function byMetric(series: readonly StoredSeriesJson[]): StoredSeriesJson[][] {
  const metrics = new Map<string, StoredSeriesJson[]>();
  for (const one of series) {
    const key = `${one.subject} ${one.metric}`;
    metrics.set(key, [...(metrics.get(key) ?? []), one]);
  }
  return [...metrics.values()].map((of) => of.sort((a, b) => (b.mean ?? 0) - (a.mean ?? 0)));
}

/** What a line is called: what it is about. */
export function lineName({ name, server, address, metric }: StoredSeriesJson): string {
  const place = server === null ? "" : visible(address ?? String(server));
  return [place, visible(name)].filter(Boolean).join(" ") || visible(metric);
}

/** The values of the same series in another document. */
export const sameSeries =
  ({ subject, metric, name, server, address }: StoredSeriesJson) =>
  ({ series }: AllSeriesReport): readonly (number | null)[] | undefined =>
    series.find(
      (one) =>
        one.metric === metric &&
        one.name === name &&
        one.subject === subject &&
        one.server === server &&
        one.address === address,
    )?.values;

export function SeriesPage({ report }: { report: AllSeriesReport }) {
  const { about, zone, series, left_out } = report;
  const clock = useMemo(() => new Clock(zone, seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)), [report]);
  const extent = span(about);
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => xsOf(extent, series[0]?.values.length ?? 1), [report]);
  const metrics = useMemo(() => byMetric(series), [report]);
  const earlier = useEarlier("all_series", xs);
  return (
    <Shell title="Internals" about={about} clock={clock} facts={[["series", count(series.length)]]}>
      <Words tone="bad" lines={gapSummary(report.gaps, clock)} />
      {series.length === 0 && <p class="dim">No series of this time fits.</p>}
      {left_out > 0 && <p class="dim">{plural(left_out, "more series")} left out: search for what you look for.</p>}
      <ShowOnly range={range} clock={clock} />
      <div class="charts timeline">
        {metrics.map((of) => {
          const [first] = of as [StoredSeriesJson];
          return (
            <Chart
              key={`${first.subject} ${first.metric}`}
              title={`${visible(first.metric)} (${first.subject})`}
              x={timeAxis(clock)}
              y={{ name: axis(first), show: show(first) }}
              xs={xs}
              series={of.slice(0, COLOURS.length).map((one, at): Series => ({
                name: lineName(one),
                colour: colour(at),
                values: one.values,
                ...earlier(sameSeries(one)),
              }))}
              extent={extent}
              range={range}
              onRange={setRange}
              height={180}
              note={
                of.length > COLOURS.length
                  ? `${first.meaning}; the ${COLOURS.length} largest of ${of.length}`
                  : first.meaning
              }
            />
          );
        })}
      </div>
      <GapList gaps={report.gaps} clock={clock} />
    </Shell>
  );
}
