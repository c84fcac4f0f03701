// A chart: uPlot with our axes, zoom, pan, cross-hair, legend and keyboard. What is shown of the x axis belongs to the
// caller, so that several charts move together.

import { createContext } from "preact";
import { useContext, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

import { ComparedWith, difference } from "./earlier";
import { letters, useMotion } from "./motion";
import { moveCursor, options, type Reading } from "./plot";
import type { Rectangle } from "./selection";
import type { Ticks } from "./ticks";
import { clampRange, zoomed } from "./zoom";

export type Range = [number, number];

/** An axis. */
export interface Axis {
  /** What it measures, with its unit. */
  name: string;
  /** A value with its unit, for the cross-hair; with more digits where ticks are close. */
  show: (value: number, more?: number) => string;
  /** A base makes it logarithmic. */
  log?: number;
  /** All charts of the page with such an axis have one cross-hair. */
  shared?: boolean;
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
  /** The same at an earlier time, drawn behind it. */
  earlier?: readonly (number | null)[];
  /** It stands behind the others. */
  muted?: boolean;
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
  /** What the cross-hair says of it; its name where it is left out. */
  about?: string;
}

const NO_MARKS: readonly Mark[] = [];

/** What happened meanwhile: marks of all charts over time that have none of their own. */
export const EventMarks = createContext(NO_MARKS);

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
  /** What a rectangle does that is dragged; without it, dragging only zooms. */
  onRectangle?: (rectangle: Rectangle) => void;
  height?: number;
  note?: string;
}

/** Sums from the bottom up. What one series does not know counts as nothing; where no series knows anything there is a gap. */
export function stack(series: readonly (readonly (number | null)[])[]): (number | null)[][] {
  const isKnown = (series[0] ?? []).map((_, at) => series.some((one) => one[at] != null));
  const sums: (number | null)[][] = [];
  for (const values of series) {
    const below = sums[sums.length - 1];
    sums.push(values.map((value, at) => (isKnown[at] ? (value ?? 0) + (below?.[at] ?? 0) : null)));
  }
  return sums;
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
  const events = useContext(EventMarks);
  const marks = props.marks ?? (props.x.shared ? events : NO_MARKS);
  const latest = useRef(props);
  latest.current = { ...props, marks };
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [cursor, setCursor] = useState<Reading>({ at: null, x: null, words: "" });
  const { theme, width } = useMotion(holder);
  const [said, say] = useState("");
  const pause = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(pause.current), []);

  const visible = props.series.filter((series) => !hidden.has(series.name));
  const compared = useContext(ComparedWith)?.words;
  const before = hidden.has(EARLIER) ? [] : visible.flatMap(behind);
  // The highest is drawn first and the others over it.
  const drawn = props.stacked ? [...visible].reverse() : [...before, ...visible];
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
  }, [shape, theme, width, props.height, marks.length > 0]);

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
    marks,
    hidden,
    range[0],
    range[1],
    y[0],
    y[1],
    shape,
    theme,
    width,
    props.height,
    marks.length > 0,
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
      ArrowLeft: () => (event.shiftKey ? pan(-0.2) : step(-1)),
      ArrowRight: () => (event.shiftKey ? pan(0.2) : step(1)),
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
    if (x === undefined) return;
    moveCursor(made, made.valToPos(x, "x"));
    // Who holds the key hears the value at which it is released.
    clearTimeout(pause.current);
    pause.current = setTimeout(() => say(heard.current()), QUIET_MS);
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
  const reading = cursor.x === null ? "" : [props.x.show(cursor.x), cursor.words].filter(Boolean).join(" · ");
  const heard = useRef<() => string>(() => "");
  heard.current = () => spoken(reading, visible, at, props.y);
  const rectangleTitle = props.onRectangle ? "Drag a rectangle to compare what is in it with the rest. " : "";
  const zoomTitle = `${rectangleTitle}Drag to zoom, Shift and drag to pan, double click for all; arrows read values, with Shift they pan, + and - and 0 zoom`;
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
        {reading || `${props.y.name} over ${props.x.name}`}
      </p>
      <p class="heard" role="status">
        {said}
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
                {at !== null && series.earlier && <small>{differenceAt(series, at, props.y)}</small>}
              </button>
            </li>
          ))}
          {compared !== undefined && props.series.some(({ earlier }) => earlier) && (
            <li>
              <button
                type="button"
                aria-pressed={!hidden.has(EARLIER)}
                title="The dashed lines. Click to hide or show them."
                onClick={() => toggle(EARLIER, false)}
              >
                <i class="dashed" />
                <span>{compared}</span>
              </button>
            </li>
          )}
        </ul>
      )}
      {props.note && <p class="dim">{props.note}</p>}
    </figure>
  );
}

/** How long the cross-hair stays where it is until its values are spoken, in milliseconds. */
const QUIET_MS = 600;
/** Of how many series the values are spoken: nobody listens to more. */
const MAX_SPOKEN = 4;

/** What a screen reader says of a place. */
export function spoken(reading: string, series: readonly Series[], at: number | null, axis: Axis): string {
  if (at === null) return reading;
  const values = series
    .slice(0, MAX_SPOKEN)
    .map((one) => [one.name, valueAt(one, at, axis), differenceAt(one, at, axis)].filter(Boolean).join(" "));
  const more = series.length - values.length;
  return `${reading}: ${values.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

const heightOf = (height = 260): number => Math.round((height * letters()) / 12.5);

/** What the lines of an earlier time are hidden by; no series has this name. */
const EARLIER = "\0";

/** The line of an earlier time behind that of a series. */
const behind = ({ earlier, ...series }: Series): Series[] =>
  earlier ? [{ ...series, name: EARLIER + series.name, values: earlier, dashed: true, muted: true }] : [];

const differenceAt = ({ values, earlier }: Series, at: number, axis: Axis): string =>
  difference(values[at], earlier?.[at], axis.show);

function valueAt(series: Series, at: number, axis: Axis): string {
  const value = series.values[at];
  return value == null ? "-" : axis.show(value);
}
