// Figures as people read them. The same units and digits as in the terminal (`sonar-view/src/units.rs`).

/** What stands where a figure is not known. */
export const UNKNOWN = "-";

export type Known = number | null | undefined;

const isKnown = (value: Known): value is number => value != null && Number.isFinite(value);

/** Three significant digits, or more. */
function digits(value: number, more = 0): string {
  const size = Math.abs(value);
  return value.toFixed((size < 9.995 ? 2 : size < 99.95 ? 1 : 0) + more);
}

/** A count or a rate with a decimal prefix: `0.051`, `3.40`, `123`, `3.40k`. `more` digits tell close ones apart. */
export function count(value: Known, more = 0): string {
  if (!isKnown(value)) return UNKNOWN;
  if (value < 0) return "-" + count(-value, more);
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  let at = 0;
  while (value >= 999.5 && at + 1 < prefixes.length) {
    value /= 1000;
    at++;
  }
  if (at === 0 && Number.isInteger(value)) return value.toFixed(0);
  if (at === 0 && value < 0.0995) return value < 0.0005 ? "<.001" : value.toFixed(3 + more);
  return digits(value, more) + prefixes[at];
}

/** A number of bytes: `4.10kB`. */
export const bytes = (value: Known, more = 0): string => (isKnown(value) ? count(value, more) + "B" : UNKNOWN);

/** A whole number in full: `49,559`. */
export const exact = (value: Known): string => (isKnown(value) ? Math.round(value).toLocaleString("en-US") : UNKNOWN);

/** A duration in nanoseconds: `850ns`, `12.3µs`, `1.20ms`, `5m12s`, `3h05m`, `2d04h`. */
export function duration(ns: Known, more = 0): string {
  if (!isKnown(ns)) return UNKNOWN;
  if (ns < 0) return "-" + duration(-ns, more);
  if (ns < 999.5) return `${Math.round(ns)}ns`;
  if (ns < 999_500) return digits(ns / 1e3, more) + "µs";
  if (ns < 999_500_000) return digits(ns / 1e6, more) + "ms";
  if (ns < 59_950_000_000 || more > 0) return digits(ns / 1e9, more) + "s";
  const seconds = Math.floor((ns + 5e8) / 1e9);
  const two = (part: number) => String(part).padStart(2, "0");
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)}h${two(Math.floor(seconds / 60) % 60)}m`;
  return `${Math.floor(seconds / 86_400)}d${two(Math.floor(seconds / 3_600) % 24)}h`;
}

/** A duration that the source rounded down to whole multiples of `precision` nanoseconds. */
export function rounded(ns: Known, precision: number): string {
  if (!isKnown(ns)) return UNKNOWN;
  if (precision <= 1) return duration(ns);
  if (ns < precision) return `<${precision / 1e6}ms`;
  return duration(Math.floor(ns / precision) * precision);
}

/** A share of 1 as per cent. */
export const percent = (share: Known, decimals = 0): string => {
  if (!isKnown(share)) return UNKNOWN;
  const text = (share * 100).toFixed(decimals);
  return (Number(text) === 0 ? text.replace("-", "") : text) + "%";
};

/** A number with fixed decimals. */
export const fixed = (value: Known, decimals = 2): string => (isKnown(value) ? value.toFixed(decimals) : UNKNOWN);

/** A figure without zeros that say nothing: `1ms` for `1.00ms`. For ticks, which are round. */
export const brief = (text: string): string =>
  text
    .replace(/^0ns$/, "0s")
    .replace(/(\d)\.(\d*?)0+(?=\D|$)/, (_, whole: string, part: string) => whole + (part && "." + part));

/** `1 client`, `4 clients`. */
export const plural = (n: number, one: string, many = one + "s"): string => `${exact(n)} ${n === 1 ? one : many}`;

// Controls, and marks that reorder or hide text (bidirectional, zero width, soft hyphen, byte order, variation).
const INVISIBLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

/** A name as it can be seen: what would be invisible, or reorder the text beside it, is spelt out. */
export const visible = (text: string): string =>
  text.replace(INVISIBLE, (mark) => `\\u{${(mark.codePointAt(0) ?? 0).toString(16)}}`);
