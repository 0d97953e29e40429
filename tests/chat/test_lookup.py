"""Conversations found by a handle, in the memory store and in SQLite."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from convo.chat.conversation_list import load_session_row
from convo.chat.open import fork_session
from convo.chat.view_loader import load_handle_view
from convo.errors import AmbiguousHandle, NotFound, RequestRefused
from convo.history.items import item_text
from convo.history.records import Scope, Strategy
from convo.history.tree import Key, Path
from convo.inspect.report import PathEnd, build_conversation_report
from convo.inspect.view import compute_link_stats
from convo.stores.base import Store, Transaction
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import EndpointFault

REMOTE_SCOPE = Scope("https://api.example.com/v1")


class CountingStore:
    """Delegates to `store` and counts the paths that are read."""

    def __init__(self, store: Store) -> None:
        self.store, self.paths = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def path(self, head: Key, known: Path | None = None) -> Path:
        self.paths += 1
        return await self.store.path(head, known)


async def test_a_long_chain_is_read_once_and_once_more_for_each_fork(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="long")
    for number in range(12):
        await send(chat, f"turn {number}")
    for _ in range(3):
        async for _event in chat.retry():
            pass
    counting_store = CountingStore(harness.store)
    view = await load_handle_view(counting_store, "long")
    assert (len(view.links), len(view.path)) == (15, 24)
    assert counting_store.paths == 1 + 3


async def test_the_context_of_every_response_is_known_without_a_copy(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    for number in range(4):
        await send(chat, f"turn {number}")
    view = await load_handle_view(harness.store, "mine")
    assert [
        (stats.sent_count, stats.input_count)
        for stats in (compute_link_stats(link, view.path_index) for link in view.links)
    ] == [
        (1, 1),
        (3, 3),
        (5, 5),
        (7, 7),
    ]
    assert list(build_conversation_report(view).items.values()) == list(view.path.items)


async def test_forks_that_are_sessions_have_the_names_of_their_sessions(harness: ChatHarness) -> None:
    first = await harness.open(Strategy.CHAIN, name="first")
    await send(first, "one")
    harness.clock.advance(1)
    second = await fork_session(first.session, first.options, harness.deps)
    await send(second, "two")
    harness.clock.advance(1)
    await send(first, "three")
    view = await load_handle_view(harness.store, "first")
    assert [view.session_names[link.session_id or ""] for link in view.links] == ["first", "first-2", "first"]
    assert view.current_link_id == first.session.link_id


async def test_a_history_that_lost_an_item_is_still_read_from_its_responses(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await send(chat, "secret")
    await send(chat, "second")
    handle = chat.session.handle or ""
    first = (await harness.endpoint.list_conversation_items(handle, order="asc")).items[0]
    await harness.endpoint.delete_conversation_item(handle, first["id"])

    view = await load_handle_view(harness.store, "mine")
    assert [link.id for link in view.links] == [link.id for link in await harness.store.links(chat.session.id)]
    assert (len(view.path), view.head, view.unconfirmed_nodes) == (0, chat.session.head, ())
    assert [note.partition(" was ")[2] for note in view.notes] == ["deleted, so the complete history cannot be sent"]
    assert build_conversation_report(view).head == chat.session.head
    assert build_conversation_report(view).links[0].input == PathEnd(view.links[0].input_head)

    summary = await load_session_row(harness.store, chat.session)
    assert (summary.item_count, summary.turn_count, summary.first_words) == (4, 2, "")
    conversation_view = await load_handle_view(harness.store, handle)
    assert (len(conversation_view.path), len(conversation_view.links)) == (3, 2)


async def test_a_response_that_lost_an_item_is_still_read(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mine")
    await send(chat, "secret")
    await harness.store.commit(Transaction(erased_nodes=(chat.state.path.nodes[0].key,)))
    view = await load_handle_view(harness.store, chat.session.handle or "")
    assert (view.current_link_id, len(view.path), view.head) == (chat.session.handle, 0, chat.session.head)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_input_of_a_response_that_failed_is_unconfirmed(harness: ChatHarness, fails: bool) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mine")
    await send(chat, "one")
    harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))] if fails else []
    with suppress(RequestRefused):
        await send(chat, "two")
    last = (await harness.store.links(chat.session.id))[-1]
    view = await load_handle_view(harness.store, last.id)
    assert [item_text(node.item) for node in view.unconfirmed_nodes] == (["two"] if fails else [])


async def test_a_remote_conversation_is_found_by_its_local_mirror(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mirror")
    await send(chat, "one")
    remote_session = replace(chat.session, strategy=Strategy.CONVERSATION, handle="conv_remote_1", scope=REMOTE_SCOPE)
    await harness.store.commit(Transaction(session=remote_session, expected_session_head=remote_session.head))
    view = await load_handle_view(harness.store, "conv_remote")
    assert (view.handle, view.strategy, view.scope, len(view.path)) == (
        "conv_remote_1",
        Strategy.CONVERSATION,
        REMOTE_SCOPE,
        2,
    )


async def test_a_prefix_that_two_mirrors_share_is_ambiguous(harness: ChatHarness) -> None:
    for number in (1, 2):
        chat = await harness.open(Strategy.SESSION, name=f"mirror-{number}")
        await send(chat, "one")
        remote_session = replace(
            chat.session, strategy=Strategy.CONVERSATION, handle=f"conv_remote_{number}", scope=REMOTE_SCOPE
        )
        await harness.store.commit(Transaction(session=remote_session, expected_session_head=remote_session.head))
    with pytest.raises(AmbiguousHandle) as caught:
        await load_handle_view(harness.store, "conv_remote")
    assert {handle for handle, _ in caught.value.candidates} == {"conv_remote_1", "conv_remote_2"}


@pytest.mark.parametrize(
    ("handle", "kind"), [("nope", "session"), ("resp_nope", "response"), ("conv_nope", "conversation")]
)
async def test_an_unknown_handle_is_reported_with_its_kind(handle: str, kind: str, harness: ChatHarness) -> None:
    with pytest.raises(NotFound) as caught:
        await load_handle_view(harness.store, handle)
    assert caught.value.kind == kind


async def test_without_files_a_replayed_conversation_is_read_from_the_store(harness: ChatHarness) -> None:
    await send(await harness.open(Strategy.REPLAY, name="mine"), "hi")
    (harness.folder / "talk.json").write_text('[{"role": "user", "content": "edited"}]', encoding="utf-8")
    assert [len((await load_handle_view(harness.store, "mine", read_files=files)).path) for files in (True, False)] == [
        1,
        2,
    ]
