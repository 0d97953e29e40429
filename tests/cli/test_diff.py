"""`convo diff`: two histories, two requests, or a local record and its copy at the server."""

import json
from pathlib import Path
from typing import Any

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.cli.remote_state import create_response, set_unreachable_endpoint
from tests.cli.stored_chats import ChatWriter, chat_of, write_chats
from tests.command_runner import Convo, run_in_process
from tests.loopback_server import LoopbackServer


def diff_json(convo: Convo, *argv: str) -> dict[str, Any]:
    """Run `convo diff ... --json`; returns the printed object."""
    got = convo("diff", *argv, "--json")
    assert (got.exit, got.err) == (0, "")
    diff: dict[str, Any] = got.json()
    return diff


def write(name: str, *items: Any) -> str:
    Path(name).write_text(json.dumps(items), encoding="utf-8")
    return f"./{name}"


# -- histories -------------------------------------------------------------------------------------


@pytest.mark.needs("terminal")
def test_a_terminal_shows_a_unified_diff(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one", "two"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert run_in_process("diff", "mine@1", "mine", is_terminal=True).out.splitlines() == [
        "--- mine@1 (A): 2 items, the local store",
        "+++ mine (B): 4 items, the local store",
        "@@ common prefix: 2 items; B has more items @@",
        "",
        "  2 assistant: one",
        "+ 3 user: two",
        "+ 4 assistant: two",
        "",
        "2 only in B",
    ]


@pytest.mark.parametrize(
    ("a", "b", "same", "rest"),
    [
        ("mine@0", "mine", 0, 4),
        ("mine@-1", "mine@1", 2, 0),
        ("mine@2", "mine", 4, 0),
        ("resp_1", "mine@1", 2, 0),
        ("resp_1", "resp_2", 2, 2),
        ("@last@1", "mine", 2, 2),
        ("./talk.json@1", "talk.json", 2, 2),
    ],
)
def test_every_handle_accepts_a_turn(a: str, b: str, same: int, rest: int, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.REPLAY, "one", "two"))
    diff = diff_json(convo, a, b)
    assert (diff["same"], len(diff["rest"])) == (same, rest)


@pytest.mark.parametrize("number", ["3", "-3"])
def test_an_unknown_turn_exits_5(number: str, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one", "two"))
    got = convo("diff", f"mine@{number}", "mine")
    assert (got.exit, got.out, got.err) == (
        5,
        "",
        f"convo: no turn '{number}'\n  try: choose a turn from 0 (the start) to 2 (the last)\n",
    )


def test_a_session_name_that_looks_like_a_turn_is_a_name(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.SESSION, "mine", "one", "two")
        await writer.chat(Strategy.SESSION, "mine@1", "other")

    write_chats(home, script)
    assert diff_json(convo, "mine@1", "mine")["first"]["a"]["content"][0]["text"] == "other"


def test_calls_and_their_outputs_are_one_turn(convo: Convo) -> None:
    calls = [{"type": "function_call", "call_id": name, "name": "tea", "arguments": "{}"} for name in ("a", "b")]
    outputs = [{"type": "function_call_output", "call_id": name, "output": "hot"} for name in ("a", "b")]
    items = [{"role": "user", "content": "tea?"}, *calls, *outputs, {"role": "assistant", "content": "hot"}]
    file = write("talk.json", *items, {"role": "user", "content": "thanks"})
    diff = diff_json(convo, f"{file}@1", file)
    assert (diff["a"]["items"], diff["same"]) == (6, 6)


def test_an_answer_in_another_form_is_no_difference(convo: Convo) -> None:
    a = write("a.json", {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"})
    part = {"type": "output_text", "text": "hello", "annotations": []}
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    b = write("b.json", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}, answer)
    got = convo("diff", a, b, "--exit-code")
    assert got.exit == 0
    assert "identical: 2 items" in got.out


def test_compacted_items_are_only_on_the_side_before_the_compaction(convo: Convo) -> None:
    last = [{"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]
    before = write("before.json", {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, *last)
    after = write("after.json", {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}, *last)
    out = convo("diff", before, after).out
    assert "1  message user: one" in out
    assert "1  compaction: [compaction]" in out
    assert "1 only in A, 0 only in B, 1 changed, 2 identical" in out


def test_control_sequences_in_items_are_not_printed(convo: Convo) -> None:
    out = convo("diff", write("a.json", {"role": "user", "content": "\x1b[2J"}), write("b.json")).out
    assert "\x1b" not in out


# -- a local record and the server -----------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.CONVERSATION])
def test_a_complete_mirror_has_no_difference(strategy: Strategy, server: LoopbackServer, convo: Convo) -> None:
    assert convo("chat", f"--{strategy}", "-n", "mine", "one").exit == 0
    diff = diff_json(convo, "mine", "--server")
    assert (diff["same"], diff["first"]) == (2, None)


def test_items_only_on_the_server_and_items_only_in_the_mirror_are_distinguished(
    server: LoopbackServer, convo: Convo
) -> None:
    assert convo("chat", "--conversation", "-n", "mine", "one").exit == 0
    handle = convo("inspect", "mine", "--json").json()["links"][-1]["conversation_id"]
    page = server.run(server.endpoint().list_conversation_items(handle, order="asc"))
    server.run(server.endpoint().delete_conversation_item(handle, str(page.items[0]["id"])))
    create_response(server, "by another", conversation=handle)

    got = convo("diff", "mine", "--drift", "--exit-code")

    assert got.exit == 1
    assert "1 only in A, 2 only in B, 0 changed, 1 identical" in got.out
    assert f"there, 3 items, {handle} at {server.url}" in got.out


def test_items_of_another_client_at_the_embedded_endpoint_are_only_on_the_server_side(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CONVERSATION, "mine", "one")
        await writer.other_client("two", conversation=chat.session.handle or "")

    write_chats(home, script)
    assert [line["mark"] for line in diff_json(convo, "mine", "--server")["rest"]] == ["only b", "only b"]


def test_a_session_has_no_server_side_to_compare(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    got = convo("diff", "mine", "--server")
    assert (got.exit, got.err) == (
        2,
        "convo: mine is not stored by a server; its owner is the local store\n  try: convo inspect mine\n",
    )


def test_an_unreachable_server_is_an_error_and_not_a_difference(
    server: LoopbackServer, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert convo("chat", "--chain", "-n", "mine", "one").exit == 0
    got = convo("diff", "mine", "--server", "--exit-code")
    assert got.exit == 0
    set_unreachable_endpoint(monkeypatch)
    assert convo("diff", "mine", "--server").exit in (1, 2)


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_requests_are_compared_as_they_were_sent(strategy: Strategy, server: LoopbackServer, convo: Convo) -> None:
    flags = [f"--{strategy}", "-n", "mine"] + (["--from", "./talk.json"] if strategy is Strategy.REPLAY else [])
    assert convo("chat", *flags, "-s", "Be brief.", "one").exit == 0
    assert convo("chat", "--from", "mine", "two").exit == 0
    for number, body in enumerate(server.bodies, 1):
        sent_body = {name: value for name, value in body.items() if name != "stream"}
        Path(f"{number}.json").write_text(json.dumps(sent_body))
        assert diff_json(convo, "--wire", f"mine@{number}", f"./{number}.json")["byte"] is None


def test_the_expected_cached_tokens_are_shown_with_the_reported_ones(server: LoopbackServer, convo: Convo) -> None:
    assert convo("chat", "-m", "openai/gpt-5.1", "-n", "mine", "-s", "word " * 2_000, "one").exit == 0
    assert convo("chat", "--from", "mine", "two").exit == 0
    diff = diff_json(convo, "--wire", "mine@1", "mine@2")
    assert diff["path"] == "input[1]"
    assert diff["expected_cached_tokens"] == 1_920
    assert diff["prefix_tokens"] > 2_000
    assert diff["reported_cached_tokens"] == 0
    assert diff["reported_input_tokens"] > 2_000
    out = convo("diff", "--wire", "mine@1", "mine@2").out
    assert "  expected    at most 1,920 of them cached\n  reported    0 cached of " in out


def test_changed_instructions_end_the_cached_prefix(convo: Convo, home: Path) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "-s", "It is 12:00.", "one").exit == 0
    assert convo("chat", "--from", "mine", "-s", "It is 12:01.", "two").exit == 0
    diff = diff_json(convo, "--wire", "mine@1", "mine@2")
    assert (diff["path"], diff["a"], diff["b"]) == ("instructions", "It is 12:00.", "It is 12:01.")
    assert 0 < diff["prefix_tokens"] < 8


def test_an_unknown_request_exits_5(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    got = convo("diff", "--wire", "mine@1", "mine@2")
    assert (got.exit, got.err) == (
        5,
        "convo: no request 'mine@2'\n  try: choose a request number up to 1; a file has none\n",
    )


def test_a_handle_that_is_too_long_for_a_file_name_is_not_found(convo: Convo) -> None:
    assert convo("diff", "--wire", "x" * 5000, "y").exit == 5


def test_a_file_that_is_not_json_is_named(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    Path("body.json").write_text("{")
    got = convo("diff", "--wire", "mine@1", "./body.json")
    assert got.exit == 2
    assert "./body.json is not JSON" in got.err


def test_a_conversation_whose_requests_all_failed_has_none_to_compare(convo: Convo) -> None:
    error = {"code": "server_error", "message": "down", "status": 400}
    convo("chat", *scripted_flags({"error": error}), "--name", "mine", "hi")
    got = convo("diff", "--wire", "mine@1", "mine@1")
    assert (got.exit, got.err) == (
        5,
        "convo: no request 'mine@1'\n"
        "  try: none of its requests has a response; convo inspect mine shows the failed ones\n",
    )
