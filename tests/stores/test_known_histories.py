"""A history that was read before is returned without its items being read, unless a part of it was deleted."""

from dataclasses import replace

import pytest

from convo.errors import ItemDeleted, NotFound
from convo.history.items import Item, user_message
from convo.history.tree import Path, root_key
from convo.stores import base
from convo.stores.base import AppendItems, Conversation, Store, Transaction, load_session_path
from tests.stores.chat_transactions import NOW, link, session

ROOT = root_key("local")
PATH = Path(ROOT).append([user_message("one"), user_message("two"), user_message("three")])
LONGER = PATH.append([user_message("four")])


async def store_response(store: Store, path: Path, response_id: str = "resp_1") -> None:
    response = link(response_id, path.head, path.head, session_id=None)
    await store.commit(Transaction((AppendItems(ROOT, path.items),), (response,)))


async def store_conversation(store: Store, *item_ids: str, items: int = 3) -> Conversation:
    path = PATH.first(items)
    conversation = Conversation("conv_1", path.head, NOW, item_ids)
    await store.commit(Transaction((AppendItems(ROOT, path.items),), conversation=conversation))
    return conversation


async def test_an_intact_path_is_not_read_again(store: Store) -> None:
    await store_response(store, LONGER)

    assert await store.path(LONGER.head, LONGER) is LONGER
    assert (await store.path(PATH.head, LONGER)).items == PATH.items
    assert (await store.path(LONGER.head, PATH)).items == LONGER.items


async def test_a_known_path_with_a_deleted_item_is_an_error(store: Store) -> None:
    await store_response(store, LONGER)
    other = Path(ROOT).append([user_message("elsewhere")])
    await store_response(store, other, "resp_2")

    await store.commit(Transaction(erased_nodes=other.keys))
    assert await store.path(LONGER.head, LONGER) is LONGER

    await store.commit(Transaction(erased_nodes=PATH.keys[1:2]))
    with pytest.raises(ItemDeleted) as caught:
        await store.path(LONGER.head, LONGER)
    assert caught.value.key == PATH.keys[1]

    await store.remove_link("resp_1")
    with pytest.raises(NotFound):
        await store.path(LONGER.head, LONGER)


async def test_a_path_is_read_again_if_too_many_items_were_deleted(store: Store) -> None:
    items: list[Item] = [user_message(str(number)) for number in range(base.MAX_ERASED_NODES)]
    erased = Path(ROOT).append([user_message("erased")]).append(items)
    await store_response(store, PATH)
    await store_response(store, erased, "resp_2")

    await store.commit(Transaction(erased_nodes=erased.keys[1:]))

    assert (read := await store.path(PATH.head, PATH)) is not PATH
    assert read.items == PATH.items


async def test_the_ids_of_a_known_conversation_are_read_again_if_its_items_were_replaced(store: Store) -> None:
    known = await store_conversation(store, "a", "b", "c")
    await store.commit(Transaction(conversation=replace(known, metadata={"topic": "x"})))
    read = await store.conversation("conv_1", known)
    assert read == replace(known, metadata={"topic": "x"})
    assert read.item_ids is known.item_ids

    shorter = await store_conversation(store, "a", "b", items=2)
    assert await store.conversation("conv_1", known) == shorter

    replaced = await store_conversation(store, "a", "b", "d")
    assert await store.conversation("conv_1", known) == replaced

    await store.remove_conversation("conv_1")
    assert await store.conversation("conv_1", known) is None


async def test_a_session_whose_head_was_replaced_is_read_as_it_is_now(store: Store) -> None:
    old = session(head=PATH.head, confirmed_head=ROOT)
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), session=old))
    new = replace(old, head=PATH.first(2).append([user_message("the whole third")]).head)
    appends = (AppendItems(PATH.first(2).head, (user_message("the whole third"),)),)
    await store.commit(Transaction(appends, session=new, expected_session_head=old.head))

    with pytest.raises(NotFound):
        await store.path(old.head)
    current, path = await load_session_path(store, old)

    assert current.head == path.head == new.head
    await store.remove_session(new.id)
    with pytest.raises(NotFound):
        await load_session_path(store, old)
