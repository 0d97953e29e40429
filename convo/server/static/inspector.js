// The inspector: a list of conversations, and one of them as a tree of requests.
//
// The address names the conversation: #/HANDLE or #/HANDLE/RESPONSE. The page fetches it from its
// source, draws it, and polls while the page is visible: often while a response is in progress, seldom
// otherwise, and never for more than a tenth of the time.

import { Conversation } from "./conversation.js";
import { itemList } from "./items.js";
import { linkSection } from "./link.js";
import { address, conversationList } from "./list.js";
import { definitionList, element, formatCost, formatCount, formatNumber, formatTokens } from "./make.js";
import { resetRanges } from "./paged.js";
import { KeyRequired, openSource } from "./source.js";
import { firstRequests } from "./start.js";
import { linkTree } from "./tree.js";

const [RUNNING_POLL_MS, IDLE_POLL_MS] = [300, 1000];
const source = openSource();
const byId = (id) => document.getElementById(id);

// The data on the page: `list` and `mainVersion` are compared with new data, so that only changes are drawn.
const NO_DATA = { list: "", listHandle: "", conversation: null, mainVersion: "", running: [] };
const page = { handle: "", responseId: "", other: undefined, limit: 50, ...NO_DATA };
let pollTimer = 0;
let pollNumber = 0;

/** Return the handle and the response id in the address. */
function parseAddress() {
  const [, handle = source.onlyHandle ?? "", responseId = ""] = location.hash.split("/").map(decodePart);
  return { handle, responseId };
}

function decodePart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand, not a valid encoding
  }
}

/** Open the conversation in the address, and move the focus there, as a browser does with a page. */
async function openAddress() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const { handle, responseId } = parseAddress();
  const hasMoved = handle !== page.handle || responseId !== page.responseId;
  if (handle !== page.handle) Object.assign(page, { conversation: null, running: [] });
  Object.assign(page, { handle, responseId, other: undefined, mainVersion: "" });
  resetRanges();
  if (page.conversation) drawMain();
  const polled = poll();
  if (!page.conversation) await polled;
  if (hasMoved) (byId("link-title") ?? byId("conversation-title"))?.focus();
}

/** Fetch the data of the page, draw changes, and schedule the next poll. */
async function poll() {
  clearTimeout(pollTimer);
  const number = (pollNumber += 1);
  const isCurrent = () => number === pollNumber;
  const startedAt = performance.now();
  byId("forget").hidden = !source.hasKey;
  try {
    await update(isCurrent);
  } catch (error) {
    if (!isCurrent()) return;
    if (error instanceof KeyRequired) return askForKey(error);
    showError(error);
  }
  if (!source.isLive || !isCurrent()) return;
  const durationMs = performance.now() - startedAt;
  pollTimer = setTimeout(poll, Math.max(page.running.length ? RUNNING_POLL_MS : IDLE_POLL_MS, 10 * durationMs));
}

/** Fetch the list and the open conversation, and draw them unless a later poll has started. */
async function update(isCurrent) {
  if (document.hidden && page.mainVersion) return;
  const { handle } = page;
  const { running, ...list } = await source.list(page.limit);
  if (!isCurrent()) return;
  if (JSON.stringify(list) !== page.list || page.listHandle !== handle) drawList(list);
  const data = handle ? await source.conversation(handle, page.conversation?.data.version) : { running };
  if (!isCurrent()) return;
  if (data.links) page.conversation = new Conversation(data);
  page.running = data.running ?? [];
  drawMain();
}

// -- drawing -------------------------------------------------------------------------------------

function drawList(list) {
  Object.assign(page, { list: JSON.stringify(list), listHandle: page.handle });
  const showMore = () => {
    page.limit *= 2;
    poll();
  };
  const elements = conversationList(list, { selected: page.handle, showMore });
  keepFocus(() => byId("list").replaceChildren(...elements));
}

function drawMain() {
  const data = page.conversation?.data;
  const version = JSON.stringify([page.handle, page.responseId, page.other, data?.version ?? page.list]);
  if (version !== page.mainVersion) {
    page.mainVersion = version;
    const elements = data ? conversationView(page.conversation) : welcome(JSON.parse(page.list));
    keepFocus(() => byId("main").replaceChildren(...elements, element("div", { id: "running" })));
    document.title = data ? `${data.name} · convo` : "convo";
  }
  drawRunning();
}

function welcome({ sessions, others }) {
  const heading = titleHeading("Inspector");
  if (sessions.length + others.length) return [heading, element("p", {}, "Choose a conversation.")];
  const text = "No conversations yet. A conversation appears here when it is stored.";
  return [heading, element("p", {}, text), ...(source.isLive ? firstRequests(source.hasKey) : [])];
}

function titleHeading(text) {
  return element("h2", { id: "conversation-title", tabindex: "-1" }, text);
}

function conversationView(conversation) {
  const { data } = conversation;
  const link = conversation.links.get(page.responseId);
  return [
    titleHeading(data.name),
    conversationFacts(data),
    ...data.notes.map((note) => element("p", { class: "aside" }, note)),
    ...(data.links.length ? requestTree(conversation) : []),
    ...(link ? [linkSection(conversation, link, { other: page.other, compare })] : historySection(conversation)),
  ];
}

function requestTree(conversation) {
  const elements = linkTree(conversation, { selected: page.responseId, address: (id) => address(page.handle, id) });
  return [element("h3", {}, "Requests"), ...elements];
}

function conversationFacts(data) {
  const unconfirmedCount = data.unacknowledged.length;
  return definitionList([
    ["Owner", data.owner],
    ["Handle", data.handle],
    ["Endpoint", data.endpoint],
    ["Model", data.model],
    ["Head", `${formatCount(data.items_at_head, "item")}${data.at ? `, @ ${data.at}` : ""}`],
    ["Unconfirmed", unconfirmedCount ? formatCount(unconfirmedCount, "item") : "none"],
    ["Total", data.bill && formatTotal(data.bill)],
  ]);
}

function formatTotal({ requests, again, cost_usd: cost, ...usage }) {
  const parts = [
    formatCount(requests, "request"),
    formatTokens(usage),
    again && `${formatNumber(again)} re-sent`,
    cost !== null && formatCost(cost),
  ];
  return parts.filter(Boolean).join(" · ");
}

function historySection(conversation) {
  return [element("h3", {}, "History"), ...itemList("path", conversation.path(), "h4")];
}

function compare(other) {
  page.other = other;
  drawMain();
}

/** Report an error; a conversation that is already drawn stays. */
function showError(error) {
  if (!page.conversation) {
    page.mainVersion = "";
    const message = element("p", {}, error.message);
    byId("main").replaceChildren(titleHeading("Cannot show the conversation"), message);
  }
  setStatus(error.message);
}

/** Draw the responses in progress; their text grows in place. */
function drawRunning() {
  const { running, conversation } = page;
  byId("running").replaceChildren(...running.map(runningResponse));
  const loadedText = ["Up to date", conversation?.data.name].filter(Boolean).join(": ");
  const idleText = source.isLive ? loadedText : "Loaded from a file";
  setStatus(running.length ? `${formatCount(running.length, "response")} in progress` : idleText);
}

function runningResponse({ response_id: id, status, model, text }) {
  return element(
    "article",
    { class: "assistant running", "aria-label": `${id}, in progress` },
    element("h3", {}, `${id} `, element("span", { class: "note" }, `${status} · ${model}`)),
    element("p", {}, text || "…"),
  );
}

/** Update the status text if it has changed: a screen reader reads every update. */
function setStatus(text) {
  if (byId("state").textContent !== text) byId("state").textContent = text;
}

/** Draw, and return the focus to the new element with the id of the focused one. */
function keepFocus(draw) {
  const { id } = document.activeElement ?? {};
  draw();
  if (id && document.activeElement?.id !== id) byId(id)?.focus({ preventScroll: true });
}

// -- keys ----------------------------------------------------------------------------------------

function askForKey(error) {
  const refusal = source.hasKey ? error.message : "";
  source.removeKey();
  const attributes = { type: "password", autocomplete: "off", spellcheck: "false", required: true };
  const field = element("input", { id: "key", "aria-describedby": "key-note", ...attributes });
  const submit = (event) => {
    event.preventDefault();
    source.setKey(field.value.trim());
    poll();
  };
  Object.assign(page, NO_DATA);
  byId("list").replaceChildren();
  byId("main").replaceChildren(
    element(
      "form",
      { submit },
      element("h2", {}, "API key required"),
      element(
        "p",
        { id: "key-note" },
        "Use the same key as the clients of this server. It is stored until this tab is closed.",
      ),
      element(
        "p",
        {},
        element("label", { for: "key" }, "Key "),
        field,
        " ",
        element("button", { type: "submit" }, "Open"),
      ),
    ),
  );
  byId("forget").hidden = true;
  setStatus(refusal || "API key required");
  field.focus();
}

function forgetKey() {
  source.removeKey();
  poll();
}

addEventListener("hashchange", openAddress);
document.addEventListener("visibilitychange", () => document.hidden || poll());
byId("forget").addEventListener("click", forgetKey);
openAddress();
