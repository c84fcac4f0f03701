// What was read, and what was lost.

import { exact } from "../../parts/format";
import { Table } from "../../parts/table";
import type { Digest } from "../../report";

// Of a capture, the counters say what is known in part.
function coverageTitle(report: Digest) {
  if (Object.values(report.lost).some((n) => n > 0)) return "Coverage: not all was read";
  return report.coverage ? "Coverage" : "Coverage: all of it was read";
}

export function Coverage({ report }: { report: Digest }) {
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
