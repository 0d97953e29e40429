// The openai package: abort a stream, read what was kept, stream a whole answer, go on.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "any", maxRetries: 0 });
const conversation = process.env.STATE === "conversation" ? (await client.conversations.create({})).id : null;
const state = (id) => (conversation ? { conversation } : { previous_response_id: id });

async function read(body, abortAfter = Infinity) {
  const controller = new AbortController();
  const seen = { id: "", text: "", status: "", aborted: false };
  const stream = await client.responses.create({ ...body, stream: true }, { signal: controller.signal });
  let pieces = 0;
  try {
    for await (const event of stream) {
      if (event.type === "response.created") seen.id = event.response.id;
      if (event.type === "response.completed") seen.status = event.response.status;
      if (event.type !== "response.output_text.delta") continue;
      seen.text += event.delta;
      pieces += 1;
      if (pieces === abortAfter) controller.abort();
      if (pieces >= abortAfter) break;
    }
  } catch (error) {
    if (!(error instanceof OpenAI.APIUserAbortError)) throw error;
  }
  seen.aborted = controller.signal.aborted;
  return seen;
}

const first = await read({ model: "slow", input: "first", ...(conversation ? { conversation } : {}) }, 3);
const kept = await client.responses.retrieve(first.id);
const second = await read({ model: "quick", input: "second", ...state(first.id) });
const third = await client.responses.create({ model: "quick", input: "third", ...state(second.id) });
console.log(JSON.stringify({ first, kept: { status: kept.status, text: kept.output_text }, second, third: third.output_text, conversation }));
