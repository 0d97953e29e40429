"""The parts of the line editor that need no terminal: the history file, and pastes distinguished from typed keys."""

import asyncio
import fcntl
import os
import stat
import tty
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput

from convo.terminal.line_editor import (
    MAX_HISTORY_BYTES,
    ChoiceMenu,
    CollapsedPastes,
    EditorCompleter,
    PasteDetectingInput,
    PromptHistory,
    apply_to_queue,
    build_key_bindings,
    merge_paste,
    open_prompt_history,
)
from convo.terminal.message_queue import MessageQueue
from convo.terminal.prompt import Suggestion


def parse_keys(typed: str) -> list[KeyPress]:
    """The keys that are parsed from one read."""
    keys: list[KeyPress] = []
    parser = Vt100Parser(keys.append)
    parser.feed(typed)
    parser.flush()
    return keys


async def load_entries(history: History) -> list[str]:
    return [entry async for entry in history.load()]


# -- pastes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["a", "hello\r", "\r", "\r\r", "\n", "a\n", "\x1b[A\r", "a\x1b[Db\r", "x\r\x04"])
def test_typed_keys_are_not_a_paste(typed: str) -> None:
    assert merge_paste(parse_keys(typed)) == parse_keys(typed)


@pytest.mark.parametrize("pasted", ["one\rtwo", "one\r\ntwo\r\n", "\tdef f():\r\t\tpass\r", "é\n日本"])
def test_lines_that_arrive_together_are_a_paste(pasted: str) -> None:
    (press,) = merge_paste(parse_keys(pasted))
    assert (press.key, press.data) == ("<bracketed-paste>", pasted)


@pytest.fixture
def typing() -> Iterator[tuple[PasteDetectingInput, BinaryIO]]:
    """An input, and the end of a pseudo-terminal that types into it."""
    master, slave = os.openpty()
    tty.setraw(slave)
    with open(master, "wb", buffering=0) as keyboard, open(slave, encoding="utf-8") as stdin:
        yield PasteDetectingInput(stdin), keyboard


@pytest.mark.needs("posix")
@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
def test_a_paste_is_one_key_wherever_its_reads_are_split(
    size: int, typing: tuple[PasteDetectingInput, BinaryIO]
) -> None:
    keys, keyboard = typing
    typed = "a\x1b[200~one\x1b[A\r\n\x1b[20é\x1b[201~b\x1b[200~\x1b[201~\x1b[A".encode()
    presses: list[KeyPress] = []
    for start in range(0, len(typed), size):
        keyboard.write(typed[start : start + size])
        presses += keys.read_keys()
    assert [(press.key, press.data) for press in presses] == [
        ("a", "a"),
        ("<bracketed-paste>", "one\x1b[A\r\n\x1b[20é"),
        ("b", "b"),
        ("<bracketed-paste>", ""),
        ("up", "\x1b[A"),
    ]


@pytest.mark.needs("posix")
def test_a_pause_within_the_end_of_a_paste_does_not_continue_it(
    typing: tuple[PasteDetectingInput, BinaryIO],
) -> None:
    keys, keyboard = typing
    keyboard.write(b"\x1b[200~one\x1b[2")
    assert keys.read_keys() + keys.flush_keys() == []
    keyboard.write(b"01~")
    assert [press.data for press in keys.read_keys()] == ["one"]


@pytest.mark.needs("posix")
def test_a_long_paste_is_parsed_once(
    typing: tuple[PasteDetectingInput, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, keyboard = typing
    parsed: list[int] = []
    feed = keys.vt100_parser.feed

    def count_and_feed(data: str) -> None:
        parsed.append(len(data))
        feed(data)

    monkeypatch.setattr(keys.vt100_parser, "feed", count_and_feed)
    presses: list[KeyPress] = []
    for part in ("\x1b[200~", *["line\n" * 200] * 100, "\x1b[201~"):
        keyboard.write(part.encode())
        presses += keys.read_keys()
    (press,) = presses
    assert (len(press.data), sum(parsed)) == (100_000, 100_012)


@pytest.mark.needs("posix")
def test_of_a_paste_that_is_too_long_one_more_character_is_kept(
    typing: tuple[PasteDetectingInput, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convo.terminal.line_editor.MAX_PASTE_CHARS", 10)
    keys, keyboard = typing
    for length, kept in ((10, 10), (11, 11), (12, 11), (500, 11)):
        keyboard.write(b"\x1b[200~" + b"x" * length + b"\x1b[201~y")
        paste, after = keys.read_keys()
        assert (paste.data, after.data) == ("x" * kept, "y")


def test_a_paste_that_is_too_long_goes_past_the_queue_to_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convo.terminal.line_editor.MAX_PASTE_CHARS", 10)
    queue = MessageQueue()
    applied = [apply_to_queue(KeyPress(Keys.BracketedPaste, "x" * length), queue) for length in (10, 11)]
    assert (applied, queue.draft.text) == ([True, False], "x" * 10)


async def test_a_paste_that_is_too_long_is_ignored_with_a_notice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("convo.terminal.line_editor.MAX_PASTE_CHARS", 10)
    pasted: list[str] = []
    bindings = build_key_bindings(
        pasted.append, CollapsedPastes(), ChoiceMenu(), lambda: False, lambda: "", lambda task: None
    )
    with create_pipe_input() as pipe:
        session = PromptSession[str](input=pipe, output=DummyOutput(), key_bindings=bindings)
        pipe.send_text(f"\x1b[200~{'x' * 11}\x1b[201~\x1b[200~{'y' * 10}\x1b[201~\r")
        assert await session.prompt_async() == "y" * 10
    assert pasted == ["y" * 10]
    notice = "a paste of more than 10 characters is ignored; attach a file instead: /attach FILE\n"
    assert capsys.readouterr().err == notice


# -- completions -----------------------------------------------------------------------------------


async def test_the_menu_shows_the_control_characters_of_a_suggestion_escaped() -> None:
    name, description = "invoice\u202efdp.sh", "\x1b[2Jone\u200b"

    async def suggest(before: str) -> tuple[int, Sequence[Suggestion]]:
        return len(before), [Suggestion(name, description)]

    completions = EditorCompleter(suggest).get_completions_async(Document("in"), CompleteEvent())
    (completion,) = [completion async for completion in completions]
    assert (completion.text, completion.start_position) == (name, -2)
    shown = (completion.display_text, completion.display_meta_text)
    assert shown == ("invoice\\u202efdp.sh", "\\x1b[2Jone\\u200b")


# -- the history -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["one", "two\nlines", "", "+plus\n\n# hash", "日本語"])
async def test_a_history_entry_round_trips(text: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    for entry in ("before", text):
        PromptHistory(path).store_string(entry)
    assert await load_entries(PromptHistory(path)) == [text, "before"]


async def test_the_history_file_has_the_format_of_prompt_toolkit(tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    FileHistory(str(path)).store_string("theirs\nof two lines")
    open_prompt_history(path).append_string("ours")
    assert await load_entries(PromptHistory(path)) == ["ours", "theirs\nof two lines"]
    assert list(FileHistory(str(path)).load_history_strings()) == ["ours", "theirs\nof two lines"]


async def test_entries_of_another_terminal_appear_at_the_next_prompt(tmp_path: Path) -> None:
    mine, other = open_prompt_history(tmp_path / "prompts"), open_prompt_history(tmp_path / "prompts")
    assert (await load_entries(mine), await load_entries(other)) == ([], [])
    mine.append_string("one")
    other.append_string("two")
    mine.append_string("three")
    assert await load_entries(mine) == await load_entries(other) == ["three", "two", "one"]


def test_concurrent_writers_lose_no_entry_and_mix_none(tmp_path: Path) -> None:
    entries = [f"{number} " + "long words\n" * 3_000 for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: PromptHistory(tmp_path / "prompts").store_string(text), entries))
    assert sorted(FileHistory(str(tmp_path / "prompts")).load_history_strings()) == sorted(entries)


def test_a_writer_waits_for_another_writer(tmp_path: Path) -> None:
    """Network file systems may write a long entry in several pieces."""
    path = tmp_path / "prompts"
    with ThreadPoolExecutor() as pool, path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        append_future = pool.submit(PromptHistory(path).store_string, "mine")
        with pytest.raises(TimeoutError):
            append_future.result(0.1)
        assert path.read_text() == ""
        fcntl.flock(file, fcntl.LOCK_UN)
    assert list(FileHistory(str(path)).load_history_strings()) == ["mine"]


async def test_of_a_long_history_file_the_last_complete_entries_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    file_history = FileHistory(str(path))
    for number in range(1_200):
        file_history.store_string(f"{number} " + "x\n" * 500)
    assert path.stat().st_size > MAX_HISTORY_BYTES
    entries = await load_entries(PromptHistory(path))
    assert entries[0].startswith("1199 ")
    assert all(text.split(" ")[0].isdigit() and text.count("\n") == 500 for text in entries)
    assert MAX_HISTORY_BYTES // 2000 < len(entries) < 1_100


def test_the_history_file_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    path.touch(mode=0o644)
    open_prompt_history(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_history_file_that_cannot_be_opened_disables_only_the_history(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    history = open_prompt_history(tmp_path / "prompts")
    history.append_string("one")
    assert asyncio.run(load_entries(history)) == ["one"]


def test_the_history_in_a_pipe_or_device_is_kept_in_memory_and_its_mode_stays(tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    os.mkfifo(path, 0o666)
    path.chmod(0o666)
    open_prompt_history(path).append_string("mine")
    assert path.stat().st_mode & 0o777 == 0o666
