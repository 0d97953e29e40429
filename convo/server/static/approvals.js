// Approve and Reject: the buttons of a pending call, the dialog that confirms a decision, and the dialog of all approvals.
//
// The server stores a decision and runs nothing. The dialog shows the exact arguments; the server refuses the decision
// if they changed meanwhile, if another person decided before, or without an API key.

import { decodeEscapes } from "./items.js";
import { address } from "./list.js";
import { codeBlock, definitionList, element, formatCount, formatNumber, formatTime } from "./make.js";

// Characters that change how text looks, or are invisible: the dialog shows their JSON escapes.
const MISLEADING =
  /[\u0000-\u0009\u000b-\u001f\u007f-\u00a0\u00ad\u061c\u115f\u1160\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}\u{e0100}-\u{e01ef}]/gu;
const LOG_LIMIT = 100;
const VERBS = { approve: ["Approve", "Approved"], reject: ["Reject", "Rejected"] };

/**
 * Create the buttons of a pending call; nothing if the page is a file.
 *
 * decided: called after a decision, to draw the page again
 * place:   in the ids of the buttons, if the page has the call twice
 */
function approvalButtons(source, runId, callId, toolName, decided, place) {
  if (!source.isLive) return [];
  const buttons = ["approve", "reject"].flatMap((decision, index) => {
    const id = `${place}${decision}-${runId}-${callId}`;
    const label = `${VERBS[decision][0]} ${toolName ?? "call"} (${callId})`;
    const click = () => confirmDecision(source, runId, callId, decision, decided);
    return [index > 0 && " ", element("button", { type: "button", id, "aria-label": label, "aria-haspopup": "dialog", click }, `${VERBS[decision][0]}…`)];
  });
  return [" ", element("span", { class: "fact" }, ...buttons)];
}

/** Create the list of the pending calls of a run, with their arguments and buttons. */
export function pendingCalls(source, runId, pending, decided, place = "") {
  const calls = pending.map(({ call_id: id, name, arguments: text }) =>
    element("li", {}, `${name ?? "call"} (${id}) `, text && element("code", {}, readableArguments(text)), ...approvalButtons(source, runId, id, name, decided, place)),
  );
  return element("ul", { class: "pending" }, ...calls);
}

/** Return the arguments of a call to read: letters decoded, and misleading characters as escapes. */
function readableArguments(text) {
  return escapeMisleading(decodeEscapes(text));
}

/** Load a pending call and open the dialog that decides it; an error is shown and announced in place of the call. */
async function confirmDecision(source, runId, callId, decision, decided) {
  document.querySelector("dialog.decisions")?.close();
  if (document.querySelector("dialog[open]")) return;
  const body = element("div", { class: "approval-body" }, element("p", {}, "Loading the call"));
  const title = element("h2", { id: "approval-title", tabindex: "-1" }, `${VERBS[decision][0]} a call`);
  const dialog = openDialog("approval", title, body);
  try {
    const call = await source.approval(runId, callId);
    title.textContent = "";
    title.append(element("span", {}, `${VERBS[decision][0]} ${call.tool_name}?`));
    const done = async (outcome) => {
      dialog.close();
      announce(outcome);
      await decided();
      if (document.activeElement === document.body) document.getElementById("main").focus(); // the buttons are gone
    };
    body.replaceChildren(...decisionForm(source, call, decision, done, () => dialog.close()));
  } catch (error) {
    body.replaceChildren(element("p", { role: "alert" }, error.message), closeButton(dialog));
  }
}

function decisionForm(source, call, decision, done, cancel) {
  const misleading = call.arguments.match(MISLEADING) ?? [];
  const facts = definitionList([
    ["Session", call.session],
    ["Run", call.run_id],
    ["Agent", call.agent],
    ["Call", call.call_id],
    ["Digest", digestText(call.arguments_digest)],
  ]);
  const notes = [
    decodeEscapes(call.arguments) !== call.arguments && "Letters that were sent as \\u escapes are shown decoded.",
    call.is_hosted && "The provider runs this tool.",
    call.outcome_unknown && "The call was started, and its outcome is unknown: it may have run already.",
    misleading.length > 0 && `${formatCount(misleading.length, "character")} that would be invisible or change the direction of the text: shown as \\u escapes.`,
  ];
  const content = [
    facts,
    element("p", {}, element("strong", {}, "Arguments"), ` (${formatCount(call.arguments.length, "character")})`),
    codeBlock(readableArguments(call.arguments), `Arguments of ${call.tool_name}`),
    ...notes.filter(Boolean).map((note) => element("p", { class: "note" }, note)),
  ];
  const cancelButton = element("button", { type: "button", id: "decision-cancel", click: cancel }, call.can_decide ? "Cancel" : "Close");
  if (!call.can_decide) return [...content, element("p", { role: "alert" }, `A decision needs an API key: ${call.hint}`), cancelButton];

  const reason = element("textarea", { id: "decision-reason", rows: "2", maxlength: "10000" });
  const always = element("input", { id: "decision-always", type: "checkbox" });
  const send = element("button", { type: "submit", id: "decision-send", class: decision }, VERBS[decision][0]);
  const status = element("p", { id: "decision-error", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    status.textContent = "";
    try {
      const outcome = await source.decide({
        run_id: call.run_id,
        call_id: call.call_id,
        decision,
        arguments_digest: call.arguments_digest,
        call_digest: call.call_digest,
        csrf_token: call.csrf_token,
        always: always.checked,
        ...(decision === "reject" && reason.value ? { reason: reason.value } : {}),
      });
      const next = outcome.open_in ? `The open chat continues the run (${outcome.open_in}).` : `To continue the run: ${outcome.resume}`;
      const left = outcome.pending ? `${formatCount(outcome.pending, "call")} still pending.` : next;
      const others = outcome.decisions.length > 1 ? ` and ${formatCount(outcome.decisions.length - 1, "other call")}` : "";
      done(`${VERBS[decision][1]} ${call.tool_name} (${call.call_id})${others}. ${left}`);
    } catch (error) {
      status.append(element("span", {}, error.message));
      send.disabled = false;
    }
  };
  const reasonField = decision === "reject" && element("p", {}, element("label", { for: "decision-reason" }, "Reason for the model (optional)"), reason);
  return [
    ...content,
    element(
      "form",
      { submit, "aria-label": `${VERBS[decision][0]} ${call.tool_name}` },
      reasonField,
      element("p", {}, always, " ", element("label", { for: "decision-always" }, `Always: every later call of ${call.tool_name} in this run, too`)),
      status,
      element("p", { class: "buttons" }, send, " ", cancelButton),
    ),
  ];
}

/** Escape misleading characters as JSON does: \u202e, two escapes above U+FFFF. */
function escapeMisleading(text) {
  const escapeUnit = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return text.toWellFormed().replace(MISLEADING, (character) => character.split("").map(escapeUnit).join(""));
}

/** Show the outcome of a decision until the next one; a screen reader announces it. */
function announce(text) {
  const status = document.getElementById("decision-status");
  status.replaceChildren(element("span", {}, text));
}

/** Show the number of pending calls on the button that opens the approvals. */
export function showPendingCount(runs) {
  const count = countPending(runs);
  const text = count ? `Approvals (${formatNumber(count)})` : "Approvals";
  const button = document.getElementById("approvals");
  if (button.textContent !== text) button.textContent = text;
}

function countPending(runs) {
  return runs.reduce((sum, { pending }) => sum + pending.length, 0);
}

/** Open the approvals: the pending calls of the paused runs, and the log of decisions, newest first. */
export async function showApprovals(source, runs, decided) {
  if (document.querySelector("dialog[open]")) return;
  const body = element("div", { class: "approval-body" }, element("p", {}, "Loading the decisions"));
  const dialog = openDialog("decisions", element("h2", { id: "approvals-title", tabindex: "-1" }, "Approvals"), body);
  const waiting = runs.filter(({ pending }) => pending.length).map(({ run_id: id, session, pending }) =>
    element("li", {}, element("a", { href: address(session), click: () => dialog.close() }, session), pendingCalls(source, id, pending, decided, "dialog-")),
  );
  const pendingPart = [
    element("h3", {}, "Pending"),
    waiting.length ? element("ul", { class: "waiting-runs" }, ...waiting) : element("p", {}, "No call waits for approval."),
    element("h3", {}, "Decided"),
  ];
  try {
    const { decisions } = await source.decisions(LOG_LIMIT);
    const entries = decisions.map(decisionEntry);
    const content = entries.length ? element("ol", { class: "decision-log" }, ...entries) : element("p", {}, "No decisions on calls of agent runs.");
    const note = decisions.length === LOG_LIMIT && element("p", { class: "note" }, `The newest ${LOG_LIMIT}; convo approvals log prints all.`);
    body.replaceChildren(...pendingPart, content, ...(note ? [note] : []), closeButton(dialog));
  } catch (error) {
    body.replaceChildren(...pendingPart, element("p", { role: "alert" }, error.message), closeButton(dialog));
  }
}

/** Create a digest in one line: its end may be cut off, a click selects all of it. */
function digestText(digest) {
  return element("span", { class: "note digest", title: digest }, digest);
}

function decisionEntry(entry) {
  const always = entry.always ? " always" : "";
  const by = entry.decided_by ? ` by ${entry.decided_by}` : "";
  return element(
    "li",
    {},
    element("strong", {}, `${VERBS[entry.decision][1]}${always}: ${entry.tool_name}`),
    element("span", { class: "note" }, ` ${formatTime(entry.decided_at, true)}${by} · ${entry.agent} · ${entry.call_id} · ${entry.run}`),
    element("code", {}, readableArguments(entry.arguments)),
    entry.reason && element("span", { class: "note" }, `Reason: ${entry.reason}`),
    digestText(entry.arguments_digest),
  );
}

function openDialog(name, title, body) {
  const opener = document.activeElement;
  const openerId = opener?.id;
  const close = () => {
    dialog.remove();
    (opener?.isConnected ? opener : document.getElementById(openerId))?.focus();
  };
  const dialog = element("dialog", { "aria-labelledby": title.id, class: name, close }, title, body);
  document.body.append(dialog);
  dialog.showModal();
  title.focus();
  return dialog;
}

function closeButton(dialog) {
  return element("button", { type: "button", click: () => dialog.close() }, "Close");
}
