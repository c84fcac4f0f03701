// What a digest advises: indexes that may help, and what else stands out.

import type { Column } from "../../parts/columns";
import { count, percent, visible } from "../../parts/format";
import { Table } from "../../parts/table";
import type { DigestDocument, RemarkJson } from "../../report";

export function Hints({ report }: { report: DigestDocument }) {
  if (report.index_hints.length === 0) return null;
  return (
    <section>
      <h2>Indexes that may help</h2>
      <p class="dim">
        Equality, sort, range{report.indexes_known ? "; none that exists serves" : ""}. Look before you build.
      </p>
      <Table
        name="indexes that may help"
        rows={report.index_hints}
        by="time"
        rowClass={() => "hint"}
        columns={[
          {
            name: "time",
            value: (hint) => hint.time_share,
            format: (share) => percent(share, 1),
            about: "share of the time of all operations",
            zero: true,
          },
          { name: "where", value: (hint) => visible(hint.namespace), text: true, rank: 1 },
          { name: "index", value: (hint) => visible(hint.index), text: true, main: true },
          { name: "shapes", about: "shapes that want it", value: (hint) => hint.shapes.length, rank: 3 },
        ]}
        detail={(hint) => (
          <ul class="wanted">
            {hint.shapes.map((one) => (
              <li key={one.shape_id}>
                <b>{percent(one.time_share, 1)}</b>
                {one.examined_per_returned != null &&
                  `, ${count(one.examined_per_returned)} examined for each returned`}
                , {visible(one.plan) || "(no plan)"}
                {one.memory_sorts ? ", sorted in memory" : ""}
                <pre class="full">{visible(`${one.command} ${one.shape}`)}</pre>
              </li>
            ))}
          </ul>
        )}
      />
    </section>
  );
}

export const REMARKS: Column<RemarkJson>[] = [
  {
    name: "time",
    value: ({ time_share }) => time_share,
    format: (share) => percent(share, 1),
    about: "share of the time of all operations",
    rank: 0,
    zero: true,
  },
  { name: "where", value: ({ command, namespace }) => visible(`${command} ${namespace}`), text: true, rank: 1 },
  { name: "what stands out", value: ({ words }) => visible(words), text: true, main: true },
];

/** What stands out about shapes, beside the indexes that they want. */
export function Remarks({ remarks }: { remarks: readonly RemarkJson[] }) {
  if (remarks.length === 0) return null;
  return (
    <section>
      <h2>What else stands out</h2>
      <Table
        name="what else stands out"
        rows={remarks}
        by="time"
        columns={REMARKS}
        detail={({ command, shape, shape_id, words }) => (
          <>
            <p>{visible(words)}</p>
            <pre class="full">{visible(`${command} ${shape}`)}</pre>
            <p class="dim">
              shape id <code class="id">{shape_id}</code>
            </p>
          </>
        )}
      />
    </section>
  );
}
