// The source of the page's data: its server, or the file that it is.
//
// A server may require a key. It is stored until the tab is closed, and sent only in the header
// of a request to the same server. A file contains all data, and sends no request.

const KEY = "convo key";

/** Thrown if the server requires another key. */
export class KeyRequired extends Error {}

export function source() {
  const kept = document.getElementById("convo-data");
  return kept ? new FileSource(JSON.parse(kept.textContent)) : new ServerSource();
}

class FileSource {
  live = false;

  constructor(found) {
    this.found = found;
  }

  /** The handle to open first, if there is only one. */
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

class ServerSource {
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

  /** Fetch the sessions and other conversations; at most `limit` of each. */
  list(limit) {
    return this.#ask(`inspect/api/list?limit=${limit}`);
  }

  /** Fetch one conversation; only { version, running } if its version is `seen`. */
  conversation(handle, seen) {
    const asked = seen ? `?seen=${encodeURIComponent(seen)}` : "";
    return this.#ask(`inspect/api/conversations/${encodeURIComponent(handle)}${asked}`);
  }

  async #ask(path) {
    const key = sessionStorage.getItem(KEY);
    const headers = key === null ? {} : { authorization: `Bearer ${key}` };
    const answer = await fetch(path, { headers, cache: "no-store", redirect: "error" });
    const told = await answer.json();
    if (answer.status === 401) throw new KeyRequired(told.error.message);
    if (!answer.ok) throw new Error(told.error.message);
    return told;
  }
}
