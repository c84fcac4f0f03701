// Which columns of a table are shown, and in which order its rows stand. No DOM here.

import { duration } from "./format";

/** A column. */
export interface Column<Row> {
  name: string;
  /** What it means, shown when it is pointed at. */
  about?: string;
  /** What it is sorted by. What is not known sorts last, either way. */
  value: (row: Row) => number | string | null | undefined;
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

/** Rows that hold a text somewhere; case does not matter. */
export function filtered<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  needle: string,
  more?: (row: Row) => string,
): Row[] {
  const text = needle.trim().toLowerCase();
  if (!text) return [...rows];
  return rows.filter((row) => {
    const cells = columns.filter((column) => column.text).map((column) => shown(column, row));
    return [...cells, more?.(row) ?? ""].join(" ").toLowerCase().includes(text);
  });
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
