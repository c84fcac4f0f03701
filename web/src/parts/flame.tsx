// A flame graph with zoom and search, by mouse and keyboard. The root is at the top.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { type FlameBox, hue, matching, placed } from "./stacks";
import { percent, plural, visible } from "./format";
import { useMotion } from "./motion";

/** Height of a row, in units of the letters. */
const ROW = 1.45;
/** Narrower boxes are left out; in pixels. */
const LEAST = 2;

export function Flame({ root }: { root: FlameBox }) {
  const holder = useRef<HTMLDivElement>(null);
  const { width } = useMotion(holder);
  const [focus, zoom] = useState(root);
  const [at, go] = useState(root);
  const [pointed, point] = useState<FlameBox | null>(null);
  const [needle, search] = useState("");
  const isMoved = useRef(false);
  const boxes = useMemo(() => (width > 0 ? placed(focus, LEAST / width) : []), [focus, width]);
  const text = needle.trim().toLowerCase();
  const hits = useMemo(() => (text ? matching(root, text) : 0), [text]);
  const rows = boxes.reduce((most, { row }) => Math.max(most, row + 1), 1);
  const share = (samples: number, of = root) => percent(samples / Math.max(of.samples, 1), 1);
  const words = (box: FlameBox) =>
    `${visible(box.name)}: ${plural(box.samples, "sample")}, ${share(box.samples)}` +
    (focus === root ? "" : `, ${share(box.samples, focus)} of ${visible(focus.name)}`);
  // A box that is not drawn cannot have the focus.
  const current = boxes.some(({ box }) => box === at) ? at : focus;
  useLayoutEffect(() => {
    if (isMoved.current) holder.current?.querySelector<HTMLElement>("[tabindex='0']")?.focus();
    isMoved.current = false;
  }, [current, focus]);
  const key = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const own = boxes.find(({ box }) => box === current);
    const drawn = (box: FlameBox | null | undefined) => (boxes.some((one) => one.box === box) ? box! : current);
    const row = boxes.filter((one) => one.row === own?.row).sort((a, b) => a.left - b.left);
    const beside = (by: number) => row[row.findIndex(({ box }) => box === current) + by]?.box;
    const show = (box: FlameBox) => () => {
      zoom(box);
      return box;
    };
    const actions: Record<string, () => FlameBox> = {
      ArrowUp: () => drawn(current.parent),
      ArrowDown: () => drawn(current.inside[0]),
      ArrowLeft: () => drawn(beside(-1)),
      ArrowRight: () => drawn(beside(1)),
      Enter: show(current === focus ? (focus.parent ?? root) : current),
      " ": show(current === focus ? (focus.parent ?? root) : current),
      Escape: show(root),
      "0": show(root),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    isMoved.current = true;
    go(action());
  };
  return (
    <figure class="chart">
      <div class="controls">
        <input
          type="search"
          class="filter"
          placeholder="search functions ( / )"
          aria-label="Mark functions that hold this"
          value={needle}
          onInput={(event) => search(event.currentTarget.value)}
        />
        {text && <span role="status">in {share(hits)} of samples</span>}
        <button type="button" disabled={focus === root} title="Show all (0)" onClick={() => zoom(root)}>
          all
        </button>
      </div>
      <p class="reading">{words(pointed ?? current)}</p>
      <div
        class="flame"
        ref={holder}
        role="tree"
        aria-label="Flame graph: arrows to move, Enter to zoom, 0 to show all"
        data-boxes={boxes.length}
        style={{ height: `${rows * ROW}em` }}
        onKeyDown={key}
        onMouseLeave={() => point(null)}
      >
        {boxes.map(({ box, left, width, row }) => (
          <div
            key={box.id}
            role="treeitem"
            aria-level={row + 1}
            aria-label={words(box)}
            tabIndex={box === current ? 0 : -1}
            title={words(box)}
            class={text ? (box.name.toLowerCase().includes(text) ? "hit" : "miss") : ""}
            style={{
              left: `${left * 100}%`,
              width: `${width * 100}%`,
              top: `${row * ROW}em`,
              background: hue(box.name),
            }}
            onMouseEnter={() => point(box)}
            onFocus={() => go(box)}
            onClick={() => zoom(box)}
          >
            {visible(box.name)}
          </div>
        ))}
      </div>
    </figure>
  );
}
