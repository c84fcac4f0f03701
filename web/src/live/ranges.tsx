// Which time is shown: the last minutes to days, any two times, the same length earlier or later.

import type { VNode } from "preact";
import { useRef, useState } from "preact/hooks";

import type { PageStatus } from "../report";
import { between, moved, RANGES, span, withoutTimes } from "./address";
import { Choice, type Controls } from "./choice";
import { inputText, type KnownTime, MAX_DAYS, momentOf, rangeProblem } from "./times";

const HOUR_MS = 3_600_000;

export interface RangesProps extends Controls {
  stored: PageStatus | undefined;
}

/** The time that a history covers. */
const known = (stored: PageStatus | undefined): KnownTime => ({
  now: Date.now(),
  kept: stored?.start_ns != null && stored.end_ns != null ? [stored.start_ns / 1e6, stored.end_ns / 1e6] : null,
});

export const Ranges = ({ address, go, stored }: RangesProps): VNode => (
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
    <Calendar address={address} go={go} stored={stored} />
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

/** The start and the end by day and time. The browser has the month, and every key for it. */
function Calendar({ address, go, stored }: RangesProps): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const [ends, setEnds] = useState<[from: string, to: string]>(["", ""]);
  const [problem, setProblem] = useState("");
  const { zone } = address;
  const kept = known(stored).kept?.map((ms) => inputText(ms, zone));
  const open = () => {
    const now = Date.now();
    const [from, to] = span(address, now) ?? [now - HOUR_MS, now];
    setEnds([inputText(from, zone), inputText(to, zone)]);
    setProblem("");
    dialog.current?.showModal();
  };
  const choose = (event: Event) => {
    event.preventDefault();
    const [from, to] = [momentOf(ends[0], zone), momentOf(ends[1], zone)];
    const found = rangeProblem(from, to, known(stored), zone);
    setProblem(found);
    if (found !== "") return;
    dialog.current?.close();
    go(between(address, from, to));
  };
  const end = (which: 0 | 1, name: string) => (
    <label>
      {name}{" "}
      <input
        type="datetime-local"
        step="1"
        {...(kept ? { min: kept[0] } : {})}
        aria-invalid={problem !== ""}
        aria-describedby="range-problem"
        value={ends[which]}
        onInput={(event) => {
          const text = event.currentTarget.value;
          setEnds(([from, to]) => (which === 0 ? [text, to] : [from, text]));
        }}
      />
    </label>
  );
  return (
    <>
      <button type="button" class="calendar" title="choose start and end (c)" aria-haspopup="dialog" onClick={open}>
        calendar
      </button>
      <dialog
        ref={dialog}
        aria-label="Start and end"
        onClick={(event) => event.target === dialog.current && dialog.current?.close()}
      >
        {/* Its own words say more than those of the browser. */}
        <form noValidate onSubmit={choose}>
          <h2>Start and end</h2>
          <div class="ends">
            {end(0, "from")}
            {end(1, "to")}
          </div>
          <p class="bad" role="alert" id="range-problem">
            {problem}
          </p>
          <p class="dim">
            Times are {zone === "UTC" ? "in UTC" : `of ${Intl.DateTimeFormat().resolvedOptions().timeZone}`}, at most{" "}
            {MAX_DAYS} days apart.
            {kept && ` The history covers ${kept.join(" to ").replaceAll("T", " ")}.`}
          </p>
          <button type="submit">Show</button>{" "}
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
        </form>
      </dialog>
    </>
  );
}
