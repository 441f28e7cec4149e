// The place above the composer where pending decisions wait, oldest first.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";
import { placeAll } from "./numbered.js";
import { slipFor } from "./slips.js";

export class Dock {
  #cards = new Map();

  /** `decide(approval, body)` sends a decision; `announce(text)` speaks to screen readers. */
  constructor({ decide, now, announce }) {
    this.decide = decide;
    this.now = now;
    this.announce = announce;
    this.list = h("div", { class: "dock-list" });
    this.element = h("section", { class: "dock", "aria-label": t("approvalAsks"), hidden: true }, this.list);
  }

  /** Shows exactly these approvals. */
  update(approvals) {
    const wanted = new Set(approvals.map((item) => item.approvalId));
    for (const [id, card] of this.#cards) {
      if (wanted.has(id)) continue;
      const hadFocus = card.element.contains(document.activeElement) || (card.decided && document.activeElement === document.body);
      card.dispose();
      card.element.remove();
      this.#cards.delete(id);
      if (hadFocus) document.querySelector(".composer textarea")?.focus({ preventScroll: true });
    }
    for (const approval of approvals) if (!this.#cards.has(approval.approvalId)) this.#add(approval);
    placeAll(this.#cards.values());
    this.element.hidden = this.#cards.size === 0;
  }

  dispose() {
    for (const card of this.#cards.values()) card.dispose();
    this.#cards.clear();
  }

  #add(approval) {
    const decide = async (body) => {
      card.decided = true; // its buttons are disabled, so the keyboard has no place when the card leaves
      await this.decide(approval, body).catch((error) => {
        card.decided = false;
        throw error;
      });
    };
    const card = slipFor(approval, { decide, now: this.now });
    this.#cards.set(approval.approvalId, card);
    this.list.append(card.element);
    this.announce(t("waitingForYou", { tool: approval.tool || t("answerQuestions") }));
  }
}
