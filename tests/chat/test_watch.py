"""Watching a conversation that another process continues."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from convo.chat.watch import POLL_INTERVAL_S, is_in_progress, watch_conversation
from convo.history.items import assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Key
from convo.history.tree import Path as History
from convo.inspect.view import OpenRun
from convo.runs.serialize import run_to_json
from convo.stores.base import AgentRun, AppendItems, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.cli.stored_chats import DATABASE, chat_of, write_chats
from tests.clock import FixedClock
from tests.inspect.conversation_builder import build_chain
from tests.runs.test_stored_approvals import paused


class CountingStore(SqliteStore):
    """A store that counts the reads of whole paths; another process writes before poll number `write_at_poll`."""

    path_reads = 0
    polls = 0
    write_at_poll = 0

    async def path(self, head: Key) -> History:
        self.path_reads += 1
        return await super().path(head)

    async def data_version(self) -> str:
        self.polls += 1
        if self.polls == self.write_at_poll:
            await write_from_another_process(Path(self.database.file))
        return await super().data_version()


async def write_from_another_process(file: Path) -> None:
    """Append a message to the session, as another process would."""
    other = SqliteStore(SqliteDatabase(file))
    session = await other.session("mine")
    assert session
    path = (await other.path(session.head)).append([user_message("and?")])
    await other.commit(
        Transaction(
            (AppendItems(session.head, (user_message("and?"),)),),
            session=replace(session, head=path.head),
            expected_session_head=session.head,
        )
    )
    await other.aclose()


async def test_an_edited_replay_file_is_read_again(home: Path, tmp_path: Path) -> None:
    await asyncio.to_thread(write_chats, home, chat_of("mine", Strategy.REPLAY, "one"))
    file, store = tmp_path / "talk.json", SqliteStore(SqliteDatabase(home / DATABASE))
    async with aclosing(watch_conversation(store, "mine", FixedClock())) as states:
        first = await anext(states)
        file.write_text('[{"role": "user", "content": "something else"}]', encoding="utf-8")
        second = await anext(states)
    await store.aclose()
    assert (len(first.path), len(second.path)) == (2, 1)


async def test_a_run_that_pauses_without_a_new_item_is_noticed(home: Path) -> None:
    await asyncio.to_thread(write_chats, home, chat_of("mine", Strategy.SESSION, "one"))
    store, other = SqliteStore(SqliteDatabase(home / DATABASE)), SqliteStore(SqliteDatabase(home / DATABASE))
    async with aclosing(watch_conversation(store, "mine", FixedClock())) as states:
        first = await anext(states)
        assert first.session
        row = AgentRun("run_1", first.session.id, 1, "paused", run_to_json(paused()), 1.0, 1.0)
        await other.commit(Transaction(agent_run=row))
        second = await anext(states)
    await store.aclose()
    await other.aclose()
    assert (first.open_run, second.open_run) == (None, OpenRun("run_1", ("g1", "g2", "m1"), is_paused=True))


async def test_nothing_is_read_again_before_the_next_write(home: Path) -> None:
    await asyncio.to_thread(write_chats, home, chat_of("mine", Strategy.CHAIN, "one", "two"))
    store, clock = CountingStore(SqliteDatabase(home / DATABASE)), FixedClock()
    store.write_at_poll = 100
    async with aclosing(watch_conversation(store, "mine", clock)) as states:
        first = await anext(states)
        reads_before = store.path_reads
        second = await anext(states)
    await store.aclose()
    assert (len(first.path), len(second.path)) == (4, 5)
    assert store.path_reads == reads_before + reads_before // 2
    assert clock.sleeps_s == [POLL_INTERVAL_S] * 99


def test_an_answer_is_in_progress_while_a_request_runs_or_a_message_has_no_request() -> None:
    view = build_chain(2).view("resp_2")
    assert not is_in_progress(view)
    longer_path = view.path.append([user_message("and then?")])
    assert is_in_progress(replace(view, path=longer_path))
    running = replace(view.links[-1], id="resp_3", status="in_progress")
    assert is_in_progress(replace(view, links=(*view.links, running)))
    failed = replace(running, status="failed", input_head=longer_path.head)
    assert not is_in_progress(replace(view, path=longer_path, links=(*view.links, failed)))


def test_an_interrupted_response_with_partial_output_is_not_in_progress() -> None:
    view = build_chain(2).view("resp_2")
    path = view.path.append([user_message("and then?"), assistant_message("Then…")])
    interrupted = replace(view.links[-1], id="resp_3", status="cancelled", input_head=path.keys[-2], head=path.head)
    interrupted_view = replace(view, path=path, links=(*view.links, interrupted))
    assert interrupted_view.unconfirmed_nodes
    assert not is_in_progress(interrupted_view)
