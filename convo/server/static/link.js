// One request in full: the sent request next to the model's input, the output, and a comparison with another.

import { difference } from "./difference.js";
import { used } from "./conversation.js";
import { json, listOf } from "./items.js";
import { code, counted, dollars, element, facts, figure, time } from "./make.js";

const OTHERS = 200;

/** Create the section of `link`; `other` is the id of the request to compare it with. */
export function linkSection(conversation, link, { other, compare }) {
  const spent = used(link);
  const at = link.response_id;
  return element(
    "section",
    { "aria-labelledby": "link-title" },
    element("h3", { id: "link-title", tabindex: "-1" }, at),
    facts([
      ["Owner", conversation.found.owners[link.strategy]],
      ["Created by", link.session ?? "another client of the endpoint"],
      ["Model", link.model],
      ["Provider", link.provider],
      ["Status", link.status],
      ["Created", time(link.created_at)],
      ["Duration", link.seconds === null ? null : `${link.seconds.toFixed(1)} s`],
      ["Usage", spent && `${figure(spent.input)} input · ${figure(spent.cached)} cached · ${figure(spent.output)} output`],
      ["Cost", link.cost_usd === null ? null : dollars(link.cost_usd)],
      ["Ignored", link.ignored?.length ? link.ignored.join(", ") : null],
      ["Error", link.error && String(link.error.message ?? link.error.code)],
    ]),
    sides(conversation, link),
    element("h4", {}, "Output"),
    ...listOf("output", conversation.output(link)),
    ...comparing(conversation, link, other, compare),
  );
}

/** Show the request as it was sent, next to the model's input. */
function sides(conversation, link) {
  const saw = conversation.saw(link);
  const sent = saw && saw.filter(({ note }) => note === "sent");
  const fields = json(conversation.request(link));
  const gone = element("p", { class: "aside" }, "an item was deleted");
  return element(
    "div",
    { class: "beside" },
    element(
      "section",
      { "aria-labelledby": "sent-title" },
      element("h4", { id: "sent-title" }, `Sent: ${counted(link.items_sent, "item")}`),
      code(fields, "the request without its items"),
      ...(sent
        ? listOf(
            "sent",
            sent.map((entry) => ({ ...entry, note: "" })),
          )
        : [gone]),
    ),
    element(
      "section",
      { "aria-labelledby": "saw-title" },
      element(
        "h4",
        { id: "saw-title" },
        `Model input: ${saw ? counted(saw.length, "item") : "no longer available"}`,
      ),
      ...(saw ? listOf("saw", saw) : [gone.cloneNode(true)]),
    ),
  );
}

function comparing(conversation, link, other, compare) {
  const ids = conversation.found.rows.filter((id) => id !== link.response_id);
  if (!ids.length) return [];
  const chosen = other ?? link.parent ?? ids.at(-1);
  const near = ids.slice(-OTHERS);
  const listed = near.includes(chosen) ? near : [chosen, ...near];
  const options = listed.map((id) => element("option", { value: id, selected: id === chosen }, id));
  const select = element("select", { id: "other", change: ({ target }) => compare(target.value) }, ...options);
  const one = conversation.links.get(chosen);
  return [
    element("h4", {}, "Compare with another request"),
    element("p", {}, element("label", { for: "other" }, "Other request "), select),
    ...(one ? difference(conversation, one, link) : []),
  ];
}
