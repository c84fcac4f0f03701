// Throughput and latency over the number of requests in flight.

import { useMemo, useState } from "preact/hooks";

import { Chart, type Range, type Series } from "../../parts/chart";
import { count, duration } from "../../parts/format";
import { COLOURS } from "../../parts/palette";
import { logTicks } from "../../parts/ticks";
import type { BenchReport, StepJson } from "../../report";

/** The kinds of requests, with their colours. */
export const KINDS = [
  ["read", COLOURS[0]!, (step: StepJson) => step.reads],
  ["write", COLOURS[1]!, (step: StepJson) => step.writes],
  ["flush", COLOURS[2]!, (step: StepJson) => step.flushes],
] as const;

const positive = (value: number | null | undefined): number | null =>
  value != null && Number.isFinite(value) && value > 0 ? value : null;

/** Numbers in flight of all runs, each once. */
const inFlight = (runs: readonly BenchReport[]): number[] =>
  [...new Set(runs.flatMap((run) => run.steps.map((step) => step.in_flight)))]
    .filter((n) => n > 0)
    .sort((a, b) => a - b);

const valuesOf = (run: BenchReport, xs: readonly number[], of: (step: StepJson) => number | null | undefined) =>
  xs.map((n) => {
    const step = run.steps.find((step) => step.in_flight === n);
    return step ? positive(of(step)) : null;
  });

/** The charts of one run or several. */
export function Plots({
  runs,
  names,
  knee,
}: {
  runs: readonly BenchReport[];
  names: readonly string[];
  knee?: number | null;
}) {
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => inFlight(runs), []);
  const series = useMemo(() => {
    const isOne = runs.length === 1;
    const rates: Series[] = runs.map((run, at) => ({
      name: isOne ? "operations/s" : names[at]!,
      colour: COLOURS[at]!,
      dots: true,
      values: valuesOf(run, xs, (step) => step.operations_per_second),
    }));
    const waits = runs.flatMap((run, at) => {
      const kinds = KINDS.filter(([, , kind]) => run.steps.some((step) => kind(step)));
      return (isOne ? kinds : kinds.slice(0, 1)).flatMap(([name, own, kind]): Series[] => {
        const colour = isOne ? own : COLOURS[at]!;
        const full = isOne ? name : `${names[at]} ${name}`;
        return [
          { name: `${full} p50`, colour, dots: true, values: valuesOf(run, xs, (step) => kind(step)?.latency_ns.p50) },
          {
            name: `${full} p99`,
            colour,
            dots: true,
            dashed: true,
            values: valuesOf(run, xs, (step) => kind(step)?.latency_ns.p99),
          },
        ];
      });
    });
    return { rates, waits };
  }, []);
  if (xs.length === 0) return <p class="dim">Nothing was measured.</p>;
  const x = {
    name: "requests in flight",
    log: 2,
    show: (n: number) => `${Math.round(n)} in flight`,
    ticks: (min: number, max: number, most: number) => logTicks(min, max, most, 2, (n) => String(Math.round(n))),
  };
  const extent: Range = [xs[0]! * 0.9, Math.max(xs[xs.length - 1]!, 2) * 1.1];
  const shared = {
    x,
    xs,
    extent,
    range,
    onRange: setRange,
    height: 320,
    ...(knee ? { marks: [{ at: knee, name: "knee" }] } : {}),
  };
  return (
    <div class="charts">
      <Chart
        title="Throughput"
        y={{ name: "operations a second", show: (v, more) => count(v, more) + "/s" }}
        series={series.rates}
        {...shared}
      />
      <Chart title="Latency" y={{ name: "latency", log: 10, show: duration }} series={series.waits} {...shared} />
    </div>
  );
}
