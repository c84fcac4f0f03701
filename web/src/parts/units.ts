// Values of figures of the server's internals and of the machine, by the name of their unit.

import { bytes, count, duration, percent, visible } from "./format";

type Show = (value: number | null | undefined, more?: number) => string;

/** How values of a unit are written. */
const SHOW: Record<string, Show> = {
  per_second: (value, more) => count(value, more) + "/s",
  bytes,
  bytes_per_second: (value, more) => bytes(value, more) + "/s",
  milliseconds: (value, more) => duration(value == null ? value : value * 1e6, more),
  percent: (value, more = 0) => percent(value == null ? value : value / 100, 1 + more),
};

/** How values of the unit of a figure are written. */
export const show = ({ unit }: { unit: string }): Show => SHOW[unit] ?? count;

/** What the axis of a unit is called. */
const AXES: Record<string, string> = {
  per_second: "per second",
  bytes: "bytes",
  bytes_per_second: "bytes per second",
  milliseconds: "time",
  percent: "per cent",
  ratio: "ratio",
};

/** What the axis of the unit of a figure is called. */
export const axis = ({ unit }: { unit: string }): string => AXES[unit] ?? unit;

/** A unit in the title of a chart. */
const IN_UNITS: Record<string, string> = {
  count: "counts",
  per_second: "per second",
  bytes: "in bytes",
  bytes_per_second: "in bytes per second",
  milliseconds: "durations",
  percent: "in per cent",
  ratio: "ratios",
};

/** How many figures the title of a chart names at most. */
const MAX_NAMED = 2;

/** What a chart of figures of one unit is called: by their names if they are few, else by their group and unit. */
export function chartTitle(group: string, figures: readonly { title: string; unit: string }[]): string {
  const titles = [...new Set(figures.map(({ title }) => visible(title)))];
  const unit = figures[0]?.unit ?? "";
  const title = titles.length > MAX_NAMED ? `${group}, ${IN_UNITS[unit] ?? unit}` : titles.join(" and ");
  return title.slice(0, 1).toUpperCase() + title.slice(1);
}
