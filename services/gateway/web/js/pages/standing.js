// Which runs of a conversation still stand. A question asked again or edited takes the place of a run and of all after it;
// the page writes the replaced run's id into the label below, because a list of runs does not tell otherwise.

import { bare } from "../wire.js";

export const REPLACES = "replaces";

/**
 * Joins a conversation's messages in force with its runs, oldest first: a completed run without a message in force was replaced
 * by whatever client. Returns `{ runId, question, whole, rating, attachments }`; `whole` says that the question is known in full.
 */
export function turnsOf(runs, messages, longest) {
  const asked = new Map();
  const attached = new Map();
  const rated = new Map();
  for (const { message, run_id: run, rating } of messages ?? []) {
    if (bare(message?.role, "ROLE_") === "user") {
      asked.set(run, textOf(message));
      attached.set(run, filesOf(message));
    } else if (bare(message?.role, "ROLE_") === "assistant") rated.set(run, bare(rating, "RATING_"));
  }
  return standing(runs)
    .filter((run) => messages === null || asked.has(run.run_id) || rated.has(run.run_id) || bare(run.state, "RUN_STATE_") !== "completed")
    .map((run) => {
      const listed = run.question ?? "";
      const rating = rated.get(run.run_id);
      return {
        runId: run.run_id, question: asked.get(run.run_id) ?? listed, whole: asked.has(run.run_id) || listed.length < longest,
        rating: rating === "good" || rating === "bad" ? rating : "", attachments: attached.get(run.run_id) ?? [],
      };
    });
}

function textOf(message) {
  return (message.parts ?? []).map((part) => part.text ?? "").filter(Boolean).join("\n\n");
}

function filesOf(message) {
  const media = (message.parts ?? []).map((part) => part.file ?? part.image).filter((item) => item?.artifact_id);
  return media.map((item) => ({ id: item.artifact_id, name: item.name ?? "" }));
}

/** Takes runs oldest first and leaves out those that were replaced. */
export function standing(runs) {
  const kept = [];
  for (const run of runs) {
    const replaced = run.labels?.[REPLACES];
    const index = replaced ? kept.findIndex((other) => other.run_id === replaced) : -1;
    if (index >= 0) kept.splice(index);
    kept.push(run);
  }
  return kept;
}
