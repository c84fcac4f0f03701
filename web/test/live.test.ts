import { expect, test } from "vitest";

import { applicationOf, errorWords, namespaceOf } from "../src/live/queries";

test("rows have names whatever is known of them", () => {
  expect(namespaceOf({ database: "shop", collection: "carts" })).toBe("shop.carts");
  expect(namespaceOf({ database: "admin", collection: null })).toBe("admin");
  expect(namespaceOf({ namespace: "shop.carts", database: "shop", collection: "carts" })).toBe("shop.carts");
  expect(applicationOf({ app: "etl", joined_late: false })).toBe("etl");
  expect(applicationOf({ app: null, joined_late: true })).toBe("unknown (connected before the capture)");
  expect(applicationOf({ app: null, joined_late: false })).toBe("without a name");
  expect(applicationOf({ app: null, other: true, joined_late: false })).toBe("all others");
});

test("error codes are counted", () => {
  expect(errorWords({ 11000: 2, 50: 1 })).toBe("50 (1 time), 11000 (2 times)");
  expect(errorWords(null)).toBe("");
});
