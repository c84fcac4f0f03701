// A chart of bars.

import { useMemo, useState } from "preact/hooks";

import { Chart, type Range } from "./chart";
import { count } from "./format";
import { placeTicks } from "./ticks";

/** Bars over named places. */
export function Bars({
  title,
  x,
  y,
  names,
  series,
  note,
  height,
}: {
  title: string;
  x: string;
  y: string;
  names: string[];
  series: { name: string; colour: string; values: number[] }[];
  note?: string;
  height?: number;
}) {
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => names.map((_, at) => at), [names]);
  const axis = {
    name: x,
    show: (at: number) => names[Math.round(at)] ?? "",
    ticks: (min: number, max: number, most: number) => placeTicks(min, max, most, names),
  };
  return (
    <Chart
      title={title}
      x={axis}
      y={{ name: y, show: count }}
      xs={xs}
      series={series.map((one) => ({ ...one, kind: "bars" }))}
      stacked={series.length > 1}
      extent={[-0.6, Math.max(names.length, 1) - 0.4]}
      range={range}
      onRange={setRange}
      height={height ?? 220}
      {...(note ? { note } : {})}
    />
  );
}
