// The Vercel AI SDK: its own loop of steps.
import { createOpenAI } from "@ai-sdk/openai";
import { isStepCount, jsonSchema, streamText, tool } from "ai";
import { BASE_URL, MODEL, PROMPT, report, TOOLS } from "./workspace.mjs";

const tools = TOOLS.map(({ name, description, parameters, run }) => [
  name,
  tool({ description, inputSchema: jsonSchema(parameters), execute: async (input) => run(input) }),
]);
const model = createOpenAI({ baseURL: BASE_URL, apiKey: "any" }).responses(MODEL);
const result = streamText({
  model,
  prompt: PROMPT,
  tools: Object.fromEntries(tools),
  stopWhen: isStepCount(9),
  maxRetries: 0,
  onError: ({ error }) => {
    console.error(error);
    process.exit(1);
  },
});
report(await result.text);
