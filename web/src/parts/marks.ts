// What a chart draws by hand: what stands below the lines, marks with their names, and a level.

import type uPlot from "uplot";

import type { ChartProps, Mark, Range } from "./chart";
import { css, letters } from "./motion";

/** What stands below the lines: the layer and the marks. */
export function drawBelow(plot: uPlot, props: ChartProps) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  props.layer?.draw(plot, ctx);
  ctx.fillStyle = ctx.strokeStyle = css("--soft");
  ctx.font = `${letters() * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  const marks = (props.marks ?? []).map(({ at, name }) => ({ name, left: plot.valToPos(at, "x", true) }));
  for (const { left } of marks) {
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
  // The names stand above the plot, where no line crosses them.
  ctx.save();
  ctx.fillStyle = css("--soft");
  ctx.font = `${letters() * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  const room: Room = {
    ends: [bbox.left, bbox.left + bbox.width],
    gap: 8 * devicePixelRatio,
    measure: (text) => ctx.measureText(text).width,
  };
  for (const { text, left } of placeLabels(marks, room)) ctx.fillText(text, left, bbox.top - 2 * devicePixelRatio);
  ctx.restore();
}

/** Where labels may stand. */
export interface Room {
  ends: Range;
  /** Between two labels, at least. */
  gap: number;
  measure: (text: string) => number;
}

/** A name, and how many marks beside it have no room for theirs: `index drop +2`. */
export interface Label {
  text: string;
  left: number;
  width: number;
}

/** Labels of marks from left to right, of which none lies on another one or beyond the ends. */
export function placeLabels(marks: readonly { name: string; left: number }[], { ends, gap, measure }: Room): Label[] {
  const [first, last] = ends;
  const inside = marks.filter(({ left }) => left >= first && left <= last).sort((a, b) => a.left - b.left);
  const labels: Label[] = [];
  const free = (count: number) => (count > 0 ? labels[count - 1]!.left + labels[count - 1]!.width + gap : first);
  // The mark of the last label, and how many others it stands for.
  let [owner, more] = [inside[0], 0];
  for (const mark of inside) {
    // A mark below a label belongs to it, even if its own label would find room further left.
    const isOwn = labels.length === 0 || mark.left >= free(labels.length);
    const width = measure(mark.name);
    const left = Math.min(mark.left, last - width);
    if (isOwn && left >= free(labels.length)) {
      labels.push({ text: mark.name, left, width });
      [owner, more] = [mark, 0];
    } else if (labels.length > 0) {
      more++;
      const text = `${owner!.name} +${more}`;
      const width = measure(text);
      const left = Math.min(owner!.left, last - width);
      // At the right end there may be no room to count it.
      if (left >= free(labels.length - 1)) labels[labels.length - 1] = { text, left, width };
    }
  }
  return labels;
}

/** What the marks near a place say, in pixels: those that have a sentence with it. */
export function wordsOfMarks(plot: uPlot, left: number, marks: readonly Mark[] = []): string[] {
  const near = marks.filter(({ at }) => Math.abs(plot.valToPos(at, "x") - left) <= REACH_PX);
  const words = near.slice(0, MAX_NEAR).map(({ name, about }) => about ?? name);
  return near.length > MAX_NEAR ? [...words, `and ${near.length - MAX_NEAR} more events`] : words;
}

/** How near the cross-hair must be to a mark, and how many marks it names at most. */
const REACH_PX = 6;
const MAX_NEAR = 3;

/** Draws a horizontal line above everything else. */
export function drawLevel({ ctx, bbox, valToPos }: uPlot, level: Mark | undefined) {
  if (!level) return;
  const top = valToPos(level.at, "y", true);
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = css("--ink");
  ctx.font = `${letters() * devicePixelRatio}px system-ui, sans-serif`;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([8 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, top);
  ctx.lineTo(bbox.left + bbox.width, top);
  ctx.stroke();
  ctx.textAlign = "right";
  // Above the line, or below it at the top of the chart.
  ctx.textBaseline = top - bbox.top > 2 * letters() * devicePixelRatio ? "bottom" : "top";
  ctx.fillText(level.name, bbox.left + bbox.width - 4, top + (ctx.textBaseline === "top" ? 4 : -4));
  ctx.restore();
}
