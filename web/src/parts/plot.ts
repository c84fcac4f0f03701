// How uPlot draws a chart: its axes, its lines and its cross-hair.

import uPlot from "uplot";

import type { Axis, ChartProps, Range, Series } from "./chart";
import { brief } from "./format";
import { drawBelow, drawLevel, wordsOfMarks } from "./marks";
import { css, letters } from "./motion";
import { linearTicks, logTicks, type Ticks } from "./ticks";
import { clampRange, pan, wheel } from "./zoom";

/** What the cross-hair is at: which value, its place on the x axis, and what the layer and the marks say there. */
export interface Reading {
  at: number | null;
  x: number | null;
  words: string;
}

/** Charts over the same time have one cross-hair: at the same value of the x axis, without a height. */
const SHARED: uPlot.Cursor.Sync = {
  key: "x",
  scales: ["x", "y"],
  match: [() => true, () => false],
  filters: { pub: (type) => type === "mousemove", sub: () => true },
};

/** Moves the cross-hair of a chart, and of those that share it, to a place in pixels. */
export function moveCursor(plot: uPlot, left: number) {
  // The type lacks the last argument, which publishes it.
  const move = plot.setCursor as (place: { left: number; top: number }, fire: boolean, publish: boolean) => void;
  move({ left, top: plot.over.clientHeight / 2 }, true, true);
}

/** A dragged part that is at least as many pixels high is a rectangle, not a range. */
const MIN_HEIGHT = 20;

/** The options of uPlot for a chart; `read` is called with what is under the cross-hair. */
export function options(
  latest: { current: ChartProps },
  drawn: readonly Series[],
  size: { width: number; height: number },
  read: (reading: Reading) => void,
): uPlot.Options {
  const props = () => latest.current;
  const em = letters();
  const font = `${em}px system-ui, sans-serif`;
  const axis = (scale: "x" | "y"): uPlot.Axis => {
    const labels = new Map<number, string>();
    const isX = scale === "x";
    return {
      scale,
      font,
      stroke: css("--soft"),
      grid: { stroke: css("--line"), width: 1 },
      ticks: { stroke: css("--line"), width: 1, size: 4 },
      size: isX
        ? (_, values) => 12 + ((values ?? []).some((text) => text.includes("\n")) ? 2.5 : 1.3) * em
        : // A longer label than expected is not cut off.
          (self, values) => Math.max(yAxisWidth(em), ...(values ?? []).map((text) => 8 + measure(self, text, font))),
      gap: 4,
      splits: (self, _, min, max) => {
        const pixels = isX ? self.width - 60 : self.height - 44;
        const most = Math.max(2, Math.floor(pixels / (isX ? 7 * em : 2.8 * em)));
        const found = ticks(isX ? props().x : props().y, min, max, most);
        labels.clear();
        found.at.forEach((value, at) => labels.set(value, found.labels[at] ?? ""));
        return found.at;
      },
      // It would leave out labels of a logarithmic axis.
      filter: (_, splits) => splits,
      values: (self, splits) => {
        const texts = splits.map((value) => labels.get(value) ?? "");
        // What is drawn on the canvas, for those who cannot see it.
        const box = self.root.parentElement;
        if (box) box.dataset[scale] = texts.join("|");
        return texts;
      },
    };
  };
  const lineOf = (series: Series): uPlot.Series => ({
    label: series.name,
    stroke: series.colour,
    width: props().stacked || series.kind === "bars" ? 0 : 2,
    ...(props().stacked || series.kind === "bars" ? { fill: series.colour } : {}),
    ...(series.dashed ? { dash: [6, 4] } : {}),
    ...(series.muted ? { alpha: 0.5, width: 1.5 } : {}),
    ...pathsOf(series, props().stacked ?? false),
    points: {
      show: series.dots ?? false,
      // Null draws what `show` says.
      filter: (self, at) => (series.dots || series.kind === "bars" ? null : lonePoints(self.data[at] ?? [])),
      size: series.dots ? 7 : 5,
      fill: series.colour,
      stroke: series.colour,
    },
    spanGaps: false,
  });
  // Its own idea of a range would round to whole powers.
  const range = (_: uPlot, min: number | null, max: number | null): Range => [min ?? 1, max ?? 10];
  const logOf = (base: number | undefined) => ({ range, ...(base ? { distr: 3 as const, log: base as 10 | 2 } : {}) });
  return {
    ...size,
    padding: [props().marks?.length ? letters() + 8 : 8, 14, 0, 0],
    legend: { show: false },
    focus: { alpha: 1 },
    cursor: {
      drag: { x: true, y: props().onRectangle !== undefined, uni: MIN_HEIGHT, setScale: false, dist: 5 },
      points: { show: !props().stacked && drawn.every((series) => series.kind !== "bars"), size: 8 },
      ...(props().x.shared ? { sync: SHARED } : {}),
      bind: {
        dblclick: () => () => {
          props().onRange(null);
          return null;
        },
        mousedown: (self, _, handler) => (event) => {
          if (event.button === 0 && event.shiftKey) pan(self, event, props);
          else handler(event);
          return null;
        },
      },
    },
    scales: {
      x: { time: false, auto: false, ...logOf(props().x.log) },
      y: { auto: false, ...logOf(props().y.log) },
    },
    axes: [axis("x"), axis("y")],
    series: [{}, ...drawn.map(lineOf)],
    hooks: {
      init: [
        (self) => {
          self.over.addEventListener("wheel", (event) => wheel(self, event, props), { passive: false });
        },
      ],
      drawAxes: [(self) => drawBelow(self, props())],
      draw: [(self) => drawLevel(self, props().level)],
      setSelect: [
        (self) => {
          const { left, top, width, height } = self.select;
          if (width < 5) return;
          const range: Range = [self.posToVal(left, "x"), self.posToVal(left + width, "x")];
          const { onRectangle } = props();
          const { clientWidth, clientHeight } = self.over;
          if (onRectangle && height < clientHeight - 1) {
            // What reaches an end has no bound there.
            const isAll = width >= clientWidth - 1 && props().range === null;
            const high = top < 1 ? null : self.posToVal(top, "y");
            const low = top + height > clientHeight - 1 ? null : self.posToVal(top + height, "y");
            self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            if (height >= MIN_HEIGHT) onRectangle({ x: isAll ? null : range, y: [low, high] });
            return;
          }
          self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          props().onRange(clampRange(range, props().extent));
        },
      ],
      setCursor: [
        (self) => {
          const { left, top, idx } = self.cursor;
          if (left == null || top == null || left < 0) return read({ at: null, x: null, words: "" });
          // The cross-hair of another chart has no height here.
          const picture = top < 0 ? null : props().layer?.read(self, left, top);
          const words = [picture, ...wordsOfMarks(self, left, props().marks)].filter(Boolean).join(" · ");
          const steps = props().stacked && drawn.every((series) => series.kind !== "bars");
          const value = self.posToVal(left, "x");
          // A step goes from its beginning to the next one.
          const own = steps ? props().xs.findLastIndex((x) => x <= value) : (idx ?? null);
          const at = props().series.length > 0 && own !== -1 ? own : null;
          const nearest = at === null ? undefined : props().xs[at];
          read({ at, x: nearest ?? self.posToVal(left, "x"), words });
        },
      ],
    },
  };
}

function pathsOf(series: Series, stacked: boolean): { paths?: uPlot.Series.PathBuilder } {
  if (stacked || series.kind === "steps") return { paths: uPlot.paths.stepped!({ align: 1 }) };
  if (series.kind === "bars") return { paths: uPlot.paths.bars!({ size: [0.92, 100], gap: 1 }) };
  return {};
}

function measure(plot: uPlot, text: string, font: string): number {
  const context = plot.ctx;
  context.save();
  context.font = font;
  const { width } = context.measureText(text);
  context.restore();
  return width;
}

function ticks(axis: Axis, min: number, max: number, most: number): Ticks {
  if (axis.ticks) return axis.ticks(min, max, most);
  if (axis.log) return logTicks(min, max, most, axis.log, (value) => brief(axis.show(value)));
  return linearTicks(min, max, most, (value, more) => brief(axis.show(value, more)));
}

/**
 * The width of the y axis: that of seven characters such as `150MB/s`, the longest label. All charts have the same, so
 * that a moment stands at the same place in each chart of a page.
 */
const yAxisWidth = (em: number): number => Math.ceil(4.4 * em) + (innerWidth < 600 ? 8 : 14);

/** Which values have no line to another one, so that nothing is seen of them but a point; null if there is none. */
export function lonePoints(values: ArrayLike<number | null | undefined>): number[] | null {
  const found: number[] = [];
  for (let at = 0; at < values.length; at++) {
    if (values[at] != null && values[at - 1] == null && values[at + 1] == null) found.push(at);
  }
  return found.length > 0 ? found : null;
}
