// The list of conversations: the sessions of this store, and the conversations of other clients of its endpoint.

import { counted, element, figure, time } from "./make.js";

/** Create the list; `selected` is the open handle, `more` is called to show a longer list. */
export function conversations(found, { selected, more }) {
  const groups = [
    ["Sessions", found.sessions],
    ["Other clients", found.others],
  ];
  const drawn = groups
    .filter(([, list]) => list.length)
    .flatMap(([head, list]) => [
      element("h2", {}, head),
      element("ul", {}, ...list.map((one) => entry(one, selected))),
    ]);
  if (!drawn.length) return [element("p", { class: "aside" }, "No conversations yet.")];
  const longer = element("button", { type: "button", id: "list-more", class: "more", click: more }, "Show more");
  return found.more ? [...drawn, longer] : drawn;
}

/** Return the page's address of a conversation, or of one request in it. */
export function address(handle, link) {
  return ["#", ...[handle, link].filter(Boolean).map((id) => encodeURIComponent(id.toWellFormed()))].join("/");
}

function entry(one, selected) {
  const current = [one.id, one.name].includes(selected) && "page";
  return element(
    "li",
    {},
    element("a", { href: address(one.id), id: `open-${one.id}`, "aria-current": current }, one.name),
    element("span", { class: "note" }, summed(one)),
    element("span", { class: "words" }, one.first_words),
  );
}

/** Summarize a conversation; those of other clients have a status instead of figures. */
function summed({ strategy, items, unacknowledged, status, used_at: used }) {
  const waiting = unacknowledged && `${figure(unacknowledged)} unconfirmed`;
  const unfinished = status !== "completed" && status;
  const parts = [strategy, items !== undefined && counted(items, "item"), waiting, unfinished, used !== null && time(used)];
  return parts.filter(Boolean).join(" · ");
}
