// One request beside the table, in tabs: conversation, request, model input, response, difference, and JSON.

import { copyAs } from "./code.js";
import { compactionPreview } from "./compaction.js";
import { tokenUsage } from "./conversation.js";
import { difference } from "./difference.js";
import { forkForm } from "./fork.js";
import { formatJson, itemList } from "./items.js";
import { jsonTree } from "./json.js";
import { linkFacts, missFacts } from "./link.js";
import { address } from "./list.js";
import { codeBlock, definitionList, element, formatBytes, formatCost, formatCount, formatNumber, formatSeconds, formatTime } from "./make.js";
import { API_NAMES, requestLatency, rowTitle, statusLabel } from "./requests.js";

const TABS = {
  conversation: "Conversation",
  request: "Request",
  seen: "What the model saw",
  response: "Response",
  diff: "Diff",
  raw: "Raw",
};
const MAX_COMPARED_ROWS = 100;

/** Return the name of a tab, the first one for an unknown name. */
export function knownTab(name) {
  return name in TABS ? name : "conversation";
}

/**
 * Create the pane.
 *
 * row:          of the table; undefined if the request is not on its pages. One that is not stored has only its row
 * rows:         of the table, to choose a request to compare with
 * children:     the ids of known requests that continue this one
 * text:         the last known text of a request in progress
 * conversation: its path, as a conversation; null while it is loaded, and for a request that is not stored yet
 * message:      shown in place of a conversation
 * compare:      the id of the request to compare with; "" for the parent
 * isRecording:  whether the server records requests that are not stored
 * source:       of the code of the request, and target of a fork
 * openRequest:  called with the id of a fork, or of a request that continues this one
 * chooseOther:  called with the id of the request to compare with
 */
export function requestDetail({ id, tab, row, rows, children, text, conversation, message, compare, isRecording }, { close, chooseTab, source, openRequest, chooseOther }) {
  const link = conversation?.links.get(id);
  const status = row?.status ?? link?.status;
  const handle = row?.session ?? id;
  const title = row?.title || link?.said || (row ? rowTitle(row) : id);
  return [
    element(
      "div",
      { class: "detail-head" },
      element("h2", { id: "detail-title", tabindex: "-1" }, title),
      element("button", { type: "button", id: "detail-close", click: close }, "Close"),
    ),
    element(
      "p",
      { class: "note", id: "detail-status" },
      status ? statusLabel(row?.phase ?? status) : null,
      ` ${id} `,
      link && element("a", { href: address(handle, id), id: "detail-open" }, "Open the conversation"),
    ),
    ...(link || row ? [requestFigures(link, row, conversation?.data.cache_miss?.outcome)] : []),
    ...missFacts(conversation?.data.cache_miss),
    ...continuations(conversation, children, openRequest),
    ...(row?.is_stored === false ? unstoredRequest(row, isRecording) : []),
    ...(link ? [...copyAs(source, id, "h3"), ...forkForm(source, conversation, link, openRequest), ...compactionPreview(source, id)] : []),
    ...(link && status === "in_progress" && text !== undefined ? pendingText(text, "") : []),
    ...(link ? tabs(tab, chooseTab, conversation, link, { rows, compare, chooseOther }) : row?.is_stored === false ? [] : pendingText(text, message)),
  ];
}

/** Create the figures of a request in one line: those of its stored response, or of its row. */
function requestFigures(link, row, missOutcome) {
  const usage = link ? tokenUsage(link) : { input: row.input_tokens, cached: row.cached_tokens, output: row.output_tokens };
  const firstToken = link ? link.first_token_s : row.first_token_s;
  const duration = link ? formatSeconds(link.seconds) : requestLatency(row);
  const cost = link ? link.cost_usd : row.cost_usd;
  const figures = [
    ["Model", link?.model ?? row.model],
    ["First token", formatSeconds(firstToken ?? null)],
    ["Duration", duration],
    ["Input", usage && usage.input !== null && formatNumber(usage.input)],
    ["Cached", usage && usage.cached !== null && formatNumber(usage.cached) + (missOutcome === "miss" ? " (missed)" : "")],
    ["Output", usage && usage.output !== null && formatNumber(usage.output)],
    ["Cost", cost !== null && formatCost(cost)],
  ];
  const present = figures.filter(([, value]) => value && value !== "-");
  return element(
    "dl",
    { class: "figures", id: "detail-figures" },
    ...present.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))),
  );
}

const RECORDABLE_APIS = ["responses", "chat_completions", "messages"];

/** Create the further facts of a request whose content is not stored. */
function unstoredRequest(row, isRecording) {
  const isRunning = row.status === "in_progress";
  const canRecord = row.status === "completed" && !isRecording && RECORDABLE_APIS.includes(row.api);
  const content = [
    isRunning ? "The content of this request will not be stored." : "The content of this request is not stored.",
    canRecord && [" ", element("code", {}, "convo serve --record"), " records such requests."],
  ];
  return [
    definitionList([
      ["Time", formatTime(row.created_at, true)],
      ["API", API_NAMES[row.api]],
      ["Code", row.code],
      ["Client", row.client],
      ["Requests", row.count > 1 ? `${formatNumber(row.count)} with this outcome, within a second: tokens, sizes and cost are sums, the duration is the longest` : null],
      ["Request", row.request_bytes ? formatBytes(row.request_bytes) : null],
      ["Response", row.response_bytes ? formatBytes(row.response_bytes) : null],
    ]),
    element("p", { class: "aside", id: "detail-unstored" }, ...content),
  ];
}

/** Update the links to the requests that continue the one in the pane; all other parts of the pane stay as they are. */
export function updateContinuations({ conversation, children }, { openRequest }) {
  const focusedId = document.activeElement?.closest("#detail-continued a")?.dataset.request;
  document.getElementById("detail-continued")?.remove();
  document.getElementById("detail-status")?.after(...continuations(conversation, children, openRequest));
  const links = [...document.querySelectorAll("#detail-continued a")];
  if (focusedId) links.find(({ dataset }) => dataset.request === focusedId)?.focus();
}

/** Create the links to the requests that continue this one: those that were loaded with it, and later ones. */
function continuations(conversation, children, openRequest) {
  const ids = [...new Set([...(conversation?.data.continued ?? []), ...children])];
  if (!ids.length) return [];
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openRequest(event.currentTarget.dataset.request);
  };
  const links = ids.flatMap((child, index) => [
    index > 0 && ", ",
    element("a", { href: `?request=${encodeURIComponent(child.toWellFormed())}`, "data-request": child, click: open }, child),
  ]);
  return [element("p", { class: "note", id: "detail-continued" }, "Continued in ", ...links)];
}

/** Show the text of a request that is not stored, as far as it is known, and the message. */
function pendingText(text, message) {
  const article = { class: "assistant running", "aria-label": "Response in progress" };
  return [
    text !== undefined && element("article", article, element("p", { id: "detail-text" }, text || "…")),
    (message || text === undefined) && element("p", { class: "aside" }, message || "Loading…"),
  ].filter(Boolean);
}

/** Mark and focus the tab whose content is drawn next. */
export function markTab(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const isSelected = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isSelected));
    tab.setAttribute("tabindex", isSelected ? "0" : "-1");
    if (isSelected) tab.focus();
  }
}

function tabs(selected, chooseTab, conversation, link, comparison) {
  const names = Object.keys(TABS);
  const keydown = (event) => {
    const index = names.indexOf(event.currentTarget.querySelector("[aria-selected=true]").id.slice("tab-".length));
    const target = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: names.length - 1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    chooseTab(names[(target + names.length) % names.length]);
  };
  const button = (name) =>
    element(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-selected": String(name === selected),
        "aria-controls": "tab-panel",
        tabindex: name === selected ? "0" : "-1",
        click: () => chooseTab(name),
      },
      TABS[name],
    );
  const panel = { id: "tab-panel", role: "tabpanel", tabindex: "0", "aria-labelledby": `tab-${selected}` };
  return [
    element("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the request", keydown }, ...names.map(button)),
    element("div", panel, ...TAB_CONTENTS[selected](conversation, link, comparison)),
  ];
}

const TAB_CONTENTS = {
  conversation: (conversation, link) => {
    const input = conversation.modelInput(link);
    if (!input) return [element("p", { class: "aside" }, "an item was deleted")];
    return itemList("detail-conversation", [...input, ...conversation.output(link)], "h3");
  },
  request: (conversation, link) => {
    const sent = conversation.sentItems(link);
    return [
      definitionList([
        ["Previous", link.previous_response_id],
        ["Conversation", link.conversation_id],
        ["Sent", formatCount(link.items_sent, "item")],
        ["Model input", link.items_saw === null ? null : formatCount(link.items_saw, "item")],
      ]),
      ...sentBody(conversation.data.sent),
      codeBlock(formatJson(conversation.request(link)), "the request without its items"),
      ...(sent ? itemList("detail-sent", sent, "h3") : [element("p", { class: "aside" }, "an item was deleted")]),
    ];
  },
  seen: (conversation, link) => {
    const input = conversation.modelInput(link);
    if (!input) return [element("p", { class: "aside" }, "an item was deleted")];
    const { instructions, tools } = conversation.request(link);
    const prepended = input.filter(({ note }) => note !== "sent").length;
    return [
      definitionList([
        ["Instructions", instructions],
        ["Tools", tools?.length ? tools.map((tool) => tool.name ?? tool.server_label ?? tool.type).join(", ") : null],
        ["Prepended", `${formatCount(prepended, "item")} by the server`],
        ["Sent", formatCount(input.length - prepended, "item")],
      ]),
      ...itemList("detail-seen", input, "h3"),
    ];
  },
  response: (conversation, link) => [
    linkFacts(conversation, link),
    ...itemList("detail-output", conversation.output(link), "h3"),
  ],
  diff: (conversation, link, { rows, compare, chooseOther }) => {
    const id = link.response_id;
    const selected = compare || link.parent || "";
    const stored = rows.filter((row) => row.is_stored !== false);
    const titles = new Map(stored.slice(0, MAX_COMPARED_ROWS).map((row) => [row.id, row.title || row.id]));
    const ids = [...new Set([link.parent, selected, ...titles.keys()])].filter((other) => other && other !== id);
    if (!ids.length) return [element("p", { class: "aside" }, "There is no other request.")];
    const name = (other) => `${other === link.parent ? "parent: " : ""}${titles.get(other) ?? other}`;
    const options = ids.map((other) => element("option", { value: other, selected: other === selected }, name(other)));
    if (!selected) options.unshift(element("option", { value: "", selected: true }, "Choose a request"));
    const select = element("select", { id: "detail-other", change: ({ target }) => chooseOther(target.value) }, ...options);
    const other = conversation.links.get(selected);
    return [
      element("p", {}, element("label", { for: "detail-other" }, "Compare with "), select),
      ...(other ? difference(conversation, other, link) : []),
    ];
  },
  raw: (conversation, link) => {
    const { response_id: id, model, status, created_at, usage, error } = link;
    const items = (entries) => entries.map(({ item }) => item ?? null);
    const sent = conversation.sentItems(link);
    const request = { ...conversation.request(link), input: sent ? items(sent) : null };
    const response = { id, created_at, model, status, usage, error, output: items(conversation.output(link)) };
    return [
      element("h3", {}, "Request"),
      jsonTree(request, "the request as JSON"),
      jsonText(request, "Request as text"),
      element("h3", {}, "Response"),
      jsonTree(response, "the response as JSON"),
      jsonText(response, "Response as text"),
    ];
  },
};

/** Show the body of a recorded request as its client sent it, above the form of the Responses API. */
function sentBody(sent) {
  if (!sent) return [];
  const headers = Object.entries(sent.headers).map(([name, value]) => [name, value]);
  return [
    element("h3", {}, `As sent: POST ${sent.path}`),
    ...(headers.length ? [definitionList(headers)] : []),
    jsonTree(sent.body, "the body as it was sent"),
    jsonText(sent.body, "Body as text"),
    element("h3", {}, "In the form of the Responses API"),
  ];
}

/** Create the JSON as text to copy; it is created when it is opened. */
function jsonText(value, title) {
  const toggle = ({ target }) => target.open && !target.querySelector("pre") && target.append(codeBlock(formatJson(value), title));
  return element("details", { class: "json-text", toggle }, element("summary", {}, title));
}
