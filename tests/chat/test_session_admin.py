"""Renaming and deleting sessions, and saving a repaired history: whole records, the data that remains, and errors."""

from dataclasses import replace
from typing import Any

import pytest

from convo.chat.open import fork_session
from convo.chat.session_admin import (
    RemovedSession,
    check_repaired_name_free,
    delete_sessions,
    save_repaired_session,
    set_session_name,
)
from convo.errors import Conflict, InvalidUsage
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import EMBEDDED_SCOPE, AgentRun, Link, Scope, Session, Strategy
from convo.history.tree import Path as History
from convo.history.tree import root_key
from convo.lint.model import LintView, OutputSpan
from convo.stores.base import Store, Transaction
from tests.chat.conftest import ChatHarness, send
from tests.clock import FixedClock, counting_ids

ROOT = root_key("local")
REMOTE = Scope("https://far.test/v1")


# -- renaming --------------------------------------------------------------------------------------


async def test_a_renamed_session_keeps_everything_else(harness: ChatHarness) -> None:
    first, second = await harness.open(Strategy.SESSION, name="one"), await harness.open(Strategy.SESSION, name="two")
    for chat in (first, second):
        await send(chat, "hi")
        harness.clock.advance(60)
    renamed = await set_session_name(harness.store, first.session, "uno")
    assert renamed == replace(first.session, name="uno")
    assert [session.name for session in await harness.store.sessions()] == ["two", "uno"]
    assert await harness.store.session("uno") == renamed
    with pytest.raises(Conflict):
        await set_session_name(harness.store, renamed, "two")
    with pytest.raises(InvalidUsage):
        await set_session_name(harness.store, renamed, "conv_1")
    assert [session.name for session in await harness.store.sessions()] == ["two", "uno"]


# -- deleting --------------------------------------------------------------------------------------


async def test_all_data_of_a_deleted_session_is_counted(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    for text in ("one", "two"):
        await send(chat, text)
    [event async for event in chat.retry()]
    await chat.undo()
    session = chat.session
    for number in (1, 2):
        run = AgentRun(f"run_{number}", session.id, 1, "done", {}, float(number), float(number))
        await harness.store.commit(Transaction(agent_run=run))

    (removed,) = await delete_sessions(harness.store, [session])

    assert replace(removed, run_ids=tuple(sorted(removed.run_ids))) == RemovedSession(
        session, link_count=3, item_count=5, run_ids=("run_1", "run_2")
    )
    assert (await harness.store.sessions(), await harness.store.find_handles("resp_")) == ([], [])
    assert await harness.store.lease_holder(f"session {session.id}") is None


async def test_data_that_another_session_shares_is_not_counted(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    await send(chat, "one")
    fork = await fork_session(chat.session, chat.options, harness.deps)
    await send(fork, "two")
    await send(chat, "three")

    (removed,) = await delete_sessions(harness.store, [chat.session])
    assert (removed.item_count, removed.run_ids, removed.remaining_copies) == (2, (), "")
    (last,) = await delete_sessions(harness.store, [fork.session])
    assert (last.item_count, removed.link_count, last.link_count) == (4, 1, 1)
    assert await harness.store.find_handles("resp_") == []


async def test_a_conversation_is_deleted_with_its_last_session(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await send(chat, "one")
    handle = chat.session.handle or ""
    second = replace(chat.session, id="ses_second", name="second")
    other = replace(chat.session, id="ses_other", name="other", handle="conv_other")
    remote = replace(chat.session, id="ses_remote", name="remote", scope=REMOTE)
    for session in (second, other):
        await harness.store.commit(Transaction(session=session, expected_session_head=None))

    await delete_sessions(harness.store, [chat.session])
    assert await harness.store.conversation(handle)
    await delete_sessions(harness.store, [second])
    assert await harness.store.conversation(handle) is None
    await delete_sessions(harness.store, [other])  # its conversation does not exist

    kept = (await harness.endpoint.create_conversation())["id"]
    remote = replace(remote, handle=kept, head=ROOT, confirmed_head=ROOT, link_id=None)
    await harness.store.commit(Transaction(session=remote, expected_session_head=None))
    (removed,) = await delete_sessions(harness.store, [remote])
    assert removed.remaining_copies == f"https://far.test/v1 keeps its own copy of {kept}"
    assert await harness.store.conversation(kept)


async def test_a_session_with_a_deleted_item_can_be_deleted(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    for text in ("one", "two"):
        await send(chat, text)
    await harness.store.commit(Transaction(erased_nodes=(chat.state.path.keys[1],)))
    (removed,) = await delete_sessions(harness.store, [chat.session])
    assert removed.link_count == 2
    assert await harness.store.sessions() == []


# -- saving a repaired history ---------------------------------------------------------------------

ITEMS: tuple[Item, ...] = (user_message("one"), assistant_message("first"), user_message("two"))
PATH = History(ROOT).append(ITEMS)


def make_link(link_id: str, depth: int) -> Link:
    """A response whose output ends with the first `depth` items."""
    return Link(link_id, PATH.first(depth - 1).head, PATH.first(depth).head, 1, "m", Strategy.CHAIN, "completed", 1.0)


async def save_repaired(store: Store, view: LintView, name: str = "repaired") -> Session:
    return await save_repaired_session(
        store, view, name, model="far/m", scope=REMOTE, clock=FixedClock(7.0), new_id=counting_ids()
    )


@pytest.mark.parametrize(
    ("strategy", "confirmed_count"),
    [(Strategy.SESSION, 3), (Strategy.REPLAY, 3), (Strategy.CHAIN, 2), (Strategy.CONVERSATION, 2)],
)
async def test_a_repaired_history_is_a_session_of_its_own(
    store: Store, strategy: Strategy, confirmed_count: int
) -> None:
    view = LintView(ITEMS, strategy, server_count=2, handle="h", instructions="Be brief.")
    session = await save_repaired(store, view)
    assert session == Session(
        id="ses_1",
        name="repaired",
        strategy=strategy,
        model="far/m",
        head=PATH.head,
        confirmed_head=PATH.first(confirmed_count).head,
        created_at=7.0,
        used_at=7.0,
        scope=REMOTE,
        handle="h",
        instructions="Be brief.",
    )
    assert await store.session("repaired") == session
    assert (await store.path(session.head)).items == ITEMS
    with pytest.raises(Conflict):
        await save_repaired(store, view)
    with pytest.raises(InvalidUsage):
        await save_repaired(store, view, "resp_1")


@pytest.mark.parametrize(
    ("stored", "spans", "anchor", "parent_id"),
    [
        (["resp_1", "resp_2"], [("resp_1", 2), ("resp_2", 3)], None, "resp_2"),
        (["resp_1", "resp_2"], [("resp_1", 2), ("resp_2", 3)], "resp_1", "resp_1"),
        (["resp_2"], [("resp_2", 3)], "resp_1", None),
        (["resp_1"], [("resp_1", 2), ("resp_2", 3)], None, None),
        (["resp_1"], [], None, None),
    ],
)
async def test_a_repaired_history_continues_the_last_response_that_is_stored(
    store: Store, stored: list[str], spans: list[tuple[str, int]], anchor: str | None, parent_id: str | None
) -> None:
    for link_id in stored:
        await store.commit(Transaction(links=(replace(make_link(link_id, 2), input_head=ROOT, head=ROOT),)))
    view = LintView(
        ITEMS,
        Strategy.SESSION,
        output_spans=tuple(OutputSpan(make_link(link_id, end), end - 1, end) for link_id, end in spans),
        anchor=make_link(anchor, 2) if anchor else None,
    )
    assert (await save_repaired(store, view)).link_id == parent_id


async def test_a_response_after_the_first_fix_is_not_continued(store: Store) -> None:
    link = replace(make_link("resp_1", 2), head=History(ROOT).append([user_message("fixed")]).head)
    await store.commit(Transaction(links=(replace(link, input_head=ROOT, head=ROOT),)))
    view = LintView(ITEMS, Strategy.SESSION, output_spans=(OutputSpan(link, 1, 2),))
    assert (await save_repaired(store, view)).link_id is None


async def test_the_name_of_a_repaired_session_must_be_free(store: Store) -> None:
    view: Any = LintView(ITEMS, Strategy.SESSION, scope=EMBEDDED_SCOPE)
    await save_repaired(store, view)
    await check_repaired_name_free(store, "other")
    with pytest.raises(InvalidUsage) as caught:
        await check_repaired_name_free(store, "repaired")
    assert caught.value.message == "a session named 'repaired' already exists"
    assert caught.value.hint == "choose another name: --as repaired-2"
    with pytest.raises(InvalidUsage, match=r"^'@x' is not a name"):
        await check_repaired_name_free(store, "@x")
