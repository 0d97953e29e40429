// Elements of the page, built from tags, attributes and text.
//
// Text of users and models arrives as strings and becomes text nodes, only in this module. Nothing
// in this folder parses a string as HTML, as a script or as a style, and the page's policy forbids it.

const SVG = "http://www.w3.org/2000/svg";

// Characters that are not text: controls, changes of direction, invisible characters.
const UNPRINTABLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}\u{e0100}-\u{e01ef}]/gu;

const THOUSANDS = /\B(?=(?:\d{3})+$)/g; // the first use of a locale takes 20 ms, as long as all rows of the table

/** `element("a", { href: "#/x", click: go }, "text", child)`; an attribute that is a function is a listener. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace characters that are not text by U+FFFD. */
function replaceUnprintable(text) {
  return text.replaceAll("\r\n", "\n").toWellFormed().replace(UNPRINTABLE, "\ufffd");
}

/** Format 1234567 as "1,234,567"; an unknown number as a dash. */
export function formatNumber(number) {
  if (number === null || number === undefined) return "-";
  return Number.isSafeInteger(number) ? String(number).replace(THOUSANDS, ",") : number.toLocaleString("en");
}

/** Format a figure of an axis in few characters: 1200000 as "1.2M". */
export function formatCompact(number) {
  return number.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
}

/** Format US dollars to a hundredth of a cent, a smaller cost with two digits: $1.2500, $0.000042. */
export function formatCost(cost) {
  const decimals = cost > 0 ? 1 - Math.floor(Math.log10(cost)) : 0;
  return `$${cost.toFixed(Math.min(Math.max(4, decimals), 12))}`;
}

/** Format a number of bytes: "900 B", "5.1 KB", "1.2 MB". */
export function formatBytes(bytes) {
  const [size, unit] = [
    [1e6, "MB"],
    [1e3, "KB"],
  ].find(([unitSize]) => bytes >= unitSize) ?? [1, "B"];
  return `${size === 1 ? bytes : (bytes / size).toFixed(1)} ${unit}`;
}

/** Format the cost of several requests, as a lower bound if some have no known price; null without a known cost. */
export function formatTotalCost(knownCost, unpriced, requests) {
  if (knownCost === null || !unpriced) return knownCost === null ? null : formatCost(knownCost);
  return `at least ${formatCost(knownCost)} (${formatNumber(unpriced)} of ${formatCount(requests, "request")} ${unpriced === 1 ? "has" : "have"} no price)`;
}

/** Format a count: "1 item", "2 items". */
export function formatCount(number, noun) {
  return `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Format input and output tokens, with the cached tokens in the input: "36 input (12 cached) · 27 output". */
export function formatTokens({ input, cached, output }) {
  const inInput = cached ? ` (${formatNumber(cached)} cached)` : "";
  return `${formatNumber(input)} input${inInput} · ${formatNumber(output)} output`;
}

/** Format a duration in seconds; null if it is unknown. */
export function formatSeconds(seconds) {
  return seconds === null ? null : `${seconds.toFixed(seconds < 100 ? 1 : 0)} s`;
}

/** Format an age in seconds: "12 s ago", "3 min ago", "5 days ago". */
export function formatAge(seconds) {
  if (seconds < 5) return "now";
  const [size, unit] = [
    [86400, "day"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ].find(([unitSize]) => seconds >= unitSize);
  const number = Math.floor(seconds / size);
  return `${formatNumber(number)} ${unit}${unit === "day" && number > 1 ? "s" : ""} ago`;
}

/** Format seconds since 1970 in local time, to the minute, or to the second if `isExact`. */
export function formatTime(seconds, isExact = false) {
  const date = new Date(seconds * 1000);
  const twoDigits = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
  const time = `${day} ${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
  return isExact ? `${time}:${twoDigits(date.getSeconds())}` : time;
}

/** Create a list of [term, value] pairs; a pair without a value is left out. */
export function definitionList(pairs, attributes = {}) {
  const present = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", attributes, ...present.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}

/** Create a scrolling text box that the keyboard can scroll, too. */
export function codeBlock(text, label) {
  return element("pre", { tabindex: "0", role: "group", "aria-label": label }, element("code", {}, text));
}

/** Set the attributes and listeners of `node`, and append its children. */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  const present = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  node.append(...present.map((child) => (typeof child === "string" ? replaceUnprintable(child) : child)));
  return node;
}
