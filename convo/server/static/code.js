// A request as code: curl, Python and JavaScript, written by the server and copied to the clipboard.
//
// A browser that refuses to copy shows the code in a field, with its text selected.

import { element } from "./make.js";

const LANGUAGES = [
  ["curl", "curl"],
  ["python", "Python"],
  ["javascript", "JavaScript"],
];

/** Create the buttons for the request `id`; nothing if the page is a file. `level` is that of the heading. */
export function copyAs(source, id, level) {
  if (!source.isLive) return [];
  const status = element("span", { "aria-live": "polite", class: "note", id: "copy-status" });
  const field = element("div", {});
  const show = (text) => status.replaceChildren(element("span", {}, text));
  const copy = async (language, name) => {
    status.replaceChildren();
    field.replaceChildren();
    let code = "";
    try {
      code = await source.code(id, language);
    } catch (error) {
      show(error.message);
      return;
    }
    try {
      await navigator.clipboard.writeText(code);
      show(`Copied as ${name}`);
    } catch {
      // no clipboard without HTTPS, or the browser refused
      field.replaceChildren(...codeField(code, name));
      field.querySelector("textarea").select();
      show("This browser does not allow copying: copy the selected text");
    }
  };
  const button = ([language, name]) =>
    element("button", { type: "button", id: `copy-${language}`, click: () => copy(language, name) }, name);
  return [
    element(
      "section",
      { class: "copy-as", "aria-labelledby": "copy-title" },
      element(level, { id: "copy-title" }, "Copy as"),
      element("p", {}, ...LANGUAGES.flatMap((language) => [button(language), " "]), status),
      field,
    ),
  ];
}

function codeField(code, name) {
  const field = element("textarea", { id: "copy-code", readonly: true, rows: "12", spellcheck: "false" });
  field.value = code;
  return [element("label", { for: "copy-code" }, `The request as ${name}`), field];
}
