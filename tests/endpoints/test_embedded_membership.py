"""The items of a conversation behave like a list when items are added and deleted."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.errors import NotFound
from convo.history.items import Item, item_text
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.stores.memory import MemoryStore
from tests.clock import FixedClock, counting_ids
from tests.endpoints.endpoint_calls import user_item
from tests.endpoints.gated_model import GatedModel

STEPS = some.lists(
    some.one_of(
        some.tuples(some.just("add"), some.lists(some.sampled_from("ab"), min_size=1, max_size=4)),
        some.tuples(some.just("delete"), some.integers(0, 9)),
    ),
    max_size=12,
)


@given(STEPS)
def test_the_items_of_a_conversation_behave_like_a_list(steps: list[tuple[str, Any]]) -> None:
    asyncio.run(check_list_behaviour(steps))


async def check_list_behaviour(steps: list[tuple[str, Any]]) -> None:
    store = MemoryStore()
    endpoint = EmbeddedEndpoint(store, GatedModel(), FixedClock(), counting_ids())
    conversation = str((await endpoint.create_conversation())["id"])
    expected: list[Item] = []
    for step, value in steps:
        if step == "add":
            expected += (await endpoint.add_conversation_items(conversation, [user_item(text) for text in value])).items
        elif expected:
            deleted = expected.pop(value % len(expected))
            await endpoint.delete_conversation_item(conversation, deleted["id"])
    listed = (await endpoint.list_conversation_items(conversation, limit=100, order="asc")).items
    assert listed == expected
    assert len({item["id"] for item in listed}) == len(listed)


async def test_the_node_of_a_deleted_item_and_its_descendants_are_removed() -> None:
    store = MemoryStore()
    endpoint = EmbeddedEndpoint(store, GatedModel(), FixedClock(), counting_ids())
    conversation = str(
        (await endpoint.create_conversation([user_item("keep"), user_item("secret"), user_item("after")]))["id"]
    )
    before = await store.conversation(conversation)
    assert before
    keys = (await store.path(before.head)).keys

    await endpoint.delete_conversation_item(conversation, before.item_ids[1])

    after = await store.conversation(conversation)
    assert after
    assert [item_text(item) for item in (await store.path(after.head)).items] == ["keep", "after"]
    assert after.item_ids == (before.item_ids[0], before.item_ids[2])
    for key in keys[1:]:
        with pytest.raises(NotFound):
            await store.path(key)
