"""`convo chat` with one message: the answer on stdout, other text on stderr, the status as the exit code."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from convo.installation import make_install_command
from convo.models.weights import BUILT_IN_WEIGHTS
from tests.cli.chat_commands import ECHO, receipts, scripted_flags, stored_messages, stored_sessions
from tests.command_runner import Convo, write_project_file

TWO_PARTS = {
    "output": [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "one\n"}, {"type": "output_text", "text": "two"}],
        }
    ]
}
CALL = {"call": {"name": "weather", "arguments": {"city": "Oslo"}}}
REJECTED = {"error": {"code": "odd", "message": "That is not taken", "status": 400}}


# -- stdout and stderr -----------------------------------------------------------------------------


def test_a_receipt_contains_the_cost_where_a_price_is_set(convo: Convo) -> None:
    write_project_file('[prices."scripted/echo"]\ninput = 1000\noutput = 2000.0\n')
    assert receipts(convo("chat", *ECHO, "hello there").err)[0]["cost"] == "$0.0060"


def test_quiet_leaves_stderr_empty(convo: Convo) -> None:
    got = convo("chat", *ECHO, "--replay", "-q", "hello")
    assert (got.exit, got.out, got.err) == (0, "hello\n", "")


@pytest.mark.parametrize(
    ("reply", "out"),
    [
        ({"text": "many words in several pieces"}, "many words in several pieces\n"),
        ({"text": "its own line break\n"}, "its own line break\n"),
        (TWO_PARTS, "one\n\ntwo\n"),
        ({"refusal": "I will not."}, "I will not.\n"),
        ({"text": "Let me see.", **CALL}, "Let me see.\n"),
        (CALL, ""),
    ],
    ids=["pieces", "line-break", "two-parts", "refusal", "text-and-a-call", "call"],
)
def test_streamed_and_complete_text_are_the_same(reply: dict[str, Any], out: str, convo: Convo) -> None:
    model = scripted_flags(reply)
    assert convo("chat", *model, "hi").out == convo("chat", *model, "--no-stream", "hi").out == out


@pytest.mark.parametrize("flags", [[], ["--no-stream"]])
def test_control_characters_and_lone_surrogates_of_an_answer_are_escaped(flags: list[str], convo: Convo) -> None:
    hostile = scripted_flags({"text": "clear \x1b[2J, ring \x07, \x9b31m, half \ud83d, tab\tand\nline"})
    got = convo("chat", *hostile, *flags, "hi")
    assert got.out == "clear \\x1b[2J, ring \\x07, \\x9b31m, half \\ud83d, tab\tand\nline\n"


def test_control_characters_of_a_prompt_are_in_neither_stdout_nor_the_session_name(convo: Convo) -> None:
    got = convo("chat", *ECHO, "red \x1b[31malert\r")
    assert got.out == "red \\x1b[31malert\\x0d\n"
    assert receipts(got.err)[0]["owner"] == "session red-31malert"


def test_control_characters_of_a_call_are_escaped_on_stderr(convo: Convo) -> None:
    got = convo("chat", *scripted_flags({"call": {"name": "\x1b]0;title\x07", "arguments": "{}"}}), "hi")
    assert got.err.splitlines()[0] == "[function_call] \\x1b]0;title\\x07 {}"


# -- JSON output -----------------------------------------------------------------------------------


def test_json_contains_the_conversation_or_the_file_that_owns_the_state(convo: Convo, tmp_path: Path) -> None:
    conversation = convo("chat", *ECHO, "--conversation", "--json", "hello").json()
    replayed = convo("chat", *ECHO, "--replay", "--json", "hello").json()
    chained = convo("chat", *ECHO, "--chain", "--json", "hello").json()
    assert conversation["conversation_id"].startswith("conv_")
    assert (conversation["state_file"], replayed["conversation_id"]) == (None, None)
    assert replayed["state_file"] == str(tmp_path / "conversation.json")
    assert (chained["conversation_id"], chained["state_file"]) == (None, None)


def test_output_text_of_json_is_plain_with_escaped_control_characters(convo: Convo) -> None:
    got = convo("chat", *scripted_flags({"text": "a\x1b[1mb\x9b"}), "--json", "hi")
    assert "\x1b" not in got.out
    assert "\x9b" not in got.out
    assert got.json()["output_text"] == "a\x1b[1mb\x9b"


def test_jsonl_prints_each_event_as_a_line_and_the_terminal_event_last(convo: Convo) -> None:
    got = convo("chat", *ECHO, "--jsonl", "many words in several pieces")
    events = [json.loads(line) for line in got.out.splitlines()]
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert (len(deltas), "".join(deltas)) == (2, "many words in several pieces")
    assert len(receipts(got.err)) == 1


# -- incomplete and failed turns -------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--no-stream"], ["--json"]])
def test_an_answer_that_reached_its_token_limit_exits_1(flags: list[str], convo: Convo) -> None:
    got = convo("chat", *ECHO, "--max-output-tokens", "2", *flags, "one two three")
    assert got.exit == 1
    if "--json" in flags:
        turn = got.json()
        assert (turn["status"], turn["output_text"]) == ("incomplete", "one two")
    else:
        assert got.out == "one two\n"
        (line,) = receipts(got.err)
        assert (line["status"], line["why"]) == ("incomplete", "max_output_tokens")


def test_after_a_rejected_request_the_message_is_kept_and_sent_with_the_next_turn(convo: Convo, home: Path) -> None:
    got = convo("chat", *scripted_flags(REJECTED), "first")
    assert (got.exit, got.out) == (1, "")
    assert got.err.splitlines()[-2:] == [
        "convo: That is not taken",
        "  try: convo chat --from first, then: /next shows the next request",
    ]

    assert convo("chat", "--from", "first", *ECHO, "second").exit == 0
    assert stored_messages(home, "first") == ["user: first", "user: second", "assistant: second"]


@pytest.mark.parametrize("owner", ["--session", "--replay", "--conversation", "--chain"])
def test_a_new_conversation_whose_parameter_is_refused_is_not_kept(owner: str, convo: Convo, home: Path) -> None:
    refused = {
        "error": {"code": "invalid_value", "message": "No such effort", "status": 400, "param": "reasoning.effort"}
    }
    command = ["chat", owner, *scripted_flags(refused), "--reasoning-effort"]
    got = convo(*command, "huge", "first")
    message, hint = got.err.splitlines()[-2:]
    assert (got.exit, hint) == (1, "  try: correct the request, then repeat the command")
    assert message.startswith("convo: Invalid value: 'huge'. Supported values are")
    assert convo("chat", owner, *scripted_flags(refused), "first").exit == 1
    assert (stored_sessions(home), convo("inspect", "conv_").exit) == ([], 5)
    assert not Path("conversation.json").exists()
    assert convo("chat", owner, *ECHO, "first").exit == 0
    assert convo("chat", "-c", *scripted_flags(refused), "second").exit == 1
    assert [session.name for session in stored_sessions(home)] == ["first"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nope/x", "-m: no provider 'nope' for 'nope/x'"),
        ("scripted/", "-m: 'scripted/' has no model name"),
        ("", "-m must not be empty"),
    ],
)
def test_an_invalid_model_is_refused_and_nothing_is_stored(model: str, message: str, convo: Convo, home: Path) -> None:
    got = convo("chat", "-m", model, "hi")
    assert (got.exit, got.out) == (2, "")
    assert message in got.err
    assert not home.exists() or stored_sessions(home) == []


# -- the default model -----------------------------------------------------------------------------

BUILT_IN = "No API key found. Using the bundled SmolLM2-135M (demo quality)."


@pytest.fixture
def image(tmp_path: Path) -> str:
    """The path of an image file. The built-in model refuses it before it starts."""
    path = tmp_path / "dot.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    return str(path)


def test_without_a_key_and_without_weights_the_note_names_their_download(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, BUILT_IN_WEIGHTS.package, None)
    got = convo("chat", "hi")
    assert got.exit == 1
    assert got.err.splitlines()[0] == "No API key found, and the built-in model is not installed."
    assert got.err.count("convo models pull") == 1
    assert BUILT_IN not in got.err


def test_without_the_engine_of_local_models_the_error_names_its_extra(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    hint = f"{make_install_command('local')}, then convo models pull"
    assert convo("chat", "hi").err.count(hint) == 1

    error = "local/smollm2-135m-instruct needs the extra [local], which is not installed"
    assert convo("chat", "-m", "local", "hi").err == f"convo: {error}\n  try: {hint}\n"
    assert f"not installed; to install it: {hint}\n" in convo("models").out


def test_no_note_is_printed_when_the_built_in_model_was_chosen(image: str, convo: Convo) -> None:
    assert BUILT_IN not in convo("chat", "-m", "local", "-a", image, "-n", "mine", "hi").err
    assert BUILT_IN not in convo("chat", "--from", "mine", "and?").err
    write_project_file('model = "local/smollm2-135m-instruct"\n')
    assert BUILT_IN not in convo("chat", "-a", image, "hi").err


def test_quiet_prints_no_note_about_the_built_in_model(image: str, convo: Convo) -> None:
    assert BUILT_IN not in convo("chat", "-q", "-a", image, "hi").err


@pytest.mark.needs("weights")
def test_the_built_in_model_refuses_an_image_in_one_sentence(image: str, convo: Convo) -> None:
    got = convo("chat", "-m", "local", "-q", "-a", image, "hi")
    assert (got.exit, got.out) == (1, "")
    assert got.err.startswith("convo: local/")
    assert "does not support images" in got.err
