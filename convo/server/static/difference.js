// The difference of two requests: in their fields, and in their models' input.
//
// Histories with a common prefix share the keys of that part, so the prefix is compared by key;
// a common suffix is compared by content. The rest is shown side by side.

import { used } from "./conversation.js";
import { json, listOf, title, wordsOf } from "./items.js";
import { counted, element, figure } from "./make.js";

/** Show the differences between the requests `one` and `two`. */
export function difference(conversation, one, two) {
  const [a, b] = [one, two].map((link) => conversation.saw(link));
  return [
    fields(conversation.request(one), conversation.request(two), one.response_id, two.response_id),
    ...(a && b ? histories(a, b, one, two) : [element("p", { class: "aside" }, "the model input of one of them was deleted")]),
    cache(two),
  ];
}

/** Count the equal entries at the start and at the end of two lists: { before, behind }. */
export function shared(a, b) {
  const least = Math.min(a.length, b.length);
  let [before, behind] = [0, 0];
  while (before < least && a[before].key === b[before].key) before += 1;
  const alike = (at) => JSON.stringify(a[a.length - 1 - at].item) === JSON.stringify(b[b.length - 1 - at].item);
  while (behind < least - before && alike(behind)) behind += 1;
  return { before, behind };
}

function fields(a, b, first, second) {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].sort();
  const differing = names.filter((name) => JSON.stringify(a[name]) !== JSON.stringify(b[name]));
  if (!differing.length) return element("p", {}, "The request fields are equal.");
  const cell = (value) => element("td", {}, element("code", {}, value === undefined ? "not set" : json(value)));
  const rows = differing.map((name) =>
    element("tr", {}, element("th", { scope: "row" }, name), cell(a[name]), cell(b[name])),
  );
  const heads = ["Field", first, second].map((head) => element("th", { scope: "col" }, head));
  return element(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": "Different fields" },
    element(
      "table",
      {},
      element("caption", {}, "Different fields"),
      element("thead", {}, element("tr", {}, ...heads)),
      element("tbody", {}, ...rows),
    ),
  );
}

function histories(a, b, one, two) {
  const { before, behind } = shared(a, b);
  const [left, right] = [a, b].map((list) => list.slice(before, list.length - behind));
  const told = [`Common prefix: ${counted(before, "item")}.`];
  if (behind) told.push(`Common suffix: ${counted(behind, "item")}.`);
  const sentence = element("p", {}, told.join(" "));
  if (!left.length && !right.length) return [sentence];
  const side = (link, list, name) =>
    element(
      "section",
      { "aria-label": `Only in ${link.response_id}` },
      element("h5", {}, `Only in ${link.response_id}`),
      ...listOf(name, list),
    );
  return [
    sentence,
    ...changed(left[0], right[0]),
    element("div", { class: "beside" }, side(one, left, "only-a"), side(two, right, "only-b")),
  ];
}

/** Show the first different text if both have an item of the same type at that position. */
function changed(left, right) {
  if (!left?.item || !right?.item || title(left.item) !== title(right.item)) return [];
  const [a, b] = [wordsOf(left.item), wordsOf(right.item)];
  let at = 0;
  while (at < Math.min(a.length, b.length) && a[at] === b[at]) at += 1;
  const from = Math.max(0, at - 30);
  const near = (tag, words) =>
    element(
      "p",
      {},
      `${from ? "…" : ""}${words.slice(from, at)}`,
      element(tag, {}, words.slice(at, at + 60) || "(end of text)"),
    );
  return [
    element(
      "div",
      { class: "changed" },
      element("p", {}, `Item ${left.at} differs from character ${figure(at + 1)} on:`),
      near("del", a),
      near("ins", b),
    ),
  ];
}

function cache(link) {
  const spent = used(link);
  if (!spent) return element("p", { class: "aside" }, `${link.response_id} reported no usage.`);
  return element(
    "p",
    {},
    `${figure(spent.cached)} of the ${figure(spent.input)} input tokens of ${link.response_id} were cached.`,
  );
}
