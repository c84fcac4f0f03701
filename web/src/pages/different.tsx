// In what some operations differ from the rest: pairs of bars, first what differs most.

import { useContext, useMemo, useState } from "preact/hooks";

import { GapList, gapSummary } from "../parts/changes";
import { Chart, type Range } from "../parts/chart";
import { duration, exact, percent, plural, visible } from "../parts/format";
import { heatMap, latencyAxis, outlined } from "../parts/heat";
import {
  ChooseOperations,
  inputTime,
  latencyOf,
  momentOf,
  NOTHING,
  type Rectangle,
  type Selection,
  selectionOf,
} from "../parts/selection";
import { Shell, Words } from "../parts/shell";
import { timeAxis } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { span, xsOf } from "../parts/timeline";
import type { DifferentReport, DimensionJson, DimensionValueJson } from "../report";

/** The most sentences above the bars. */
const SENTENCES = 3;

/** A share of 1: with a decimal where it is small. */
const share = (value: number): string => percent(value, value > 0 && value < 0.0995 ? 1 : 0);

const nameOf = ({ name, start_ns }: DimensionValueJson, clock: Clock): string => {
  if (name === null) return "all others";
  return start_ns === null ? visible(name) : `from ${clock.full(seconds(start_ns))} on`;
};

/** What differs most in a dimension, in words. */
export function sentence({ words, unit, values }: DimensionJson, clock: Clock): string {
  const [value] = values;
  if (!value) return "";
  const these = unit === "ns" ? "of the time of these operations" : "of these operations";
  const rest = unit === "ns" ? "of that of the rest" : "of the rest";
  const { these_share, rest_share } = value;
  return `${words}: ${nameOf(value, clock)} is ${share(these_share)} ${these}, and ${share(rest_share)} ${rest}.`;
}

/** Which operations are compared with the rest, in words. */
export function selectedInWords({ selected, about }: DifferentReport, clock: Clock): string {
  const { start_ns, end_ns, low_ns, high_ns } = selected;
  const isAll = start_ns <= (about.start_ns ?? 0) && end_ns >= (about.end_ns ?? 0);
  const [from, to] = [start_ns, end_ns].map((ns) => clock.full(seconds(ns)));
  const parts = [
    selected.is_default && "the slowest twentieth",
    low_ns !== null && `longer than ${duration(low_ns)}`,
    high_ns !== null && `at most ${duration(high_ns)}`,
    !isAll && `from ${from} to ${to}`,
  ];
  return parts.filter(Boolean).join(", ") || "all of this time";
}

/** The dimensions in which something differs, and the names of those in which nothing does. */
export function ranked({ dimensions }: DifferentReport): [differing: DimensionJson[], same: string[]] {
  const differs = ({ difference }: DimensionJson) => difference > 0;
  return [dimensions.filter(differs), dimensions.filter((one) => !differs(one)).map(({ words }) => words)];
}

/** The selection that a document shows, as an address has it: without the ends of all of its time. */
export function selectionNow({ selected, about }: DifferentReport): Selection {
  const { start_ns, end_ns, low_ns, high_ns } = selected;
  const bounds = selectionOf({ x: [seconds(start_ns), seconds(end_ns)], y: [low_ns, high_ns] });
  return {
    ...bounds,
    start: start_ns <= (about.start_ns ?? 0) ? "" : bounds.start,
    end: end_ns >= (about.end_ns ?? 0) ? "" : bounds.end,
  };
}

interface Narrower {
  /** Compares the operations of one shape, or of one namespace, alone. */
  shape?: string;
  namespace?: string;
}

/** To what a value narrows the comparison; undefined where it does not. */
function narrower({ dimension }: DimensionJson, { shape_id, name }: DimensionValueJson): Narrower | undefined {
  if (shape_id !== null) return { shape: shape_id };
  return dimension === "namespace" && name !== null && !name.startsWith("(") ? { namespace: name } : undefined;
}

const Bar = ({ kind, of, words }: { kind: "these" | "rest"; of: number; words: string }) => (
  <span class="bar">
    <i class={kind} style={{ width: `${(100 * of).toFixed(1)}%` }} />
    <b>
      {share(of)} <span class="dim">{words}</span>
    </b>
  </span>
);

function Pairs({
  dimension,
  clock,
  narrow,
}: {
  dimension: DimensionJson;
  clock: Clock;
  narrow?: (to: Narrower) => void;
}) {
  const { words, basis, values, unit, these, rest, estimated, left_out } = dimension;
  const amount = unit === "ns" ? duration : exact;
  return (
    <section class="pairs">
      <h3>{words}</h3>
      <ul>
        {values.map((value) => {
          const to = narrower(dimension, value);
          const about = [value.typed, `${amount(value.these)} of these, ${amount(value.rest)} of the rest`];
          return (
            <li
              key={`${value.name} ${value.shape_id}`}
              class={value.differs ? "differs" : ""}
              title={about.flatMap((line) => (line ? [visible(line)] : [])).join("\n")}
            >
              <div>
                {nameOf(value, clock)}
                {value.name === null && left_out > 0 && ` (${plural(left_out, "value")})`}{" "}
                {to && narrow && (
                  <button type="button" onClick={() => narrow(to)}>
                    only this
                  </button>
                )}
                {value.typed && <code class="dim">{visible(value.typed)}</code>}
              </div>
              <Bar kind="these" of={value.these_share} words="of these" />
              <Bar kind="rest" of={value.rest_share} words="of the rest" />
            </li>
          );
        })}
      </ul>
      <p class="dim">
        {`Of ${amount(these)} of these and ${amount(rest)} of the rest. `}
        {estimated > 0 && `Estimated for ${amount(estimated)} of these. `}
        {basis}
      </p>
    </section>
  );
}

/** The selection in fields, for who cannot drag. */
function Fields({ report, clock }: { report: DifferentReport; clock: Clock }) {
  const choose = useContext(ChooseOperations);
  if (!choose) return null;
  const { selected, shape, namespace } = report;
  const now = selectionNow(report);
  const set = (changed: Partial<Selection>) => choose({ selection: { ...now, ...changed } });
  const time = (field: "start" | "end", ns: number) => (
    <input
      type="datetime-local"
      step="1"
      value={inputTime(clock, seconds(ns))}
      onChange={(event) => set({ [field]: momentOf(clock, event.currentTarget.value) ?? "" })}
    />
  );
  const latency = (field: "low" | "high", ns: number | null) => (
    <input
      type="text"
      size={8}
      placeholder="any"
      pattern="\s*(\d+(\.\d+)?\s*(ns|us|µs|μs|ms|s|m))?\s*"
      title="a latency like 100ms or 1.5s; empty for any"
      value={ns === null ? "" : duration(ns)}
      onChange={(event) => {
        const value = latencyOf(event.currentTarget.value);
        if (value === undefined) event.currentTarget.reportValidity();
        else set({ [field]: value });
      }}
    />
  );
  return (
    <div class="controls" role="group" aria-label="Operations to compare">
      <label>from {time("start", selected.start_ns)}</label>
      <label>to {time("end", selected.end_ns)}</label>
      <label>longer than {latency("low", selected.low_ns)}</label>
      <label>at most {latency("high", selected.high_ns)}</label>
      <label>
        namespace{" "}
        <input
          type="text"
          size={16}
          placeholder="all"
          value={namespace ?? ""}
          onChange={(event) => choose({ selection: now, namespace: event.currentTarget.value.trim() })}
        />
      </label>
      {shape && (
        <button type="button" onClick={() => choose({ selection: now, shape: "" })}>
          of all shapes
        </button>
      )}
      <button type="button" onClick={() => choose({ selection: NOTHING })}>
        the slowest twentieth
      </button>
    </div>
  );
}

/** Why nothing differs. */
function whyNothing({ these, rest }: DifferentReport): string {
  if (these === 0) return "No operation is in the selection.";
  if (rest === 0) return "All operations are in the selection: there is no rest to compare them with.";
  return "In nothing that is stored do these operations differ from the rest by more than chance.";
}

export function DifferentPage({ report }: { report: DifferentReport }) {
  const { about, zone, these, rest, shape, selected } = report;
  const clock = useMemo(() => new Clock(zone, seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)), [report]);
  const extent = span(about);
  const [range, setRange] = useState<Range | null>(null);
  const xs = useMemo(() => xsOf(extent, report.latencies.length), [report]);
  const layer = useMemo(() => {
    const x: Range = [seconds(selected.start_ns), seconds(selected.end_ns)];
    return outlined(heatMap(report.bounds_ns, report.latencies, extent), { x, y: [selected.low_ns, selected.high_ns] });
  }, [report]);
  const choose = useContext(ChooseOperations);
  const [differing, same] = ranked(report);
  const sentences = differing.slice(0, SENTENCES).map((dimension) => sentence(dimension, clock));
  return (
    <Shell
      title="What is different"
      about={about}
      clock={clock}
      facts={[
        ["these", `${plural(these, "operation")}: ${selectedInWords(report, clock)}`],
        ["the rest", plural(rest, "operation")],
        ["figures from", report.source],
        ["only of", shape ? visible(`${shape.command} ${shape.namespace}`) : visible(report.namespace ?? "")],
      ]}
    >
      <Words tone="bad" lines={gapSummary(report.gaps, clock)} />
      {shape && <pre>{visible(shape.typed)}</pre>}
      <Words tone="verdict" lines={sentences.length > 0 ? sentences : [whyNothing(report)]} />
      <Fields report={report} clock={clock} />
      <Chart
        title="Latency"
        x={timeAxis(clock)}
        y={latencyAxis}
        xs={xs}
        series={[]}
        extent={extent}
        range={range}
        onRange={setRange}
        layer={layer}
        {...(choose && { onRectangle: (part: Rectangle) => choose({ selection: selectionOf(part) }) })}
        height={280}
        note="A cell is the darker the more operations it holds. The frame is what is compared with the rest; drag another one."
      />
      <div class="differences">
        {differing.map((dimension) => (
          <Pairs
            key={dimension.dimension}
            dimension={dimension}
            clock={clock}
            {...(choose && { narrow: (to: Narrower) => choose({ selection: selectionNow(report), ...to }) })}
          />
        ))}
      </div>
      {same.length > 0 && differing.length > 0 && (
        <p class="dim">No difference beyond chance: {same.map(visible).join(", ")}.</p>
      )}
      <div class="words dim">
        {report.notes.map((line) => (
          <p key={line}>{visible(line)}</p>
        ))}
      </div>
      <GapList gaps={report.gaps} clock={clock} />
    </Shell>
  );
}
