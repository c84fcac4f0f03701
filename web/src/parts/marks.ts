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
  const marks = (props.marks ?? []).map((mark) => ({
    name: mark.name,
    left: plot.valToPos(mark.at, "x", true),
    width: ctx.measureText(mark.name).width,
  }));
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
  const ends: Range = [bbox.left, bbox.left + bbox.width];
  placeNames(marks, ends, 8 * devicePixelRatio).forEach((left, at) => {
    if (left !== null) ctx.fillText(marks[at]!.name, left, bbox.top - 2 * devicePixelRatio);
  });
  ctx.restore();
}

/** Where the names of marks begin, so that none lies on another one or beyond the ends; null for those without room. */
export function placeNames(
  marks: readonly { left: number; width: number }[],
  [first, last]: Range,
  gap: number,
): (number | null)[] {
  let free = first;
  return marks.map(({ left, width }) => {
    const at = Math.min(left, last - width);
    if (left < first || left > last || at < free) return null;
    free = at + width + gap;
    return at;
  });
}

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
