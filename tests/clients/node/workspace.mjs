// The five tools of the task, and what a client is told by its environment.
import { execSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";

export const { BASE_URL, MODEL, TASK } = process.env;
export const HAS_TOOLS = TASK === "tools";
export const PROMPT = HAS_TOOLS ? "Read notes.txt and do as it says." : "Say hello.";
export const names = [];

const text = { type: "string" };
const texts = () => readdirSync(".").filter((name) => name.endsWith(".txt"));
const tools = {
  read_file: ["Return the text of a file.", { path: text }, ({ path }) => readFileSync(path, "utf8")],
  search_files: [
    "Return the names of the files that contain a text.",
    { text },
    ({ text }) => texts().filter((name) => readFileSync(name, "utf8").includes(text)).sort().join(", "),
  ],
  write_file: [
    "Write a text to a file.",
    { path: text, text },
    ({ path, text }) => (writeFileSync(path, text), `${text.length} characters`),
  ],
  run_command: ["Run a command in a shell and return its output.", { command: text }, ({ command }) => execSync(command).toString()],
  finish: ["Finish the task with an answer.", { answer: { type: "integer" } }, ({ answer }) => `accepted ${answer}`],
};

// One object a tool: name, description, parameters as a JSON schema, run(arguments).
export const TOOLS = Object.entries(HAS_TOOLS ? tools : {}).map(([name, [description, properties, execute]]) => ({
  name,
  description,
  parameters: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
  run: (input) => (names.push(name), execute(input)),
}));

export const report = (text) => console.log(JSON.stringify({ text, calls: names }));
