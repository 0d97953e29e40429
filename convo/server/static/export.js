// A conversation as a file, in the formats of `convo export`.

import { element } from "./make.js";

const FORMATS = [
  ["json", "JSON"],
  ["jsonl", "JSONL"],
  ["markdown", "Markdown"],
  ["html", "HTML"],
];

/** Create the links to the files of `handle`; nothing if the page is a file. `failed` is called with an error. */
export function exportLinks(source, handle, failed) {
  if (!source.isLive) return [];
  const link = ([format, name]) => {
    const path = source.exportPath(handle, format);
    // a link cannot send the key, so the file is fetched with it
    const click = (event) => {
      if (!source.hasKey) return;
      event.preventDefault();
      source.download(path).then(saveFile, failed);
    };
    return element("a", { href: path, download: true, id: `export-${format}`, click }, name);
  };
  return [element("p", { class: "export" }, "Export: ", ...FORMATS.flatMap((format) => [link(format), " "]))];
}

function saveFile({ name, content }) {
  const url = URL.createObjectURL(content);
  element("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}
