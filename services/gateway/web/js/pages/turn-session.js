// One turn as it lives: the stream that feeds it, the view that is folded, the part of the page that shows it.

import { EMPTY_RUN, fold, TERMINAL } from "../fold.js";
import { TurnView } from "../render/turn.js";
import { RunStream } from "../run-stream.js";

export class Turn {
  #api;
  #onChange;
  #refused = false;
  #stopWanted = false;

  /** `whole` tells that the question is known in full, so that it can be asked again; `attachments` are `{ id, name }`. */
  constructor({ api, question, whole = true, rating = "", attachments = [], onChange, onConnection, actions }) {
    this.#api = api;
    this.#onChange = onChange;
    this.asked = question;
    this.attachments = attachments;
    this.view = { ...EMPTY_RUN, question };
    this.stream = new RunStream({
      api,
      onEvent: (event) => {
        this.view = fold(this.view, event);
        if (this.#stopWanted && this.view.runId) this.stop().catch(() => {}); // asked to stop before there was an id
        onChange(this);
      },
      onConnection: (state) => { if (!this.ended) onConnection(state); },
    });
    this.shown = new TurnView({
      question,
      rating,
      attachments,
      api,
      actions: {
        regenerate: whole ? () => actions.again(this) : null,
        edit: whole ? () => actions.edit(this) : null,
        mayRate: actions.mayRate,
        feedback: (rating) => api.rate(this.view.conversationId, this.view.result?.messageId, rating),
      },
    });
  }

  /** The question as it was asked here, else as the journal has it, which may be its beginning only. */
  get question() {
    return this.asked || this.view.question;
  }

  get ended() {
    return this.#refused || TERMINAL.has(this.view.phase);
  }

  ask(body) {
    return this.#follow(this.stream.start(body));
  }

  attach(runId) {
    return this.#follow(this.stream.attach(runId));
  }

  leave() {
    this.stream.leave();
  }

  nudge() {
    this.stream.nudge();
  }

  /** Asks the run to stop; its terminal event says when it has. */
  async stop() {
    if (this.ended) return;
    this.#stopWanted = !this.view.runId;
    if (this.view.runId) await this.#api.cancelRun(this.view.runId);
  }

  draw() {
    this.shown.ask(this.question);
    this.shown.update(this.view);
  }

  async #follow(done) {
    try {
      await done;
    } catch (error) {
      this.#refused = true;
      this.draw();
      this.shown.refuse(error.message);
      this.#onChange(this);
    }
  }
}
