import assert from "node:assert/strict";
import { test } from "node:test";

import { lineDiff } from "../../../services/gateway/web/js/line-diff.js";

const shown = (before, after) => lineDiff(before, after).map(({ kind, text }) => ({ same: " ", removed: "-", added: "+" })[kind] + text);

test("lines that stay are kept around those that change", () => {
  assert.deepEqual(shown("a\nb\nc", "a\nx\nc"), [" a", "-b", "+x", " c"]);
});

test("insertions and removals alone", () => {
  assert.deepEqual(shown("a\nc", "a\nb\nc"), [" a", "+b", " c"]);
  assert.deepEqual(shown("a\nb\nc", "a\nc"), [" a", "-b", " c"]);
});

test("equal texts have no change", () => {
  assert.deepEqual(shown("a\nb", "a\nb"), [" a", " b"]);
});

test("very long texts count as replaced whole", () => {
  const long = Array.from({ length: 500 }, (_, i) => String(i)).join("\n");
  const lines = lineDiff(long, "short");
  assert.equal(lines.filter((line) => line.kind === "same").length, 0);
  assert.equal(lines.length, 501);
});
