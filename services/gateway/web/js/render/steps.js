// What happened on the way to an answer, as a timeline: searches, thoughts, calls, notices.

import { h } from "../dom.js";
import { formatSeconds, t, word } from "../i18n/index.js";
import { sameItem, trailItems } from "./trail-items.js";
import { row } from "./trail-rows.js";
import { SyncedList } from "./sync.js";

export class Steps {
  #list;
  #view = null;
  #touched = false;

  constructor() {
    this.label = h("span", { class: "steps-label" });
    this.clock = h("span", { class: "steps-clock" });
    const trail = h("ol", { class: "trail" });
    const summary = h("summary", {}, h("span", { class: "pulse", "aria-hidden": "true" }), this.label, this.clock);
    summary.addEventListener("click", () => { this.#touched = true; });
    this.element = h("details", { class: "steps", open: true }, summary, trail);
    this.#list = new SyncedList(trail, { render: row, same: sameItem });
  }

  update(view, running) {
    if (view === this.#view) return;
    this.#view = view;
    const items = trailItems(view);
    this.#list.update(items);
    this.element.classList.toggle("running", running);
    this.element.classList.toggle("empty", items.length === 0);
    this.element.hidden = !running && items.length === 0;
    this.label.textContent = running ? stageText(view) : summaryText(view, items.length);
    if (!running && !this.#touched) this.element.open = false;
    this.tick(null);
  }

  /** Shows the time since the start, given the server's clock now. */
  tick(now) {
    const view = this.#view;
    if (!view?.startedAt) return;
    const end = view.endedAt ?? now;
    if (end) this.clock.textContent = formatSeconds(Math.max(0, end - view.startedAt) / 1000);
  }
}

export function stageText(view) {
  if (view.phase === "starting") return t("stage.starting");
  if (!view.stage) return t("working");
  return view.stage.text || word("stage", view.stage.name);
}

function summaryText(view, count) {
  const read = view.evidence.length > 0 ? ` · ${t("readSources", { n: view.evidence.length })}` : "";
  return t("steps", { n: count }) + read;
}
