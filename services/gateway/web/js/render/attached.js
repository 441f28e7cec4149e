// Files that went with a question, under it: by name, each to be had again.

import { h, icon } from "../dom.js";
import { t } from "../i18n/index.js";
import { save } from "./files.js";

/** `files` are `{ id, name }`; null when there are none. */
export function attachedList(files, loadArtifact) {
  if (files.length === 0) return null;
  return h("ul", { class: "attached", "aria-label": t("attachments") }, files.map((file) =>
    h("li", {}, h("button", { type: "button", class: "source-tag", title: `${t("download")}: ${file.name}`, onclick: () => save(loadArtifact, file) }, icon("file"), file.name || t("file"))),
  ));
}
