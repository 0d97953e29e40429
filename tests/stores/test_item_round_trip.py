"""Items are read back as they were stored, on every store."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as Folder
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convo.history.canonical import digest, item_hash
from convo.history.items import Item, Json
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Store, Transaction
from convo.stores.codec import decode_json, encode_json
from tests.history.json_strategies import ITEMS, JSON
from tests.history.test_canonical import FOUR_FORMS
from tests.stores.chat_transactions import session
from tests.stores.conftest import PARAMS, STORES

ROOT = root_key("local")


@asynccontextmanager
async def open_new_store(kind: str) -> AsyncIterator[Store]:
    """Open a new store. A property test needs one for each example."""
    with TemporaryDirectory() as folder:
        store = STORES[kind](Folder(folder))
        try:
            yield store
        finally:
            await store.aclose()


async def store_and_read(store: Store, items: list[Item]) -> Path:
    path = Path(ROOT).append(items)
    await store.commit(Transaction((AppendItems(ROOT, tuple(items)),), session=session(head=path.head)))
    return await store.path(path.head)


@given(JSON)
def test_json_round_trips_with_key_order_and_exact_numbers(value: Json) -> None:
    text = encode_json(value)

    assert text.encode()
    assert json.dumps(decode_json(text)) == json.dumps(value)


@pytest.mark.parametrize("kind", PARAMS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.lists(ITEMS, max_size=5))
async def test_any_history_round_trips(kind: str, items: list[Item]) -> None:
    async with open_new_store(kind) as store:
        read = await store_and_read(store, items)

    assert read.keys == Path(ROOT).append(items).keys
    assert [item_hash(item) for item in read.items] == [item_hash(item) for item in items]


async def test_the_order_of_keys_and_the_kind_of_numbers_survive(store: Store) -> None:
    item = {
        "z": 1,
        "a": 1.0,
        "m": {"y": True, "b": 2**64},
        "type": "new_kind",
        "f": -0.0,
        "s": "\ud83d",
        "u": "é\u2028",
    }

    read = await store_and_read(store, [item])

    assert json.dumps(read.items[0]) == json.dumps(item)


async def test_deep_nesting_survives(store: Store) -> None:
    item: Json = {"type": "deep"}
    for _ in range(400):
        item = {"in": [item]}

    assert (await store_and_read(store, [item])).items == (item,)


async def test_an_item_of_a_megabyte_survives(store: Store) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 2**20}
    item = {"type": "message", "role": "user", "content": [image]}

    assert (await store_and_read(store, [item])).items == (item,)


async def test_each_form_of_an_answer_is_stored_and_all_share_one_digest(store: Store) -> None:
    read = await store_and_read(store, list(FOUR_FORMS.values()))

    assert list(read.items) == list(FOUR_FORMS.values())
    assert len({digest(item) for item in read.items}) == 1


async def test_changing_an_item_that_was_read_does_not_change_the_store(store: Store) -> None:
    read = await store_and_read(store, [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}])
    read.items[0]["content"].clear()

    assert (await store.path(read.head)).items[0]["content"] == [{"type": "input_text", "text": "hi"}]
