// The keys of the page, and the dialog that lists them.

import { element } from "./make.js";

const KEYS = [
  ["j", "Next row"],
  ["k", "Previous row"],
  ["Enter", "Open the row"],
  ["Esc", "Close the request, or go back to the requests"],
  ["/", "Search the requests"],
  ["?", "Show these keys"],
];

/** Open the list of keys; it closes with Esc and returns the focus to where it was. */
export function showKeys() {
  if (document.querySelector("dialog[open]")) return;
  const rows = KEYS.flatMap(([key, text]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, text)]);
  const dialog = element(
    "dialog",
    { "aria-labelledby": "keys-title", close: () => dialog.remove() },
    element("h2", { id: "keys-title" }, "Shortcuts"),
    element("dl", {}, ...rows),
    element("button", { type: "button", click: () => dialog.close() }, "Close"),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * Call the action of a key: { next, previous, open, close, search }.
 *
 * Keys with modifiers, and those for a field or a dialog, are left to the browser.
 */
export function handleKey(event, actions) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  const isField = event.target.closest("input, select, textarea");
  if (isField && event.key !== "Escape") return;
  const isControl = event.target.closest("a, button, summary, [role=tab]");
  const action = {
    j: actions.next,
    k: actions.previous,
    Enter: isControl || isField ? undefined : actions.open,
    Escape: isField ? () => event.target.blur() : actions.close,
    "/": document.getElementById("filter-q") ? actions.search : undefined,
    "?": showKeys,
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}
