// Follows one run over any number of connections and delivers each event once, in order.

import { eventKind } from "./fold.js";
import { messages } from "./sse.js";

const TERMINAL_KINDS = new Set(["run_completed", "run_failed", "run_cancelled"]);
const FIRST_WAIT = 400; // ms before the second try; doubles up to LONGEST_WAIT
const LONGEST_WAIT = 8000;
const SILENCE = 40_000; // the gateway sends a comment every 15 s; this much silence means that the connection is dead

/**
 * `api.startRun(body, signal)` and `api.watchRun(runId, after, signal)` return a Response with an event stream, or throw an
 * ApiError. `onEvent(event)` is called once for each event; `onConnection("live" | "lost")` tells the state of the line.
 * `sleep(ms, signal)` and `timer` are replaced in tests.
 */
export class RunStream {
  #api;
  #onEvent;
  #onConnection;
  #sleep;
  #silence;
  #abort = new AbortController();
  #wake = null;
  #connection = "";
  runId = "";
  sequence = 0;

  constructor({ api, onEvent, onConnection = () => {}, sleep = pause, silence = SILENCE }) {
    this.#api = api;
    this.#onEvent = onEvent;
    this.#onConnection = onConnection;
    this.#sleep = sleep;
    this.#silence = silence;
  }

  /** Starts a run and follows it to its end. The body must carry a request_id, so that a retry joins the same run. */
  start(body) {
    return this.#follow((signal) => (this.runId ? this.#watch(signal) : this.#api.startRun(body, signal)));
  }

  /** Follows a run that exists, from after `sequence`. */
  attach(runId, sequence = 0) {
    this.runId = runId;
    this.sequence = sequence;
    return this.#follow((signal) => this.#watch(signal));
  }

  /** Stops following. The run goes on. */
  leave() {
    this.#abort.abort();
  }

  /** Tries again now instead of after the wait, for example when the network is back or a decision was sent. */
  nudge() {
    this.#wake?.abort();
  }

  /** Moves past events that the server no longer keeps; the terminal event still carries the whole text. */
  #skipped(error) {
    const oldest = error?.reason === "EVENTS_PRUNED" ? Number(error.metadata?.oldest) : 0;
    if (!(oldest > this.sequence)) return false;
    this.sequence = oldest - 1;
    return true;
  }

  #watch(signal) {
    return this.#api.watchRun(this.runId, this.sequence, signal);
  }

  async #follow(connect) {
    let wait = FIRST_WAIT;
    while (!this.#abort.signal.aborted) {
      const before = this.sequence;
      let broken = false;
      try {
        if (await this.#read(connect)) return;
      } catch (error) {
        if (this.#abort.signal.aborted) return;
        if (!this.#skipped(error) && !mayRetry(error)) throw error;
        broken = true;
      }
      if (this.#abort.signal.aborted) return;
      const advanced = this.sequence > before;
      wait = advanced ? FIRST_WAIT : Math.min(wait * 2, LONGEST_WAIT);
      if (broken || !advanced) this.#report("lost"); // a stream that ends in order, as after its largest age, is no loss
      this.#wake = new AbortController();
      await this.#sleep(wait, AbortSignal.any([this.#wake.signal, this.#abort.signal]));
    }
  }

  /** Reads one connection; true when the terminal event came. */
  async #read(connect) {
    const line = new AbortController();
    const signal = AbortSignal.any([line.signal, this.#abort.signal]);
    let timer = setTimeout(() => line.abort(), this.#silence);
    try {
      const response = await connect(signal);
      for await (const message of messages(response.body)) {
        clearTimeout(timer);
        timer = setTimeout(() => line.abort(), this.#silence);
        this.#report("live");
        if (message.data !== undefined && this.#deliver(JSON.parse(message.data))) return true;
      }
      return false;
    } finally {
      clearTimeout(timer);
      line.abort();
    }
  }

  #deliver(event) {
    const sequence = Number(event.sequence ?? 0);
    if (sequence <= this.sequence) return false;
    this.sequence = sequence;
    this.runId ||= event.run_id ?? "";
    this.#onEvent(event);
    return TERMINAL_KINDS.has(eventKind(event));
  }

  #report(state) {
    if (state === this.#connection) return;
    this.#connection = state;
    this.#onConnection(state);
  }
}

/** Broken lines and overload may pass; what the server refuses stays refused. */
function mayRetry(error) {
  if (error?.status === undefined) return true;
  return error.status === 429 || error.status === 502 || error.status === 503 || error.status === 504;
}

/** Waits, or returns early when the signal fires. */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
