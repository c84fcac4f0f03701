// The page of a server: the views of a history, over a range of time that the address names.

import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { Page } from "../page";
import { kindInWords } from "../pages/events";
import { visible } from "../parts/format";
import { isTyping } from "../parts/keys";
import { ChooseRange } from "../parts/lanes";
import { ChooseOperations, type Compared, NOTHING } from "../parts/selection";
import { Clock, seconds } from "../parts/time";
import type { PageStatus, QueriesDocument, ZoneObject } from "../report";
import {
  type Address,
  between,
  COMPARISONS,
  type Comparison,
  GROUPINGS,
  moved,
  RANGES,
  read,
  span,
  VIEWS,
  withoutTimes,
  written,
} from "./address";
import { follow, load, openSession, Refused, status, type ViewDocument } from "./api";
import { HealthView } from "./health";
import { LinkToShape, QueriesView } from "./queries";

const HOUR_MS = 3_600_000;
/** The columns of a chart. */
const COLUMNS = 240;

/** A moment as an input of the browser has it: in its zone, or in UTC. */
function inputText(ms: number, zone: string): string {
  const offset = zone === "UTC" ? 0 : new Date(ms).getTimezoneOffset() * 60_000;
  return new Date(ms - offset).toISOString().slice(0, 19);
}

/** The moment that an input of the browser has; not a number if it has none. */
const momentOf = (text: string, zone: string): number => Date.parse(zone === "UTC" ? `${text}Z` : text);

/** A document. The next one at the same address changes its page; at another one it gets a page of its own. */
interface Shown {
  report: ViewDocument;
  history: PageStatus;
  zone: string;
  address: Address;
}

/** Why there is no document. A link that opened no session does not matter to who has one. */
async function reason(error: unknown, session: Promise<Refused | undefined> | undefined): Promise<Refused> {
  const refused = error instanceof Refused ? error : new Refused("failed", String(error));
  return (refused.reason === "access" && (await session)) || refused;
}

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
  useEffect(() => {
    const stop = new AbortController();
    const next = async () => {
      setBusy(true);
      try {
        await (session.current ??= openSession());
        const [history, report] = [await status(), await load(address, stop.signal)];
        if (stop.signal.aborted) return;
        setStored(history);
        show({ report, history, zone: address.zone, address });
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
  }, [address, turn]);
  const endsNow = address.to === "";
  const shownEnd = useRef(0);
  shownEnd.current = shown?.history.end_ns ?? 0;
  // A long range changes slowly: what is less than a column of its charts wide is not worth reading it again.
  const least = useRef(0);
  const [first, last] = span(address, Date.now()) ?? [0, 0];
  least.current = address.view === "status" ? 0 : ((last - first) * 1e6) / COLUMNS;
  // Not before there is a session.
  const follows = isLive && endsNow && shown !== undefined;
  useEffect(() => {
    if (!follows) return;
    return follow(
      (endNs) => endNs > shownEnd.current && endNs >= shownEnd.current + least.current && setTurn((turn) => turn + 1),
    );
  }, [follows]);

  const go = (next: Address) => {
    history.pushState(null, "", written(next));
    setAddress(next);
  };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "[") go(moved(address, -1, Date.now()));
      else if (event.key === "]") go(moved(address, 1, Date.now()));
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [address]);

  return (
    <>
      <nav class="live" aria-label="Views and time">
        <Views address={address} go={go} />
        <Ranges address={address} go={go} />
        <div>
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
      {address.view === "what-changed" && <Comparisons address={address} go={go} />}
      {(address.view === "series" || address.view === "events") && (
        <Search address={address} go={go} kinds={kindsOf(shown?.report)} />
      )}
      {shown && (
        <ChooseRange.Provider value={([from, to]) => go(between(address, from * 1e3, to * 1e3))}>
          <LinkToShape.Provider
            value={(shape) => (
              <Choice to={{ ...address, view: "shape", shape }} go={go} isChosen={false}>
                {shape}
              </Choice>
            )}
          >
            <ChooseOperations.Provider value={(compared) => go(comparing(address, compared))}>
              <Document key={written(shown.address)} shown={shown} />
            </ChooseOperations.Provider>
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

function Document({ shown: { report, history, zone } }: { shown: Shown }): VNode {
  const isHealth = report.kind === "page_status";
  if (!isHealth && !isQueries(report)) return <Page report={report} />;
  const end_ns = (isHealth ? report.now_ns : report.end_ns) ?? 0;
  const start_ns = (isHealth ? (report.agent?.started_ns ?? end_ns) : report.start_ns) ?? 0;
  const { version, host, history: source } = history;
  const clock = new Clock(zoneOver(zone, [start_ns, end_ns]), seconds(start_ns), seconds(end_ns));
  const about = { tool: "mongosonar", version, host, sources: [source], start_ns, end_ns };
  if (isHealth) return <HealthView status={report} about={about} clock={clock} />;
  return <QueriesView report={report} about={about} clock={clock} />;
}

const Groupings = ({ address, go }: Controls) => (
  <nav class="live" aria-label="Rows">
    <div>
      <span class="dim">rows by</span>
      {GROUPINGS.map((by) => (
        <Choice key={by} to={{ ...address, by }} go={go} isChosen={by === address.by}>
          {by}
        </Choice>
      ))}
    </div>
  </nav>
);

const Comparisons = ({ address, go }: Controls) => (
  <nav class="live" aria-label="Compared with">
    <div>
      <span class="dim">compared with</span>
      {(Object.keys(COMPARISONS) as Comparison[]).map((against) => (
        <Choice key={against} to={{ ...address, against }} go={go} isChosen={against === address.against}>
          {COMPARISONS[against]}
        </Choice>
      ))}
    </div>
  </nav>
);

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
        placeholder="search"
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

interface Controls {
  address: Address;
  go: (next: Address) => void;
}

/** A link that changes what is shown, and that can be opened elsewhere or copied. */
const Choice = ({
  to,
  go,
  isChosen,
  children,
}: {
  to: Address;
  go: Controls["go"];
  isChosen: boolean;
  children: string;
}) => (
  <a
    href={written(to)}
    aria-current={isChosen ? "page" : undefined}
    onClick={(event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(to);
    }}
  >
    {children}
  </a>
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

function Ranges({ address, go }: Controls): VNode {
  const now = Date.now();
  const { zone } = address;
  const [first, last] = (span(address, now) ?? [now - HOUR_MS, now]).map((ms) => inputText(ms, zone)) as [
    string,
    string,
  ];
  const choose = (from: string, to: string) => {
    const [begin, end] = [momentOf(from, zone), momentOf(to, zone)];
    if (begin < end) go(between(address, begin, end));
  };
  return (
    <div>
      {RANGES.map((range) => (
        <Choice
          key={range}
          to={{ ...withoutTimes(address), from: `-${range}`, to: "" }}
          go={go}
          isChosen={address.to === "" && address.from === `-${range}`}
        >
          {range}
        </Choice>
      ))}
      <button type="button" title="earlier ([)" onClick={() => go(moved(address, -1, Date.now()))}>
        ◀
      </button>
      <input
        type="datetime-local"
        step="1"
        aria-label="from"
        value={first}
        onChange={(event) => choose(event.currentTarget.value, last)}
      />
      <input
        type="datetime-local"
        step="1"
        aria-label="to"
        value={last}
        onChange={(event) => choose(first, event.currentTarget.value)}
      />
      <button
        type="button"
        title="later (])"
        disabled={address.to === ""}
        onClick={() => go(moved(address, 1, Date.now()))}
      >
        ▶
      </button>
    </div>
  );
}

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
