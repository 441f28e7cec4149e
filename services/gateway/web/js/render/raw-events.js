// The journal as it came over the wire, some hundred events at a time.

import { eventKind } from "../fold.js";
import { h } from "../dom.js";
import { t } from "../i18n/index.js";

const AT_ONCE = 200;

export function rawEvents(events) {
  const list = h("ol", { class: "raw" });
  const more = h("button", { type: "button", class: "button quiet" }, t("more"));
  let shown = 0;
  const showMore = () => {
    for (const event of events.slice(shown, shown + AT_ONCE)) list.append(rawRow(event));
    shown = Math.min(events.length, shown + AT_ONCE);
    more.hidden = shown >= events.length;
  };
  more.addEventListener("click", showMore);
  const details = h("details", { class: "record", dataset: { key: "raw" } }, h("summary", {}, t("events", { n: events.length })), list, more);
  details.addEventListener("toggle", () => { if (details.open && shown === 0) showMore(); });
  return details;
}

function rawRow(event) {
  const body = h("pre", { tabindex: "0" });
  const details = h("details", {}, h("summary", {}, h("span", { class: "figures" }, String(event.sequence ?? "")), " ", h("code", {}, eventKind(event) ?? "unknown")), body);
  details.addEventListener("toggle", () => { if (details.open && body.textContent === "") body.textContent = JSON.stringify(event, null, 2); });
  return h("li", {}, details);
}
