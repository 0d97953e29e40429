// The list of conversations: a table, or a narrow list beside an open conversation.

import { element, formatCost, formatCount, formatNumber, formatTime } from "./make.js";
import { columnHeading, statusLabel } from "./requests.js";

// The names of conversations without a session.
const RESPONSE_OR_CONVERSATION = /^(resp|conv|try)_/;
const STATUS_OF_REQUEST = { done: "completed", running: "in_progress" };

// The columns after the title: heading, order of the server, class, content of a row.
const LIST_COLUMNS = [
  ["Used", "used", "time", ({ used_at: usedAt }) => (usedAt === null ? "" : formatTime(usedAt))],
  ["Created", "created", "created", ({ created_at: createdAt }) => formatTime(createdAt)],
  ["Owner", "", "owner", (row) => (row.kind === "recording" ? (row.client ?? "recording") : row.strategy)],
  ["Model", "model", "model", (row) => row.model],
  ["Status", "status", "status", ({ status }) => statusLabel(STATUS_OF_REQUEST[status] ?? status)],
  ["Turns", "turns", "number turns", (row) => formatNumber(row.turns)],
  ["Cost", "", "number cost", (row) => (row.cost_usd === null ? "-" : formatCost(row.cost_usd))],
];

/** Create the list; `selected` is the open handle, `showMore` is called to show a longer list. */
export function conversationList(listing, { selected, showMore }) {
  const titles = listing.data.map(entryTitle);
  const repeatedTitles = new Set(titles.filter((title, index) => titles.indexOf(title) !== index));
  if (!listing.data.length) return [element("p", { class: "aside" }, "No conversations yet.")];
  const entries = listing.data.map((conversation) => listEntry(conversation, selected, repeatedTitles));
  return [element("h2", {}, "Conversations"), element("ul", {}, ...entries), ...listMoreButton(listing, showMore)];
}

function listMoreButton(listing, showMore) {
  const button = element("button", { type: "button", id: "list-more", class: "more", click: showMore }, "Show more");
  return listing.next ? [button] : [];
}

/**
 * Create the search and the table.
 *
 * view:        the order and the words: { sort, order, q }
 * changeView:  called with the changed parts of the view
 */
export function conversationTable(listing, view, { changeView, showMore }) {
  const search = element("input", { id: "conversations-q", type: "search", autocomplete: "off", input: ({ target }) => changeView({ q: target.value }) });
  search.value = view.q;
  const form = element(
    "form",
    { class: "filters", role: "search", "aria-label": "Search conversations", submit: (event) => event.preventDefault() },
    element("div", { class: "search" }, element("label", { for: "conversations-q" }, "Search"), search),
  );
  const shownView = { ...view, sort: view.sort || (view.q ? "rank" : "used") };
  const headings = [["Conversation", "", "title"], ...LIST_COLUMNS].map((column) =>
    column[1] ? columnHeading(column, shownView, changeView) : element("th", { scope: "col", class: column[2] }, column[0]),
  );
  const table = element(
    "table",
    { class: "requests-table conversations-table" },
    element("caption", { class: "hidden" }, "Conversations, with their owner, status, turns and cost"),
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...listing.data.map(conversationRow)),
  );
  const region = element("div", { class: "scrollable", tabindex: "0", role: "region", "aria-label": "Conversations, scrollable table" }, table);
  const searched = element("p", { class: "aside", role: "status" }, listing.searched);
  return [form, listing.searched && searched, region, ...listMoreButton(listing, showMore)].filter(Boolean);
}

/** Create a row: the title with what was found, or with the number of forks below it. */
function conversationRow(row) {
  const title = entryTitle(row);
  const forks = row.forks ? formatCount(row.forks, "fork") : "";
  const note = [row.hit ? `${row.hit.by}: ${row.hit.snippet}` : title === row.name && row.first_words, forks].filter(Boolean).join(" · ");
  return element(
    "tr",
    {},
    element("th", { scope: "row", class: "title" }, element("a", { href: address(row.id), id: `open-${row.id}` }, title), note && element("span", { class: "note" }, note)),
    ...LIST_COLUMNS.map(([, , className, content]) => element("td", { class: className }, content(row))),
  );
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

function summarize({ strategy, items, unacknowledged, status, used_at: usedAt }) {
  const parts = [
    strategy,
    typeof items === "number" && formatCount(items, "item"),
    unacknowledged && `${formatNumber(unacknowledged)} unconfirmed`,
    status !== "done" && status,
    usedAt !== null && formatTime(usedAt),
  ];
  return parts.filter(Boolean).join(" · ");
}
