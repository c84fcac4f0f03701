// The boxes of a flame graph. No DOM here.

import type { StackRow } from "../report";

/** A function with one chain of callers; next to the root a role of threads, at the end a class. */
export interface FlameBox {
  /** Its number, from 0 for the root. */
  id: number;
  name: string;
  samples: number;
  parent: FlameBox | null;
  /** What it called, the most frequent first. */
  inside: FlameBox[];
}

/** Where a box stands: shares of the whole width, and its row from the top. */
export interface PlacedBox {
  box: FlameBox;
  left: number;
  width: number;
  row: number;
}

/** The most boxes that are drawn. */
const MOST = 4000;

/** The names of a stack's boxes from the root on: role, functions from the outermost on, class. */
export function path(row: StackRow, isFull: boolean): string[] {
  const functions = row.frames.filter((frame, at) => at === 0 || isFull || !frame.machinery);
  return [row.role ?? "other threads", ...functions.map(({ function: name }) => name).reverse(), `[${row.class}]`];
}

/** All stacks in one box. */
export function flame(rows: readonly StackRow[], isFull: boolean): FlameBox {
  let id = 0;
  const children = new Map<FlameBox, Map<string, FlameBox>>();
  const make = (name: string, parent: FlameBox | null): FlameBox => {
    const box: FlameBox = { id: id++, name, samples: 0, parent, inside: [] };
    children.set(box, new Map());
    parent?.inside.push(box);
    return box;
  };
  const root = make("all", null);
  for (const row of rows) {
    let box = root;
    root.samples += row.samples;
    for (const name of path(row, isFull)) {
      const known = children.get(box)!;
      const next = known.get(name) ?? make(name, box);
      known.set(name, next);
      next.samples += row.samples;
      box = next;
    }
  }
  for (const { inside } of children.keys()) inside.sort((a, b) => b.samples - a.samples || (a.name < b.name ? -1 : 1));
  return root;
}

/** The boxes from the root to the caller of `box`. */
export const callers = (box: FlameBox): FlameBox[] => (box.parent ? [...callers(box.parent), box.parent] : []);

/** Places the callers of `focus`, which has the whole width, and what it called, down to the width `least`. */
export function placed(focus: FlameBox, least: number): PlacedBox[] {
  const above = callers(focus);
  const found: PlacedBox[] = above.map((box, row) => ({ box, left: 0, width: 1, row }));
  const next: PlacedBox[] = [{ box: focus, left: 0, width: 1, row: above.length }];
  for (const one of next) {
    found.push(one);
    let { left } = one;
    for (const box of one.box.inside) {
      const width = box.samples / focus.samples;
      if (width >= least) next.push({ box, left, width, row: one.row + 1 });
      left += width;
    }
  }
  // A box is never wider than its caller.
  return found.length > MOST ? found.sort((a, b) => b.width - a.width).slice(0, MOST) : found;
}

/** Samples in or below boxes whose name contains `text`; each counts once. */
export const matching = (box: FlameBox, text: string): number =>
  box.name.toLowerCase().includes(text)
    ? box.samples
    : box.inside.reduce((sum, inside) => sum + matching(inside, text), 0);

/** Classes are blue, WiredTiger is green, everything else is warm; equal names have equal colours. */
export function hue(name: string): string {
  let sum = 7;
  for (const letter of name) sum = (Math.imul(sum, 31) + letter.codePointAt(0)!) >>> 0;
  const [from, spread] = name.startsWith("[") ? [205, 20] : /^__wti?_/.test(name) ? [120, 25] : [25, 30];
  return `hsl(${from + (sum % spread)} 75% ${68 + ((sum >>> 6) % 10)}%)`;
}
