import { afterEach, expect, test, vi } from "vitest";

import { read } from "../src/live/address";
import { load, openSession, status } from "../src/live/api";

afterEach(() => vi.unstubAllGlobals());

test("the page asks below its own address, whatever path a reverse proxy gives it", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (path: string) => {
    asked.push(new URL(path, "https://db1.example/mongosonar/?view=queries").pathname);
    return Promise.resolve(new Response("{}"));
  });
  vi.stubGlobal("location", { hash: "#code", pathname: "/mongosonar/", search: "?view=queries" });
  const replaced: string[] = [];
  vi.stubGlobal("history", { replaceState: (_: null, __: string, address: string) => replaced.push(address) });
  expect(await openSession()).toBeUndefined();
  await status();
  await load(read("?view=timeline"), new AbortController().signal);
  expect(asked).toEqual(["session", "status", "timeline"].map((name) => `/mongosonar/api/v1/${name}`));
  expect(replaced).toEqual(["/mongosonar/?view=queries"]);
});
