// The operations that run this second, the oldest first, and what ended in the last minute.

import { useContext, useEffect, useMemo, useState } from "preact/hooks";

import { type Column, latencyColumns } from "../parts/columns";
import { count, duration, exact, percent, plural, UNKNOWN, visible } from "../parts/format";
import { Facts, Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { type Clock, seconds } from "../parts/time";
import type {
  About,
  NowBlocker,
  NowOperation,
  NowReport,
  QueriesDocument,
  QueryRowJson,
  QueryShapeJson,
} from "../report";
import type { Address } from "./address";
import { ended, now } from "./api";
import { LinkToShape, namespaceOf } from "./queries";

const EVERY_MS = 1_000;
/** How long to wait until a server that did not answer is asked again. */
const AGAIN_MS = 5_000;

/** Which operations are shown, by their purpose. */
export const NOW_KINDS = {
  "": "of applications and replication",
  user: "of applications",
  replication: "of replication",
  monitoring: "of monitoring",
  internal: "of the server itself",
  all: "all",
} as const;

const isOfKind = (kind: string, name: string): boolean =>
  kind === "all" || (kind === "" ? name === "user" || name === "replication" : kind === name);

/** The operations of a kind that have each of these words somewhere. */
export function fitting(operations: readonly NowOperation[], words: string, kind: string): NowOperation[] {
  const all = words.toLowerCase().split(/\s+/).filter(Boolean);
  return operations.filter((one) => {
    if (!isOfKind(kind, one.class)) return false;
    const text = [one.command, one.namespace, one.typed, one.app, one.client, one.server, one.thread_name, one.opid]
      .concat(waitsFor(one), heldBy(one), one.plan)
      .join(" ")
      .toLowerCase();
    return all.every((word) => text.includes(word));
  });
}

/** What an operation waits for, in words: what the server says, else what its thread does. */
export function waitsFor({ waits, thread, is_killed }: NowOperation): string {
  const killed = is_killed ? ["killed"] : [];
  if (waits.length > 0) return [...waits, ...killed].join(", ");
  if (!thread) return killed.join();
  const what = thread.class ?? thread.words;
  const file = thread.file === null ? "" : `: ${thread.file}`;
  return [`${what}${file} for ${duration(thread.doing_ns)}`, ...killed].join(", ");
}

/** Who ended the longest earlier wait of an operation, and what that still runs; empty if nobody is known. */
export function heldBy({ thread }: NowOperation): string {
  const blocker = thread?.blocker;
  return blocker ? [blocker.thread, blocker.runs].filter(Boolean).join(": ") : "";
}

/** How long the bar of an age is, 0 to 1: by its logarithm, since ages are from milliseconds to days. */
export function ageShare(ns: number | null, oldest: number): number {
  const size = (of: number) => Math.log10(1 + of / 1e6);
  return ns === null || oldest <= 0 ? 0 : size(ns) / size(oldest);
}

/** What stays the same of an operation from one list to the next. */
export const keyOf = ({ server, client, sources, started_ns, command, opid, thread_name }: NowOperation): string =>
  client === null
    ? `${server} ${opid ?? thread_name ?? command}`
    : `${server} ${client} ${sources.includes("queries") ? started_ns : command}`;

/** What sources lack, a sentence each. */
export const lacks = ({ sources }: Pick<NowReport, "sources">): string[] =>
  sources.flatMap(({ name, shows, lacks }) => (lacks === null ? [] : [`${name} (${shows}): ${lacks}.`]));

function columns(oldest: number): Column<NowOperation>[] {
  const text = (name: string, rank: number, value: (one: NowOperation) => string): Column<NowOperation> => ({
    name,
    rank,
    value: (one) => visible(value(one)),
    text: true,
  });
  return [
    {
      name: "runs for",
      value: ({ running_ns }) => ageShare(running_ns, oldest),
      show: ({ running_ns }) => duration(running_ns),
      bar: true,
      rank: 0,
    },
    { ...text("waits for", 0, waitsFor), tone: ({ is_killed }) => (is_killed ? "bad" : "") },
    {
      ...text("held by", 1, heldBy),
      about: "who ended its longest earlier wait, and what that thread still runs",
    },
    {
      name: "operation",
      value: ({ command, namespace, typed }) => visible([command, namespace, typed].filter(Boolean).join(" ")),
      text: true,
      main: true,
      rank: 0,
    },
    text("application", 2, ({ app }) => app),
    text("client", 3, ({ client }) => client ?? ""),
    text("plan", 4, ({ plan }) => plan ?? ""),
    { name: "done", value: ({ done }) => done, format: (share) => percent(share), rank: 3 },
    {
      name: "lock wait",
      about: "how long it has waited for locks so far",
      value: ({ lock_wait_ns }) => lock_wait_ns,
      format: duration,
      rank: 4,
    },
    { name: "yields", value: ({ yields }) => yields, format: exact, rank: 6 },
    { ...text("opid", 4, ({ opid }) => opid ?? ""), about: "its number, as killOp takes it" },
    text("thread", 5, ({ thread_name }) => thread_name ?? ""),
    text("server", 5, ({ server }) => server),
    text("purpose", 6, ({ class: purpose }) => purpose),
    text("shown by", 7, ({ sources }) => sources.join(", ")),
  ];
}

type EndedRow = QueryRowJson & Partial<QueryShapeJson>;

const ENDED: Column<EndedRow>[] = [
  {
    name: "time",
    about: "share of the time of all operations that ended",
    value: ({ time_share }) => time_share,
    format: (share) => percent(share, 1),
    bar: true,
    rank: 0,
  },
  { name: "calls", value: ({ calls }) => calls, format: count, rank: 1 },
  ...latencyColumns<EndedRow>((row) => row.latency_ns, { p50: 3, max: 1 }),
  {
    name: "failed",
    value: ({ failed }) => failed,
    format: count,
    rank: 2,
    tone: ({ failed }) => ((failed ?? 0) > 0 ? "bad" : ""),
  },
  {
    name: "operation",
    value: (row) => [row.command ?? "", namespaceOf(row), visible(row.shape ?? "")].filter(Boolean).join(" "),
    text: true,
    main: true,
    rank: 0,
  },
];

const Blocker = ({ blocker }: { blocker: NowBlocker }) => (
  <>
    {visible(blocker.thread)}, after {duration(blocker.wait_ns)}
    {blocker.runs === null
      ? "; it has ended since"
      : `; still running: ${visible(blocker.runs)} of ${visible(blocker.client ?? UNKNOWN)}`}
  </>
);

function Detail({ one, clock }: { one: NowOperation; clock: Clock }) {
  const linkToShape = useContext(LinkToShape);
  const { thread } = one;
  return (
    <Facts
      kind="list"
      facts={[
        ["shape over time", one.shape_id && linkToShape?.(one.shape_id)],
        ["began", one.started_ns !== null && clock.full(seconds(one.started_ns), 3)],
        ["client", one.client ?? ""],
        ["application", one.app],
        ["server", one.server],
        ["thread", one.thread_name ?? ""],
        ["its thread", thread && `${thread.class ?? thread.words} for ${duration(thread.doing_ns)}`],
        ["file", thread?.file ?? ""],
        ["the server says that it waits for", one.waits.join(", ")],
        ["its longest earlier wait was ended by", thread?.blocker && <Blocker blocker={thread.blocker} />],
        ["shape of that", thread?.blocker?.shape_id && linkToShape?.(thread.blocker.shape_id)],
        ["plan", one.plan ?? ""],
        ["opid", one.opid ?? ""],
        ["shown by", one.sources.join(", ")],
      ]}
    />
  );
}

/** The newest list: the first one, and each that comes while the page is looked at. */
function useNewest(first: NowReport, isLive: boolean): [report: NowReport, trouble: string] {
  const [newest, set] = useState(first);
  const [trouble, setTrouble] = useState("");
  useEffect(() => set(first), [first]);
  const polls = isLive && first.problem === null;
  useEffect(() => {
    if (!polls) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (ms: number) => {
      timer = setTimeout(() => void next(), ms);
    };
    const next = async () => {
      // Nobody looks: then the agent lists nothing.
      if (document.hidden) {
        again(EVERY_MS);
        return;
      }
      try {
        const report = await now(stop.signal);
        if (stop.signal.aborted) return;
        set(report);
        setTrouble("");
        again(EVERY_MS);
      } catch (error) {
        if (stop.signal.aborted) return;
        setTrouble(error instanceof Error ? error.message : String(error));
        again(AGAIN_MS);
      }
    };
    again(EVERY_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [polls]);
  return [newest, trouble];
}

/** What ended in the last minute that is stored, read again when `end_ns` says that there is more. */
function useEnded(end_ns: number | null): QueriesDocument | undefined {
  const [report, set] = useState<QueriesDocument>();
  useEffect(() => {
    if (end_ns === null) return;
    const stop = new AbortController();
    ended(end_ns, stop.signal).then(
      (report) => stop.signal.aborted || set(report),
      () => stop.signal.aborted || set(undefined),
    );
    return () => stop.abort();
  }, [end_ns]);
  return report;
}

export interface NowProps {
  first: NowReport;
  about: About;
  clock: Clock;
  /** The end of the newest window, in nanoseconds since 1970. */
  end_ns: number | null;
  isLive: boolean;
  address: Address;
  go: (next: Address) => void;
}

export function NowView({ first, about, clock, end_ns, isLive, address, go }: NowProps) {
  const [report, trouble] = useNewest(first, isLive);
  const last = useEnded(end_ns);
  const [chosen, choose] = useState<string>();
  const { listed, problem } = report;
  const all = listed?.operations ?? [];
  const shown = useMemo(() => fitting(all, address.filter, address.kind), [all, address.filter, address.kind]);
  const oldest = Math.max(0, ...shown.map(({ running_ns }) => running_ns ?? 0));
  const hidden = all.length - shown.length + (listed?.left_out ?? 0);
  const facts: [string, string][] = listed
    ? [
        ["at", clock.full(seconds(listed.at_ns))],
        ["run", exact(all.length + listed.left_out)],
        ["wait on purpose", listed.waiting > 0 ? exact(listed.waiting) : ""],
      ]
    : [];
  return (
    <Shell title="Now" about={about} clock={clock} facts={facts}>
      {trouble && <Words tone="bad" lines={[trouble]} />}
      {problem !== null && <Words tone="bad" lines={[problem]} />}
      <Words tone="bad" lines={listed?.problems ?? []} />
      {problem === null && (
        <div class="beside">
          <section>
            <h2>Running now</h2>
            <div class="controls">
              <input
                type="search"
                placeholder="search"
                aria-label="Search words"
                value={address.filter}
                onChange={(event) => go({ ...address, filter: event.currentTarget.value.trim() })}
              />
              <label>
                kind{" "}
                <select value={address.kind} onChange={(event) => go({ ...address, kind: event.currentTarget.value })}>
                  {Object.entries(NOW_KINDS).map(([kind, words]) => (
                    <option key={kind} value={kind}>
                      {words}
                    </option>
                  ))}
                </select>
              </label>
            </div>
            {listed === null ? (
              <p class="dim">The agent has not answered yet.</p>
            ) : shown.length === 0 ? (
              <p class="dim">No operation runs{hidden > 0 ? " that fits" : ""}.</p>
            ) : (
              <Table<NowOperation>
                name="operations that run"
                rows={shown}
                columns={columns(oldest)}
                detail={(one) => <Detail one={one} clock={clock} />}
                chosen={shown.find((one) => keyOf(one) === chosen) ?? null}
                onChoose={(one) => choose(one ? keyOf(one) : undefined)}
              />
            )}
            {hidden > 0 && <p class="dim">{plural(hidden, "more operation")} not shown.</p>}
          </section>
          <section>
            <h2>Ended in the last minute</h2>
            {last && last.rows.length > 0 ? (
              <Table<EndedRow> name="operations that ended" rows={last.rows as EndedRow[]} columns={ENDED} />
            ) : (
              <p class="dim">Nothing is stored of the last minute.</p>
            )}
          </section>
        </div>
      )}
      {lacks(report).length > 0 && (
        <section>
          <h2>What is not seen</h2>
          <Words lines={lacks(report)} />
        </section>
      )}
    </Shell>
  );
}
