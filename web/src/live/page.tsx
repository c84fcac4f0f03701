// The page of a server: the views of a history, over a range of time that the address names.

import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { Page } from "../page";
import { kindInWords } from "../pages/events";
import { EventMarks, type Mark } from "../parts/chart";
import { ComparedWith, type EarlierReport } from "../parts/earlier";
import { visible } from "../parts/format";
import { isTyping, type KeyWords, MoreKeys } from "../parts/keys";
import { ChooseRange, markOf } from "../parts/lanes";
import { ChooseOperations, type Compared, NOTHING } from "../parts/selection";
import { Clock, seconds } from "../parts/time";
import type { PageStatus, QueriesDocument, Report, TimelineReport, ZoneObject } from "../report";
import {
  type Address,
  asked,
  between,
  COMPARISONS,
  type Comparison,
  GROUPINGS,
  moved,
  read,
  span,
  VIEWS,
  written,
} from "./address";
import { follow, load, openSession, Refused, status, type ViewDocument } from "./api";
import { Choice, type Controls } from "./choice";
import { earlier, isComparable } from "./earlier";
import { HealthView } from "./health";
import { NowView } from "./now";
import { Palette } from "./palette";
import { LinkToShape, LinkToShapes, QueriesView } from "./queries";
import { Ranges } from "./ranges";

const HOUR_MS = 3_600_000;
/** The columns of a chart. */
const COLUMNS = 240;

/** A document. The next one at the same address changes its page; at another one it gets a page of its own. */
interface Shown {
  report: ViewDocument;
  history: PageStatus;
  zone: string;
  address: Address;
  /** Queries over time, above their rows. */
  timeline: TimelineReport | undefined;
  /** What happened meanwhile, for charts whose document does not say it. */
  marks: readonly Mark[];
  /** What is drawn behind the charts. */
  compared: EarlierReport | undefined;
  /** Why nothing is. */
  lacks: string;
}

/** What the charts of an address are compared with, or why there is nothing to compare them with. */
async function comparedWith(address: Address, signal: AbortSignal): Promise<Pick<Shown, "compared" | "lacks">> {
  const before = earlier(address, Date.now());
  if (before === undefined) return { compared: undefined, lacks: "" };
  try {
    const report = (await load(before.address, signal)) as Report;
    const isEmpty = report.kind === "timeline" && report.lanes.length === 0;
    const compared = { report, shift: before.shiftMs / 1e3, words: before.words };
    return { compared, lacks: isEmpty ? `${before.words}: nothing was observed` : "" };
  } catch (error) {
    return { compared: undefined, lacks: `${before.words}: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** Why there is no document. A link that opened no session does not matter to who has one. */
async function reason(error: unknown, session: Promise<Refused | undefined> | undefined): Promise<Refused> {
  const refused = error instanceof Refused ? error : new Refused("failed", String(error));
  return (refused.reason === "access" && (await session)) || refused;
}

/** How many steps of this page lie behind the address: back does not leave it. */
const depth = (): number => (history.state as { depth?: number } | null)?.depth ?? 0;

const KEYS: KeyWords[] = [
  ["[ ]", "the same length of time, earlier or later"],
  ["c", "choose start and end"],
  ["b f", "back to what was shown before, and forward"],
  ["Ctrl K", "go to a view, a range or a query shape"],
];

export function LivePage() {
  const [address, setAddress] = useState(() => read(location.search));
  const [shown, show] = useState<Shown>();
  const [problem, setProblem] = useState<Refused>();
  const [stored, setStored] = useState<PageStatus>();
  const [isBusy, setBusy] = useState(true);
  const [isLive, setLive] = useState(true);
  const [turn, setTurn] = useState(0);
  const session = useRef<Promise<Refused | undefined> | undefined>(undefined);

  useEffect(() => {
    const back = () => setAddress(read(location.search));
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  const question = written(asked(address));
  useEffect(() => {
    const stop = new AbortController();
    const next = async () => {
      setBusy(true);
      try {
        await (session.current ??= openSession());
        const history = await status();
        const [report, compared, timeline, events] = await Promise.all([
          load(address, stop.signal),
          comparedWith(address, stop.signal),
          // The rows are worth showing without it.
          address.view === "queries"
            ? load({ ...address, view: "timeline" }, stop.signal).catch(() => undefined)
            : undefined,
          ["shape", "series", "waits", "storage"].includes(address.view)
            ? load({ ...address, view: "events", filter: "", kind: "" }, stop.signal).catch(() => undefined)
            : undefined,
        ]);
        if (stop.signal.aborted) return;
        setStored(history);
        show({
          report,
          history,
          zone: address.zone,
          address,
          timeline: timeline?.kind === "timeline" ? timeline : undefined,
          marks: events?.kind === "events" ? events.events.map(markOf) : [],
          ...compared,
        });
        setProblem(undefined);
      } catch (error) {
        if (stop.signal.aborted) return;
        show(undefined);
        setProblem(await reason(error, session.current));
        // The range may lie where nothing is stored: say where something is.
        setStored(await status().catch(() => undefined));
      }
      setBusy(false);
    };
    void next();
    return () => stop.abort();
  }, [question, turn]);
  const endsNow = address.to === "";
  const shownEnd = useRef(0);
  shownEnd.current = shown?.history.end_ns ?? 0;
  // A long range changes slowly: what is less than a column of its charts wide is not worth reading it again.
  const least = useRef(0);
  const [first, last] = span(address, Date.now()) ?? [0, 0];
  least.current = address.view === "status" || address.view === "now" ? 0 : ((last - first) * 1e6) / COLUMNS;
  // Not before there is a session.
  const follows = isLive && endsNow && shown !== undefined;
  useEffect(() => {
    if (!follows) return;
    return follow(
      (endNs) => endNs > shownEnd.current && endNs >= shownEnd.current + least.current && setTurn((turn) => turn + 1),
    );
  }, [follows]);

  const go = (next: Address) => {
    history.pushState({ depth: depth() + 1 }, "", written(next));
    setAddress(next);
  };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return;
      if (event.key === "[") go(moved(address, -1, Date.now()));
      else if (event.key === "]") go(moved(address, 1, Date.now()));
      else if (event.key === "c") document.querySelector<HTMLElement>(".calendar")?.click();
      else if (event.key === "b" && depth() > 0) history.back();
      else if (event.key === "f") history.forward();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [address]);

  return (
    <>
      <nav class="live" aria-label="Views and time">
        <Views address={address} go={go} />
        <Ranges address={address} go={go} stored={stored} />
        <div>
          <Palette address={address} go={go} />
          <label>
            <input type="checkbox" checked={isLive} disabled={!endsNow} onChange={() => setLive(!isLive)} /> live
          </label>
          <button type="button" onClick={() => setTurn(turn + 1)}>
            refresh
          </button>
          <label>
            zone{" "}
            <select value={address.zone} onChange={(event) => go({ ...address, zone: event.currentTarget.value })}>
              <option value="">of this browser</option>
              <option value="UTC">UTC</option>
            </select>
          </label>
        </div>
      </nav>
      <div aria-busy={isBusy} aria-live="polite" class="loading">
        {isBusy ? "Loading …" : ""}
      </div>
      {problem && <Trouble problem={problem} stored={stored} address={address} go={go} />}
      {address.view === "queries" && <Groupings address={address} go={go} />}
      {(address.view === "what-changed" || isComparable(address.view)) && (
        <Comparisons address={address} go={go} lacks={shown?.lacks ?? ""} />
      )}
      {(address.view === "series" || address.view === "events") && (
        <Search address={address} go={go} kinds={kindsOf(shown?.report)} />
      )}
      {shown && (
        <ChooseRange.Provider value={([from, to]) => go(between(address, from * 1e3, to * 1e3))}>
          <LinkToShape.Provider
            value={(shape) => (
              <Choice to={{ ...address, view: "shape", shape, filter: "" }} go={go} isChosen={false}>
                {shape}
              </Choice>
            )}
          >
            <ComparedWith.Provider value={shown.compared}>
              <EventMarks.Provider value={shown.marks}>
                <MoreKeys.Provider value={KEYS}>
                  <LinkToShapes.Provider
                    value={(filter) => (
                      <Choice to={{ ...address, by: "shape", filter }} go={go} isChosen={false}>
                        {filter}
                      </Choice>
                    )}
                  >
                    <ChooseOperations.Provider value={(compared) => go(comparing(address, compared))}>
                      <Document
                        key={written(asked(shown.address))}
                        shown={shown}
                        isLive={isLive && endsNow}
                        filter={address.filter}
                        kind={address.kind}
                        go={go}
                        onFilter={(filter) => filter !== address.filter && go({ ...address, filter })}
                      />
                    </ChooseOperations.Provider>
                  </LinkToShapes.Provider>
                </MoreKeys.Provider>
              </EventMarks.Provider>
            </ComparedWith.Provider>
          </LinkToShape.Provider>
        </ChooseRange.Provider>
      )}
    </>
  );
}

/** The view of what is different in a selection, with the shape and the namespace that are shown now. */
function comparing(address: Address, { selection, shape = address.shape, namespace }: Compared): Address {
  const filter = namespace ?? (address.view === "different" ? address.filter : "");
  return { ...address, view: "different", selection, shape, filter, kind: "" };
}

/** The zone of the browser, or UTC, over a span in nanoseconds since 1970. */
function zoneOver(name: string, ends: readonly [number, number]): ZoneObject {
  const offset = (ns: number) => (name === "UTC" ? 0 : -60 * new Date(ns / 1e6).getTimezoneOffset());
  return {
    name: name || Intl.DateTimeFormat().resolvedOptions().timeZone,
    utc_offsets_s: [offset(ends[0]), offset(ends[1])],
  };
}

const isQueries = (report: ViewDocument): report is QueriesDocument =>
  report.kind === "summary" || report.kind === "interval";

interface DocumentProps extends Pick<Controls, "go">, Pick<Address, "filter" | "kind"> {
  shown: Shown;
  isLive: boolean;
  onFilter: (filter: string) => void;
}

function Document({ shown, isLive, go, filter, kind, onFilter }: DocumentProps): VNode {
  const { report, history, zone, timeline, address } = shown;
  const isHealth = report.kind === "page_status";
  if (report.kind === "now") {
    const { version, host, history: source, end_ns } = history;
    const clock = new Clock(zoneOver(zone, [report.now_ns, report.now_ns]), 0, 0);
    const about = { tool: "mongosonar", version, host, sources: [source], start_ns: null, end_ns: null };
    return <NowView first={report} {...{ about, clock, end_ns, isLive, go }} address={{ ...address, filter, kind }} />;
  }
  if (!isHealth && !isQueries(report)) return <Page report={report} />;
  const end_ns = (isHealth ? report.now_ns : report.end_ns) ?? 0;
  const start_ns = (isHealth ? (report.agent?.started_ns ?? end_ns) : report.start_ns) ?? 0;
  const { version, host, history: source } = history;
  const clock = new Clock(zoneOver(zone, [start_ns, end_ns]), seconds(start_ns), seconds(end_ns));
  const about = { tool: "mongosonar", version, host, sources: [source], start_ns, end_ns };
  if (isHealth) return <HealthView status={report} about={about} clock={clock} />;
  return <QueriesView report={report} {...{ about, clock, timeline, filter, onFilter }} by={address.by} />;
}

const Groupings = ({ address, go }: Controls) => (
  <nav class="live" aria-label="Rows">
    <div>
      <span class="dim">rows by</span>
      {GROUPINGS.map((by) => (
        <Choice key={by} to={{ ...address, by, filter: "" }} go={go} isChosen={by === address.by}>
          {by}
        </Choice>
      ))}
    </div>
  </nav>
);

/** What is compared with; changes are always compared with something. */
function Comparisons({ address, go, lacks }: Controls & { lacks: string }) {
  const isChanges = address.view === "what-changed";
  const chosen = isChanges && address.against === "" ? "before" : address.against;
  return (
    <nav class="live" aria-label="Compared with">
      <div>
        <span class="dim">compared with</span>
        {(Object.keys(COMPARISONS) as Comparison[])
          .filter((against) => against !== "" || !isChanges)
          .map((against) => (
            <Choice key={against} to={{ ...address, against }} go={go} isChosen={against === chosen}>
              {COMPARISONS[against]}
            </Choice>
          ))}
        {lacks !== "" && <span class="dim">{visible(lacks)}</span>}
      </div>
    </nav>
  );
}

/** What can be chosen: what series are about, or the kinds of events that there are. */
function kindsOf(report: ViewDocument | undefined): string[] {
  if (report?.kind === "events") return Object.keys(report.kinds);
  return report?.kind === "all_series" ? report.subjects : [];
}

const Search = ({ address, go, kinds }: Controls & { kinds: readonly string[] }) => (
  <nav class="live" aria-label="Search">
    <div>
      <input
        type="search"
        class="filter"
        placeholder="search ( / )"
        aria-label="Search words"
        value={address.filter}
        onChange={(event) => go({ ...address, filter: event.currentTarget.value.trim() })}
      />
      <label>
        {address.view === "series" ? "about" : "kind"}{" "}
        <select value={address.kind} onChange={(event) => go({ ...address, kind: event.currentTarget.value })}>
          <option value="">all</option>
          {[...new Set([...kinds, address.kind])].filter(Boolean).map((kind) => (
            <option key={kind} value={kind}>
              {kindInWords(kind)}
            </option>
          ))}
        </select>
      </label>
    </div>
  </nav>
);

const Views = ({ address, go }: Controls) => (
  <div>
    {(Object.keys(VIEWS) as (keyof typeof VIEWS)[]).map((view) => (
      <Choice
        key={view}
        to={{ ...address, view, shape: "", filter: "", kind: "", selection: NOTHING }}
        go={go}
        isChosen={view === address.view}
      >
        {VIEWS[view]}
      </Choice>
    ))}
  </div>
);

/** Why there is nothing to see, and what helps. */
function Trouble({ problem, stored, address, go }: Controls & { problem: Refused; stored: PageStatus | undefined }) {
  const last = stored?.end_ns == null ? undefined : stored.end_ns / 1e6;
  return (
    <main>
      <h1>mongosonar</h1>
      <p class="bad" role="alert">
        {visible(problem.message)}
      </p>
      {problem.reason !== "access" && last !== undefined && (
        <Choice to={between(address, last - HOUR_MS, last)} go={go} isChosen={false}>
          Show the last hour that is stored
        </Choice>
      )}
    </main>
  );
}
