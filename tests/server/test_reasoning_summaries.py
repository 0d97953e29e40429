"""Reasoning of chat models and of Claude as summaries, in clients that show it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.models.chat_server import ChatServer, delta, finish, run_chat_server, usage_fields
from tests.models.messages_events import message_events, text, thinking
from tests.needs import NODE_MODULES
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway

SETTINGS = """
[providers.chat]
api = "chat"
base_url = "{url}"
[providers.claude]
api = "anthropic"
base_url = "{url}"
"""

PROGRAM = """
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
const load = (name) => import(pathToFileURL(createRequire(process.argv[2] + '/x.js').resolve(name)));
const { streamText } = await load('ai');
const { createOpenAI } = await load('@ai-sdk/openai');
const openai = createOpenAI({ baseURL: process.argv[3] + '/v1', apiKey: 'any' });
const result = streamText({
  model: openai.responses(process.argv[4]), prompt: 'Hi.', maxRetries: 0,
  providerOptions: { openai: { reasoningSummary: 'auto', forceReasoning: true } },
});
const parts = [];
for await (const part of result.fullStream) {
  if (/^(reasoning|text)-/.test(part.type)) parts.push([part.type, part.text ?? '']);
  if (part.type === 'error') throw part.error;
}
console.log(JSON.stringify(parts));
"""


@pytest.fixture
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
def gateway(serve: Serve, upstream: ChatServer) -> RunningGateway:
    return serve(toml=SETTINGS.format(url=upstream.url))


def script_reasoning(upstream: ChatServer, model: str) -> None:
    if model.startswith("claude/"):
        blocks = (thinking(0, "Let me ", "see.", signature="sig"), text(1, "Hello."))
        upstream.stream(*message_events(*blocks), end=b"")
    else:
        field = model.partition("/")[2]
        words = (delta(**{field: "Let me "}), delta(**{field: "see."}), delta(content="Hello."))
        upstream.stream(*words, finish("stop"), usage_fields())


MODELS = ["chat/reasoning_content", "chat/reasoning", "claude/claude-opus-5"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("summary", ["auto", None])
def test_reasoning_is_a_summary_if_one_is_requested(
    gateway: RunningGateway, upstream: ChatServer, model: str, summary: Any
) -> None:
    script_reasoning(upstream, model)
    with openai.OpenAI(base_url=gateway.url, api_key="any", max_retries=0, _strict_response_validation=True) as client:
        events = list(client.responses.create(model=model, input="Hi.", reasoning={"summary": summary}, stream=True))

    names = [event.type.removeprefix("response.") for event in events]
    part, words = (
        ("reasoning_summary_part", "reasoning_summary_text") if summary else ("content_part", "reasoning_text")
    )
    assert names[2:9] == [
        "output_item.added", f"{part}.added", f"{words}.delta", f"{words}.delta", f"{words}.done", f"{part}.done",
        "output_item.done",
    ]  # fmt: skip
    completed: Any = events[-1]
    item = completed.response.output[0]
    shown, hidden = (item.summary, item.content) if summary else (item.content, item.summary)
    assert ([one.text for one in shown], hidden or []) == (["Let me see."], [])


@pytest.mark.needs("node clients")
@pytest.mark.parametrize("model", [MODELS[0], pytest.param(MODELS[2], marks=pytest.mark.full)])
def test_the_reasoning_parts_of_the_vercel_ai_sdk_stream(
    gateway: RunningGateway, upstream: ChatServer, model: str, tmp_path: Path
) -> None:
    script_reasoning(upstream, model)
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM)
    root = gateway.url.removesuffix("/v1").rstrip("/")
    command = ["node", str(program), str(NODE_MODULES), root, model]
    finished = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)

    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == [
        ["reasoning-start", ""],
        ["reasoning-delta", "Let me "],
        ["reasoning-delta", "see."],
        ["reasoning-end", ""],
        ["text-start", ""],
        ["text-delta", "Hello."],
        ["text-end", ""],
    ]
