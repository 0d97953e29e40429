// The tokens of each request of a conversation as stacked bars, with the cumulative cost as a line.
//
// A bar is a shortcut for the mouse; the tree of requests has the same numbers and links for everyone.

import { tokenUsage, UNFINISHED_STATUSES } from "./conversation.js";
import { element, formatCompact, formatCost, formatNumber, formatTotalCost, svgElement } from "./make.js";

const USAGE_PARTS = [
  ["cached", "cached"],
  ["resent", "re-sent uncached"],
  ["fresh", "new"],
  ["output", "output"],
];
const [MAX_USAGE_BARS, USAGE_BAR_WIDTH, USAGE_GAP, USAGE_HEIGHT] = [200, 18, 4, 120];
const [AXIS_WIDTH, AXIS_MARGIN] = [44, 6]; // left of the bars, and above and below them, for the labels

/**
 * Return the tokens of a request by part: cached input; re-sent input that was not cached; the rest of the input;
 * output. Null without a usage.
 */
function usageParts(link) {
  const usage = tokenUsage(link);
  if (!usage) return null;
  const cached = Math.min(usage.cached, usage.input);
  const resent = Math.max(0, (link.resent_tokens ?? 0) - cached);
  return { cached, resent, fresh: usage.input - cached - resent, output: usage.output };
}

/**
 * Count the requests that have ended, of the branch or of all others, and their uncached input tokens that were sent
 * again: { ended, resentUncached }.
 */
export function describeRequests(conversation, isBranch) {
  const branch = branchIds(conversation);
  const links = [...conversation.links.values()].filter(({ response_id: id }) => branch.has(id) === isBranch);
  const resent = (link) => usageParts(link)?.resent ?? 0;
  return {
    ended: links.filter(({ status }) => !UNFINISHED_STATUSES.includes(status)).length,
    resentUncached: links.reduce((sum, link) => sum + resent(link), 0),
  };
}

/**
 * Create the chart of all requests, oldest first; empty if none has a usage. `open` is called with the id of a bar.
 * The sums and the line of the cost are those of the branch of the conversation, without its forks.
 */
export function usageChart(conversation, selected, open) {
  const links = [...conversation.links.values()].sort((left, right) => left.created_at - right.created_at);
  const bars = links.map((link) => ({ link, parts: usageParts(link) })).filter(({ parts }) => parts);
  if (!bars.length) return [];
  const branch = branchIds(conversation);
  const ownBars = bars.filter(({ link }) => branch.has(link.response_id));
  const unpriced = ownBars.filter(({ link }) => link.cost_usd === null).length;
  let cost = 0;
  for (const bar of bars) bar.cost = null;
  if (unpriced < ownBars.length) for (const bar of ownBars) bar.cost = cost += bar.link.cost_usd ?? 0;
  const shown = bars.slice(-MAX_USAGE_BARS);
  const sumOf = (parts) => Object.values(parts).reduce((sum, tokens) => sum + tokens, 0);
  const maxTokens = Math.max(1, ...shown.map(({ parts }) => sumOf(parts)));
  const width = shown.length * (USAGE_BAR_WIDTH + USAGE_GAP);
  const totalCost = ownBars.at(-1)?.cost ?? null;
  const drawing = svgElement(
    "svg",
    {
      class: "usage-bars",
      viewBox: `${-AXIS_WIDTH} ${-AXIS_MARGIN} ${width + AXIS_WIDTH} ${USAGE_HEIGHT + 2 * AXIS_MARGIN}`,
      width: String(width + AXIS_WIDTH),
      height: String(USAGE_HEIGHT + 2 * AXIS_MARGIN),
      "aria-hidden": "true",
    },
    ...[0, maxTokens / 2, maxTokens].flatMap((tokens) => usageTick(tokens, maxTokens, width)),
    ...shown.map((bar, index) => usageBar(bar, index, maxTokens, selected, open)),
    totalCost ? costLine(shown, totalCost) : null,
  );
  const total = Object.fromEntries(USAGE_PARTS.map(([part]) => [part, ownBars.reduce((sum, { parts }) => sum + parts[part], 0)]));
  const square = (part) => svgElement("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svgElement("rect", { class: part, width: 10, height: 10 }));
  const entries = USAGE_PARTS.map(([part, name]) => element("li", {}, square(part), ` ${name} ${formatNumber(total[part])}`));
  const costEntry = totalCost !== null && element("li", {}, square("cost"), ` cumulative cost ${formatTotalCost(totalCost, unpriced, ownBars.length)}`);
  const hidden = bars.length - shown.length;
  const label = `Tokens by request, ${formatNumber(shown.length)} bars`;
  return [
    element(
      "figure",
      { class: "usage" },
      element("figcaption", {}, "Tokens by request", bars.length > ownBars.length && element("span", { class: "note" }, " sums of this branch"), hidden > 0 && element("span", { class: "note" }, ` the newest ${shown.length}`)),
      element("ul", { class: "legend", "aria-label": bars.length === ownBars.length ? "Tokens of all requests" : "Tokens of the requests of this branch" }, ...entries, costEntry),
      element("div", { class: "scrollable", tabindex: "0", role: "group", "aria-label": label }, drawing),
      element("p", { class: "note" }, `height: tokens · a bar for each request, oldest first${totalCost ? " · line: cumulative cost" : ""}`),
    ),
  ];
}

/** Return the ids of the requests on the branch of the conversation; of all requests if it has no head. */
function branchIds({ data, links }) {
  const ids = new Set();
  for (let link = links.get(data.at); link && !ids.has(link.response_id); link = links.get(link.parent)) ids.add(link.response_id);
  return ids.size ? ids : new Set(links.keys());
}

/** Create the line and the label of a number of tokens. */
function usageTick(tokens, maxTokens, width) {
  const y = USAGE_HEIGHT - (tokens / maxTokens) * (USAGE_HEIGHT - 4);
  return [
    svgElement("line", { class: "chart-line", x1: 0, x2: width, y1: y, y2: y }),
    svgElement("text", { class: "usage-tick", x: -4, y: y + 4, "text-anchor": "end" }, formatCompact(tokens)),
  ];
}

function usageBar({ link, parts, cost }, index, maxTokens, selected, open) {
  const x = index * (USAGE_BAR_WIDTH + USAGE_GAP);
  const id = link.response_id;
  let y = USAGE_HEIGHT;
  const rectangles = USAGE_PARTS.map(([part]) => {
    const height = (parts[part] / maxTokens) * (USAGE_HEIGHT - 4);
    y -= height;
    return svgElement("rect", { class: part, x, y, width: USAGE_BAR_WIDTH, height });
  });
  const figures = USAGE_PARTS.map(([part, name]) => `${name} ${formatNumber(parts[part])}`).join(" · ");
  const title = [`${id}: ${figures}`, link.said, cost !== null && `cumulative cost ${formatCost(cost)}`].filter(Boolean).join("\n");
  const target = svgElement("rect", { class: "usage-target", x, y: 0, width: USAGE_BAR_WIDTH, height: USAGE_HEIGHT });
  const group = { class: `usage-bar ${id === selected ? "selected" : ""}`, "data-response": id, click: () => open(id) };
  return svgElement("g", group, ...rectangles, target, svgElement("title", {}, title));
}

function costLine(bars, totalCost) {
  const point = ({ cost }, index) =>
    cost === null ? null : `${index * (USAGE_BAR_WIDTH + USAGE_GAP) + USAGE_BAR_WIDTH / 2},${USAGE_HEIGHT - (cost / totalCost) * (USAGE_HEIGHT - 4)}`;
  return svgElement("polyline", { class: "usage-cost", points: bars.map(point).filter(Boolean).join(" ") });
}
