// The Agents SDK for JavaScript: an agent with its own loop.
import { Agent, run, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { BASE_URL, MODEL, PROMPT, report, TOOLS } from "./workspace.mjs";

setDefaultOpenAIClient(new OpenAI({ baseURL: BASE_URL, apiKey: "any", maxRetries: 0 }));
setOpenAIAPI("responses");
setTracingDisabled(true);
const tools = TOOLS.map(({ name, description, parameters, run }) => tool({ name, description, parameters, execute: async (input) => run(input) }));
const result = await run(new Agent({ name: "Assistant", model: MODEL, tools }), PROMPT);
report(result.finalOutput);
