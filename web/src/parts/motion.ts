// What a drawing depends on besides its data: the colours of the page and the width it has.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";

const THEME = "themechange";

/** The colours that the page has now. */
export function themeNow(): "dark" | "light" {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "dark" || chosen === "light") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Chooses the colours: dark, light, or those of the system. */
export function setTheme(theme: "dark" | "light" | "system") {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  dispatchEvent(new Event(THEME));
}

/** The colours of the page and the width of an element; draws again when one of them changes. */
export function useMotion(element: { current: HTMLElement | null }): { theme: string; width: number } {
  const [theme, change] = useState(themeNow);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const update = () => change(themeNow());
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", update);
    addEventListener(THEME, update);
    return () => {
      media.removeEventListener("change", update);
      removeEventListener(THEME, update);
    };
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
