// One query shape over time: a heat map of its latencies with quantiles, its calls and failures.

import { useContext, useMemo, useState } from "preact/hooks";

import { GapList, gapSummary } from "../parts/changes";
import { Chart, type Range } from "../parts/chart";
import { useEarlier } from "../parts/earlier";
import { count, visible } from "../parts/format";
import { heatMap, latencyAxis } from "../parts/heat";
import { ShowOnly } from "../parts/lanes";
import { ChooseOperations, type Rectangle, selectionOf } from "../parts/selection";
import { Shell, Words } from "../parts/shell";
import { timeAxis } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { span, xsOf } from "../parts/timeline";
import type { ShapeHistory } from "../report";

const QUANTILES = [
  ["p50", "#2a9d63"],
  ["p95", "#e07b39"],
  ["p99", "#d64545"],
] as const;

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
  const layer = useMemo(() => {
    const cells = parts.map(({ latencies }) => latencies);
    return heatMap(report.bounds_ns, cells, extent);
  }, [report]);
  const choose = useContext(ChooseOperations);
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
          y={latencyAxis}
          series={QUANTILES.map(([name, colour]) => ({
            name,
            colour,
            values: parts.map((part) => part[name]),
            ...earlier(({ parts }) => parts.map((part) => part[name])),
          }))}
          layer={layer}
          {...(choose && { onRectangle: (part: Rectangle) => choose({ selection: selectionOf(part) }) })}
          height={320}
          note={`A cell is the darker the more operations it holds.${choose ? " Drag a rectangle: what is different in it?" : ""}`}
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
