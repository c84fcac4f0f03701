// A chart: uPlot with our axes, zoom, pan, cross-hair, legend and keyboard. What is shown of the x axis belongs to the
// caller, so that several charts move together.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

import { brief } from "./format";
import { useMotion } from "./motion";
import { linearTicks, logTicks, type Ticks } from "./ticks";

export type Range = [number, number];

/** An axis. */
export interface Axis {
  /** What it measures, with its unit. */
  name: string;
  /** A value with its unit, for the cross-hair; with more digits where ticks are close. */
  show: (value: number, more?: number) => string;
  /** A base makes it logarithmic. */
  log?: number;
  /** Ticks from `min` to `max`, at most about `most`. By default by scale, with `show`. */
  ticks?: (min: number, max: number, most: number) => Ticks;
}

/** A line, an area or bars. */
export interface Series {
  name: string;
  colour: string;
  values: readonly (number | null)[];
  kind?: "line" | "steps" | "bars";
  dashed?: boolean;
  dots?: boolean;
  /** A longer name, shown when it is pointed at. */
  about?: string;
}

/** Something drawn by hand, below the lines. */
export interface Layer {
  draw: (plot: uPlot, context: CanvasRenderingContext2D) => void;
  /** What the cross-hair says at a place, in pixels of the plot. */
  read: (plot: uPlot, left: number, top: number) => string | null;
  /** Its bounds: x and y. */
  bounds: [Range, Range];
}

/** A vertical line with a word. */
export interface Mark {
  at: number;
  name: string;
}

export interface ChartProps {
  title: string;
  x: Axis;
  y: Axis;
  xs: readonly number[];
  series: readonly Series[];
  /** Series are put on top of each other. */
  stacked?: boolean;
  layer?: Layer;
  marks?: readonly Mark[];
  /** A horizontal line above everything else, with a label. */
  level?: Mark;
  /** The whole extent of the x axis. */
  extent: Range;
  /** The part of it that is shown; null for all. */
  range: Range | null;
  onRange: (range: Range | null) => void;
  height?: number;
  note?: string;
}

/** Height of the letters of a chart, in pixels. */
const letters = (): number => Math.round(0.84 * Number.parseFloat(getComputedStyle(document.documentElement).fontSize));

/** A colour of the style sheet. */
const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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

/** Sums from the bottom up; what is not known counts as nothing. */
export function stack(series: readonly (readonly (number | null)[])[]): number[][] {
  const sums: number[][] = [];
  for (const values of series) {
    const below = sums[sums.length - 1];
    sums.push(values.map((value, at) => (value ?? 0) + (below?.[at] ?? 0)));
  }
  return sums;
}

/** Which values have no line to another one, so that nothing is seen of them but a point; null if there is none. */
export function lonePoints(values: ArrayLike<number | null | undefined>): number[] | null {
  const found: number[] = [];
  for (let at = 0; at < values.length; at++) {
    if (values[at] != null && values[at - 1] == null && values[at + 1] == null) found.push(at);
  }
  return found.length > 0 ? found : null;
}

function ticks(axis: Axis, min: number, max: number, most: number): Ticks {
  if (axis.ticks) return axis.ticks(min, max, most);
  if (axis.log) return logTicks(min, max, most, axis.log, (value) => brief(axis.show(value)));
  return linearTicks(min, max, most, (value, more) => brief(axis.show(value, more)));
}

/** Bounds of the y axis. */
function bounds(props: ChartProps, values: readonly (readonly (number | null)[])[]): Range {
  const layer = props.layer?.bounds[1];
  let low = layer?.[0] ?? Infinity;
  let high = layer?.[1] ?? props.level?.at ?? -Infinity;
  const [from, to] = props.range ?? props.extent;
  for (const line of values) {
    line.forEach((value, at) => {
      const x = props.xs[at] ?? 0;
      if (value == null || !Number.isFinite(value) || (props.y.log && value <= 0)) return;
      // A neighbour of the range has a line into it.
      if ((props.xs[at + 1] ?? x) < from || (props.xs[at - 1] ?? x) > to) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    });
  }
  if (!(high > -Infinity)) return props.y.log ? [1, 10] : [0, 1];
  if (props.y.log) {
    const base = props.y.log;
    const power = (value: number, round: (value: number) => number) => base ** round(Math.log(value) / Math.log(base));
    // Whole powers where they are few, so that the axis begins and ends with a tick.
    low = Math.max(low, Number.MIN_VALUE);
    low = power(low, (value) => Math.floor(value + 1e-9));
    high = Math.max(
      power(high, (value) => Math.ceil(value - 1e-9)),
      low * base,
    );
    return [low, high];
  }
  return [Math.min(0, low), high > 0 ? high * 1.05 : 1];
}

export function Chart(props: ChartProps) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [cursor, setCursor] = useState<{ at: number | null; x: number | null; words: string | null }>({
    at: null,
    x: null,
    words: null,
  });
  const { theme, width } = useMotion(holder);

  const visible = props.series.filter((series) => !hidden.has(series.name));
  // The highest is drawn first and the others over it.
  const drawn = props.stacked ? [...visible].reverse() : visible;
  const lines = props.stacked
    ? stack(visible.map((series) => series.values)).reverse()
    : drawn.map((series) => series.values);
  const range = props.range ?? props.extent;
  const y = bounds(props, lines);
  const shape = drawn.map((series) => [series.name, series.colour, series.kind, series.dashed].join("\t")).join("\n");

  useLayoutEffect(() => {
    const box = holder.current;
    if (!box || width === 0) return;
    const size = { width, height: heightOf(props.height) };
    const made = new uPlot(options(latest, drawn, size, setCursor), [[], ...drawn.map(() => [])], box);
    made.over.setAttribute("aria-hidden", "true");
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
    // Colours are read when it is made.
  }, [shape, theme, width, props.height]);

  // Before the next frame, or a page that is printed would miss it.
  useLayoutEffect(() => {
    const made = plot.current;
    if (!made) return;
    made.batch(() => {
      made.setData([[...props.xs], ...lines.map((line) => [...line])] as uPlot.AlignedData, false);
      made.setScale("x", { min: range[0], max: range[1] });
      made.setScale("y", { min: y[0], max: y[1] });
    });
  }, [
    props.xs,
    props.series,
    props.layer,
    props.marks,
    hidden,
    range[0],
    range[1],
    y[0],
    y[1],
    shape,
    theme,
    width,
    props.height,
  ]);

  const move = (change: (range: Range) => Range | null) => {
    const next = change(range);
    props.onRange(next && clampRange(next, props.extent));
  };
  const span = range[1] - range[0];
  const middle = () => (range[0] + range[1]) / 2;
  const key = (event: KeyboardEvent) => {
    const pan = (part: number) => move(([from, to]) => [from + span * part, to + span * part]);
    const zoom = (factor: number) => move((range) => zoomed(range, cursor.x ?? middle(), factor));
    const actions: Record<string, () => void> = {
      ArrowLeft: () => (event.shiftKey ? step(-1) : pan(-0.2)),
      ArrowRight: () => (event.shiftKey ? step(1) : pan(0.2)),
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      "0": () => props.onRange(null),
      Home: () => move(([from, to]) => [props.extent[0], props.extent[0] + (to - from)]),
      End: () => move(([from, to]) => [props.extent[1] - (to - from), props.extent[1]]),
    };
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  /** Moves the cross-hair to the next value. */
  const step = (by: number) => {
    const made = plot.current;
    if (!made) return;
    const at = Math.min(Math.max((cursor.at ?? (by > 0 ? -1 : props.xs.length)) + by, 0), props.xs.length - 1);
    const x = props.xs[at];
    if (x !== undefined) made.setCursor({ left: made.valToPos(x, "x"), top: made.over.clientHeight / 2 });
  };
  const toggle = (name: string, alone: boolean) => {
    const others = props.series.filter((series) => series.name !== name).map((series) => series.name);
    setHidden((before) => {
      if (alone) return before.size === others.length && !before.has(name) ? new Set() : new Set(others);
      const next = new Set(before);
      return next.delete(name) ? next : next.add(name);
    });
  };
  const at = cursor.at;
  const zoomTitle = "Drag to zoom, Shift and drag to pan, double click for all; arrows, + and - and 0 on the keyboard";
  return (
    <figure class="chart">
      <figcaption>
        <h3>{props.title}</h3>
        <span class="tools" role="group" aria-label={`Zoom of ${props.title}`}>
          <button type="button" title="Zoom in (+)" onClick={() => move((range) => zoomed(range, middle(), 0.5))}>
            +
          </button>
          <button type="button" title="Zoom out (-)" onClick={() => move((range) => zoomed(range, middle(), 2))}>
            −
          </button>
          <button type="button" title="Show all (0)" disabled={!props.range} onClick={() => props.onRange(null)}>
            all
          </button>
        </span>
      </figcaption>
      <p class="reading" aria-live="off">
        {cursor.x === null
          ? `${props.y.name} over ${props.x.name}`
          : [props.x.show(cursor.x), cursor.words].filter(Boolean).join(" · ")}
      </p>
      <div
        class="plot"
        ref={holder}
        tabIndex={0}
        role="img"
        aria-label={`${props.title}: ${props.y.name} over ${props.x.name}. ${zoomTitle}.`}
        title=""
        onKeyDown={key}
        style={{ height: `${heightOf(props.height)}px` }}
      />
      {props.series.length > 0 && (
        <ul class="legend">
          {props.series.map((series) => (
            <li key={series.name}>
              <button
                type="button"
                aria-pressed={!hidden.has(series.name)}
                title={`${series.about ?? series.name}\nClick to hide or show it, with Shift to see it alone.`}
                onClick={(event) => toggle(series.name, event.shiftKey)}
              >
                <i class={series.dashed ? "dashed" : ""} style={{ color: series.colour }} />
                <span>{series.name}</span>
                {at !== null && <b>{valueAt(series, at, props.y)}</b>}
              </button>
            </li>
          ))}
        </ul>
      )}
      {props.note && <p class="dim">{props.note}</p>}
    </figure>
  );
}

const heightOf = (height = 260): number => Math.round((height * letters()) / 12.5);

function valueAt(series: Series, at: number, axis: Axis): string {
  const value = series.values[at];
  return value == null ? "-" : axis.show(value);
}

type Reading = { at: number | null; x: number | null; words: string | null };

function options(
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
        : (self, values) => Math.max(40, ...(values ?? []).map((text) => 14 + measure(self, text, font))),
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
      drag: { x: true, y: false, setScale: false, dist: 5 },
      points: { show: !props().stacked && drawn.every((series) => series.kind !== "bars"), size: 8 },
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
      drawAxes: [(self) => draw(self, props())],
      draw: [(self) => drawLevel(self, props().level)],
      setSelect: [
        (self) => {
          const { left, width } = self.select;
          if (width < 5) return;
          const range: Range = [self.posToVal(left, "x"), self.posToVal(left + width, "x")];
          self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          props().onRange(clampRange(range, props().extent));
        },
      ],
      setCursor: [
        (self) => {
          const { left, top, idx } = self.cursor;
          if (left == null || top == null || left < 0) return read({ at: null, x: null, words: null });
          const words = props().layer?.read(self, left, top) ?? null;
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

/** What stands below the lines: the layer and the marks. */
function draw(plot: uPlot, props: ChartProps) {
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
function drawLevel({ ctx, bbox, valToPos }: uPlot, level: Mark | undefined) {
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

function pan(plot: uPlot, event: MouseEvent, props: () => ChartProps) {
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
function wheel(plot: uPlot, event: WheelEvent, props: () => ChartProps) {
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
