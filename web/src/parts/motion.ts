// What a drawing depends on besides its data: the colours and letters of the page, and the width it has.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";

const THEME = "themechange";

export type Theme = "system" | "dark" | "light";

let chosen: Theme = "system";
const ofSystem = () => matchMedia("(prefers-color-scheme: dark)");

/** The colours that the page has now. */
export const themeNow = (): "dark" | "light" =>
  chosen === "system" ? (ofSystem().matches ? "dark" : "light") : chosen;

function apply() {
  document.documentElement.dataset["theme"] = themeNow();
  dispatchEvent(new Event(THEME));
}

/** Chooses the colours: dark, light, or those of the system. */
export function setTheme(theme: Theme) {
  chosen = theme;
  apply();
}

/** Takes the colours of the system, now and when they change. */
export function followSystem() {
  ofSystem().addEventListener("change", apply);
  apply();
}

/** The colours of the page and the width of an element; draws again when one of them changes. */
export function useMotion(element: { current: HTMLElement | null }): { theme: string; width: number } {
  const [theme, change] = useState(themeNow);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const update = () => change(themeNow());
    addEventListener(THEME, update);
    return () => removeEventListener(THEME, update);
  }, []);
  useLayoutEffect(() => {
    const box = element.current;
    if (!box) return;
    const measure = () => setWidth(Math.floor(box.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    // Paper has another width.
    addEventListener(THEME, measure);
    return () => {
      observer.disconnect();
      removeEventListener(THEME, measure);
    };
  }, []);
  return { theme, width };
}

/** Height of the letters of a chart, in pixels. */
export const letters = (): number =>
  Math.round(0.84 * Number.parseFloat(getComputedStyle(document.documentElement).fontSize));

/** A colour of the style sheet. */
export const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
