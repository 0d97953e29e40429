"""`session_stats` counts the items and turns of a session, on every store."""

from dataclasses import replace

import pytest

from convo.errors import NotFound
from convo.history.items import assistant_message, user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, SessionStats, Store, Transaction
from tests.stores.chat_transactions import link, session

ITEMS = (user_message("first"), assistant_message("second"), user_message("third"))
PATH = Path(root_key("local")).append(ITEMS)


async def store_session(store: Store, *statuses: str) -> None:
    """Store a session of three items, one of them confirmed, with a link for each status."""
    links = tuple(
        link(f"resp_{number}", PATH.nodes[0].key, session_id="ses_1", status=status)
        for number, status in enumerate(statuses)
    )
    record = session(head=PATH.head, confirmed_head=PATH.nodes[0].key)
    await store.commit(
        Transaction((AppendItems(PATH.root, ITEMS),), links=links, session=record, expected_session_head=None)
    )


async def test_items_are_counted_up_to_the_head_and_after_the_confirmed_head(store: Store) -> None:
    await store_session(store)
    assert await store.session_stats("ses_1") == SessionStats(
        item_count=3, unconfirmed_count=2, turn_count=0, first_item=ITEMS[0]
    )


async def test_only_links_with_an_answer_or_the_text_of_one_count_as_turns(store: Store) -> None:
    await store_session(store, "completed", "incomplete", "failed", "cancelled", "in_progress")
    await store.commit(Transaction(links=(link("resp_other", PATH.head),)))
    assert (await store.session_stats("ses_1")).turn_count == 2
    interrupted = link("try_1", PATH.nodes[0].key, PATH.head, session_id="ses_1", status="cancelled")
    await store.commit(Transaction(links=(interrupted,)))
    assert (await store.session_stats("ses_1")).turn_count == 3


async def test_an_empty_session_has_no_first_item(store: Store) -> None:
    await store.commit(Transaction(session=session(), expected_session_head=None))
    assert await store.session_stats("ses_1") == SessionStats(
        item_count=0, unconfirmed_count=0, turn_count=0, first_item=None
    )


async def test_a_deleted_item_still_counts(store: Store) -> None:
    await store_session(store)
    await store.commit(Transaction(erased_nodes=(PATH.nodes[0].key,)))
    assert await store.session_stats("ses_1") == SessionStats(
        item_count=3, unconfirmed_count=2, turn_count=0, first_item=None
    )


async def test_the_first_items_of_a_path_are_read_in_order_without_deleted_ones(store: Store) -> None:
    await store_session(store)
    assert await store.first_items(PATH.head, 2) == list(ITEMS[:2])
    assert await store.first_items(PATH.nodes[0].key, 9) == list(ITEMS[:1])
    assert await store.first_items(PATH.root, 9) == []
    await store.commit(Transaction(erased_nodes=(PATH.nodes[0].key,)))
    assert await store.first_items(PATH.head, 2) == [ITEMS[1]]
    with pytest.raises(NotFound):
        await store.first_items(PATH.append(ITEMS[:1]).head, 2)


async def test_all_items_are_unconfirmed_when_the_confirmed_head_is_the_root(store: Store) -> None:
    await store_session(store)
    record = replace(session(head=PATH.head), confirmed_head=PATH.root)
    await store.commit(Transaction(session=record))
    assert (await store.session_stats("ses_1")).unconfirmed_count == 3


async def test_an_unknown_session_is_not_found(store: Store) -> None:
    await store_session(store)
    await store.remove_session("ses_1")
    for name in ("ses_1", "ses_2", "\ud83d"):
        with pytest.raises(NotFound) as caught:
            await store.session_stats(name)
        assert caught.value.message == f"no session {name!r}"
    with pytest.raises(NotFound):
        await store.for_tenant("another").session_stats("ses_1")
