// What changed: each change as a sentence with its evidence and its effects.

import type { About, ChangeJson, ChangesReport, MomentJson } from "../report";
import { duration, plural, visible } from "./format";
import { Words } from "./shell";
import { type Clock, seconds } from "./time";

/** The time that clients waited more or less because of a change, in words. */
export const cost = (ns: number): string => `${duration(Math.abs(ns))} ${ns < 0 ? "less" : "more"} waiting`;

/**
 * The same of a change whose cost was measured over `measuredNs`. The time of many operations at once is more than that,
 * which needs words.
 */
export function costWithin(ns: number, measuredNs: number): string {
  const atOnce = Math.round(ns / Math.max(measuredNs, 1));
  return atOnce < 2 ? cost(ns) : `${cost(ns)}, by about ${plural(atOnce, "operation")} at a time`;
}

/** A clock time within a day that the head of the page names, and the whole time otherwise. */
export function clockIn(clock: Clock, whole: Pick<About, "start_ns" | "end_ns">): (ns: number) => string {
  const [first, last] = [whole.start_ns ?? 0, whole.end_ns ?? 0].map((ns) => clock.date(seconds(ns)));
  return (ns) => {
    const at = seconds(ns);
    return first === last && clock.date(at) === first ? clock.time(at) : clock.full(at);
  };
}

/** What stands before the sentence of a change: its server, if there are several. */
export function serverOf({ moments }: Pick<ChangesReport, "moments">): (change: ChangeJson) => string {
  const all = moments.flatMap(({ changes, context }) => [...changes, ...context]);
  const servers = new Set(all.flatMap(({ server }) => (server == null ? [] : [server])));
  return ({ server }) => (server == null || servers.size < 2 ? "" : `${visible(server)}: `);
}

/** The folder in which commands look for a history by themselves. */
const STORE = "/var/lib/mongosonar";

/** The command line that shows more of a change; empty if there is none. */
export function more({ command }: ChangeJson, { sources }: About): string {
  if (command.length === 0) return "";
  const [store] = sources;
  const words = ["mongosonar", ...command, ...(store && store !== STORE ? ["--store", store] : [])];
  return words.map((word) => (/^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** What each moment was compared with, in words. */
export function against(
  { compared_with, usual }: Pick<ChangesReport, "compared_with" | "usual">,
  clock: Clock,
): string {
  if (!compared_with) return "Each moment is compared with the time before it.";
  const [from, to] = [compared_with.start_ns, compared_with.end_ns].map((ns) => clock.full(seconds(ns)));
  const since = usual ? `; the time from ${clock.full(seconds(usual.start_ns))} on shows what is usual` : "";
  return `Compared with ${from} to ${to}${since}.`;
}

/** How all statements of a report are written. */
interface Style {
  about: About;
  at: (ns: number) => string;
  server: (change: ChangeJson) => string;
  measuredNs: number;
}

const Evidence = ({ lines }: { lines: readonly string[] }) => (
  <>
    {lines.map((line, at) => (
      <p key={at} class="dim">
        {visible(line)}
      </p>
    ))}
  </>
);

/** Whether queries became worse: an application that is new adds its own. */
const isWorse = ({ kind, cost_ns }: ChangeJson): boolean => cost_ns > 0 && kind !== "application";

/** The changes for which clients waited most, the longest first; one that brings its own operations is none. */
export function worst({ moments }: Pick<ChangesReport, "moments">, most: number): ChangeJson[] {
  const all = moments.flatMap(({ changes }) => changes.filter(isWorse));
  return all.sort((one, other) => other.cost_ns - one.cost_ns).slice(0, most);
}

/** The answer in a few sentences: how much changed, and for what clients waited most. */
export function InShort({ report, clock }: { report: ChangesReport; clock: Clock }) {
  const [at, server] = [clockIn(clock, report.about), serverOf(report)];
  const found = worst(report, 3);
  const lines = found.map((one) => `${at(one.since_ns)} ${server(one)}${one.sentence} (${cost(one.cost_ns)})`);
  return <Words tone="verdict" lines={[report.summary, ...(found.length > 1 ? lines : [])]} />;
}

function Statement({ change, style, effect }: { change: ChangeJson; style: Style; effect?: boolean }) {
  const command = effect ? "" : more(change, style.about);
  const figures = change.effects.filter(({ kind }) => kind === "series");
  return (
    <div class={`words ${effect ? "effect" : isWorse(change) ? "verdict worse" : "verdict"}`}>
      <p>
        {effect && "→ "}
        <b>{style.at(change.since_ns)}</b> {style.server(change)}
        {visible(change.sentence)}{" "}
        {change.cost_ns !== 0 && <b class="cost">({costWithin(change.cost_ns, style.measuredNs)})</b>}
      </p>
      <Evidence lines={change.evidence} />
      {change.effects
        .filter(({ kind }) => kind !== "series")
        .map((one, at) => (
          <Statement key={at} change={one} style={style} effect />
        ))}
      {figures.length > 0 && (
        <p class="dim">→ with it: {figures.map(({ sentence }) => visible(sentence)).join("; ")}</p>
      )}
      {command && (
        <p class="dim">
          More: <code>{visible(command)}</code>
        </p>
      )}
    </div>
  );
}

/** Times that were not observed, in words: what was observed, and of what. */
export const gapWords = (gaps: ChangesReport["gaps"], clock: Clock): string[] =>
  gaps.map(({ subject, start_ns, end_ns, observed }) => {
    const when = `${clock.full(seconds(start_ns))} to ${clock.full(seconds(end_ns))}`;
    const [part, whole] = [duration((end_ns - start_ns) * observed), duration(end_ns - start_ns)];
    if (observed > 0) {
      return subject
        ? `${when}: ${subject} observed for only ${part} of these ${whole}.`
        : `${when}: only ${part} of these ${whole} were observed.`;
    }
    return `${when}: ${subject ? `${subject} not` : "nothing was"} observed.`;
  });

/**
 * What gaps were of, in one sentence: a single one in full, several by how long each source did not observe, the longest
 * first.
 */
export function gapSummary(gaps: ChangesReport["gaps"], clock: Clock): string[] {
  if (gaps.length < 2) {
    return gapWords(gaps, clock);
  }
  const missing = new Map<string, number>();
  for (const { subject, start_ns, end_ns, observed } of gaps) {
    const what = subject?.replace(/ \S+$/, "") ?? "everything";
    missing.set(what, (missing.get(what) ?? 0) + (end_ns - start_ns) * (1 - observed));
  }
  const last = (what: string) => (what === "everything" ? 0 : 1);
  const longest = [...missing].sort(([one, a], [other, b]) => last(one) - last(other) || b - a);
  const parts = longest.map(([what, ns]) => `${what} for ${duration(ns)}`);
  return [`Not observed, in ${gaps.length} gaps: ${parts.join(", ")}.`];
}

/** Several gaps, which a sentence at the top sums up. */
export const GapList = ({ gaps, clock }: { gaps: ChangesReport["gaps"]; clock: Clock }) =>
  gaps.length > 1 ? (
    <section>
      <details>
        <summary>What was not observed</summary>
        <Words lines={gapWords(gaps, clock)} />
      </details>
    </section>
  ) : null;

/** All moments of change; with `rest`, below their summary. */
export function ChangesView({ report, clock, rest }: { report: ChangesReport; clock: Clock; rest?: boolean }) {
  const { start_ns, end_ns } = report.about;
  const isWhole = (moment: MomentJson) => moment.start_ns === start_ns && moment.end_ns === end_ns;
  const at = clockIn(clock, report.about);
  const server = serverOf(report);
  return (
    <>
      {!rest && <Words tone="verdict" lines={[report.summary]} />}
      <p class="dim">{against(report, clock)}</p>
      <Words tone="bad" lines={[...gapSummary(report.gaps, clock), ...report.notes]} />
      {report.moments.map((moment, number) => {
        const style = { about: report.about, at, server, measuredNs: moment.measured_ns };
        return (
          <section key={number} class="moment">
            {!isWhole(moment) && (
              <h3>
                Between {at(moment.start_ns)} and {at(moment.end_ns)}
              </h3>
            )}
            {moment.changes.map((change, at) => (
              <Statement key={at} change={change} style={style} />
            ))}
            {moment.left_out > 0 && <p class="dim">and {plural(moment.left_out, "more change")}</p>}
            {moment.context.length > 0 && (
              <>
                <p class="dim">The machine and the server at the same time:</p>
                {moment.context.map((change, at) => (
                  <div key={at} class="words context">
                    <p>
                      {server(change)}
                      {visible(change.sentence)}
                    </p>
                    <Evidence lines={change.evidence} />
                  </div>
                ))}
              </>
            )}
          </section>
        );
      })}
      <GapList gaps={report.gaps} clock={clock} />
    </>
  );
}
