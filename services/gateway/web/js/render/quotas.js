// What may be used within 24 hours: each quota with what is used of it, and a form for those who may set them.

import { h, icon, iconButton } from "../dom.js";
import { formatNumber, t } from "../i18n/index.js";
import { bare, integer } from "../wire.js";
import { confirmed } from "./confirm.js";
import { editQuota } from "./quota-dialog.js";

/** Measures in the order they are shown; cost is kept in millionths. */
const MEASURES = [["runs", 1, 0], ["tokens", 1, 0], ["cost_micros", 1e6, 2]];
const NEARLY = 0.8; // share from which a quota is told as nearly used up

export class Quotas {
  constructor(app) {
    this.app = app;
    this.list = h("ul", { class: "quota-list" });
    this.add = h("button", { type: "button", class: "button quiet", hidden: true, onclick: () => this.#edit(null) }, icon("plus"), t("newQuota"));
    this.trouble = h("p", { class: "trouble", role: "status" });
    this.element = h("section", { class: "panel", hidden: true }, h("h2", {}, t("quotas")), h("p", { class: "muted" }, t("quotasIntro")), this.trouble, this.list, this.add);
  }

  async load() {
    const [{ scopes = [] }, reply] = await Promise.all([this.app.me(), this.app.api.quotas().catch(() => null)]);
    const mayEdit = scopes.includes("*") || scopes.includes("quotas:write");
    const quotas = (reply?.quotas ?? []).map(read);
    this.list.replaceChildren(...(quotas.length > 0 ? quotas.map((quota) => this.#row(quota, mayEdit)) : [h("li", { class: "muted" }, t("noQuotas"))]));
    this.add.hidden = !mayEdit;
    this.element.hidden = reply === null || (quotas.length === 0 && !mayEdit);
  }

  #row(quota, mayEdit) {
    const whose = h("span", { class: "quota-whose" }, t(quota.subject ? `quota.${quota.scope}` : `quota.${quota.scope}.each`), quota.subject ? h("code", {}, quota.subject) : null);
    const name = whose.textContent;
    return h(
      "li",
      {},
      whose,
      h("div", { class: "quota-caps" }, MEASURES.filter(([key]) => quota[key] !== null).map((measure) => cap(quota, measure))),
      mayEdit
        ? h("span", { class: "quota-tools" }, iconButton("edit", t("editQuota", { name }), () => this.#edit(quota)), iconButton("trash", t("deleteQuota", { name }), () => this.#delete(quota, name)))
        : null,
    );
  }

  async #edit(quota) {
    const wanted = await editQuota(quota);
    if (!wanted) return;
    await this.#change(() => this.app.api.setQuota(wanted.scope, wanted.subject, wanted.caps));
  }

  async #delete(quota, name) {
    if (await confirmed(t("deleteQuotaSure", { name }), t("delete"))) await this.#change(() => this.app.api.deleteQuota(quota.scope, quota.subject));
  }

  async #change(send) {
    try {
      await send();
      this.trouble.textContent = "";
    } catch (error) {
      this.trouble.textContent = error.message;
    }
    await this.load();
  }
}

function read(item) {
  const caps = Object.fromEntries(MEASURES.map(([key]) => [key, item[key] === undefined ? null : integer(item[key])]));
  return { scope: bare(item.scope, "QUOTA_SCOPE_"), subject: item.subject ?? "", used: item.used ?? null, ...caps };
}

function cap(quota, [key, unit, digits]) {
  const most = quota[key];
  const used = quota.used ? integer(quota.used[key]) : null;
  const share = used === null ? 0 : most === 0 ? 1 : Math.min(1, used / most);
  const bar = h("span", { class: "bar-fill", "aria-hidden": "true" });
  bar.style.width = `${share * 100}%`;
  const number = (value) => formatNumber(value / unit, digits);
  const text = used === null ? number(most) : t("usedOf", { used: number(used), most: number(most) });
  const tone = share >= 1 ? "spent" : share >= NEARLY ? "nearly" : "";
  return h("p", { class: `cap ${tone}` }, h("span", { class: "muted" }, t(`measure.${key}`)), h("span", { class: "figures" }, text), used === null ? null : h("span", { class: "bar-track" }, bar));
}
