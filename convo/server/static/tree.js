// The links of a conversation as a tree, one row a link, with items sent, input items and tokens.
//
// A chain is drawn straight, a fork one step to the right, as in `convo inspect`. The bars next to the
// numbers have one scale for the whole conversation; a screen reader reads the numbers instead.

import { tokenUsage } from "./conversation.js";
import { element, formatNumber, svgElement } from "./make.js";
import { pagedList } from "./paged.js";
import { statusWord } from "./requests.js";

const BARS = [
  ["sent", "sent (estimated)", (link) => link.sent_tokens],
  ["context", "model input", (link) => tokenUsage(link)?.input],
  ["cached", "cached input", (link) => tokenUsage(link)?.cached],
  ["output", "output", (link) => tokenUsage(link)?.output],
];
const [MAX_BAR_WIDTH, BAR_HEIGHT] = [120, 5];

// The columns: heading and class.
const TREE_COLUMNS = [
  ["Response", null],
  ["Owner", "narrow-hidden"],
  ["Sent", "narrow-hidden"],
  ["Context", "number narrow-hidden"],
  ["Input", "number"],
  ["Cached", "number narrow-hidden"],
  ["Output", "number"],
  ["Tokens", "bars-column"],
];

/**
 * Create the tree as a table.
 *
 * selected:  the id of the link that is shown in full; its row is always drawn
 * address:   returns the page's address of a link
 * compare:   called with the ids of two links whose boxes are checked; without it the rows have no boxes
 */
export function linkTree(conversation, { selected, address, compare }) {
  const { rows, data, shortIds } = conversation;
  const maxTokens = rows.reduce((max, link) => Math.max(max, ...BARS.map(([, , tokens]) => tokens(link) ?? 0)), 1);
  const body = element("tbody");
  const checked = compare && rows.length > 1 ? comparedLinks(data.handle) : null;
  const selectedIndex = selected ? data.rows.indexOf(selected) : -1;
  const parts = pagedList({
    name: "tree",
    list: body,
    count: rows.length,
    draw: (index) => linkRow(rows[index], { maxTokens, selected, address, head: data.at, shortIds, checked }),
    around: selectedIndex < 0 ? undefined : selectedIndex,
    wrap: () => linkTable(body),
  });
  return [legend(), checked && compareControl(checked, body, compare), ...parts].filter(Boolean);
}

// The ids of at most two links whose boxes are checked, by handle: they stay when the page is drawn again.
const checkedLinks = new Map();

function comparedLinks(handle) {
  if (!checkedLinks.has(handle)) checkedLinks.set(handle, []);
  return checkedLinks.get(handle);
}

/** Create the button that compares the two checked links; a third check replaces the first. */
function compareControl(checked, body, compare) {
  const button = element("button", { type: "button", id: "compare-checked", click: () => compare(...checked) }, "Compare the two branches");
  const show = () => (button.disabled = checked.length < 2);
  body.addEventListener("change", ({ target }) => {
    if (target.checked) checked.push(target.value);
    else checked.splice(checked.indexOf(target.value), 1);
    if (checked.length > 2) checked.shift();
    for (const box of body.querySelectorAll("input[type=checkbox]")) box.checked = checked.includes(box.value);
    show();
  });
  show();
  return element("p", { class: "note compare-control" }, button, "Check two requests to compare the branches that end there.");
}

function linkTable(body) {
  const column = ([heading, className]) => element("th", { scope: "col", class: className }, heading);
  return element(
    "div",
    { class: "scrollable", tabindex: "0", role: "region", "aria-label": "Requests, scrollable table" },
    element(
      "table",
      { class: "tree", keydown: moveFocus },
      element(
        "caption",
        { class: "hidden" },
        "All requests: items sent, items in the context, and tokens used",
      ),
      element("thead", {}, element("tr", {}, ...TREE_COLUMNS.map(column))),
      body,
    ),
  );
}

function linkRow(link, { maxTokens, ...options }) {
  const usage = tokenUsage(link);
  const numbers = [link.items_saw, usage?.input, usage?.cached, usage?.output].map(formatNumber);
  const sent = `${link.full ? "full" : "delta"} ${formatNumber(link.items_sent)}`;
  const cells = [link.strategy, sent, ...numbers, tokenBars(link, maxTokens)];
  return element(
    "tr",
    { class: link.status },
    element("th", { scope: "row" }, ...rowHeading(link, options)),
    ...cells.map((content, index) => element("td", { class: TREE_COLUMNS[index + 1][1] }, content)),
  );
}

function rowHeading(link, { selected, address, head, shortIds, checked }) {
  const id = link.response_id;
  const lines = "│ ".repeat(Math.max(0, link.depth - (link.begins ? 1 : 0))) + (link.begins ? "├─" : "");
  const mark = id === head ? "@" : link.status === "completed" ? "●" : "○";
  const status = link.status !== "completed" && statusWord(link.status);
  const notes = [link.begins && "fork", id === head && "head", status, link.cache_miss?.outcome === "miss" && "cache missed"];
  const preview = [link.said, link.answered].filter(Boolean).join(" → ");
  const current = id === selected && "true";
  const box = checked && element("input", { type: "checkbox", id: `check-${id}`, value: id, "aria-label": `Compare ${id}` });
  if (box) box.checked = checked.includes(id);
  return [
    element("span", { class: "tree-lines", "aria-hidden": "true" }, `${lines}${mark} `),
    element("a", { href: address(id), id: `link-${id}`, title: id, "aria-current": current }, shortIds.get(id)),
    box,
    element("span", { class: "note" }, ` ${notes.filter(Boolean).join(", ")}`),
    element("span", { class: "preview" }, preview),
  ];
}

function tokenBars(link, maxTokens) {
  const width = (tokens) => Math.round(((tokens(link) ?? 0) / maxTokens) * MAX_BAR_WIDTH);
  const rectangles = BARS.map(([kind, , tokens], index) =>
    svgElement("rect", { class: kind, y: index * BAR_HEIGHT, height: BAR_HEIGHT - 1, width: width(tokens) }),
  );
  const viewBox = `0 0 ${MAX_BAR_WIDTH} ${BARS.length * BAR_HEIGHT}`;
  return svgElement("svg", { class: "bars", viewBox, "aria-hidden": "true" }, ...rectangles);
}

function legend() {
  const square = (kind) => svgElement("rect", { class: kind, width: 10, height: 10 });
  const sample = (kind) => svgElement("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, square(kind));
  const entries = BARS.map(([kind, label]) => element("li", {}, sample(kind), ` ${label}`));
  return element("ul", { class: "legend tree-legend", "aria-label": "Tokens of each request" }, ...entries);
}

/** Move the focus: up and down by one link, Home and End to the first and the last drawn link. */
function moveFocus(event) {
  const links = [...event.currentTarget.querySelectorAll("tbody a")];
  const index = links.indexOf(document.activeElement);
  const target = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: links.length - 1 }[event.key];
  if (index < 0 || links[target] === undefined) return;
  event.preventDefault();
  links[target].focus();
}
