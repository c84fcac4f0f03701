// Moments as inputs of the browser have them, and the ranges that are made of them.

const DAY_MS = 86_400_000;
/** The longest range that the server answers. */
export const MAX_DAYS = 31;

/** A moment as an input of the browser has it: in its zone, or in UTC. */
export function inputText(ms: number, zone: string): string {
  const offset = zone === "UTC" ? 0 : new Date(ms).getTimezoneOffset() * 60_000;
  return new Date(ms - offset).toISOString().slice(0, 19);
}

/** The moment that an input of the browser has; not a number if it has none. */
export const momentOf = (text: string, zone: string): number => Date.parse(zone === "UTC" ? `${text}Z` : text);

/** What is known of the time around a range, in milliseconds since 1970. */
export interface KnownTime {
  now: number;
  /** What the history covers; null if it is empty or not known. */
  kept: readonly [from: number, to: number] | null;
}

/** Why a range cannot be shown, in words; empty if it can. Milliseconds since 1970; what was not entered is not a number. */
export function rangeProblem(from: number, to: number, { now, kept }: KnownTime, zone: string): string {
  const words = (ms: number) => inputText(ms, zone).replace("T", " ");
  if (Number.isNaN(from)) return "Enter the day and the time of the start.";
  if (Number.isNaN(to)) return "Enter the day and the time of the end.";
  if (to <= from) return "The end is not later than the start.";
  // The clock of the host may be ahead.
  if (from >= Math.max(now, kept?.[1] ?? 0)) return "The start is still to come.";
  if (to - from > MAX_DAYS * DAY_MS)
    return `At most ${MAX_DAYS} days can be shown at once; these are ${Math.ceil((to - from) / DAY_MS)}.`;
  if (kept !== null && to <= kept[0])
    return `Nothing is kept of this time: the history begins at ${words(kept[0])}. Choose a later end.`;
  if (kept !== null && from >= kept[1])
    return `Nothing is stored of this time: the history ends at ${words(kept[1])}. Choose an earlier start.`;
  return "";
}
