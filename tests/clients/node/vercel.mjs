// The Vercel AI SDK: abort a stream, read what was kept, stream a whole answer, go on.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

const base = process.env.BASE_URL;
const provider = createOpenAI({ baseURL: base, apiKey: "any" });
const made = process.env.STATE === "conversation" ? await fetch(`${base}/conversations`, { method: "POST" }) : null;
const conversation = made ? (await made.json()).id : null;
const state = (id) => ({ openai: conversation ? { conversation } : id ? { previousResponseId: id } : {} });

async function read(model, prompt, after, abortAfter = Infinity) {
  const controller = new AbortController();
  const seen = { id: "", text: "", status: "", aborted: false };
  const result = streamText({
    model: provider.responses(model),
    prompt,
    maxRetries: 0,
    abortSignal: controller.signal,
    includeRawChunks: true,
    providerOptions: state(after),
    onError: ({ error }) => {
      throw error;
    },
  });
  let pieces = 0;
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "abort") seen.aborted = true;
    if (part.type === "raw" && part.rawValue.type === "response.created") seen.id = part.rawValue.response.id;
    if (part.type === "raw" && part.rawValue.type === "response.completed") seen.status = part.rawValue.response.status;
    if (part.type !== "text-delta") continue;
    seen.text += part.text;
    pieces += 1;
    if (pieces === abortAfter) controller.abort();
  }
  return seen;
}

const first = await read("slow", "first", null, 3);
const got = await (await fetch(`${base}/responses/${first.id}`)).json();
const kept = { status: got.status, text: got.output.flatMap((item) => item.content.map((part) => part.text)).join("") };
const second = await read("quick", "second", first.id);
const third = await generateText({
  model: provider.responses("quick"),
  prompt: "third",
  maxRetries: 0,
  providerOptions: state(second.id),
});
console.log(JSON.stringify({ first, kept, second, third: third.text, conversation }));
