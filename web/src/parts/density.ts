// The reads of a file: time to the right, offset upwards, a cell the darker the more reads it holds.

import type { FilePictureJson } from "../report";
import type { Layer } from "./chart";
import { bytes, duration, exact } from "./format";

/** What colours a cell. */
export type By = "latency" | "reads";

/** Blue where little, red where much; 0 to 1. */
export const heat = (share: number): string => `hsl(${Math.round(240 * (1 - share))} 85% 48%)`;

/** Where a value lies between two others on a logarithmic scale, 0 to 1. */
export function logShare(value: number, low: number, high: number): number {
  const log = (value: number) => Math.log(Math.max(value, 1));
  return high > low ? Math.min(1, Math.max(0, (log(value) - log(low)) / (log(high) - log(low) || 1))) : 0;
}

/** Least and greatest of what colours the cells. */
export function bounds(picture: FilePictureJson, by: By): [number, number] {
  let low = Infinity;
  let high = 0;
  for (let at = 0; at < picture.cells.length; at += 4) {
    const value = picture.cells[at + (by === "latency" ? 3 : 2)]!;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low === Infinity ? 0 : low, high];
}

/** The picture as a layer of a chart over seconds since the first access. */
export function density(picture: FilePictureJson, by: By): Layer {
  const [low, high] = bounds(picture, by);
  const span = picture.span_ns / 1e9;
  const cells = new Map<number, [reads: number, mean: number]>();
  let most = 1;
  for (let at = 0; at < picture.cells.length; at += 4) {
    const [column, row, reads, mean] = picture.cells.slice(at, at + 4) as [number, number, number, number];
    cells.set(row * picture.columns + column, [reads, mean]);
    most = Math.max(most, reads);
  }
  return {
    bounds: [
      [0, span],
      [0, picture.length],
    ],
    draw(plot, context) {
      for (const [place, [reads, mean]] of cells) {
        const [column, row] = [place % picture.columns, Math.floor(place / picture.columns)];
        const left = plot.valToPos((column / picture.columns) * span, "x", true);
        const right = plot.valToPos(((column + 1) / picture.columns) * span, "x", true);
        const top = plot.valToPos(((row + 1) / picture.rows) * picture.length, "y", true);
        const bottom = plot.valToPos((row / picture.rows) * picture.length, "y", true);
        context.globalAlpha = 0.4 + 0.6 * logShare(reads, 1, most);
        context.fillStyle = heat(logShare(by === "latency" ? mean : reads, low, high));
        context.fillRect(left, top, Math.max(right - left, 1), Math.max(bottom - top, 1));
      }
      context.globalAlpha = 1;
    },
    read(plot, left, top) {
      const column = Math.floor((plot.posToVal(left, "x") / span) * picture.columns);
      const row = Math.floor((plot.posToVal(top, "y") / picture.length) * picture.rows);
      const found = cells.get(row * picture.columns + column);
      const offset = bytes((row / picture.rows) * picture.length);
      return found
        ? `at ${offset}: ${exact(found[0])} reads, ${duration(found[1])} on average`
        : `at ${offset}: no read`;
    },
  };
}
