// What changed: each change as a sentence with its evidence and its effects.

import type { Change, Changes } from "../report";
import { duration, plural, visible } from "./format";
import { Words } from "./shell";
import { type Clock, seconds } from "./time";

/** The time that a change cost, or saved. */
export const cost = (ns: number): string => (ns === 0 ? "" : `${ns > 0 ? "+" : "-"}${duration(Math.abs(ns))}`);

function Statement({ change, clock, effect }: { change: Change; clock: Clock; effect?: boolean }) {
  return (
    <div class={`words ${effect ? "" : change.cost_ns > 0 ? "bad" : "verdict"}`}>
      <p>
        {effect && "→ "}
        <b>{clock.time(seconds(change.since_ns))}</b> {change.server && visible(change.server) + " "}
        {visible(change.sentence)} {change.cost_ns !== 0 && <b>{cost(change.cost_ns)}</b>}
      </p>
      {change.evidence.map((line) => (
        <p key={line} class="dim">
          {visible(line)}
        </p>
      ))}
      {change.effects.map((one) => (
        <Statement key={one.sentence} change={one} clock={clock} effect />
      ))}
    </div>
  );
}

/** Times that were not observed, in words. */
export const gapWords = (gaps: Changes["gaps"], clock: Clock): string[] =>
  gaps.map(({ what, start_ns, end_ns, observed }) => {
    const share = observed > 0 ? `Only ${Math.round(100 * observed)}% observed` : "Not observed";
    return `${share} (${what}): ${clock.full(seconds(start_ns))} to ${clock.full(seconds(end_ns))}`;
  });

/** All moments of change. */
export function ChangesView({ report, clock }: { report: Changes; clock: Clock }) {
  const { start_ns, end_ns } = report.about;
  const isWhole = (moment: Changes["moments"][number]) => moment.start_ns === start_ns && moment.end_ns === end_ns;
  return (
    <>
      <Words tone="bad" lines={[...gapWords(report.gaps, clock), ...report.notes.map(visible)]} />
      {report.moments.length === 0 && <Words tone="verdict" lines={["Nothing changed beyond chance."]} />}
      {report.moments.map((moment) => (
        <section key={moment.start_ns}>
          {!isWhole(moment) && (
            <h3>
              {clock.full(seconds(moment.start_ns))} to {clock.time(seconds(moment.end_ns))}
            </h3>
          )}
          {moment.changes.map((change) => (
            <Statement key={change.sentence} change={change} clock={clock} />
          ))}
          {moment.left_out > 0 && <p class="dim">and {plural(moment.left_out, "more change")}</p>}
          {moment.context.length > 0 && (
            <>
              <p class="dim">The machine and the server at the same time:</p>
              {moment.context.map((change) => (
                <div key={change.sentence} class="words">
                  <p>
                    {change.server && visible(change.server) + " "}
                    {visible(change.sentence)}
                  </p>
                  {change.evidence.map((line) => (
                    <p key={line} class="dim">
                      {visible(line)}
                    </p>
                  ))}
                </div>
              ))}
            </>
          )}
        </section>
      ))}
    </>
  );
}
