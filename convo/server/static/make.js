// Elements of the page, built from tags, attributes and text.
//
// Text of users and models arrives as strings and becomes text nodes, only in this module. Nothing
// in this folder parses a string as HTML, as a script or as a style, and the page's policy forbids it.

const SVG = "http://www.w3.org/2000/svg";

// Characters that are not text: controls, changes of direction, invisible characters.
const UNREADABLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}\u{e0100}-\u{e01ef}]/gu;

/** `element("a", { href: "#/x", click: go }, "text", another)`; an attribute that is a function is a listener. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawing(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace characters that are not text by U+FFFD. */
export function legible(words) {
  return String(words).replaceAll("\r\n", "\n").toWellFormed().replace(UNREADABLE, "\ufffd");
}

/** Format 1234567 as "1,234,567"; an unknown figure as a dash. */
export function figure(number) {
  return number === null || number === undefined ? "-" : number.toLocaleString("en");
}

/** Format US dollars to a hundredth of a cent; a smaller cost is never shown as zero. */
export function dollars(cost) {
  return cost > 0 && cost < 0.0001 ? "<$0.0001" : `$${cost.toFixed(4)}`;
}

/** Format a count: "1 item", "2 items". */
export function counted(number, noun) {
  return `${figure(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Format seconds since 1970 in local time, to the minute. */
export function time(seconds) {
  const at = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** Create a list of terms; a pair without a value is left out. */
export function facts(pairs) {
  const told = pairs.filter(([, words]) => words !== null && words !== undefined && words !== "");
  return element("dl", {}, ...told.flatMap(([term, words]) => [element("dt", {}, term), element("dd", {}, words)]));
}

/** Create a scrolling text box that the keyboard can scroll, too. */
export function code(words, label) {
  return element("pre", { tabindex: "0", role: "group", "aria-label": label }, element("code", {}, words));
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  const shown = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  made.append(...shown.map((child) => (typeof child === "string" ? legible(child) : child)));
  return made;
}
