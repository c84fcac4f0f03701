// One query shape over time: a heat map of its latencies with quantiles, its calls and failures.

import { useMemo, useState } from "preact/hooks";

import { GapList, gapSummary } from "../parts/changes";
import { Chart, type Layer, type Range } from "../parts/chart";
import { logShare } from "../parts/density";
import { useEarlier } from "../parts/earlier";
import { brief, count, duration, plural, visible } from "../parts/format";
import { ShowOnly } from "../parts/lanes";
import { Shell, Words } from "../parts/shell";
import { logTicks, timeAxis } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { span, xsOf } from "../parts/timeline";
import type { ShapeHistory } from "../report";

/** The lower end of a row, of its upper one: a row is a quarter of an octave. */
const ROW = 2 ** 0.25;
const QUANTILES = [
  ["p50", "#2a9d63"],
  ["p95", "#e07b39"],
  ["p99", "#d64545"],
] as const;

/** The operations of each part by latency, as a layer: a cell is the darker the more operations it holds. */
export function heatMap({ parts, bounds_ns }: ShapeHistory, [from, to]: Range): Layer {
  const width = (to - from) / parts.length;
  const most = parts.reduce((most, { latencies }) => Math.max(most, ...latencies.map(([, times]) => times)), 1);
  const [low, high] = [(bounds_ns[0] ?? 1e6) / ROW, bounds_ns.at(-1) ?? 1e7];
  return {
    bounds: [
      [from, to],
      [low, high],
    ],
    draw(plot, context) {
      context.fillStyle = "#3b7dd8";
      parts.forEach(({ latencies }, at) => {
        const left = plot.valToPos(from + at * width, "x", true);
        const right = plot.valToPos(from + (at + 1) * width, "x", true);
        for (const [row, times] of latencies) {
          const top = plot.valToPos(bounds_ns[row]!, "y", true);
          const bottom = plot.valToPos(bounds_ns[row]! / ROW, "y", true);
          context.globalAlpha = 0.15 + 0.75 * logShare(times, 1, most);
          context.fillRect(left, top, Math.max(right - left, 1), Math.max(bottom - top, 1));
        }
      });
      context.globalAlpha = 1;
    },
    read(plot, left, top) {
      const part = parts[Math.floor((plot.posToVal(left, "x") - from) / width)];
      const value = plot.posToVal(top, "y");
      const found = part?.latencies.find(([row]) => value <= bounds_ns[row]! && value > bounds_ns[row]! / ROW);
      if (!part || !found) return null;
      const bound = bounds_ns[found[0]]!;
      return `${plural(found[1], "operation")} of ${duration(bound / ROW)} to ${duration(bound)}`;
    },
  };
}

/** Operations a second in each part; null where nothing was observed. */
export const rate =
  (field: "calls" | "failed") =>
  ({ parts }: ShapeHistory): (number | null)[] =>
    parts.map((part) => (part.observed_s > 0 ? part[field] / part.observed_s : null));

export function ShapePage({ report }: { report: ShapeHistory }) {
  const { about, zone, parts, calls, failed } = report;
  const clock = useMemo(() => new Clock(zone, seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)), [report]);
  const extent = span(about);
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => xsOf(extent, parts.length), [report]);
  const layer = useMemo(() => heatMap(report, extent), [report]);
  const earlier = useEarlier("shape", xs);
  const shared = { x: timeAxis(clock), xs, extent, range, onRange: setRange };
  return (
    <Shell
      title={visible([report.command, report.namespace].filter(Boolean).join(" "))}
      about={about}
      clock={clock}
      facts={[
        ["shape", <code class="id">{report.shape_id}</code>],
        ["figures from", report.source],
        ["operations", count(calls)],
        ["failed", failed > 0 && count(failed)],
      ]}
    >
      <Words tone="bad" lines={gapSummary(report.gaps, clock)} />
      <pre>{visible(report.typed)}</pre>
      <ShowOnly range={range} clock={clock} />
      <div class="lists">
        <Chart
          {...shared}
          title="Latency"
          y={{
            name: "latency",
            log: 10,
            show: (ns) => duration(ns),
            ticks: (min, max, most) => logTicks(min, max, most, 10, (ns) => brief(duration(ns))),
          }}
          series={QUANTILES.map(([name, colour]) => ({
            name,
            colour,
            values: parts.map((part) => part[name]),
            ...earlier(({ parts }) => parts.map((part) => part[name])),
          }))}
          layer={layer}
          height={320}
          note="A cell is the darker the more operations it holds."
        />
        <Chart
          {...shared}
          title="Operations per second"
          y={{ name: "per second", show: (value, more) => `${count(value, more)}/s` }}
          series={[
            { name: "operations", colour: "#3b7dd8", values: rate("calls")(report), ...earlier(rate("calls")) },
            ...(failed > 0
              ? [
                  {
                    name: "failed operations",
                    colour: "#d64545",
                    values: rate("failed")(report),
                    ...earlier(rate("failed")),
                  },
                ]
              : []),
          ]}
          height={200}
        />
      </div>
      <GapList gaps={report.gaps} clock={clock} />
    </Shell>
  );
}
