// Follows many runs at once over connections that keep breaking; prints what happened as one line of JSON.
// node soak.mjs <base url> <runs> <expected text>

import { answerText, EMPTY_RUN, fold } from "../../../services/gateway/web/js/fold.js";
import { Api } from "../../../services/gateway/web/js/api.js";
import { RunStream } from "../../../services/gateway/web/js/run-stream.js";

const [base, runs, expected] = [process.argv[2], Number(process.argv[3]), process.argv[4]];
const LONGEST_PIECE = 6000; // bytes that a connection lives for, at most; every fourth one is left alone
let seed = 20_300_101;
let breaks = 0;

/** A small generator of its own, so that each soak breaks alike. */
function random() {
  seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
  return seed / 2_147_483_648;
}

async function brittleFetch(path, options) {
  const response = await fetch(base + path, options);
  if (!response.body || random() < 0.25) return response;
  let left = Math.floor(random() * LONGEST_PIECE);
  const cutter = new TransformStream({
    transform(piece, controller) {
      controller.enqueue(piece.slice(0, left));
      left -= piece.length;
      if (left > 0) return;
      breaks += 1;
      controller.error(new TypeError("network"));
    },
  });
  return { ok: response.ok, status: response.status, headers: response.headers, body: response.body.pipeThrough(cutter), json: () => response.json() };
}

async function one(index) {
  let view = EMPTY_RUN;
  let last = 0;
  let disorder = 0;
  const stream = new RunStream({
    api: new Api({ fetch: brittleFetch }),
    onEvent(event) {
      if (event.sequence <= last) disorder += 1;
      last = event.sequence;
      view = fold({ ...view, result: null }, event);
    },
    sleep: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds / 8)),
  });
  await stream.start({ request_id: `soak-${process.pid}-${index}`, input: "Count.", agent_id: "classic" });
  const streamed = answerText({ ...view, result: null });
  return { streamed: streamed === expected, final: view.result?.text === expected, disorder, phase: view.phase };
}

const results = await Promise.all(Array.from({ length: runs }, (_, index) => one(index)));
const count = (test) => results.filter(test).length;
console.log(JSON.stringify({
  runs, breaks, completed: count((r) => r.phase === "completed"), streamed: count((r) => r.streamed), final: count((r) => r.final), disorder: count((r) => r.disorder > 0),
}));
