// Preview of a compaction: the items that it would replace, and their tokens. The server plans it without a model.

import { definitionList, element, formatCount, formatNumber } from "./make.js";
import { pagedList } from "./paged.js";

// The previews that were opened, and their kept turns by handle: they stay when the page is drawn again.
const openPreviews = new Map();

/** Create the preview of `handle`, which is loaded when it is opened; empty if the page is a file. */
export function compactionPreview(source, handle) {
  if (!source.isLive) return [];
  const keep = element("input", { id: "compaction-keep", type: "number", min: "0", max: "1000", value: String(openPreviews.get(handle) ?? 0) });
  const result = element("div", { "aria-live": "polite", id: "compaction-result" });
  const load = async () => {
    const kept = Math.max(0, Math.floor(Number(keep.value) || 0));
    openPreviews.set(handle, kept);
    try {
      const preview = await source.compaction(handle, kept);
      if (openPreviews.get(handle) === kept) result.replaceChildren(...previewContents(preview));
    } catch (error) {
      result.replaceChildren(element("p", { class: "aside" }, error.message));
    }
  };
  keep.addEventListener("change", load);
  const toggle = ({ target }) => (target.open ? load() : openPreviews.delete(handle));
  return [
    element(
      "details",
      { class: "compaction", id: "compaction", open: openPreviews.has(handle), toggle },
      element("summary", {}, "Compaction preview"),
      element("p", {}, element("label", { for: "compaction-keep" }, "Turns to keep "), keep),
      result,
    ),
  ];
}

function previewContents(preview) {
  const { replaced, is_estimate: isEstimate } = preview;
  const about = isEstimate ? "about " : "";
  const draw = (index) => {
    const { type, tokens, preview: text } = replaced[index];
    return element("li", {}, `${text} `, element("span", { class: "note" }, `${type} · ${formatCount(tokens, "token")}`));
  };
  return [
    definitionList([
      ["Method", preview.method],
      ["Replaced", `${formatNumber(preview.items_replaced)} of ${formatCount(preview.items_before, "item")}, ${about}${formatCount(preview.tokens_replaced, "token")}`],
      ["Kept", formatCount(preview.items_kept, "item")],
      ["Before", `${about}${formatCount(preview.tokens_before, "token")}`],
      ["After", `${about}${formatCount(preview.tokens_after_without_summary, "token")}, and those of the compacted part`],
    ]),
    ...pagedList({ name: "compaction", list: element("ol", { class: "replaced" }), count: replaced.length, draw, page: 20 }),
  ];
}
