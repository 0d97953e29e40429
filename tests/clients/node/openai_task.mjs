// The openai package: a loop of responses and outputs, continued with previous_response_id.
import OpenAI from "openai";
import { BASE_URL, MODEL, PROMPT, report, TOOLS } from "./workspace.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: "any", maxRetries: 0 });
const tools = TOOLS.map(({ name, description, parameters }) => ({ type: "function", name, description, parameters, strict: true }));
let input = PROMPT;
let response = null;
for (;;) {
  const stream = client.responses.stream({ model: MODEL, input, tools, previous_response_id: response?.id });
  response = await stream.finalResponse();
  const calls = response.output.filter((item) => item.type === "function_call");
  if (!calls.length) break;
  input = calls.map((call) => ({
    type: "function_call_output",
    call_id: call.call_id,
    output: TOOLS.find((tool) => tool.name === call.name).run(JSON.parse(call.arguments)),
  }));
}
report(response.output_text);
