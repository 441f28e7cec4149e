// Sends one file to a source and reads the progress that comes back while it is worked on.

import { ApiError } from "./api.js";
import { Parser } from "./sse.js";
import { bare } from "./wire.js";

/**
 * Resolves to the last progress `{ state, message, passages, unchanged }`; rejects with an ApiError when the request is refused.
 * `onProgress({ state, sent })` is called on the way; `sent` is the part of the bytes that has left, 0 to 1.
 */
export function uploadDocument({ source, file, headers, onProgress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not tell how much of a body has left
    const reply = new Reply(onProgress);
    request.open("POST", `/v1/sources/${encodeURIComponent(source)}/documents`);
    request.setRequestHeader("Accept", "text/event-stream");
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) onProgress({ state: "sending", sent: event.loaded / event.total });
    });
    request.addEventListener("progress", () => { if (request.status === 200) reply.read(request.responseText); });
    request.addEventListener("load", () => {
      if (request.status < 200 || request.status > 299) return reject(new ApiError(request.status, problemIn(request.responseText)));
      reply.read(request.responseText);
      return reply.problem ? reject(new ApiError(reply.problem.status ?? 500, reply.problem)) : resolve(reply.last);
    });
    request.addEventListener("error", () => reject(new Error("network")));
    request.addEventListener("abort", () => reject(new Error("aborted")));
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    const form = new FormData();
    form.append("path", file.webkitRelativePath || file.name);
    form.append("file", file, file.name);
    request.send(form);
  });
}

/** The stream of progress events of one request, read as its text grows. */
class Reply {
  #parser = new Parser();
  #seen = 0;
  last = { state: "failed", message: "", passages: 0, unchanged: false };
  problem = null;

  constructor(onProgress) {
    this.onProgress = onProgress;
  }

  read(text) {
    for (const message of this.#parser.push(text.slice(this.#seen))) {
      if (message.event === "error") this.problem = JSON.parse(message.data);
      if (message.event === "progress") this.#take(JSON.parse(message.data));
    }
    this.#seen = text.length;
  }

  #take(progress) {
    this.last = {
      state: bare(progress.state, "DOCUMENT_STATE_"), message: progress.message || progress.reason || "",
      passages: Number(progress.passages ?? 0), unchanged: Boolean(progress.unchanged),
    };
    this.onProgress(this.last);
  }
}

function problemIn(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
