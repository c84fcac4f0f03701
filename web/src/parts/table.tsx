// A table that sorts, filters, leaves out what is empty, and never pushes its main column off the screen.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { type Column, charactersOf, csv, filtered, isEmpty, layout, type MoreText, shown, sorted } from "./columns";
import { useMotion } from "./motion";
import { beginnings, rowsBetween } from "./rows";
import { save } from "./save";

/** Up to so many rows, all are drawn; of more only those in sight. Paper has so many. */
const PAGE = 200;
/** Up to this many characters, margins included, a text stays on one line. */
const SHORT = 20;

export interface TableProps<Row> {
  name: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  /** The column it is sorted by at first; as the rows come where it is left out. */
  by?: string;
  ascending?: boolean;
  /**
   * With a box to filter by. `words` are looked through beside the columns of text. `text` is what it holds at first, and
   * `commit` takes what was typed.
   */
  filter?: { words?: (row: Row) => MoreText; text?: string; commit?: (text: string) => void };
  /** With buttons that save the rows that are shown; the document of these rows. */
  document?: (rows: readonly Row[]) => unknown;
  /** What is shown below a row that was chosen. */
  detail?: (row: Row) => ComponentChildren;
  chosen?: Row | null;
  onChoose?: (row: Row | null) => void;
  /** The colour of a row. */
  mark?: (row: Row) => string | undefined;
  rowClass?: (row: Row) => string;
  children?: ComponentChildren;
}

export function Table<Row>(props: TableProps<Row>) {
  const holder = useRef<HTMLDivElement>(null);
  const { width } = useMotion(holder);
  const [order, setOrder] = useState({ by: props.by ?? "", descending: !props.ascending });
  const [needle, setNeedle] = useState("");
  useLayoutEffect(() => setNeedle(props.filter?.text ?? ""), [props.filter?.text]);
  const [asked, setAsked] = useState<ReadonlySet<string>>(new Set());
  const [own, setOwn] = useState<Row | null>(null);
  const chosen = props.chosen === undefined ? own : props.chosen;
  const choose = props.onChoose ?? setOwn;

  const full = useMemo(
    () => props.columns.filter((column) => !isEmpty(column, props.rows)),
    [props.columns, props.rows],
  );
  const empty = props.columns.filter((column) => !full.includes(column));
  const widths = useMemo(() => full.map((column) => charactersOf(column, props.rows) + 2.2), [full, props.rows]);
  // Columns that were asked for come before all others.
  const fitting = layout(
    full.map((column, at) => ({
      width: widths[at]!,
      rank: asked.has(column.name) ? -1 : (column.rank ?? 0),
      main: column.main ?? false,
    })),
    width / characterWidth(holder.current) - (props.mark ? 2.5 : 0),
  );
  const columns = full.filter((_, at) => fitting.shown[at]);
  const left = full.filter((_, at) => !fitting.shown[at]);
  const main = fitting.stacked ? columns.find((column) => column.main) : undefined;
  // Names that found no room stand with the main column.
  const folded = main ? left.filter((column) => column.text && (column.rank ?? 0) <= 3) : [];
  const heads = columns.filter((column) => column !== main);

  const by = props.columns.find((column) => column.name === order.by);
  const list = useMemo(() => {
    const rows = filtered(props.rows, props.columns, needle, props.filter?.words);
    return by ? sorted(rows, by, order.descending) : rows;
  }, [props.rows, props.columns, needle, by, order.descending]);

  const drawn = useDrawnRows(list.length, width);
  const places = useMemo(() => new Map(props.rows.map((row, at) => [row, at])), [props.rows]);
  const sort = (column: Column<Row>) =>
    setOrder((before) => ({
      by: column.name,
      descending: before.by === column.name ? !before.descending : !column.text,
    }));
  const isChoosable = props.detail !== undefined || props.onChoose !== undefined;
  const move = (event: KeyboardEvent, row: Row) => {
    const body = event.currentTarget as HTMLElement;
    const other = {
      ArrowDown: body.nextElementSibling,
      j: body.nextElementSibling,
      ArrowUp: body.previousElementSibling,
      k: body.previousElementSibling,
    }[event.key];
    if (event.target !== body || event.ctrlKey || event.metaKey || event.altKey) return;
    if (other instanceof HTMLElement && other.tabIndex >= 0) other.focus();
    else if (event.key === "Enter" || event.key === " ") choose(row === chosen ? null : row);
    else if (event.key === "Escape") choose(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const click = (event: MouseEvent, row: Row) => {
    // Somebody who selects text does not choose a row.
    if (String(getSelection() ?? "") || (event.target as HTMLElement).closest("a, button, input, .detail")) return;
    choose(row === chosen ? null : row);
  };
  // The main column would take the room of short texts, such as ids, and wrap them.
  const atLeast = (column: Column<Row>) => {
    const characters = widths[full.indexOf(column)]!;
    return column.text && !column.main && characters <= SHORT ? { minWidth: `${characters}ch` } : {};
  };
  const cell = (column: Column<Row>, row: Row) => (
    <td
      key={column.name}
      data-name={column.name}
      class={[column.text ? "text" : "", column.main ? "main" : "", column.tone?.(row) ?? ""].filter(Boolean).join(" ")}
      style={column.bar ? bar(Number(column.value(row))) : atLeast(column)}
    >
      {column.main ? <div class="clamp">{shown(column, row)}</div> : shown(column, row)}
    </td>
  );
  const span = heads.length + (props.mark ? 1 : 0);
  return (
    <div class="table" ref={holder}>
      <div class="controls">
        {props.filter && (
          <input
            type="search"
            class="filter"
            placeholder="filter ( / )"
            aria-label={`Show rows of ${props.name} that hold this`}
            value={needle}
            onInput={(event) => setNeedle(event.currentTarget.value)}
            onChange={(event) => props.filter?.commit?.(event.currentTarget.value)}
          />
        )}
        {props.children}
        {props.document && (
          <span class="tools" role="group" aria-label={`Save ${props.name}`}>
            <button
              type="button"
              title="Save these rows as CSV"
              onClick={() => save(`${props.name}.csv`, "text/csv", csv(props.columns, list))}
            >
              CSV
            </button>
            <button
              type="button"
              title="Save these rows as JSON"
              onClick={() => save(`${props.name}.json`, "application/json", JSON.stringify(props.document?.(list)))}
            >
              JSON
            </button>
          </span>
        )}
        {(left.length > 0 || empty.length > 0 || asked.size > 0) && (
          <details class="choose">
            <summary>{left.length > 0 ? `Columns (${left.length} do not fit)` : "Columns"}</summary>
            <div>
              {full
                .filter((column) => !column.main)
                .map((column) => (
                  <label key={column.name} title={column.about ?? ""}>
                    <input
                      type="checkbox"
                      checked={columns.includes(column)}
                      onChange={() =>
                        setAsked((before) => {
                          const next = new Set(before);
                          return next.delete(column.name) ? next : next.add(column.name);
                        })
                      }
                    />
                    {column.name}
                  </label>
                ))}
              {empty.length > 0 && <span class="dim">Nothing in: {empty.map((column) => column.name).join(", ")}</span>}
            </div>
          </details>
        )}
      </div>
      <table
        ref={drawn.table}
        aria-label={props.name}
        aria-rowcount={drawn.isLong ? list.length + 1 : undefined}
        class={fitting.stacked ? "stacked" : columns.some((column) => column.main) ? "" : "narrow"}
        data-columns={columns.length}
      >
        <thead>
          <tr>
            {props.mark && <th class="mark" />}
            {heads.map((column) => (
              <th
                key={column.name}
                scope="col"
                class={column.text ? "text" : ""}
                style={
                  (column.text || drawn.isLong) && !column.main
                    ? { minWidth: `calc(${0.85 * charactersOf(column, props.rows)}ch + 1rem)` }
                    : {}
                }
                aria-sort={column === by ? (order.descending ? "descending" : "ascending") : "none"}
              >
                <button type="button" title={column.about ?? `Sort by ${column.name}`} onClick={() => sort(column)}>
                  {column.name}
                </button>
              </th>
            ))}
          </tr>
          {main && (
            <tr class="second">
              <th
                colSpan={span}
                scope="col"
                class="text"
                aria-sort={main === by ? (order.descending ? "descending" : "ascending") : "none"}
              >
                <button type="button" onClick={() => sort(main)}>
                  {main.name}
                </button>
              </th>
            </tr>
          )}
        </thead>
        <Space height={drawn.above} />
        {list.slice(drawn.first, drawn.end).map((row, at) => (
          <tbody
            key={places.get(row)}
            data-row={drawn.first + at}
            class={[isChoosable ? "choosable" : "", row === chosen ? "chosen" : "", props.rowClass?.(row) ?? ""]
              .filter(Boolean)
              .join(" ")}
            tabIndex={isChoosable ? 0 : -1}
            {...(isChoosable
              ? {
                  "aria-current": row === chosen ? ("true" as const) : undefined,
                  onClick: (event: MouseEvent) => click(event, row),
                  onKeyDown: (event: KeyboardEvent) => move(event, row),
                }
              : {})}
          >
            <tr aria-rowindex={drawn.isLong ? drawn.first + at + 2 : undefined}>
              {props.mark && (
                <td class="mark">
                  <i style={{ background: props.mark(row) ?? "transparent" }} />
                </td>
              )}
              {heads.map((column) => cell(column, row))}
            </tr>
            {main && (
              <tr class="second">
                <td colSpan={span} class={`text main ${main.tone?.(row) ?? ""}`} data-name={main.name}>
                  <div class="clamp">
                    {folded
                      .filter((column) => column.value(row))
                      .map((column) => (
                        <span key={column.name} class="folded" data-name={column.name}>
                          {shown(column, row)}{" "}
                        </span>
                      ))}
                    {shown(main, row)}
                  </div>
                </td>
              </tr>
            )}
            {row === chosen && props.detail && (
              <tr class="second">
                <td colSpan={span} class="detail text">
                  {props.detail(row)}
                </td>
              </tr>
            )}
          </tbody>
        ))}
        <Space height={drawn.below} />
      </table>
      {list.length === 0 && <p class="dim">{needle ? "No row holds this." : "No rows."}</p>}
      {drawn.isLong && (
        <p class="dim">
          {drawn.isPaper ? `${drawn.end} of ` : ""}
          {list.length} rows
        </p>
      )}
    </div>
  );
}

/** The room of rows that are not drawn. */
const Space = ({ height }: { height: number }) =>
  height > 0 ? (
    <tbody aria-hidden="true">
      <tr style={{ height: `${height}px` }} />
    </tbody>
  ) : null;

/** Which rows of a table are drawn. They may have any heights, which are measured when they are drawn. */
function useDrawnRows(count: number, width: number) {
  const table = useRef<HTMLTableElement>(null);
  const heights = useRef<(number | undefined)[]>([]);
  const [rows, setRows] = useState<[first: number, end: number]>([0, PAGE]);
  const [isPaper, setPaper] = useState(false);
  const isLong = count > PAGE;
  // Rows of another width have other heights.
  useLayoutEffect(() => {
    heights.current = [];
  }, [width]);
  useLayoutEffect(() => {
    if (!isLong) return;
    for (const row of table.current?.querySelectorAll<HTMLElement>("[data-row]") ?? [])
      heights.current[Number(row.dataset["row"])] = row.offsetHeight;
  });
  useEffect(() => {
    if (!isLong) return;
    const look = () => {
      const top = -(table.current?.tHead?.getBoundingClientRect().bottom ?? 0);
      const found = rowsBetween(beginnings(heights.current, count), top - innerHeight, top + 2 * innerHeight);
      setRows((before) => (String(before) === String(found) ? before : found));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    // Paper does not scroll.
    const [print, back] = [() => setPaper(true), () => setPaper(false)];
    addEventListener("beforeprint", print);
    addEventListener("afterprint", back);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
      removeEventListener("beforeprint", print);
      removeEventListener("afterprint", back);
    };
  }, [count, width]);
  if (!isLong || isPaper) return { table, isLong, isPaper, first: 0, end: Math.min(count, PAGE), above: 0, below: 0 };
  const end = Math.min(rows[1], count);
  const first = Math.min(rows[0], end);
  const places = beginnings(heights.current, count);
  return { table, isLong, isPaper, first, end, above: places[first]!, below: places[count]! - places[end]! };
}

/** A bar behind a cell, for a share of 1. */
const bar = (share: number) => ({
  backgroundImage: `linear-gradient(to right, var(--bar) ${(share * 100).toFixed(1)}%, transparent 0)`,
  minWidth: "7rem",
});

/** Pixels of an average digit in the table. */
function characterWidth(holder: HTMLElement | null): number {
  const size = holder ? Number.parseFloat(getComputedStyle(holder).fontSize) : 14;
  return size * 0.58;
}
