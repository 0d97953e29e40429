// The agent runs of a session on a timeline: model calls, tool calls with arguments and outputs, handoffs, guardrails.

import { element, formatAge, formatCount, formatSeconds, formatTime, svgElement } from "./make.js";
import { jsonTree } from "./json.js";

const HANDOFF_NAME = /^transfer_to_/;

const openRuns = new Set(); // handles whose runs are shown: they stay when the page is drawn again

/** Create the runs of a session, which are loaded when they are opened; empty for another conversation or a file. */
export function agentRuns(source, conversation, handle, addressOf) {
  if (!source.isLive || !conversation.data.is_session) return [];
  const result = element("div", { id: "runs-result" });
  const load = async () => {
    openRuns.add(handle);
    try {
      const runs = await source.runs(handle);
      const none = element("p", { class: "aside" }, "This conversation has no agent runs.");
      result.replaceChildren(...(runs.length ? runs.map((run) => runTimeline(run, conversation, addressOf)) : [none]));
    } catch (error) {
      result.replaceChildren(element("p", { class: "aside" }, error.message));
    }
  };
  const toggle = ({ target }) => (target.open ? load() : openRuns.delete(handle));
  return [
    element("details", { class: "runs", id: "runs", open: openRuns.has(handle), toggle }, element("summary", {}, "Agent runs"), result),
  ];
}

/** Create one run: its facts, and its events in the order of time. */
function runTimeline(run, conversation, addressOf) {
  const { created_at: begin, changed_at: end } = run;
  const requests = conversation.data.links
    .filter((link) => link.created_at >= begin - 1 && link.created_at <= end + 1)
    .map((link) => ({ at: link.created_at, duration: link.seconds, node: requestEvent(link, addressOf), kind: "request" }));
  const stored = new Set(run.timeline.map(({ call_id: id }) => id).filter(Boolean));
  const calls = run.calls.filter(({ call_id: id }) => !stored.has(id)).map((call) => ({
    at: call.started_at,
    duration: null,
    node: callEvent(call),
    kind: HANDOFF_NAME.test(call.name ?? "") ? "handoff" : "call",
  }));
  const known = new Set([...stored, ...run.calls.map(({ call_id: id }) => id)]);
  const handoffs = requests.length ? handoffEvents(conversation, begin, end, known) : [];
  const others = run.timeline.map((entry) => ({ at: entry.started_at, duration: entry.duration_s, node: storedEvent(entry), kind: entry.kind }));
  const events = [...requests, ...calls, ...handoffs, ...others].sort((left, right) => left.at - right.at);
  const span = Math.max(0.001, end - begin);
  const agents = run.agents.map(({ name, tools }) => `${name}${tools.length ? ` (${tools.join(", ")})` : ""}`);
  const notes = [
    `${run.status}, ${formatTime(begin, true)}, ${formatSeconds(end - begin)}`,
    run.turn !== null && formatCount(run.turn, "turn"),
    run.agent && `agent ${run.agent}`,
    agents.length && `tools used: ${agents.join(", ")}`,
    run.open_guardrails.length && `guardrails running: ${run.open_guardrails.map((name) => name ?? "unnamed").join(", ")}`,
    run.failure && `failed: ${run.failure}`,
    run.timeline_omitted && `${formatCount(run.timeline_omitted, "later event")} not stored`,
  ];
  const event = ({ at, duration, node, kind }) =>
    element("li", { class: kind }, element("span", { class: "offset" }, `+${formatSeconds(Math.max(0, at - begin))}`), timeBar(at - begin, duration, span, kind), node);
  return element(
    "section",
    { class: "run", "aria-label": `Agent run ${run.id}` },
    element("h4", {}, run.id, element("span", { class: "note" }, ` ${formatAge(Date.now() / 1000 - end)}`)),
    element("p", { class: "note" }, notes.filter(Boolean).join(" · ")),
    element("ol", { class: "timeline" }, ...events.map(event)),
  );
}

/** Create the position and the duration of an event within its run. */
function timeBar(offset, duration, span, kind) {
  const start = Math.min(98, Math.max(0, (offset / span) * 100));
  const width = Math.min(100 - start, Math.max(2, ((duration ?? 0) / span) * 100));
  return svgElement(
    "svg",
    { class: "time-bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svgElement("rect", { class: `time-${kind}`, x: start, y: 2, width, height: 6 }),
  );
}

function requestEvent(link, addressOf) {
  const text = [link.said, link.answered].filter(Boolean).join(" → ");
  return element("div", {}, element("a", { href: addressOf(link.response_id) }, "model call"), ` ${link.model} `, element("span", { class: "preview" }, text));
}

function callEvent({ name, call_id: id, arguments: text, has_ended: hasEnded, output }) {
  const parsed = { arguments: parseJson(text), output: hasEnded ? parseJson(output) : "not ended" };
  const toggle = ({ target }) => target.open && !target.querySelector(".json") && target.append(jsonTree(parsed, `call ${id}`));
  return element(
    "details",
    { toggle },
    element("summary", {}, `${HANDOFF_NAME.test(name ?? "") ? "handoff" : "tool"} ${name ?? id}${hasEnded ? "" : ", not ended"}`),
  );
}

/** Create the text of a guardrail that ended, or of a handoff. */
function storedEvent({ kind, agent, name, side, outcome, reason, target, duration_s: duration }) {
  if (kind === "handoff") return element("div", {}, `handoff ${agent} → ${target}`);
  const result = [outcome, formatSeconds(duration ?? 0), reason].filter(Boolean).join(", ");
  return element("div", { class: outcome }, `${side} guardrail ${name} of ${agent}: ${result}`);
}

/** Create the events of handoffs, which are items of a response and not in the log of calls. */
function handoffEvents(conversation, begin, end, logged) {
  return conversation.data.links
    .filter((link) => link.created_at >= begin - 1 && link.created_at <= end + 1)
    .flatMap((link) =>
      conversation
        .output(link)
        .filter(({ item }) => item?.type === "function_call" && HANDOFF_NAME.test(item.name ?? "") && !logged.has(item.call_id))
        .map(({ item }) => ({
          at: link.created_at + (link.seconds ?? 0),
          duration: null,
          node: callEvent({ name: item.name, call_id: item.call_id, arguments: item.arguments, has_ended: true, output: null }),
          kind: "handoff",
        })),
    );
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
