import assert from "node:assert/strict";
import { test } from "node:test";

import { agentOf, draftOf, fieldOf } from "../../../services/gateway/web/js/agent-form-data.js";

const KEPT = {
  agent_id: "agent-1",
  name: "finance",
  description: "",
  type: "AGENT_TYPE_CLASSIC",
  model: "m1",
  prompt: "You are {{ agent }}.",
  prompt_name: "",
  prompt_version: 0,
  sources: [{ source: "handbook", exposure: "EXPOSURE_AGENTIC" }],
  tools: [{ tool: "run_code", policy: "TOOL_POLICY_QUORUM", when: "", quorum: 2, group: "cfo", four_eyes: true, deadline: "90s" }],
  budget: { rounds: 3, wall_time: "60s", cost_micros: 5 },
  output: { name: "answer", json_schema: { type: "object" } },
  sampling: { temperature: 0.5, stop: [], reasoning_effort: "" },
  workflow_yaml: "",
  version: 4,
  read_only: false,
  router_json: { labels: { topic: ["Why?"] } },
  language: "de",
  owner: "ann",
  shared: true,
  updated_at: "2026-01-01T00:00:00Z",
};

test("an agent that is not changed is sent back as it was read", () => {
  const { agent, violations } = agentOf(draftOf(KEPT));
  assert.deepEqual(violations, []);
  const { agent_id, owner, read_only, updated_at, ...rest } = KEPT;
  assert.deepEqual(agent, {
    ...rest,
    type: "classic",
    sources: [{ source: "handbook", exposure: "agentic" }],
    tools: [{ ...KEPT.tools[0], policy: "quorum", deadline: 90 }],
    budget: { rounds: 3, wall_time: 60, cost_micros: 5 },
  });
});

test("a new agent has only what was written", () => {
  const draft = draftOf();
  draft.name = " mine ";
  draft.sources.push({ source: "", exposure: "default" });
  draft.tools.push({ tool: "", policy: "ask" });
  draft.budget.rounds = null;
  const { agent } = agentOf(draft);
  assert.deepEqual([agent.name, agent.type, agent.sources, agent.tools, agent.budget], ["mine", "agentic", [], [], {}]);
  assert.equal("output" in agent, false);
});

test("a kept prompt takes the place of its own, and a workflow goes with its type", () => {
  const draft = draftOf(KEPT);
  Object.assign(draft, { prompt_name: "polite", workflow_yaml: "nodes: {}" });
  const { agent } = agentOf(draft);
  assert.deepEqual([agent.prompt, agent.prompt_name, agent.workflow_yaml], ["", "polite", ""]);
  draft.type = "workflow";
  assert.equal(agentOf(draft).agent.workflow_yaml, "nodes: {}");
});

test("JSON that is none is told at its field before anything is sent", () => {
  const draft = draftOf(KEPT);
  Object.assign(draft, { router: "{", schema: "[" });
  assert.deepEqual(agentOf(draft).violations.map((each) => each.field), ["agent.router_json", "agent.output.json_schema"]);
});

test("a violation finds its field, however its path is written", () => {
  const paths = ["agent.tools[1].when", "agent.tools.1.when", "agent.name", "agent.workflow_yaml.nodes.x.next", "prompt.template"];
  assert.deepEqual(paths.map((field) => fieldOf({ field })), ["tools.1.when", "tools.1.when", "name", "workflow_yaml", "template"]);
});
