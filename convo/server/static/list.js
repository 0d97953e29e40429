// The list of conversations: the sessions of this store, and the conversations of other clients of its endpoint.

import { element, formatCount, formatNumber, formatTime } from "./make.js";
import { statusWord } from "./requests.js";

// The names of conversations without a session.
const RESPONSE_OR_CONVERSATION = /^(resp|conv|try)_/;

/** Create the list; `selected` is the open handle, `showMore` is called to show a longer list. */
export function conversationList(listing, { selected, showMore }) {
  const groups = [
    ["Sessions", listing.sessions],
    ["Other conversations", listing.others],
  ];
  const titles = groups.flatMap(([, conversations]) => conversations.map(entryTitle));
  const repeatedTitles = new Set(titles.filter((title, index) => titles.indexOf(title) !== index));
  const elements = groups
    .filter(([, conversations]) => conversations.length)
    .flatMap(([heading, conversations]) => [
      element("h2", {}, heading),
      element("ul", {}, ...conversations.map((conversation) => listEntry(conversation, selected, repeatedTitles))),
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

/** Return the name of a session, and for a conversation without a name its first words. */
function entryTitle({ id, name, first_words: firstWords }) {
  return isUnnamed(id, name) && firstWords ? firstWords : name;
}

function isUnnamed(id, name) {
  return RESPONSE_OR_CONVERSATION.test(name) && id === name;
}

/** Create an entry. The id of a conversation is visible if its title is its id, or that of another one, too. */
function listEntry(conversation, selected, repeatedTitles) {
  const { id, name, first_words: firstWords } = conversation;
  const current = [id, name].includes(selected) && "page";
  const title = entryTitle(conversation);
  const details = title === name ? firstWords : repeatedTitles.has(title) && id;
  return element(
    "li",
    {},
    element("a", { href: address(id), id: `open-${id}`, title: title === id ? null : id, "aria-current": current }, title),
    element("span", { class: "note" }, summarize(conversation)),
    details && element("span", { class: details === id ? "preview id" : "preview" }, details),
  );
}

/** Summarize a conversation; those of other clients have a status instead of counts. */
function summarize({ strategy, items, unacknowledged, status, used_at: usedAt }) {
  const parts = [
    strategy,
    items !== undefined && formatCount(items, "item"),
    unacknowledged && `${formatNumber(unacknowledged)} unconfirmed`,
    status && status !== "completed" && statusWord(status),
    usedAt !== null && formatTime(usedAt),
  ];
  return parts.filter(Boolean).join(" · ");
}
