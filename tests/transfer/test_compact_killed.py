"""SIGKILL at every step of a compaction: the history is the one before or the one after, and can be continued."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from convo.chat.lookup import load_last_used_session
from convo.history.records import Strategy
from convo.stores.factory import open_store
from tests.command_runner import ROOT
from tests.fork_server import run_convo
from tests.transfer.compaction_cases import NAME, CompactionCase, first_words

BEFORE = ["1", "2", "3"]
AFTER = {
    (Strategy.SESSION, 0): [*BEFORE, "Summary"],
    (Strategy.REPLAY, 0): [*BEFORE, "Summary"],
    (Strategy.CHAIN, 0): BEFORE,
    (Strategy.CONVERSATION, 0): BEFORE,
    (Strategy.CONVERSATION, 1): ["1", "2", "Summary", "3"],
}
"""The user messages in the compacted history; an encrypted compaction item has no text."""

SMALL_VARIANTS = ((Strategy.SESSION, 0), (Strategy.CONVERSATION, 1))
"""A history of the client and one of an endpoint; the others run with -m full."""

CASES = [pytest.param(*case, marks=() if case in SMALL_VARIANTS else pytest.mark.full) for case in AFTER]


def kill_compactions(folder: Path, strategy: Strategy, keep: int) -> int:
    """Run compactions that are killed, each one step later than the one before. Returns the number of kills."""
    result = run_convo([str(folder), strategy, str(keep)], module="tests.transfer.killed_compaction", cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


async def read_histories(folder: Path) -> tuple[list[str], list[str]]:
    """Check the database, continue the conversation, and return its earlier user messages and the session names."""
    with closing(sqlite3.connect(folder / "convo.db")) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    store = open_store(f"sqlite:{folder / 'convo.db'}")
    case = CompactionCase(store, folder)
    assert (await load_last_used_session(store)).name == NAME
    chat = await case.open()
    messages = first_words(chat.load_state().path.items)
    await case.send(chat, "4")
    assert first_words(chat.state.path.items) == [*messages, "4"]
    assert (await load_last_used_session(store)).name == NAME
    names = [one.name for one in await store.sessions()]
    await store.aclose()
    return messages, names


@pytest.mark.needs("linux")
@pytest.mark.parametrize(("strategy", "keep"), CASES)
async def test_a_killed_compaction_leaves_the_history_before_or_after_it(
    tmp_path: Path, strategy: Strategy, keep: int
) -> None:
    """A kill before a step is also a kill after the previous step."""
    kill_count, histories = kill_compactions(tmp_path, strategy, keep), []
    for step in range(kill_count + 1):
        messages, names = await read_histories(tmp_path / str(step))
        assert messages in (BEFORE, AFTER[strategy, keep])
        if strategy is Strategy.SESSION and messages != BEFORE:
            assert f"{NAME}-before" in names
        if strategy is Strategy.REPLAY and messages != BEFORE:
            assert exists(tmp_path / str(step) / "talk-before.json")
        histories.append(messages)
    assert kill_count > 0
    assert histories[0] == BEFORE
    assert histories[-1] == AFTER[strategy, keep]


def exists(file: Path) -> bool:
    return file.exists()
