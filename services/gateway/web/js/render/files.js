// Files that the sandbox made: pictures shown, everything offered for download.

import { h, icon } from "../dom.js";
import { formatBytes, t } from "../i18n/index.js";
import { SyncedList } from "./sync.js";

// Only formats that cannot carry script are shown; an SVG is a document and is offered as a file.
const SHOWN = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export class Files {
  #list;

  constructor({ loadArtifact }) {
    this.loadArtifact = loadArtifact;
    this.element = h("div", { class: "files", hidden: true });
    this.#list = new SyncedList(this.element, { render: this.#file });
  }

  update(artifacts) {
    this.element.hidden = artifacts.length === 0;
    this.#list.update(artifacts);
  }

  #file = (artifact) => (SHOWN.has(artifact.type) ? this.#picture(artifact) : this.#download(artifact));

  #picture(artifact) {
    const picture = h("img", { alt: t("picture", { name: artifact.name }), class: "loading" });
    const figure = h("figure", { class: "picture" }, picture, this.#caption(artifact));
    this.loadArtifact(artifact.id)
      .then((blob) => {
        picture.src = URL.createObjectURL(new Blob([blob], { type: artifact.type }));
        picture.addEventListener("load", () => picture.classList.remove("loading"));
      })
      .catch(() => picture.replaceWith(h("p", { class: "muted" }, t("pictureFailed"))));
    return figure;
  }

  #download(artifact) {
    return h("figure", { class: "file" }, icon("file"), this.#caption(artifact));
  }

  #caption(artifact) {
    const button = h("button", { type: "button", class: "link", "aria-label": `${t("download")}: ${artifact.name}` }, t("download"));
    button.addEventListener("click", () => save(this.loadArtifact, artifact));
    return h("figcaption", {}, h("span", { class: "file-name" }, artifact.name), h("span", { class: "muted" }, formatBytes(artifact.size), " · ", t("computed")), button);
  }
}

/** Has the browser keep an artifact as a file; its type is hidden, so that nothing of it opens here. */
export async function save(loadArtifact, { id, name }) {
  const url = URL.createObjectURL(new Blob([await loadArtifact(id)], { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
