// The gateway's REST interface: one function for each call.

/** A refusal: problem+json of the gateway, or the bare status. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP ${status}`);
    this.status = status;
    this.reason = problem.reason ?? "";
    this.metadata = problem.metadata ?? {};
    this.violations = problem.violations ?? [];
  }
}

export class Api {
  #fetch;
  #key;
  #askKey;
  /** Milliseconds to add to this machine's clock to get the server's. */
  clockOffset = 0;

  /** `askKey(problem)`, told what was wrong with the last key, resolves to an API key, or to null when the person gives none. */
  constructor({ fetch = globalThis.fetch.bind(globalThis), key = "", askKey = async () => null } = {}) {
    this.#fetch = fetch;
    this.#key = key;
    this.#askKey = askKey;
  }

  // Runs
  startRun = (body, signal) => this.send("POST", "/v1/runs", { body, signal, stream: true });
  watchRun = (run, after, signal) =>
    this.send("GET", `/v1/runs/${part(run)}/events`, { signal, stream: true, headers: after > 0 ? { "Last-Event-ID": String(after) } : {} });
  cancelRun = (run) => this.json("POST", `/v1/runs/${part(run)}/cancel`);
  run = (run) => this.json("GET", `/v1/runs/${part(run)}`);
  runs = (query = {}) => this.json("GET", "/v1/runs", { query });

  // Approvals
  approvals = (query = {}) => this.json("GET", "/v1/approvals", { query });
  decide = (approval, decision) => this.json("POST", `/v1/approvals/${part(approval)}/decision`, { body: decision });

  allowRules = () => this.json("GET", "/v1/allow-rules", { query: { page_size: 500 } });
  deleteAllowRule = (rule) => this.json("DELETE", `/v1/allow-rules/${part(rule)}`);

  // Use
  me = () => this.json("GET", "/v1/me");
  usage = (query = {}) => this.json("GET", "/v1/usage", { query });
  quotas = () => this.json("GET", "/v1/quotas", { query: { page_size: 500 } });
  setQuota = (scope, subject, caps) => this.json("PUT", `/v1/quotas/${part(scope)}`, { query: { subject }, body: caps });
  deleteQuota = (scope, subject) => this.json("DELETE", `/v1/quotas/${part(scope)}`, { query: { subject } });

  // Conversations
  conversations = (query = {}) => this.json("GET", "/v1/conversations", { query });
  conversation = (id) => this.json("GET", `/v1/conversations/${part(id)}`);
  renameConversation = (id, title) => this.json("PATCH", `/v1/conversations/${part(id)}`, { body: { title } });
  deleteConversation = (id) => this.json("DELETE", `/v1/conversations/${part(id)}`);
  rate = (conversation, message, rating) =>
    this.json("POST", `/v1/conversations/${part(conversation)}/messages/${part(message)}/feedback`, { body: { rating } });

  // Knowledge
  sources = () => this.json("GET", "/v1/sources", { query: { page_size: 500 } });
  createSource = (name) => this.json("POST", "/v1/sources", { body: { name } });
  documents = (source) => this.json("GET", `/v1/sources/${part(source)}/documents`, { query: { page_size: 500 } });
  deleteDocument = (source, document) => this.json("DELETE", `/v1/sources/${part(source)}/documents/${part(document)}`);
  /** Brings a web page into a source; the body of the response is a stream of messages. */
  syncSite = (source, body) => this.send("POST", `/v1/sources/${part(source)}/sites`, { body, stream: true });
  passage = (id) => this.json("GET", `/v1/passages/${part(id)}`);
  models = () => this.json("GET", "/v1/models");
  ownModels = () => this.json("GET", "/v1/models/own");
  createOwnModel = (model) => this.json("POST", "/v1/models/own", { body: model });
  updateOwnModel = (id, model) => this.json("PUT", `/v1/models/own/${part(id)}`, { body: model });
  deleteOwnModel = (id) => this.json("DELETE", `/v1/models/own/${part(id)}`);
  tools = () => this.json("GET", "/v1/tools", { query: { page_size: 500 } });

  // Agents and prompts
  memories = () => this.json("GET", "/v1/memories", { query: { page_size: 500 } });
  deleteMemory = (id) => this.json("DELETE", `/v1/memories/${part(id)}`);
  deleteMemories = () => this.json("DELETE", "/v1/memories");

  agents = () => this.json("GET", "/v1/agents", { query: { page_size: 500 } });
  agent = (id) => this.json("GET", `/v1/agents/${part(id)}`);
  agentVersions = (id) => this.json("GET", `/v1/agents/${part(id)}/versions`);
  createAgent = (agent, validateOnly) => this.json("POST", "/v1/agents", { body: { agent, validate_only: validateOnly } });
  updateAgent = (id, agent, validateOnly) => this.json("PUT", `/v1/agents/${part(id)}`, { body: { agent, validate_only: validateOnly } });
  deleteAgent = (id) => this.json("DELETE", `/v1/agents/${part(id)}`);
  prompts = () => this.json("GET", "/v1/prompts", { query: { page_size: 500 } });
  createPrompt = (prompt) => this.json("POST", "/v1/prompts", { body: { prompt } });
  updatePrompt = (id, prompt) => this.json("PUT", `/v1/prompts/${part(id)}`, { body: { prompt } });
  deletePrompt = (id) => this.json("DELETE", `/v1/prompts/${part(id)}`);

  // Files
  artifact = async (id) => (await this.send("GET", `/v1/artifacts/${part(id)}`)).blob();

  /** Stores a file for a later message and returns it as an artifact. */
  attach = async (file) => {
    const form = new FormData();
    form.append("file", file, file.name);
    return (await this.send("POST", "/v1/attachments", { form })).json();
  };

  /** Headers of a request that this class does not make itself (uploads with progress). */
  get headers() {
    return this.#key ? { Authorization: `Bearer ${this.#key}` } : {};
  }

  async json(method, path, options = {}) {
    const response = await this.send(method, path, options);
    return response.status === 204 ? null : response.json();
  }

  async send(method, path, { query = {}, body, form, signal, stream = false, headers = {} } = {}) {
    const used = this.#key;
    const response = await this.#once(method, address(path, query), { body, form, signal, stream, headers });
    if (response.ok) return response;
    const problem = await readProblem(response);
    if (response.status !== 401) throw new ApiError(response.status, problem);
    // Another request may have been given a key meanwhile; before any was there is nothing wrong to tell.
    const key = this.#key === used ? await this.#askKey(used ? problem : null) : this.#key;
    if (!key) throw new ApiError(response.status, problem);
    this.#key = key;
    return this.send(method, path, { query, body, form, signal, stream, headers });
  }

  async #once(method, url, { body, form, signal, stream, headers }) {
    const response = await this.#fetch(url, {
      method,
      signal,
      cache: "no-store",
      headers: {
        Accept: stream ? "text/event-stream" : "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...this.headers,
        ...headers,
      },
      body: form ?? (body === undefined ? undefined : JSON.stringify(body)),
    });
    const date = Date.parse(response.headers.get("Date") ?? "");
    if (!Number.isNaN(date) && Math.abs(date - Date.now()) > 2000) this.clockOffset = date - Date.now();
    return response;
  }
}

function address(path, query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(pairs.flatMap(([key, value]) => [value].flat().map((item) => [key, String(item)])));
  return search.size > 0 ? `${path}?${search}` : path;
}

const part = encodeURIComponent;

async function readProblem(response) {
  try {
    return await response.json();
  } catch {
    return { title: response.statusText };
  }
}
