// Colours of series, which can be distinguished on white and on black.

export const COLOURS = [
  "#3b7dd8",
  "#e07b39",
  "#2a9d63",
  "#c0428a",
  "#8a6fd1",
  "#b59a00",
  "#1aa3b5",
  "#d64545",
  "#6b8e23",
  "#a0622d",
  "#5566aa",
  "#cc77aa",
];
/** What has no colour of its own. */
export const REST = "#8a8f98";

/** The colour of the n-th series. */
export const colour = (at: number): string => COLOURS[at] ?? `hsl(${Math.round((at * 137.508) % 360)} 45% 55%)`;
