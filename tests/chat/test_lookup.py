"""Conversations found by a handle, in the memory store and in SQLite."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from convo.chat.lookup import load_session_summary
from convo.chat.open import fork_session
from convo.chat.view_loader import load_handle_view
from convo.errors import AmbiguousHandle, NotFound, RequestRefused
from convo.history.items import item_text
from convo.history.records import Scope, Strategy
from convo.history.tree import Key, Path
from convo.inspect.serialize import conversation_to_json
from convo.inspect.view import compute_link_stats
from convo.stores.base import Store, Transaction
from tests.chat.conftest import ChatHarness, say
from tests.chat.recording_endpoint import EndpointFault

THERE = Scope("https://api.example.com/v1")


class Counted:
    """Delegates to `store` and counts the paths that are read."""

    def __init__(self, store: Store) -> None:
        self.store, self.paths = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def path(self, head: Key) -> Path:
        self.paths += 1
        return await self.store.path(head)


async def test_a_long_chain_is_read_once_and_once_more_for_each_fork(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="long")
    for number in range(12):
        await say(chat, f"turn {number}")
    for _ in range(3):
        async for _event in chat.retry():
            pass
    counted = Counted(harness.store)
    known = await load_handle_view(counted, "long")
    assert (len(known.links), len(known.path)) == (15, 24)
    assert counted.paths == 1 + 3


async def test_the_context_of_every_response_is_known_without_a_copy(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    for number in range(4):
        await say(chat, f"turn {number}")
    known = await load_handle_view(harness.store, "mine")
    assert [
        (was.sent_count, was.input_count)
        for was in (compute_link_stats(link, known.path_index) for link in known.links)
    ] == [
        (1, 1),
        (3, 3),
        (5, 5),
        (7, 7),
    ]
    assert list(conversation_to_json(known)["items"].values()) == list(known.path.items)


async def test_forks_that_are_sessions_have_the_names_of_their_sessions(harness: ChatHarness) -> None:
    first = await harness.open(Strategy.CHAIN, name="first")
    await say(first, "one")
    harness.clock.advance(1)
    second = await fork_session(first.session, first.options, harness.deps)
    await say(second, "two")
    harness.clock.advance(1)
    await say(first, "three")
    known = await load_handle_view(harness.store, "first")
    assert [known.session_names[link.session_id or ""] for link in known.links] == ["first", "first-2", "first"]
    assert known.current_link_id == first.session.link_id


async def test_a_history_that_lost_an_item_is_still_read_from_its_responses(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await say(chat, "secret")
    await say(chat, "second")
    handle = chat.session.handle or ""
    first = (await harness.endpoint.list_conversation_items(handle, order="asc")).items[0]
    await harness.endpoint.delete_conversation_item(handle, first["id"])

    known = await load_handle_view(harness.store, "mine")
    assert [link.id for link in known.links] == [link.id for link in await harness.store.links(chat.session.id)]
    assert (len(known.path), known.head, known.unconfirmed_nodes) == (0, chat.session.head, ())
    assert [note.partition(" was ")[2] for note in known.notes] == ["deleted, so the complete history cannot be sent"]
    assert conversation_to_json(known)["head"] == chat.session.head
    assert conversation_to_json(known)["links"][0]["saw"] == {"through": known.links[0].input_head}

    listed = await load_session_summary(harness.store, chat.session)
    assert (listed.item_count, listed.turn_count, listed.first_words) == (4, 2, "")
    theirs = await load_handle_view(harness.store, handle)
    assert (len(theirs.path), len(theirs.links)) == (3, 2)


async def test_a_response_that_lost_an_item_is_still_read(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mine")
    await say(chat, "secret")
    await harness.store.commit(Transaction(erased_nodes=(chat.state.path.nodes[0].key,)))
    known = await load_handle_view(harness.store, chat.session.handle or "")
    assert (known.current_link_id, len(known.path), known.head) == (chat.session.handle, 0, chat.session.head)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_input_of_a_response_that_failed_is_unconfirmed(harness: ChatHarness, fails: bool) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mine")
    await say(chat, "one")
    harness.endpoint.faults = [EndpointFault(RequestRefused("no", status=400))] if fails else []
    with suppress(RequestRefused):
        await say(chat, "two")
    last = (await harness.store.links(chat.session.id))[-1]
    known = await load_handle_view(harness.store, last.id)
    assert [item_text(node.item) for node in known.unconfirmed_nodes] == (["two"] if fails else [])


async def test_a_remote_conversation_is_found_by_its_local_mirror(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mirror")
    await say(chat, "one")
    there = replace(chat.session, strategy=Strategy.CONVERSATION, handle="conv_remote_1", scope=THERE)
    await harness.store.commit(Transaction(session=there, expected_session_head=there.head))
    known = await load_handle_view(harness.store, "conv_remote")
    assert (known.handle, known.strategy, known.scope, len(known.path)) == (
        "conv_remote_1",
        Strategy.CONVERSATION,
        THERE,
        2,
    )


async def test_a_prefix_that_two_mirrors_share_is_ambiguous(harness: ChatHarness) -> None:
    for number in (1, 2):
        chat = await harness.open(Strategy.SESSION, name=f"mirror-{number}")
        await say(chat, "one")
        there = replace(chat.session, strategy=Strategy.CONVERSATION, handle=f"conv_remote_{number}", scope=THERE)
        await harness.store.commit(Transaction(session=there, expected_session_head=there.head))
    with pytest.raises(AmbiguousHandle) as refused:
        await load_handle_view(harness.store, "conv_remote")
    assert {handle for handle, _ in refused.value.candidates} == {"conv_remote_1", "conv_remote_2"}


@pytest.mark.parametrize(
    ("handle", "kind"), [("nope", "session"), ("resp_nope", "response"), ("conv_nope", "conversation")]
)
async def test_an_unknown_handle_is_reported_with_its_kind(handle: str, kind: str, harness: ChatHarness) -> None:
    with pytest.raises(NotFound) as unknown:
        await load_handle_view(harness.store, handle)
    assert unknown.value.kind == kind


async def test_without_files_a_replayed_conversation_is_read_from_the_store(harness: ChatHarness) -> None:
    await say(await harness.open(Strategy.REPLAY, name="mine"), "hi")
    (harness.folder / "talk.json").write_text('[{"role": "user", "content": "edited"}]', encoding="utf-8")
    assert [len((await load_handle_view(harness.store, "mine", read_files=files)).path) for files in (True, False)] == [
        1,
        2,
    ]
