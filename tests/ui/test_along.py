"""Files and what a command said, beside a message."""

from pathlib import Path

import pytest

from convo.cli.standing import check_takes
from convo.config import Flags, Room, read, resolve
from convo.errors import Unsupported, Usage, WindowExceeded
from convo.items import Json
from convo.ui.along import mentioned, parts_of, said_of, split
from convo.ui.shelling import MOST, bounded, part

THERE = {"notes.md", "my notes.md", "a/b.py", "app"}


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
def test_an_at_names_a_file_that_is_there(words: str, files: list[str]) -> None:
    assert mentioned(words, [], THERE.__contains__) == files


def test_an_at_that_was_pasted_names_none() -> None:
    pasted = ["@app.command\ndef f(): ...", "notes.md"]
    assert mentioned("what does @app.command\ndef f(): ...", pasted, {"app.command"}.__contains__) == []
    assert mentioned("read @notes.md", pasted, THERE.__contains__) == ["notes.md"]


def test_a_text_goes_as_text_and_a_picture_as_a_picture(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2_000))
    (name, text), (_, image) = parts_of("@notes.md @dot.png", [])
    assert text == {"type": "input_text", "text": "notes.md:\n# Notes"}
    assert image["type"] == "input_image"
    assert said_of(name, text) == "  + notes.md (text, 17 bytes)"
    assert said_of("dot.png", image) == "  + dot.png (image, 2 KB)"


@pytest.mark.parametrize(("model", "refused"), [("local/smollm2", True), ("deepseek/x", True), ("openai/gpt-5", False)])
def test_a_picture_is_refused_before_it_is_said_to_a_model_that_knows_words_alone(model: str, refused: bool) -> None:
    picture: Json = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    settings = resolve(read(None, Flags()))
    if refused:
        with pytest.raises(Unsupported, match="does not take images"):
            check_takes(model, [picture], settings)
    else:
        check_takes(model, [picture], settings)


def test_a_text_that_is_longer_than_the_window_is_refused_before_it_is_said() -> None:
    settings = resolve(read(None, Flags()))._replace(windows={"my/model": Room(1_000, None)})
    check_takes("my/model", [{"type": "input_text", "text": "word " * 100}], settings)
    with pytest.raises(WindowExceeded):
        check_takes("my/model", [{"type": "input_text", "text": "word " * 10_000}], settings)


def test_names_with_blanks_stand_in_quotes() -> None:
    assert split("a.md 'my notes.md'") == ["a.md", "my notes.md"]
    with pytest.raises(Usage, match="a quote is not closed"):
        split("'a.md")


def test_what_a_command_said_goes_with_its_name_and_how_it_ended() -> None:
    assert part("ls", "a\nb\n", 0)["text"] == "$ ls\na\nb"
    assert part("false", "", 1)["text"] == "$ false\n\n(exit code 1)"
    assert part("x", "", -9)["text"].endswith("(ended by signal 9)")


def test_of_a_long_output_both_ends_go() -> None:
    said = bounded("a" * MOST + "b" * MOST)
    assert said.startswith("aaa")
    assert said.endswith("bbb")
    assert f"[{MOST:,} characters left out]" in said
