// Where the ticks of an axis are, and what they say.

import type { Axis } from "./chart";
import type { Clock } from "./time";

/** Places of ticks with their labels. */
export interface Ticks {
  at: number[];
  labels: string[];
}

/** The step of 1, 2 or 5 times a power of ten that gives at most `most` parts. */
export function niceStep(span: number, most: number): number {
  const raw = span / Math.max(most, 1);
  if (!(raw > 0) || !Number.isFinite(raw)) return 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  for (const step of [1, 2, 5]) if (step * power >= raw * (1 - 1e-9)) return step * power;
  return 10 * power;
}

/** Multiples of a step within bounds. */
function multiples(min: number, max: number, step: number, offset = 0): number[] {
  const at = [];
  const first = Math.ceil((min + offset) / step - 1e-9);
  for (let n = first; n * step - offset <= max + step * 1e-9 && at.length < 1_000; n++) {
    // Not 0.30000000000000004.
    at.push(Number((n * step - offset).toPrecision(15)));
  }
  return at;
}

/** Ticks from `min` to `max`, about `most` of them. Labels get more digits until no two are equal. */
export function linearTicks(
  min: number,
  max: number,
  most: number,
  label: (value: number, more: number) => string,
): Ticks {
  let at = multiples(min, max, niceStep(max - min, most));
  // One tick tells no scale.
  for (let parts = most + 1; at.length < 2 && parts < 4 * most; parts++)
    at = multiples(min, max, niceStep(max - min, parts));
  for (let more = 0; ; more++) {
    const labels = at.map((value) => label(value, more));
    if (more > 6 || new Set(labels).size === labels.length) return { at, labels };
  }
}

/** Ticks on a logarithmic axis: 1, 2, 5 where there is room, else powers of the base, or every n-th of them. */
export function logTicks(
  min: number,
  max: number,
  most: number,
  base: number,
  label: (value: number, more?: number) => string,
): Ticks {
  const low = Math.floor(Math.log(min) / Math.log(base) + 1e-9);
  const high = Math.ceil(Math.log(max) / Math.log(base) - 1e-9);
  const inside = (value: number) => value >= min * (1 - 1e-9) && value <= max * (1 + 1e-9);
  let at: number[] = [];
  const every = Math.max(1, Math.ceil((high - low + 1) / Math.max(most, 1)));
  for (let power = low; power <= high; power += every) at.push(base ** power);
  if (base === 10 && (high - low) * 3 <= most) at = at.flatMap((value) => [value, 2 * value, 5 * value]);
  at = at.filter(inside);
  if (at.length < 2) return linearTicks(min, max, most, label);
  return { at, labels: at.map((value) => label(value)) };
}

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const TIME_STEPS = [
  0.001,
  0.002,
  0.005,
  0.01,
  0.02,
  0.05,
  0.1,
  0.2,
  0.5,
  1,
  2,
  5,
  10,
  15,
  30,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  10 * DAY,
  20 * DAY,
  50 * DAY,
  100 * DAY,
  200 * DAY,
  500 * DAY,
];

/** Ticks at round times of the clock, the date below the first of each day. Seconds since 1970. */
export function timeTicks(min: number, max: number, most: number, clock: Clock): Ticks {
  const span = max - min;
  const of = (step: number) => multiples(min, max, step, clock.offset(min));
  const steps = [...TIME_STEPS, DAY * niceStep(span / DAY, most)].filter((step) => span / step <= 2 * most + 2);
  const fitting = steps.findIndex((step) => of(step).length <= most);
  let step = steps[Math.max(fitting, 0)] ?? span;
  // One tick tells no scale.
  if (fitting > 0 && of(step).length < 2) step = steps[fitting - 1]!;
  const at = of(step);
  let day = "";
  const labels = at.map((value) => {
    const date = clock.date(value);
    let text: string;
    if (step >= DAY) text = date;
    else if (step < 1) text = clock.time(value, step < 0.01 ? 3 : step < 0.1 ? 2 : 1);
    else text = step < MINUTE ? clock.time(value) : clock.time(value).slice(0, 5);
    if (step < DAY && date !== day) text += `\n${date}`;
    day = date;
    return text;
  });
  return { at, labels };
}

/** The axis of the time of a clock; `decimals` of a second are shown where the cross-hair is. */
export const timeAxis = (clock: Clock, decimals = 0): Axis => ({
  name: `time (${clock.name})`,
  shared: true,
  show: (at) => clock.full(at, decimals),
  ticks: (min, max, most) => timeTicks(min, max, most, clock),
});

/** Ticks below numbered places: every n-th label, so that none touches another. */
export function placeTicks(min: number, max: number, most: number, labels: readonly string[]): Ticks {
  const first = Math.max(0, Math.ceil(min));
  const last = Math.min(labels.length - 1, Math.floor(max));
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(most, 1)));
  const at = [];
  for (let place = Math.ceil(first / every) * every; place <= last; place += every) at.push(place);
  return { at, labels: at.map((place) => labels[place] ?? "") };
}
