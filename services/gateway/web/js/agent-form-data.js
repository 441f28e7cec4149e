// Agents between the gateway's form and that of the fields on the screen. Pure.

import { bare, seconds } from "./wire.js";

export const TYPES = ["agentic", "classic", "research", "workflow"];
export const POLICIES = ["default", "allow", "ask", "deny", "quorum"];
export const EXPOSURES = ["default", "prefetch", "agentic"];
const SET_BY_SERVICE = ["agent_id", "owner", "read_only", "updated_at"];

/** The word of an enum name; what says nothing is `default`. */
export function plain(name, prefix) {
  const value = bare(name, prefix);
  return value === "" || value === "unspecified" ? "default" : value;
}

/** What the form shows of an agent as the gateway has it; of nothing it is a new one. */
export function draftOf(agent = {}) {
  const type = plain(agent.type, "AGENT_TYPE_");
  return {
    ...Object.fromEntries(["name", "description", "model", "prompt", "prompt_name", "language", "workflow_yaml"].map((name) => [name, agent[name] ?? ""])),
    prompt_version: agent.prompt_version ?? 0,
    shared: Boolean(agent.shared),
    type: type === "default" ? "agentic" : type,
    sources: (agent.sources ?? []).map((each) => ({ source: each.source, exposure: plain(each.exposure, "EXPOSURE_") })),
    tools: (agent.tools ?? []).map((each) => ({
      tool: each.tool,
      policy: plain(each.policy, "TOOL_POLICY_"),
      when: each.when ?? "",
      quorum: each.quorum ?? 0,
      group: each.group ?? "",
      four_eyes: Boolean(each.four_eyes),
      deadline: seconds(each.deadline),
    })),
    budget: { ...agent.budget, wall_time: seconds(agent.budget?.wall_time) },
    schema: agent.output?.json_schema ? JSON.stringify(agent.output.json_schema, null, 2) : "",
    router: agent.router_json ? JSON.stringify(agent.router_json, null, 2) : "",
    rest: agent,
  };
}

/**
 * What is sent to keep a draft: `{ agent, violations }`, the latter when a field is no JSON. What the form does not show
 * stays as it was read, and so does the version.
 */
export function agentOf(draft) {
  const violations = [];
  const json = (text, field) => {
    if (text.trim() === "") return null;
    try {
      return JSON.parse(text);
    } catch (error) {
      violations.push({ field, description: error.message });
      return null;
    }
  };
  const agent = { ...draft.rest };
  for (const name of SET_BY_SERVICE) delete agent[name];
  for (const name of ["name", "description", "model", "language", "type", "shared"]) agent[name] = draft[name];
  agent.name = draft.name.trim();
  agent.prompt = draft.prompt_name ? "" : draft.prompt;
  agent.prompt_name = draft.prompt_name;
  agent.prompt_version = draft.prompt_name ? draft.prompt_version : 0;
  agent.workflow_yaml = draft.type === "workflow" ? draft.workflow_yaml : "";
  agent.sources = draft.sources.filter((each) => each.source !== "");
  agent.tools = draft.tools.filter((each) => each.tool !== "").map(({ deadline, ...each }) => (deadline === null || deadline === undefined ? each : { ...each, deadline }));
  agent.budget = Object.fromEntries(Object.entries(draft.budget).filter(([, value]) => value !== null && value !== undefined));
  agent.router_json = json(draft.router, "agent.router_json");
  const schema = json(draft.schema, "agent.output.json_schema");
  if (schema) agent.output = { json_schema: schema, name: draft.rest.output?.name ?? "" };
  else if (draft.rest.output?.json_mode) agent.output = draft.rest.output;
  else delete agent.output;
  return { agent, violations };
}

/** The field on the screen that a violation is about: `agent.tools[1].when` and `agent.tools.1.when` are one. */
export function fieldOf(violation) {
  const path = violation.field.replace(/^(agent|prompt)\.?/, "").replace(/\[(\d+)\]/g, ".$1");
  return path.startsWith("workflow_yaml") ? "workflow_yaml" : path;
}
