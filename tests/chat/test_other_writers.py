"""Conflicts with another process over a name or a head: a few attempts, then an error."""

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from convo.chat.conversation import Chat, find_turn_end
from convo.chat.next_request import make_endpoint_counter
from convo.chat.session_admin import describe_remaining_copies
from convo.endpoints.base import Endpoint
from convo.errors import Conflict, ConvoError, NotFound, Unreachable
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link, Scope, Session, Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import Store, Transaction
from convo.transfer.convert import SessionWriter
from tests.chat.conftest import ChatHarness, send
from tests.clock import FixedClock, counting_ids

ROOT = root_key("local")
REMOTE = Scope("https://api.example.com/v1")


@dataclass
class ConflictingStore:
    """A store whose next `conflicts` commits raise a conflict; reads are not changed."""

    store: Store
    conflicts: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, transaction: Transaction) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("another process was faster")
        await self.store.commit(transaction)


@pytest.fixture
def conflicting_store(harness: ChatHarness) -> ConflictingStore:
    store = ConflictingStore(harness.store)
    harness.deps = harness.deps._replace(store=cast(Store, store))
    return store


async def test_a_new_session_finds_a_name_at_the_fifth_attempt(
    harness: ChatHarness, conflicting_store: ConflictingStore
) -> None:
    conflicting_store.conflicts = 4
    chat = await harness.open(Strategy.SESSION)
    assert await send(chat, "hello") == "hello"
    assert chat.session.name == "hello"

    conflicting_store.conflicts = 5
    with pytest.raises(Conflict):
        await send(await harness.open(Strategy.SESSION), "hello")


async def replace_history(chat: Chat) -> Link:
    """Replace the history of `chat` by itself; returns the link of the replacement."""
    link = chat.record.last_link
    assert link
    replacement = replace(link, id=f"{link.id}-again")
    await chat.replace_history(lambda state: state, lambda state: replacement)
    return replacement


async def test_a_history_is_replaced_at_the_fifth_attempt(
    harness: ChatHarness, conflicting_store: ConflictingStore
) -> None:
    chat = await harness.open(Strategy.SESSION)
    await send(chat, "hello")

    conflicting_store.conflicts = 4
    assert await replace_history(chat) == chat.record.last_link
    conflicting_store.conflicts = 5
    with pytest.raises(Conflict):
        await replace_history(chat)


@pytest.mark.parametrize(("name", "conflicts", "is_written"), [(None, 4, True), (None, 5, False), ("mine", 1, False)])
async def test_a_written_session_finds_a_name_at_the_fifth_attempt_unless_one_is_required(
    store: Store, name: str | None, conflicts: int, is_written: bool
) -> None:
    session = Session("ses_1", "chat", Strategy.SESSION, "m", ROOT, ROOT, 0.0, 0.0)
    conflicting_store = ConflictingStore(store, conflicts)
    writer = SessionWriter(cast(Store, conflicting_store), FixedClock(), counting_ids())

    try:
        stored = await writer.write_session(session, Path(ROOT), name)
    except Conflict:
        assert not is_written
    else:
        assert is_written
        assert stored.name == "chat"
    assert conflicting_store.conflicts == 0


# -- turns, counts and copies ----------------------------------------------------------------------

TURNS: list[Item] = [user_message("a"), assistant_message("b"), user_message("c"), assistant_message("d")]


@pytest.mark.parametrize(("turn_number", "end"), [(0, 0), (1, 2), (2, 4), (-1, 2), (-2, 0)])
def test_a_turn_ends_before_the_next_user_message(turn_number: int, end: int) -> None:
    assert find_turn_end(TURNS, turn_number) == end


@pytest.mark.parametrize("turn_number", [3, -3])
def test_a_turn_that_is_not_there_comes_with_those_that_are(turn_number: int) -> None:
    with pytest.raises(NotFound) as caught:
        find_turn_end(TURNS, turn_number)
    assert (caught.value.kind, caught.value.handle) == ("turn", str(turn_number))
    assert caught.value.hint == "choose a turn from 0 (the start) to 2 (the last)"
    assert find_turn_end([], 0) == 0


class CountingEndpoint:
    """An endpoint that counts nine tokens, or raises `error`."""

    def __init__(self, error: ConvoError | None = None) -> None:
        self._error = error

    async def count_input_tokens(self, body: Any) -> int | None:
        if self._error:
            raise self._error
        return 9


async def test_an_endpoint_counts_a_thousand_items_and_no_more() -> None:
    count = make_endpoint_counter(cast(Endpoint, CountingEndpoint()))
    failing = make_endpoint_counter(cast(Endpoint, CountingEndpoint(Unreachable("gone"))))

    assert await count({}) == 9
    assert await count({"input": [{}] * 1000}) == 9
    assert await count({"input": [{}] * 1001}) is None
    assert await failing({"input": []}) is None


def link(link_id: str, **fields: Any) -> Link:
    return Link(link_id, ROOT, ROOT, 1, "m", Strategy.SESSION, "completed", 0.0, **{"scope": REMOTE, **fields})


@pytest.mark.parametrize(
    ("fields", "links", "text"),
    [
        ({}, [], ""),
        ({"strategy": Strategy.REPLAY, "handle": "/a/talk.json"}, [], "the file /a/talk.json stays"),
        (
            {"strategy": Strategy.CHAIN, "handle": "resp_2", "scope": REMOTE},
            [link("resp_1")],
            "https://api.example.com/v1 keeps its own copy of resp_2",
        ),
        ({"strategy": Strategy.CHAIN, "handle": "resp_2"}, [], ""),
        ({"strategy": Strategy.CHAIN, "scope": REMOTE}, [], ""),
        (
            {"scope": REMOTE},
            [link("resp_1"), link("resp_2"), link("try_3"), link("resp_4", is_stored=False)],
            "https://api.example.com/v1 keeps its own copy of resp_2 and of the earlier responses",
        ),
        ({}, [link("resp_1", scope=Scope())], ""),
        (
            {"strategy": Strategy.REPLAY, "handle": "/a/talk.json"},
            [link("resp_1")],
            "the file /a/talk.json stays; "
            "https://api.example.com/v1 keeps its own copy of resp_1 and of the earlier responses",
        ),
    ],
)
def test_a_deleted_session_names_the_copies_that_remain(fields: dict[str, Any], links: list[Link], text: str) -> None:
    session = Session("ses_1", "mine", Strategy.SESSION, "m", ROOT, ROOT, 0.0, 0.0)
    assert describe_remaining_copies(replace(session, **fields), links) == text
