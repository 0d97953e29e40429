// Pause, decide and finish runs of @openai/agents against a scripted endpoint on loopback.
//   node javascript.mjs pause SCENARIO > state.json
//   node javascript.mjs decide SCENARIO state.json '{"call_a": {"approve": false, "message": "no"}}' > decided.json
//   node javascript.mjs finish SCENARIO decided.json      prints {"output": ..., "pending": [...]}
// javascript.tar.xz has the states that 0.3.4, 0.11.7 and 0.20.0 wrote with `pause` and `decide`.
import { readFileSync } from "node:fs";
import http from "node:http";

const [mode, name, file, decisions] = process.argv.slice(2);

const call = (id, tool, args) =>
  ({ type: "function_call", id: `fc_${id}`, call_id: id, name: tool, arguments: args, status: "completed" });
const text = (value) => ({
  type: "message", id: "msg_1", role: "assistant", status: "completed",
  content: [{ type: "output_text", text: value, annotations: [] }],
});
const list = (request, type) => (Array.isArray(request.input) ? request.input.filter((item) => item.type === type) : []);
const outputs = (request) => list(request, "function_call_output").map((item) => item.output);
const done = (request) => [text(`done: ${outputs(request).join(" | ")}`)];
const offers = (request, tool) => request.tools?.some((offered) => offered.name === tool);
const FIRST = call("call_a", "transfer", '{"to":"ann","amount":1.50}');
const SECOND = call("call_b", "transfer", '{"to":"Böb 🎈","amount":200}');
const ODD_ARGUMENTS = [
  "{}", "[]", '{"a":1,"a":2}', '{"b":1,"a":2}',
  '{"10":1,"9":2,"a":3,"01":4,"4294967295":5,"4294967294":6,"-1":7}', '{"x":0}', '{"x":-0}', '{"x":0.0}', '{"x":1e3}',
  '{"x":1E+3}', '{"x":1000}', '{"x":1000.50}', '{"x":12345678901234567890}', '{"x":1e400}', '{"x":-1.5e-7}',
  '{"x":0.1}', '{"x":100e-2}', '{ "x" : [ 1 , 2.0 ] }', '{"x":NaN}', "not json", "",
  '{"x":"\\u0000openai-agents-json:number:1e0"}', '{"\\u0000openai-agents-json:k":1}',
  '{"x":"\\ud83c\\udf88 B\\u00f6b"}', '{"x":"\\ud83c"}', '{"\uff61":1,"\ud83c\udf88":2,"z":3}',
  '{"x":"\\u2028\\u007f\\b\\f\\n\\r\\t\\"\\\\\\/"}', '{"__proto__":{"x":1}}', '{"constructor":1,"toString":2}', '"text"',
  "1", "null", "true", '{"a":{"c":[{"z":1,"y":null}],"b":false}}', '{"x":"1"}', '{"x":01}', '{"x":1.}', '{"x":+1}',
  ' {"x":1} ', '{"x":1}}',
];

const sdk = await import("@openai/agents");
const { z } = await import("zod");

const transfer = () => sdk.tool({
  name: "transfer", description: "x", needsApproval: true, parameters: z.object({ to: z.string(), amount: z.number() }),
  execute: async ({ to, amount }) => `sent ${amount} to ${to}`,
});
const bank = (...tools) => new sdk.Agent({ name: "Bank", instructions: "i", model: "m", tools: [transfer(), ...tools] });
const SCENARIOS = {
  one_call: { agent: () => bank(), reply: (request) => (outputs(request).length ? done(request) : [FIRST]) },
  two_calls: { agent: () => bank(), reply: (request) => (outputs(request).length > 1 ? done(request) : [FIRST, SECOND]) },
  handoff: {
    agent: () => sdk.Agent.create({ name: "Triage", instructions: "t", model: "m", handoffs: [bank()] }),
    reply: (request) => {
      if (!offers(request, "transfer")) return [call("call_h", "transfer_to_Bank", "{}")];
      return outputs(request).length > 1 ? done(request) : [FIRST];
    },
  },
  agent_tool: {
    agent: () => new sdk.Agent({
      name: "Front", instructions: "f", model: "m",
      tools: [bank().asTool({ toolName: "ask_bank", toolDescription: "d" })],
    }),
    reply: (request) => {
      if (outputs(request).length) return done(request);
      return [offers(request, "ask_bank") ? call("call_o", "ask_bank", '{"input":"pay ann"}') : FIRST];
    },
  },
  hosted_mcp: {
    agent: () => bank(sdk.hostedMcpTool({
      serverLabel: "git", serverUrl: "https://mcp.example/", requireApproval: "always",
    })),
    reply: (request) => {
      const [answer] = list(request, "mcp_approval_response");
      if (answer) return [text(`done: ${outputs(request)} ${answer.approval_request_id}=${answer.approve}`)];
      const asked = { id: "mcpr_1", name: "read_repo", server_label: "git", arguments: '{"path":"a/b"}' };
      return [FIRST, { type: "mcp_approval_request", ...asked }];
    },
  },
  odd_arguments: {
    agent: () => new sdk.Agent({
      name: "Bank", instructions: "i", model: "m",
      tools: [sdk.tool({
        name: "note", description: "x", strict: false, needsApproval: true, execute: async () => "noted",
        parameters: { type: "object", properties: {}, required: [], additionalProperties: true },
      })],
    }),
    reply: (request) =>
      outputs(request).length
        ? [text(`done: ${outputs(request).length}`)]
        : ODD_ARGUMENTS.map((args, index) => call(`call_${index}`, "note", args)),
  },
};

const { agent: makeAgent, reply } = SCENARIOS[name];
let count = 0;
const server = http.createServer(async (request, response) => {
  const chunks = await Array.fromAsync(request);
  const body = JSON.parse(Buffer.concat(chunks).toString());
  const usage = {
    input_tokens: 10, input_tokens_details: { cached_tokens: 0 },
    output_tokens: 5, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 15,
  };
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({
    id: `resp_${++count}`, object: "response", created_at: 1, status: "completed", model: "m", output: reply(body),
    parallel_tool_calls: true, tool_choice: "auto", tools: [], usage,
  }));
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
process.env.OPENAI_API_KEY = "none";
process.env.OPENAI_BASE_URL = `http://127.0.0.1:${server.address().port}/v1`;
sdk.setTracingDisabled(true);

const idOf = ({ rawItem }) => rawItem.callId ?? rawItem.id ?? rawItem.providerData?.id;
const agent = makeAgent();
if (mode === "pause") {
  process.stdout.write((await sdk.run(agent, "please pay")).state.toString());
} else {
  const state = await sdk.RunState.fromString(agent, readFileSync(file, "utf8"));
  if (mode === "decide") {
    for (const [id, { approve, always, message }] of Object.entries(JSON.parse(decisions))) {
      const item = state.getInterruptions().find((interruption) => idOf(interruption) === id);
      if (approve) state.approve(item, { alwaysApprove: always });
      else state.reject(item, { alwaysReject: always, message });
    }
    process.stdout.write(state.toString());
  } else {
    const result = await sdk.run(agent, state);
    const pending = result.interruptions.map(idOf);
    process.stdout.write(JSON.stringify({ output: pending.length ? null : result.finalOutput, pending }));
  }
}
server.close();
server.closeAllConnections();
