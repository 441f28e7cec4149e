// One tool call in the timeline: what was asked, who allowed it, what it wrote, how it ended.

import { h } from "../dom.js";
import { formatBytes, formatSeconds, t, word } from "../i18n/index.js";
import { lineDiff } from "../line-diff.js";
import { highlight } from "./enhance.js";

const LONGEST_OUTPUT = 20_000; // characters kept on the screen, the end of the output
const GOOD = new Set(["completed"]);
const BUSY = new Set(["writing", "proposed", "running", "client"]);
const SET_ASIDE = new Set(["denied", "expired", "duplicate", "over_budget", "cancelled"]);

export function callRow(call, approval) {
  const asking = approval?.state === "pending" && BUSY.has(call.state);
  const tone = asking ? "asking" : GOOD.has(call.state) ? "done" : BUSY.has(call.state) ? "busy" : SET_ASIDE.has(call.state) ? "aside" : "failed";
  const head = h(
    "summary",
    {},
    h("span", { class: "row-title" }, h("code", {}, call.title || call.name), gist(call)),
    h("span", { class: "row-state" }, tone === "done" ? "" : word("call", asking ? "asking" : call.state)),
    h("span", { class: "row-time" }, formatSeconds(call.took)),
  );
  const open = call.state === "running" && call.output.length > 0;
  return h("li", { class: `row row-call ${tone}` }, h("details", { open }, head, ...callDetails(call, approval)));
}

/** The parts of a call that open: arguments, decision, output, result. */
export function callDetails(call, approval) {
  return [
    call.reason ? h("p", { class: "reason" }, call.reason) : null,
    ...argumentParts(call),
    approval ? decisionLine(approval) : null,
    approval ? editedPart(approval) : null,
    ...call.output.map((piece) => labelled(t(piece.stream === "stderr" ? "errors" : "output"), piece.text.slice(-LONGEST_OUTPUT), piece.stream)),
    call.preview ? labelled(t("result"), call.preview, "result") : null,
    call.truncated ? h("p", { class: "muted" }, t("truncated", { size: formatBytes(call.bytes) })) : null,
  ].filter(Boolean);
}

/** Who decided what, in words; null while nobody has. */
export function decisionLine(approval) {
  const who = approval.decidedBy?.startsWith("rule:") ? t("byRule") : approval.decidedBy || "—";
  const text = {
    approved: () => t("approvedBy", { who }), edited: () => t("editedBy", { who }), denied: () => t("deniedBy", { who }),
    expired: () => t("approvalExpired"), cancelled: () => t("approvalCancelled"), answered: () => t("approvalAnswered"),
  }[approval.state]?.();
  if (!text) return null;
  const waited = approval.waited ? ` ${t("afterWaiting", { time: formatSeconds(approval.waited) })}` : "";
  return h("p", { class: `decision decision-${approval.state}` }, text, waited, approval.comment ? h("q", {}, approval.comment) : null);
}

/** What a person changed of the arguments, line by line; null when nothing was. */
export function editedPart(approval) {
  if (!approval.edited || !approval.arguments) return null;
  const lines = lineDiff(readable(approval.arguments), readable(approval.edited)).map(({ kind, text }) =>
    kind === "same" ? h("span", {}, `  ${text}\n`) : h(kind === "added" ? "ins" : "del", {}, `${kind === "added" ? "+" : "−"} ${text}\n`),
  );
  return h("figure", { class: "detail detail-diff" }, h("figcaption", {}, t("changed")), h("pre", { tabindex: "0" }, lines));
}

/** Code as it is, everything else as JSON, in one text. */
function readable(value) {
  const { code, rest } = splitCode(value);
  return [code, rest === null ? "" : JSON.stringify(rest, null, 2)].filter(Boolean).join("\n");
}

/** Arguments as people read them: code as code, the rest as JSON. */
export function argumentParts(call) {
  if (call.malformed) return [labelled(t("arguments"), call.malformed, "plain")];
  if (call.arguments === undefined || call.arguments === null) return call.written ? [labelled(t("arguments"), call.written, "plain")] : [];
  const { code, rest } = splitCode(call.arguments);
  return [
    code ? labelled("Python", code, "python") : null,
    rest === null ? null : labelled(t("arguments"), JSON.stringify(rest, null, 2), "json"),
  ].filter(Boolean);
}

/** Separates a `code` argument from the others; `rest` is null when nothing else is there. */
export function splitCode(value) {
  if (typeof value !== "object" || value === null || typeof value.code !== "string") {
    return { code: "", rest: typeof value === "object" && value !== null && Object.keys(value).length === 0 ? null : value };
  }
  const { code, ...rest } = value;
  return { code, rest: Object.keys(rest).length === 0 ? null : rest };
}

function gist(call) {
  const value = call.arguments;
  const text = typeof value?.query === "string" ? value.query : call.reason;
  return text ? h("span", { class: "gist" }, text) : null;
}

function labelled(label, text, language) {
  const code = h("code", {}, text);
  if (language === "python" || language === "json") highlight(code, text, language);
  return h("figure", { class: `detail detail-${language}` }, h("figcaption", {}, label), h("pre", { tabindex: "0" }, code));
}
