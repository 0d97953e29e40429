"""`convo why` of recorded requests: a client that edits its history, lacks a breakpoint, or sends requests at once."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import Json
from convo.recording.exchange import ExchangeResponse, Protocol
from convo.recording.recorder import open_recorder
from convo.stores.factory import open_store
from tests.cli.stored_chats import DATABASE
from tests.clock import FixedClock
from tests.command_runner import Convo
from tests.recording.exchanges import make_request, make_response
from tests.server.gateway import run_gateway

START_TIME = 1_790_000_000.0
HOSTS: dict[Protocol, str] = {
    "responses": "https://api.openai.com/v1/responses",
    "messages": "https://api.anthropic.com/v1/messages",
}
HEADERS = {"x-claude-code-session-id": "key-1", "user-agent": "claude-cli/2.1.330 (external, cli)"}
BREAKPOINT = {"cache_control": {"type": "ephemeral"}}


def record(
    home: Path, protocol: Protocol, exchanges: Iterable[tuple[dict[str, Json], ExchangeResponse, float]]
) -> None:
    """Record requests and their responses; each request is sent so many seconds after `START_TIME`."""

    async def write() -> None:
        store = open_store(f"sqlite:{home / DATABASE}")
        await store.admin.migrate()
        recorder = open_recorder(store, clock=FixedClock())
        for number, (body, response, seconds) in enumerate(exchanges):
            url, at = HOSTS[protocol], START_TIME + seconds
            request = make_request(body, protocol=protocol, id=f"exch_{number}", headers=HEADERS, url=url, at=at)
            await recorder.begin(request)
            await recorder.finish(request, response)
        await recorder.aclose()
        await store.aclose()

    asyncio.run(write())


def answer(number: int, input_tokens: int, cached: int = 0, **fields: Any) -> ExchangeResponse:
    """Return the response `resp_NUMBER` of OpenAI, in which all other input tokens are written."""
    part = {"type": "output_text", "text": f"Answer {number}.", "annotations": []}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [part]}
    usage = {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": input_tokens - cached},
        "output_tokens": 5,
    }
    document = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "gpt-6.1-sol"}
    return make_response({**document, "output": [message], "usage": usage, **fields})


def message_answer(number: int, input_tokens: int, written: int, read: int = 0, **fields: Any) -> ExchangeResponse:
    """Return the response `msg_NUMBER` of Anthropic; `input_tokens` are those that are neither written nor read."""
    usage = {
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": 5,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-opus-5-5"}
    content = [{"type": "text", "text": f"Answer {number}."}]
    return make_response({**message, "content": content, "stop_reason": "end_turn", "usage": usage, **fields})


def test_a_client_that_edits_its_history_is_compared_with_its_request_before(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    """For the store the third request is a branch after the first one, whose prompt is cached."""
    words = ("one", "two", "three")
    history: list[Json] = []
    exchanges: list[tuple[dict[str, Json], ExchangeResponse, float]] = []
    diagnostics = {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 38_000}
    for number, text in enumerate(words, 1):
        history = [*history, {"role": "user", "content": text}]
        if number == 3:
            history[2] = {"role": "user", "content": "2"}
        extra = {"prompt_cache_diagnostics": diagnostics, "service_tier": "priority"} if number == 3 else {}
        body = {"model": "gpt-6.1-sol", "instructions": "Be brief.", "input": history, "store": False}
        response = answer(number, number * 20_000, (number - 1) * 20_000 if number == 2 else 2_000, **extra)
        exchanges.append((body, response, 10.0 * number))
        history = [*history, {"role": "assistant", "content": f"Answer {number}."}]
    record(home, "responses", exchanges)
    got = convo("why", "@recorded", "--json").json()
    assert (got["response_id"], got["compared_id"]) == ("resp_3", "resp_2")
    assert (got["cause"], got["path"], got["byte"]) == ("item_edited", "input[2].content", 0)
    reason = {"vendor": "OpenAI", "type": "cache_miss", "reason": "input_changed", "missed_tokens": 38_000}
    assert got["reported"] == reason
    assert got["cost_usd"] == pytest.approx(2 * 38_000 * (2.5 - 0.1) / 1e6)
    with run_gateway(tmp_path / "served", f"sqlite:{home / DATABASE}") as gateway:
        opened = gateway.http.get("/inspect/api/requests/resp_3").json()
    assert {**opened["cache_miss"], "description": None} == {**got, "description": None}
    assert {link["response_id"] for link in opened["links"]} == {"resp_1", "resp_3"}


def claude_body(*texts: str, system: str = "Be brief.", **fields: Json) -> dict[str, Json]:
    contents = [[{"type": "text", "text": text}] for text in texts]
    messages = [{"role": "assistant" if index % 2 else "user", "content": one} for index, one in enumerate(contents)]
    return {"model": "claude-opus-5-5", "max_tokens": 10, "system": system, "messages": messages, **fields}


def test_a_request_without_a_breakpoint_is_named(convo: Convo, home: Path) -> None:
    exchanges = [
        (claude_body("one"), message_answer(1, 9_000, 0), 0.0),
        (claude_body("one", "Answer 1.", "two"), message_answer(2, 9_500, 0), 10.0),
    ]
    record(home, "messages", exchanges)
    got = convo("why", "@recorded", "--json").json()
    assert (got["cause"], got["missed_tokens"]) == ("no_breakpoint", 9_000)
    assert got["fix"] == 'add "cache_control": {"type": "ephemeral"} to the request'
    assert got["cost_usd"] == pytest.approx(9_000 * (4.0 - 0.2) / 1e6)


def test_the_reason_of_anthropic_is_beside_ours(convo: Convo, home: Path) -> None:
    diagnostics = {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 8_900}}
    changed = claude_body("one", "Answer 1.", "two", system="It is 10:16.", **BREAKPOINT)
    exchanges = [
        (claude_body("one", system="It is 10:15.", **BREAKPOINT), message_answer(1, 0, 9_000), 0.0),
        (changed, message_answer(2, 0, 9_500, diagnostics=diagnostics), 60.0),
    ]
    record(home, "messages", exchanges)
    out = convo("why", "@recorded").out
    assert "  Anthropic says  system_changed, 8,900 tokens\n" in out
    assert '  we see          instructions changed: instructions, byte 10: "It is 10:15." -> "It is 10:16."\n' in out
    assert "keep the time out of the instructions" in out


def test_subagents_that_start_at_once_cannot_read_the_prompt_that_the_first_one_writes(
    convo: Convo, home: Path
) -> None:
    tools = {"tools": [{"name": "read", "input_schema": {"type": "object"}}], **BREAKPOINT}
    exchanges = [
        (claude_body("Look at a.py.", system="You search.", **tools), message_answer(1, 0, 20_000), 0.0),
        (claude_body("Look at b.py.", system="You search.", **tools), message_answer(2, 0, 20_000), 0.1),
        (claude_body("Look at c.py.", system="You search.", **tools), message_answer(3, 0, 20, read=19_980), 9.0),
    ]
    record(home, "messages", exchanges)
    got = [convo("why", f"msg_{number}", "--json").json() for number in (1, 2, 3)]
    assert [(one["outcome"], one["cause"]) for one in got] == [
        ("first", None),
        ("miss", "parallel_request"),
        ("hit", None),
    ]
