"""The parts of the line editor that need no terminal: the history file, and pastes distinguished from typed keys."""

import asyncio
import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

from convo.terminal.line_editor import (
    MAX_HISTORY_BYTES,
    PromptHistory,
    merge_paste,
    open_prompt_history,
)


def pressed(typed: str) -> list[KeyPress]:
    """The keys that are parsed from one read."""
    found: list[KeyPress] = []
    parser = Vt100Parser(found.append)
    parser.feed(typed)
    parser.flush()
    return found


async def loaded(history: History) -> list[str]:
    return [entry async for entry in history.load()]


# -- pastes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["a", "hello\r", "\r", "\r\r", "\n", "a\n", "\x1b[A\r", "a\x1b[Db\r", "x\r\x04"])
def test_typed_keys_are_not_a_paste(typed: str) -> None:
    assert merge_paste(pressed(typed)) == pressed(typed)


@pytest.mark.parametrize("pasted", ["one\rtwo", "one\r\ntwo\r\n", "\tdef f():\r\t\tpass\r", "é\n日本"])
def test_lines_that_arrive_together_are_a_paste(pasted: str) -> None:
    (press,) = merge_paste(pressed(pasted))
    assert (press.key, press.data) == ("<bracketed-paste>", pasted)


# -- the history -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["one", "two\nlines", "", "+plus\n\n# hash", "日本語"])
async def test_a_history_entry_round_trips(words: str, tmp_path: Path) -> None:
    place = tmp_path / "prompts"
    for entry in ("before", words):
        PromptHistory(place).store_string(entry)
    assert await loaded(PromptHistory(place)) == [words, "before"]


async def test_the_history_file_has_the_format_of_prompt_toolkit(tmp_path: Path) -> None:
    place = tmp_path / "prompts"
    FileHistory(str(place)).store_string("theirs\nof two lines")
    open_prompt_history(place).append_string("ours")
    assert await loaded(PromptHistory(place)) == ["ours", "theirs\nof two lines"]
    assert list(FileHistory(str(place)).load_history_strings()) == ["ours", "theirs\nof two lines"]


async def test_entries_of_another_terminal_appear_at_the_next_prompt(tmp_path: Path) -> None:
    mine, other = open_prompt_history(tmp_path / "prompts"), open_prompt_history(tmp_path / "prompts")
    assert (await loaded(mine), await loaded(other)) == ([], [])
    mine.append_string("one")
    other.append_string("two")
    mine.append_string("three")
    assert await loaded(mine) == await loaded(other) == ["three", "two", "one"]


def test_concurrent_writers_lose_no_entry_and_mix_none(tmp_path: Path) -> None:
    said = [f"{number} " + "long words\n" * 3_000 for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda words: PromptHistory(tmp_path / "prompts").store_string(words), said))
    assert sorted(FileHistory(str(tmp_path / "prompts")).load_history_strings()) == sorted(said)


def test_a_writer_waits_for_another_writer(tmp_path: Path) -> None:
    """Network file systems may write a long entry in several pieces."""
    place = tmp_path / "prompts"
    with ThreadPoolExecutor() as pool, place.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        adding = pool.submit(PromptHistory(place).store_string, "mine")
        with pytest.raises(TimeoutError):
            adding.result(0.1)
        assert place.read_text() == ""
        fcntl.flock(file, fcntl.LOCK_UN)
    assert list(FileHistory(str(place)).load_history_strings()) == ["mine"]


async def test_of_a_long_history_file_the_last_complete_entries_are_read(tmp_path: Path) -> None:
    place = tmp_path / "prompts"
    theirs = FileHistory(str(place))
    for number in range(1_200):
        theirs.store_string(f"{number} " + "x\n" * 500)
    assert place.stat().st_size > MAX_HISTORY_BYTES
    found = await loaded(PromptHistory(place))
    assert found[0].startswith("1199 ")
    assert all(words.split(" ")[0].isdigit() and words.count("\n") == 500 for words in found)


def test_the_history_file_is_made_private(tmp_path: Path) -> None:
    place = tmp_path / "prompts"
    place.touch(mode=0o644)
    open_prompt_history(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_a_history_file_that_cannot_be_opened_disables_only_the_history(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    history = open_prompt_history(tmp_path / "prompts")
    history.append_string("one")
    assert asyncio.run(loaded(history)) == ["one"]


def test_the_history_in_a_pipe_or_device_is_kept_in_memory_and_its_mode_stays(tmp_path: Path) -> None:
    place = tmp_path / "prompts"
    os.mkfifo(place, 0o666)
    place.chmod(0o666)
    open_prompt_history(place).append_string("mine")
    assert place.stat().st_mode & 0o777 == 0o666
