// One conversation: the object of `convo inspect --json`, with the lookups that the page needs.
//
// Each item is stored once, under the key of its node; a link lists keys. A long list of keys that is
// the whole path to a node is sent as {"through": key}, and `parents` leads from there to the root.

export class Conversation {
  constructor(found) {
    this.found = found;
    this.links = new Map(found.links.map((link) => [link.response_id, link]));
    this.names = shortened([...this.links.keys()]);
  }

  /** The links in the order of the drawn tree. */
  get rows() {
    return this.found.rows.map((id) => this.links.get(id));
  }

  /** Return the keys of a list, oldest first; null if they are no longer known. */
  keys(list) {
    if (Array.isArray(list)) return list;
    const found = [];
    for (let key = list.through; key !== null; key = this.found.parents[key]) {
      if (!(key in this.found.items)) return found.length ? found.reverse() : null;
      found.push(key);
    }
    return found.reverse();
  }

  item(key) {
    return this.found.items[key];
  }

  /** Return the model's input for `link` as list entries; the server prepended those before the last `sent`. */
  saw(link) {
    const [seen, sent] = [this.keys(link.saw), this.keys(link.sent)];
    if (seen === null) return null;
    const before = seen.length - (sent === null ? seen.length : sent.length);
    const entry = (key, at) => ({
      key,
      item: this.item(key),
      at: at + 1,
      note: at < before ? "prepended by the server" : "sent",
    });
    return seen.map(entry);
  }

  /** Return the output of `link`, numbered after its input. */
  output(link) {
    const seen = this.keys(link.saw) ?? [];
    return link.output.map((key, at) => ({ key, item: this.item(key), at: seen.length + at + 1 }));
  }

  /** Return all items of the handle's path. */
  path() {
    const waiting = new Set(this.found.unacknowledged);
    const entry = (key, at) => ({
      key,
      item: this.item(key),
      at: at + 1,
      note: waiting.has(key) ? "unconfirmed" : "",
    });
    return (this.keys(this.found.path) ?? []).map(entry);
  }

  /** Return the request of `link` as it was sent, without its items. */
  request(link) {
    const handle = { conversation: link.conversation_id, previous_response_id: link.previous_response_id };
    const named = Object.entries(handle).filter(([, value]) => value !== null);
    return { ...this.found.requests[link.request], ...Object.fromEntries(named) };
  }
}

/** Shorten each id to a length at which all of them still differ, at least eight characters after its prefix. */
export function shortened(ids) {
  const longest = ids.reduce((most, id) => Math.max(most, id.length), 0);
  for (let size = 8; size < longest; size += 1) {
    const short = ids.map((id) => id.slice(0, id.indexOf("_") + 1 + size));
    if (new Set(short).size === ids.length) return new Map(ids.map((id, at) => [id, short[at]]));
  }
  return new Map(ids.map((id) => [id, id]));
}

/** Return the usage of one request in tokens; null if the endpoint did not report it. */
export function used(link) {
  if (!link.usage) return null;
  const details = link.usage.input_tokens_details ?? {};
  return {
    input: link.usage.input_tokens ?? 0,
    cached: details.cached_tokens ?? 0,
    output: link.usage.output_tokens ?? 0,
  };
}
