// One request in full: the sent request next to the model's input, the output, and a comparison with another.

import { copyAs } from "./code.js";
import { difference } from "./difference.js";
import { formatJson, itemList } from "./items.js";
import { codeBlock, definitionList, element, formatCost, formatCount, formatNumber, formatSeconds, formatTime, formatTokens } from "./make.js";
import { tokenUsage } from "./conversation.js";
import { API_NAMES, statusLabel } from "./requests.js";

const MAX_OTHER_REQUESTS = 200;

/**
 * Create the section of `link`.
 *
 * other:      the id of the request to compare it with
 * compare:    called with the id of another one
 * source:     of the code
 * continued:  the links to the requests that continue it; null without one
 */
export function linkSection(conversation, link, { other, compare, source, continued }) {
  return element(
    "section",
    { "aria-labelledby": "link-title" },
    element("h3", { id: "link-title", tabindex: "-1" }, link.response_id),
    continued,
    linkFacts(conversation, link),
    ...missFacts(link.cache_miss),
    ...copyAs(source, link.response_id, "h4"),
    requestAndInput(conversation, link),
    element("h4", {}, "Output"),
    ...itemList("output", conversation.output(link)),
    ...comparison(conversation, link, other, compare),
  );
}

/** Return a note about a recorded request of another API than the Responses API; null for all others. */
function translationNote(link) {
  const { protocol = "responses" } = link.recording ?? {};
  return protocol !== "responses" ? `sent to ${API_NAMES[protocol]}; shown in the form of the Responses API` : null;
}

/** Create the list of facts of `link`. */
export function linkFacts(conversation, link) {
  const usage = tokenUsage(link);
  return definitionList([
    ["Owner", conversation.data.owners[link.strategy]],
    ["Created by", link.session ?? "another client of the endpoint"],
    ["Model", link.model],
    ["Provider", link.provider],
    ["Status", statusLabel(link.status)],
    ["Created", formatTime(link.created_at, true)],
    ["First token", formatSeconds(link.first_token_s ?? null)],
    ["Duration", formatSeconds(link.seconds)],
    ["Usage", usage && formatTokens(usage)],
    ["Re-sent", link.resent_tokens ? `${formatNumber(link.resent_tokens)} of the input` : null],
    ["Cost", link.cost_usd === null ? null : formatCost(link.cost_usd)],
    ["Client", link.client],
    ["Form", translationNote(link)],
    ["Note", link.recording?.notes?.join("; ") || null],
    ["Ignored", link.ignored?.length ? link.ignored.join(", ") : null],
    ["Error", link.error && String(link.error.message ?? link.error.code)],
  ]);
}

const MISS_WORDS = { miss: "missed", partial: "partly missed" };

/** Create the list of facts about a prompt cache that was missed: the record of `convo why`; empty without a miss. */
export function missFacts(miss) {
  if (!miss) return [];
  const { outcome, compared_id: comparedId, cached_tokens: cached, reusable_tokens: reusable, missed_tokens: missed, reported, fix } = miss;
  const tokens = reported?.missed_tokens;
  const cost = miss.cost_usd === null ? "unknown" : formatCost(miss.cost_usd);
  const facts = definitionList(
    [
      ["Prompt cache", `${MISS_WORDS[outcome]}: ${formatNumber(cached)} of ${formatNumber(reusable)} reusable tokens were read from it`],
      [`${reported?.vendor} says`, reported && [reported.reason ?? reported.type, tokens && formatCount(tokens, "token")].filter(Boolean).join(", ")],
      ["Cause", miss.description],
      ["Compared with", comparedId],
      ["Cost of the miss", `${cost} for ${formatCount(missed, "token")} not reused`],
      ["Note", miss.note],
      ["Fix", fix],
    ],
    { id: "cache-miss" },
  );
  return [facts];
}

/** Show the request as it was sent, next to the model's input. */
function requestAndInput(conversation, link) {
  const input = conversation.modelInput(link);
  const sent = conversation.sentItems(link);
  const fields = formatJson(conversation.request(link));
  const deletedNote = element("p", { class: "aside" }, "an item was deleted");
  return element(
    "div",
    { class: "side-by-side" },
    element(
      "section",
      { "aria-labelledby": "sent-title" },
      element("h4", { id: "sent-title" }, `Sent: ${formatCount(link.items_sent, "item")}`),
      codeBlock(fields, "the request without its items"),
      ...(sent ? itemList("sent", sent) : [deletedNote]),
    ),
    element(
      "section",
      { "aria-labelledby": "input-title" },
      element(
        "h4",
        { id: "input-title" },
        `Model input: ${input ? formatCount(input.length, "item") : "no longer available"}`,
      ),
      ...(input ? itemList("input", input) : [deletedNote.cloneNode(true)]),
    ),
  );
}

function comparison(conversation, link, other, compare) {
  const ids = conversation.data.rows.filter((id) => id !== link.response_id);
  if (!ids.length) return [];
  const child = ids.find((id) => conversation.links.get(id).parent === link.response_id);
  const selected = other ?? link.parent ?? child ?? ids[0];
  const newest = ids.slice(-MAX_OTHER_REQUESTS);
  const choices = newest.includes(selected) ? newest : [selected, ...newest];
  const options = choices.map((id) => element("option", { value: id, selected: id === selected }, id));
  const select = element("select", { id: "other", change: ({ target }) => compare(target.value) }, ...options);
  const otherLink = conversation.links.get(selected);
  return [
    element("h4", {}, "Compare with another request"),
    element("p", {}, element("label", { for: "other" }, "Other request "), select),
    ...(otherLink ? difference(conversation, otherLink, link) : []),
  ];
}
