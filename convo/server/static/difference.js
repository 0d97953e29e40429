// The difference of two requests, in their fields and in their models' input; and of two branches.
//
// Histories with a common prefix share the keys of that part, so the prefix is compared by key;
// a common suffix is compared by content. The rest is shown side by side. The server compares two branches.

import { tokenUsage } from "./conversation.js";
import { formatJson, itemList, itemText, itemTitle } from "./items.js";
import { address } from "./list.js";
import { element, formatCost, formatCount, formatNumber, formatTotalCost } from "./make.js";

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

// -- two branches ----------------------------------------------------------------------------------

/** Return the address of the comparison of two handles. */
export function comparisonAddress(a, b) {
  return `#compare${address(a, b).slice(1)}`;
}

/**
 * Create the form that chooses two branches, and calls `choose` with both.
 *
 * recent, handles:  requests and conversations to choose from, as [handle, text]
 */
export function comparisonForm({ a, b }, { recent, handles }, choose) {
  const groups = [["Recent requests", recent], ["Conversations", handles]].filter(([, entries]) => entries.length);
  const field = (name, value) => {
    const input = element("input", { id: `compare-${name}`, autocomplete: "off", spellcheck: "false", required: true });
    input.value = value;
    const options = groups.map(([label, entries]) => element("optgroup", { label }, ...entries.map(([handle, text]) => element("option", { value: handle }, text))));
    const label = `Recent requests and conversations for ${name.toUpperCase()}`;
    const pick = ({ target }) => (input.value = target.value);
    const picker = element("select", { id: `compare-${name}-recent`, "aria-label": label, change: pick }, element("option", { value: "" }, "Choose a recent request or conversation"), ...options);
    picker.value = [...picker.options].some((option) => option.value === value) ? value : "";
    return [input, element("div", { class: "search" }, element("label", { for: input.id }, name.toUpperCase()), input, groups.length > 0 && picker)];
  };
  const [[first, firstPart], [second, secondPart]] = [field("a", a), field("b", b)];
  const submit = (event) => {
    event.preventDefault();
    choose(first.value.trim(), second.value.trim());
  };
  const swap = () => choose(second.value.trim(), first.value.trim());
  return element(
    "form",
    { class: "filters compare-form", "aria-label": "Branches to compare", submit },
    firstPart,
    secondPart,
    element("button", { type: "submit" }, "Compare"),
    element("button", { type: "button", id: "compare-swap", click: swap, hidden: !a || !b }, "Swap"),
  );
}

/** Show the comparison of two branches, as the server returned it. */
export function branchDifference(comparison) {
  const { a, b, first, rest, omitted, tokens, same, items, request } = comparison;
  const about = tokens.estimated ? "about " : "";
  const common = `Common start: ${formatCount(same, "item")}, ${about}${formatCount(tokens.same, "token")}.`;
  const entriesOf = (side) =>
    rest
      .filter((row) => row.mark !== "same" && row[side] !== null)
      .map((row) => ({ item: items[side][row[side]], number: row[side] + 1, note: row.mark === "changed" ? "changed" : "" }));
  const column = (side, name) =>
    element(
      "section",
      { "aria-labelledby": `only-${side}-title` },
      element("h3", { id: `only-${side}-title` }, `Only in ${side.toUpperCase()}: ${about}${formatCount(tokens[side], "token")}`, element("span", { class: "note" }, ` ${name}`)),
      ...itemList(`only-${side}`, entriesOf(side), "h4"),
    );
  const equalLater = rest.filter((row) => row.mark === "same").length;
  const notes = [
    equalLater > 0 && `${formatCount(equalLater, "later item")} equal in both.`,
    omitted > 0 && `${formatCount(omitted, "more row")} not shown; convo diff shows all.`,
  ];
  const partial = [["A", a], ["B", b]]
    .filter(([, branch]) => branch.is_partial)
    .map(([name, { requests }]) => `${name} has more requests: only its last ${formatNumber(requests)} are counted.`);
  return [
    branchTable(a, b),
    partial.length && element("p", { class: "aside", id: "compare-partial" }, partial.join(" ")),
    element("p", { id: "compare-start" }, first ? `${common} ${describeFirst(first)}` : `The histories are equal: ${formatCount(same, "item")}.`),
    ...cacheEffect(request),
    ...(first ? textDifference(first.a && { item: first.a, number: first.at + 1 }, first.b && { item: first.b }) : []),
    first && element("div", { class: "side-by-side" }, column("a", a.name), column("b", b.name)),
    ...notes.filter(Boolean).map((note) => element("p", { class: "note" }, note)),
  ].filter(Boolean);
}

function describeFirst({ at, path, a, b }) {
  if (!a || !b) return `${a ? "B" : "A"} ends there.`;
  return `The first difference is item ${formatNumber(at + 1)}${path ? `, at ${path}` : ""}.`;
}

function branchTable(a, b) {
  const usage = (name) => ({ own_usage: own }) => formatNumber(own?.[name]);
  const head = ({ handle, head: id, name }) => element("a", { href: id && id !== handle ? address(handle, id) : address(handle) }, name);
  const rows = [
    ["Branch", head],
    ["Model", ({ model }) => modelParts(model ?? "-")],
    ["Items", ({ items }) => formatNumber(items)],
    ["Requests", ({ requests }) => formatNumber(requests)],
    ["Requests only here", ({ own_requests: own }) => formatNumber(own)],
    ["Their input tokens", usage("input_tokens")],
    ["Their cached tokens", usage("cached_tokens")],
    ["Their output tokens", usage("output_tokens")],
    ["Their cost", ({ own_known_cost_usd: cost, own_unpriced: unpriced, own_requests: own }) => formatTotalCost(cost, unpriced, own) ?? "-"],
  ];
  return element(
    "div",
    { class: "scrollable", tabindex: "0", role: "region", "aria-label": "Figures of both branches" },
    element(
      "table",
      { class: "branches" },
      element("caption", { class: "hidden" }, "Figures of both branches"),
      element("thead", {}, element("tr", {}, element("td"), ...["A", "B"].map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map(([name, content]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, content(a)), element("td", {}, content(b))))),
    ),
  );
}

/** Return the name of a model in two parts, so that a line breaks after the provider and not inside the name. */
function modelParts(model) {
  const start = model.indexOf("/") + 1;
  return [model.slice(0, start), model.slice(start)].map((part) => part && element("span", { class: "fact" }, part));
}

/** Describe the effect on the prompt cache and its cost: the last request of B after that of A. */
function cacheEffect(request) {
  if (!request) return [element("p", { class: "aside" }, "The cache cannot be compared: one side has no stored request.")];
  const { prefix_tokens: prefix, estimated, expected_cached_tokens: expected, path, missed_cost_usd: missed } = request;
  const { reported_cached_tokens: cached, reported_input_tokens: input } = request;
  const [, last] = request.requests;
  const from = path ? ` and differs from ${path} on` : "";
  const sentences = [
    prefix
      ? `Cache: the last request of B begins with ${estimated ? "about " : ""}${formatCount(prefix, "token")} of the last request of A${from}. Of them ${formatNumber(expected)} can come from the provider's cache.`
      : `Cache: the last request of B can use nothing of the last request of A: it differs from ${path || "its start"} on.`,
    cached === null ? ` ${last} reported no usage.` : ` ${last} reported ${formatNumber(cached)} cached of ${formatCount(input, "input token")}.`,
    missed > 0 && ` The missed cache cost ${formatCost(missed)}.`,
  ];
  return [element("p", { id: "compare-cache" }, sentences.filter(Boolean).join(""))];
}
