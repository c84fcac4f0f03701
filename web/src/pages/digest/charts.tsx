// The charts of a digest: operations over time, each operation, latencies of a row.

import { useMemo } from "preact/hooks";

import { Bars } from "../../parts/bars";
import { Chart, type Range } from "../../parts/chart";
import { brief, count, duration, exact, rounded } from "../../parts/format";
import { colour, COLOURS, REST } from "../../parts/palette";
import { scatter, unpack } from "../../parts/scatter";
import { logTicks, timeAxis } from "../../parts/ticks";
import type { Clock } from "../../parts/time";
import { begins, grid, rates, widest } from "../../parts/timeline";
import type { DigestDocument, LatencyObject } from "../../report";
import { label, place } from "./row";

/** Columns of the chart over time. */
const MOST_COLUMNS = 160;

export interface ChartsProps {
  report: DigestDocument;
  clock: Clock;
  extent: Range;
  range: Range | null;
  onRange: (range: Range | null) => void;
  chosen: number | null;
}

export function OverTime({ report, clock, extent, range, onRange, chosen }: ChartsProps) {
  const { xs, series } = useMemo(() => {
    // Sources of different lengths have buckets of different widths.
    const timelines = [report.totals, ...report.rows].map((one) => one.timeline);
    const columns = grid(range ?? extent, widest(timelines), MOST_COLUMNS);
    const total = rates(report.totals.timeline, columns);
    const order = report.rows
      .map((_, at) => at)
      .sort((a, b) => (report.rows[b]!.time_share ?? 0) - (report.rows[a]!.time_share ?? 0));
    const alone = chosen !== null ? [chosen] : order.slice(0, COLOURS.length - 1);
    const lines = alone.map((at) => {
      const row = report.rows[at]!;
      const name = [place(row), label(row)].filter(Boolean).join(" ");
      return {
        name: `${at + 1}. ${name.slice(0, 60)}`,
        about: name.slice(0, 400),
        colour: colour(at),
        values: [...rates(row.timeline, columns), null],
      };
    });
    if (chosen === null && (report.rows.length > lines.length || report.rows_total > lines.length)) {
      const rest = total.map((value, at) =>
        Math.max(
          0,
          lines.reduce((left, line) => left - (line.values[at] ?? 0), value),
        ),
      );
      if (rest.some((value) => value > 1e-9))
        lines.push({ name: "others", about: "all other rows", colour: REST, values: [...rest, null] });
    }
    return { xs: begins(columns), series: lines };
  }, [range, chosen]);
  const y = { name: "operations a second", show: (value: number, more?: number) => count(value, more) + "/s" };
  return (
    <Chart
      title="Operations over time"
      x={timeAxis(clock, 1)}
      y={y}
      xs={xs}
      series={series}
      stacked
      extent={extent}
      range={range}
      onRange={onRange}
      height={300}
    />
  );
}

/** Which operations have a point, and why the others have none. */
export function pointsNote(report: DigestDocument, shown: number): string {
  const seen = report.points_seen ?? shown;
  // Of several sources, one has single operations.
  const several = (report.sources ?? []).length > 1;
  const without = several ? 0 : Math.max(0, report.totals.calls - report.totals.latency_ns.count);
  const which = without > 0 ? "operations with a latency" : several ? "operations of one source" : "operations";
  const shownText =
    shown < seen ? `${count(shown)} of ${count(seen)} ${which}, chosen at random.` : `All ${count(seen)} ${which}.`;
  return without > 0
    ? `${shownText} The other ${exact(without)} of ${count(report.totals.calls)} have none: ${report.source === "wire" ? "nothing answered them" : "the source states none"}.`
    : shownText;
}

export function EachOperation({
  report,
  clock,
  extent,
  range,
  onRange,
  chosen,
  points,
}: ChartsProps & { points: number[] }) {
  const isRounded = report.precision_ns > 1;
  // What is shorter than the source can say lies on a line of its own.
  const floor = isRounded ? report.precision_ns * 0.3 : 1e3;
  const dots = useMemo(() => unpack(points, report.totals.first_seen ?? 0, floor), []);
  const low = isRounded ? floor : dots.y.reduce((least, y) => Math.min(least, y), 1e6);
  const high = Math.max(report.totals.latency_ns.max ?? low, low * 10);
  const layer = useMemo(
    () =>
      scatter(
        dots,
        [extent, [low, high]],
        (row) => (row < 0 ? REST : colour(row)),
        (row) => chosen === null || row === chosen,
        (dot) => {
          const row = report.rows[dots.row[dot]!];
          const name = row ? `${place(row)} ${label(row)}` : "a row that is not listed";
          return `${clock.time(dots.x[dot]!, 3)}  ${rounded(dots.y[dot]!, report.precision_ns)}  ${name.slice(0, 300)}`;
        },
      ),
    [chosen],
  );
  const note = pointsNote(report, dots.x.length);
  const latency = {
    name: "latency",
    log: 10,
    show: (ns: number) => duration(ns),
    ticks: (min: number, max: number, most: number) => {
      const found = logTicks(isRounded ? Math.max(min, report.precision_ns) : min, max, most, 10, short);
      return isRounded
        ? { at: [floor, ...found.at], labels: [rounded(0, report.precision_ns), ...found.labels] }
        : found;
    },
  };
  return (
    <Chart
      title="Latency of each operation"
      x={timeAxis(clock, 1)}
      y={latency}
      xs={[]}
      series={[]}
      layer={layer}
      extent={extent}
      range={range}
      onRange={onRange}
      height={300}
      note={note}
    />
  );
}

/** A duration of a tick, without decimals. */
const short = (ns: number): string => brief(duration(ns));

/** Latency as a histogram, in quarters of a power of two. */
export function Histogram({ latency, precision }: { latency: LatencyObject; precision: number }) {
  const bars = useMemo(() => {
    const groups = new Map<number, number>();
    for (const [index, n] of latency.buckets)
      groups.set(Math.floor(index / 8), (groups.get(Math.floor(index / 8)) ?? 0) + n);
    const keys = [...groups.keys()];
    if (keys.length === 0 && latency.count === 0) return null;
    const [first, last] = keys.length > 0 ? [Math.min(...keys), Math.max(...keys)] : [0, -1];
    const names = Array.from(
      { length: last - first + 1 },
      (_, at) => "≤" + duration(2 ** ((first + at + 1) / 4) * 1e9),
    );
    const values = names.map((_, at) => groups.get(first + at) ?? 0);
    const zero = latency.count - values.reduce((sum, value) => sum + value, 0);
    if (zero > 0) {
      names.unshift(precision > 1 ? rounded(0, precision) : "0");
      values.unshift(zero);
    }
    return { names, values };
  }, [latency]);
  if (!bars) return null;
  const { names, values } = bars;
  return (
    <Bars
      title="Latency"
      x="latency"
      y="operations"
      names={names}
      series={[{ name: "operations", colour: COLOURS[0]!, values }]}
    />
  );
}
