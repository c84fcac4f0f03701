// What a part of a page says, without a browser.

import type { ComponentChildren, VNode } from "preact";

const BLOCKS = new Set(["p", "h1", "h2", "h3", "div", "section", "li", "pre"]);

/** The text of a part of a page, a line for each block. The part and what it consists of must have no state. */
export function text(node: ComponentChildren): string {
  return joined(node)
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .join("\n");
}

function joined(node: ComponentChildren): string {
  if (node == null || typeof node === "boolean") return "";
  if (Array.isArray(node)) return node.map(joined).join("");
  if (typeof node !== "object") return String(node);
  const { type, props } = node as VNode<{ children?: ComponentChildren }>;
  if (typeof type === "function") return joined((type as (props: object) => ComponentChildren)(props));
  const inside = joined(props.children);
  return BLOCKS.has(String(type)) ? `\n${inside}\n` : inside;
}
