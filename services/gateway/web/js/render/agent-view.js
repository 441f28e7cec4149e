// An agent as it stands: what it may do, and what it is told.

import { draftOf } from "../agent-form-data.js";
import { h } from "../dom.js";
import { formatDay, formatNumber, t } from "../i18n/index.js";
import { millis } from "../wire.js";

/** Type, version and whose it is, as marks in a row. */
export function marks(agent) {
  const whose = agent.read_only ? t("operators") : t(agent.shared ? "ownerShared" : "ownerPrivate", { who: agent.owner });
  return h("p", { class: "marks" }, h("span", { class: "state" }, t(`type.${draftOf(agent).type}`)), h("span", { class: "muted" }, t("versionOf", { n: agent.version })), h("span", { class: "muted" }, whose));
}

export function agentView(agent) {
  const draft = draftOf(agent);
  const caps = Object.entries(draft.budget).filter(([, value]) => value !== null && value !== undefined);
  return h(
    "div",
    { class: "run-body" },
    h(
      "dl",
      { class: "facts" },
      fact(t("model"), agent.model || t("defaultModel")),
      fact(t("answerLanguage"), agent.language || t("usersLanguage")),
      caps.map(([name, value]) => fact(t(`cap.${name}`), formatNumber(value))),
      agent.updated_at ? fact(t("changedAt"), formatDay(millis(agent.updated_at))) : null,
    ),
    h("section", { class: "panel" }, h("h2", {}, t("readsFrom")), draft.sources.length ? list(draft.sources.map((each) => [each.source, t(`exposure.${each.exposure}`)])) : h("p", { class: "muted" }, t(draft.type === "classic" ? "noSourcesClassic" : "everySource"))),
    h("section", { class: "panel" }, h("h2", {}, t("tools")), draft.tools.length ? list(draft.tools.map(told)) : h("p", { class: "muted" }, t("everyTool"))),
    h("section", { class: "panel" }, h("h2", {}, t("prompt")), promptOf(agent)),
    block(t("workflow"), agent.workflow_yaml),
    block(t("outputSchema"), draft.schema),
    block(t("router"), draft.router),
  );
}

function promptOf(agent) {
  if (agent.prompt_name) return h("p", {}, t("usesPrompt", { name: agent.prompt_name, version: agent.prompt_version || t("newest") }));
  return agent.prompt ? h("pre", { class: "sheet" }, agent.prompt) : h("p", { class: "muted" }, t("typesOwnPrompt"));
}

function told(each) {
  const words = [t(`toolPolicy.${each.policy}`)];
  if (each.policy === "quorum") words.push(`${each.quorum} · ${each.group || t("everybodyEntitled")}`);
  if (each.four_eyes) words.push(t("fourEyes"));
  if (each.when) words.push(t("onlyWhen", { when: each.when }));
  return [each.tool, words.join(" · ")];
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function list(pairs) {
  return h("ul", { class: "rule-list" }, pairs.map(([name, text]) => h("li", {}, h("code", {}, name), h("span", { class: "muted" }, text))));
}

function block(title, text) {
  return text ? h("section", { class: "panel" }, h("h2", {}, title), h("pre", { class: "sheet" }, text)) : null;
}
