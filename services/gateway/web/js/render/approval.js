// The slip on which a person allows or refuses one call: reason, arguments, time left, four answers.

import { h, icon } from "../dom.js";
import { t } from "../i18n/index.js";
import { ArgumentForm } from "./argument-form.js";
import { argumentParts } from "./call.js";
import { Countdown } from "./countdown.js";
import { numbered } from "./numbered.js";

/**
 * `decide(body)` sends a decision and resolves when it is stored; `now()` is the server's clock. The card stays until the
 * run's own event says how the request ended.
 */
/** The tool by which a workflow asks people; nothing runs but what comes after it. */
const ASKING = "request_approval";
/** Gates that ask at every call, whatever was allowed before. */
const ALWAYS = new Set(["ask_always", "quorum"]);

/** What a slip is headed by. */
export function titleOf(approval) {
  return approval.tool === ASKING ? t("approvalWanted") : t("approvalTitle", { tool: approval.tool });
}

export class ApprovalCard {
  #form = null;
  #buttons = [];

  constructor(approval, { decide, now, heading = "h3" }) {
    this.approval = approval;
    this.decide = decide;
    this.status = h("p", { class: "slip-status", role: "status" });
    this.body = h("div", { class: "slip-body" }, this.#shown());
    this.comment = h("input", { type: "text", class: "slip-comment", placeholder: t("comment"), "aria-label": t("comment"), maxlength: "4096" });
    this.actions = h("div", { class: "slip-actions", role: "group", "aria-label": titleOf(approval) });
    this.countdown = new Countdown(approval, now, () => this.#lock(t("expiredNow")));
    this.element = h(
      "section",
      { class: "slip", tabindex: "-1", "aria-label": titleOf(approval), dataset: { approval: approval.approvalId } },
      h("header", {}, icon("approvals"), h(heading, {}, titleOf(approval)), this.countdown.element),
      h("p", { class: "slip-reason" }, approval.reason || t("approvalNoReason")),
      this.body,
      this.comment,
      this.actions,
      this.status,
    );
    this.#offer();
  }

  /** Names the slip: among several of one tool, by its number too. */
  place(number, of) {
    this.element.setAttribute("aria-label", numbered(titleOf(this.approval), number, of));
    this.actions.setAttribute("aria-label", this.element.getAttribute("aria-label"));
  }

  /** Stops the clock; call when the card leaves the page. */
  dispose() {
    this.countdown.stop();
  }

  /** The arguments as people read them; of a workflow's question the message is the reason, which stands above. */
  #shown() {
    if (this.approval.tool !== ASKING) return argumentParts(this.approval);
    const details = this.approval.arguments?.details;
    return details && Object.keys(details).length > 0 ? argumentParts({ arguments: details }) : [];
  }

  #offer() {
    const asking = this.approval.tool === ASKING;
    const remembers = !asking && !ALWAYS.has(this.approval.gate);
    this.#setActions(
      button("allow", t(asking ? "approve" : "allowOnce"), () => this.#send({ decision: "approve", remember: "once" })),
      ...(remembers
        ? [
          button("quiet", t("allowConversationShort"), () => this.#send({ decision: "approve", remember: "conversation" }), t("allowConversation")),
          button("quiet", t("allowAlwaysShort"), () => this.#send({ decision: "approve", remember: "always" }), t("allowAlways")),
        ]
        : []),
      button("quiet", t("editArguments"), () => this.#edit()),
      button("deny", t("deny"), () => this.#send({ decision: "deny" })),
    );
  }

  #edit() {
    this.#form = new ArgumentForm(this.approval.arguments, this.approval.parameters);
    this.body.replaceChildren(this.#form.element);
    this.#setActions(
      button("allow", t("runEdited"), () => this.#sendEdited()),
      button("quiet", t("cancel"), () => this.#leaveEditing()),
      button("deny", t("deny"), () => this.#send({ decision: "deny" })),
    );
    this.#form.focus();
  }

  #leaveEditing() {
    this.#form = null;
    this.body.replaceChildren(...this.#shown());
    this.#offer();
    this.#buttons[0].focus({ preventScroll: true });
  }

  #sendEdited() {
    let value;
    try {
      value = this.#form.value();
    } catch (error) {
      this.status.textContent = t("badJson", { error: error.message });
      return;
    }
    this.#send({ decision: "edit", arguments: value });
  }

  async #send(decision) {
    this.#enable(false);
    this.status.textContent = t("deciding");
    const comment = this.comment.value.trim();
    const digest = this.approval.digest ? { arguments_digest: this.approval.digest } : {};
    try {
      await this.decide({ ...decision, ...digest, ...(comment ? { comment } : {}) });
      this.#lock(t("decided"));
    } catch (error) {
      this.status.textContent = error.message;
      if (error.status === 409 || error.status === 404 || error.status === 410) this.#lock(error.message);
      else this.#enable(true);
    }
  }

  #lock(text) {
    this.#enable(false);
    this.countdown.stop();
    this.status.textContent = text;
  }

  #enable(on) {
    for (const item of this.#buttons) item.disabled = !on;
    this.comment.disabled = !on;
  }

  #setActions(...buttons) {
    this.#buttons = buttons;
    this.actions.replaceChildren(...buttons);
  }
}

function button(tone, label, onclick, name = null) {
  return h("button", { type: "button", class: `button ${tone}`, "aria-label": name, title: name, onclick }, label);
}
