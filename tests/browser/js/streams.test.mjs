import assert from "node:assert/strict";
import { test } from "node:test";

import { RunStream } from "../../../services/gateway/web/js/run-stream.js";
import { Parser } from "../../../services/gateway/web/js/sse.js";

const EVENTS = [1, 4, 5, 9, 10].map((sequence, index, all) => ({ run_id: "r1", sequence, [index === all.length - 1 ? "run_completed" : "answer_delta"]: { text: String(sequence) } }));
const frame = (event, end = "\n") => `id: ${event.sequence}${end}event: x${end}data: ${JSON.stringify(event)}${end}${end}`;
const parse = (pieces) => { const parser = new Parser(); return pieces.flatMap((piece) => [...parser.push(piece)]); };

test("messages parse the same wherever they are cut, with any line end", () => {
  for (const end of ["\n", "\r\n", "\r"]) {
    const whole = `${EVENTS.map((event) => frame(event, end)).join("")}: keep-alive${end}${end}data: a${end}data: b${end}${end}`;
    const expected = parse([whole, "\n"]).filter((message) => message.data !== undefined);
    assert.equal(expected.length, EVENTS.length + 1);
    assert.equal(expected.at(-1).data, "a\nb");
    for (let cut = 1; cut < whole.length; cut += 1) {
      assert.deepEqual(parse([whole.slice(0, cut), whole.slice(cut), "\n"]).filter((message) => message.data !== undefined), expected, `${JSON.stringify(end)} ${cut}`);
    }
  }
});

test("a message without its blank line is not delivered", () => {
  assert.deepEqual(parse(['id: 1\ndata: {"a":1}\n']), []);
});

/** An API whose connections each give some characters of the rest of the journal and then break. */
function flaky(cuts, { fail = [], breaks = (attempt) => attempt % 2 } = {}) {
  const calls = [];
  const open = (after) => {
    const attempt = calls.length;
    calls.push(after);
    if (fail[attempt]) throw Object.assign(new Error("refused"), { status: fail[attempt] });
    const text = EVENTS.filter((event) => event.sequence > after).map((event) => frame(event)).join("");
    const cut = cuts[attempt] ?? text.length;
    let sent = false;
    const body = new ReadableStream({
      pull(controller) {
        if (!sent) controller.enqueue(new TextEncoder().encode(text.slice(0, cut)));
        else if (cut < text.length && breaks(attempt)) setTimeout(() => controller.error(new TypeError("network"))); // what was sent is read first
        else controller.close();
        sent = true;
      },
    });
    return { body };
  };
  return { calls, startRun: async () => open(0), watchRun: async (_run, after) => open(after) };
}

async function follow(api) {
  const seen = [];
  const states = [];
  const stream = new RunStream({ api, onEvent: (event) => seen.push(event.sequence), onConnection: (state) => states.push(state), sleep: async () => {} });
  await stream.start({ request_id: "q" });
  return { seen, states };
}

test("whatever breaks, each event comes once and in order", async () => {
  const length = EVENTS.map((event) => frame(event)).join("").length;
  for (let first = 0; first < length; first += 7) {
    for (const second of [0, 30, 95]) {
      const { seen } = await follow(flaky([first, second]));
      assert.deepEqual(seen, [1, 4, 5, 9, 10], `${first} ${second}`);
    }
  }
});

test("it re-attaches after the last event it has seen", async () => {
  const api = flaky([frame(EVENTS[0]).length + frame(EVENTS[1]).length + 5]);
  const { states } = await follow(api);
  assert.deepEqual(api.calls, [0, 4]);
  assert.deepEqual(states, ["live"]);
});

test("a broken line is told, one that ends in order after news is not, one without news is", async () => {
  const cut = frame(EVENTS[0]).length + 5;
  assert.deepEqual((await follow(flaky([cut], { breaks: () => true }))).states, ["live", "lost", "live"]);
  assert.deepEqual((await follow(flaky([cut], { breaks: () => false }))).states, ["live"]);
  assert.deepEqual((await follow(flaky([cut, 0], { breaks: () => false }))).states, ["live", "lost", "live"]);
});

test("overload is tried again, a refusal is not", async () => {
  assert.deepEqual((await follow(flaky([], { fail: [503, 429] }))).seen, [1, 4, 5, 9, 10]);
  await assert.rejects(follow(flaky([], { fail: [403] })), /refused/);
});

test("leaving ends the waiting without an error", async () => {
  const api = { startRun: async () => ({ body: new ReadableStream({ start: (controller) => controller.close() }) }) };
  const stream = new RunStream({ api, onEvent: () => {}, sleep: async () => stream.leave() });
  await stream.start({});
});

test("silence longer than the limit breaks the connection and opens another", async () => {
  let opened = 0;
  const hang = (signal) => new ReadableStream({ start: (controller) => signal.addEventListener("abort", () => controller.error(new Error("aborted"))) });
  const api = { startRun: async (_body, signal) => { opened += 1; return opened === 1 ? { body: hang(signal) } : flaky([]).startRun(); } };
  const seen = [];
  await new RunStream({ api, onEvent: (event) => seen.push(event.sequence), sleep: async () => {}, silence: 20 }).start({});
  assert.equal(opened, 2);
  assert.deepEqual(seen, [1, 4, 5, 9, 10]);
});

test("events that are no longer kept are skipped, to the terminal one", async () => {
  const watched = [];
  const api = {
    watchRun: async (_run, after) => {
      watched.push(after);
      if (after < 8) throw Object.assign(new Error("gone"), { status: 410, reason: "EVENTS_PRUNED", metadata: { oldest: "9" } });
      return { body: new Response(EVENTS.filter((event) => event.sequence > after).map((event) => frame(event)).join("")).body };
    },
  };
  const seen = [];
  await new RunStream({ api, onEvent: (event) => seen.push(event.sequence), sleep: async () => {} }).attach("r1");
  assert.deepEqual(watched, [0, 8]);
  assert.deepEqual(seen, [9, 10]);
});
