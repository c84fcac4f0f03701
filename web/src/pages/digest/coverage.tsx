// What was read, and what was lost.

import { exact } from "../../parts/format";
import { Table } from "../../parts/table";
import type { DigestDocument } from "../../report";

const WAYS: Record<string, string> = {
  "not read": "not all was read",
  "left out as asked": "some was left out as asked",
  "known in part": "some is known in part",
};

/** What was not read or is not known in full, a sentence for each way. */
export const incomplete = (report: DigestDocument): string[] =>
  (report.incomplete ?? []).map(({ way, what }) => `${way[0]?.toUpperCase()}${way.slice(1)}: ${what.join("; ")}`);

/** Whether all of it was read, as the text says it. */
export function coverageTitle(report: DigestDocument): string {
  const lost = Object.values(report.lost).some((n) => n > 0);
  const ways = (report.incomplete ?? []).map(({ way }) => WAYS[way] ?? way);
  const parts = [...new Set([...(lost ? ["not all was read"] : []), ...ways])];
  return `Coverage: ${parts.join(", ") || "all of it was read"}`;
}

export function Coverage({ report }: { report: DigestDocument }) {
  const counters = Object.entries({ ...report.reading, ...report.coverage }).filter(([, n]) => n > 0);
  if (counters.length === 0) return null;
  return (
    <section>
      <details>
        <summary>
          <h2>{coverageTitle(report)}</h2>
        </summary>
        <Table
          name="coverage"
          rows={counters}
          columns={[
            { name: "counter", value: ([name]) => name, text: true, main: true },
            { name: "count", value: ([, n]) => n, format: exact },
          ]}
        />
      </details>
    </section>
  );
}
