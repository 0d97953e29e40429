"""Chats ask OpenAI and Anthropic why their cache missed, and show the reason in one line after the answer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer, error_response
from tests.models.chat_server import ChatServer, run_chat_server
from tests.models.messages_events import sse, stop, text
from tests.terminal.plain_repl import run_repl

OWNERS = ("--session", "--replay", "--chain", "--conversation")
MODEL = "openai/gpt-5.6-sol"
OPTION = "prompt_cache_options"
MISS = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 12000}
REMOVED = [{"id": "rs_1", "action": "removed", "reason": "prefix_mismatch", "type": "reasoning"}]
LINE = "cache missed: tools changed, 12,000 tokens · 1 reasoning item removed"


@pytest.fixture(autouse=True)
def forget_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask every server: the servers of two tests may have the same port."""
    monkeypatch.setattr("convo.chat.turn._REFUSING_MODELS", set())


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A scripted server as the provider `openai`."""
    with run_chat_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        yield server


@pytest.fixture
def anthropic(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A scripted server as the provider `anthropic`."""
    with run_chat_server() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        yield server


def answer(server: ChatServer, number: int, status: str = "completed", **fields: Any) -> None:
    """Answer with the response `resp_NUMBER`; `fields` are those that only the provider knows."""
    content = [{"type": "output_text", "text": "Hi.", "annotations": []}]
    ids = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
    message = {**ids, "status": "completed", "content": content}
    response = {"id": f"resp_{number}", "object": "response", "status": status, "output": [message], "usage": None}
    start = {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    server.stream(start, {"type": f"response.{status}", "response": {**response, **fields}})


def answer_message(server: ChatServer, number: int, **fields: Any) -> None:
    """Answer with the message `msg_NUMBER` of the Messages API."""
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []}
    start = {"type": "message_start", "message": {**message, "usage": {"input_tokens": 9}, **fields}}
    server.stream(sse(start), *text(0, "Hi."), *stop(), end=b"")


def asked(server: ChatServer) -> list[Any]:
    return [request.json.get(OPTION) for request in server.requests]


@pytest.mark.parametrize("owner", OWNERS)
def test_each_request_after_the_first_names_the_response_before(
    convo: Convo, server: LoopbackServer, owner: str
) -> None:
    ids = [convo("chat", owner, "-n", "mine", "-m", MODEL, "--json", "one").json()["response_id"]]
    for text_ in ("two", "three"):
        planned = convo("next", "mine", text_, "--json").json()["body"]
        ids.append(convo("chat", "-c", "--json", text_).json()["response_id"])
        assert planned == server.bodies[-1]
    assert [body.get(OPTION) for body in server.bodies] == [
        None,
        *({"comparison_response_id": name} for name in ids[:2]),
    ]
    file = Path("sent.json")
    file.write_text(json.dumps({name: value for name, value in server.bodies[-1].items() if name != "stream"}), "utf-8")
    assert convo("diff", "--wire", str(file), "mine", "--json").json()["path"] is None
    for model in ("openai/gpt-5.5", "openai/gpt-5"):
        assert convo("chat", "-q", "-c", "-m", model, "four").exit == 0
        assert OPTION not in server.bodies[-1]


def test_the_reason_and_removed_reasoning_are_one_line_after_the_answer(convo: Convo, openai: ChatServer) -> None:
    answer(openai, 1)
    first = convo("chat", "-m", MODEL, "-n", "mine", "one")
    answer(openai, 2, prompt_cache_diagnostics=MISS, input_transformations=REMOVED)
    second = convo("chat", "-c", "two")
    answer(openai, 3, prompt_cache_diagnostics={"type": "cache_hit"})
    third = convo("chat", "-c", "three")
    answer(openai, 4, prompt_cache_diagnostics=MISS)
    quiet = convo("chat", "-c", "-q", "four")
    answer(
        openai, 5, prompt_cache_diagnostics={"type": "comparison_response_not_found"}, input_transformations=REMOVED * 2
    )
    shown = run_repl("-c", lines=["five"])

    assert second.err.splitlines()[-1] == LINE, second.err
    assert "cache" not in "".join([first.err, third.err, quiet.err])
    assert "\n2 reasoning items removed\n" in shown.err
    assert "cache missed" not in shown.err
    answer(openai, 6, prompt_cache_diagnostics={**MISS, "reason": "x\u001b[31m" * 500})
    assert "\u001b" not in convo("chat", "-c", "six").err


def test_a_setting_switches_it_off(convo: Convo, openai: ChatServer) -> None:
    assert convo("config", "set", "cache_diagnostics", "false").exit == 0
    answer(openai, 1)
    answer(openai, 2, input_transformations=REMOVED)
    assert convo("chat", "-m", MODEL, "one").exit == 0
    assert "removed" not in convo("chat", "-c", "two").err
    assert asked(openai) == [None, None]


def test_a_comparison_of_the_user_and_other_options_of_the_cache_are_kept(convo: Convo, openai: ChatServer) -> None:
    for number, options in enumerate((None, {"ttl": "12h"}, {"comparison_response_id": "resp_0"})):
        answer(openai, number)
        flags = [] if options is None else ["--param", f"{OPTION}={json.dumps(options)}"]
        assert convo("chat", *(["-c"] if number else ["-m", MODEL]), *flags, "hi").exit == 0
    expected = [None, {"ttl": "12h", "comparison_response_id": "resp_0"}, {"comparison_response_id": "resp_0"}]
    assert asked(openai) == expected


def test_an_incomplete_response_is_not_compared_with(convo: Convo, openai: ChatServer) -> None:
    answer(openai, 1, "incomplete", incomplete_details={"reason": "max_output_tokens"})
    answer(openai, 2)
    convo("chat", "-m", MODEL, "one")
    assert convo("chat", "-c", "two").exit == 0
    assert asked(openai) == [None, None]


@pytest.mark.parametrize("owner", OWNERS)
def test_a_refused_field_is_left_out_once_more_and_from_then_on(server: LoopbackServer, owner: str) -> None:
    unknown = {"message": "Unknown parameter: 'prompt_cache_options'.", "param": OPTION, "code": "unknown_parameter"}
    refusal = error_response(400, {**unknown, "type": "invalid_request_error"})
    assert run_repl(owner, "-n", "mine", "-m", MODEL, lines=["one"]).exit == 0
    server.arm(refusal)

    got = run_repl("--from", "mine", lines=["two", "three", "/model openai/gpt-6.1-sol", "four"])

    assert got.exit == 0, got.err
    assert "Unknown parameter" not in got.err
    assert [OPTION in body for body in server.bodies] == [False, True, False, False, True]
    texts = [item["content"][0]["text"] for item in server.scripts.requests[-1].input if item["role"] == "user"]
    assert texts == ["one", "two", "three", "four"]


def test_another_refusal_is_not_repeated(convo: Convo, server: LoopbackServer) -> None:
    assert convo("chat", "-m", MODEL, "one").exit == 0
    server.arm(error_response(400, {"message": "No.", "param": "input", "type": "invalid_request_error"}))
    assert convo("chat", "-c", "two").exit == 1
    assert len(server.bodies) == 2


@pytest.mark.parametrize("owner", OWNERS)
def test_claude_is_asked_from_the_first_request_on(convo: Convo, anthropic: ChatServer, owner: str) -> None:
    flags = ("-m", "anthropic/claude-opus-5-5")
    miss = {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 1200}}
    answer_message(anthropic, 1)
    answer_message(anthropic, 2, diagnostics=miss)
    assert convo("chat", *flags, owner, "-n", "mine", "one").exit == 0
    second = convo("chat", "-c", "-s", "Be brief.", "two")
    assert [request.json["diagnostics"] for request in anthropic.requests] == [
        {"previous_message_id": None},
        {"previous_message_id": "msg_1"},
    ]
    assert second.err.splitlines()[-1] == "cache missed: system changed, 1,200 tokens"
    assert "ignored" not in convo("inspect", "mine").out

    refusal = {"type": "invalid_request_error", "message": "diagnostics: Extra inputs are not permitted"}
    anthropic.refuse(400, {"type": "error", "error": refusal})
    answer_message(anthropic, 3)
    answer_message(anthropic, 4)
    for text_ in ("three", "four"):
        assert convo("chat", "-c", text_).exit == 0
    assert ["diagnostics" in request.json for request in anthropic.requests[2:]] == [True, False, False]


def test_a_store_of_convo_in_front_of_openai_names_the_id_of_openai(convo: Convo, openai: ChatServer) -> None:
    assert convo("config", "set", "providers.openai.owner", "convo").exit == 0
    answer(openai, 1)
    answer(openai, 2, prompt_cache_diagnostics=MISS, input_transformations=REMOVED)
    first = convo("chat", "--chain", "-m", MODEL, "--json", "one").json()
    second = convo("chat", "-c", "two")
    assert first["response_id"] != "resp_1"
    assert asked(openai) == [{"comparison_response_id": None}, {"comparison_response_id": "resp_1"}]
    assert second.err.splitlines()[-1] == LINE
    assert "ignored" not in convo("inspect", first["response_id"]).out


def test_other_servers_are_not_asked(convo: Convo, openai: ChatServer, home: Path) -> None:
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[providers.proxy]\napi = "responses"\nbase_url = "{openai.url}"\n', "utf-8")
    answer(openai, 1)
    answer(openai, 2)
    assert convo("chat", "-m", "proxy/gpt-5.6-sol", "one").exit == 0
    assert convo("chat", "-c", "two").exit == 0
    assert asked(openai) == [None, None]
