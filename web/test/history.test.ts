import { h } from "preact";
import { describe, expect, it } from "vitest";

import { figures } from "../src/pages/history";
import { ChangesView, cost, costWithin, gapSummary, gapWords, InShort, more } from "../src/parts/changes";
import { charts, laneName, withoutLanes, yName } from "../src/parts/lanes";
import { utc } from "../src/parts/time";
import type { About, ChangeJson, ChangesReport, LaneJson, MomentJson } from "../src/report";
import { text } from "./text";

const SECOND = 1e9;
/** 2026-11-21 21:24:00. */
const BEGIN = 1_795_296_240e9;

const lane = (group: string, id: string, unit: string, found: Partial<LaneJson> = {}): LaneJson => ({
  group,
  id,
  title: id,
  unit,
  server: null,
  verdict: null,
  limit: null,
  values: [1, null, 3],
  ...found,
});

const about = (seconds: number): About => ({
  tool: "mongosonar",
  version: "1",
  host: null,
  sources: ["/var/lib/mongosonar"],
  start_ns: BEGIN,
  end_ns: BEGIN + seconds * SECOND,
});

const change = (kind: string, sentence: string, found: Partial<ChangeJson> = {}): ChangeJson => ({
  kind,
  server: "27017",
  since_ns: BEGIN + 2 * SECOND,
  from_ns: BEGIN,
  until_ns: BEGIN + 20 * SECOND,
  cost_ns: 0,
  sentence,
  evidence: [],
  command: [],
  figures: [],
  effects: [],
  ...found,
});

const moment = (changes: ChangeJson[], context: ChangeJson[] = []): MomentJson => ({
  start_ns: BEGIN,
  end_ns: BEGIN + 20 * SECOND,
  changes,
  context,
  left_out: 0,
  measured_ns: 20 * SECOND,
});

const report = (found: Partial<ChangesReport>, seconds = 600): ChangesReport => ({
  schema: 1,
  kind: "what-changed",
  about: about(seconds),
  zone: { name: "UTC", utc_offsets_s: [0, 0] },
  compared_with: null,
  usual: null,
  summary: "2 changes; the largest: index user_1 was dropped on shop.carts (1.63s more waiting)",
  moments: [],
  gaps: [],
  lost: {},
  notes: [],
  ...found,
});

const said = (found: Partial<ChangesReport>, seconds?: number): string[] =>
  text(h(ChangesView, { report: report(found, seconds), clock: utc() })).split("\n");

describe("what changed", () => {
  it("costs time in the words of the text report", () => {
    expect([cost(1.2e9), cost(-34.3e9)]).toEqual(["1.20s more waiting", "34.3s less waiting"]);
    // 700 clients wait for 20 seconds.
    const within = (ns: number, seconds: number) => costWithin(ns, seconds * SECOND);
    expect(within(14_640e9, 20)).toBe("4h04m more waiting, by about 732 operations at a time");
    expect(within(26e9, 30)).toBe("26.0s more waiting");
    expect(within(-1e15, 1)).toBe(cost(-1e15));
  });

  it("begins with the answer in one sentence, and says what was compared", () => {
    const before = { start_ns: BEGIN - 86_400e9, end_ns: BEGIN - 86_340e9 };
    expect(said({}).slice(0, 2)).toEqual([
      "2 changes; the largest: index user_1 was dropped on shop.carts (1.63s more waiting)",
      "Each moment is compared with the time before it.",
    ]);
    expect(said({ compared_with: before })[1]).toBe("Compared with 2026-11-20 21:24:00 to 2026-11-20 21:25:00.");
    const usual = { start_ns: BEGIN - 87_000e9, end_ns: before.end_ns };
    expect(said({ compared_with: before, usual })[1]).toBe(
      "Compared with 2026-11-20 21:24:00 to 2026-11-20 21:25:00; the time from 2026-11-20 21:14:00 on shows what is usual.",
    );
    // Nothing else says it a second time.
    const nothing = said({ summary: "Nothing changed beyond chance." });
    expect(nothing.filter((line) => line.startsWith("Nothing"))).toEqual(["Nothing changed beyond chance."]);
  });

  it("shows changes of all kinds with their figures, their effects and the command that shows more", () => {
    const server = change(
      "server",
      "the server as a whole: queries rose from 8.60/s to 265/s, with 40 new shapes of queries",
      {
        evidence: ["queries between 7.10/s and 9.90/s before", "by shop-api"],
        command: ["queries", "--from", "2026-11-21T21:24:02Z", "--to", "2026-11-21T21:24:20Z"],
      },
    );
    const ended = change("application", "the application etl has ended", {
      evidence: ["165 operations before, which took 590ms; none after"],
      cost_ns: -590e6,
      effects: [change("series", "processors busy fell from 60 % to 5 %"), change("series", "load fell from 5 to 0.1")],
    });
    const again = change("shape", "find shop.carts {user: ?string} is new again: it had not run for 2d04h");
    const slower = change("shape", "find shop.carts {user: ?string} became 118 times slower", {
      evidence: ["mean latency 1.00ms before, 118ms after"],
      cost_ns: 14_640e9,
      effects: [
        change("shape", "insert shop.carts {} stalled: 2 operations took 7.67s in total", { command: ["queries"] }),
      ],
    });
    expect(said({ moments: [moment([server, ended, again, slower])] }).slice(2)).toEqual([
      "Between 21:24:00 and 21:24:20",
      "21:24:02 the server as a whole: queries rose from 8.60/s to 265/s, with 40 new shapes of queries",
      "queries between 7.10/s and 9.90/s before",
      "by shop-api",
      "More: mongosonar queries --from 2026-11-21T21:24:02Z --to 2026-11-21T21:24:20Z",
      "21:24:02 the application etl has ended (590ms less waiting)",
      "165 operations before, which took 590ms; none after",
      "→ with it: processors busy fell from 60 % to 5 %; load fell from 5 to 0.1",
      "21:24:02 find shop.carts {user: ?string} is new again: it had not run for 2d04h",
      "21:24:02 find shop.carts {user: ?string} became 118 times slower (4h04m more waiting, by about 732 operations at a time)",
      "mean latency 1.00ms before, 118ms after",
      "→ 21:24:02 insert shop.carts {} stalled: 2 operations took 7.67s in total",
    ]);
  });

  it("names servers if there are several, of changes and of what was measured beside them", () => {
    const [one, other] = ["27017", "27018"].map((server) => change("series", "cache used rose", { server }));
    const lines = said({ moments: [moment([one!], [one!, other!])] });
    expect(lines).toContain("21:24:02 27017: cache used rose");
    expect(lines.slice(-3)).toEqual([
      "The machine and the server at the same time:",
      "27017: cache used rose",
      "27018: cache used rose",
    ]);
    expect(said({ moments: [moment([one!], [one!])] }).at(-1)).toBe("cache used rose");
  });

  it("says in short for what clients waited most; an application that is new adds its own operations", () => {
    const changes = [
      change("shape", "find shop.carts {} became slower", { cost_ns: 2e9 }),
      change("application", "the application etl is new", { cost_ns: 9e9 }),
      change("event", "an index was dropped", { cost_ns: 5e9 }),
      change("shape", "find shop.people {} became faster", { cost_ns: -3e9 }),
    ];
    const short = (changes: ChangeJson[]) =>
      text(h(InShort, { report: report({ moments: [moment(changes)] }), clock: utc() })).split("\n");
    const { summary } = report({});
    expect(short(changes)).toEqual([
      summary,
      "21:24:02 an index was dropped (5.00s more waiting)",
      "21:24:02 find shop.carts {} became slower (2.00s more waiting)",
    ]);
    // The summary names it already.
    expect(short(changes.slice(0, 2))).toEqual([summary]);
  });

  it("says the day of times in a span of several days", () => {
    const one = change("event", "the log was rotated");
    expect(said({ moments: [moment([one])] })).toContain("Between 21:24:00 and 21:24:20");
    expect(said({ moments: [moment([one])] }, 86_400)).toContain("Between 2026-11-21 21:24:00 and 2026-11-21 21:24:20");
  });

  it("has command lines that a shell reads as they are meant", () => {
    const one = change("shape", "", { command: ["queries", "--filter", "shop.it's new"] });
    expect(more(one, { ...about(1), sources: ["/srv/a b"] })).toBe(
      "mongosonar queries --filter 'shop.it'\\''s new' --store '/srv/a b'",
    );
    expect(more(change("event", ""), about(1))).toBe("");
  });

  it("says what was observed, and of what", () => {
    const span = { start_ns: 1_700_000_000e9, end_ns: 1_700_000_060e9 };
    const gaps = [
      { what: "agent", subject: null, ...span, observed: 0 },
      { what: "agent", subject: null, ...span, observed: 0.13 },
      { what: "log", subject: "logs were", ...span, observed: 0 },
      { what: "queries", subject: "queries were", ...span, observed: 0.81 },
    ];
    const when = "2023-11-14 22:13:20 to 2023-11-14 22:14:20";
    expect(gapWords(gaps, utc())).toEqual([
      `${when}: nothing was observed.`,
      `${when}: only 7.80s of these 1m00s were observed.`,
      `${when}: logs were not observed.`,
      `${when}: queries were observed for only 48.6s of these 1m00s.`,
    ]);
    expect(gapSummary(gaps, utc())).toEqual([
      "Not observed, in 4 gaps: everything for 1m52s, logs for 1m00s, queries for 11.4s.",
    ]);
    expect(gapSummary(gaps.slice(2, 3), utc())).toEqual([`${when}: logs were not observed.`]);
    expect(gapSummary([], utc())).toEqual([]);
  });

  it("has the changes before the gaps, which one sentence sums up", () => {
    const gap = (at: number) => ({
      what: "log",
      subject: "logs were",
      start_ns: BEGIN + at * SECOND,
      end_ns: BEGIN + (at + 10) * SECOND,
      observed: 0.5,
    });
    const gaps = Array.from({ length: 11 }, (_, at) => gap(at * 20));
    const page = text(
      h(ChangesView, {
        report: report({ gaps, moments: [moment([change("event", "the server stalled")])] }),
        clock: utc(),
      }),
    );
    const places = ["Not observed, in 11 gaps", "the server stalled", "logs were observed"].map((one) =>
      page.indexOf(one),
    );
    expect(places.every((place) => place >= 0)).toBe(true);
    expect(places).toEqual([...places].sort((a, b) => a - b));
  });
});

describe("a timeline", () => {
  it("draws lanes of one group and unit in one chart, whose title is in words", () => {
    const lanes = [
      lane("machine", "cpu", "percent"),
      lane("queries", "queries", "per_second"),
      lane("machine", "disk", "percent"),
      lane("queries", "p99 latency", "milliseconds", { server: 27017 }),
      lane("queries", "p99 latency", "milliseconds", { server: 27018 }),
      lane("machine", "memory", "percent"),
      lane("queries", "failed operations", "per_second"),
    ];
    expect(charts(lanes).map(([title, lanes]) => [title, lanes.map(({ id }) => id)])).toEqual([
      ["Machine, in per cent", ["cpu", "disk", "memory"]],
      ["Queries and failed operations", ["queries", "failed operations"]],
      ["P99 latency", ["p99 latency", "p99 latency"]],
    ]);
  });

  it("has a line for the p99 latency of each server, and states the limit that a figure is over", () => {
    const p99 = (server: number | null) => laneName(lane("queries", "p99 latency", "milliseconds", { server }));
    expect([p99(27017), p99(27018), p99(null)]).toEqual(["27017 p99 latency", "27018 p99 latency", "p99 latency"]);
    const contained = { server: 27017, address: "172.17.0.3:27017" };
    expect(laneName(lane("queries", "p99 latency", "milliseconds", contained))).toBe("172.17.0.3:27017 p99 latency");
    const dirty = lane("internals", "cache dirty", "percent", { server: 27017, verdict: "amber", limit: 5.5 });
    expect(laneName(dirty)).toBe("27017 cache dirty (amber from 5.5%)");
  });

  it("has an axis that is called after its only figure, else after its unit", () => {
    const p99 = [27017, 27018].map((server) => lane("queries", "p99 latency", "milliseconds", { server }));
    expect(yName(p99)).toBe("p99 latency");
    const shares = ["cpu", "disk"].map((id) => lane("machine", id, "percent"));
    expect(yName(shares)).toBe("per cent");
  });

  it("says why a group has no chart", () => {
    const lanes = [lane("queries", "calls", "per_second")];
    expect(withoutLanes({ lanes, internals_judged: 12 })).toEqual([
      "Internals of the server: no judged figure is over its limit.",
      "Machine: nothing observed.",
    ]);
    expect(withoutLanes({ lanes, internals_judged: 0 })).toContain("Internals of the server: nothing observed.");
  });

  it("names the columns of figures as the text report does", () => {
    expect(figures.map(({ name }) => name)).toEqual(["figure", "server", "verdict", "mean", "min", "max"]);
  });
});
