// States and events side by side on one clock. Runs of text pieces become one line.

import { eventKind } from "../fold.js";
import { h } from "../dom.js";
import { formatNumber, formatSeconds, t, word } from "../i18n/index.js";
import { bare, millis, seconds } from "../wire.js";

const TEXT = { answer_delta: "answer", thinking_delta: "thinking", tool_call_delta: "arguments", tool_call_progress: "output" };
const STATES = {
  run_started: () => t("run.running"), stage_changed: (e) => e.text || word("stage", bare(e.stage, "STAGE_")), run_paused: () => t("run.paused"),
  run_resumed: (e) => t("continued", { time: formatSeconds(seconds(e.paused)) }), run_completed: () => t("run.completed"), run_failed: () => t("run.failed"), run_cancelled: () => t("run.cancelled"),
};

/** `steps` are those of the view; what belongs to one carries its title. */
export function timeTable(events, steps = {}) {
  const rows = condensed(events);
  const start = rows.find((row) => row.at !== null)?.at ?? 0;
  return h(
    "div",
    { class: "table-frame", tabindex: "0", role: "region", "aria-label": t("timeline") },
    h(
      "table",
      { class: "time-table" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("time")), h("th", { scope: "col" }, t("stateColumn")), h("th", { scope: "col" }, t("eventColumn")))),
      h("tbody", {}, rows.map((row) => h(
        "tr",
        {},
        h("td", { class: "figures" }, row.at === null ? "" : `+${((row.at - start) / 1000).toFixed(2)}`),
        h("td", { class: row.state ? "is-state" : "" }, row.state),
        h("td", {}, row.kind ? h("code", {}, row.kind) : null, row.text ? h("span", { class: "gist" }, row.text) : null, row.step ? h("span", { class: "in-step", title: steps[row.step]?.title || row.step }, steps[row.step]?.title || row.step) : null),
      ))),
    ),
  );
}

function condensed(events) {
  const rows = [];
  for (const event of events) {
    const kind = eventKind(event) ?? "unknown";
    const body = event[kind] ?? {};
    const step = event.step_id && event.step_id !== body.step_id ? event.step_id : ""; // its own beginning names it already
    const last = rows.at(-1);
    if (TEXT[kind]) {
      const piece = (body.text ?? body.arguments_fragment ?? "").length;
      if (last?.kind === kind && last.step === step) Object.assign(last, { characters: last.characters + piece, pieces: last.pieces + 1 });
      else rows.push({ at: millis(event.at), kind, step, state: "", characters: piece, pieces: 1 });
      const row = rows.at(-1);
      row.text = `${formatNumber(row.characters)} / ${t("events", { n: row.pieces })}`;
    } else {
      const state = STATES[kind]?.(body) ?? "";
      rows.push({ at: millis(event.at), kind: state && kind === "stage_changed" ? "" : kind, step, state, text: gist(kind, body) });
    }
  }
  return rows;
}

function gist(kind, e) {
  switch (kind) {
    case "tool_call_proposed": return e.call?.name ?? "";
    case "tool_call_started": return e.name ?? "";
    case "tool_call_finished": return `${e.name ?? ""} · ${word("call", bare(e.status, "TOOL_STATUS_"))} · ${formatSeconds(seconds(e.duration))}`;
    case "approval_requested": return `${e.tool ?? ""} · ${e.reason ?? ""}`;
    case "approval_resolved": return `${word("state", bare(e.resolution, "RESOLUTION_"))} · ${e.decided_by ?? ""}`;
    case "evidence_added": return `[${e.evidence?.number ?? "?"}] ${e.evidence?.title ?? ""}`;
    case "artifact_created": return e.artifact?.name ?? "";
    case "model_call_finished": return `${e.purpose ?? ""} · ${e.model ?? ""} · ${formatSeconds(seconds(e.total))}`;
    case "notice": return e.text ?? "";
    case "route_decided": return e.choice ? t("routed", { choice: e.choice }) : t("notRouted");
    case "plan_made": return t("planned", { n: (e.steps ?? []).length });
    case "step_started": return e.title || e.step_id || "";
    case "step_finished": return `${word("call", e.failed ? "failed" : "completed")} · ${formatSeconds(seconds(e.duration))}`;
    case "run_failed": return `${e.reason ?? ""} · ${e.message ?? ""}`;
    default: return "";
  }
}
