// The tables of files that were waited for.

import type { Column } from "../../parts/columns";
import { bytes, count, duration, percent, visible } from "../../parts/format";
import type { FileJson, FileWaitsJson } from "../../report";

const WAITS: Column<FileJson>[] = [
  { name: "waited", value: ({ wait_ns }) => wait_ns, format: duration, rank: 0 },
  { name: "reads", value: ({ reads }) => reads, format: count, rank: 1 },
  { name: "bytes", value: ({ bytes }) => bytes, format: bytes, rank: 2 },
];

const FILE: Column<FileJson> = {
  name: "file",
  value: (file) => visible(file.name ?? `inode ${file.inode}`),
  text: true,
  rank: 0,
};

/** The files of a shape. */
export const FILES: Column<FileJson>[] = [...WAITS, { ...FILE, main: true }];

/** The files of all shapes. */
export const FILES_OF_ALL: Column<FileWaitsJson>[] = [
  ...WAITS,
  FILE,
  { name: "shapes", value: waitedBy, text: true, main: true },
];

/** The shapes that waited for a file, each with its share of the time. */
export function waitedBy({ shapes }: Pick<FileWaitsJson, "shapes">): string {
  return shapes.map(({ shape_id, command, share }) => `${visible(command)} (${shape_id}) ${percent(share)}`).join(", ");
}
