// Goes to a view, a range or a query shape by a few letters of its name.

import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { visible } from "../parts/format";
import type { QueryShapeJson } from "../report";
import { type Address, COMPARISONS, type Comparison, GROUPINGS, RANGES, VIEWS, withoutTimes } from "./address";
import { findShapes } from "./api";
import type { Controls } from "./choice";
import { isComparable } from "./earlier";

/** A place to go to. */
export interface Place {
  words: string;
  to: Address;
}

/** All places but query shapes. */
export function places(address: Address): Place[] {
  const plain: Address = { ...address, shape: "", filter: "", kind: "" };
  return [
    ...(Object.keys(VIEWS) as (keyof typeof VIEWS)[]).map((view) => ({ words: VIEWS[view], to: { ...plain, view } })),
    ...RANGES.map((range) => ({ words: `last ${range}`, to: { ...withoutTimes(address), from: `-${range}`, to: "" } })),
    ...GROUPINGS.map((by): Place => ({ words: `queries by ${by}`, to: { ...plain, view: "queries", by } })),
    ...(isComparable(address.view) ? (Object.keys(COMPARISONS) as Comparison[]) : []).map((against) => ({
      words: `compare with ${COMPARISONS[against]}`,
      to: { ...address, against },
    })),
  ];
}

/** Those that have each word, in any order. */
export function matching(all: readonly Place[], text: string): Place[] {
  const words = text.toLowerCase().split(/\s+/);
  return all.filter((place) => words.every((word) => place.words.toLowerCase().includes(word)));
}

/** Shapes are searched for after at least this many letters, once nothing was typed for so many milliseconds. */
const MIN_LETTERS = 2;
const PAUSE_MS = 250;
/** How many shapes are shown. */
const MAX_SHAPES = 10;

/** The shapes of the range that hold a text. */
function useShapes(address: Address, text: string): Place[] {
  const [found, setFound] = useState<Place[]>([]);
  useEffect(() => {
    setFound([]);
    if (text.length < MIN_LETTERS) return;
    const stop = new AbortController();
    const look = async () => {
      // The server looks for one text.
      const [longest = ""] = text.split(/\s+/).sort((a, b) => b.length - a.length);
      const { rows } = await findShapes(address, longest, stop.signal);
      const shapes = (rows as Partial<QueryShapeJson>[]).map(
        ({ command, database, collection, shape, shape_id = "" }): Place => ({
          words: visible([command, [database, collection].filter(Boolean).join("."), shape].filter(Boolean).join(" ")),
          to: { ...address, view: "shape", shape: shape_id, filter: "", kind: "" },
        }),
      );
      if (!stop.signal.aborted) setFound(matching(shapes, text).slice(0, MAX_SHAPES));
    };
    // Places are found without the server, which says elsewhere why it does not answer.
    const pause = setTimeout(() => void look().catch(() => undefined), PAUSE_MS);
    return () => {
      clearTimeout(pause);
      stop.abort();
    };
  }, [address, text]);
  return found;
}

export function Palette({ address, go }: Controls): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const found = [...matching(places(address), text.trim()), ...useShapes(address, text.trim())];
  const chosen = Math.max(0, Math.min(at, found.length - 1));
  const open = () => {
    setAt(0);
    if (!dialog.current?.open) dialog.current?.showModal();
  };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
      event.preventDefault();
      open();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  useEffect(() => {
    dialog.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const choose = (place: Place | undefined) => {
    if (!place) return;
    dialog.current?.close();
    // The field that had the focus before may leave with its view: keys are for the page now.
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    go(place.to);
  };
  const key = (event: KeyboardEvent) => {
    if (found.length === 0) return;
    if (event.key === "ArrowDown") setAt((chosen + 1) % found.length);
    else if (event.key === "ArrowUp") setAt((chosen + found.length - 1) % found.length);
    else if (event.key === "Enter") choose(found[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <button
        type="button"
        title="go to a view, a range or a query shape (Ctrl K)"
        aria-haspopup="dialog"
        onClick={open}
      >
        go to …
      </button>
      <dialog
        ref={dialog}
        class="palette"
        aria-label="Go to"
        onClose={() => setText("")}
        onClick={(event) => event.target === dialog.current && dialog.current?.close()}
      >
        <input
          type="text"
          role="combobox"
          aria-expanded="true"
          aria-controls="places"
          aria-activedescendant={found.length > 0 ? `place-${chosen}` : undefined}
          aria-label="View, range or query shape"
          placeholder="view, range or query shape"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={key}
        />
        <ul role="listbox" id="places" aria-label="Places">
          {found.map((place, n) => (
            <li
              key={n}
              id={`place-${n}`}
              role="option"
              aria-selected={n === chosen}
              onClick={() => choose(place)}
              onMouseMove={() => setAt(n)}
            >
              {place.words}
            </li>
          ))}
        </ul>
        {found.length === 0 && <p class="dim">Nothing has this name.</p>}
      </dialog>
    </>
  );
}
