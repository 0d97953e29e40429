// The links of a conversation as a tree, one row a link, with items sent, input items and tokens.
//
// A chain is drawn straight, a fork one step to the right, as in `convo inspect`. The bars next to the
// figures have one scale for the whole conversation; a screen reader reads the figures instead.

import { used } from "./conversation.js";
import { drawing, element, figure } from "./make.js";
import { paged } from "./paged.js";

const BARS = [
  ["sent", "sent (estimated)", (link) => link.sent_tokens],
  ["seen", "model input", (link) => used(link)?.input],
  ["cached", "cached input", (link) => used(link)?.cached],
  ["output", "output", (link) => used(link)?.output],
];
const [WIDE, HIGH] = [120, 5];

/**
 * Create the tree as a table.
 *
 * selected:  the id of the link that is shown in full; its row is always drawn
 * address:   returns the page's address of a link
 */
export function tree(conversation, { selected, address }) {
  const { rows, found } = conversation;
  const most = rows.reduce((high, link) => Math.max(high, ...BARS.map(([, , of]) => of(link) ?? 0)), 1);
  const body = element("tbody");
  const around = selected ? found.rows.indexOf(selected) : -1;
  const parts = paged({
    name: "tree",
    list: body,
    count: rows.length,
    draw: (at) => row(rows[at], { most, selected, address, head: found.at, names: conversation.names }),
    around: around < 0 ? undefined : around,
    within: () => framed(body),
  });
  return [legend(), ...parts];
}

function framed(body) {
  const heads = ["Response", "Owner", "Sent", "Context", "Input", "Cached", "Output", "Tokens"];
  const numbers = heads.slice(3, 7);
  const column = (head) => element("th", { scope: "col", class: numbers.includes(head) && "number" }, head);
  return element(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": "Requests, scrollable table" },
    element(
      "table",
      { keydown: walk },
      element(
        "caption",
        { class: "hidden" },
        "All requests: items sent, items in the context, and tokens used",
      ),
      element("thead", {}, element("tr", {}, ...heads.map(column))),
      body,
    ),
  );
}

function row(link, { most, ...shown }) {
  const spent = used(link);
  const numbers = [link.items_saw, spent?.input, spent?.cached, spent?.output];
  return element(
    "tr",
    { class: link.status },
    element("th", { scope: "row" }, ...name(link, shown)),
    element("td", {}, link.strategy),
    element("td", {}, `${link.full ? "full" : "delta"} ${figure(link.items_sent)}`),
    ...numbers.map((number) => element("td", { class: "number" }, figure(number))),
    element("td", {}, bars(link, most)),
  );
}

function name(link, { selected, address, head, names }) {
  const at = link.response_id;
  const step = "│ ".repeat(Math.max(0, link.depth - (link.begins ? 1 : 0))) + (link.begins ? "├─" : "");
  const mark = at === head ? "@" : link.status === "completed" ? "●" : "○";
  const told = [link.begins && "fork", at === head && "head", link.status !== "completed" && link.status];
  const words = [link.said, link.answered].filter(Boolean).join(" → ");
  const current = at === selected && "true";
  return [
    element("span", { class: "lines", "aria-hidden": "true" }, `${step}${mark} `),
    element("a", { href: address(at), id: `link-${at}`, title: at, "aria-current": current }, names.get(at)),
    element("span", { class: "note" }, ` ${told.filter(Boolean).join(", ")}`),
    element("span", { class: "words" }, words),
  ];
}

function bars(link, most) {
  const width = (of) => Math.round(((of(link) ?? 0) / most) * WIDE);
  const drawn = BARS.map(([kind, , of], at) =>
    drawing("rect", { class: kind, y: at * HIGH, height: HIGH - 1, width: width(of) }),
  );
  const viewBox = `0 0 ${WIDE} ${BARS.length * HIGH}`;
  return drawing("svg", { class: "bars", viewBox, "aria-hidden": "true" }, ...drawn);
}

function legend() {
  const square = (kind) => drawing("rect", { class: kind, width: 10, height: 10 });
  const sample = (kind) => drawing("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, square(kind));
  const lines = BARS.map(([kind, words]) => element("li", {}, sample(kind), ` ${words}`));
  return element("ul", { class: "legend", "aria-label": "Tokens of each request" }, ...lines);
}

/** Move the focus: up and down by one link, Home and End to the first and the last drawn link. */
function walk(event) {
  const links = [...event.currentTarget.querySelectorAll("tbody a")];
  const at = links.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
  if (at < 0 || links[to] === undefined) return;
  event.preventDefault();
  links[to].focus();
}
