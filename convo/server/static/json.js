// JSON as a tree whose objects and arrays fold; a folded value is created when it is opened.

import { element, formatCount } from "./make.js";

const [MAX_MEMBERS, LONG_TEXT_CHARS, OPEN_LEVELS, MAX_OPEN_VALUES] = [100, 300, 6, 300];

/** Create the tree of `value`; the first levels are open, as far as they have few values. */
export function jsonTree(value, label) {
  const tree = element("div", { class: "json", role: "group", "aria-label": label, tabindex: "0" });
  tree.append(jsonNode(value, null, OPEN_LEVELS, { left: MAX_OPEN_VALUES }));
  return tree;
}

function jsonNode(value, name, openLevels, budget) {
  const key = name === null ? [] : [element("span", { class: "json-key" }, `${name}: `)];
  if (value === null || typeof value !== "object") return element("div", {}, ...key, jsonValue(value));
  const members = Array.isArray(value) ? value.map((member, index) => [index, member]) : Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (!members.length) return element("div", {}, ...key, brackets);
  const isOpen = openLevels > 0 && budget.left > 0;
  budget.left -= members.length;
  const noun = Array.isArray(value) ? "item" : "member";
  const list = element("ul", {});
  let drawn = 0;
  const more = element("button", { type: "button", class: "more", click: draw });
  function draw() {
    const end = Math.min(members.length, drawn + MAX_MEMBERS);
    const nodes = members.slice(drawn, end).map(([child, member]) => jsonNode(member, String(child), openLevels - 1, budget));
    list.append(...nodes.map((node) => element("li", {}, node)));
    drawn = end;
    more.hidden = drawn === members.length;
    more.textContent = `Show more (${formatCount(members.length - drawn, noun)} hidden)`;
  }
  const toggle = ({ target }) => target.open && !drawn && draw();
  const summary = element("summary", {}, ...key, `${brackets[0]}…${brackets[1]} `, element("span", { class: "note" }, formatCount(members.length, noun)));
  if (isOpen) draw();
  return element("details", { open: isOpen, toggle }, summary, list, more);
}

function jsonValue(value) {
  const text = JSON.stringify(value) ?? "undefined";
  if (text.length <= LONG_TEXT_CHARS) return element("code", { class: `json-${value === null ? "null" : typeof value}` }, text);
  const code = element("code", { class: "json-string" }, `${text.slice(0, LONG_TEXT_CHARS)}…`);
  const open = ({ currentTarget }) => {
    code.replaceChildren(element("span", {}, text));
    currentTarget.remove();
  };
  return element("span", {}, code, " ", element("button", { type: "button", click: open }, `Show all (${formatCount(text.length, "character")})`));
}
