// What can be opened: the sessions of this store, and what other clients asked its endpoint for.

import { counted, element, time } from "./make.js";

/** The list; `selected` is the handle that is open, `more` is called for a longer one. */
export function conversations(found, { selected, more }) {
  const groups = [
    ["Sessions", found.sessions, (one) => `${one.strategy} · ${counted(one.items, "item")}${one.unacknowledged ? `, ${one.unacknowledged} waiting` : ""}`],
    ["Other clients", found.others, (one) => `${one.strategy}${one.status === "completed" ? "" : ` · ${one.status}`}`],
  ];
  const drawn = groups.filter(([, list]) => list.length).flatMap(([head, list, about]) => [
    element("h2", {}, head),
    element("ul", {}, ...list.map((one) => entry(one, about(one), selected))),
  ]);
  if (!drawn.length) return [element("p", { class: "aside" }, "There is no conversation yet.")];
  const longer = element("button", { type: "button", id: "list-more", class: "more", click: more }, "Show more");
  return found.more ? [...drawn, longer] : drawn;
}

/** The page's address of a conversation, or of one request in it. */
export function address(handle, link) {
  return ["#", ...[handle, link].filter(Boolean).map((id) => encodeURIComponent(id.toWellFormed()))].join("/");
}

function entry(one, about, selected) {
  const current = one.id === selected && "page";
  return element(
    "li",
    {},
    element("a", { href: address(one.id), id: `open-${one.id}`, "aria-current": current }, one.name),
    element("span", { class: "note" }, one.used_at === null ? about : `${about} · ${time(one.used_at)}`),
    element("span", { class: "words" }, one.first_words),
  );
}
