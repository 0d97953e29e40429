"""The listing of a store: its sessions, and the responses of other clients."""

from convo.chat.lookup import StoreListing, list_store
from convo.history.records import Strategy
from tests.chat.conftest import ChatHarness, send


async def create_response(harness: ChatHarness, text: str, **state: str) -> str:
    """Send a message as another client of the endpoint; returns the id of the response."""
    harness.clock.advance(60)
    events = [event async for event in harness.endpoint.create({"model": harness.model, "input": text, **state})]
    return str(events[-1]["response"]["id"])


async def test_an_empty_store_has_an_empty_listing(harness: ChatHarness) -> None:
    assert await list_store(harness.store, 5) == StoreListing([], [], has_more=False)


async def test_sessions_are_listed_once_and_their_responses_are_not_listed_as_unrecorded(
    harness: ChatHarness,
) -> None:
    for strategy in (Strategy.SESSION, Strategy.CHAIN, Strategy.CONVERSATION):
        await send(await harness.open(strategy, name=str(strategy)), "hi")
        harness.clock.advance(60)
    listing = await list_store(harness.store, 5)
    assert [entry.session.name for entry in listing.sessions] == ["conversation", "chain", "session"]
    assert (listing.unrecorded, listing.has_more) == ([], False)
    assert (await list_store(harness.store, 2)).has_more


async def test_an_unrecorded_chain_is_listed_by_its_leaves_newest_first(harness: ChatHarness) -> None:
    first = await create_response(harness, "one")
    left, right = [await create_response(harness, text, previous_response_id=first) for text in ("left", "right")]
    listing = await list_store(harness.store, 5)
    assert [(entry.handle, entry.status, entry.first_words) for entry in listing.unrecorded] == [
        (right, "completed", "right"),
        (left, "completed", "left"),
    ]


async def test_an_unrecorded_conversation_is_listed_even_without_a_response(harness: ChatHarness) -> None:
    empty, used = [(await harness.endpoint.create_conversation())["id"] for _ in range(2)]
    await create_response(harness, "hi", conversation=used)
    listing = await list_store(harness.store, 5)
    assert [(entry.handle, entry.strategy, entry.status) for entry in listing.unrecorded] == [
        (used, "conversation", "completed"),
        (empty, "conversation", ""),
    ]
