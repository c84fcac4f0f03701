// Which columns of a table are shown, and in which order its rows stand. No DOM here.

import { duration } from "./format";

/** A column. */
export interface Column<Row> {
  name: string;
  /** What it means, shown when it is pointed at. */
  about?: string;
  /** What it is sorted by. What is not known sorts last, either way. */
  value: (row: Row) => number | string | null | undefined;
  /** The unit of the value; none for counts and texts. */
  unit?: string;
  /** How a figure is shown, with its unit. */
  format?: (value: number | null) => string;
  /** What is shown where that does not follow from the value; the value itself where both are left out. */
  show?: (row: Row) => string;
  /** Text stands left and wraps. */
  text?: boolean;
  /** The column that is never left out and takes what room is left. */
  main?: boolean;
  /** Which goes first where there is no room: the greatest. */
  rank?: number;
  /** A value of 0 says something here. */
  zero?: boolean;
  /** The value is a share of 1, and a bar of that length stands behind it. */
  bar?: boolean;
  /** A class for the cell. */
  tone?: (row: Row) => string;
}

/** Figures of latencies, in nanoseconds. */
type Latency = "mean" | "p50" | "p95" | "p99" | "p99.9" | "max";

/** The columns of a latency: those that have a rank. */
export const latencyColumns = <Row>(
  of: (row: Row) => Partial<Record<Latency, number | null>>,
  ranks: Partial<Record<Latency, number>>,
): Column<Row>[] =>
  (Object.entries(ranks) as [Latency, number][]).map(([name, rank]) => ({
    name,
    value: (row) => of(row)[name],
    unit: "ns",
    format: duration,
    rank,
  }));

/** What a cell shows. */
export function shown<Row>(column: Column<Row>, row: Row): string {
  if (column.show) return column.show(row);
  const value = column.value(row);
  if (column.format) return column.format(typeof value === "number" ? value : null);
  return value == null ? "-" : String(value);
}

/** Whether a column says nothing of any row. */
export const isEmpty = <Row>(column: Column<Row>, rows: readonly Row[]): boolean =>
  !column.main &&
  rows.every((row) => {
    const value = column.value(row);
    return value == null || value === "" || (value === 0 && !column.zero) || Number.isNaN(value);
  });

/** Rows in the order of a column; equal ones stay as they were. */
export function sorted<Row>(rows: readonly Row[], column: Column<Row>, descending: boolean): Row[] {
  const known = (value: number | string | null | undefined) => value != null && value !== "" && !Number.isNaN(value);
  return rows
    .map((row, at) => ({ row, at, value: column.value(row) }))
    .sort((a, b) => {
      if (!known(a.value) || !known(b.value)) return Number(known(b.value)) - Number(known(a.value)) || a.at - b.at;
      const order =
        typeof a.value === "number" && typeof b.value === "number"
          ? a.value - b.value
          : String(a.value).localeCompare(String(b.value), "en", { numeric: true });
      return (descending ? -order : order) || a.at - b.at;
    })
    .map((entry) => entry.row);
}

/** Texts that a filter searches beside the text columns. Those with names can be searched one by one. */
export type MoreText = string | Record<string, readonly string[]>;

/**
 * Rows that hold a text somewhere; case does not matter. `command:find` holds it in what has that name, and
 * `command:"find"` is exactly that there.
 */
export function filtered<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  needle: string,
  more: (row: Row) => MoreText = () => "",
): Row[] {
  const texts = columns.filter((column) => column.text);
  const fieldsOf = (row: Row): Record<string, readonly string[]> => {
    const others = more(row);
    const own = Object.fromEntries(texts.map((column) => [column.name, [shown(column, row)]]));
    return { ...own, ...(typeof others === "string" ? { "": [others] } : others) };
  };
  const known = rows.length > 0 ? fieldsOf(rows[0]!) : {};
  const named: [name: string, fits: (text: string) => boolean][] = [];
  const text = needle
    .toLowerCase()
    .replace(/(\w+):("([^"]*)"|\S+)/g, (whole, name: string, part: string, exact?: string) => {
      if (!Object.hasOwn(known, name)) return whole;
      named.push([name, (text) => (exact === undefined ? text.includes(part) : text === exact)]);
      return "";
    })
    .trim();
  if (!text && named.length === 0) return [...rows];
  return rows.filter((row) => {
    const fields = fieldsOf(row);
    return (
      named.every(([name, fits]) => fields[name]?.some((text) => fits(text.toLowerCase()))) &&
      Object.values(fields).flat().join(" ").toLowerCase().includes(text)
    );
  });
}

/** All columns of some rows as CSV (RFC 4180): figures as they are, and no text that a spreadsheet would compute. */
export function csv<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const cell = (value: number | string | null | undefined) => {
    const text = typeof value === "string" ? value.replace(/^[=+@\t\r-]/, "'$&") : String(value ?? "");
    return /[",\r\n]|^ | $/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const heads = columns.map(({ name, unit }) => (unit ? `${name} (${unit})` : name));
  const lines = rows.map((row) =>
    columns.map((column) => (column.text ? shown(column, row) : column.value(row))).map(cell),
  );
  return [heads.map(cell), ...lines].map((line) => line.join(",") + "\r\n").join("");
}

/** Characters that a column needs, by its heading and its first rows. */
export function charactersOf<Row>(column: Column<Row>, rows: readonly Row[]): number {
  const widths = rows.slice(0, 300).map((row) => [...shown(column, row)].length);
  // The heading has an arrow when it is sorted by.
  return Math.min(Math.max(column.name.length + 1, ...widths), column.text ? 24 : 40);
}

/** How the columns are laid out. */
export interface Layout {
  /** Which are shown. */
  shown: boolean[];
  /** Whether the main column stands below the others, over the whole width. */
  stacked: boolean;
}

/**
 * Chooses columns for a width, all in characters. The main column is always there: beside the others where all that
 * matter (rank below 3) fit beside it, else below them.
 */
export function layout(
  columns: readonly { width: number; rank: number; main: boolean }[],
  available: number,
  mainLeast = 32,
): Layout {
  const choose = (room: number): boolean[] => {
    const chosen = columns.map((column) => column.main);
    const order = columns.map((_, at) => at).sort((a, b) => columns[a]!.rank - columns[b]!.rank || a - b);
    for (const at of order) {
      const column = columns[at]!;
      if (column.main) continue;
      if (column.width > room) break;
      room -= column.width;
      chosen[at] = true;
    }
    return chosen;
  };
  if (!columns.some((column) => column.main)) return { shown: choose(available), stacked: false };
  const beside = choose(available - mainLeast);
  const matters = columns.every((column, at) => beside[at] || column.rank >= 3);
  return matters ? { shown: beside, stacked: false } : { shown: choose(available), stacked: true };
}
