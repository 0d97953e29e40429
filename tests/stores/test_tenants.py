"""The data of one tenant is not accessible to another, on every store."""

from dataclasses import replace

import pytest

from convo.errors import Conflict, NotFound
from convo.history.items import user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, link, search_hits, session


def everything(tenant: str) -> Transaction:
    """Build a transaction that stores a chat for `tenant`, with the same names for each tenant."""
    path = Path(root_key(tenant)).append([user_message("hi there")])
    return Transaction(
        (AppendItems(path.root, path.items),),
        (link("resp_1", path.head, session_id="ses_1", conversation_id="conv_1"),),
        session(tenant, head=path.head),
        conversation=Conversation("conv_1", path.head, NOW, ("a",)),
    )


async def test_a_tenant_sees_its_own_data_only(store: Store) -> None:
    await store.commit(everything("local"))
    guest = store.for_tenant("guest")

    assert guest.tenant == "guest"
    assert await guest.session("one") is None
    assert await guest.link("resp_1") is None
    assert await guest.conversation("conv_1") is None
    for result in (
        await guest.sessions(),
        await guest.find_handles(""),
        await search_hits(guest, "hi"),
        await guest.links("ses_1"),
        await guest.conversation_links("conv_1"),
    ):
        assert list(result) == []
    assert await guest.related_links("resp_1") == []
    head = Path(root_key("local")).append([user_message("hi there")]).head
    assert await guest.responses_to(head) == []
    with pytest.raises(NotFound):
        await guest.path(head)


async def test_a_tenant_cannot_append_to_the_history_of_another(store: Store) -> None:
    await store.commit(everything("local"))
    head = Path(root_key("local")).append([user_message("hi there")]).head

    for change in (
        Transaction((AppendItems(head, (user_message("x"),)),)),
        Transaction((), (link("resp_9", head),)),
        Transaction(erased_nodes=(head,)),
    ):
        with pytest.raises(NotFound):
            await store.for_tenant("guest").commit(change)


async def test_a_tenant_cannot_read_the_run_of_another(store: Store) -> None:
    await store.commit(replace(everything("local"), started_run_id="resp_1"))
    await store.append_events("resp_1", [{"sequence_number": 0}])
    guest = store.for_tenant("guest")

    assert await guest.events("resp_1") == []
    with pytest.raises(NotFound):
        await guest.commit(Transaction(started_run_id="resp_1"))
    for request in (
        guest.append_events("resp_1", [{"sequence_number": 1}]),
        guest.commit(Transaction(ended_run_id="resp_1")),
    ):
        with pytest.raises(Conflict):
            await request
    await store.commit(Transaction(ended_run_id="resp_1"))
    assert await store.events("resp_1") == [{"sequence_number": 0}]


async def test_tenants_may_use_the_same_names_and_remove_them_independently(store: Store) -> None:
    guest = store.for_tenant("guest")
    await store.commit(everything("local"))
    await guest.commit(everything("guest"))
    await store.remove_session("ses_1")
    await store.remove_conversation("conv_1")

    assert await store.find_handles("") == []
    assert len(await guest.find_handles("")) == 3
    assert [hit.owner for hit in await search_hits(guest, "hi")] == ["one", "conv_1"]
    with pytest.raises(NotFound):
        await store.remove_link("resp_1")
