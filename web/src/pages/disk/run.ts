// A run of disk bench in words.

import { duration, plural, visible } from "../../parts/format";
import { seconds, utc } from "../../parts/time";
import type { BenchReport } from "../../report";

/** What the folder of a run lies on. */
export function disk({ place }: BenchReport): string {
  const parts = [
    `${place.file_system ?? "unknown file system"}${place.device ? ` on ${place.device}` : ""}${place.model ? ` (${place.model})` : ""}`,
  ];
  if (place.disks.length > 0) parts.push(`made of ${place.disks.join(", ")}`);
  if (place.scheduler) parts.push(`scheduler ${place.scheduler}`);
  return visible(parts.join(", "));
}

/** What a run did, in words. */
export function work({ settings, engine }: BenchReport): string {
  const what = settings.r && settings.w ? "reads and writes" : settings.w ? "writes" : "reads";
  const flush = settings.w && settings.fdatasync && !settings.mmf ? ", fdatasync after each write" : "";
  const way = settings.mmf ? "mapped" : settings.direct ? "direct I/O" : "through the page cache";
  return visible(
    `${settings.access} ${what} of ${settings.recSizeKB} KiB in a file of ${settings.fileSizeMB} MiB${flush}, ${way}, engine ${engine}`,
  );
}

/** When a run began and how long it took. */
export function when(run: BenchReport): string {
  const length = run.steps.reduce((sum, step) => sum + step.seconds, 0);
  return `${utc().full(seconds(run.started_ns))} UTC (${plural(run.steps.length, "step")}, ${duration(length * 1e9)})`;
}

/** What it ran on. */
export const machine = ({ place, settings }: BenchReport): string =>
  visible(`Linux ${place.kernel ?? "unknown"}, ${place.processors} processors, seed ${settings.seed}`);
