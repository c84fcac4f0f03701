// One query shape: where its time went, the files that it waited for, and who ended its waits.

import type { Column } from "../../parts/columns";
import { count, duration, exact, percent, visible } from "../../parts/format";
import { Facts, Words } from "../../parts/shell";
import { Table } from "../../parts/table";
import type { PartJson, ShapeTimeJson } from "../../report";
import { FILES } from "./files";
import { partOf } from "./words";

export function Shape({ shape }: { shape: ShapeTimeJson }) {
  const name = [shape.command, shape.namespace].filter(Boolean).join(" ");
  return (
    <section>
      <h2>
        {visible(name)} <span class="dim">{percent(shape.share)} of the time</span>
      </h2>
      <pre>{visible(shape.typed)}</pre>
      <Facts
        kind="facts"
        facts={[
          ["shape", shape.shape_id && <code class="id">{shape.shape_id}</code>],
          ["shape known from", shape.origin === "log" || shape.origin === "profile" ? shape.origin : ""],
          ["application", shape.apps.join(", ")],
          ["class", /user|unknown/.test(shape.class) ? "" : shape.class],
          ["operations", exact(shape.operations)],
          ["mean", duration(shape.mean_ns)],
          ["p50", duration(shape.p50_ns)],
          ["p99", duration(shape.p99_ns)],
          ["max", duration(shape.max_ns)],
        ]}
      />
      <Words tone="verdict" lines={shape.answer} />
      <div class="split" role="img" aria-label={shape.parts.map(inWords).join(", ")}>
        {shape.parts.map((part) => (
          <i
            key={part.part}
            title={inWords(part)}
            style={{ width: `${part.share * 100}%`, background: partOf(part.part)[1] }}
          />
        ))}
      </div>
      <Table name="parts" rows={partRows(shape)} columns={PARTS_TABLE} mark={({ colour }) => colour} />
      {shape.files.length > 0 && (
        <>
          <h3>Files that it waited for{shape.has_other_files && ", and others"}</h3>
          <Table name="files" rows={shape.files} columns={FILES} />
        </>
      )}
      {shape.blockers.length > 0 && (
        <>
          <h3>Who ended its waits</h3>
          <Table
            name="blockers"
            rows={shape.blockers}
            columns={[
              { name: "waited", value: ({ wait_ns }) => wait_ns, format: duration, rank: 0 },
              { name: "share", value: ({ share }) => share, format: percent, bar: true, rank: 1 },
              { name: "waits", value: ({ waits }) => waits, format: count, rank: 2 },
              {
                name: "thread",
                value: (one) =>
                  visible(one.thread_name ?? `thread ${one.thread}`) + (one.has_others ? " and others" : ""),
                text: true,
                rank: 1,
              },
              { name: "shape", value: ({ shape_id }) => shape_id, text: true, rank: 4 },
              {
                name: "operation",
                value: ({ command }) => visible(command ?? "none, or not followed"),
                text: true,
                main: true,
              },
            ]}
          />
        </>
      )}
    </section>
  );
}

const inWords = ({ part, share }: PartJson): string => `${partOf(part)[0]} ${percent(share)}`;

/** A part of the time of a shape, or what its long waits were for. */
interface PartRow {
  name: string;
  colour: string;
  each: number;
  share: number;
  part: PartJson | null;
}

/** The parts, each with the classes of its long waits below it. */
export const partRows = ({ parts, operations }: ShapeTimeJson): PartRow[] =>
  parts.flatMap((part) => {
    const [name, colour] = partOf(part.part);
    const classes = part.classes.map((one): PartRow => ({
      name: `↳ ${visible(one.class)}`,
      colour: "transparent",
      each: one.wait_ns / operations,
      share: one.share,
      part: null,
    }));
    return [{ name, colour, each: part.ns / operations, share: part.share, part }, ...classes];
  });

const PARTS_TABLE: Column<PartRow>[] = [
  { name: "each", value: ({ each }) => each, format: duration, rank: 1, about: "mean of all operations" },
  { name: "share", value: ({ share }) => share, format: percent, bar: true, rank: 0 },
  { name: "operations", value: ({ part }) => part?.operations, format: count, rank: 3, about: "those that had any" },
  { name: "p50", value: ({ part }) => part?.p50_ns, format: duration, rank: 2, about: "of those that had any" },
  { name: "p99", value: ({ part }) => part?.p99_ns, format: duration, rank: 1, about: "of those that had any" },
  { name: "part", value: ({ name }) => name, text: true, main: true },
];
