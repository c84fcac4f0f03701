// The documents that the commands write with --json, as far as the page reads them. What is not known is null.

import type { Comparison, Digest } from "./reports/digest";
import type { DiskComparison, DiskRun } from "./reports/disk";
import type { FtdcReport } from "./reports/ftdc";
import type { Changes, IncidentReport, TimelineReport } from "./reports/history";
import type { Impact, LongImpact } from "./reports/impact";
import type { IoReport } from "./reports/io";
import type { StackComparison, StackReport } from "./reports/stacks";
import type { WhyReport } from "./reports/why";

export type * from "./reports/common";
export type * from "./reports/digest";
export type * from "./reports/disk";
export type * from "./reports/ftdc";
export type * from "./reports/history";
export type * from "./reports/impact";
export type * from "./reports/io";
export type * from "./reports/stacks";
export type * from "./reports/why";

export type Report =
  | Digest
  | Comparison
  | DiskRun
  | DiskComparison
  | IoReport
  | Impact
  | LongImpact
  | FtdcReport
  | Changes
  | TimelineReport
  | IncidentReport
  | WhyReport
  | StackReport
  | StackComparison;

/** Reads the document of a page. */
export function parse(text: string): Report {
  const report: unknown = JSON.parse(text);
  if (typeof report !== "object" || report === null || !("kind" in report))
    throw new Error("this file holds no report");
  return report as Report;
}
