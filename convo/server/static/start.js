// The first request to a server without conversations: its base URL, with curl and with Python.

import { codeBlock, element } from "./make.js";

const COPIED_MS = 2000;

/** Create the examples; `hasKey`: whether the server requires a key. */
export function firstRequests(hasKey) {
  const baseUrl = new URL("v1", document.baseURI).href;
  const body = JSON.stringify({ model: "local", input: "Say hello in French." });
  const curl = [
    `curl ${baseUrl}/responses`,
    hasKey && '  -H "Authorization: Bearer $CONVO_API_KEY"',
    "  -H 'Content-Type: application/json'",
    `  -d '${body}'`,
  ];
  const python = [
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${baseUrl}", api_key="${hasKey ? "YOUR_KEY" : "any"}")`,
    'response = client.responses.create(model="local", input="Say hello in French.")',
    "print(response.output_text)",
  ];
  const examples = [
    ["Base URL", baseUrl],
    ["curl", curl.filter(Boolean).join(" \\\n")],
    ["Python", python.join("\n")],
  ];
  return examples.map(([name, text]) =>
    element("section", { class: "example" }, element("h3", {}, name), codeBlock(text, name), copyButton(name, text)),
  );
}

/** Create a button that copies `text`; browsers allow that on loopback and with HTTPS only. */
function copyButton(name, text) {
  if (!navigator.clipboard) return false;
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  };
  return element("button", { type: "button", class: "more", "aria-label": `Copy ${name}`, click: copy }, "Copy");
}
