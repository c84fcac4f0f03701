// Keys of the whole page.

/** Whether a key is typed into a field. */
export const isTyping = ({ target }: KeyboardEvent): boolean =>
  target instanceof HTMLElement && target.closest("input, select, textarea") !== null;
