// The inspector: a table of requests, a list of conversations, and one conversation as a tree of requests.
//
// The query of the address is the view of the table; #conversations is the list, #/HANDLE or #/HANDLE/RESPONSE a
// conversation, #compare/A/B two branches. The page draws what it fetches, and fetches again while it is visible: the table when the
// feed of changes reports one (every second without the feed), a conversation often while a response is in
// progress and seldom otherwise, at most two seconds after a slow reply.

import { pendingCalls, showApprovals, showPendingCount } from "./approvals.js";
import { RequestCharts } from "./charts.js";
import { ANSWERED_STATUSES, Conversation, UNFINISHED_STATUSES } from "./conversation.js";
import { knownTab, markTab, requestDetail, updateContinuations } from "./detail.js";
import { branchDifference, comparisonAddress, comparisonForm } from "./difference.js";
import { compactionPreview } from "./compaction.js";
import { exportLinks } from "./export.js";
import { isUserMessage, itemList, itemText } from "./items.js";
import { handleKey, showKeys } from "./keys.js";
import { useMarkdown } from "./markdown.js";
import { linkSection } from "./link.js";
import { address, conversationList, conversationTable } from "./list.js";
import { definitionList, element, formatCount, formatNumber, formatTime, formatTokens, formatTotalCost } from "./make.js";
import { resetRanges } from "./paged.js";
import { filterQuery, hasFilters, listQuery, markOpenRow, parseView, requestFilters, requestLatency, requestTable, rowTitle, statusWord, updateFilters, updateRowAddresses, updateTimes, viewAddress } from "./requests.js";
import { agentRuns } from "./runs.js";
import { KeyRequired, openSource } from "./source.js";
import { firstRequests } from "./start.js";
import { linkTree } from "./tree.js";
import { describeRequests, usageChart } from "./usage.js";

const [RUNNING_POLL_MS, IDLE_POLL_MS, CHANGE_POLL_MS, REOPEN_FEED_MS] = [300, 1000, 100, 5000];
const [MAX_TABLE_PAUSE_MS, MAX_PAUSE_MS] = [500, 2000];
const TITLE_CHARS = 80;
const UNSTORED_ID = /^req_/; // the id of a request, which no stored response has
const [PAGE_REQUESTS, MAX_REFRESHED_REQUESTS, SEARCH_DELAY_MS, TICK_MS] = [50, 200, 200, 1000];
const [PAGE_CONVERSATIONS, MAX_LISTED] = [50, 1000];
const source = openSource();
const byId = (id) => document.getElementById(id);

// The data on the page: `list` and `mainVersion` are compared with new data, so that only changes are drawn.
// `followed` is the response that the page follows a chain to, "" at first.
const NO_DATA = { list: "", listHandle: "", conversation: null, mainVersion: "", running: [], followed: "" };
const NO_REQUESTS = { requests: null, requestsQuery: null, detail: null };
const page = { kind: "", handle: "", responseId: "", other: undefined, limit: 50, paused: [], listView: { sort: "", order: "desc", q: "" }, ...NO_DATA, ...NO_REQUESTS };
page.view = parseView(location.search);
let pollTimer = 0;
let pollNumber = 0;
let polledAt = -Infinity;
let pollDurationMs = 0;
let searchTimer = 0;
let isPolling = false;
let feed = null; // the feed of changes: its controller, and whether it is open
let charts = null; // those of the table on the page
let isOutdated = false; // the feed reported a change after the last poll started

/** Return the kind of the page in the address, with the handle and the response id of a conversation, or two handles. */
function parseAddress() {
  const [start, handle = source.onlyHandle ?? "", responseId = ""] = location.hash.split("/").map(decodePart);
  if (start === "#compare" && source.isLive) return { kind: "compare", handle, responseId };
  const isList = start === "#conversations" || !source.isLive;
  return { kind: handle ? "conversation" : isList ? "conversations" : "requests", handle, responseId };
}

function decodePart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand, not a valid encoding
  }
}

/** Open the page in the address, and move the focus there, as a browser does with a page. */
async function openAddress() {
  if (!["", "#conversations", "#compare"].includes(location.hash) && !/^#(compare)?\//.test(location.hash)) return;
  const { kind, handle, responseId } = parseAddress();
  const isFirst = page.kind === "";
  const hasMoved = kind !== page.kind || handle !== page.handle || responseId !== page.responseId;
  if (handle !== page.handle) Object.assign(page, { conversation: null, running: [], followed: "" });
  if (kind !== page.kind) Object.assign(page, NO_REQUESTS);
  Object.assign(page, { kind, handle, responseId, other: undefined, mainVersion: "", view: parseView(location.search) });
  resetRanges();
  document.body.dataset.kind = kind;
  for (const name of ["requests", "conversations", "compare"]) {
    const isCurrent = name === (kind === "conversation" ? "conversations" : kind);
    if (isCurrent) byId(`view-${name}`).setAttribute("aria-current", "page");
    else byId(`view-${name}`).removeAttribute("aria-current");
  }
  if (page.conversation && kind !== "compare") drawMain();
  const polled = poll();
  if (!page.conversation || kind === "compare") await polled;
  if (!hasMoved || (isFirst && kind === "requests")) return;
  (byId("link-title") ?? byId("conversation-title"))?.focus();
}

/** Fetch the data of the page, draw changes, and schedule the next poll. */
async function poll() {
  clearTimeout(pollTimer);
  const number = (pollNumber += 1);
  const isCurrent = () => number === pollNumber;
  polledAt = performance.now();
  isOutdated = false;
  isPolling = true;
  byId("forget").hidden = !source.hasKey;
  try {
    await ({ requests: updateRequests, compare: updateComparison }[page.kind] ?? update)(isCurrent);
  } catch (error) {
    if (!isCurrent()) return;
    if (error instanceof KeyRequired) return askForKey(error);
    showError(error);
  } finally {
    if (isCurrent()) isPolling = false;
  }
  if (!source.isLive || !isCurrent()) return;
  pollDurationMs = performance.now() - polledAt;
  followChanges();
  if (page.kind === "compare") return;
  const isGrowing = page.kind === "requests" ? byId("detail-text") : page.running.length;
  const idleMs = feed?.isOpen && page.kind === "requests" ? Infinity : IDLE_POLL_MS;
  schedulePoll(isOutdated ? CHANGE_POLL_MS : isGrowing ? RUNNING_POLL_MS : idleMs);
}

/**
 * Poll after a delay, and after slow polls with a pause that is short enough to show each answer while it grows.
 * A poll in progress is not replaced: if changes came faster than the server replies, none would ever be drawn.
 */
function schedulePoll(delayMs) {
  if (isPolling) return; // its end schedules the next one
  clearTimeout(pollTimer);
  if (delayMs === Infinity) return;
  const isTable = page.kind === "requests";
  const pauseMs = isTable ? Math.min(3 * pollDurationMs, MAX_TABLE_PAUSE_MS) : Math.min(10 * pollDurationMs, MAX_PAUSE_MS);
  pollTimer = setTimeout(poll, Math.max(0, Math.max(delayMs, pauseMs) - (performance.now() - polledAt)));
}

/** Keep the feed of changes open while the table is visible; until it can be opened again, the table is polled. */
function followChanges() {
  const isWanted = page.kind === "requests" && !document.hidden;
  if (!isWanted) closeFeed();
  if (feed || !isWanted) return;
  const controller = new AbortController();
  const opened = (feed = { controller, isOpen: true });
  const changed = () => {
    if (feed !== opened) return;
    isOutdated = true;
    schedulePoll(CHANGE_POLL_MS);
  };
  const reopen = () => {
    if (feed !== opened) return;
    feed = null;
    followChanges();
  };
  const ended = () => {
    if (feed !== opened) return;
    opened.isOpen = false;
    setTimeout(reopen, REOPEN_FEED_MS);
    schedulePoll(IDLE_POLL_MS);
  };
  source.followChanges(changed, controller.signal).then(ended, ended);
}

function closeFeed() {
  feed?.controller.abort();
  feed = null;
}

/** Fetch the list and the open conversation, and draw them unless a later poll has started. */
async function update(isCurrent) {
  if (document.hidden && page.mainVersion) return;
  const { running, paused = [], ...list } = await fetchList();
  if (!isCurrent()) return;
  setPaused(paused);
  const updateList = () => (JSON.stringify(list) !== page.list || page.listHandle !== shownHandle()) && drawList(list);
  updateList();
  const data = page.handle ? await fetchConversation(isCurrent) : { running };
  if (!isCurrent()) return;
  updateList(); // its mark follows the page
  page.running = data.running ?? [];
  drawMain();
}

/** Fetch the conversations up to the limit of the page, by the cursors of the server. */
async function fetchList() {
  const view = page.handle ? { sort: "", order: "", q: "" } : page.listView;
  const data = [];
  let part = {};
  do {
    part = await source.list(view, { limit: Math.min(page.limit - data.length, MAX_LISTED), after: part.next });
    data.push(...part.data);
  } while (part.next && data.length < page.limit);
  return { ...part, data };
}

function showMoreConversations() {
  page.limit += PAGE_CONVERSATIONS;
  poll();
}

function changeListView(change) {
  Object.assign(page.listView, change);
  page.limit = PAGE_CONVERSATIONS;
  clearTimeout(searchTimer);
  searchTimer = setTimeout(poll, "q" in change ? SEARCH_DELAY_MS : 0);
}

/**
 * Fetch the open conversation, and follow a chain whose end has a new continuation: the later one is the conversation
 * of its handle, with its own head, tree and totals. The history of a session is only shown through a continuation.
 */
async function fetchConversation(isCurrent) {
  const before = page.conversation;
  let followed = page.followed;
  let data;
  try {
    data = await source.conversation(shownHandle(), before?.data.version);
  } catch (error) {
    if (error instanceof KeyRequired || shownHandle() === page.handle) throw error;
    followed = ""; // the response was deleted
    data = await source.conversation(page.handle);
  }
  let conversation = data.links ? new Conversation(data) : before;
  if (before) {
    if (!conversation.isChain && before.data.at !== conversation.data.at) followed = "";
    followed = findContinuation(before, conversation, followed || conversation.data.at, data.running ?? []) ?? followed;
    if (conversation.isChain && followed && followed !== conversation.data.at) {
      data = await source.conversation(followed);
      conversation = new Conversation(data);
    }
  }
  if (isCurrent()) Object.assign(page, { conversation, followed });
  return data;
}

/**
 * Return the id of the last response that continues `end` and has ended since the data `before`; undefined if none has.
 *
 * A failed one counts if its text was on the page, until a retry has an answer. Of a session, only those count whose
 * text was on the page: the others are requests of other clients.
 */
function findContinuation(before, { links, data, isChain }, end, running) {
  const idsOf = (responses) => new Set(responses.map(({ response_id: id }) => id));
  const [shownIds, runningIds] = [idsOf(page.running), idsOf(running)];
  const isAnswered = ({ status }) => ANSWERED_STATUSES.includes(status);
  const hasEnded = ({ response_id: id, status }) => !runningIds.has(id) && !UNFINISHED_STATUSES.includes(status);
  const isNew = ({ response_id: id }) => !before.links.has(id) || !hasEnded(before.links.get(id)) || shownIds.has(id);
  const mayFollow = (link) => shownIds.has(link.response_id) || (isChain && isAnswered(link));
  const added = new Set([...links.values()].filter((link) => hasEnded(link) && isNew(link) && mayFollow(link)));
  added.delete(links.get(data.at));
  let found;
  for (let link = links.get(end); link; link = links.get(found)) {
    added.delete(link);
    const isRetried = !isAnswered(link) && link.response_id === (found ?? page.followed);
    const parents = isRetried ? [link.response_id, link.parent] : [link.response_id];
    const next = [...added].find((other) => parents.includes(other.parent));
    if (!next) break;
    found = next.response_id;
  }
  return found;
}

/** Return the handle whose conversation is on the page: that of the address, or the response that it follows to. */
function shownHandle() {
  return (page.conversation?.isChain && page.followed) || page.handle;
}

/** Fetch the comparison of two branches once, and the conversations and requests that the form proposes. */
async function updateComparison(isCurrent) {
  const [a, b] = [page.handle, page.responseId];
  const fetched = [fetchList(), source.requests("", { limit: PAGE_REQUESTS }), a && b ? source.compare(a, b) : null];
  const [{ data, paused }, requests, comparison] = await Promise.all(fetched);
  if (!isCurrent()) return;
  setPaused(paused);
  const version = JSON.stringify([a, b, comparison]);
  if (version !== page.mainVersion) {
    const stored = requests.data.filter((row) => row.is_stored !== false);
    drawComparison(data, stored, comparison ? branchDifference(comparison) : [element("p", {}, COMPARE_HELP)]);
    page.mainVersion = version;
  }
  setStatus("Up to date");
}

const COMPARE_HELP = "Choose two recent requests or conversations, or enter a session, a conversation or a response by its id. The page of a conversation has boxes to choose two of its requests.";

function drawComparison(conversations, requests, content) {
  const choose = (a, b) => (location.hash = comparisonAddress(a, b));
  const handles = conversations.map(({ id, name, first_words: firstWords }) => [id, name === id ? firstWords : name]);
  const recent = requests.map((row) => [row.id, [rowTitle(row), row.model, formatTime(row.created_at)].join(" · ")]);
  const form = comparisonForm({ a: page.handle, b: page.responseId }, { recent, handles }, choose);
  document.title = "Compare · convo";
  byId("main").replaceChildren(titleHeading("Compare two branches"), form, ...content);
}

// -- the table of requests -----------------------------------------------------------------------

/** Fetch the first rows of the table and the request in the pane, and draw them unless a later poll has started. */
async function updateRequests(isCurrent) {
  if (document.hidden && page.requests) return;
  const query = listQuery(page.view);
  const knownRequests = () => (page.requestsQuery === query ? page.requests : null);
  const limit = Math.min(Math.max(PAGE_REQUESTS, knownRequests()?.data.length ?? 0), MAX_REFRESHED_REQUESTS);
  const request = page.detail?.id === page.view.request ? page.view.request : ""; // a new pane fetches its own
  const fetched = await source.requests(query, { limit, request });
  if (!isCurrent()) return;
  page.continued = { id: request, ids: fetched.continued ?? [] };
  const known = knownRequests(); // rows may have been added meanwhile
  const ids = new Set(fetched.data.map((row) => row.id));
  const rest = known && known.data.length > limit ? known.data.slice(limit).filter((row) => !ids.has(row.id)) : [];
  page.requests = { ...fetched, data: [...fetched.data, ...rest], next: rest.length ? known.next : fetched.next };
  page.requestsQuery = query;
  setPaused(fetched.paused);
  drawRequests();
  charts?.update(filterQuery(page.view), page.view.charts === "open");
  await updateDetail(isCurrent);
}

/** Follow a request in progress to its later id: that of its response, of its recording's end, or of a row with a count. */
function followRequest() {
  const { request: id } = page.view;
  const open = page.openRow?.row;
  if (findRow(id) || !id || open?.id !== id || open.status !== "in_progress") return;
  const isSuccessor = (other) => {
    if (other.request_id === open.request_id && open.request_id) return true;
    if (other.created_at === open.created_at) return true;
    if (other.is_stored === false) return other.api === open.api && other.model === open.model && Math.floor(other.created_at) === Math.floor(open.created_at);
    return other.title === open.title && other.created_at > open.created_at - 1 && !page.openRow.knownIds.has(other.id);
  };
  const next = allRows().find(isSuccessor);
  if (!next) return;
  page.streamed = null;
  changeView({ request: next.id }, { replace: true });
}

/** Fetch the request in the pane unless it is there with its present status. */
async function updateDetail(isCurrent) {
  followRequest();
  const { request: id, compare } = page.view;
  const status = findRow(id)?.status;
  const isKnown = page.detail?.id === id && page.detail.status === status && page.detail.compare === compare;
  if (!id || isKnown) return;
  const isRunning = page.requests.running.some((row) => row.id === id);
  const isUnstored = findRow(id)?.is_stored === false || UNSTORED_ID.test(id);
  const detail = { id, status, compare, conversation: null, message: isUnstored ? "The content of this request is not stored." : "" };
  if (!isRunning && !isUnstored) {
    try {
      detail.conversation = new Conversation(await source.request(id, compare));
    } catch (error) {
      if (error instanceof KeyRequired) throw error;
      detail.message = error.message;
    }
  }
  if (!isCurrent() || page.view.request !== id || page.view.compare !== compare) return;
  page.detail = detail;
  drawDetail();
}

/** Fetch the request in the pane without the table; one in progress grows with the table. */
async function loadDetail() {
  const { request: id } = page.view;
  if (page.requests.running.some((row) => row.id === id)) return poll();
  try {
    await updateDetail(() => page.kind === "requests" && page.requests !== null);
  } catch (error) {
    if (error instanceof KeyRequired) askForKey(error);
    else setStatus(error.message);
  }
}

function allRows() {
  return [...page.requests.running, ...page.requests.data];
}

function findRow(id) {
  return page.requests && allRows().find((row) => row.id === id);
}

/** Keep the paused runs, of which every view shows the number of pending calls. */
function setPaused(runs) {
  page.paused = runs;
  showPendingCount(runs);
}

function drawRequests() {
  const rows = allRows();
  const { view, requests } = page;
  document.title = "Requests · convo";
  if (!rows.length && !hasFilters(view)) {
    const emptyVersion = requests.is_recording ? "empty, recording" : "empty";
    if (page.mainVersion !== emptyVersion) byId("main").replaceChildren(...emptyStore(), ...recordingNote());
    page.mainVersion = emptyVersion;
    return setStatus("Up to date");
  }
  if (!byId("request-list")) byId("main").replaceChildren(requestsPage());
  updateFilters(byId("request-list").querySelector("form"), view, requests);
  const tableView = { ...view, request: "", compare: "", tab: "", charts: "" }; // the rest is updated in place
  const rowsWithoutText = rows.map((row) => ({ ...row, text: null })); // a text that grows is in the pane only
  const { next, is_search_limited: isLimited, paused, not_recorded: notRecorded } = requests;
  const version = JSON.stringify([tableView, rowsWithoutText, next, isLimited, paused, notRecorded]);
  if (version !== page.mainVersion) {
    page.mainVersion = version;
    const table = requestTable(rows, view, { open: openRequest, changeView });
    const parts = [...pausedRuns(paused), ...notRecordedNote(notRecorded), ...(rows.length ? [table] : []), ...tableNotes(rows)];
    keepFocus(() => byId("request-rows").replaceChildren(...parts));
  }
  updateRowAddresses(byId("request-rows"), view);
  markOpenRow(byId("request-rows"), view.request);
  drawDetail();
  const runningCount = rows.filter(({ status }) => status === "in_progress" || status === "queued").length;
  setStatus(runningCount ? `${formatCount(runningCount, "request")} in progress` : "Up to date");
}

function requestsPage() {
  const chooseTime = (range) => {
    changeView(range);
    byId("charts-summary").focus(); // the bar is gone with the next charts
  };
  charts = new RequestCharts({ fetchCharts: (query) => source.charts(query), toggle: toggleCharts, chooseTime });
  return element(
    "div",
    { id: "request-list" },
    element(
      "section",
      { class: "request-list", "aria-labelledby": "conversation-title" },
      titleHeading("Requests"),
      ...requestFilters(page.view, changeFilters),
      charts.details,
      element("div", { id: "request-rows" }),
    ),
    element("aside", { id: "detail", "aria-label": "Request", hidden: true }),
  );
}

function tableNotes(rows) {
  const { next, is_search_limited: isLimited } = page.requests;
  const showAll = element("button", { type: "button", id: "show-all", click: clearFilters }, "Show all requests");
  const more = element("button", { type: "button", id: "requests-more", class: "more", click: showMoreRequests }, "Show more");
  const limitNote = "More items match than the search considers: other requests may match, too.";
  return [
    !rows.length && element("p", {}, "No requests match these filters. ", showAll),
    isLimited && element("p", { class: "aside" }, limitNote),
    ...recordingNote(),
    next !== null && more,
  ].filter(Boolean);
}

function clearFilters() {
  byId("filter-clear").click();
  byId("main").focus(); // the button is gone with the next rows
}

/** Create the note that this server records requests; empty if it does not. */
function recordingNote() {
  const text = "Requests that are not stored are recorded: store: false, Chat Completions, Anthropic Messages (serve.record).";
  return page.requests.is_recording ? [element("p", { class: "aside", id: "recording" }, text)] : [];
}

/** Create the note that requests of known clients were not recorded; empty without any. */
function notRecordedNote(groups) {
  if (!groups.length) return [];
  const total = groups.reduce((sum, { count }) => sum + count, 0);
  const parts = groups.map(({ client, count }, index) => `${index ? formatNumber(count) : formatCount(count, "request")} of ${client}`);
  const text = `${parts.join(", ")} ${total === 1 ? "was" : "were"} not recorded: `;
  return [element("p", { class: "note", id: "not-recorded" }, text, element("code", {}, "convo serve --record"))];
}

async function showMoreRequests() {
  const { requestsQuery: query, requests } = page;
  try {
    const fetched = await source.requests(query, { limit: PAGE_REQUESTS, after: requests.next });
    if (page.requestsQuery !== query) return;
    const ids = new Set(page.requests.data.map((row) => row.id));
    const added = fetched.data.filter((row) => !ids.has(row.id));
    page.requests = { ...page.requests, data: [...page.requests.data, ...added], next: fetched.next };
    drawRequests();
    if (added.length) byId(`request-${added[0].id}`)?.focus();
  } catch (error) {
    setStatus(error.message);
  }
}

function drawDetail() {
  const pane = byId("detail");
  if (!pane) return;
  const { request: id, tab, compare } = page.view;
  const detail = page.detail?.id === id ? page.detail : null;
  const row = findRow(id);
  if (row) page.openRow = { row, knownIds: new Set(allRows().map((other) => other.id)) };
  if (row?.text !== undefined) page.streamed = { id, text: row.text };
  const text = page.streamed?.id === id ? page.streamed.text : undefined; // stays until the stored response is there
  const { conversation, message } = detail ?? {};
  const rows = allRows();
  const continued = page.continued?.id === id ? page.continued.ids : []; // also those that the filters leave out
  const children = [...new Set([...continued, ...rows.filter(({ parent }) => parent === id).map((child) => child.id)])];
  const isRecording = page.requests.is_recording;
  const state = { id, tab: knownTab(tab), row, rows, children, text, conversation, message, compare, isRecording };
  const others = state.tab === "diff" ? [...(conversation?.links.keys() ?? [])] : [];
  const version = id && JSON.stringify([id, tab, compare, row, text, Boolean(conversation), message, others]);
  const childrenVersion = JSON.stringify(children);
  const hasSameChildren = pane.dataset.children === childrenVersion;
  pane.dataset.children = childrenVersion;
  if (pane.dataset.version === version) {
    if (!hasSameChildren) updateContinuations(state, { openRequest });
    return;
  }
  const isSame = page.drawnDetail === `${id} ${tab}`;
  page.drawnDetail = `${id} ${tab}`;
  const scrollTop = isSame ? pane.scrollTop : 0; // read before a change: afterwards it would cause a layout
  pane.dataset.version = version;
  pane.hidden = !id;
  byId("request-list").classList.toggle("has-detail", Boolean(id));
  if (!id) return pane.replaceChildren();
  const chooseTab = (name) => {
    resetRanges();
    changeView({ tab: name === "conversation" ? "" : name }, { replace: true, isDrawnLater: true });
    markTab(name);
  };
  const chooseOther = (other) => {
    changeView({ compare: other }, { replace: true });
    loadDetail();
  };
  const actions = { close: closeRequest, chooseTab, source, openRequest, chooseOther };
  keepFocus(() => pane.replaceChildren(...requestDetail(state, actions)));
  if (!isSame || scrollTop) pane.scrollTop = scrollTop;
}

/**
 * Change the view and its address; a new order or filter is fetched at once.
 *
 * isDrawnLater:  draw after the next frame, so that a mark that the caller sets is shown first
 * drawn:         called after that
 */
function changeView(changes, { replace = false, isDrawnLater = false, drawn = () => {} } = {}) {
  const before = page.view;
  const changed = { ...before, ...changes };
  page.view = changed;
  const url = `${location.pathname}${viewAddress(page.view)}${location.hash}`; // a search may come after a click on another view
  history[replace ? "replaceState" : "pushState"](null, "", url);
  if (listQuery(before) !== listQuery(page.view)) {
    setStatus("Loading…"); // drawn in the next frame, also if the server takes its time
    poll();
  } else if (isDrawnLater) afterPaint(changed, drawn);
  else if (page.requests) drawRequests();
}

/** Draw after the next frame, unless the view has changed again until then: each change draws itself. */
function afterPaint(view, drawn) {
  const draw = () => {
    if (page.view !== view || page.kind !== "requests" || !page.requests) return;
    drawRequests();
    drawn();
  };
  if (document.hidden) draw(); // a hidden page has no frames
  else requestAnimationFrame(() => setTimeout(draw));
}

function toggleCharts(isOpen) {
  const state = isOpen ? "open" : "";
  if (state !== page.view.charts) changeView({ charts: state }, { replace: true });
}

/** Change a filter; a search waits until no key was pressed for a moment. */
function changeFilters(changes) {
  clearTimeout(searchTimer);
  const change = () => changeView(changes, { replace: true });
  if ("q" in changes && !("status" in changes)) searchTimer = setTimeout(change, SEARCH_DELAY_MS);
  else change();
  if ("q" in changes && "status" in changes) byId("filter-q").value = "";
}

function openRequest(id) {
  resetRanges();
  const drawn = () => {
    byId("detail-title")?.focus();
    loadDetail(); // after the first frame: an early response would be drawn before it
  };
  changeView({ request: id, compare: "" }, { replace: Boolean(page.view.request), isDrawnLater: true, drawn });
  markOpenRow(byId("request-rows"), id);
}

function closeRequest() {
  const id = `request-${page.view.request}`;
  byId(id)?.focus({ preventScroll: true }); // first: the removal of a focused element causes a layout of its own
  const drawn = () => {
    if (document.activeElement === document.body) byId(id)?.focus(); // in a narrow window the pane had hidden it
    else if (document.activeElement?.id === id) byId(id).scrollIntoView({ block: "nearest" });
  };
  changeView({ request: "", tab: "", compare: "" }, { isDrawnLater: true, drawn });
  markOpenRow(byId("request-rows"), "");
}

/** Move the focus by one row; an open pane shows the row. */
function moveRow(step) {
  const links = [...document.querySelectorAll("main tbody th a")];
  const focused = links.indexOf(document.activeElement?.closest("tr")?.querySelector("th a"));
  const current = focused >= 0 ? focused : links.findIndex((link) => link.getAttribute("aria-current"));
  const target = links[current < 0 ? 0 : current + step];
  if (!target) return;
  target.focus();
  if (page.kind !== "requests" || !page.view.request) return;
  const { id } = target;
  resetRanges();
  changeView({ request: id.slice("request-".length), compare: "" }, { replace: true });
  loadDetail();
  byId(id)?.focus();
}

/** Move the focus to the search; in a narrow window its button shows it first, unless the pane covers the table. */
function focusSearch() {
  const field = byId("filter-q");
  if (!field.checkVisibility()) byId("filters-toggle").click();
  field.focus();
}

function closePage() {
  if (page.kind === "requests") return page.view.request && closeRequest();
  if (!source.isLive) return undefined;
  location.hash = page.responseId ? address(page.handle) : "";
  return undefined;
}

// -- drawing -------------------------------------------------------------------------------------

function drawList(list) {
  Object.assign(page, { list: JSON.stringify(list), listHandle: shownHandle() });
  byId("list").hidden = !page.handle && source.isLive;
  const elements = page.handle || !source.isLive ? conversationList(list, { selected: shownHandle(), showMore: showMoreConversations }) : [];
  keepFocus(() => byId("list").replaceChildren(...elements));
}

function drawMain() {
  const data = page.conversation?.data;
  const shown = [page.handle, page.responseId, page.other, page.followed];
  const version = JSON.stringify([...shown, data?.version ?? [page.list, page.listView]]);
  if (version !== page.mainVersion) {
    page.mainVersion = version;
    const elements = data ? conversationView(page.conversation) : conversations(JSON.parse(page.list));
    const draw = () => byId("main").replaceChildren(...elements.filter(Boolean), element("div", { id: "running" }));
    const shownPart = `${page.handle} ${page.responseId}`;
    if (page.drawnPart === shownPart) keepScroll(() => keepFocus(draw));
    else keepFocus(draw);
    if (page.drawnPart !== shownPart) showNewestBars();
    page.drawnPart = shownPart;
    document.title = data ? `${data.name} · convo` : "convo";
  }
  drawRunning();
}

function conversations(list) {
  if (!list.data.length && !page.listView.q) return emptyStore();
  const heading = titleHeading("Conversations");
  if (!source.isLive) return [heading, element("p", {}, "Choose a conversation.")];
  return [heading, ...conversationTable(list, page.listView, { changeView: changeListView, showMore: showMoreConversations })];
}

function emptyStore() {
  const text = "No conversations yet. A conversation appears here when it is stored.";
  return [titleHeading("Inspector"), element("p", {}, text), ...ownerHint(), ...(source.isLive ? firstRequests(source.hasKey) : [])];
}

function ownerHint() {
  if (!source.isLive || !source.hasKey) return [];
  const text = "Each key sees only its own conversations. The key named local sees the chats of this machine.";
  return [element("p", { class: "aside" }, text)];
}

function titleHeading(text) {
  return element("h2", { id: "conversation-title", tabindex: "-1" }, text);
}

function conversationView(conversation) {
  const { data } = conversation;
  const link = conversation.links.get(page.responseId);
  const continued = continuedNote("Continued in ", childrenOf(conversation, link), (id) => address(page.handle, id));
  return [
    titleHeading(conversationTitle(conversation)),
    conversationFacts(conversation),
    ...data.notes.map((note) => element("p", { class: "aside" }, note)),
    ...(data.links.length ? requestTree(conversation) : []),
    ...exportLinks(source, shownHandle(), (error) => setStatus(error.message)),
    ...compactionPreview(source, shownHandle()),
    ...agentRuns(source, conversation, page.handle, (id) => address(page.handle, id)),
    ...(link ? [linkSection(conversation, link, { other: page.other, compare, source, continued })] : historySection(conversation)),
  ];
}

/** Return the name of a session, and for a conversation without a name the start of its first text. */
function conversationTitle(conversation) {
  const { name, is_session: isSession } = conversation.data;
  const first = isSession ? undefined : conversation.path().find(({ item }) => isUserMessage(item))?.item;
  const text = first ? itemText(first).trim().replaceAll(/\s+/g, " ") : "";
  return text.length > TITLE_CHARS ? `${text.slice(0, TITLE_CHARS)}…` : text || name;
}

function requestTree(conversation) {
  const compareBranches = source.isLive ? (a, b) => (location.hash = comparisonAddress(a, b)) : undefined;
  const elements = linkTree(conversation, { selected: page.responseId, address: (id) => address(page.handle, id), compare: compareBranches });
  const open = (id) => (location.hash = address(page.handle, id));
  return [element("h3", {}, "Requests"), ...usageChart(conversation, page.responseId, open), ...elements];
}

function conversationFacts(conversation) {
  const { data } = conversation;
  const unconfirmedCount = data.unacknowledged.length;
  return definitionList([
    ["Owner", data.owner],
    ["Handle", data.handle],
    ["Endpoint", data.endpoint],
    ["Model", data.model],
    ["Head", `${formatCount(data.items_at_head, "item")}${data.at ? `, @ ${data.at}` : ""}`],
    ["Agent run", data.run && runFacts(data.run)],
    ["Unconfirmed", unconfirmedCount ? formatCount(unconfirmedCount, "item") : "none"],
    ["Total", data.total && formatTotal(data.total, describeRequests(conversation, true))],
    ["Other requests", data.other_requests && formatTotal(data.other_requests, describeRequests(conversation, false))],
  ]);
}

/** Describe an open agent run: the calls that need approval, and the commands that list and decide them. */
function runFacts({ id, is_paused: isPaused, process, pending }) {
  if (!isPaused) return process ? `in progress in ${process}` : "interrupted during its calls";
  if (!pending.length) return "paused: all calls are decided; convo resume continues the run";
  return [`paused: ${needsApproval(pending)}`, pendingCalls(source, id, pending, poll), approvalCommands()];
}

function needsApproval(pending) {
  return `${formatCount(pending.length, "tool call")} ${pending.length === 1 ? "needs" : "need"} approval`;
}

function approvalCommands() {
  return element("span", { class: "note" }, "convo resume continues a run whose calls are all decided");
}

/** Create the list of the paused runs above the table; nothing if there are none. */
function pausedRuns(runs) {
  if (!runs.length) return [];
  const entries = runs.map(({ run_id: id, session, pending }) =>
    element(
      "li",
      {},
      element("a", { href: address(session), id: `paused-${id}` }, session),
      pending.length ? `: ${needsApproval(pending)}` : ": all calls are decided; convo resume continues the run",
      pendingCalls(source, id, pending, poll),
    ),
  );
  const heading = element("h3", { id: "paused-title" }, `Paused: ${formatCount(runs.length, "agent run")}`);
  return [
    element("section", { class: "paused", "aria-labelledby": "paused-title" }, heading, element("ul", {}, ...entries), approvalCommands()),
  ];
}

function formatTotal(total, { ended, resentUncached }) {
  const { requests, resent_tokens: resent, input_tokens: input, cached_tokens: cached, output_tokens: output } = total;
  const fact = (text) => element("span", { class: "fact" }, text);
  const reported = `${formatNumber(requests)} of ${formatCount(ended, "request")} reported usage`;
  const uncached = fact(`(${formatNumber(resentUncached)} uncached)`);
  const parts = [
    ended > requests ? reported : formatCount(requests, "request"),
    formatTokens({ input, cached, output }),
    resent && element("span", {}, fact(`${formatNumber(resent)} re-sent`), " ", uncached),
    formatTotalCost(total.known_cost_usd, total.unpriced, requests),
  ];
  return parts.filter(Boolean).flatMap((part, index) => [index > 0 && " · ", part]);
}

function historySection(conversation) {
  const { data, links } = conversation;
  const followed = links.get(page.followed);
  const input = !conversation.isChain && followed && conversation.modelInput(followed);
  const entries = input ? [...input, ...conversation.output(followed)] : conversation.path();
  const addressOf = (id) => (source.isLive ? address(id) : address(page.handle, id));
  return [
    element("h3", {}, "History"),
    followed && continuedNote("This page follows the conversation: continued in ", [followed], addressOf),
    ...itemList("path", entries, "h4"),
    continuedNote("Continued in ", childrenOf(conversation, followed ?? links.get(data.at)), addressOf),
  ];
}

function childrenOf(conversation, link) {
  return link ? conversation.rows.filter(({ parent }) => parent === link.response_id) : [];
}

/** Create a note with links to the responses that continue a response; null without one. */
function continuedNote(text, links, addressOf) {
  const parts = links.flatMap(({ response_id: id }, index) => [
    index > 0 && ", ",
    element("a", { href: addressOf(id), id: `continued-${id}` }, id),
  ]);
  return parts.length ? element("p", { class: "note" }, text, ...parts) : null;
}

function compare(other) {
  page.other = other;
  drawMain();
}

/** Report an error; a conversation that is already drawn stays. */
function showError(error) {
  if (page.kind === "compare") {
    drawComparison([], [], [element("p", { role: "alert" }, error.message)]);
    return setStatus("Cannot compare");
  }
  if (page.kind === "requests" ? !page.requests : !page.conversation) {
    page.mainVersion = "";
    const message = element("p", {}, error.message);
    const heading = page.kind === "requests" ? "Cannot show the requests" : "Cannot show the conversation";
    byId("main").replaceChildren(titleHeading(heading), message);
  }
  return setStatus(error.message);
}

/** Draw the responses in progress; their text grows in place. */
function drawRunning() {
  const { running, conversation } = page;
  byId("running").replaceChildren(...running.map(runningResponse));
  const idleText = source.isLive ? "Up to date" : "Loaded from a file";
  const name = source.isLive && !running.length ? conversation?.data.name : "";
  setStatus(running.length ? `${formatCount(running.length, "response")} in progress` : idleText, name && `: ${name}`);
}

function runningResponse({ response_id: id, status, phase, created_at: createdAt, model, text }) {
  const elapsed = phase === "waiting" && [" · ", requestLatency({ status, latency_s: null, created_at: createdAt })];
  return element(
    "article",
    { class: "assistant running", "aria-label": `${id}, in progress` },
    element("h3", {}, `${id} `, element("span", { class: "note" }, `${statusWord(phase ?? status)} · ${model}`, ...(elapsed || []))),
    element("p", {}, text || "…"),
  );
}

/** Update the status text if it has changed: a screen reader reads every update, with the name of the conversation. */
function setStatus(text, name = "") {
  if (byId("state").dataset.text === text + name) return;
  byId("state").dataset.text = text + name;
  byId("state").replaceChildren(element("span", {}, text), name && element("span", { class: "hidden" }, name));
}

/** Draw, and return the focus to the new element with the id of the focused one. */
function keepFocus(draw) {
  const { id } = document.activeElement ?? {};
  draw();
  if (!id || document.activeElement?.id === id) return;
  // the row of a waiting request has another id as soon as its response has one
  const renamed = () => document.querySelector(`tr[data-request-id="${CSS.escape(id.replace("request-", ""))}"] th a`);
  (byId(id) ?? renamed())?.focus({ preventScroll: true });
}

/** Draw the same part of a conversation again: the first visible element with an id and the boxes do not scroll. */
function keepScroll(draw) {
  const boxes = () => [...byId("main").querySelectorAll(".scrollable")];
  const scrolled = boxes().map(({ scrollLeft }) => scrollLeft);
  const bars = usageBars();
  const isAtEnd = bars && bars.scrollLeft + bars.clientWidth >= bars.scrollWidth - 1;
  const topOf = (node) => node.getBoundingClientRect().top;
  const isInView = (node) => node.getClientRects().length && topOf(node) >= 0;
  const anchor = scrollY > 0 && [...byId("main").querySelectorAll("[id]")].find(isInView);
  const [id, top] = anchor ? [anchor.id, topOf(anchor)] : [];
  draw();
  if (id && byId(id)) scrollBy({ top: topOf(byId(id)) - top, behavior: "instant" });
  boxes().forEach((node, index) => (node.scrollLeft = scrolled[index] ?? 0));
  if (isAtEnd) usageBars()?.scrollTo({ left: Number.MAX_SAFE_INTEGER, behavior: "instant" });
}

/** Return the box of the bars, which scrolls; null without one. */
function usageBars() {
  return document.querySelector(".usage .scrollable");
}

/** Scroll the bars to the newest one, or to that of the shown request. */
function showNewestBars() {
  const bars = usageBars();
  if (!bars) return;
  const leftOf = (node) => node.getBoundingClientRect().left;
  const selected = bars.querySelector(".usage-bar.selected");
  const offset = selected && leftOf(selected) - leftOf(bars) + bars.scrollLeft;
  bars.scrollLeft = offset ? offset - bars.clientWidth / 2 : bars.scrollWidth;
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
  Object.assign(page, { ...NO_DATA, ...NO_REQUESTS });
  closeFeed();
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

if (source.isLive) useMarkdown((texts) => source.markdown(texts));
addEventListener("hashchange", openAddress);
addEventListener("popstate", () => {
  page.view = parseView(location.search);
  if (page.kind === parseAddress().kind && page.kind === "requests") poll();
});
document.addEventListener("visibilitychange", () => (document.hidden ? followChanges() : poll()));
document.addEventListener("keydown", (event) =>
  handleKey(event, {
    next: () => moveRow(1),
    previous: () => moveRow(-1),
    open: () => page.view.request || moveRow(0),
    close: closePage,
    search: focusSearch,
  }),
);
byId("forget").addEventListener("click", forgetKey);
byId("keys").addEventListener("click", showKeys);
byId("approvals").addEventListener("click", () => showApprovals(source, page.paused, poll));
byId("approvals").hidden = !source.isLive;
byId("views").hidden = !source.isLive;
setInterval(() => updateTimes(byId("main")), TICK_MS);
openAddress();
