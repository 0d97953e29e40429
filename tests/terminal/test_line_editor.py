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
