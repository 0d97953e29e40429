"""Records that a removal deletes, and records that stay, on every store."""

import pytest

from convo.errors import NotFound
from convo.history.items import assistant_message, user_message
from convo.history.records import Session
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, link, search_hits, session

ROOT = root_key("local")
EMPTY = Path(ROOT)
BASE = EMPTY.append([user_message("shared question"), assistant_message("shared answer")])
MINE = BASE.append([user_message("my secret"), assistant_message("my answer")])
YOURS = BASE.append([user_message("your question"), assistant_message("your answer")])


async def store_fork(store: Store) -> tuple[Session, Session]:
    """Store two sessions with a common prefix. "yours" continues from the first link of "mine"."""
    mine = session(id="ses_m", name="mine", head=MINE.head, link_id="resp_m2")
    yours = session(id="ses_y", name="yours", head=YOURS.head, link_id="resp_y2")
    first, second, third = (
        link("resp_m1", BASE.keys[0], BASE.head, session_id="ses_m", created_at=NOW),
        link("resp_m2", MINE.keys[2], MINE.head, session_id="ses_m", parent_id="resp_m1", created_at=NOW + 1),
        link("resp_y2", YOURS.keys[2], YOURS.head, session_id="ses_y", parent_id="resp_m1", created_at=NOW + 2),
    )
    await store.commit(Transaction((AppendItems(ROOT, MINE.items),), (first, second), mine))
    await store.commit(Transaction((AppendItems(BASE.head, YOURS.items[2:]),), (third,), yours))
    return mine, yours


async def is_removed(store: Store, path: Path) -> bool:
    """Assert that the nodes of `path` after the common prefix are removed. Returns whether no secret is found."""
    for key in path.keys[2:]:
        with pytest.raises(NotFound):
            await store.path(key)
    return not await search_hits(store, "secret")


async def test_removing_a_session_removes_its_exclusive_nodes(store: Store) -> None:
    await store_fork(store)
    await store.remove_session("ses_m")

    assert await is_removed(store, MINE)
    assert await store.session("mine") is None
    assert await store.link("resp_m2") is None
    assert await store.path(YOURS.head) == YOURS


async def test_a_link_that_the_chain_of_another_session_needs_stays(store: Store) -> None:
    await store_fork(store)
    await store.remove_session("ses_m")

    assert [link.id for link in await store.related_links("resp_y2")] == ["resp_m1", "resp_y2"]
    assert [hit.owner for hit in await search_hits(store, "shared")] == ["yours", "yours"]


async def test_removing_the_last_session_leaves_nothing(store: Store) -> None:
    await store_fork(store)
    await store.remove_session("ses_m")
    await store.remove_session("ses_y")

    assert await store.find_handles("") == []
    assert await store.links("ses_m") == []
    for key in BASE.keys:
        with pytest.raises(NotFound):
            await store.path(key)


async def test_a_response_of_another_client_stays_with_its_history(store: Store) -> None:
    """A gateway's response belongs to no session. Its history stays when the session that it continues is removed."""
    await store_fork(store)
    foreign = MINE.append([user_message("from elsewhere")])
    await store.commit(
        Transaction((AppendItems(MINE.head, foreign.items[4:]),), (link("resp_g", foreign.head, parent_id="resp_m2"),))
    )
    await store.remove_session("ses_m")

    assert await store.path(foreign.head) == foreign
    assert await store.link("resp_m2") is None
    assert await store.link("resp_g") is not None


async def test_a_conversation_stays_when_its_mirroring_session_is_removed(store: Store) -> None:
    await store_fork(store)
    conversation = Conversation("conv_1", MINE.head, NOW, ("a", "b", "c", "d"))
    await store.commit(Transaction(conversation=conversation))
    await store.remove_session("ses_m")

    assert await store.conversation("conv_1") == conversation
    assert await store.path(MINE.head) == MINE


async def test_removing_a_conversation_keeps_the_histories_of_links(store: Store) -> None:
    extra = MINE.append([user_message("never sent")])
    await store.commit(
        Transaction(
            (AppendItems(ROOT, extra.items),),
            (link("resp_1", MINE.head, conversation_id="conv_1"),),
            conversation=Conversation("conv_1", extra.head, NOW, ("a", "b", "c", "d", "e")),
        )
    )
    await store.remove_conversation("conv_1")

    assert await store.conversation("conv_1") is None
    assert await store.path(MINE.head) == MINE
    with pytest.raises(NotFound):
        await store.path(extra.head)


async def test_removing_a_link_keeps_the_histories_of_its_children(store: Store) -> None:
    chain = EMPTY.append([user_message("1"), assistant_message("2"), user_message("3"), assistant_message("4")])
    child = link("resp_2", chain.keys[2], chain.head, parent_id="resp_1", previous_response_id="resp_1")
    await store.commit(
        Transaction((AppendItems(ROOT, chain.items),), (link("resp_1", chain.keys[0], chain.keys[1]), child)),
    )
    await store.remove_link("resp_1")

    assert await store.link("resp_1") is None
    assert await store.link("resp_2") == child
    assert await store.path(chain.head) == chain
    assert await store.related_links("resp_2") == [child]

    await store.remove_link("resp_2")
    with pytest.raises(NotFound):
        await store.path(chain.keys[0])


async def test_removing_a_link_removes_an_answer_that_nothing_continues(store: Store) -> None:
    await store_fork(store)
    discarded = BASE.append([user_message("my secret"), assistant_message("another secret")])
    await store.commit(
        Transaction((AppendItems(MINE.keys[2], discarded.items[3:]),), (link("resp_x", MINE.keys[2], discarded.head),))
    )
    await store.remove_link("resp_x")

    with pytest.raises(NotFound):
        await store.path(discarded.head)
    assert await store.path(MINE.head) == MINE


async def test_a_removed_link_can_be_written_again(store: Store) -> None:
    await store_fork(store)
    removed = await store.link("resp_m1")
    assert removed is not None
    await store.remove_link("resp_m1")
    await store.commit(Transaction((), (removed,)))

    assert await store.link("resp_m1") == removed
    assert len(await store.related_links("resp_y2")) == 3


async def test_a_removed_session_can_be_created_again_under_its_names(store: Store) -> None:
    mine, _ = await store_fork(store)
    await store.remove_session("ses_m")
    await store.commit(Transaction((AppendItems(ROOT, MINE.items),), session=mine, expected_session_head=None))

    assert await store.session("mine") == mine
    assert [link.id for link in await store.links("ses_m")] == ["resp_m1"]


async def test_removing_an_unknown_record_is_not_found(store: Store) -> None:
    await store_fork(store)
    kinds = {"session": store.remove_session, "response": store.remove_link, "conversation": store.remove_conversation}
    for kind, remove in kinds.items():
        for name in ("nope", "mine", "\ud800"):
            with pytest.raises(NotFound) as caught:
                await remove(name)
            assert caught.value.message == f"no {kind} {name!r}"

    await store.remove_session("ses_m")
    with pytest.raises(NotFound):
        await store.remove_session("ses_m")
    assert await store.path(YOURS.head) == YOURS
