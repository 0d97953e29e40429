"""What a chat server sent for its own use goes back to it, and to no other server."""

import json
from pathlib import Path

import pytest

from convo.history.items import Item, Json, user_message
from convo.models.base import IssuerTag, make_issuer_tag
from convo.models.chat_completions import ChatChunkTranslator
from convo.models.chat_messages import build_chat_messages
from convo.models.stream import ResponseEventWriter
from tests.clock import counting_ids
from tests.command_runner import Convo
from tests.models.chat_server import delta, finish, run_chat_server

ISSUER, OTHER = make_issuer_tag("up", "m", "http://up"), make_issuer_tag("up", "m", "http://other")
SIGNATURE = {"google": {"thought_signature": "c2ln"}}
ENCRYPTED = {"type": "reasoning.encrypted", "data": "RU5D", "id": "r1", "format": "x", "index": 1}


def answer(*chunks: Json) -> list[Item]:
    new_id = counting_ids()
    translator = ChatChunkTranslator(ResponseEventWriter(new_id, "m"), new_id, ISSUER)
    events = [event for chunk in (*chunks, finish("tool_calls")) for event in translator.translate_chunk(chunk)]
    output: list[Item] = [*events, *translator.finish()][-1]["response"]["output"]
    return output


def assistant_messages(items: list[Item], issuer: IssuerTag = ISSUER) -> list[Json]:
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "x"}
        for item in items
        if item["type"] == "function_call"
    ]
    messages = build_chat_messages([user_message("q"), *items, *outputs], "m", issuer=issuer)
    return [message for message in messages if message["role"] == "assistant"]


def signed_call(number: int, **fields: Json) -> Json:
    function = {"name": "look", "arguments": "{}"}
    return delta(tool_calls=[{"index": number, "id": f"c{number}", "function": function, **fields}])


def test_the_signature_of_a_call_goes_back_with_this_call() -> None:
    items = answer(signed_call(0), signed_call(1, extra_content=SIGNATURE), signed_call(2))

    [message] = assistant_messages(items)
    assert [call.get("extra_content") for call in message["tool_calls"]] == [None, SIGNATURE, None]
    assert all("extra_content" not in item for item in items)
    assert "extra_content" not in json.dumps(assistant_messages(items, OTHER))


def test_the_details_of_reasoning_go_back_as_one_list_whatever_their_pieces() -> None:
    pieces = [{"type": "reasoning.text", "text": word, "index": 0, "signature": None} for word in ("Let me ", "see.")]
    signed = {"type": "reasoning.text", "text": "", "index": 0, "signature": "s"}
    chunks = [delta(reasoning=piece["text"], reasoning_details=[piece]) for piece in pieces]

    items = answer(*chunks, delta(reasoning_details=[signed, ENCRYPTED]), signed_call(0))

    [message] = assistant_messages(items)
    assert message["reasoning_details"] == [{**signed, "text": "Let me see."}, ENCRYPTED]
    assert [item["type"] for item in items] == ["reasoning", "function_call"]
    assert "reasoning_details" not in assistant_messages(items, OTHER)[0]


def test_details_without_visible_reasoning_are_kept_before_the_text() -> None:
    items = answer(delta(content="Yes.", reasoning_details=[ENCRYPTED]))

    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert assistant_messages(items) == [{"role": "assistant", "content": "Yes.", "reasoning_details": [ENCRYPTED]}]


def test_reasoning_content_goes_back_in_a_turn_with_calls_only() -> None:
    thought = delta(reasoning_content="Hm.")

    assert assistant_messages(answer(thought, signed_call(0)))[0]["reasoning_content"] == "Hm."
    assert "reasoning_content" not in assistant_messages(answer(thought, delta(content="Yes.")))[0]


def test_reasoning_that_an_earlier_version_stored_is_still_read() -> None:
    stored = {"type": "reasoning", "summary": [], "encrypted_content": f"{ISSUER}SG0u"}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}

    assert assistant_messages([stored, call])[0]["reasoning_content"] == "Hm."


@pytest.mark.parametrize("owner", ["--replay", "--session", "--conversation", "--chain"])
def test_a_signature_goes_back_with_every_owner_and_after_a_fork_a_conversion_and_an_import(
    owner: str, convo: Convo, home: Path, tmp_path: Path
) -> None:
    Path("desk.py").write_text('def look() -> str:\n    return "sunny"\n', "utf-8")
    config, exported = home / "config" / "config.toml", str(tmp_path / "exported.json")
    config.parent.mkdir(parents=True)
    with run_chat_server() as upstream:
        config.write_text(
            "".join(f'[providers.{name}]\napi = "chat"\nbase_url = "{upstream.url}"\n' for name in ("up", "other")),
            "utf-8",
        )
        handle = (owner, "--from", "h.json") if owner == "--replay" else (owner, "--name", "h")
        flags = ("chat", "-q", "--tool", "desk.py:look", "-m", "up/m")
        upstream.stream(signed_call(0, extra_content=SIGNATURE), finish("tool_calls"))
        upstream.stream(delta(content="Sunny."), finish("stop"))
        assert convo(*flags, *handle, "q").exit == 0

        name = "./h.json" if owner == "--replay" else "h"
        target = "chain" if owner == "--session" else "session"
        assert convo("convert", name, "--to", target, "--as", "converted").exit == 0
        assert convo("export", name, "--format", "replay", "-o", exported).exit == 0
        assert convo("import", exported, "--as", "imported").exit == 0
        for command in (("--from", name), ("--fork", "converted"), ("--from", "converted"), ("--from", "imported")):
            upstream.stream(delta(content="Yes."), finish("stop"))
            got = convo(*flags, *command, "and now?")
            assert got.exit == 0, got
        upstream.stream(delta(content="Yes."), finish("stop"))
        assert convo("chat", "-q", "-m", "other/m", "--from", "imported", "still?").exit == 0

    *to_issuer, to_other = [json.dumps(request.json) for request in upstream.requests[1:]]
    assert [body.count("thought_signature") for body in to_issuer] == [1] * 5
    assert "thought_signature" not in to_other
