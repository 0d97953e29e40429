// One request beside the table, in four tabs: conversation, request, response, and both as JSON.

import { copyAs } from "./code.js";
import { forkForm } from "./fork.js";
import { formatJson, itemList } from "./items.js";
import { linkFacts } from "./link.js";
import { address } from "./list.js";
import { codeBlock, definitionList, element, formatCount } from "./make.js";
import { statusLabel } from "./requests.js";

const TABS = { conversation: "Conversation", request: "Request", response: "Response", raw: "Raw" };

/** Return the name of a tab, the first one for an unknown name. */
export function knownTab(name) {
  return name in TABS ? name : "conversation";
}

/**
 * Create the pane.
 *
 * row:          of the table; undefined if the request is not on its pages
 * conversation: its conversation; null while it is loaded, and for a request that is not stored yet
 * message:      shown in place of a conversation
 * source:       of the code of the request, and target of a fork
 * openRequest:  called with the id of a fork
 */
export function requestDetail({ id, tab, row, conversation, message }, { close, chooseTab, source, openRequest }) {
  const link = conversation?.links.get(id);
  const status = row?.status ?? link?.status;
  const handle = row?.session ?? id;
  const title = row?.title || link?.said || id;
  return [
    element(
      "div",
      { class: "detail-head" },
      element("h2", { id: "detail-title", tabindex: "-1" }, title),
      element("button", { type: "button", id: "detail-close", click: close }, "Close"),
    ),
    element(
      "p",
      { class: "note" },
      status ? statusLabel(status) : null,
      ` ${id} `,
      link && element("a", { href: address(handle, id), id: "detail-open" }, "Open the conversation"),
    ),
    ...(link ? [...copyAs(source, id, "h3"), ...forkForm(source, conversation, link, openRequest)] : []),
    ...(link ? tabs(tab, chooseTab, conversation, link) : [pendingText(row, message)]),
  ];
}

/** Show the text so far of a request in progress, or the message. */
function pendingText(row, message) {
  if (!row || row.text === undefined) return element("p", { class: "aside" }, message);
  return element(
    "article",
    { class: "assistant running", "aria-label": "Response in progress" },
    element("p", { id: "detail-text" }, row.text || "…"),
  );
}

function tabs(selected, chooseTab, conversation, link) {
  const names = Object.keys(TABS);
  const keydown = (event) => {
    const index = names.indexOf(selected);
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
    element("div", panel, ...TAB_CONTENTS[selected](conversation, link)),
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
      codeBlock(formatJson(conversation.request(link)), "the request without its items"),
      ...(sent ? itemList("detail-sent", sent, "h3") : [element("p", { class: "aside" }, "an item was deleted")]),
    ];
  },
  response: (conversation, link) => [
    linkFacts(conversation, link),
    ...itemList("detail-output", conversation.output(link), "h3"),
  ],
  raw: (conversation, link) => {
    const { response_id: id, model, status, created_at, usage, error } = link;
    const items = (entries) => entries.map(({ item }) => item ?? null);
    const sent = conversation.sentItems(link);
    const request = { ...conversation.request(link), input: sent ? items(sent) : null };
    const response = { id, created_at, model, status, usage, error, output: items(conversation.output(link)) };
    return [
      element("h3", {}, "Request"),
      codeBlock(formatJson(request), "the request as JSON"),
      element("h3", {}, "Response"),
      codeBlock(formatJson(response), "the response as JSON"),
    ];
  },
};
