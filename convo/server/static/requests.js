// The start of the page: a table of requests with its order and its filters, all of them in the address.
//
// ?sort=cost&order=asc&status=failed&model=M&session=S&q=words&request=resp_1&tab=raw reproduces the view. The
// server sorts and filters; this module only draws rows, and updates the ages and durations in place.

import { UNFINISHED_STATUSES } from "./conversation.js";
import { element, formatAge, formatCost, formatCount, formatNumber, formatSeconds, formatTime } from "./make.js";

const DEFAULT_VIEW = { sort: "created_at", order: "desc", status: "", model: "", session: "", q: "", tool: "", time: "", from: "", to: "", request: "", tab: "", compare: "", charts: "" };
const FILTERS = ["q", "status", "model", "session", "tool", "time", "from", "to"];
const TIMES = { hour: ["last hour", 3600], day: ["last day", 86400], week: ["last week", 7 * 86400] };
const LOCAL_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?$/;

// The signs of the statuses, and the words for them, which all parts of the page use.
const STATUSES = {
  queued: ["◷", "queued"],
  in_progress: ["◐", "in progress"],
  completed: ["●", "done"],
  incomplete: ["◒", "incomplete"],
  failed: ["✕", "failed"],
  cancelled: ["⊘", "cancelled"],
};
const PHASES = { waiting: ["◌", "waiting"], streaming: ["◐", "streaming"] }; // of a request in progress on a server
const LABELS = { ...STATUSES, ...PHASES };

export const API_NAMES = {
  responses: "Responses",
  compact: "Compaction",
  race: "Race",
  chat_completions: "Chat Completions",
  messages: "Anthropic Messages",
  embeddings: "Embeddings",
};

// The columns after the title: heading, order of the server, class, content of a row.
const COLUMNS = [
  ["Time", "created_at", "time", (row) => requestAge(row)],
  ["Model", "model", "model", (row) => row.model],
  ["Status", "status", "status", (row) => rowStatus(row)],
  ["Latency", "latency", "number latency", (row) => requestLatency(row)],
  ["Input", "input", "number input", (row) => formatNumber(row.input_tokens)],
  ["Cached", "cached", "number cached", (row) => cachedTokens(row)],
  ["Output", "output", "number output", (row) => formatNumber(row.output_tokens)],
  ["Cost", "cost", "number cost", (row) => (row.cost_usd === null ? "-" : formatCost(row.cost_usd))],
];
const TITLE_COLUMN = ["Request", "title", "title"];
const SORTABLE_COLUMNS = [TITLE_COLUMN, ...COLUMNS];
const ORDER_WORDS = { created_at: ["newest", "oldest"], title: ["Z", "A"], model: ["Z", "A"], status: ["Z", "A"] };
const TOKEN_COLUMNS = { input: "Input tokens", cached: "Cached input tokens", output: "Output tokens" };
const ASCENDING_FIRST = ["title", "model", "status"];

/** Return the view in the query of an address; unknown names and values are left out. */
export function parseView(search) {
  const given = new URLSearchParams(search);
  const view = { ...DEFAULT_VIEW };
  for (const name of Object.keys(view)) view[name] = given.get(name) ?? view[name];
  if (!SORTABLE_COLUMNS.some(([, sort]) => sort === view.sort)) view.sort = DEFAULT_VIEW.sort;
  if (!["asc", "desc"].includes(view.order)) view.order = DEFAULT_VIEW.order;
  if (view.status && !(view.status in STATUSES)) view.status = "";
  if (view.charts !== "open") view.charts = "";
  if (!(view.time in TIMES)) view.time = "";
  for (const name of ["from", "to"]) if (!LOCAL_TIME.test(view[name])) view[name] = "";
  return view;
}

/** Return the address of a view, without a part that is as by default; `names` limits the parts. */
export function viewAddress(view, names = Object.keys(DEFAULT_VIEW)) {
  const parts = names.filter((name) => view[name] !== DEFAULT_VIEW[name]).map((name) => [name, view[name].toWellFormed()]);
  return parts.length ? `?${new URLSearchParams(parts)}` : "";
}

/** Return the query of a view for the server. */
export function listQuery(view) {
  return viewAddress(serverView(view), ["sort", "order", ...FILTERS]);
}

/** Return the query of the filters alone, for the charts. */
export function filterQuery(view) {
  return viewAddress(serverView(view), FILTERS);
}

/** Return the view with its times in seconds since 1970; a time until now begins at a whole minute. */
function serverView(view) {
  const seconds = (text) => (text ? String(Math.floor(new Date(text).getTime() / 1000)) : "");
  const begin = view.time ? String(Math.floor(Date.now() / 60000) * 60 - TIMES[view.time][1]) : seconds(view.from);
  return { ...view, time: "", from: begin, to: view.time ? "" : seconds(view.to) };
}

/** Return the parts of a view that show the requests from one time until another, in seconds since 1970. */
export function timeRange(begin, end) {
  const [from, to] = [begin, end].map((seconds) => formatTime(seconds, seconds % 60 !== 0).replace(" ", "T"));
  return { from, to, time: "" };
}

export function hasFilters(view) {
  return countFilters(view) > 0;
}

/** Count the filters that are set; the times from and to are one. */
function countFilters(view) {
  return FILTERS.filter((name) => view[name] !== "" && !(name === "to" && view.from)).length;
}

/** Return the word for a status. */
export function statusWord(status) {
  return LABELS[status]?.[1] ?? status;
}

/** Create the sign and the word of a status, or of a phase. */
export function statusLabel(status) {
  const [sign] = LABELS[status] ?? ["○"];
  return element(
    "span",
    { class: `status-label ${status in LABELS ? status : ""}` },
    element("span", { "aria-hidden": "true" }, sign),
    ` ${statusWord(status)}`,
  );
}

// -- filters ---------------------------------------------------------------------------------------

let areFiltersOpen = false; // in a narrow window, where a button shows them

/** Create the filters, and the button that shows them in a narrow window; `change` is called with the changed parts of the view. */
export function requestFilters(view, change) {
  const onChange = (name) => (event) => change({ [name]: event.target.value.trim() });
  const search = element("input", { id: "filter-q", type: "search", input: onChange("q"), autocomplete: "off" });
  search.value = view.q;
  const select = (name) => element("select", { id: `filter-${name}`, change: onChange(name) });
  const moment = (name) => element("input", { id: `filter-${name}`, type: "datetime-local", change: ({ target }) => change({ [name]: target.value, time: "" }) });
  const order = element("select", { id: "filter-sort", change: ({ target }) => change(parseOrder(target.value)) });
  const labelled = (text, control, className) =>
    element("div", { class: className }, element("label", { for: control.id }, text), control);
  const clear = ({ target }) => (target.form.dataset.moments = "") || change(Object.fromEntries(FILTERS.map((name) => [name, ""])));
  const toggle = element("button", { type: "button", id: "filters-toggle", "aria-controls": "filters", click: () => show(!areFiltersOpen) });
  const form = element(
    "form",
    { id: "filters", class: "filters", role: "search", "aria-label": "Filter requests", submit: (event) => event.preventDefault() },
    labelled("Search", search, "search"),
    labelled("Status", select("status")),
    labelled("Model", select("model")),
    labelled("Session", select("session")),
    labelled("Tool", select("tool")),
    labelled("Time", element("select", { id: "filter-time", change: onTimeChange(change) })),
    labelled("From", moment("from"), "moment"),
    labelled("To", moment("to"), "moment"),
    labelled("Order", order, "order"),
    element("button", { type: "button", id: "filter-clear", click: clear }, "Clear filters"),
  );
  function show(isOpen) {
    areFiltersOpen = isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
    form.classList.toggle("open", isOpen);
  }
  show(areFiltersOpen);
  return [toggle, form];
}

/** A time until now replaces the times from and to; "between" shows their fields. */
function onTimeChange(change) {
  return ({ target }) => {
    const { value } = target;
    const form = target.closest("form");
    form.dataset.moments = value === "between" ? "shown" : "";
    showMoments(form);
    if (value === "between") form.querySelector("#filter-from").focus();
    else change({ time: value, from: "", to: "" });
  };
}

function showMoments(form) {
  for (const box of form.querySelectorAll(".moment")) box.hidden = form.dataset.moments !== "shown";
}

function parseOrder(text) {
  const [sort, order] = text.split(" ");
  return { sort, order };
}

/** Update the choices of the filters to those of the server, and their values to the view. */
export function updateFilters(form, view, { models = [], sessions = [], tools = [] }) {
  const statuses = Object.entries(STATUSES).map(([status, [, word]]) => [status, word]);
  const orders = [...COLUMNS, TITLE_COLUMN].flatMap(([heading, sort]) => [
    [`${sort} desc`, `${heading}, ${ORDER_WORDS[sort]?.[0] ?? "highest"} first`],
    [`${sort} asc`, `${heading}, ${ORDER_WORDS[sort]?.[1] ?? "lowest"} first`],
  ]);
  const plain = (values) => values.map((value) => [value, value]);
  setOptions(form, "status", [["", "all"], ...statuses], view.status);
  setOptions(form, "model", [["", "all"], ...plain(models)], view.model);
  setOptions(form, "session", [["", "all"], ...plain(sessions)], view.session);
  setOptions(form, "tool", [["", "all"], ...plain(tools)], view.tool);
  const times = Object.entries(TIMES).map(([name, [text]]) => [name, text]);
  if (view.from || view.to) form.dataset.moments = "shown";
  else if (view.time) form.dataset.moments = "";
  setOptions(form, "time", [["", "all"], ...times, ["between", "between"]], form.dataset.moments ? "between" : view.time);
  showMoments(form);
  for (const name of ["from", "to"]) {
    const field = form.querySelector(`#filter-${name}`);
    if (document.activeElement !== field) field.value = view[name];
  }
  setOptions(form, "sort", orders, `${view.sort} ${view.order}`);
  const search = form.querySelector("#filter-q");
  if (document.activeElement !== search) search.value = view.q;
  form.querySelector("#filter-clear").hidden = !hasFilters(view);
  const count = countFilters(view);
  const label = count ? `Filters: ${formatNumber(count)} active` : "Filters";
  const toggle = form.parentElement.querySelector("#filters-toggle");
  if (toggle.textContent !== label) toggle.textContent = label;
}

function setOptions(form, name, choices, value) {
  const select = form.querySelector(`#filter-${name}`);
  const present = choices.some(([choice]) => choice === value) ? choices : [...choices, [value, value]];
  const version = JSON.stringify(present);
  if (select.dataset.version !== version) {
    select.dataset.version = version;
    select.replaceChildren(...present.map(([choice, text]) => element("option", { value: choice }, text)));
  }
  select.value = value;
}

// -- table -----------------------------------------------------------------------------------------

let drawnRows = new Map(); // by id: { version, node }; with many live rows only those that changed are drawn again

/**
 * Create the table.
 *
 * rows:       of the server; those in progress first
 * open:       called with the id of a request
 * changeView: called with the changed parts of the view
 */
export function requestTable(rows, view, { open, changeView }) {
  const marks = threadMarks(rows);
  const earlierRows = drawnRows;
  drawnRows = new Map();
  const drawRow = (row) => {
    const mark = marks.get(row.id);
    const version = JSON.stringify([{ ...row, text: null }, mark]);
    const earlier = earlierRows.get(row.id);
    const drawn = earlier?.version === version ? earlier : { version, node: requestRow(row, mark, view, open) };
    drawnRows.set(row.id, drawn);
    return drawn.node;
  };
  const body = element("tbody", {}, ...rows.map(drawRow));
  return element(
    "div",
    { class: "scrollable", tabindex: "0", role: "region", "aria-label": "Requests, scrollable table" },
    element(
      "table",
      { class: "requests-table" },
      element("caption", { class: "hidden" }, "Requests, with their status, duration, tokens and cost"),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          ...SORTABLE_COLUMNS.map((column) => columnHeading(column, view, changeView)),
        ),
      ),
      body,
    ),
  );
}

/** Create a heading that sorts by its column. */
export function columnHeading([heading, sort, className], view, changeView) {
  const isSorted = view.sort === sort;
  const initial = ASCENDING_FIRST.includes(sort) ? "asc" : "desc";
  const order = isSorted ? { asc: "desc", desc: "asc" }[view.order] : initial;
  const arrow = isSorted ? { asc: " ▲", desc: " ▼" }[view.order] : "";
  const sorted = isSorted && { asc: "ascending", desc: "descending" }[view.order];
  const click = () => changeView({ sort, order });
  return element(
    "th",
    { scope: "col", class: className, "aria-sort": sorted },
    element(
      "button",
      { type: "button", id: `sort-${sort}`, title: TOKEN_COLUMNS[sort], click },
      heading,
      element("span", { "aria-hidden": "true" }, arrow),
    ),
  );
}

/** Return the title of a row; a request that is not stored has none, so its API is named. */
export function rowTitle({ title, api, id }) {
  return title || (api in API_NAMES ? `${API_NAMES[api]} request` : id);
}

function requestRow(row, mark, view, open) {
  const click = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button || String(getSelection())) return;
    event.preventDefault();
    open(row.id);
  };
  const count = row.count > 1 && `× ${formatNumber(row.count)}`;
  // the facts replace columns in a narrow window, where the model would leave no space for a code
  const names = [row.code, row.session, row.client, !row.code && row.model]
    .filter(Boolean)
    .map((name) => element("span", { class: name === row.code ? "name code" : "name" }, name));
  const hasLatency = row.latency_s !== null || UNFINISHED_STATUSES.includes(row.status);
  const facts = [mark && threadMark(mark), count && element("span", {}, count), ...names, hasLatency && element("span", {}, requestLatency(row)), row.cache_missed && element("span", {}, "cache missed")];
  return element(
    "tr",
    { click, class: row.is_stored === false ? "unstored" : null, "data-request-id": row.request_id },
    element(
      "th",
      { scope: "row", class: "title" },
      mark && [threadMark(mark), " "],
      element("a", { href: rowAddress(row.id, view), id: `request-${row.id}` }, rowTitle(row)),
      count && element("span", { class: "note" }, ` ${count}`),
      row.session && element("span", { class: "note" }, ` ${row.session}`),
      row.client && element("span", { class: "note" }, ` ${row.client}`),
      element("span", { class: "facts" }, requestAge(row), ...facts.filter(Boolean).flatMap((fact) => [" · ", fact])),
    ),
    ...COLUMNS.map(([, , className, content]) => element("td", { class: className }, content(row))),
  );
}

/** Create the status of a row, with the code of an error. */
function rowStatus({ status, phase, code }) {
  return [statusLabel(phase ?? status), code && element("span", { class: "note code", title: code }, code)];
}

/** Create the cached tokens of a row, with a mark if most of the reusable ones were not read from the cache. */
function cachedTokens({ cached_tokens: cached, cache_missed: isMissed }) {
  const mark = isMissed && element("span", { class: "missed", title: "The prompt cache was missed" }, "missed");
  return [mark, mark && " ", formatNumber(cached)];
}

// -- threads -----------------------------------------------------------------------------------------

const THREAD_COLOURS = 6;
const threadNumbers = new Map(); // by id of a request or of a parent: a thread keeps its number while the page is open

/** Return the marks of rows that continue one another, or the same request: by id, the number of the thread and of its rows. */
function threadMarks(rows) {
  const parents = new Map(rows.filter(({ parent }) => parent).map(({ id, parent }) => [id, parent]));
  const starts = new Map();
  const startOf = (id) => {
    const path = [];
    while (parents.has(id) && !starts.has(id) && !path.includes(id)) {
      path.push(id);
      id = parents.get(id);
    }
    const start = starts.get(id) ?? id;
    for (const each of path) starts.set(each, start);
    return start;
  };
  const threads = Map.groupBy(rows, ({ id }) => startOf(id));
  const marks = new Map();
  for (const [start, members] of threads) {
    if (members.length < 2) continue;
    const ids = [start, ...members.map(({ id }) => id)];
    const known = ids.find((id) => threadNumbers.has(id));
    const number = known ? threadNumbers.get(known) : new Set(threadNumbers.values()).size + 1;
    for (const id of ids) threadNumbers.set(id, number);
    for (const { id } of members) marks.set(id, { number, size: members.length });
  }
  return marks;
}

function threadMark({ number, size }) {
  const title = `Thread ${number}: ${formatCount(size, "request")} of this list belong to one chain`;
  return element("span", { class: `thread thread-${number % THREAD_COLOURS}`, title }, element("span", { class: "hidden" }, "thread "), `${number}`);
}

/** Update the addresses of the rows to the tab and the charts of the view; the rows stay as they are. */
export function updateRowAddresses(root, view) {
  const version = rowAddress("", view);
  if (root.dataset.view === version) return;
  root.dataset.view = version;
  for (const link of root.querySelectorAll("tbody th a")) link.href = rowAddress(link.id.slice("request-".length), view);
}

function rowAddress(id, view) {
  return viewAddress({ ...view, request: id, compare: "" });
}

/** Mark the row of the open request; the other rows stay as they are. */
export function markOpenRow(root, id) {
  for (const row of root.querySelectorAll("tr.selected")) {
    row.classList.remove("selected");
    row.querySelector("a").removeAttribute("aria-current");
  }
  const link = id && [...root.querySelectorAll("tbody th a")].find((each) => each.id === `request-${id}`);
  if (!link) return;
  link.setAttribute("aria-current", "true");
  link.closest("tr").classList.add("selected");
}

function requestAge({ created_at: createdAt }) {
  if (createdAt === null) return "-";
  const date = new Date(createdAt * 1000);
  return element(
    "time",
    { datetime: date.toISOString(), title: formatTime(createdAt, true), "data-created-at": createdAt },
    formatAge(Date.now() / 1000 - createdAt),
  );
}

/** Create the duration of a request; of one in progress the seconds until now, which `updateTimes` counts up. */
export function requestLatency({ status, latency_s: latency, created_at: createdAt }) {
  if (!UNFINISHED_STATUSES.includes(status) || latency !== null) return formatSeconds(latency) ?? "-";
  return element("span", { class: "elapsed", "data-started-at": createdAt }, formatElapsed(createdAt));
}

function formatElapsed(startedAt) {
  return `${formatNumber(Math.max(0, Math.floor(Date.now() / 1000 - startedAt)))} s`;
}

/** Update the ages and the durations of requests in progress. */
export function updateTimes(root) {
  const update = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };
  for (const node of root.querySelectorAll("[data-created-at]")) {
    update(node, formatAge(Date.now() / 1000 - Number(node.dataset.createdAt)));
  }
  for (const node of root.querySelectorAll("[data-started-at]")) update(node, formatElapsed(Number(node.dataset.startedAt)));
}
