import { describe, expect, it } from "vitest";

import { notesOf, outcome } from "../src/pages/comparison";
import { REMARKS } from "../src/pages/digest/advice";
import { pointsNote } from "../src/pages/digest/charts";
import { columnsOf } from "../src/pages/digest/columns";
import { coverageTitle, incomplete } from "../src/pages/digest/coverage";
import { caller, label } from "../src/pages/digest/row";
import { shown } from "../src/parts/columns";
import type { ComparisonDocument, DigestDocument, DigestRowJson } from "../src/report";

describe("a table of rows", () => {
  it.each(["shape", "order", "namespace", "app", "plan"])("by %s has no two columns of one name", (by) => {
    const names = columnsOf({ by, precision_ns: 1 } as DigestDocument).map((column) => column.name);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toContain(by);
    expect(names).toContain("examined");
    expect(names).not.toContain("docs");
  });

  it("names what has no name in words", () => {
    expect([caller("shop"), caller("", "PyMongo"), caller("")]).toEqual(["shop", "(PyMongo)", "(no name)"]);
    const row = (found: Partial<DigestRowJson>) =>
      label({ shape: null, namespace: null, app: null, plan: null, ...found } as DigestRowJson);
    expect([row({ namespace: "" }), row({ app: "" }), row({ plan: "" }), row({})]).toEqual([
      "(no name)",
      "(no name)",
      "(no plan)",
      "other",
    ]);
  });
});

describe("a remark", () => {
  it("says of which shape it is, what stands out and what to do", () => {
    const remark = {
      kind: "view",
      shape_id: "00000000000000ab",
      calls: 7,
      view_of: "shop.all",
      command: "find",
      namespace: "shop.orders",
      shape: "{filter: {city: ?string}}",
      time_share: 0.0751,
      words:
        "1000 examined for each returned; shop.orders is a view of shop.all\u202e, and indexes for it belong there",
    };
    expect(REMARKS.map((column) => shown(column, remark))).toEqual([
      "7.5%",
      "find shop.orders",
      "1000 examined for each returned; shop.orders is a view of shop.all\\u{202e}, and indexes for it belong there",
    ]);
  });
});

describe("the chart of single operations", () => {
  it("says why it has fewer than the head of the page", () => {
    const note = (calls: number, seen: number, shown: number, sources = 1) =>
      pointsNote(
        {
          points_seen: seen,
          source: "wire",
          totals: { calls, latency_ns: { count: seen } },
          sources: Array.from({ length: sources }),
        } as unknown as DigestDocument,
        shown,
      );
    expect(note(999, 999, 999)).toBe("All 999 operations.");
    expect(note(4199, 4168, 4168)).toBe(
      "All 4.17k operations with a latency. The other 31 of 4.20k have none: nothing answered them.",
    );
    expect(note(300000, 300000, 100000)).toBe("100k of 300k operations, chosen at random.");
    expect(note(4199, 20, 20, 2)).toBe("All 20 operations of one source.");
  });
});

describe("the coverage", () => {
  const report = (found: Partial<DigestDocument>) => ({ lost: {}, ...found }) as DigestDocument;
  const part = {
    way: "known in part",
    what: ["documents of an unknown form: 1", "messages that a snap length cut: 2"],
  };

  it("says that all was read only where nothing is missing or known in part", () => {
    expect(coverageTitle(report({}))).toBe("Coverage: all of it was read");
    expect(coverageTitle(report({ incomplete: [] }))).toBe("Coverage: all of it was read");
    expect(coverageTitle(report({ incomplete: [part] }))).toBe("Coverage: some is known in part");
    const unread = { way: "not read", what: ["frames that are no IP packets: 3 of 9 packets"] };
    expect(coverageTitle(report({ lost: { gaps: 1 }, incomplete: [unread, part] }))).toBe(
      "Coverage: not all was read, some is known in part",
    );
  });

  it("says what is known in part in words", () => {
    expect(incomplete(report({ incomplete: [part] }))).toEqual([
      "Known in part: documents of an unknown form: 1; messages that a snap length cut: 2",
    ]);
    expect(incomplete(report({}))).toEqual([]);
  });
});

describe("a comparison", () => {
  it("states what each side lacks", () => {
    const sides = [{ notes: [] }, { notes: ["has requests only", "was cut"] }];
    expect(notesOf({ sides } as unknown as ComparisonDocument)).toEqual(["B has requests only", "B was cut"]);
  });

  it("states how many rows could not be compared", () => {
    const report = {
      changed: 1,
      unchanged: 4,
      not_judged: 5,
      not_judged_in_one: 2,
      not_compared: 3,
    } as ComparisonDocument;
    expect(outcome(report)).toBe(
      "1 changed; 4 unchanged; 5 not judged (3 with too few calls, 2 in one side only and too rare to be new or gone); 3 not compared, as the other side does not have all of its rows",
    );
    expect(outcome({ ...report, not_judged: 0, not_judged_in_one: 0, not_compared: 0 })).toBe("1 changed; 4 unchanged");
  });
});
