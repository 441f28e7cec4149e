// Sums of tokens and cost over runs. Pure; days are those of the reader's own time zone.

import { integer, millis } from "./wire.js";

const DAY = 86_400_000;

const NOTHING = Object.freeze({ runs: 0, input: 0, output: 0, cost: 0 });

function spent(run) {
  const usage = run.usage ?? {};
  return { runs: integer(run.runs ?? 1), input: integer(usage.input_tokens), output: integer(usage.output_tokens), cost: integer(usage.cost_micros) / 1e6 };
}

function add(a, b) {
  return { runs: a.runs + b.runs, input: a.input + b.input, output: a.output + b.output, cost: a.cost + b.cost };
}

export function total(runs) {
  return runs.map(spent).reduce(add, NOTHING);
}

/** Sums by a field of the run, the most tokens first. */
export function by(runs, field) {
  const groups = new Map();
  for (const run of runs) groups.set(run[field] || "—", add(groups.get(run[field] || "—") ?? NOTHING, spent(run)));
  return [...groups].map(([name, sum]) => ({ name, ...sum })).sort((a, b) => b.input + b.output - (a.input + a.output));
}

/** Rows of the usage service, which are sums of one UTC day, as if each were a run in the middle of that day here. */
export function asRuns(days) {
  return days.map((row) => {
    const [year, month, day] = row.day.slice(0, 10).split("-").map(Number);
    return { created_at: new Date(year, month - 1, day, 12).toISOString(), model: row.model, user: row.user, runs: row.runs, usage: row };
  });
}

/** One sum for each of the last `days` days, oldest first, days without runs included. */
export function byDay(runs, days, now) {
  const midnight = (time) => new Date(time).setHours(0, 0, 0, 0);
  const last = midnight(now);
  const sums = Array.from({ length: days }, (_, index) => ({ day: midnight(last - (days - 1 - index) * DAY + DAY / 2), ...NOTHING }));
  for (const run of runs) {
    const sum = sums.find((item) => item.day === midnight(millis(run.created_at)));
    if (sum) Object.assign(sum, add(sum, spent(run)));
  }
  return sums;
}
