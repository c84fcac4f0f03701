// A heat map of latencies: time to the right, latency upwards, a cell the darker the more operations it holds.

import type { Axis, Layer, Range } from "./chart";
import { logShare } from "./density";
import { brief, duration, plural } from "./format";
import { css } from "./motion";
import type { Rectangle } from "./selection";
import { logTicks } from "./ticks";

/** The lower end of a row, of its upper one: a row is a quarter of an octave. */
const ROW = 2 ** 0.25;

/** The number of a row, and how many operations are in it. */
type Cell = readonly [row: number, times: number];

/** The axis of latencies in nanoseconds. */
export const latencyAxis: Axis = {
  name: "latency",
  log: 10,
  show: (ns) => duration(ns),
  ticks: (min, max, most) => logTicks(min, max, most, 10, (ns) => brief(duration(ns))),
};

/** The operations of each of the equal parts of the time by latency, as a layer; rows are known by their upper bounds. */
export function heatMap(bounds_ns: readonly number[], parts: readonly (readonly Cell[])[], [from, to]: Range): Layer {
  const width = (to - from) / parts.length;
  const most = parts.reduce((most, cells) => Math.max(most, ...cells.map(([, times]) => times)), 1);
  const [low, high] = [(bounds_ns[0] ?? 1e6) / ROW, bounds_ns.at(-1) ?? 1e7];
  return {
    bounds: [
      [from, to],
      [low, high],
    ],
    draw(plot, context) {
      context.fillStyle = "#3b7dd8";
      parts.forEach((cells, at) => {
        const left = plot.valToPos(from + at * width, "x", true);
        const right = plot.valToPos(from + (at + 1) * width, "x", true);
        for (const [row, times] of cells) {
          const top = plot.valToPos(bounds_ns[row]!, "y", true);
          const bottom = plot.valToPos(bounds_ns[row]! / ROW, "y", true);
          context.globalAlpha = 0.15 + 0.75 * logShare(times, 1, most);
          context.fillRect(left, top, Math.max(right - left, 1), Math.max(bottom - top, 1));
        }
      });
      context.globalAlpha = 1;
    },
    read(plot, left, top) {
      const cells = parts[Math.floor((plot.posToVal(left, "x") - from) / width)];
      const value = plot.posToVal(top, "y");
      const found = cells?.find(([row]) => value <= bounds_ns[row]! && value > bounds_ns[row]! / ROW);
      if (!found) return null;
      const bound = bounds_ns[found[0]]!;
      return `${plural(found[1], "operation")} of ${duration(bound / ROW)} to ${duration(bound)}`;
    },
  };
}

/** The same with the outline of a part of it. */
export const outlined = (layer: Layer, { x, y: [low, high] }: Rectangle): Layer => ({
  ...layer,
  draw(plot, context) {
    layer.draw(plot, context);
    const { bbox } = plot;
    const [left, right] = x ? x.map((at) => plot.valToPos(at, "x", true)) : [bbox.left, bbox.left + bbox.width];
    const top = high === null ? bbox.top : plot.valToPos(high, "y", true);
    const bottom = low === null ? bbox.top + bbox.height : plot.valToPos(low, "y", true);
    context.strokeStyle = css("--bad");
    context.lineWidth = 2 * devicePixelRatio;
    context.setLineDash([]);
    context.strokeRect(left!, top, right! - left!, bottom - top);
  },
});
