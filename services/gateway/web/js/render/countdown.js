// The time a person has left, as words and as a line that runs out.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";

export class Countdown {
  #timer = null;

  /** Calls `onEnd` once when the deadline passes. Without a deadline nothing is shown. */
  constructor({ deadline, askedAt }, now, onEnd) {
    this.deadline = deadline;
    this.span = Math.max(1, (deadline ?? 0) - (askedAt ?? now()));
    this.now = now;
    this.onEnd = onEnd;
    this.words = h("span", { class: "countdown-words" });
    this.element = h("span", { class: "countdown", hidden: !deadline, role: "timer" }, h("span", { class: "countdown-line", "aria-hidden": "true" }), this.words);
    if (deadline) {
      this.#timer = setInterval(() => this.#tick(), 500);
      this.#tick();
    }
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = null;
  }

  #tick() {
    const left = Math.max(0, this.deadline - this.now());
    const whole = Math.ceil(left / 1000);
    this.words.textContent = left > 0 ? t("timeLeft", { time: clock(whole) }) : t("expiredNow");
    this.element.style.setProperty("--left", String(Math.min(1, left / this.span)));
    this.element.classList.toggle("soon", left < 20_000);
    if (left <= 0) {
      this.stop();
      this.onEnd();
    }
  }
}

function clock(seconds) {
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  const rest = String(seconds % 60).padStart(2, "0");
  return hours > 0 ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}
