"""What can be looked at in a store: sessions, and what other clients asked for."""

from convo.chat.lookup import list_store, session_summary_to_json, store_listing_to_json
from convo.history.records import Strategy
from tests.chat.conftest import ChatHarness, say


async def ask(harness: ChatHarness, words: str, **state: str) -> str:
    """What another client of the same endpoint says; returns its response."""
    harness.clock.advance(60)
    events = [event async for event in harness.endpoint.create({"model": harness.model, "input": words, **state})]
    return str(events[-1]["response"]["id"])


async def test_an_empty_store_holds_nothing(harness: ChatHarness) -> None:
    assert store_listing_to_json(await list_store(harness.store, 5)) == {"sessions": [], "others": [], "more": False}


async def test_sessions_come_as_their_list_has_them_and_their_responses_are_no_other_clients(
    harness: ChatHarness,
) -> None:
    for strategy in (Strategy.SESSION, Strategy.CHAIN, Strategy.CONVERSATION):
        await say(await harness.open(strategy, name=str(strategy)), "hi")
        harness.clock.advance(60)
    found = await list_store(harness.store, 5)
    assert [one.session.name for one in found.sessions] == ["conversation", "chain", "session"]
    assert (found.unrecorded, found.has_more) == ([], False)
    assert store_listing_to_json(found)["sessions"] == [session_summary_to_json(one) for one in found.sessions]
    assert (await list_store(harness.store, 2)).has_more


async def test_a_chain_of_another_client_is_listed_by_its_ends_newest_first(harness: ChatHarness) -> None:
    first = await ask(harness, "one")
    left, right = [await ask(harness, words, previous_response_id=first) for words in ("left", "right")]
    found = await list_store(harness.store, 5)
    assert [(one.handle, one.status, one.first_words) for one in found.unrecorded] == [
        (right, "completed", "right"),
        (left, "completed", "left"),
    ]


async def test_a_conversation_is_listed_by_itself_also_when_nothing_was_answered_in_it(harness: ChatHarness) -> None:
    empty, used = [(await harness.endpoint.create_conversation())["id"] for _ in range(2)]
    await ask(harness, "hi", conversation=used)
    found = await list_store(harness.store, 5)
    assert [(one.handle, one.strategy, one.status) for one in found.unrecorded] == [
        (used, "conversation", "completed"),
        (empty, "conversation", ""),
    ]
