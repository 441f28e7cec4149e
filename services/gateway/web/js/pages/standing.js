// Which runs of a conversation still stand. A question asked again or edited takes the place of a run and of all after it;
// the page writes the replaced run's id into the label below, because a list of runs does not tell otherwise.

export const REPLACES = "replaces";

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
