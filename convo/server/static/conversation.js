// One conversation: the object of `convo inspect --json`, with the lookups that the page needs.
//
// Each item is stored once, under the key of its node; a link lists keys. A long list of keys that is
// the whole path to a node is sent as {"through": key}, and `parents` leads from there to the root.

/** Statuses of requests that have a response, and of those that have not ended. */
export const ANSWERED_STATUSES = ["completed", "incomplete"];
export const UNFINISHED_STATUSES = ["queued", "in_progress"];

export class Conversation {
  constructor(data) {
    this.data = data;
    this.links = new Map(data.links.map((link) => [link.response_id, link]));
    this.shortIds = shortenIds([...this.links.keys()]);
  }

  /** Whether it is the chain that ends at a response, and no session or conversation. */
  get isChain() {
    return !this.data.is_session && this.data.handle === this.data.at;
  }

  /** The links in the order of the drawn tree. */
  get rows() {
    return this.data.rows.map((id) => this.links.get(id));
  }

  /** Return the keys of a list, oldest first; null if they are no longer known. */
  keys(list) {
    if (Array.isArray(list)) return list;
    const keys = [];
    for (let key = list.through; key !== null; key = this.data.parents[key]) {
      if (!(key in this.data.items)) return keys.length ? keys.reverse() : null;
      keys.push(key);
    }
    return keys.reverse();
  }

  item(key) {
    return this.data.items[key];
  }

  /** Return the model's input for `link` as list entries; the server prepended those before the last `sent`. */
  modelInput(link) {
    const [inputKeys, sentKeys] = [this.keys(link.saw), this.keys(link.sent)];
    if (inputKeys === null) return null;
    const prependedCount = inputKeys.length - (sentKeys === null ? inputKeys.length : sentKeys.length);
    const toEntry = (key, index) => ({
      key,
      item: this.item(key),
      number: index + 1,
      note: index < prependedCount ? "prepended by the server" : "sent",
    });
    return inputKeys.map(toEntry);
  }

  /** Return the items that `link` sent as list entries; null if they are no longer known. */
  sentItems(link) {
    const input = this.modelInput(link);
    return input && input.filter(({ note }) => note === "sent").map((entry) => ({ ...entry, note: "" }));
  }

  /** Return the output of `link` as list entries, numbered after its input. */
  output(link) {
    const inputKeys = this.keys(link.saw) ?? [];
    return link.output.map((key, index) => ({ key, item: this.item(key), number: inputKeys.length + index + 1 }));
  }

  /** Return all items of the handle's path as list entries. */
  path() {
    const unconfirmed = new Set(this.data.unacknowledged);
    const toEntry = (key, index) => ({
      key,
      item: this.item(key),
      number: index + 1,
      note: unconfirmed.has(key) ? "unconfirmed" : "",
    });
    return (this.keys(this.data.path) ?? []).map(toEntry);
  }

  /** Return the request of `link` as it was sent, without its items. */
  request(link) {
    const handles = { conversation: link.conversation_id, previous_response_id: link.previous_response_id };
    const present = Object.entries(handles).filter(([, value]) => value !== null);
    return { ...this.data.requests[link.request], ...Object.fromEntries(present) };
  }
}

/** Shorten each id to a length at which all of them still differ, at least eight characters after its prefix. */
export function shortenIds(ids) {
  const longest = ids.reduce((length, id) => Math.max(length, id.length), 0);
  for (let size = 8; size < longest; size += 1) {
    const shortIds = ids.map((id) => id.slice(0, id.indexOf("_") + 1 + size));
    if (new Set(shortIds).size === ids.length) return new Map(ids.map((id, index) => [id, shortIds[index]]));
  }
  return new Map(ids.map((id) => [id, id]));
}

/** Return the usage of one request in tokens; null if the endpoint did not report it. */
export function tokenUsage(link) {
  if (!link.usage) return null;
  const details = link.usage.input_tokens_details ?? {};
  return {
    input: link.usage.input_tokens ?? 0,
    cached: details.cached_tokens ?? 0,
    output: link.usage.output_tokens ?? 0,
  };
}
