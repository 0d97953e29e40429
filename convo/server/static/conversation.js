// One conversation as `convo inspect --json` tells it, and what the page asks of it.
//
// Items stand once, under the key of their place; a link names the keys. A long list of keys that is
// the whole path to a place comes as {"through": key}, and `parents` leads from there to the beginning.

export class Conversation {
  constructor(found) {
    this.found = found;
    this.links = new Map(found.links.map((link) => [link.response_id, link]));
    this.names = shortened([...this.links.keys()]);
  }

  /** The links in the order in which a tree is drawn. */
  get rows() {
    return this.found.rows.map((id) => this.links.get(id));
  }

  /** The keys that a list stands for, oldest first; null when they are not known any more. */
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

  /** What the model of `link` saw, as entries of a list; those before the last `sent` were put there by its owner. */
  saw(link) {
    const [seen, sent] = [this.keys(link.saw), this.keys(link.sent)];
    if (seen === null) return null;
    const before = seen.length - (sent === null ? seen.length : sent.length);
    const entry = (key, at) => ({
      key,
      item: this.item(key),
      at: at + 1,
      note: at < before ? "put there by the owner" : "sent",
    });
    return seen.map(entry);
  }

  /** What came of `link`, numbered behind what it saw. */
  output(link) {
    const seen = this.keys(link.saw) ?? [];
    return link.output.map((key, at) => ({ key, item: this.item(key), at: seen.length + at + 1 }));
  }

  /** Everything that the handle stands for. */
  path() {
    const waiting = new Set(this.found.unacknowledged);
    const entry = (key, at) => ({
      key,
      item: this.item(key),
      at: at + 1,
      note: waiting.has(key) ? "unacknowledged" : "",
    });
    return (this.keys(this.found.path) ?? []).map(entry);
  }

  /** The request of `link` as it travelled, without its items. */
  request(link) {
    const handle = { conversation: link.conversation_id, previous_response_id: link.previous_response_id };
    const named = Object.entries(handle).filter(([, value]) => value !== null);
    return { ...this.found.requests[link.request], ...Object.fromEntries(named) };
  }
}

/** Each id cut to the length at which all of them still differ, from eight signs behind its kind on. */
export function shortened(ids) {
  const longest = ids.reduce((most, id) => Math.max(most, id.length), 0);
  for (let size = 8; size < longest; size += 1) {
    const short = ids.map((id) => id.slice(0, id.indexOf("_") + 1 + size));
    if (new Set(short).size === ids.length) return new Map(ids.map((id, at) => [id, short[at]]));
  }
  return new Map(ids.map((id) => [id, id]));
}

/** What one call used, in tokens; null where the endpoint did not say. */
export function used(link) {
  if (!link.usage) return null;
  const details = link.usage.input_tokens_details ?? {};
  return {
    input: link.usage.input_tokens ?? 0,
    cached: details.cached_tokens ?? 0,
    output: link.usage.output_tokens ?? 0,
  };
}
