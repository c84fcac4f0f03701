// Which part of the x axis a chart shows, and how the mouse changes it.

import type uPlot from "uplot";

import type { ChartProps, Range } from "./chart";

/** Keeps a range within bounds, and not narrower than a ten-thousandth of them. */
export function clampRange([from, to]: Range, [low, high]: Range): Range | null {
  const whole = high - low;
  const width = Math.min(Math.max(to - from, whole / 10_000), whole);
  if (width >= whole * 0.999_9) return null;
  const begin = Math.min(Math.max(from, low), high - width);
  return [begin, begin + width];
}

/** Zooms by a factor around a place. */
export const zoomed = ([from, to]: Range, around: number, factor: number): Range => [
  around - (around - from) * factor,
  around + (to - around) * factor,
];

/** Moves with the mouse until its button is released. */
export function pan(plot: uPlot, event: MouseEvent, props: () => ChartProps) {
  event.preventDefault();
  const { min = 0, max = 1 } = plot.scales["x"] as { min?: number; max?: number };
  const from = event.clientX;
  const moved = (move: MouseEvent) => {
    const by = ((from - move.clientX) / plot.over.clientWidth) * (max - min);
    props().onRange(clampRange([min + by, max + by], props().extent));
  };
  const end = () => {
    document.removeEventListener("mousemove", moved);
    document.removeEventListener("mouseup", end);
  };
  document.addEventListener("mousemove", moved);
  document.addEventListener("mouseup", end);
}

/** The wheel scrolls the page; with Ctrl it zooms, sideways or with Shift it pans. */
export function wheel(plot: uPlot, event: WheelEvent, props: () => ChartProps) {
  const { extent, onRange } = props();
  const range = props().range ?? extent;
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey) {
    event.preventDefault();
    const left = event.clientX - plot.over.getBoundingClientRect().left;
    onRange(clampRange(zoomed(range, plot.posToVal(left, "x"), 1.2 ** Math.sign(event.deltaY)), extent));
  } else if (sideways && props().range && Math.abs(sideways) >= Math.abs(event.shiftKey ? 0 : event.deltaY)) {
    event.preventDefault();
    const by = (sideways / plot.over.clientWidth) * (range[1] - range[0]);
    onRange(clampRange([range[0] + by, range[1] + by], extent));
  }
}
