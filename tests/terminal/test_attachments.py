"""Files and what a command said, beside a message."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from convo.cli.repl import check_input_supported
from convo.config.loader import SettingFlags, read_settings_inputs, resolve_settings
from convo.config.sections import ContextLimits
from convo.errors import InvalidUsage, Unsupported, WindowExceeded
from convo.history.items import Json
from convo.terminal.slash_commands import (
    MAX_OUTPUT_CHARS,
    format_attachment,
    load_mentioned_files,
    make_output_part,
    split_file_names,
)

FILES = ("notes.md", "my notes.md", "a/b.py", "app")


def mentioned(folder: Path, words: str, pasted: Sequence[str] = (), files: Sequence[str] = FILES) -> list[str]:
    """The names of the files that a message takes along, where `files` are in the working directory."""
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("text")
    with contextlib.chdir(folder):
        return [name for name, _ in load_mentioned_files(words, pasted)]


@pytest.mark.parametrize(
    ("words", "files"),
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
def test_an_at_names_a_file_that_is_there(words: str, files: list[str], tmp_path: Path) -> None:
    assert mentioned(tmp_path, words) == files


def test_an_at_that_was_pasted_names_none(tmp_path: Path) -> None:
    pasted = ["@app.command\ndef f(): ...", "notes.md"]
    assert mentioned(tmp_path, "what does @app.command\ndef f(): ...", pasted, ["app.command"]) == []
    assert mentioned(tmp_path, "read @notes.md", pasted) == ["notes.md"]


def test_a_text_goes_as_text_and_a_picture_as_a_picture(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2_000))
    (name, text), (_, image) = load_mentioned_files("@notes.md @dot.png", [])
    assert text == {"type": "input_text", "text": "notes.md:\n# Notes"}
    assert image["type"] == "input_image"
    assert format_attachment(name, text) == "  + notes.md (text, 17 bytes)"
    assert format_attachment("dot.png", image) == "  + dot.png (image, 2 KB)"


@pytest.mark.parametrize(("model", "refused"), [("local/smollm2", True), ("deepseek/x", True), ("openai/gpt-5", False)])
def test_a_picture_is_refused_before_it_is_said_to_a_model_that_knows_words_alone(model: str, refused: bool) -> None:
    picture: Json = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    settings = resolve_settings(read_settings_inputs(None, SettingFlags()))
    if refused:
        with pytest.raises(Unsupported, match="does not support images"):
            check_input_supported(model, [picture], settings)
    else:
        check_input_supported(model, [picture], settings)


def test_a_text_that_is_longer_than_the_window_is_refused_before_it_is_said() -> None:
    settings = resolve_settings(read_settings_inputs(None, SettingFlags()))._replace(
        windows={"my/model": ContextLimits(1_000, None)}
    )
    check_input_supported("my/model", [{"type": "input_text", "text": "word " * 100}], settings)
    with pytest.raises(WindowExceeded):
        check_input_supported("my/model", [{"type": "input_text", "text": "word " * 10_000}], settings)


def test_names_with_blanks_stand_in_quotes() -> None:
    assert split_file_names("a.md 'my notes.md'") == ["a.md", "my notes.md"]
    with pytest.raises(InvalidUsage, match="unclosed quote"):
        split_file_names("'a.md")


def test_what_a_command_said_goes_with_its_name_and_how_it_ended() -> None:
    assert make_output_part("ls", "a\nb\n", 0)["text"] == "$ ls\na\nb"
    assert make_output_part("false", "", 1)["text"] == "$ false\n\n(exit code 1)"
    assert make_output_part("x", "", -9)["text"].endswith("(ended by signal 9)")


def test_of_a_long_output_both_ends_go() -> None:
    said = make_output_part("x", "a" * MAX_OUTPUT_CHARS + "b" * MAX_OUTPUT_CHARS, 0)["text"]
    assert said.startswith("$ x\naaa")
    assert said.endswith("bbb")
    assert make_output_part("x", "a" * MAX_OUTPUT_CHARS, 0)["text"] == "$ x\n" + "a" * MAX_OUTPUT_CHARS
    assert f"[{MAX_OUTPUT_CHARS:,} characters left out]" in said
