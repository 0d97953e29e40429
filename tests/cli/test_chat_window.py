"""A message that does not fit the model's context window is told, or refused, before it is sent."""

from pathlib import Path

import pytest

from tests.cli.chat_commands import stored_sessions
from tests.command_runner import Convo, write_project_file
from tests.loopback_server import LoopbackServer
from tests.terminal.plain_repl import run_repl

WINDOW = 10_000
WORDS = "The ferry leaves at seven. " * 100
"""About 600 tokens of a tokenizer; an estimate may be up to half as many more."""


@pytest.fixture
def model() -> tuple[str, str]:
    """The flags of a model with an own window, whose tokenizer is unknown."""
    write_project_file(f'[windows]\n"openai/mine" = {{ context = {WINDOW} }}\n')
    return "-m", "openai/mine"


@pytest.mark.parametrize("source", ["prompt", "stdin", "attachment", "instructions"])
def test_a_first_message_that_certainly_does_not_fit_is_not_sent(
    convo: Convo, server: LoopbackServer, home: Path, model: tuple[str, str], source: str
) -> None:
    text = WORDS * 30
    Path("notes.txt").write_text(text)
    flags: dict[str, list[str]] = {
        "prompt": [text],
        "stdin": ["-"],
        "attachment": ["-a", "notes.txt", "read it"],
        "instructions": ["-s", text, "hi"],
    }
    got = convo("chat", *model, *flags[source], stdin=text if source == "stdin" else "")
    assert (got.exit, got.out, server.requests) == (1, "", [])
    assert f"convo: openai/mine accepts {WINDOW:,} input tokens; this request has 1" in got.err
    assert "choose a model with a larger context window" in got.err
    assert stored_sessions(home) == []


@pytest.mark.needs("posix")
def test_a_file_in_the_message_of_an_interactive_chat_counts(
    convo: Convo, server: LoopbackServer, model: tuple[str, str]
) -> None:
    Path("notes.txt").write_text(WORDS * 20)
    got = run_repl(*model, lines=["read @notes.txt"])
    assert "this request has about 1" in got.err
    Path("notes.txt").write_text(WORDS * 30)
    sent = len(server.requests)
    got = run_repl(*model, lines=["read @notes.txt"])
    assert f"openai/mine accepts {WINDOW:,} input tokens" in got.err
    assert len(server.requests) == sent


def test_a_first_message_that_probably_does_not_fit_is_sent_with_a_warning(
    convo: Convo, server: LoopbackServer, model: tuple[str, str]
) -> None:
    got = convo("chat", *model, WORDS * 20)
    assert (got.exit, len(server.requests)) == (0, 1)
    assert f"warning: openai/mine accepts {WINDOW:,} input tokens; this request has about 12," in got.err


def test_later_messages_are_counted_with_the_reported_history(
    convo: Convo, server: LoopbackServer, model: tuple[str, str]
) -> None:
    assert "warning" not in convo("chat", *model, "-n", "mine", WORDS * 2).err
    assert "warning" not in convo("chat", "--from", "mine", *model, WORDS * 2).err
    assert "warning: openai/mine" in convo("chat", "--from", "mine", *model, WORDS * 13).err


@pytest.mark.parametrize("flags", [["--param", "truncation=auto"], ["-m", "openai/unknown"]])
def test_no_message_is_refused_that_the_server_shortens_or_whose_window_is_unknown(
    convo: Convo, server: LoopbackServer, model: tuple[str, str], flags: list[str]
) -> None:
    assert convo("chat", *model, *flags, WORDS * 30).exit == 0
    assert len(server.requests) == 1


def test_files_that_only_the_provider_can_count_are_not_counted(
    convo: Convo, server: LoopbackServer, model: tuple[str, str]
) -> None:
    Path("book.pdf").write_bytes(b"%PDF-1.4\n" + b"x" * 400_000)
    got = convo("chat", *model, "-a", "book.pdf", "read it")
    assert (got.exit, "warning" in got.err) == (0, False)
