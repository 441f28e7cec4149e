// One piece of evidence, opened: number, kind, title, place, and the text exactly as the model read it.

import { h, iconButton, safeUrl } from "../dom.js";
import { t, word } from "../i18n/index.js";
import { MarkdownView } from "./markdown.js";

export function kindBadge(kind) {
  return h("span", { class: `badge kind-${/^[a-z]+$/.test(kind) ? kind : "other"}` }, word("kind", kind));
}

/** `loadPassage(id)` fetches the whole passage; `onClose` makes the card closable. */
export function passageCard(evidence, { loadPassage, onClose = null, id = null }) {
  const body = h("div", { class: "passage-text", tabindex: "0" });
  showText(body, evidence.text);
  const url = safeUrl(evidence.url || "about:blank");
  const actions = h("p", { class: "passage-actions" });
  if (evidence.passageId) actions.append(wholePassageButton(evidence.passageId, body, loadPassage));
  if (url) actions.append(h("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, t("openPage")));
  return h(
    "section",
    { class: "passage", id, "aria-label": t("citation", { n: evidence.number, title: evidence.title, kind: word("kind", evidence.kind) }) },
    h(
      "header",
      {},
      h("span", { class: "passage-number" }, String(evidence.number)),
      h("span", { class: "passage-title" }, h("b", {}, evidence.title || "—"), evidence.where ? h("span", {}, evidence.where) : null),
      kindBadge(evidence.kind),
      onClose ? iconButton("close", t("hidePassage"), onClose) : null,
    ),
    body,
    actions.hasChildNodes() ? actions : null,
  );
}

function wholePassageButton(passageId, body, loadPassage) {
  const button = h("button", { type: "button", class: "link" }, t("wholePassage"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const reply = await loadPassage(passageId);
      const passage = reply.passage ?? reply;
      showText(body, passage.text ?? "");
      button.remove();
    } catch (error) {
      button.disabled = false;
      button.textContent = error.message;
    }
  });
  return button;
}

/** Tables of a document are shown as tables; everything else as the text it is. */
function showText(element, text) {
  element.replaceChildren();
  if (/^\|.*\|\s*\n\|[\s:|-]+\|/m.test(text)) new MarkdownView(element, () => {}).update(text);
  else element.append(h("p", { class: "verbatim" }, text));
}
