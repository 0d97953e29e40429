// Where the page has its data from: the server that shows it, or the file that it is.
//
// A server may ask for a key. It is kept until the tab is closed and goes nowhere but into the header
// of a request to the same server. A file holds everything, and nothing is ever asked for.

const KEY = "convo key";

/** Thrown where the server wants another key. */
export class KeyWanted extends Error {}

export function source() {
  const kept = document.getElementById("convo-data");
  return kept ? new Kept(JSON.parse(kept.textContent)) : new Server();
}

class Kept {
  live = false;

  constructor(found) {
    this.found = found;
  }

  /** The handle to begin with, where there is no choice. */
  get only() {
    const handles = Object.keys(this.found.conversations);
    return handles.length === 1 ? handles[0] : undefined;
  }

  async list() {
    return this.found.list;
  }

  async conversation(handle) {
    const found = this.found.conversations[handle];
    if (!found) throw new Error(`${handle} is not in this file`);
    return found;
  }
}

class Server {
  live = true;

  get hasKey() {
    return sessionStorage.getItem(KEY) !== null;
  }

  take(key) {
    sessionStorage.setItem(KEY, key);
  }

  forget() {
    sessionStorage.removeItem(KEY);
  }

  /** Sessions and what else can be opened; `limit` of each at most. */
  list(limit) {
    return this.#ask(`inspect/api/list?limit=${limit}`);
  }

  /** One conversation; only { version, running } where its version is `seen`. */
  conversation(handle, seen) {
    const asked = seen ? `?seen=${encodeURIComponent(seen)}` : "";
    return this.#ask(`inspect/api/conversations/${encodeURIComponent(handle)}${asked}`);
  }

  async #ask(path) {
    const key = sessionStorage.getItem(KEY);
    const headers = key === null ? {} : { authorization: `Bearer ${key}` };
    const answer = await fetch(path, { headers, cache: "no-store", redirect: "error" });
    const told = await answer.json();
    if (answer.status === 401) throw new KeyWanted(told.error.message);
    if (!answer.ok) throw new Error(told.error.message);
    return told;
  }
}
