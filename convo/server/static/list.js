// The list of conversations: the sessions of this store, and the conversations of other clients of its endpoint.

import { element, formatCount, formatNumber, formatTime } from "./make.js";

// The names of conversations without a session.
const RESPONSE_OR_CONVERSATION = /^(resp|conv|try)_/;

/** Create the list; `selected` is the open handle, `showMore` is called to show a longer list. */
export function conversationList(listing, { selected, showMore }) {
  const groups = [
    ["Sessions", listing.sessions],
    ["Other clients", listing.others],
  ];
  const elements = groups
    .filter(([, conversations]) => conversations.length)
    .flatMap(([heading, conversations]) => [
      element("h2", {}, heading),
      element("ul", {}, ...conversations.map((conversation) => listEntry(conversation, selected))),
    ]);
  if (!elements.length) return [element("p", { class: "aside" }, "No conversations yet.")];
  const button = element("button", { type: "button", id: "list-more", class: "more", click: showMore }, "Show more");
  return listing.more ? [...elements, button] : elements;
}

/** Return the page's address of a conversation, or of one request in it. */
export function address(handle, responseId) {
  const parts = [handle, responseId].filter(Boolean).map((id) => encodeURIComponent(id.toWellFormed()));
  return ["#", ...parts].join("/");
}

function listEntry(conversation, selected) {
  const { id, name, first_words: firstWords } = conversation;
  const current = [id, name].includes(selected) && "page";
  const isUnnamed = RESPONSE_OR_CONVERSATION.test(name) && id === name && firstWords !== "";
  return element(
    "li",
    {},
    element("a", { href: address(id), id: `open-${id}`, "aria-current": current }, isUnnamed ? firstWords : name),
    element("span", { class: "note" }, summarize(conversation)),
    element("span", { class: isUnnamed ? "preview id" : "preview" }, isUnnamed ? name : firstWords),
  );
}

/** Summarize a conversation; those of other clients have a status instead of counts. */
function summarize({ strategy, items, unacknowledged, status, used_at: usedAt }) {
  const parts = [
    strategy,
    items !== undefined && formatCount(items, "item"),
    unacknowledged && `${formatNumber(unacknowledged)} unconfirmed`,
    status !== "completed" && status,
    usedAt !== null && formatTime(usedAt),
  ];
  return parts.filter(Boolean).join(" · ");
}
