// The Agents SDK for JavaScript: abort a stream, read what was kept, stream a whole answer, go on.
import { Agent, run, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled } from "@openai/agents";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "any", maxRetries: 0 });
setDefaultOpenAIClient(client);
setOpenAIAPI("responses");
setTracingDisabled(true);
const conversation = process.env.STATE === "conversation" ? (await client.conversations.create({})).id : null;
const state = (id) => (conversation ? { conversationId: conversation } : id ? { previousResponseId: id } : {});
const agent = (model) => new Agent({ name: "Assistant", model });

async function read(model, input, after, abortAfter = Infinity) {
  const controller = new AbortController();
  const seen = { id: "", text: "", status: "", aborted: false };
  const result = await run(agent(model), input, { stream: true, signal: controller.signal, ...state(after) });
  let pieces = 0;
  try {
    for await (const event of result) {
      if (event.type !== "raw_model_stream_event") continue;
      const raw = event.data.type === "model" ? event.data.event : null;
      if (raw?.type === "response.created") seen.id = raw.response.id;
      if (raw?.type === "response.completed") seen.status = raw.response.status;
      if (raw?.type !== "response.output_text.delta") continue;
      seen.text += raw.delta;
      pieces += 1;
      if (pieces === abortAfter) controller.abort();
    }
    await result.completed;
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  }
  seen.aborted = controller.signal.aborted;
  return seen;
}

const first = await read("slow", "first", null, 3);
const kept = await client.responses.retrieve(first.id);
const second = await read("quick", "second", first.id);
const third = await run(agent("quick"), "third", state(second.id));
console.log(JSON.stringify({ first, kept: { status: kept.status, text: kept.output_text }, second, third: third.finalOutput, conversation }));
