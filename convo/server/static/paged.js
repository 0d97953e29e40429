// Long lists, drawn in part: a conversation may have ten thousand items, and the layout of all of
// them would block the browser. Two buttons show the entries before and after the part.

import { element, formatNumber } from "./make.js";

const drawnRanges = new Map();

/** Reset every list to its newest entries. */
export function resetRanges() {
  drawnRanges.clear();
}

/**
 * Draw the part of a list around one of its entries.
 *
 * name:    the list's name; when it is drawn again, the same part is shown
 * list:    the element that contains the entries
 * count:   number of entries
 * draw:    creates the entry with an index
 * around:  index of an entry that is always drawn; by default the last
 * page:    number of entries that are drawn at first, and added by a button
 * wrap:    creates the element that contains the list
 * returns: the list between its two buttons
 */
export function pagedList({ name, list, count, draw, around = count - 1, page = 100, wrap = (node) => node }) {
  let { from, to } = initialRange(drawnRanges.get(name), count, Math.max(0, around), page);
  const earlier = moreButton(name, "earlier", () => extend(Math.max(0, from - page), to));
  const later = moreButton(name, "later", () => extend(from, Math.min(count, to + page)));
  list.setAttribute("tabindex", "-1");

  function extend(newFrom, newTo) {
    const drawRange = (start, end) => Array.from({ length: end - start }, (_, offset) => draw(start + offset));
    list.prepend(...drawRange(newFrom, from));
    list.append(...drawRange(to, newTo));
    [from, to] = [newFrom, newTo];
    drawnRanges.set(name, { from, to, count });
    updateButton(earlier, "earlier", from, page);
    updateButton(later, "later", count - to, page);
    if (document.activeElement?.hidden) list.focus();
  }

  const [first, last] = [from, to];
  to = from;
  extend(first, last);
  return [earlier, wrap(list), later];
}

/** Return the range to draw: the previous range if it contains the entry, else the page around the entry. */
function initialRange(previous, count, around, page) {
  if (previous) {
    const to = previous.to === previous.count ? count : previous.to;
    if (previous.from <= around && around < to && to <= count) return { from: previous.from, to };
  }
  const to = Math.min(count, Math.max(page, around + Math.ceil(page / 2)));
  return { from: Math.max(0, to - page), to };
}

function moreButton(name, direction, click) {
  return element("button", { type: "button", id: `${name}-${direction}`, class: "more", click });
}

function updateButton(button, direction, hiddenCount, page) {
  button.hidden = hiddenCount === 0;
  const shownCount = Math.min(page, hiddenCount);
  button.textContent = `Show ${formatNumber(shownCount)} ${direction} (${formatNumber(hiddenCount)} hidden)`;
}
