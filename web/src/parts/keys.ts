// Keys of the whole page.

import { createContext } from "preact";

/** Whether a key is typed into a field. */
export const isTyping = ({ target }: KeyboardEvent): boolean =>
  target instanceof HTMLElement && target.closest("input, select, textarea") !== null;

/** Keys, and what they do. */
export type KeyWords = [keys: string, what: string];

/** Keys of the page around a document, which the list of all keys names too. */
export const MoreKeys = createContext<readonly KeyWords[]>([]);
