// The readable passages of an item.
//
// prose    text of a message              code   arguments, outputs and unknown content, unchanged
// thought  text of a reasoning item       aside  a note in place of content that cannot be shown
// image    shown if the item contains its data; no image is ever fetched from an address

import { code, element, legible } from "./make.js";
import { paged } from "./paged.js";

const WORDS = ["text", "refusal", "transcript"];
const INLINE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

const kind = (item) => String(item.type || ("role" in item ? "message" : "unknown"));
const isOutput = (item) => kind(item).endsWith("_output");
const isCall = (item) => kind(item).endsWith("_call");

/** Return the role of a message, or the kind of an item: "user", "call of weather", "output of call_1". */
export function title(item) {
  if (isCall(item)) return `call of ${item.name || kind(item)}`;
  if (isOutput(item)) return `output of ${item.call_id || kind(item)}`;
  return String(item.role || kind(item));
}

/** Return the passages of one item as [form, text], in order. */
export function passages(item) {
  const found = [...pieces(item)].filter(([, words]) => words !== "");
  return found.length ? found : [["aside", "empty"]];
}

/** Return all passages of an item as one text. */
export function wordsOf(item) {
  return passages(item)
    .map(([, words]) => words)
    .join("\n");
}

function* pieces(item) {
  if (kind(item) === "message") yield* parts(item.content);
  else if (kind(item) === "reasoning") yield* thought(item);
  else if (isCall(item)) yield ["code", said(item) ?? json(item)];
  else if (isOutput(item)) yield* typeof item.output === "string" ? [["code", item.output]] : parts(item.output);
  else if (kind(item) === "compaction") yield ["aside", "compaction of the items before this one; encrypted"];
  else yield ["code", json(item)];
}

function* thought(item) {
  const words = [...parts(item.summary), ...parts(item.content)].map(([, text]) => text).join("\n");
  if (words) yield ["thought", words];
  else yield ["aside", item.encrypted_content ? "encrypted reasoning" : "reasoning without text"];
}

function said(call) {
  const given = call.arguments ?? call.input;
  return typeof given === "string" ? withCharacters(given) : null;
}

const ESCAPED = /\\(u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|u[\da-fA-F]{4}|[^])/g;
const PRINTED = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u;

// Decode the escapes in a JSON text, except those of control characters and quotes.
function withCharacters(text) {
  return text.replace(ESCAPED, (whole, code) => {
    if (code.length < 5) return whole;
    const found = JSON.parse(`"${whole}"`);
    return PRINTED.test(found) && found !== '"' && found !== "\\" ? found : whole;
  });
}

function* parts(content) {
  if (typeof content === "string") yield ["prose", content];
  else if (Array.isArray(content)) for (const one of content) yield piece(one);
  else if (content !== undefined && content !== null) yield ["code", json(content)];
}

function piece(part) {
  if (part === null || typeof part !== "object") return ["code", json(part)];
  const field = WORDS.find((name) => typeof part[name] === "string");
  if (field) return ["prose", part[field]];
  if (typeof part.image_url === "string") return ["image", part.image_url];
  if (part.type === "input_file" || part.type === "input_image") {
    return ["aside", `a file: ${part.filename || part.file_id || part.file_url || "unnamed"}`];
  }
  return ["code", json(part)];
}

export function json(value) {
  return JSON.stringify(value, null, 2) ?? "undefined";
}

const FORMS = {
  prose: (words) => element("p", {}, words),
  thought: (words) => element("blockquote", {}, words),
  code: (words, label) => code(words, `text of ${label}`),
  aside: (words) => element("p", { class: "aside" }, words),
  image: (url, label) =>
    INLINE.test(url)
      ? element("img", { src: url, alt: `the image of ${label}` })
      : element("p", { class: "aside" }, `an image: ${url.startsWith("data:") ? url.split(";")[0] : url}`),
};

/**
 * Create one item in full.
 *
 * at:     its number in the history, from 1
 * note:   added to the heading
 * level:  of the heading
 */
export function article(item, { at, note = "", level = "h5" }) {
  const label = `item ${at}`;
  const heading = element(level, {}, `${at} · ${title(item)}`, note && element("span", { class: "note" }, ` ${note}`));
  return element(
    "article",
    { class: item.role === "user" || item.role === "assistant" ? item.role : "other" },
    heading,
    ...passages(item).map(([form, words]) => FORMS[form](words, label)),
    raw(item, label),
  );
}

/** Show the item as it was sent; its JSON is created when it is opened. */
function raw(item, label) {
  const toggle = ({ target }) =>
    target.open && !target.querySelector("pre") && target.append(code(json(item), `JSON of ${label}`));
  return element(
    "details",
    { toggle },
    element("summary", {}, "JSON", element("span", { class: "hidden" }, ` of ${label}`)),
  );
}

/**
 * Create a list of items, of which the newest are drawn first.
 *
 * entries:  [{ item, at, note }]; a deleted item is undefined
 */
export function listOf(name, entries, level = "h5") {
  if (!entries.length) return [element("p", { class: "aside" }, "no items")];
  const draw = (at) =>
    element("li", {}, entries[at].item ? article(entries[at].item, { ...entries[at], level }) : gone(entries[at]));
  return paged({ name, list: element("ol", { class: "items" }), count: entries.length, draw, page: 20 });
}

function gone({ at }) {
  return element("p", { class: "aside" }, `${at} · deleted`);
}

/** Return the first words of `text` on one line. */
export function firstWords(text, width = 80) {
  const line = legible(text.slice(0, 4 * width))
    .split(/\s+/)
    .join(" ")
    .trim();
  return line.length > width ? `${line.slice(0, width - 1)}…` : line;
}
