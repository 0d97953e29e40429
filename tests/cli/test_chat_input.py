"""The input of `convo chat`: the message, piped input, files, a schema, request options."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat_commands import (
    ECHO,
    receipts,
    scripted_flags,
    stored_conversation,
    stored_messages,
    stored_sessions,
)
from tests.command_runner import Convo, Launch
from tests.loopback_server import LoopbackServer, raw_stream
from tests.terminal.plain_repl import run_repl

PNG = b"\x89PNG\r\n\x1a\n..."
PDF = b"%PDF-1.7 ..."


def launch_bytes(*argv: bytes | str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the real command with arguments and input that may be invalid UTF-8."""
    command = [sys.executable, "-m", "convo", *argv]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "stdin", "message"),
    [
        (["why", "is", "it?"], "", "why is it?"),
        (["why is it?"], "a\n", "why is it?\n\na\n"),
        (["why is it?"], " \n", "why is it?"),
        ([], "piped in\n", "piped in\n"),
        (["-"], "piped in", "piped in"),
        (["review this:", "-"], "a\nb\n", "review this:\n\na\nb\n"),
        (["-", "that is it"], "a", "that is it\n\na"),
        (["review this:", "-"], "", "review this:"),
        (["--", "-x", "is what?"], "", "-x is what?"),
    ],
    ids=[
        "prompt",
        "prompt-pipe",
        "prompt-blank",
        "pipe",
        "dash",
        "prompt-dash",
        "dash-prompt",
        "nothing-piped",
        "double-dash",
    ],
)
def test_the_message_is_the_prompt_followed_by_the_piped_input(
    argv: list[str], stdin: str, message: str, convo: Convo, home: Path
) -> None:
    got = convo("chat", *ECHO, "-n", "mine", *argv, stdin=stdin)
    assert got.exit == 0
    assert stored_messages(home, "mine")[0] == f"user: {message}"


def test_a_file_that_a_one_shot_message_only_mentions_is_reported(convo: Convo) -> None:
    Path("my notes.md").write_text("Milk is out.")
    model = scripted_flags({"text": "Buy milk."})
    notice = "@my notes.md is sent as text; to attach the file: -a 'my notes.md'\n"
    for argv, expected in (
        (['Summarize @"my notes.md".'], notice),
        (['Summarize @"my notes.md".', "-a", "my notes.md"], ""),
        (['Summarize @"my notes.md".', "-q"], ""),
        (["Ask @somebody."], ""),
        (["Summarize @nope.md."], "@nope.md: no such file; sent as text\n"),
    ):
        got = convo("chat", *model, *argv)
        assert (got.exit, [line for line in got.err.splitlines(keepends=True) if "sent as text" in line]) == (
            0,
            [expected] if expected else [],
        )


@pytest.mark.parametrize(("argv", "stdin"), [([], ""), ([""], ""), (["  "], ""), (["-"], " \n"), ([], "\n")])
def test_an_empty_message_is_a_usage_error(argv: list[str], stdin: str, convo: Convo, home: Path) -> None:
    got = convo("chat", *ECHO, *argv, stdin=stdin)
    assert (got.exit, got.out) == (2, "")
    assert got.err == "convo: the message is empty\n  try: repeat the command with a message in quotes\n"
    assert not home.exists()


def test_a_megabyte_of_piped_input_is_sent_completely(launch: Launch, home: Path) -> None:
    text = "lorem ipsum " * 90_000
    got = launch("chat", *scripted_flags({"text": "Long."}), "summarise:", "-", stdin=text)
    assert (got.exit, got.out) == (0, "Long.\n")
    assert receipts(got.err)[0]["input"] == "180,001"
    items, _ = stored_conversation(home, "summarise-lorem-ipsum-lorem")
    assert items[0]["content"][0]["text"] == "summarise:\n\n" + text


@pytest.mark.parametrize("argv", [[], ["-"], ["review this"]])
def test_piped_bytes_that_are_not_utf_8_are_refused(argv: list[str], home: Path) -> None:
    done = launch_bytes("chat", *ECHO, *argv, stdin=b"caf\xe9")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"convo: piped input is not text in UTF-8\n  try: convert it, with iconv for instance, or attach it as a file\n"
    )
    assert not home.exists()


@pytest.mark.needs("posix")
def test_arguments_that_are_not_utf_8_are_refused(home: Path) -> None:
    done = launch_bytes("chat", *ECHO, b"caf\xe9")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"convo: the message is not text in UTF-8\n")
    assert not home.exists()


# -- files -----------------------------------------------------------------------------------------


def content_parts(body: Any) -> list[dict[str, Any]]:
    """Return the content parts of the last message in a request."""
    parts: list[dict[str, Any]] = body["input"][-1]["content"]
    return parts


def test_files_are_sent_with_the_message_in_the_order_of_the_flags(server: LoopbackServer, convo: Convo) -> None:
    for name, data in {"dot.png": PNG, "paper.pdf": PDF, "notes.md": b"# Notes\n"}.items():
        Path(name).write_bytes(data)
    got = convo("chat", "-a", "notes.md", "-a", "dot.png", "-a", "paper.pdf", "what is all this?")
    assert got.exit == 0
    assert content_parts(server.bodies[0]) == [
        {"type": "input_text", "text": "what is all this?"},
        {"type": "input_text", "text": "notes.md:\n# Notes\n"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(PNG)}", "detail": "auto"},
        {"type": "input_file", "filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{encoded(PDF)}"},
    ]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_file_without_text_is_a_message(convo: Convo, home: Path) -> None:
    Path("notes.md").write_text("# Notes")
    assert convo("chat", *ECHO, "-n", "mine", "-a", "notes.md").out == "notes.md:\n# Notes\n"
    assert len(stored_messages(home, "mine")) == 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nope.txt", "nope.txt cannot be read: no such file or directory"),
        ("~nobody-here/x.txt", "~nobody-here/x.txt cannot be read: no such file or directory"),
        (".", ". is a folder"),
        ("bytes", "bytes is not UTF-8 text, an image or a PDF"),
    ],
)
def test_an_invalid_attachment_is_refused_before_any_request(path: str, message: str, convo: Convo, home: Path) -> None:
    Path("bytes").write_bytes(bytes(range(256)))
    got = convo("chat", *ECHO, "-a", path, "look")
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith(f"convo: {message}\n  try: ")
    assert not home.exists()


# -- a schema --------------------------------------------------------------------------------------


def test_a_schema_requests_structured_output(server: LoopbackServer, convo: Convo) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    Path("answer form.json").write_text(json.dumps(schema))
    server.replies({"text": '{"n": 1}'})
    got = convo("chat", "--schema", "answer form.json", "how many?")
    assert (got.exit, got.out) == (0, '{"n": 1}\n')
    assert server.bodies[0]["text"] == {
        "format": {"type": "json_schema", "name": "answer_form", "schema": schema, "strict": False}
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "schema.json cannot be read: no such file or directory"),
        ('{"type": ', "schema.json is not JSON: "),
        ('{"minimum": NaN}', "schema.json is not JSON: NaN is not a JSON number"),
        ("[1]", "schema.json is not a JSON schema: it is not an object"),
    ],
)
def test_an_invalid_schema_is_refused_before_any_request(
    text: str | None, message: str, convo: Convo, home: Path
) -> None:
    if text is not None:
        Path("schema.json").write_text(text)
    got = convo("chat", *ECHO, "--schema", "schema.json", "hi")
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith(f"convo: {message}")
    assert not home.exists() or stored_sessions(home) == []


# -- request options -------------------------------------------------------------------------------


def test_instructions_are_sent_with_every_turn_of_a_session_and_can_be_changed(convo: Convo, home: Path) -> None:
    convo("chat", *ECHO, "-n", "mine", "-s", "Be brief.", "one")
    convo("chat", "--from", "mine", "two")
    convo("chat", "--from", "mine", "-s", "Be long.", "three")
    convo("chat", "--from", "mine", "-s", "", "four")
    convo("chat", "--from", "mine", "five")
    _, links = stored_conversation(home, "mine")
    instructions = [link.parameters.get("instructions") for link in links]
    assert instructions == ["Be brief.", "Be brief.", "Be long.", None, None]


def test_temperature_and_token_limit_are_sent_with_the_request(server: LoopbackServer, convo: Convo) -> None:
    convo("chat", "--temperature", "0", "--max-output-tokens", "7", "hi")
    assert (server.bodies[0]["temperature"], server.bodies[0]["max_output_tokens"]) == (0, 7)


def test_any_parameter_is_sent_with_the_request(server: LoopbackServer, convo: Convo) -> None:
    Path("schema.json").write_text('{"type": "object"}')
    flags = (
        *("--top-p", "0.5", "--reasoning-effort", "low", "--verbosity", "high", "--schema", "schema.json"),
        *("--param", "reasoning.summary=auto", "--param", "service_tier=flex", "--param", "metadata.user=7"),
        *(
            "--param",
            'tools=[{"type": "web_search"}]',
            "--param",
            "new_field=NaN",
            "--param",
            "other_field=1e999",
            "--param",
            "empty=",
        ),
    )
    convo("chat", "-m", "openai/gpt-4o", *flags, "hi")
    body = server.bodies[0]
    text_format = body["text"].pop("format")
    assert text_format["schema"] == {"type": "object"}
    assert {name: body[name] for name in body if name not in ("input", "model", "store", "stream")} == {
        "top_p": 0.5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "high"},
        "service_tier": "flex",
        "metadata": {"user": 7},
        "tools": [{"type": "web_search"}],
        "new_field": "NaN",
        "other_field": "1e999",
        "empty": "",
    }


def test_a_parameter_that_the_endpoint_does_not_know_is_refused(convo: Convo) -> None:
    got = convo("chat", *ECHO, "--param", "tempo=1", "hi")
    assert (got.exit, got.out) == (1, "")
    assert "convo: Unknown parameter: 'tempo'\n" in got.err


def test_a_request_without_options_has_only_the_required_fields(server: LoopbackServer, convo: Convo) -> None:
    convo("chat", "-m", "openai/gpt-4o", "hi")
    assert set(server.bodies[0]) == {"model", "input", "store", "stream"}


def test_the_store_flag_sends_store_true(server: LoopbackServer, convo: Convo) -> None:
    convo("chat", "--store", "hi")
    assert server.bodies[0]["store"] is True


def test_a_request_with_more_input_than_the_price_limit_has_a_cost(server: LoopbackServer, convo: Convo) -> None:
    usage = {"input_tokens": 300_000, "output_tokens": 1_000, "total_tokens": 301_000}
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": [], "usage": usage}
    event = {"type": "response.completed", "sequence_number": 0, "response": response}
    replies = [raw_stream(f"data: {json.dumps(event)}\n\n".encode()) for _ in range(2)]
    server.arm(*replies)
    got = convo("chat", "-m", "openai/gpt-5.6-terra", "hi")
    assert "300,000 input · 1,000 output · $1.22" in got.err
    assert convo("chat", "-m", "openai/gpt-5.6-terra", "hi", "--json").json()["cost_usd"] == pytest.approx(1.218)


@pytest.mark.needs("posix")
@pytest.mark.parametrize("name", ["include", "tools", "text", "reasoning", "max_output_tokens", "context_management"])
def test_a_parameter_of_a_wrong_type_is_refused_in_words(name: str) -> None:
    for value in ("5", '"x"', "[]", "{}", "null", "true", "[1]", '{"a": 1}', '[{"type": "function"}]', "[[]]", "-1"):
        got = run_repl(*ECHO, "--param", f"{name}={value}", lines=["/next hello", "/context", "hi", "/compact"])
        assert got.exit in (0, 2)
        assert "internal error" not in got.err
