// The source of the page's data: its server, or the file that it is.
//
// A server may require a key. It is stored until the tab is closed, and sent only in the header
// of a request to the same server. A file contains all data, and sends no request.
//
// The page loads this module first: it requests the first rows of the table while the other modules are loaded.

const KEY_NAME = "convo key";
const FIRST_ROWS_PATH = "inspect/api/requests?limit=50";
const PANE_PARAMETERS = ["request", "tab", "compare", "charts"]; // of the address; they do not change the rows

/** Thrown if the server requires another key. */
export class KeyRequired extends Error {}

export function openSource() {
  const script = document.getElementById("convo-data");
  return script ? new FileSource(JSON.parse(script.textContent)) : new ServerSource();
}

class FileSource {
  isLive = false;

  constructor(data) {
    this.data = data;
  }

  /** The handle to open first, if there is only one. */
  get onlyHandle() {
    const handles = Object.keys(this.data.conversations);
    return handles.length === 1 ? handles[0] : undefined;
  }

  async list() {
    return this.data.list;
  }

  async conversation(handle) {
    const data = this.data.conversations[handle];
    if (!data) throw new Error(`${handle} is not in this file`);
    return data;
  }
}

class ServerSource {
  isLive = true;

  get hasKey() {
    return storedKey() !== null;
  }

  setKey(key) {
    sessionStorage.setItem(KEY_NAME, key);
  }

  removeKey() {
    sessionStorage.removeItem(KEY_NAME);
  }

  /** Fetch a page of the conversations, in the order and with the words of a view. */
  list({ sort, order, q }, { limit, after }) {
    const given = Object.entries({ sort, order: sort && order, q, limit, after }).filter(([, value]) => value);
    return this.#fetchJson(`inspect/api/list?${new URLSearchParams(given)}`);
  }

  /** Fetch one conversation; only { version, running } if its version is `knownVersion`. */
  conversation(handle, knownVersion) {
    const query = knownVersion ? `?seen=${encodeURIComponent(knownVersion)}` : "";
    return this.#fetchJson(`inspect/api/conversations/${encodeURIComponent(handle)}${query}`);
  }

  /** Fetch one request with its parent, and with the request `compare` if it is given. */
  request(id, compare) {
    const query = compare ? `?compare=${encodeURIComponent(compare.toWellFormed())}` : "";
    return this.#fetchJson(`inspect/api/requests/${encodeURIComponent(id.toWellFormed())}${query}`);
  }

  /** Fetch the comparison of the branches that end at two handles. */
  compare(a, b) {
    return this.#fetchJson(`inspect/api/compare?${new URLSearchParams({ a: a.toWellFormed(), b: b.toWellFormed() })}`);
  }

  /** Fetch the preview of a compaction that keeps the last turns. */
  compaction(handle, keptTurns) {
    return this.#fetchJson(`inspect/api/conversations/${encodeURIComponent(handle.toWellFormed())}/compaction?keep_last=${keptTurns}`);
  }

  /** Fetch the agent runs of a session, newest first. */
  async runs(handle) {
    return (await this.#fetchJson(`inspect/api/conversations/${encodeURIComponent(handle.toWellFormed())}/runs`)).data;
  }

  /** Render Markdown texts: [{ nodes, note }]. */
  async markdown(texts) {
    const init = { method: "POST", body: JSON.stringify({ texts }), headers: { "content-type": "application/json" } };
    return (await (await this.#fetchOk("inspect/api/markdown", init)).json()).data;
  }

  /** Fetch a page of the requests, with the requests that continue `request`; `query` begins with "?" or is empty. */
  requests(query, { limit, after, request }) {
    const parameters = new URLSearchParams(query);
    parameters.set("limit", limit);
    if (after) parameters.set("after", after);
    if (request) parameters.set("request", request.toWellFormed());
    return this.#fetchJson(`inspect/api/requests?${parameters}`);
  }

  /** Fetch a request as code in one language. */
  async code(id, language) {
    const parameters = new URLSearchParams({ language, base_url: new URL("v1", document.baseURI).href });
    return (await this.#fetchOk(`inspect/api/requests/${encodeURIComponent(id.toWellFormed())}/code?${parameters}`)).text();
  }

  /** Send a request to the server's own API; returns the response. */
  async createResponse(body) {
    const init = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
    return (await this.#fetchOk("v1/responses", init)).json();
  }

  /** Fetch a pending call with its exact arguments, and the token for a decision. */
  approval(runId, callId) {
    return this.#fetchJson(`inspect/api/approvals?${new URLSearchParams({ run: runId.toWellFormed(), call: callId.toWellFormed() })}`);
  }

  /** Store a decision on a pending call. */
  async decide(body) {
    const init = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
    return (await this.#fetchOk("inspect/api/approvals", init)).json();
  }

  /** Fetch the newest decisions. */
  decisions(limit) {
    return this.#fetchJson(`inspect/api/decisions?limit=${limit}`);
  }

  /** Return the path of a conversation as a file. */
  exportPath(handle, format) {
    return `inspect/api/conversations/${encodeURIComponent(handle.toWellFormed())}/export?format=${format}`;
  }

  /** Fetch a file with the key: { name, content }, of which the content is a Blob. */
  async download(path) {
    const response = await this.#fetchOk(path);
    const [, name] = /filename="([^"]*)"/.exec(response.headers.get("content-disposition")) ?? [];
    return { name, content: await response.blob() };
  }

  /** Fetch the figures of the charts; `query` begins with "?" or is empty. */
  charts(query) {
    return this.#fetchJson(`inspect/api/charts${query}`);
  }

  /** Call `changed` at each change until the server ends the feed, or `signal` is aborted. Rejects if it cannot be read. */
  async followChanges(changed, signal) {
    const response = await this.#fetch("inspect/api/changes", { signal });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let unread = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (unread + part.value).split("\n");
      unread = lines.pop();
      if (lines.includes("event: inspector.changed")) changed();
    }
  }

  /** Fetch a path with the key; the first call of the first rows returns the response that was requested early. */
  #fetch(path, init) {
    const early = firstRows;
    if (path === FIRST_ROWS_PATH) firstRows = null;
    return path === FIRST_ROWS_PATH && early?.key === storedKey() ? early.response : fetchWithKey(path, init);
  }

  async #fetchJson(path) {
    return (await this.#fetchOk(path)).json();
  }

  /** Fetch a path; rejects with the message of an error. */
  async #fetchOk(path, init) {
    const response = await this.#fetch(path, init);
    if (response.ok) return response;
    const { message } = (await response.json()).error;
    throw response.status === 401 ? new KeyRequired(message) : new Error(message);
  }
}

function storedKey() {
  return sessionStorage.getItem(KEY_NAME);
}

function fetchWithKey(path, init = {}) {
  const key = storedKey();
  const headers = { ...init.headers, ...(key === null ? {} : { authorization: `Bearer ${key}` }) };
  return fetch(path, { ...init, headers, cache: "no-store", redirect: "error" });
}

/** Request the first rows if the address is that of the table without filters: { key, response }, else null. */
function requestFirstRows() {
  const isFile = document.getElementById("convo-data") !== null;
  const isTable = !location.hash && [...new URLSearchParams(location.search).keys()].every((name) => PANE_PARAMETERS.includes(name));
  if (isFile || !isTable) return null;
  const response = fetchWithKey(FIRST_ROWS_PATH);
  response.catch(() => {}); // the table reports it
  return { key: storedKey(), response };
}

let firstRows = requestFirstRows();
