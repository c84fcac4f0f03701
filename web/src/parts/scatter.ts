// A dot for each operation: its end and its latency.

import type uPlot from "uplot";

import type { Layer, Range } from "./chart";

export interface Dots {
  /** Seconds since 1970. */
  x: Float64Array;
  y: Float64Array;
  /** Which row each belongs to. */
  row: Int32Array;
}

/** Unpacks triples of microseconds since `first`, microseconds of latency and row. Latencies are at least `floor` ns. */
export function unpack(points: readonly number[], firstNs: number, floor: number): Dots {
  const length = Math.floor(points.length / 3);
  const dots = { x: new Float64Array(length), y: new Float64Array(length), row: new Int32Array(length) };
  for (let at = 0; at < length; at++) {
    dots.x[at] = firstNs / 1e9 + points[at * 3]! / 1e6;
    dots.y[at] = Math.max(points[at * 3 + 1]! * 1e3, floor);
    dots.row[at] = points[at * 3 + 2]!;
  }
  return dots;
}

/** From data to pixels, without asking the chart for each dot. */
function projection(plot: uPlot, axis: "x" | "y", inCanvas: boolean): (value: number) => number {
  const { min = 0, max = 1, distr } = plot.scales[axis] as { min?: number; max?: number; distr?: number };
  const of = distr === 3 ? Math.log : (value: number) => value;
  const [low, high] = [plot.valToPos(min, axis, inCanvas), plot.valToPos(max, axis, inCanvas)];
  const scale = (high - low) / (of(max) - of(min) || 1);
  return (value) => low + (of(Math.max(value, distr === 3 ? min : -Infinity)) - of(min)) * scale;
}

/** The dots of some rows. */
export function scatter(
  dots: Dots,
  bounds: [Range, Range],
  colourOf: (row: number) => string,
  isShown: (row: number) => boolean,
  describe: (dot: number) => string,
): Layer {
  return {
    bounds,
    draw(plot, context) {
      // Charts grow with the screen.
      const size = ((dots.x.length < 10_000 ? 4 : 3) * devicePixelRatio * plot.height) / 300;
      const [x, y] = [projection(plot, "x", true), projection(plot, "y", true)];
      const { min = 0, max = 1 } = plot.scales["x"] as { min?: number; max?: number };
      context.globalAlpha = dots.x.length > 30_000 ? 0.4 : 0.7;
      for (let at = 0; at < dots.x.length; at++) {
        const row = dots.row[at]!;
        const time = dots.x[at]!;
        if (time < min || time > max || !isShown(row)) continue;
        context.fillStyle = colourOf(row);
        context.fillRect(x(time) - size / 2, y(dots.y[at]!) - size / 2, size, size);
      }
      context.globalAlpha = 1;
    },
    read(plot, left, top) {
      const [x, y] = [projection(plot, "x", false), projection(plot, "y", false)];
      let best = 12 ** 2;
      let found = -1;
      for (let at = 0; at < dots.x.length; at++) {
        const distance = (x(dots.x[at]!) - left) ** 2 + (y(dots.y[at]!) - top) ** 2;
        if (distance < best && isShown(dots.row[at]!)) {
          best = distance;
          found = at;
        }
      }
      return found < 0 ? null : describe(found);
    },
  };
}
