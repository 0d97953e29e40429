// The openai package: upload, list, download, use in a request, delete a file.
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "any", maxRetries: 0 });

const file = await client.files.create({
  file: await toFile(Buffer.from("%PDF-1.4"), "ré.pdf"),
  purpose: "user_data",
  expires_after: { anchor: "created_at", seconds: 3600 },
});
const listed = [];
for await (const one of client.files.list({ purpose: "user_data" })) listed.push(one.id);
const content = await (await client.files.content(file.id)).text();
const part = { type: "input_file", file_id: file.id };
const response = await client.responses.create({ model: "quick", input: [{ role: "user", content: [part] }] });
const deleted = await client.files.delete(file.id);
const gone = await client.files.retrieve(file.id).catch((error) => error.status);
console.log(JSON.stringify({ file, listed, content, status: response.status, deleted: deleted.deleted, gone }));
