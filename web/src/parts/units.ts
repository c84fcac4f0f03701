// Values of figures of the server's internals and of the machine, by the name of their unit.

import { bytes, count, duration, percent } from "./format";

type Show = (value: number | null | undefined, more?: number) => string;

/** How values of a unit are written. */
const SHOW: Record<string, Show> = {
  per_second: (value, more) => count(value, more) + "/s",
  bytes,
  bytes_per_second: (value, more) => bytes(value, more) + "/s",
  milliseconds: (value, more) => duration(value == null ? value : value * 1e6, more),
  percent: (value) => percent(value == null ? value : value / 100, 1),
};

/** How values of the unit of a figure are written. */
export const show = ({ unit }: { unit: string }): Show => SHOW[unit] ?? count;

/** What the axis of a unit is called. */
const AXES: Record<string, string> = {
  per_second: "a second",
  bytes: "bytes",
  bytes_per_second: "bytes a second",
  milliseconds: "time",
  percent: "per cent",
  ratio: "ratio",
};

/** What the axis of the unit of a figure is called. */
export const axis = ({ unit }: { unit: string }): string => AXES[unit] ?? unit;
