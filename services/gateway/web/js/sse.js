// Server-sent events read from a fetch body, so that any method and header can be used.

/** Yields `{ id, event, data }` for each message and `{ comment }` for keep-alives, until the body ends. */
export async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new Parser();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    await reader.cancel().catch(() => {}); // already broken when the network went away
  }
}

/** Splits text into messages; pieces may be cut anywhere. A message cut off by the end is not one. */
export class Parser {
  #rest = "";
  #fields = { id: undefined, event: "message", data: [] };

  *push(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      const message = this.#line(line);
      if (message) yield message;
    }
  }

  #line(line) {
    if (line === "") return this.#flush();
    if (line.startsWith(":")) return { comment: line.slice(1).trim() };
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#fields.data.push(value);
    else if (name === "id" || name === "event") this.#fields[name] = value;
    return null;
  }

  #flush() {
    const { id, event, data } = this.#fields;
    this.#fields = { id: undefined, event: "message", data: [] };
    return data.length > 0 ? { id, event, data: data.join("\n") } : null;
  }
}
