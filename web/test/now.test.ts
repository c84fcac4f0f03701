// The view Now: the words for each operation, and which operations are shown.

import { expect, test } from "vitest";

import { ageShare, fitting, heldBy, keyOf, lacks, waitsFor } from "../src/live/now";
import type { NowOperation, NowThread } from "../src/report";

const one = (more: Partial<NowOperation> = {}): NowOperation => ({
  sources: ["queries"],
  server: "27017",
  client: "10.0.0.9:51234",
  app: "shop",
  role: "served",
  class: "user",
  command: "find",
  namespace: "shop.orders",
  shape_id: "1f",
  typed: "{filter: {city: ?string}}",
  started_ns: 5,
  running_ns: 7,
  thread_name: null,
  waits: [],
  thread: null,
  opid: null,
  plan: null,
  lock_wait_ns: null,
  yields: null,
  done: null,
  is_killed: false,
  ...more,
});

const thread = (more: Partial<NowThread> = {}): NowThread => ({
  doing: "file_read",
  words: "waiting for reads of files",
  doing_ns: 2e9,
  class: null,
  file: null,
  blocker: null,
  ...more,
});

test("what the server says comes before what its thread does", () => {
  expect(waitsFor(one())).toBe("");
  expect(waitsFor(one({ thread: thread() }))).toBe("waiting for reads of files for 2.00s");
  expect(waitsFor(one({ thread: thread({ class: "read of a page", file: "index-1.wt" }) }))).toBe(
    "read of a page: index-1.wt for 2.00s",
  );
  expect(waitsFor(one({ waits: ["a lock", "the latch x"], thread: thread() }))).toBe("a lock, the latch x");
  expect(waitsFor(one({ is_killed: true }))).toBe("killed");
  expect(waitsFor(one({ waits: ["a lock"], is_killed: true }))).toBe("a lock, killed");
});

test("who held it is named with what it still runs", () => {
  const blocker = { thread: "conn41", wait_ns: 1e9, runs: "update shop.carts", client: "10.0.0.9:1", shape_id: "2f" };
  expect(heldBy(one({ thread: thread({ blocker }) }))).toBe("conn41: update shop.carts");
  expect(heldBy(one({ thread: thread({ blocker: { ...blocker, runs: null } }) }))).toBe("conn41");
  expect([heldBy(one()), heldBy(one({ thread: thread() }))]).toEqual(["", ""]);
});

test("operations are found by kind and by words, in whatever column those are", () => {
  const all = [
    one(),
    one({ class: "internal", client: null, command: "createIndexes", thread_name: "IndexBuild" }),
    one({ class: "monitoring", command: "serverStatus" }),
    one({ class: "replication", command: "getMore", waits: ["a lock"] }),
  ];
  const commands = (words: string, kind: string) => fitting(all, words, kind).map(({ command }) => command);
  expect(commands("", "")).toEqual(["find", "getMore"]);
  expect(commands("", "all").length).toBe(4);
  expect(commands("", "internal")).toEqual(["createIndexes"]);
  expect(commands("", "party")).toEqual([]);
  expect(commands("SHOP lock", "")).toEqual(["getMore"]);
  expect(commands("indexbuild", "all")).toEqual(["createIndexes"]);
  expect(commands("51234 city", "user")).toEqual(["find"]);
});

test("a bar grows with the age, and ages of all sizes can be told apart", () => {
  const ages = [1e6, 1e9, 60e9, 3600e9].map((ns) => ageShare(ns, 3600e9));
  expect(ages).toEqual([...ages].sort((a, b) => a - b));
  expect(ages[3]).toBe(1);
  expect(ages[1]! - ages[0]!).toBeGreaterThan(0.2);
  expect([ageShare(null, 5), ageShare(0, 0)]).toEqual([0, 0]);
});

test("an operation stays the same from one list to the next, and the next one of its client is another", () => {
  expect(keyOf(one({ running_ns: 9, waits: ["a lock"] }))).toBe(keyOf(one()));
  expect(keyOf(one({ started_ns: 6 }))).not.toBe(keyOf(one()));
  // A server says for how long, not since when.
  const said = { sources: ["status"], opid: "7" };
  expect(keyOf(one({ ...said, started_ns: 6 }))).toBe(keyOf(one({ ...said, started_ns: 8 })));
  expect(keyOf(one({ ...said, client: null }))).not.toBe(keyOf(one({ ...said, client: null, opid: "8" })));
});

test("a source that lacks something says what, and what helps", () => {
  const source = { name: "split", shows: "what threads do", is_working: false, lacks: "it is off: `split = true`" };
  expect(lacks({ sources: [source, { ...source, lacks: null }] })).toEqual([
    "split (what threads do): it is off: `split = true`.",
  ]);
});
