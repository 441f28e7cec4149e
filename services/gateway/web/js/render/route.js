// Where the router sent a question: the score of every label, the chosen one marked.

import { h } from "../dom.js";
import { formatSeconds, t } from "../i18n/index.js";

/** `titled` repeats the choice and the time above the scores. */
export function routeScores(route, { titled = true } = {}) {
  const scores = [...route.scores].map((item) => ({ label: item.label ?? "", score: share(item.score) })).sort((a, b) => b.score - a.score);
  return h(
    "div",
    { class: "route" },
    titled
      ? h("p", {}, h("b", {}, route.choice ? t("routed", { choice: route.choice }) : t("notRouted")), route.why ? h("span", { class: "muted" }, ` · ${route.why}`) : null, route.took ? h("span", { class: "muted figures" }, ` · ${formatSeconds(route.took)}`) : null)
      : h("p", { class: "muted" }, route.why),
    scores.length === 0 ? null : h("ol", { class: "bar-list" }, scores.map(({ label, score }) => {
      const bar = h("span", { class: "bar-fill", "aria-hidden": "true" });
      bar.style.width = `${score * 100}%`;
      return h("li", { class: label === route.choice ? "chosen" : "" }, h("span", { class: "bar-name" }, label), h("span", { class: "figures" }, score.toFixed(2)), bar);
    })),
  );
}

const share = (value) => Math.min(1, Math.max(0, Number(value) || 0));
