// The readable passages of an item.
//
// prose    text of a message              code   arguments, outputs and unknown content, unchanged
// thought  text of a reasoning item       aside  a note in place of content that cannot be shown
// image    shown if the item contains its data; no image is ever fetched from an address

import { jsonTree } from "./json.js";
import { codeBlock, element, formatCount } from "./make.js";
import { markdownText } from "./markdown.js";
import { pagedList } from "./paged.js";

const TEXT_FIELDS = ["text", "refusal", "transcript"];
const INLINE_IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

const itemType = (item) => String(item.type || ("role" in item ? "message" : "unknown"));
const SUMMARY_HEADING = "Summary of the conversation up to here, in place of its earlier messages:";
const isOutput = (item) => itemType(item).endsWith("_output");
const isCall = (item) => itemType(item).endsWith("_call");

/** Return whether a user typed the message: a summary has the role of the user, too. */
export const isUserMessage = (item) => item?.role === "user" && !itemText(item).startsWith(SUMMARY_HEADING);

/** Return the role of a message, or the kind of an item: "user", "summary", "call of weather", "output of call_1". */
export function itemTitle(item) {
  if (isCall(item)) return `call of ${item.name || itemType(item)}`;
  if (isOutput(item)) return `output of ${item.call_id || itemType(item)}`;
  if (item.role === "user" && !isUserMessage(item)) return "summary";
  return String(item.role || itemType(item));
}

/** Return the passages of one item as [form, text], in order. */
function itemPassages(item) {
  const passages = [...iterPassages(item)].filter(([, text]) => text !== "");
  return passages.length ? passages : [["aside", "empty"]];
}

/** Return all passages of an item as one text. */
export function itemText(item) {
  return itemPassages(item)
    .map(([, text]) => text)
    .join("\n");
}

function* iterPassages(item) {
  const [type, output] = [itemType(item), item.output];
  if (type === "message") yield* contentPassages(item.content);
  else if (type === "reasoning") yield reasoningPassage(item);
  else if (isCall(item)) yield ["code", callArguments(item) ?? formatJson(item)];
  else if (isOutput(item)) yield* typeof output === "string" ? [["code", output]] : contentPassages(output);
  else if (type === "compaction") yield ["aside", "compaction of the items before this one; encrypted"];
  else yield ["code", formatJson(item)];
}

function reasoningPassage(item) {
  const passages = [...contentPassages(item.summary), ...contentPassages(item.content)];
  const text = passages.map(([, part]) => part).join("\n");
  if (text) return ["thought", text];
  return ["aside", item.encrypted_content ? "encrypted reasoning" : "reasoning without text"];
}

function callArguments(call) {
  const text = call.arguments ?? call.input;
  return typeof text === "string" ? decodeEscapes(text) : null;
}

const JSON_ESCAPE = /\\(u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|u[\da-fA-F]{4}|[^])/g;
const PRINTABLE = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u;

/** Decode the escapes in a JSON text, except those of control characters and quotes: Z\\u00fcrich is Zürich. */
export function decodeEscapes(text) {
  return text.replace(JSON_ESCAPE, (escape, code) => {
    if (code.length < 5) return escape;
    const character = JSON.parse(`"${escape}"`);
    return PRINTABLE.test(character) && character !== '"' && character !== "\\" ? character : escape;
  });
}

function* contentPassages(content) {
  if (typeof content === "string") yield ["prose", content];
  else if (Array.isArray(content)) for (const part of content) yield partPassage(part);
  else if (content !== undefined && content !== null) yield ["code", formatJson(content)];
}

function partPassage(part) {
  if (part === null || typeof part !== "object") return ["code", formatJson(part)];
  const field = TEXT_FIELDS.find((name) => typeof part[name] === "string");
  if (field) return ["prose", part[field]];
  if (typeof part.image_url === "string") return ["image", part.image_url];
  if (part.type === "input_file" || part.type === "input_image") {
    return ["aside", `a file: ${part.filename || part.file_id || part.file_url || "unnamed"}`];
  }
  return ["code", formatJson(part)];
}

export function formatJson(value) {
  return JSON.stringify(value, null, 2) ?? "undefined";
}

const PASSAGE_RENDERERS = {
  prose: (text) => element("p", {}, text),
  thought: (text) => element("blockquote", {}, text),
  code: (text, label) => codeBlock(text, `text of ${label}`),
  aside: (text) => element("p", { class: "aside" }, text),
  image: (url, label) =>
    INLINE_IMAGE.test(url)
      ? element("img", { src: url, alt: `the image of ${label}` })
      : element("p", { class: "aside" }, `an image: ${url.startsWith("data:") ? url.split(";")[0] : url}`),
};

/** Create one passage; the text of an answer is Markdown. */
function itemPassage(item, form, text, label) {
  const isMarkdown = form === "prose" && item.role === "assistant";
  return isMarkdown ? markdownText(text, label) : PASSAGE_RENDERERS[form](text, label);
}

const [MAX_SHOWN_CHARS, MAX_SHOWN_LINES, MAX_ANSWER_CHARS] = [800, 10, 4000];

// The long texts that were opened: they stay open when the page is drawn again.
const openTexts = new Set();

/** Show the start of a long passage, and a button that opens the rest; all of it is printed and searched. */
function collapsedIfLong(passage, text, label, isAnswer) {
  const isLong = isAnswer ? text.length >= MAX_ANSWER_CHARS : text.length > MAX_SHOWN_CHARS || text.split("\n").length > MAX_SHOWN_LINES;
  if (!isLong || !["P", "BLOCKQUOTE", "DIV"].includes(passage.tagName)) return passage; // code scrolls in its box
  const key = `${label}: ${text}`;
  const button = element("button", { type: "button", class: "more", click: () => show(!openTexts.has(key)) });
  const box = element("div", {}, passage);
  function show(isOpen) {
    if (isOpen) openTexts.add(key);
    else openTexts.delete(key);
    box.classList.toggle("collapsed", !isOpen);
    button.setAttribute("aria-expanded", String(isOpen));
    button.textContent = isOpen ? "Show less" : `Show all (${formatCount(text.length, "character")})`;
    button.setAttribute("aria-label", `${button.textContent} of ${label}`);
  }
  show(openTexts.has(key));
  return element("div", {}, box, button);
}

/**
 * Create one item in full.
 *
 * number:  its number in the history, from 1
 * note:    added to the heading, in a narrow window only its first word
 * level:   of the heading
 * jsonKey: of its JSON among those that are open
 */
function itemArticle(item, { number, note = "", level, jsonKey }) {
  const label = `item ${number}`;
  const [, word, rest] = /^(\S*)(.*)$/.exec(note);
  const heading = element(
    level,
    {},
    `${number} · ${itemTitle(item)}`,
    note && element("span", { class: "note" }, ` ${word}`, rest && element("span", { class: "rest" }, rest)),
  );
  return element(
    "article",
    { class: isUserMessage(item) || item.role === "assistant" ? item.role : "other" },
    heading,
    ...itemPassages(item).map(([form, text]) => collapsedIfLong(itemPassage(item, form, text, label), text, label, item.role === "assistant")),
    jsonDetails(item, label, jsonKey),
  );
}

// The JSON of items that was opened: it stays open when the page is drawn again.
const openJson = new Set();

/** Show the item as it was sent; its JSON is created when it is opened. */
function jsonDetails(item, label, key) {
  const tree = () => jsonTree(item, `JSON of ${label}`);
  const toggle = ({ target }) => {
    if (target.open) openJson.add(key);
    else openJson.delete(key);
    if (target.open && !target.querySelector(".json")) target.append(tree());
  };
  const isOpen = openJson.has(key);
  return element(
    "details",
    { toggle, open: isOpen },
    element("summary", {}, "JSON", element("span", { class: "hidden" }, ` of ${label}`)),
    isOpen && tree(),
  );
}

/**
 * Create a list of items, of which the newest are drawn first.
 *
 * entries:  [{ item, number, note }]; a deleted item is undefined
 */
export function itemList(name, entries, level = "h5") {
  if (!entries.length) return [element("p", { class: "aside" }, "no items")];
  const jsonKey = ({ key, item, number }) => `${name} ${number} ${key ?? JSON.stringify(item)}`;
  const article = (entry) => itemArticle(entry.item, { ...entry, level, jsonKey: jsonKey(entry) });
  const content = (entry) => (entry.item ? article(entry) : deletedItem(entry));
  const draw = (index) => element("li", { id: `${name}-${entries[index].number}` }, content(entries[index]));
  return pagedList({ name, list: element("ol", { class: "items" }), count: entries.length, draw, page: 20 });
}

function deletedItem({ number }) {
  return element("p", { class: "aside" }, `${number} · deleted`);
}
