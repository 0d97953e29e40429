// The difference of two requests: in their fields, and in their models' input.
//
// Histories with a common prefix share the keys of that part, so the prefix is compared by key;
// a common suffix is compared by content. The rest is shown side by side.

import { tokenUsage } from "./conversation.js";
import { formatJson, itemList, itemText, itemTitle } from "./items.js";
import { element, formatCount, formatNumber } from "./make.js";

const [CHARS_BEFORE, CHARS_AFTER] = [30, 60];

/** Show the differences between the requests `first` and `second`. */
export function difference(conversation, first, second) {
  const [firstInput, secondInput] = [first, second].map((link) => conversation.modelInput(link));
  return [
    fieldDifferences(conversation, first, second),
    ...(firstInput && secondInput
      ? inputDifferences(firstInput, secondInput, first, second)
      : [element("p", { class: "aside" }, "the model input of one of them was deleted")]),
    cacheNote(second),
  ];
}

/** Count the equal entries at the start and at the end of two lists: { prefix, suffix }. */
export function countEqualEnds(left, right) {
  const shorter = Math.min(left.length, right.length);
  const contentAt = (list, offset) => JSON.stringify(list[list.length - 1 - offset].item);
  let [prefix, suffix] = [0, 0];
  while (prefix < shorter && left[prefix].key === right[prefix].key) prefix += 1;
  while (suffix < shorter - prefix && contentAt(left, suffix) === contentAt(right, suffix)) suffix += 1;
  return { prefix, suffix };
}

function fieldDifferences(conversation, first, second) {
  const [left, right] = [conversation.request(first), conversation.request(second)];
  const names = [...new Set([...Object.keys(left), ...Object.keys(right)])].sort();
  const differing = names.filter((name) => JSON.stringify(left[name]) !== JSON.stringify(right[name]));
  if (!differing.length) return element("p", {}, "The request fields are equal.");
  const cell = (value) => element("td", {}, element("code", {}, value === undefined ? "not set" : formatJson(value)));
  const rows = differing.map((name) =>
    element("tr", {}, element("th", { scope: "row" }, name), cell(left[name]), cell(right[name])),
  );
  const headings = ["Field", first.response_id, second.response_id];
  return element(
    "div",
    { class: "scrollable", tabindex: "0", role: "region", "aria-label": "Different fields" },
    element(
      "table",
      {},
      element("caption", {}, "Different fields"),
      element("thead", {}, element("tr", {}, ...headings.map((heading) => element("th", { scope: "col" }, heading)))),
      element("tbody", {}, ...rows),
    ),
  );
}

function inputDifferences(firstInput, secondInput, first, second) {
  const { prefix, suffix } = countEqualEnds(firstInput, secondInput);
  const [left, right] = [firstInput, secondInput].map((list) => list.slice(prefix, list.length - suffix));
  const sentences = [`Common prefix: ${formatCount(prefix, "item")}.`];
  if (suffix) sentences.push(`Common suffix: ${formatCount(suffix, "item")}.`);
  const summary = element("p", {}, sentences.join(" "));
  if (!left.length && !right.length) return [summary];
  const column = (link, entries, name) =>
    element(
      "section",
      { "aria-label": `Only in ${link.response_id}` },
      element("h5", {}, `Only in ${link.response_id}`),
      ...itemList(name, entries),
    );
  return [
    summary,
    ...textDifference(left[0], right[0]),
    element("div", { class: "side-by-side" }, column(first, left, "only-first"), column(second, right, "only-second")),
  ];
}

/** Show the first different text if both have an item of the same type at that position. */
function textDifference(left, right) {
  if (!left?.item || !right?.item || itemTitle(left.item) !== itemTitle(right.item)) return [];
  const [leftText, rightText] = [itemText(left.item), itemText(right.item)];
  const shorter = Math.min(leftText.length, rightText.length);
  let index = 0;
  while (index < shorter && leftText[index] === rightText[index]) index += 1;
  const start = Math.max(0, index - CHARS_BEFORE);
  const excerpt = (tag, text) =>
    element(
      "p",
      {},
      `${start ? "…" : ""}${text.slice(start, index)}`,
      element(tag, {}, text.slice(index, index + CHARS_AFTER) || "(end of text)"),
    );
  return [
    element(
      "div",
      { class: "changed" },
      element("p", {}, `Item ${left.number} differs from character ${formatNumber(index + 1)} on:`),
      excerpt("del", leftText),
      excerpt("ins", rightText),
    ),
  ];
}

function cacheNote(link) {
  const usage = tokenUsage(link);
  if (!usage) return element("p", { class: "aside" }, `${link.response_id} reported no usage.`);
  const [cached, input] = [usage.cached, usage.input].map(formatNumber);
  return element("p", {}, `${cached} of the ${input} input tokens of ${link.response_id} were cached.`);
}
