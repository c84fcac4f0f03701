// Which rows of a long table are drawn: those in sight, and some around them. No DOM here.

/** Rows are drawn in groups of so many, so that a short way of scrolling changes nothing. */
const GROUP = 20;
/** The height of a row as long as none was measured, in pixels. */
const HEIGHT = 28;

/**
 * Where rows begin, in pixels below the top of the first one, and where the last one ends. `heights` are those that were
 * measured; the other rows are as high as these on average.
 */
export function beginnings(heights: readonly (number | undefined)[], count: number): number[] {
  let [sum, known] = [0, 0];
  for (const height of heights) if (height !== undefined) [sum, known] = [sum + height, known + 1];
  const usual = known > 0 ? sum / known : HEIGHT;
  const places = [0];
  for (let at = 0; at < count; at++) places.push(places[at]! + (heights[at] ?? usual));
  return places;
}

/** The rows between two places in pixels: the first one, and the one after the last. There is always a group of them. */
export function rowsBetween(places: readonly number[], top: number, bottom: number): [first: number, end: number] {
  const count = places.length - 1;
  const rowAt = (place: number) => {
    const next = places.findIndex((begin) => begin > place);
    return next < 0 ? count : Math.max(next - 1, 0);
  };
  const first = Math.max(0, Math.min(Math.floor(rowAt(top) / GROUP) * GROUP, count - GROUP));
  const end = Math.max(Math.ceil((rowAt(bottom) + 1) / GROUP) * GROUP, first + GROUP);
  return [first, Math.min(end, count)];
}
