"""Watching a conversation that another process continues."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from convo.chat.view_loader import load_handle_view
from convo.chat.watch import (
    POLL_INTERVAL_S,
    ConversationVersion,
    is_in_progress,
    load_conversation_version,
    read_replay_stamp,
    watch_conversation,
)
from convo.history.items import assistant_message, user_message
from convo.history.records import AgentRun, LinkStatus, Strategy
from convo.history.tree import Key
from convo.history.tree import Path as History
from convo.inspect.view import OpenRun
from convo.runs.serialize import run_to_json
from convo.stores.base import AppendItems, Transaction
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.cli.stored_chats import DATABASE, chat_of, write_chats
from tests.clock import FixedClock
from tests.embedded_endpoint import make_embedded_endpoint
from tests.inspect.conversation_builder import build_chain
from tests.runs.test_stored_approvals import paused


class CountingStore(SqliteStore):
    """A store that counts the reads of whole paths; another process writes before poll number `write_at_poll`."""

    path_reads = 0
    polls = 0
    write_at_poll = 0

    async def path(self, head: Key, known: History | None = None) -> History:
        self.path_reads += 1
        return await super().path(head, known)

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


# -- the version of a conversation -----------------------------------------------------------------


async def test_the_version_of_a_session_has_everything_that_can_change(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.REPLAY, name="mine")
    for text in ("one", "two"):
        await send(chat, text)
    first, second = await harness.store.links(chat.session.id)
    view = await load_handle_view(harness.store, "mine")
    info = (harness.folder / "talk.json").stat()
    version = ConversationVersion(
        session=chat.session,
        head=None,
        response_statuses=((first.id, "completed"), (second.id, "completed")),
        run_revision=None,
        file_stamp=(info.st_mtime_ns, info.st_size),
    )
    assert await load_conversation_version(harness.store, view) == version

    for number in (1, 2):
        run = AgentRun(f"run_{number}", chat.session.id, 1, "paused", {}, float(number), float(number))
        await harness.store.commit(Transaction(agent_run=run))
    (harness.folder / "talk.json").unlink()
    assert await load_conversation_version(harness.store, view) == version._replace(
        run_revision=("run_2", 1), file_stamp=None
    )
    assert read_replay_stamp(view) is None


async def test_the_version_of_a_conversation_has_the_head_of_all_clients(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await send(chat, "one")
    handle = chat.session.handle or ""
    (link,) = await harness.store.links(chat.session.id)
    by_name = await load_handle_view(harness.store, "mine")
    by_handle = await load_handle_view(harness.store, handle)
    await harness.endpoint.add_conversation_items(handle, [user_message("other client")])
    conversation = await harness.store.conversation(handle)
    assert conversation
    statuses = ((link.id, "completed"),)
    for view, session in ((by_name, chat.session), (by_handle, None)):
        assert await load_conversation_version(harness.store, view) == ConversationVersion(
            session, conversation.head, statuses, None, None
        )


async def test_the_version_of_a_session_follows_its_newest_response(harness: ChatHarness) -> None:
    """The view is of a session that had no response yet."""
    chat = await harness.open(Strategy.SESSION, name="mine")
    await chat.ensure_saved()
    view = await load_handle_view(harness.store, chat.session.id)
    assert (await load_conversation_version(harness.store, view)).response_statuses == ()
    await send(chat, "one")
    (link,) = await harness.store.links(chat.session.id)
    version = await load_conversation_version(harness.store, view)
    assert (version.session, version.response_statuses) == (chat.session, ((link.id, "completed"),))


async def test_a_deleted_session_has_no_record_in_its_version(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    await send(chat, "one")
    view = await load_handle_view(harness.store, "mine")
    await harness.store.remove_session(chat.session.id)
    assert await load_conversation_version(harness.store, view) == ConversationVersion(None, None, (), None, None)


def test_a_replay_file_in_the_home_folder_has_a_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "talk.json").write_text("[]")
    view = replace(build_chain(1).view("resp_1"), handle="~/talk.json", strategy=Strategy.REPLAY)
    stamp = read_replay_stamp(view)
    assert stamp
    assert stamp[1] == 2
    assert read_replay_stamp(replace(view, strategy=Strategy.SESSION)) is None


@pytest.mark.parametrize(("status", "expected"), [("queued", True), ("in_progress", True), ("cancelled", False)])
def test_only_an_unfinished_response_is_in_progress(status: LinkStatus, expected: bool) -> None:
    view = build_chain(1).view("resp_1")
    other = replace(view.links[0], id="resp_2", status=status)
    assert is_in_progress(replace(view, links=(*view.links, other))) is expected


class BusyStore(MemoryStore):
    """A store in which other processes write before the polls with these numbers."""

    def __init__(self, writes: Mapping[int, Callable[[], Awaitable[object]]]) -> None:
        super().__init__()
        self._writes, self.poll_count = writes, 0

    async def data_version(self) -> str:
        self.poll_count += 1
        if self.poll_count in self._writes:
            await self._writes[self.poll_count]()
        return await super().data_version()


async def test_a_write_to_another_conversation_is_not_a_change(tmp_path: Path) -> None:
    store, clock = BusyStore(writes := dict[int, Callable[[], Awaitable[object]]]()), FixedClock()
    harness = ChatHarness(store, RecordingEndpoint(make_embedded_endpoint(store)), tmp_path)
    mine, other = [await harness.open(Strategy.SESSION, name=name) for name in ("mine", "other")]
    for chat in (mine, other):
        await send(chat, "one")
    writes |= {3: lambda: send(other, "two"), 5: lambda: send(mine, "two"), 6: lambda: send(mine, "three")}
    async with aclosing(watch_conversation(store, "mine", clock)) as states:
        views = [await anext(states) for _ in range(3)]
    await store.aclose()
    assert [len(view.path) for view in views] == [2, 4, 6]
    assert (clock.sleeps_s, store.poll_count) == ([0.5] * 5, 6)
