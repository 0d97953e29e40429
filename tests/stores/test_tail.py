"""The end of a history is read without the items before it, on every store."""

import pytest

from convo.errors import Conflict, ItemDeleted, NotFound
from convo.history.items import Item, assistant_message, user_message
from convo.history.tree import Key, Path, root_key
from convo.stores.base import AppendItems, Store, Transaction
from tests.stores.chat_transactions import session

ROOT = root_key("local")
LAST: Item = {"role": "assistant", "content": [{"type": "output_text", "text": "last"}]}
PATH = Path(ROOT).append([user_message("before"), assistant_message("here"), user_message("behind"), LAST])
FORK = PATH.first(2).append([user_message("elsewhere")])
UNKNOWN_KEY = Key("0" * 64)


async def store_fork(store: Store) -> None:
    """Store two histories with a common prefix."""
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), session=session(head=PATH.head)))
    other = session(id="ses_2", name="two", head=FORK.head)
    await store.commit(Transaction((AppendItems(ROOT, FORK.items),), session=other))


async def test_a_tail_contains_the_items_after_a_node(store: Store) -> None:
    await store_fork(store)
    for index in range(5):
        assert list(await store.items_after(PATH.head, PATH.first(index).head)) == list(PATH.items[index:])


async def test_an_empty_history_has_an_empty_tail(store: Store) -> None:
    assert list(await store.items_after(ROOT, ROOT)) == []


async def test_a_tail_includes_deleted_items_only_after_its_node(store: Store) -> None:
    await store_fork(store)
    await store.commit(Transaction(erased_nodes=PATH.keys[:2]))
    assert list(await store.items_after(PATH.head, PATH.keys[1])) == list(PATH.items[2:])

    await store.commit(Transaction(erased_nodes=PATH.keys[2:3]))
    with pytest.raises(ItemDeleted) as caught:
        await store.items_after(PATH.head, PATH.keys[1])
    assert caught.value.key == PATH.keys[2]
    assert list(await store.items_after(PATH.head, PATH.keys[2])) == list(PATH.items[3:])


async def test_a_history_that_does_not_contain_the_node_has_no_tail(store: Store) -> None:
    await store_fork(store)
    for head, after in [
        (PATH.head, FORK.head),
        (PATH.keys[1], PATH.head),
        (ROOT, PATH.head),
        (PATH.head, UNKNOWN_KEY),
        (PATH.head, Key("not a key")),
        (PATH.head, root_key("guest")),
    ]:
        with pytest.raises(Conflict) as caught:
            await store.items_after(head, after)
        assert caught.value.message == f"this history does not pass through {after[:12]!r}"


async def test_a_missing_node_is_reported_before_deleted_items(store: Store) -> None:
    await store_fork(store)
    await store.commit(Transaction(erased_nodes=(PATH.head,)))

    with pytest.raises(Conflict, match="does not pass through"):
        await store.items_after(PATH.head, FORK.head)


async def test_an_unknown_node_has_no_tail(store: Store) -> None:
    await store_fork(store)
    for head in [UNKNOWN_KEY, root_key("guest"), Key("not a key"), Key("")]:
        with pytest.raises(NotFound):
            await store.items_after(head, ROOT)


async def test_changing_a_tail_that_was_read_does_not_change_the_store(store: Store) -> None:
    await store_fork(store)
    (last,) = await store.items_after(PATH.head, PATH.keys[2])
    last["content"].append("changed")

    assert await store.path(PATH.head) == PATH
