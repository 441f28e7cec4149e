// What the timeline shows, from a view: the entries with all that their rows depend on. Pure.

import { answerText } from "../fold.js";

/** Items in order; what happened within a step stands under it. The answer itself is not among them. */
export function trailItems(view) {
  const answer = answerText(view);
  const lastCall = view.entries.findLastIndex((entry) => entry.kind === "call" && !entry.stepId);
  const approvals = Object.values(view.approvals);
  const items = view.entries
    .filter((entry, index) => entry.kind !== "text" || isRemark(entry, index > lastCall, answer))
    .map((entry) => ({
      entry,
      call: view.calls[entry.callId],
      approval: entry.callId ? approvals.find((item) => item.callId === entry.callId) : view.approvals[entry.approvalId],
      step: view.steps[entry.step],
      children: [],
    }));
  const steps = new Map(items.filter((item) => item.entry.kind === "step").map((item) => [item.entry.step, item]));
  return items.filter((item) => {
    const within = steps.get(item.entry.stepId);
    within?.children.push(item);
    return !within;
  });
}

/** Text is a remark when it was withdrawn, belongs to a step, or came before a call and is not in the answer again. */
function isRemark(entry, afterLastCall, answer) {
  if (entry.text.trim() === "") return false;
  if (entry.retracted || entry.stepId) return true;
  return !afterLastCall && !answer.includes(entry.text.trim());
}

export function sameItem(before, now) {
  return (
    before.entry === now.entry && before.call === now.call && before.approval === now.approval && before.step === now.step &&
    before.children.length === now.children.length && before.children.every((child, index) => sameItem(child, now.children[index]))
  );
}
