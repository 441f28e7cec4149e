// Model calls on one time axis: waiting for a slot, waiting for the first token, generating.

import { h } from "../dom.js";
import { formatNumber, formatSeconds, t } from "../i18n/index.js";

export function waterfall(view) {
  const calls = view.modelCalls.map(place).filter((call) => call.from !== null);
  if (calls.length === 0) return h("p", { class: "muted" }, t("noModelCalls"));
  const start = Math.min(view.startedAt ?? Infinity, ...calls.map((call) => call.from));
  const end = Math.max(...calls.map((call) => call.to), view.endedAt ?? 0);
  const span = Math.max(1, end - start);
  return h(
    "div",
    { class: "waterfall" },
    h("p", { class: "legend" }, ["queue", "firstToken", "generation"].map((name) => h("span", { class: `key key-${name}` }, t(name)))),
    h("ol", {}, calls.map((call) => row(call, view.steps[call.stepId], start, span))),
    h("p", { class: "axis figures", "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((part) => h("span", {}, formatSeconds((span * part) / 1000)))),
  );
}

/** Milliseconds of each boundary of a call. The clock of a call starts after its queueing. */
function place(call) {
  const begin = call.startedAt ?? (call.endedAt !== null ? call.endedAt - (call.total ?? 0) * 1000 : null);
  if (begin === null) return { ...call, from: null };
  const first = begin + (call.firstToken ?? call.total ?? 0) * 1000;
  return { ...call, from: begin - (call.queued ?? 0) * 1000, begin, first, to: Math.max(first, begin + (call.total ?? 0) * 1000) };
}

function row(call, step, start, span) {
  const share = (from, to) => [((from - start) / span) * 100, Math.max(0.15, ((to - from) / span) * 100)];
  const segments = [["queue", call.from, call.begin], ["firstToken", call.begin, call.first], ["generation", call.first, call.to]];
  const track = h("span", { class: "track", "aria-hidden": "true" });
  for (const [name, from, to] of segments) {
    if (to - from <= 0) continue;
    const piece = h("span", { class: `segment key-${name}` });
    const [left, width] = share(from, to);
    piece.style.left = `${left}%`;
    piece.style.width = `${width}%`;
    track.append(piece);
  }
  return h(
    "li",
    { class: call.error ? "bad" : "" },
    h("span", { class: "call-name" }, h("b", {}, call.purpose || "answer"), step?.title ? h("span", { class: "call-step", title: step.title }, step.title) : null, h("span", { class: "muted" }, call.fallbackFrom ? `${call.fallbackFrom} → ${call.model}` : call.model)),
    track,
    h("span", { class: "call-figures figures" }, figures(call).map((text) => h("span", {}, text))),
  );
}

function figures(call) {
  return [
    call.queued > 0.001 ? `${t("queue")} ${formatSeconds(call.queued)}` : "",
    call.firstToken !== null ? `${t("firstToken")} ${formatSeconds(call.firstToken)}` : "",
    `${t("total")} ${formatSeconds(call.total ?? 0)}`,
    call.attempts > 1 ? t("attempts", { n: call.attempts }) : "",
    t("inTokens", { n: formatNumber(call.input) }), t("outTokens", { n: formatNumber(call.output) }),
    call.cached > 0 ? t("cachedTokens", { n: formatNumber(call.cached) }) : "",
    call.error || call.finish,
  ].filter(Boolean);
}
