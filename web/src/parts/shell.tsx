// What every page has: its title, where its figures are from, colours, keys, licences.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { duration, visible } from "./format";
import { setTheme } from "./motion";
import { type Clock, seconds } from "./time";

declare const LICENCES: string;

/** A name and what stands for it; left out where it is empty. */
export type Fact = [name: string, value: ComponentChildren];

export interface ShellProps {
  title: string;
  version: string;
  facts: readonly Fact[];
  children: ComponentChildren;
}

const KEYS: [keys: string, what: string][] = [
  ["Tab", "to the next chart, heading or row"],
  ["← →", "in a chart: pan; with Shift: move the cross-hair"],
  ["+ − 0", "in a chart: zoom in, zoom out, show all"],
  ["drag", "in a chart: zoom; with Shift: pan; double click: show all"],
  ["Ctrl wheel", "in a chart: zoom"],
  ["Enter", "on a heading: sort; on a row: its details"],
  ["↑ ↓ or k j", "in a table: the row above or below"],
  ["/", "filter the rows"],
  ["t", "dark, light, or as the system is"],
  ["Esc", "close"],
  ["?", "these keys"],
];

type Theme = "system" | "dark" | "light";
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
  const change = (theme: Theme) => {
    choose(theme);
    setTheme(theme);
  };
  useEffect(() => {
    const hosts = props.facts.find(([name]) => name === "host")?.[1];
    document.title = [props.title, typeof hosts === "string" ? hosts : "", "mongosonar"].filter(Boolean).join(" · ");
  }, []);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLElement && event.target.closest("input, select, textarea");
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (typing) {
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
        <dl class="facts">
          {[...props.facts, ["version", `mongosonar ${props.version}`] as Fact]
            .filter(([, value]) => value !== "" && value != null)
            .map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
        </dl>
      </header>
      <main>{props.children}</main>
      <footer>
        <details>
          <summary>mongosonar {props.version} · licences</summary>
          <p>This page needs no network. Its charts are drawn by uPlot, its parts by Preact:</p>
          <pre>{LICENCES}</pre>
        </details>
      </footer>
      <dialog ref={keys} onClick={(event) => event.target === keys.current && keys.current?.close()}>
        <h2>Keys</h2>
        <dl class="keys">
          {KEYS.map(([key, what]) => (
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
export function Lost({ lost }: { lost: Record<string, number> }) {
  const lines = Object.entries(lost).filter(([, count]) => count > 0);
  if (lines.length === 0) return null;
  return (
    <Words
      tone="bad"
      lines={[`Not in full: ${lines.map(([name, count]) => `${name} ${count.toLocaleString("en-US")}`).join(", ")}`]}
    />
  );
}
