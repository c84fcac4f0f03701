// What every page has: its title, where its figures are from, colours, keys, licences.

import type { ComponentChildren } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";

import type { About } from "../report";
import { duration, visible } from "./format";
import { isTyping, type KeyWords, MoreKeys } from "./keys";
import { setTheme, type Theme } from "./motion";
import { type Clock, seconds, utc } from "./time";

declare const LICENCES: string;

/** A name and what stands for it; left out where it is empty. */
export type Fact = [name: string, value: ComponentChildren];

export interface ShellProps {
  title: string;
  about: About;
  /** The clock of its times; that of UTC where it is left out. */
  clock?: Clock;
  /** What stands beside host, source, time and version. */
  facts?: readonly Fact[];
  children: ComponentChildren;
}

/** Names and what stands for them, without those that are empty. */
export const Facts = ({ facts, kind }: { facts: readonly Fact[]; kind: "facts" | "list" }) => (
  <dl class={kind}>
    {facts
      .filter(([, value]) => value !== "" && value != null && value !== false)
      .map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === "string" ? visible(value) : value}</dd>
        </div>
      ))}
  </dl>
);

const KEYS: KeyWords[] = [
  ["Tab", "to the next chart, heading or row"],
  ["← →", "in a chart: move the cross-hair of all charts; with Shift: pan"],
  ["+ − 0", "in a chart: zoom in, zoom out, show all"],
  ["drag", "in a chart: zoom; with Shift: pan; double click: show all"],
  ["Ctrl wheel", "in a chart: zoom"],
  ["Enter", "on a heading: sort; on a row: its details"],
  ["↑ ↓ or k j", "in a table: the row above or below"],
  ["↑ ↓ ← →", "in a flame graph: to callers, called and neighbours; Enter: zoom; 0: show all"],
  ["/", "filter the rows, or search a flame graph"],
  ["t", "dark, light, or as the system is"],
  ["Esc", "close"],
  ["?", "these keys"],
];

const NEXT: Record<Theme, Theme> = { system: "dark", dark: "light", light: "system" };

/** From when to when, with the length in between. Nanoseconds since 1970. */
export function spanText(first: number, last: number, clock: Clock): string {
  const [from, to] = [seconds(first), seconds(last)];
  const end = clock.date(from) === clock.date(to) ? clock.time(to) : clock.full(to);
  return `${clock.full(from)} to ${end} ${clock.name} (${duration(last - first)})`;
}

export function Shell(props: ShellProps) {
  const [theme, choose] = useState<Theme>("system");
  const keys = useRef<HTMLDialogElement>(null);
  const more = useContext(MoreKeys);
  const { about, facts = [], clock = utc() } = props;
  const change = (theme: Theme) => {
    choose(theme);
    setTheme(theme);
  };
  useEffect(() => {
    document.title = [props.title, visible(about.host ?? ""), "mongosonar"].filter(Boolean).join(" · ");
  }, []);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (isTyping(event)) {
        if (event.key === "Escape") (event.target as HTMLElement).blur();
        return;
      }
      if (event.key === "?") keys.current?.showModal();
      else if (event.key === "t") change(NEXT[theme]);
      else if (event.key === "/") document.querySelector<HTMLElement>(".filter")?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [theme]);
  useEffect(() => {
    // Paper is white, and narrow.
    const paper = (isPaper: boolean) => {
      document.body.classList.toggle("paper", isPaper);
      setTheme(isPaper ? "light" : theme);
    };
    const before = () => paper(true);
    const after = () => paper(false);
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }, [theme]);
  return (
    <>
      <header>
        <div class="title">
          <h1>{props.title}</h1>
          <div class="tools">
            <button
              type="button"
              onClick={() => change(NEXT[theme])}
              title="Colours: those of the system, dark, light (t)"
            >
              {{ system: "auto", dark: "dark", light: "light" }[theme]}
            </button>
            <button type="button" onClick={() => print()} title="Print, or save as PDF">
              print
            </button>
            <button type="button" onClick={() => keys.current?.showModal()} title="Keys (?)">
              keys
            </button>
          </div>
        </div>
        <Facts
          kind="facts"
          facts={[
            ["host", about.host ?? (about.start_ns != null && "not known")],
            ["source", about.sources.join(", ")],
            ["time", about.start_ns != null && about.end_ns != null && spanText(about.start_ns, about.end_ns, clock)],
            ...facts,
            ["version", `mongosonar ${about.version}`],
          ]}
        />
      </header>
      <main>{props.children}</main>
      <footer>
        <details>
          <summary>mongosonar {about.version} · licences</summary>
          <p>This page needs no network. Its charts are drawn by uPlot, its parts by Preact:</p>
          <pre>{LICENCES}</pre>
        </details>
      </footer>
      <dialog ref={keys} onClick={(event) => event.target === keys.current && keys.current?.close()}>
        <h2>Keys</h2>
        <dl class="keys">
          {[...KEYS, ...more].map(([key, what]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <button type="button" onClick={() => keys.current?.close()}>
          Close
        </button>
      </dialog>
    </>
  );
}

/** A figure that stands out. */
export const Tile = ({ name, value, tone, about }: { name: string; value: string; tone?: string; about?: string }) => (
  <div class={`tile ${tone ?? ""}`} title={about}>
    <b>{value}</b>
    <span>{name}</span>
  </div>
);

/** Sentences, one a line. */
export const Words = ({ lines, tone }: { lines: readonly string[]; tone?: string }) =>
  lines.length > 0 ? (
    <div class={`words ${tone ?? ""}`}>
      {lines.map((line) => (
        <p key={line}>{visible(line)}</p>
      ))}
    </div>
  ) : null;

/** What was lost, in one line. */
export function Lost({ lost, words }: { lost: Record<string, number>; words?: readonly string[] | undefined }) {
  const named = Object.entries(lost)
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${name} ${count.toLocaleString("en-US")}`);
  const lines = words ?? named;
  return lines.length > 0 ? <Words tone="bad" lines={[`Not in full: ${lines.join("; ")}`]} /> : null;
}
