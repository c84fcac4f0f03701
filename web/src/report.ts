// The documents that pages draw. `npm run dev` also shows those that earlier versions wrote, in which what is newer is missing.

import type { Report } from "./documents";

export type * from "./documents";

/** Reads the document of a page. */
export function parse(text: string): Report {
  const report: unknown = JSON.parse(text);
  if (typeof report !== "object" || report === null || !("kind" in report))
    throw new Error("this file holds no report");
  return report as Report;
}

/** Whether a server has sent this page, which then asks it for documents. */
export const isLive = (report: { kind: string }): boolean => report.kind === "live";
