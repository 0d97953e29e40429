// Charts of the requests that the filters show: a section above the table that is fetched only while it is open.
//
// A new filter is fetched at once. The same one is fetched again a second later at the earliest, and after a slow reply
// ten times as long as it took, at most ten seconds. Each chart is an image with a title and a description; a table
// below it has the same figures. A click on a bar shows the requests of its time, as a link in the table does.

import { element, formatCompact, formatCost, formatCount, formatNumber, formatTime, svgElement } from "./make.js";
import { timeRange, viewAddress } from "./requests.js";

const [MIN_CHART_PAUSE_MS, MAX_CHART_PAUSE_MS, CHART_PAUSE_FACTOR] = [1000, 10_000, 10];
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 190, 46, 6, 20, 34];
const [BAR_ROW, BAR_LABEL_CHARS] = [18, 28];
const UNITS = [
  [86400, "day"],
  [3600, "hour"],
  [60, "minute"],
  [1, "second"],
];

// The charts over time: title, label of the axis, format of a figure, form, and per series its name, colour and value.
const TIME_CHARTS = [
  [
    "Requests",
    "requests",
    formatNumber,
    "bars",
    [
      ["not failed", "chart-requests", (bucket) => bucket.requests - bucket.errors],
      ["failed", "chart-errors", (bucket) => bucket.errors],
    ],
  ],
  [
    "Latency",
    "seconds",
    formatDuration,
    "lines",
    [
      ["p50", "chart-p50", (bucket) => bucket.latency_p50_s],
      ["p95", "chart-p95", (bucket) => bucket.latency_p95_s],
    ],
  ],
  [
    "Tokens",
    "tokens",
    formatNumber,
    "bars",
    [
      ["uncached input", "chart-input", (bucket) => Math.max(0, bucket.input_tokens - bucket.cached_tokens)],
      ["cached input", "chart-cached", (bucket) => bucket.cached_tokens],
      ["output", "chart-output", (bucket) => bucket.output_tokens],
    ],
  ],
  [
    "Cache hit rate",
    "cached part of the input",
    formatShare,
    "lines",
    [["hit rate", "chart-cached", (bucket) => bucket.cache_hit_rate]],
  ],
];

/** The section of the charts. It keeps what it has drawn, so that only changes are drawn. */
export class RequestCharts {
  #isOpen = false; // in the address; the element changes before its event arrives
  #query = null;
  #fetchedQuery = null;
  #timer = 0;
  #isFetching = false;
  #isOutdated = false;
  #nextFetchAt = 0;
  #drawn = "";

  /**
   * fetchCharts: called with the query of the filters
   * toggle:      called with the new state when the user opens or closes the section
   * chooseTime:  called with the parts of the view that filter by the time of a bar
   */
  constructor({ fetchCharts, toggle, chooseTime }) {
    this.fetchCharts = fetchCharts;
    this.chooseTime = chooseTime;
    this.body = element("div", { class: "charts-body" }, element("p", { class: "note" }, "Loading…"));
    this.details = element(
      "details",
      { id: "charts", class: "charts" },
      element("summary", { id: "charts-summary" }, "Charts"),
      this.body,
    );
    this.details.addEventListener("toggle", () => {
      this.#isOpen = this.details.open;
      toggle(this.#isOpen);
      this.#schedule();
    });
  }

  /** Show the state of the address, and fetch again as soon as the pause allows: requests or the filter may have changed. */
  update(query, isOpen) {
    if (isOpen !== this.#isOpen) this.details.open = isOpen;
    this.#isOpen = isOpen;
    this.#query = query;
    this.#isOutdated = true;
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.details.open || !this.#isOutdated || this.#isFetching || this.#query === null) return;
    const pauseMs = this.#query === this.#fetchedQuery ? Math.max(0, this.#nextFetchAt - performance.now()) : 0;
    this.#timer = setTimeout(() => this.#refresh(), pauseMs);
  }

  async #refresh() {
    if (document.hidden || !this.details.isConnected) return;
    const startedAt = performance.now();
    const query = (this.#fetchedQuery = this.#query);
    Object.assign(this.details.dataset, { state: "loading" });
    this.#isFetching = true;
    this.#isOutdated = false;
    try {
      const charts = await this.fetchCharts(query);
      if (query === this.#query) this.#draw(charts);
      this.details.dataset.state = "done";
    } catch (error) {
      this.#drawn = "";
      this.body.replaceChildren(element("p", {}, error.message));
      this.details.dataset.state = "failed";
    }
    this.#isFetching = false;
    const endedAt = performance.now();
    const pauseMs = Math.max(MIN_CHART_PAUSE_MS, CHART_PAUSE_FACTOR * (endedAt - startedAt));
    this.#nextFetchAt = endedAt + Math.min(pauseMs, MAX_CHART_PAUSE_MS);
    this.#schedule();
  }

  #draw(charts) {
    const version = JSON.stringify(charts);
    if (version === this.#drawn) return;
    this.#drawn = version;
    const openIds = [...this.body.querySelectorAll("details[open]")].map(({ id }) => id);
    const { id: focusedId } = document.activeElement ?? {};
    const isFocused = this.body.contains(document.activeElement);
    this.body.replaceChildren(...chartElements(charts, this.chooseTime));
    for (const details of this.body.querySelectorAll("details")) details.open = openIds.includes(details.id);
    if (isFocused && focusedId) document.getElementById(focusedId)?.focus({ preventScroll: true });
  }
}

function chartElements(charts, chooseTime) {
  const { buckets, bucket_s: size, models, sessions, damaged, is_search_limited: isLimited } = charts;
  const limitNote = "More than 1,000 items contain these words: other requests may contain them, too.";
  const notes = [
    element("p", { class: "note", id: "charts-total" }, formatChartTotal(charts.total)),
    damaged > 0 && element("p", { class: "note" }, `${formatCount(damaged, "damaged request")} left out; see convo store check`),
    isLimited && element("p", { class: "note" }, limitNote),
  ].filter(Boolean);
  if (!buckets.length) return [element("p", { id: "charts-total" }, "No requests to chart."), ...notes.slice(1)];
  const figures = [
    ...TIME_CHARTS.map(([title, label, format, form, series], index) =>
      timeChart({ id: `chart-${index}`, title, label, format, form, series, buckets, size, chooseTime }),
    ),
    costChart("chart-models", "Cost by model", "model", "without a model", models),
    costChart("chart-sessions", "Cost by session", "session", "no session", sessions),
  ];
  return [...notes, element("div", { class: "chart-grid" }, ...figures)];
}

function formatChartTotal({ requests, errors, cache_hit_rate: rate, cost_usd: cost, unpriced, ...usage }) {
  const parts = [
    formatCount(requests, "request"),
    `${formatNumber(errors)} failed`,
    `${formatNumber(usage.input_tokens)} input`,
    rate !== null && `${formatShare(rate)} cached`,
    `${formatNumber(usage.output_tokens)} output`,
    cost !== null && formatCost(cost),
    unpriced > 0 && `${formatNumber(unpriced)} without a price`,
  ];
  return parts.filter(Boolean).join(" · ");
}

function formatShare(share) {
  return share === null ? "-" : `${(share * 100).toFixed(0)} %`;
}

function formatDuration(seconds) {
  return seconds === null ? "-" : `${seconds < 10 ? seconds.toFixed(2) : formatNumber(Math.round(seconds))} s`;
}

function formatBucketSize(size) {
  const [unitSize, unit] = UNITS.find(([seconds]) => size % seconds === 0);
  return formatCount(size / unitSize, unit);
}

/** Return the smallest number not below `number` that is 1, 1.6, 2, 3, 4, 6 or 8 times a power of ten: its half is short, too. */
function roundUp(number) {
  const power = 10 ** Math.floor(Math.log10(number || 1));
  return power * [1, 1.6, 2, 3, 4, 6, 8, 10].find((factor) => factor * power >= (number || 1) * (1 - 1e-9));
}

// -- over time -------------------------------------------------------------------------------------

function timeChart({ id, title, label, format, form, series, buckets, size, chooseTime }) {
  const values = buckets.map((bucket) => series.map(([, , read]) => read(bucket)));
  const heights = values.map((row) => (form === "bars" ? row.reduce((sum, value) => sum + value, 0) : Math.max(0, ...row)));
  const isShare = format === formatShare;
  const highest = isShare ? 1 : roundUp(Math.max(form === "bars" ? 2 : 0, ...heights));
  const [plotWidth, plotHeight] = [WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
  const step = plotWidth / buckets.length;
  const y = (value) => TOP + plotHeight * (1 - Math.min(1, value / highest));
  const ticks = [0, highest / 2, highest].flatMap((value) => [
    svgElement("line", { class: "chart-line", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    chartText(LEFT - 4, y(value) + 4, isShare ? formatShare(value) : formatCompact(value), "end"),
  ]);
  const marks = form === "bars" ? stackedBars(values, series, { step, y }) : seriesLines(values, series, { step, y });
  const rangeOf = ({ start }) => timeRange(start, start + size);
  const tips = buckets.map((bucket, index) => {
    const figures = series.map(([name], part) => `${name} ${format(values[index][part])}`).join(", ");
    const tip = svgElement("title", {}, `${formatTime(bucket.start, size < 60)}: ${figures}`);
    const place = { x: LEFT + index * step, y: TOP, width: step, height: plotHeight };
    return svgElement("rect", { class: "chart-tip chart-bar", ...place, click: () => chooseTime(rangeOf(bucket)) }, tip);
  });
  const startLink = (bucket) => {
    const click = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      chooseTime(rangeOf(bucket));
    };
    return element("a", { href: viewAddress(rangeOf(bucket), ["from", "to"]), click }, formatTime(bucket.start, size < 60));
  };
  const [first, last] = [buckets[0], buckets.at(-1)].map(({ start }) => formatTime(start, size < 60));
  const axes = [
    chartText(2, 11, label),
    chartText(LEFT, HEIGHT - BOTTOM + 14, first),
    buckets.length > 1 && chartText(WIDTH - RIGHT, HEIGHT - BOTTOM + 14, last, "end"),
    chartText(LEFT + plotWidth / 2, HEIGHT - 3, `start of the request, in steps of ${formatBucketSize(size)}`, "middle"),
  ];
  const description = `${series.map(([name]) => name).join(", ")}; ${formatCount(buckets.length, "step")} from ${first} to ${last}`;
  const rows = buckets.map((bucket, index) => [startLink(bucket), ...values[index].map(format)]);
  const svg = chartImage(id, title, description, HEIGHT, [...ticks, ...marks, ...axes, ...tips]);
  const headings = ["Start", ...series.map(([name]) => name)];
  return chartFigure(id, title, [series.length > 1 && chartLegend(series), svg], headings, rows);
}

function stackedBars(values, series, { step, y }) {
  return values.flatMap((row, index) => {
    let below = 0;
    return series.map(([, className], part) => {
      const [bottom, top] = [y(below), y((below += row[part]))];
      const place = { x: LEFT + index * step, y: top, width: Math.max(1, step - 1), height: bottom - top };
      return row[part] > 0 && svgElement("rect", { class: className, ...place });
    });
  });
}

/** Create a line for each series, with a gap where a value is unknown, and a point for each value. */
function seriesLines(values, series, { step, y }) {
  return series.flatMap(([, className], part) => {
    const x = (index) => LEFT + (index + 0.5) * step;
    const known = values.map((row, index) => [index, row[part]]).filter(([, value]) => value !== null);
    const path = known
      .map(([index, value], at) => `${at && known[at - 1][0] === index - 1 ? "L" : "M"}${x(index)} ${y(value)}`)
      .join("");
    const points = known.map(([index, value]) => svgElement("circle", { class: className, cx: x(index), cy: y(value), r: 2 }));
    return [path && svgElement("path", { class: `${className} chart-path`, d: path }), ...points];
  });
}

// -- by model and session --------------------------------------------------------------------------

function costChart(id, title, noun, missingName, { top, other }) {
  const otherGroup = other && { ...other, name: `${formatCount(other.groups, `other ${noun}`)}` };
  const groups = [...top, ...(otherGroup ? [otherGroup] : [])];
  const names = groups.map(({ name }) => name ?? missingName);
  const highest = Math.max(...groups.map(({ cost_usd: cost }) => cost ?? 0)) || 1;
  const height = TOP + groups.length * 2 * BAR_ROW + 4;
  const bars = groups.flatMap((group, index) => {
    const rowTop = TOP + index * 2 * BAR_ROW;
    const width = (WIDTH - 4) * (Math.max(0, group.cost_usd ?? 0) / highest);
    const tip = `${names[index]}: ${groupCost(group)}, ${formatCount(group.requests, "request")}`;
    return [
      chartText(2, rowTop + 14, shortened(names[index])),
      chartText(WIDTH - 2, rowTop + 14, groupCost(group), "end"),
      width > 0 && svgElement("rect", { class: "chart-cost", x: 2, y: rowTop + 19, width, height: 8 }),
      svgElement(
        "rect",
        { class: "chart-tip", x: 0, y: rowTop, width: WIDTH, height: 2 * BAR_ROW },
        svgElement("title", {}, tip),
      ),
    ];
  });
  const axes = [chartText(2, 11, noun), chartText(WIDTH - 2, 11, "cost in USD", "end")];
  const rows = groups.map((group, index) => [
    names[index],
    groupCost(group),
    formatNumber(group.requests),
    formatNumber(group.unpriced),
  ]);
  const svg = chartImage(id, title, formatCount(groups.length, "bar"), height, [...axes, ...bars]);
  return chartFigure(id, title, [svg], [noun, "Cost", "Requests", "Without a price"], rows);
}

function groupCost({ cost_usd: cost, unpriced }) {
  if (cost === null) return unpriced ? "no price" : "-";
  return `${unpriced ? "at least " : ""}${formatCost(cost)}`;
}

function shortened(text) {
  const characters = [...text];
  return characters.length > BAR_LABEL_CHARS ? `${characters.slice(0, BAR_LABEL_CHARS).join("")}…` : text;
}

// -- parts of every chart --------------------------------------------------------------------------

function chartText(x, y, text, anchor = "start") {
  return svgElement("text", { x, y, "text-anchor": anchor }, text);
}

function chartImage(id, title, description, height, children) {
  const label = `${title}: ${description}. The table below has the figures.`;
  return svgElement("svg", { id, class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, ...children);
}

function chartLegend(series) {
  const entries = series.map(([name, className]) =>
    element(
      "li",
      {},
      svgElement("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svgElement("rect", { class: className, width: 10, height: 10 })),
      ` ${name}`,
    ),
  );
  return element("ul", { class: "legend" }, ...entries);
}

function chartFigure(id, title, content, headings, rows) {
  const cells = (row) =>
    row.map((text, index) =>
      index ? element("td", { class: "number" }, text) : element("th", { scope: "row" }, text),
    );
  const table = element(
    "table",
    {},
    element("caption", { class: "hidden" }, title),
    element("thead", {}, element("tr", {}, ...headings.map((heading) => element("th", { scope: "col" }, heading)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row)))),
  );
  return element(
    "figure",
    { class: "chart-figure" },
    element("figcaption", {}, title),
    ...content,
    element(
      "details",
      { id: `${id}-table` },
      element("summary", { id: `${id}-summary` }, "Table", element("span", { class: "hidden" }, ` of ${title}`)),
      element("div", { class: "scrollable", tabindex: "0", role: "region", "aria-label": `${title}, table` }, table),
    ),
  );
}
