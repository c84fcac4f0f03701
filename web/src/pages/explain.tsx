// report of explain: what is wrong with a plan, which index would help, and all its stages.

import type { Column } from "../parts/columns";
import { duration, exact, visible } from "../parts/format";
import { Facts, Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import type { ExplainOutputJson, ExplainReportDocument, IndexHint, StageJson } from "../report";

/** A stage in the list of all, with its place in the tree before its name. */
export interface StageRow {
  label: string;
  stage: StageJson;
}

/** A stage and all its inputs, in the order of the tree. Spaces do not break, so that branches stay where they are. */
export function tree(stage: StageJson, before = "", isLast: boolean | null = null): StageRow[] {
  const [branch, below] = isLast == null ? ["", ""] : isLast ? ["└\u00a0", "\u00a0\u00a0"] : ["├\u00a0", "│\u00a0"];
  const inputs = stage.inputs.flatMap((input, at) => tree(input, before + below, at + 1 === stage.inputs.length));
  return [{ label: before + branch + visible(stage.stage), stage }, ...inputs];
}

/** A time that the server gives in whole milliseconds. */
const time = (ms: number | null) => (ms === 0 ? "<1ms" : duration(ms == null ? null : ms * 1e6));

const STAGES: Column<StageRow>[] = [
  { name: "stage", value: ({ label }) => label, text: true, rank: 0 },
  { name: "returned", value: ({ stage }) => stage.returned, format: exact, rank: 0, zero: true },
  { name: "time", value: ({ stage }) => stage.time_ms, format: time, rank: 0, zero: true, about: "with its inputs" },
  { name: "own", value: ({ stage }) => stage.own_ms, format: time, rank: 3, zero: true, about: "without its inputs" },
  { name: "documents", value: ({ stage }) => stage.docs_examined, format: exact, rank: 1, zero: true },
  { name: "keys", value: ({ stage }) => stage.keys_examined, format: exact, rank: 1, zero: true },
  { name: "works", value: ({ stage }) => stage.works, format: exact, rank: 4, zero: true },
  { name: "what it does", value: ({ stage }) => visible(stage.details), text: true, main: true },
];

const INDEXES: Column<IndexHint>[] = [
  { name: "where", value: ({ namespace }) => visible(namespace), text: true, rank: 1 },
  { name: "index", value: ({ index }) => visible(index), text: true, main: true },
];

const Output = ({ output, isOnly }: { output: ExplainOutputJson; isOnly: boolean }) => (
  <section>
    <h2>{visible(isOnly ? output.summary : `${output.file}: ${output.summary}`)}</h2>
    <Facts
      kind="list"
      facts={[
        ["query", output.query],
        ["server", output.server],
      ]}
    />
    <Words tone="bad" lines={output.incomplete == null ? [] : [output.incomplete]} />
    <Words tone="verdict" lines={output.findings} />
    {output.report.indexes.length > 0 && (
      <>
        <h3>Indexes that may help</h3>
        <p class="dim">Equality, sort, range. Look before you build.</p>
        <Table name="indexes that may help" rows={output.report.indexes} columns={INDEXES} />
      </>
    )}
    <h3>Stages</h3>
    <Table name="stages" rows={tree(output.report.stages)} columns={STAGES} />
    {output.rejected.length > 0 && (
      <>
        <h3>Plans that were rejected</h3>
        <Words lines={output.rejected} />
      </>
    )}
  </section>
);

export const ExplainPage = ({ report }: { report: ExplainReportDocument }) => (
  <Shell title="explain" about={report.about}>
    {report.outputs.map((output, at) => (
      <Output key={at} output={output} isOnly={report.outputs.length === 1} />
    ))}
  </Shell>
);
