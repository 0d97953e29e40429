"""Files and outputs of shell commands that are attached to a message."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from convo.cli.slash_commands import MAX_OUTPUT_CHARS
from convo.terminal.attachments import describe_missing_files, format_attachment, load_mentioned_files
from tests.cli.chat_commands import ECHO, scripted_flags, stored_conversation, stored_messages, stored_sessions
from tests.terminal.plain_repl import run_repl

FILES = ("notes.md", "my notes.md", "a/b.py", "app")


def mentioned_names(folder: Path, text: str, pasted: Sequence[str] = (), files: Sequence[str] = FILES) -> list[str]:
    """The names of the files that a message attaches, with `files` in the working directory."""
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("text")
    with contextlib.chdir(folder):
        return [name for name, _ in load_mentioned_files(text, pasted)]


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("read @notes.md", ["notes.md"]),
        ("@notes.md, then @a/b.py.", ["notes.md", "a/b.py"]),
        ('see @"my notes.md"!', ["my notes.md"]),
        ("(@notes.md)", []),
        ("@notes.md @notes.md", ["notes.md"]),
        ("me@notes.md", []),
        ("@nobody and @last", []),
        ("a line\n@app", ["app"]),
    ],
)
def test_an_at_sign_names_an_existing_file(text: str, files: list[str], tmp_path: Path) -> None:
    assert mentioned_names(tmp_path, text) == files


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("read @nope.md, please", ["@nope.md: no such file; sent as text"]),
        ("read @a/nope.md and @a/nope.md.", ["@a/nope.md: no such file; sent as text"]),
        ('read @"my nope.md"!', ["@my nope.md: no such file; sent as text"]),
        ("@/nope @./nope @~/nope", [f"@{name}: no such file; sent as text" for name in ("/nope", "./nope", "~/nope")]),
        ("list @a/", ["@a/: a folder; sent as text"]),
        ("list @a/nope", ["@a/nope: no such file; sent as text"]),
        ("read @notes.md", []),
        ('read @notes.md? @a/b.py, or @"my notes.md"!', []),
        ("write to me@nope.md, to @nobody or @nobody@example.org", []),
        ("use @types/node with @pytest.fixture and @app.get('/x')", []),
        ("@... or @", []),
    ],
)
def test_a_path_without_a_file_is_reported(text: str, lines: list[str], tmp_path: Path) -> None:
    mentioned_names(tmp_path, "")
    with contextlib.chdir(tmp_path):
        assert describe_missing_files(text) == lines
        assert describe_missing_files(text, [text]) == []


@pytest.mark.needs("posix")
def test_a_chat_says_that_a_file_is_missing_and_sends_the_text(home: Path) -> None:
    got = run_repl(*ECHO, "-n", "mine", lines=["read @nope.md", "hello @nobody"])
    assert got.err.count("; sent as text\n") == 1
    assert "@nope.md: no such file; sent as text\n" in got.err
    assert "sent as text" not in got.out + run_repl(*ECHO, "-q", lines=["read @nope.md"]).err
    assert stored_messages(home, "mine")[0] == "user: read @nope.md"


def test_a_pasted_at_sign_names_no_file(tmp_path: Path) -> None:
    pasted = ["@app.command\ndef f(): ...", "notes.md"]
    assert mentioned_names(tmp_path, "what does @app.command\ndef f(): ...", pasted, ["app.command"]) == []
    assert mentioned_names(tmp_path, "read @notes.md", pasted) == ["notes.md"]


@pytest.mark.parametrize("pasted", ["diff of @notes.md.orig", "write to me@notes.md"])
def test_a_typed_file_is_attached_also_if_pasted_text_contains_its_name(tmp_path: Path, pasted: str) -> None:
    assert mentioned_names(tmp_path, f"read @notes.md and {pasted}", [pasted], ["notes.md"]) == ["notes.md"]


def test_a_text_file_is_sent_as_text_and_an_image_as_an_image(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2_000))
    (name, text), (_, image) = load_mentioned_files("@notes.md @dot.png", [])
    assert text == {"type": "input_text", "text": "notes.md:\n# Notes"}
    assert image["type"] == "input_image"
    assert format_attachment(name, text) == "  + notes.md (text, 17 bytes)"
    assert format_attachment("dot.png", image) == "  + dot.png (image, 2 KB)"


@pytest.mark.parametrize(("model", "is_refused"), [("deepseek/x", True), ("openai/gpt-5", False)])
@pytest.mark.needs("posix")
def test_an_image_is_refused_before_it_is_sent_to_a_text_model(
    model: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.setenv(name, "test-key")
    Path("dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    got = run_repl("-m", model, lines=["/attach dot.png"])
    assert ("does not support images" in got.err, "  + dot.png (image" in got.err) == (is_refused, not is_refused)


@pytest.mark.needs("posix")
def test_a_text_longer_than_the_context_window_is_refused_before_it_is_sent(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text('[windows."scripted/echo"]\ncontext = 1000\n')
    Path("short.txt").write_text("word " * 100)
    Path("long.txt").write_text("word " * 10_000)
    got = run_repl(*ECHO, lines=["/attach short.txt", "/attach long.txt", "read @long.txt"])
    assert "  + short.txt (text" in got.err
    assert "  + long.txt (text" not in got.err
    assert got.err.count("context window") == 2
    assert stored_sessions(home) == []


@pytest.mark.needs("posix")
def test_names_with_spaces_are_quoted() -> None:
    for name in ("a.md", "my notes.md"):
        Path(name).write_text("text")
    got = run_repl(*ECHO, lines=["/attach a.md 'my notes.md'", "/attach 'a.md", "/detach 'my notes.md'"])
    assert "  + a.md (text" in got.err
    assert "  + my notes.md (text" in got.err
    assert """unclosed quote in "'a.md\"""" in got.err
    assert "1 attachment left" in got.err


def attached_texts(home: Path, *commands: str) -> list[str]:
    """The texts that are attached to a message after these shell commands."""
    run_repl(*scripted_flags({"text": "ok"}), "-n", "mine", lines=[*(f"!!{command}" for command in commands), "hello"])
    items, _ = stored_conversation(home, "mine")
    return [part["text"] for part in items[0]["content"][1:]]


@pytest.mark.needs("posix")
def test_the_output_of_a_command_is_attached_with_its_name_and_exit_code(home: Path) -> None:
    printed, failed, killed = attached_texts(home, r"printf 'a\nb\n'", "false", "kill -9 $$")
    assert printed == "$ printf 'a\\nb\\n'\na\nb"
    assert failed == "$ false\n\n(exit code 1)"
    assert killed == "$ kill -9 $$\n\n(ended by signal 9)"


@pytest.mark.needs("posix")
def test_a_long_output_keeps_its_beginning_and_its_end(home: Path) -> None:
    Path("long.txt").write_text("a" * MAX_OUTPUT_CHARS + "b" * MAX_OUTPUT_CHARS)
    Path("longest.txt").write_text("a" * MAX_OUTPUT_CHARS)
    shortened, complete = attached_texts(home, "cat long.txt", "cat longest.txt")
    assert shortened.startswith("$ cat long.txt\naaa")
    assert shortened.endswith("bbb")
    assert complete == "$ cat longest.txt\n" + "a" * MAX_OUTPUT_CHARS
    assert f"[{MAX_OUTPUT_CHARS:,} characters left out]" in shortened
