// Asks the server of the page for its documents.

import { writeSelection } from "../parts/selection";
import type { NowReport, PageStatus, QueriesDocument, Report, RequestProblem } from "../report";
import type { Address } from "./address";
import { OWN_GROUPINGS } from "./groups";

/** Why the server has not answered, in words. */
export class Refused extends Error {
  constructor(
    readonly reason: string,
    words: string,
  ) {
    super(words);
  }
}

/** What a view draws. */
export type ViewDocument = Report | QueriesDocument | PageStatus | NowReport;

async function ask(path: string, options?: RequestInit): Promise<Response> {
  const answer = await fetch(path, options).catch(() => {
    throw new Refused(
      "unreachable",
      "the server of this page does not answer: is the agent, or `mongosonar serve`, still running?",
    );
  });
  if (answer.ok) return answer;
  const problem = (await answer.json().catch(() => ({}))) as Partial<RequestProblem>;
  throw new Refused(problem.reason ?? "failed", problem.words ?? `the server answered with status ${answer.status}`);
}

/** Opens a session with the code behind the `#` of a link; returns why not if that is refused. */
export async function openSession(): Promise<Refused | undefined> {
  const code = location.hash.slice(1);
  if (code === "") return undefined;
  // It works once, and is of no use in the history of the browser.
  history.replaceState(null, "", location.pathname + location.search);
  const options = { method: "POST", headers: { Authorization: `Bearer ${code}` } };
  return ask("api/v1/session", options).then(
    () => undefined,
    (error: Refused) => error,
  );
}

export const status = async (): Promise<PageStatus> => (await ask("api/v1/status")).json() as Promise<PageStatus>;

/** The operations that run now. */
export const now = async (signal: AbortSignal): Promise<NowReport> =>
  (await ask("api/v1/now", { signal })).json() as Promise<NowReport>;

/** What ended in the minute before a moment in nanoseconds since 1970. */
export async function ended(end_ns: number, signal: AbortSignal): Promise<QueriesDocument> {
  const [from, to] = [end_ns - 60e9, end_ns].map((ns) => new Date(ns / 1e6).toISOString()) as [string, string];
  const parameters = new URLSearchParams({ from, to, limit: "50" });
  return (await ask(`api/v1/queries?${parameters.toString()}`, { signal })).json() as Promise<QueriesDocument>;
}

/** How long to wait until a server that refused is asked again, in milliseconds. */
const AGAIN_MS = 30_000;

/**
 * Calls `stored` with the end of the newest window, and of each one that is stored later; ends when the result is called.
 * A page in the background holds no connection: browsers open six to a server at most, for all of its pages.
 */
export function follow(stored: (endNs: number) => void): () => void {
  let source: EventSource | undefined;
  let again: ReturnType<typeof setTimeout> | undefined;
  const stop = () => {
    clearTimeout(again);
    source?.close();
    source = undefined;
  };
  const look = () => {
    stop();
    if (document.hidden) return;
    source = new EventSource("api/v1/live");
    source.addEventListener("window", (event) =>
      stored((JSON.parse(event.data as string) as { end_ns: number }).end_ns),
    );
    source.addEventListener("error", () => {
      // A browser tries again by itself, unless the server refuses: then asking for anything says why.
      if (source?.readyState !== EventSource.CLOSED) return;
      again = setTimeout(look, AGAIN_MS);
      stored(Infinity);
    });
  };
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    document.removeEventListener("visibilitychange", look);
    stop();
  };
}

/** The most rows of queries. */
const ROWS = "2000";

/** The range of an address, as a request has it. */
function range({ from, to, zone }: Address): URLSearchParams {
  const parameters = new URLSearchParams({ from, zone: zone || Intl.DateTimeFormat().resolvedOptions().timeZone });
  if (to !== "") parameters.set("to", to);
  return parameters;
}

/** How many shapes are found by a text. */
const FOUND = "100";

/** The query shapes of a range that hold a text, those with the most load first. */
export async function findShapes(address: Address, text: string, signal: AbortSignal): Promise<QueriesDocument> {
  const parameters = range(address);
  parameters.set("filter", text);
  parameters.set("limit", FOUND);
  const answer = await ask(`api/v1/queries?${parameters.toString()}`, { signal });
  return answer.json() as Promise<QueriesDocument>;
}

/** The document of a view. */
export async function load(address: Address, signal: AbortSignal): Promise<ViewDocument> {
  const { view, by, against, shape, filter, kind } = address;
  if (view === "status") return status();
  if (view === "now") return now(signal);
  const parameters = range(address);
  if (view === "what-changed" && against !== "" && against !== "before") parameters.set("against", against);
  if (view === "shape" || (view === "different" && shape !== "")) parameters.set("id", shape);
  if (view === "different") {
    writeSelection(parameters, address.selection);
    if (filter !== "") parameters.set("namespace", filter);
  }
  if (filter !== "" && (view === "series" || view === "events")) parameters.set("filter", filter);
  if (kind !== "" && view === "series") parameters.set("subject", kind);
  if (kind !== "" && view === "events") parameters.set("kind", kind);
  if (view === "queries") {
    parameters.set("by", OWN_GROUPINGS.some((own) => own === by) ? "shape" : by);
    parameters.set("limit", ROWS);
  }
  const answer = await ask(`api/v1/${view}?${parameters.toString()}`, { signal });
  return answer.json() as Promise<ViewDocument>;
}
