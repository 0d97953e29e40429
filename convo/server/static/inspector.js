// The inspector: a list of conversations, and one of them as a tree of requests.
//
// The address names the conversation: #/HANDLE or #/HANDLE/RESPONSE. The page fetches it from its
// source, draws it, and polls while the page is visible: often while a response is in progress, seldom
// otherwise, and never for more than a tenth of the time.

import { Conversation } from "./conversation.js";
import { listOf } from "./items.js";
import { linkSection } from "./link.js";
import { address, conversations } from "./list.js";
import { counted, dollars, element, facts, figure } from "./make.js";
import { startOver } from "./paged.js";
import { KeyRequired, source } from "./source.js";
import { tree } from "./tree.js";

const [OFTEN_MS, SELDOM_MS] = [300, 1000];
const from = source();
const part = (id) => document.getElementById(id);

const NOTHING = { list: "", listed: "", conversation: null, drawn: "", running: [] };
const shown = { handle: "", link: "", other: undefined, limit: 50, ...NOTHING };
let timer = 0;
let turn = 0;

function route() {
  const [, handle = from.only ?? "", link = ""] = location.hash.split("/").map(decoded);
  return { handle, link };
}

function decoded(words) {
  try {
    return decodeURIComponent(words);
  } catch {
    return words; // typed by hand, not a valid encoding
  }
}

/** Open the conversation in the address, and move the focus there, as a browser does with a page. */
async function open() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const { handle, link } = route();
  const moved = handle !== shown.handle || link !== shown.link;
  if (handle !== shown.handle) Object.assign(shown, { conversation: null, running: [] });
  Object.assign(shown, { handle, link, other: undefined, drawn: "" });
  startOver();
  if (shown.conversation) drawMain();
  const looked = look();
  if (!shown.conversation) await looked;
  if (moved) (part("link-title") ?? part("conversation-title"))?.focus();
}

/** Fetch the data of the page, draw changes, and schedule the next poll. */
async function look() {
  clearTimeout(timer);
  const mine = (turn += 1);
  const began = performance.now();
  part("forget").hidden = !from.hasKey;
  try {
    await news(() => mine === turn);
  } catch (wrong) {
    if (mine !== turn) return;
    if (wrong instanceof KeyRequired) return askForKey(wrong);
    failed(wrong);
  }
  if (!from.live || mine !== turn) return;
  const took = performance.now() - began;
  timer = setTimeout(look, Math.max(shown.running.length ? OFTEN_MS : SELDOM_MS, 10 * took));
}

async function news(current) {
  if (document.hidden && shown.drawn) return;
  const { handle } = shown;
  const { running, ...list } = await from.list(shown.limit);
  if (!current()) return;
  if (JSON.stringify(list) !== shown.list || shown.listed !== handle) drawList(list);
  const found = handle ? await from.conversation(handle, shown.conversation?.found.version) : { running };
  if (!current()) return;
  if (found.links) shown.conversation = new Conversation(found);
  shown.running = found.running ?? [];
  drawMain();
}

// -- drawing -------------------------------------------------------------------------------------

function drawList(list) {
  Object.assign(shown, { list: JSON.stringify(list), listed: shown.handle });
  const more = () => {
    shown.limit *= 2;
    look();
  };
  keepingFocus(() => part("list").replaceChildren(...conversations(list, { selected: shown.handle, more })));
}

function drawMain() {
  const found = shown.conversation?.found;
  const drawn = JSON.stringify([shown.handle, shown.link, shown.other, found?.version ?? shown.list]);
  if (drawn !== shown.drawn) {
    shown.drawn = drawn;
    const parts = found ? conversation(shown.conversation) : welcome(JSON.parse(shown.list));
    keepingFocus(() => part("main").replaceChildren(...parts, element("div", { id: "running" })));
    document.title = found ? `${found.name} · convo` : "convo";
  }
  drawRunning();
}

function welcome({ sessions, others }) {
  const nothing = "No conversations yet. A conversation appears here when it is stored.";
  const words = sessions.length + others.length ? "Choose a conversation." : nothing;
  return [heading("Inspector"), element("p", {}, words)];
}

function heading(words) {
  return element("h2", { id: "conversation-title", tabindex: "-1" }, words);
}

function conversation(one) {
  const { found } = one;
  const link = one.links.get(shown.link);
  return [
    heading(found.name),
    about(found),
    ...found.notes.map((note) => element("p", { class: "aside" }, note)),
    ...(found.links.length ? requests(one) : []),
    ...(link ? [linkSection(one, link, { other: shown.other, compare })] : whole(one)),
  ];
}

function requests(one) {
  const drawn = tree(one, { selected: shown.link, address: (id) => address(shown.handle, id) });
  return [element("h3", {}, "Requests"), ...drawn];
}

function about(found) {
  const waiting = found.unacknowledged.length;
  return facts([
    ["Owner", found.owner],
    ["Handle", found.handle],
    ["Endpoint", found.endpoint],
    ["Model", found.model],
    ["Head", `${counted(found.items_at_head, "item")}${found.at ? `, @ ${found.at}` : ""}`],
    ["Unconfirmed", waiting ? counted(waiting, "item") : "none"],
    ["Total", found.bill && spent(found.bill)],
  ]);
}

function spent({ requests, input, cached, output, again, cost_usd: cost }) {
  const tokens = `${figure(input)} input · ${figure(cached)} cached · ${figure(output)} output`;
  const price = cost === null ? "" : ` · ${dollars(cost)}`;
  return `${counted(requests, "request")} · ${tokens} · ${figure(again)} re-sent${price}`;
}

function whole(one) {
  return [element("h3", {}, "History"), ...listOf("path", one.path(), "h4")];
}

function compare(other) {
  shown.other = other;
  drawMain();
}

/** Report an error; a conversation that is already drawn stays. */
function failed(wrong) {
  if (!shown.conversation) {
    shown.drawn = "";
    part("main").replaceChildren(heading("Cannot show the conversation"), element("p", {}, wrong.message));
  }
  tell(wrong.message);
}

/** Draw the responses in progress; their text grows in place. */
function drawRunning() {
  const { running, conversation: one } = shown;
  part("running").replaceChildren(...running.map(answering));
  const still = from.live ? ["Up to date", one?.found.name].filter(Boolean).join(": ") : "Loaded from a file";
  tell(running.length ? `${counted(running.length, "response")} in progress` : still);
}

function answering(one) {
  return element(
    "article",
    { class: "assistant running", "aria-label": `${one.response_id}, in progress` },
    element("h3", {}, `${one.response_id} `, element("span", { class: "note" }, `${one.status} · ${one.model}`)),
    element("p", {}, one.text || "…"),
  );
}

/** Update the status text if it has changed: a screen reader reads every update. */
function tell(words) {
  if (part("state").textContent !== words) part("state").textContent = words;
}

/** Draw, and return the focus to the new element with the id of the focused one. */
function keepingFocus(draw) {
  const { id } = document.activeElement ?? {};
  draw();
  if (id && document.activeElement?.id !== id) part(id)?.focus({ preventScroll: true });
}

// -- keys ----------------------------------------------------------------------------------------

function askForKey(wrong) {
  const refused = from.hasKey ? wrong.message : "";
  from.forget();
  const secret = { type: "password", autocomplete: "off", spellcheck: "false", required: true };
  const field = element("input", { id: "key", "aria-describedby": "key-note", ...secret });
  const submit = (event) => {
    event.preventDefault();
    from.take(field.value.trim());
    look();
  };
  Object.assign(shown, NOTHING);
  part("list").replaceChildren();
  part("main").replaceChildren(
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
  part("forget").hidden = true;
  tell(refused || "API key required");
  field.focus();
}

function forgetKey() {
  from.forget();
  look();
}

addEventListener("hashchange", open);
document.addEventListener("visibilitychange", () => document.hidden || look());
part("forget").addEventListener("click", forgetKey);
open();
