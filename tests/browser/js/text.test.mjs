import assert from "node:assert/strict";
import { test } from "node:test";

import MarkdownIt from "../../../services/gateway/web/vendor/markdown-it.js";
import en from "../../../services/gateway/web/js/i18n/en.js";
import zh from "../../../services/gateway/web/js/i18n/zh.js";
import { citations, expand } from "../../../services/gateway/web/js/render/cite-rule.js";
import { formulas } from "../../../services/gateway/web/js/render/math-rule.js";
import { bare, embedded, millis, seconds } from "../../../services/gateway/web/js/wire.js";

const markdown = new MarkdownIt({ html: false }).use(citations).use(formulas);
const cited = (text) => [...markdown.render(text).matchAll(/data-cite="(\d+)"/g)].map((match) => Number(match[1]));
const formula = (text) => [...markdown.render(text).matchAll(/data-math="([^"]*)"/g)].map((match) => match[1]);

test("citations are found in every form that models write", () => {
  assert.deepEqual(cited("a [1] b [2][3], c [4, 5] d [6-8]. e【9】f【10、11】"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
});

test("links, code, years and long ranges are no citations", () => {
  assert.deepEqual(cited("[1](https://a.example) `[2]` [2026] [1-99] [x] \\[3]\n\n```\n[4]\n```"), []);
});

test("a list expands, an impossible one does not", () => {
  assert.deepEqual(expand("1, 3-5"), [1, 3, 4, 5]);
  assert.equal(expand("5-3"), null);
  assert.equal(expand("0"), null);
});

test("formulas are found, prices are not", () => {
  assert.deepEqual(formula("so $x^2$ and \\(y\\) hold"), ["x^2", "y"]);
  assert.deepEqual(formula("$$\na = b\n$$"), ["a = b"]);
  assert.deepEqual(formula("\\[c = d\\]"), ["c = d"]);
  assert.deepEqual(formula("it costs $5 and then $6, or US$7 and $8"), []);
  assert.deepEqual(formula("`$x$` and \\$5 and $y"), []);
});

test("a block formula that is not closed yet stays text", () => {
  assert.deepEqual(formula("$$\na = b"), []);
});

test("both languages have the same words", () => {
  assert.deepEqual(Object.keys(zh).sort(), Object.keys(en).sort());
  const holes = (words) => JSON.stringify(words).match(/\{\w+\}/g)?.sort() ?? [];
  for (const key of Object.keys(en)) assert.deepEqual([...new Set(holes(zh[key]))], [...new Set(holes(en[key]))], key);
});

test("wire values are read as they are written, and nothing breaks on what is missing", () => {
  assert.deepEqual([seconds("1.250s"), seconds(2), seconds(""), seconds(undefined)], [1.25, 2, null, null]);
  assert.equal(millis("2030-01-01T00:00:00Z"), Date.UTC(2030, 0, 1));
  assert.equal(millis("never"), null);
  assert.deepEqual([bare("STAGE_THINKING", "STAGE_"), bare(7, "STAGE_")], ["thinking", ""]);
  assert.deepEqual([embedded('{"a":1}'), embedded({ a: 1 }), embedded(""), embedded(null)], [{ a: 1 }, { a: 1 }, undefined, undefined]);
});

test("the sentence that supports a claim is found, in both languages, and nothing is marked without one", async () => {
  const { bestMatch, sentences } = await import("../../../services/gateway/web/js/render/support.js");
  const english = sentences("Trains under five hours are booked in second class. The mileage rate is EUR 0.38 per kilometre for cars. Fines are never paid.");
  assert.equal(bestMatch(english, "Driving your own car is paid at EUR 0.38 per kilometre, the mileage rate for cars"), 1);
  const chinese = sentences("高铁乘坐二等座。自驾车公务出行按每公里 1.20 元补贴。国内航班一律乘坐经济舱。");
  assert.equal(bestMatch(chinese, "自驾车每公里补贴 1.20 元"), 1);
  assert.equal(bestMatch(english, "Bananas ripen quickly on warm windowsills"), -1);
  assert.equal(english.join(""), "Trains under five hours are booked in second class. The mileage rate is EUR 0.38 per kilometre for cars. Fines are never paid.");
});

test("tables that were written as lines become tables again, prose does not", async () => {
  const { restoreTables } = await import("../../../services/gateway/web/js/render/tables.js");
  assert.equal(
    restoreTables("Before.\nCity: London; Rate: 72\nCity: Zurich; Rate: 86\nAfter: one; two."),
    "Before.\n\n| City | Rate |\n| --- | --- |\n| London | 72 |\n| Zurich | 86 |\n\nAfter: one; two.",
  );
  assert.equal(restoreTables("Idle; A: 1; B: 2\nLongest; A: 3; B: 4").trim().split("\n")[0], "|  | A | B |");
  for (const text of ["Only: one; row: here", "We stop; then we go on.\nWe rest; then we eat.", "a | b; c: d\na | b; c: d"]) assert.equal(restoreTables(text), text);
});

test("runs that were replaced do not stand, nor do those after them", async () => {
  const { standing } = await import("../../../services/gateway/web/js/pages/standing.js");
  const run = (run_id, replaces) => ({ run_id, labels: replaces ? { replaces } : {} });
  const ids = (...runs) => standing(runs).map((item) => item.run_id).join("");
  assert.equal(ids(run("a"), run("b"), run("c", "a"), run("d")), "cd");
  assert.equal(ids(run("a"), run("b"), run("c", "b"), run("d", "c")), "ad");
  assert.equal(ids(run("a"), run("b", "gone"), { run_id: "c" }), "abc");
});

test("ids are made with and without randomUUID", async () => {
  const { newId } = await import("../../../services/gateway/web/js/ids.js");
  assert.notEqual(newId(), newId());
  assert.match(newId({ getRandomValues: (bytes) => bytes.fill(7) }), /^(07){16}$/);
});

test("usage sums by day and by field, empty days included", async () => {
  const { by, byDay, total } = await import("../../../services/gateway/web/js/usage-sums.js");
  const now = new Date(2030, 5, 15, 18).getTime();
  const run = (day, model, input, output) => ({ created_at: new Date(2030, 5, day, 9).toISOString(), model, usage: { input_tokens: input, output_tokens: String(output), cost_micros: 500_000 } });
  const runs = [run(15, "a", 10, 5), run(15, "b", 1, 1), run(13, "a", 20, 0), run(1, "a", 999, 9), { created_at: new Date(2030, 5, 14, 1).toISOString(), model: "" }];
  assert.deepEqual(byDay(runs, 3, now).map((day) => [new Date(day.day).getDate(), day.input, day.output, day.runs]), [[13, 20, 0, 1], [14, 0, 0, 1], [15, 11, 6, 2]]);
  assert.deepEqual(by(runs.slice(0, 3), "model").map((group) => [group.name, group.input + group.output]), [["a", 35], ["b", 2]]);
  assert.equal(total(runs).cost, 2);
});

test("messages in force tell which completed runs stand, their whole question and their rating", async () => {
  const { turnsOf } = await import("../../../services/gateway/web/js/pages/standing.js");
  const runs = [["a", "COMPLETED"], ["b", "COMPLETED"], ["c", "FAILED"], ["d", "RUNNING"]].map(([run_id, state]) => ({ run_id, state: `RUN_STATE_${state}`, question: "x".repeat(200) }));
  const message = (run_id, role, text, rating) => ({ run_id, rating, message: { role: `ROLE_${role}`, parts: [{ text }] } });
  const turns = turnsOf(runs, [message("b", "USER", "whole question"), message("b", "ASSISTANT", "answer", "RATING_BAD")], 200);
  assert.deepEqual(turns.map((turn) => [turn.runId, turn.whole, turn.rating]), [["b", true, "bad"], ["c", false, ""], ["d", false, ""]]);
  assert.equal(turns[0].question, "whole question");
  assert.deepEqual(turnsOf(runs, null, 200).map((turn) => turn.runId), ["a", "b", "c", "d"]);
});

test("a day of the usage service is that day here", async () => {
  const { asRuns, byDay, total } = await import("../../../services/gateway/web/js/usage-sums.js");
  const rows = asRuns([{ day: "2030-06-15T00:00:00Z", user: "ada", model: "m", runs: "3", input_tokens: 5, output_tokens: 1, cost_micros: 0 }]);
  assert.equal(byDay(rows, 1, new Date(2030, 5, 15, 20).getTime())[0].input, 5);
  assert.equal(total(rows).runs, 3);
});
