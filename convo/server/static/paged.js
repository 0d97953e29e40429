// Long lists, drawn in part: a conversation may have ten thousand items, and the layout of all of
// them would block the browser. Two buttons show the entries before and after the part.

import { element, figure } from "./make.js";

const spans = new Map();

/** Reset every list to its newest entries. */
export function startOver() {
  spans.clear();
}

/**
 * Draw the part of a list around one of its entries.
 *
 * name:    the list's name; when it is drawn again, the same part is shown
 * list:    the element that contains the entries
 * count:   number of entries
 * draw:    creates the entry with an index
 * around:  index of an entry that is always drawn; by default the last
 * returns: the list between its two buttons
 */
export function paged({ name, list, count, draw, around = count - 1, page = 100, within = (made) => made }) {
  let { from, to } = span(spans.get(name), count, Math.max(0, around), page);
  const earlier = button(name, "earlier", () => show(Math.max(0, from - page), to));
  const later = button(name, "later", () => show(from, Math.min(count, to + page)));
  list.setAttribute("tabindex", "-1");

  function show(newFrom, newTo) {
    const added = (low, high) => Array.from({ length: high - low }, (_, at) => draw(low + at));
    list.prepend(...added(newFrom, from));
    list.append(...added(to, newTo));
    [from, to] = [newFrom, newTo];
    spans.set(name, { from, to, count });
    label(earlier, "earlier", from, page);
    label(later, "later", count - to, page);
    if (document.activeElement?.hidden) list.focus();
  }

  const [first, last] = [from, to];
  to = from;
  show(first, last);
  return [earlier, within(list), later];
}

/** Return the part to draw: the previous part if it contains the entry, else the page around the entry. */
function span(before, count, around, page) {
  if (before) {
    const to = before.to === before.count ? count : before.to;
    if (before.from <= around && around < to && to <= count) return { from: before.from, to };
  }
  const to = Math.min(count, Math.max(page, around + Math.ceil(page / 2)));
  return { from: Math.max(0, to - page), to };
}

function button(name, which, click) {
  return element("button", { type: "button", id: `${name}-${which}`, class: "more", click });
}

function label(made, which, left, page) {
  made.hidden = left === 0;
  made.textContent = `Show ${figure(Math.min(page, left))} ${which} (${figure(left)} hidden)`;
}
