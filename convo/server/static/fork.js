// A form that sends a request again with another last message of the user: a fork of its chain.

import { isUserMessage } from "./items.js";
import { element } from "./make.js";

// The edited texts by request: they stay when the page is drawn again.
const editedTexts = new Map();

/**
 * Create the form of `link`; nothing if the page is a file, or the request cannot be sent as a fork.
 *
 * opened: called with the id of the new response
 */
export function forkForm(source, conversation, link, opened) {
  const items = conversation.sentItems(link)?.map(({ item }) => item);
  const index = items?.every(Boolean) ? items.findLastIndex(isUserMessage) : -1;
  const text = index < 0 ? null : messageText(items[index]);
  const isOwn = conversation.data.endpoint === "embedded" && link.strategy === "chain";
  if (!source.isLive || !isOwn || text === null) return [];
  const id = link.response_id;
  const field = element("textarea", { id: "fork-text", rows: "4", required: true, input: () => editedTexts.set(id, field.value) });
  field.value = editedTexts.get(id) ?? text;
  const button = element("button", { type: "submit", id: "fork-send" }, "Send");
  const status = element("span", { "aria-live": "polite", class: "note", id: "fork-status" });
  const show = (message) => status.replaceChildren(element("span", {}, message));
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    show("Sent; waiting for the response");
    const message = { type: "message", role: "user", content: [{ type: "input_text", text: field.value }] };
    const { store, ...fields } = conversation.request(link); // the fork is always stored
    try {
      const response = await source.createResponse({ ...fields, input: items.with(index, message) });
      editedTexts.delete(id);
      opened(response.id);
    } catch (error) {
      show(error.message);
    }
    button.disabled = false;
  };
  return [
    element(
      "details",
      { class: "fork", open: editedTexts.has(id), id: "fork" },
      element("summary", {}, "Edit and resend as a fork"),
      element(
        "form",
        { submit, "aria-label": "Edit and resend as a fork" },
        element("p", {}, element("label", { for: "fork-text" }, "Last message of the user"), field),
        element("p", {}, button, " ", status),
      ),
    ),
  ];
}

/** Return the text of a message; null if it has other content than one text. */
function messageText({ content }) {
  if (typeof content === "string") return content;
  const [part, ...others] = Array.isArray(content) ? content : [];
  return part?.type === "input_text" && !others.length ? part.text : null;
}
