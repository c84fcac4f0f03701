import { expect, test } from "vitest";

import { read } from "../src/live/address";
import { matching, places } from "../src/live/palette";

const of = (search: string, text: string) => matching(places(read(search)), text);

test("places are found by all words, in any order and case", () => {
  expect(of("", "HEALTH").map(({ to }) => to.view)).toEqual(["status"]);
  expect(of("", "app queries").map(({ to }) => [to.view, to.by])).toEqual([["queries", "app"]]);
  expect(of("", "no such place")).toEqual([]);
  expect(of("", "").length).toBe(places(read("")).length);
});

test("a place keeps the range, and a range keeps the place", () => {
  const address = "?view=events&from=2026-05-01T10:00:00Z&to=2026-05-01T11:00:00Z&filter=drop&kind=index_drop&zone=UTC";
  const [waits] = of(address, "waits");
  expect(waits!.to).toMatchObject({ view: "waits", from: "2026-05-01T10:00:00Z", zone: "UTC", filter: "", kind: "" });
  const [day] = of(address, "last 24h");
  expect(day!.to).toMatchObject({ view: "events", from: "-24h", to: "", filter: "drop", kind: "index_drop" });
});

test("what has nothing to compare offers no comparison", () => {
  expect(of("?view=events", "compare")).toEqual([]);
  expect(of("?view=timeline", "compare yesterday").map(({ to }) => to.against)).toEqual(["yesterday"]);
});
