// Markdown of answers: the server returns a tree of allowed elements, and this module builds them.
//
// A text is shown as it is until its tree has arrived, and stays so in a file, without a server, or if it is too
// long. Nothing is parsed as HTML, and an element or a link that is not allowed here is left out as well.

import { codeBlock, element } from "./make.js";

const MARKDOWN_TAGS = new Set("p blockquote ul ol li hr code em strong s a br table thead tbody tr th td".split(" "));
const MARKDOWN_HEADING = /^h[1-6]$/;
const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const [MAX_BATCH_TEXTS, MAX_BATCH_CHARS, MAX_CACHED_TEXTS] = [20, 200_000, 500];

const renderedTexts = new Map(); // by text: { nodes, note } of the server
let waitingTexts = []; // [text, element] that are not rendered yet
let fetchMarkdown = null;

/** Render texts from now on with `fetch`, which gets an array of texts. */
export function useMarkdown(fetch) {
  fetchMarkdown = fetch;
}

/** Create the element of a Markdown text; `label` names its code blocks. */
export function markdownText(text, label) {
  const box = element("div", {}, element("p", {}, text));
  if (!fetchMarkdown || text.trim() === "") return box;
  if (renderedTexts.has(text)) showMarkdown(box, renderedTexts.get(text), label);
  else {
    if (!waitingTexts.length) queueMicrotask(renderWaiting);
    waitingTexts.push([text, box, label]);
  }
  return box;
}

/** Fetch the trees of the waiting texts in parts; after an error they stay as they are. */
async function renderWaiting() {
  const waiting = waitingTexts;
  waitingTexts = [];
  const texts = [...new Set(waiting.map(([text]) => text))];
  while (texts.length) {
    const batch = [texts.shift()];
    let size = batch[0].length;
    while (texts.length && batch.length < MAX_BATCH_TEXTS && size + texts[0].length <= MAX_BATCH_CHARS) {
      size += texts[0].length;
      batch.push(texts.shift());
    }
    try {
      const results = await fetchMarkdown(batch.map((text) => text.toWellFormed()));
      batch.forEach((text, index) => renderedTexts.set(text, results[index]));
    } catch {
      return;
    }
    for (const [text, box, label] of waiting) {
      if (batch.includes(text)) showMarkdown(box, renderedTexts.get(text), label);
    }
  }
  while (renderedTexts.size > MAX_CACHED_TEXTS) renderedTexts.delete(renderedTexts.keys().next().value);
}

function showMarkdown(box, { nodes, note }, label) {
  if (nodes === null) {
    box.append(element("p", { class: "aside" }, note));
    return;
  }
  box.classList.add("markdown");
  box.replaceChildren(...nodes.map((node) => markdownNode(node, label)));
}

function markdownNode(node, label) {
  if (typeof node === "string") return element("span", {}, node);
  const { tag, children, href, start } = node;
  if (tag === "pre") return codeBlock(children.join(""), `code in ${label}`);
  const content = children.map((child) => (typeof child === "string" ? child : markdownNode(child, label)));
  if (MARKDOWN_HEADING.test(tag)) return element("p", { class: `heading heading-${tag}` }, ...content);
  if (!MARKDOWN_TAGS.has(tag)) return element("span", {}, ...content);
  if (tag === "a") {
    if (!SAFE_LINK.test(href)) return element("span", {}, ...content);
    return element("a", { href, rel: "noopener noreferrer", target: "_blank" }, ...content);
  }
  if (tag === "table") {
    const scrolled = { class: "scrollable", tabindex: "0", role: "group", "aria-label": `table in ${label}` };
    return element("div", scrolled, element("table", {}, ...content));
  }
  if (tag === "th") return element(children.length ? "th" : "td", {}, ...content);
  return element(tag, { start: tag === "ol" && start !== undefined && start !== 1 ? String(start) : null }, ...content);
}
