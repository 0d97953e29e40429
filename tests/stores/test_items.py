"""Lookup of an item by its own id or an assigned one, on every store."""

from dataclasses import replace

from convo.history.items import Item, assistant_message, user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, link, session

ROOT = root_key("local")
CALL: Item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
PATH = Path(ROOT).append([user_message("hi"), CALL, assistant_message("hello")])
HI, _, HELLO = PATH.keys
CONVERSATION = Conversation("conv_1", PATH.head, NOW, ("msg_a", "fc_1", "msg_b"))


async def store_conversation(store: Store) -> None:
    """Store a conversation of three items, one of which has its own id."""
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), conversation=CONVERSATION))


async def test_an_item_is_found_by_its_own_id(store: Store) -> None:
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (link("resp_1", PATH.head),)))

    assert await store.item("fc_1") == CALL


async def test_an_item_is_found_by_the_id_that_its_conversation_assigned(store: Store) -> None:
    await store_conversation(store)

    assert await store.item("msg_a") == user_message("hi")
    assert await store.item("msg_b") == assistant_message("hello")
    assert await store.item("fc_1") == CALL


async def test_an_item_is_found_by_the_digits_of_its_node(store: Store) -> None:
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), session=session(head=PATH.head)))
    for digits in [32, 33, 48, 64]:
        assert await store.item(f"msg_{HELLO[:digits]}") == assistant_message("hello")
        assert await store.item(HI[:digits]) == user_message("hi")


UNKNOWN_IDS = {
    "too few digits": f"msg_{HI[:31]}",
    "digits of another case": f"msg_{HI.upper()}",
    "one digit more": f"msg_a{HI}",
    "another last digit": f"msg_{HI[:32]}{'0' if HI[32] != '0' else '1'}",
    "a suffix": f"msg_{HI}_",
    "the root": f"msg_{ROOT}",
    "a call": "call_1",
    "an unknown id": "nope",
    "a surrogate": "\ud800",
    "an empty id": "",
}


async def test_an_unknown_id_is_not_found(store: Store) -> None:
    await store_conversation(store)
    for item_id in UNKNOWN_IDS.values():
        assert await store.item(item_id) is None


async def test_an_id_that_no_database_accepts_is_still_found(store: Store) -> None:
    odd = {"type": "message", "id": "msg_\ud83d", "role": "user", "content": "hi"}
    await store.commit(Transaction((AppendItems(ROOT, (odd,)),), session=session(head=Path(ROOT).append([odd]).head)))

    assert await store.item("msg_\ud83d") == odd


async def test_of_two_items_with_one_id_the_last_stored_is_found(store: Store) -> None:
    versions = [{**CALL, "status": status} for status in ("in_progress", "completed", "incomplete")]
    for number, version in enumerate(versions):
        response = link(f"resp_{number}", Path(ROOT).append([version]).head)
        await store.commit(Transaction((AppendItems(ROOT, (version,)),), (response,)))
        assert await store.item("fc_1") == version
    await store.remove_link("resp_2")

    assert await store.item("fc_1") == versions[1]


async def test_an_erased_item_is_not_found_until_it_is_appended_again(store: Store) -> None:
    await store_conversation(store)
    item_ids = ("msg_a", "fc_1", f"msg_{HI[:32]}")
    await store.commit(Transaction(erased_nodes=(HI, PATH.keys[1])))
    assert [await store.item(item_id) for item_id in item_ids] == [None, None, None]

    await store.commit(Transaction((AppendItems(ROOT, PATH.items),)))
    assert [await store.item(item_id) for item_id in item_ids] == [user_message("hi"), CALL, user_message("hi")]


async def test_of_an_erased_and_a_new_item_with_one_id_the_last_of_the_history_is_found(store: Store) -> None:
    await store_conversation(store)
    await store.commit(Transaction(erased_nodes=(PATH.keys[1],)))
    newer = {**CALL, "arguments": '{"at": "again"}'}
    longer = PATH.append([newer])
    await store.commit(Transaction((AppendItems(ROOT, longer.items),), (link("resp_1", longer.head),)))
    assert await store.item("fc_1") == newer


async def test_of_equal_items_in_one_commit_the_first_is_stored(store: Store) -> None:
    """Equal items have the same keys and values. The order of the keys may differ."""
    reordered = dict(reversed([*CALL.items()]))
    path = Path(ROOT).append([CALL, reordered])
    await store.commit(Transaction((AppendItems(ROOT, path.items),), (link("resp_1", path.head),)))
    items = (await store.path(path.head)).items
    assert [list(item) for item in items] == [list(CALL)] * 2


async def test_an_item_erased_from_one_history_is_found_in_another(store: Store) -> None:
    await store_conversation(store)
    other_path = Path(ROOT).append([CALL])
    await store.commit(
        Transaction(
            (AppendItems(ROOT, other_path.items),), (link("resp_1", other_path.head),), erased_nodes=(PATH.keys[1],)
        )
    )

    assert await store.item("fc_1") == CALL
    assert await store.item(f"fc_{PATH.keys[1]}") is None
    assert await store.item(f"fc_{other_path.head}") == CALL


async def test_removed_items_are_not_found(store: Store) -> None:
    await store_conversation(store)
    await store.remove_conversation("conv_1")

    assert [await store.item(item_id) for item_id in ("msg_a", "msg_b", "fc_1", f"msg_{HI}")] == [None] * 4


async def test_an_id_that_a_removed_conversation_assigned_is_removed_and_the_item_stays(store: Store) -> None:
    await store_conversation(store)
    await store.commit(
        Transaction(conversation=replace(CONVERSATION, id="conv_2", item_ids=("msg_x", "fc_1", "msg_b")))
    )
    await store.remove_conversation("conv_1")

    assert await store.item("msg_a") is None
    assert await store.item("msg_x") == user_message("hi")
    assert await store.item("msg_b") == assistant_message("hello")
    assert await store.item("fc_1") == CALL


async def test_a_conversation_does_not_list_a_removed_item(store: Store) -> None:
    await store_conversation(store)
    shorter_path = PATH.first(2)
    await store.commit(Transaction((), (link("resp_1", PATH.head),)))
    await store.commit(
        Transaction(conversation=replace(CONVERSATION, head=shorter_path.head, item_ids=CONVERSATION.item_ids[:2]))
    )

    assert await store.item("msg_b") is None
    assert await store.item(f"msg_{HELLO}") == assistant_message("hello")
    assert await store.item("msg_a") == user_message("hi")


async def test_changing_an_item_that_was_found_does_not_change_the_store(store: Store) -> None:
    await store_conversation(store)
    found = await store.item("msg_a")
    assert found is not None
    found["content"].clear()

    assert await store.item("msg_a") == user_message("hi")


async def test_an_item_of_another_tenant_is_not_found(store: Store) -> None:
    await store_conversation(store)
    guest = store.for_tenant("guest")
    await guest.commit(Transaction(session=session("guest")))

    assert [await guest.item(item_id) for item_id in ("msg_a", "fc_1", f"msg_{HI}")] == [None] * 3
