"""A transaction is stored completely or not at all, on every store."""

import asyncio
from dataclasses import replace

import pytest

from convo.errors import Conflict, ConvoError, InputFault, ItemDeleted, NotCanonical, NotFound
from convo.history.items import Item, assistant_message, item_text, user_message
from convo.history.records import Session
from convo.history.tree import Key, Path, root_key
from convo.stores.base import ANY_HEAD, AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, link, search_hits, session

ROOT = root_key("local")
EMPTY = Path(ROOT)
UNKNOWN_KEY = Key("0" * 64)


async def store_session(store: Store, *items: Item, **fields: object) -> Session:
    """Store a session with `items`. `fields` override the fields of its record."""
    path = EMPTY.append(items)
    record = replace(session(head=path.head, confirmed_head=path.head), **fields)  # type: ignore[arg-type]
    await store.commit(Transaction((AppendItems(ROOT, items),), session=record))
    return record


async def texts(store: Store, head: Key) -> list[str]:
    return [item_text(item) for item in (await store.path(head)).items]


async def test_a_path_reads_back_with_its_keys_and_items(store: Store) -> None:
    path = EMPTY.append([user_message("hi"), assistant_message("hello"), user_message("more")])
    await store_session(store, *path.items)

    assert await store.path(path.head) == path


async def test_the_root_always_exists_and_is_empty(store: Store) -> None:
    assert await store.path(ROOT) == EMPTY


async def test_an_unknown_node_is_not_found(store: Store) -> None:
    await store_session(store, user_message("hi"))
    for key in [UNKNOWN_KEY, root_key("another"), Key(""), Key("not a key"), Key(ROOT.upper())]:
        with pytest.raises(NotFound):
            await store.path(key)


async def test_an_append_may_follow_an_earlier_one_of_the_same_transaction(store: Store) -> None:
    path = EMPTY.append([user_message("one"), user_message("two")])
    appends = (AppendItems(ROOT, path.items[:1]), AppendItems(path.nodes[0].key, path.items[1:]))
    await store.commit(Transaction(appends, session=session(head=path.head)))

    assert await texts(store, path.head) == ["one", "two"]


async def test_histories_with_a_common_prefix_share_its_nodes(store: Store) -> None:
    base = EMPTY.append([user_message("same"), assistant_message("same")])
    left, right = base.append([user_message("left")]), base.append([user_message("right")])
    await store_session(store, *left.items)
    await store_session(store, *right.items, id="ses_2", name="two")

    assert (await store.path(left.head)).nodes[:2] == (await store.path(right.head)).nodes[:2] == base.nodes


async def test_a_record_reads_back_as_it_was_written(store: Store) -> None:
    record = await store_session(
        store, user_message("hi"), instructions="be kind \ud83d", handle="/tmp/\udcff.json", link_id="resp_unknown"
    )
    record = replace(record, file_head=record.head, used_at=NOW + 0.25, name="näme '\";--\n")
    await store.commit(Transaction(session=record, expected_session_head=record.head))

    assert await store.session(record.id) == await store.session(record.name) == record


async def test_sessions_are_listed_by_last_use(store: Store) -> None:
    for number, used_at in enumerate([NOW + 1, NOW + 3, NOW + 2]):
        await store_session(store, user_message("hi"), id=f"ses_{number}", name=f"s{number}", used_at=used_at)

    assert [one.name for one in await store.sessions()] == ["s2", "s1", "s0"]
    assert [one.name for one in await store.sessions(limit=1)] == ["s2"]


# -- heads ----------------------------------------------------------------------------------------


async def test_a_second_writer_from_the_same_head_gets_a_conflict_and_changes_nothing(store: Store) -> None:
    stored = await store_session(store, user_message("hi"))
    first, second = (EMPTY.append([user_message("hi"), user_message(text)]) for text in ("first", "second"))
    await store.commit(
        Transaction(
            (AppendItems(stored.head, first.items[1:]),),
            session=replace(stored, head=first.head),
            expected_session_head=stored.head,
        )
    )

    with pytest.raises(Conflict):
        await store.commit(
            Transaction(
                (AppendItems(stored.head, second.items[1:]),),
                session=replace(stored, head=second.head),
                expected_session_head=stored.head,
            )
        )

    current = await store.session("ses_1")
    assert current is not None
    assert await texts(store, current.head) == ["hi", "first"]
    with pytest.raises(NotFound):
        await store.path(second.head)


RELOAD = "reload the conversation, then retry"


@pytest.mark.parametrize(
    ("exists", "expected", "message", "hint"),
    [
        (True, None, "session 'new' already exists", RELOAD),
        (False, ROOT, "session 'new' no longer exists", "convo sessions"),
        (True, UNKNOWN_KEY, "session 'new' changed since it was read", RELOAD),
    ],
)
async def test_a_session_with_an_unexpected_head_is_a_conflict(
    store: Store, exists: bool, expected: Key | None, message: str, hint: str
) -> None:
    if exists:
        await store_session(store, user_message("hi"))

    with pytest.raises(Conflict) as caught:
        await store.commit(Transaction(session=session(name="new"), expected_session_head=expected))

    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert [one.name for one in await store.sessions()] == (["one"] if exists else [])


async def test_a_transaction_without_an_expected_head_overwrites_the_session(store: Store) -> None:
    stored = await store_session(store, user_message("hi"))
    await store.commit(Transaction(session=replace(stored, name="other"), expected_session_head=ANY_HEAD))

    assert await store.session("one") is None
    assert await store.session("other") == replace(stored, name="other")


async def test_a_name_belongs_to_one_session(store: Store) -> None:
    await store_session(store, user_message("hi"))

    with pytest.raises(Conflict, match=r"^another session has the name 'one'$") as caught:
        await store_session(store, user_message("ho"), id="ses_2")
    assert caught.value.hint == "choose another name"

    assert await store.session("ses_2") is None


async def test_a_conversation_with_an_unexpected_head_is_a_conflict(store: Store) -> None:
    path = EMPTY.append([user_message("hi"), user_message("ho")])
    first = Conversation("conv_1", path.nodes[0].key, NOW, ("a",))
    await store.commit(
        Transaction((AppendItems(ROOT, path.items[:1]),), conversation=first, expected_conversation_head=None)
    )
    updated = replace(first, head=path.head, item_ids=("a", "b"))

    for expected_head, message in ((None, "conv_1 already exists"), (ROOT, "conv_1 changed since it was read")):
        with pytest.raises(Conflict, match=message):
            await store.commit(
                Transaction(
                    (AppendItems(first.head, path.items[1:]),),
                    conversation=updated,
                    expected_conversation_head=expected_head,
                )
            )

    assert await store.conversation("conv_1") == first


# -- atomicity ------------------------------------------------------------------------------------

HALF = EMPTY.append([user_message("half")])


def other_session(**fields: object) -> Session:
    return replace(session(id="ses_2", name="two"), **fields)  # type: ignore[arg-type]


NO_JSON = "^an? (item|value) has no (exact )?JSON form: "
NO_NAME = " cannot be used as a name$"
NO_NODE = r"^no node '000000000000'$"

INVALID_TRANSACTIONS = {
    "an append after an unknown node": (
        Transaction((AppendItems(ROOT, HALF.items), AppendItems(UNKNOWN_KEY, (user_message("x"),)))),
        NotFound,
        NO_NODE,
    ),
    "an item that is not JSON": (
        Transaction((AppendItems(ROOT, (user_message("half"), {"n": float("nan")})),)),
        NotCanonical,
        NO_JSON,
    ),
    "an item that is no mapping of JSON": (
        Transaction((AppendItems(ROOT, ({"type": {1, 2}},)),)),
        NotCanonical,
        NO_JSON,
    ),
    "a link with an unknown input head": (
        Transaction((AppendItems(ROOT, HALF.items),), (link("resp_1", UNKNOWN_KEY),)),
        NotFound,
        NO_NODE,
    ),
    "a link with parameters that are not JSON": (
        Transaction((AppendItems(ROOT, HALF.items),), (link("resp_1", HALF.head, parameters={"n": float("inf")}),)),
        NotCanonical,
        NO_JSON,
    ),
    "a link without a name": (
        Transaction((AppendItems(ROOT, HALF.items),), (link("resp_\ud800", HALF.head),)),
        NotCanonical,
        NO_NAME,
    ),
    "a link to a parent without a name": (
        Transaction((AppendItems(ROOT, HALF.items),), (link("resp_1", HALF.head, parent_id="\ud800"),)),
        NotCanonical,
        NO_NAME,
    ),
    "a link of a session without a name": (
        Transaction((AppendItems(ROOT, HALF.items),), (link("resp_1", HALF.head, session_id="\ud800"),)),
        NotCanonical,
        NO_NAME,
    ),
    "a session with an unknown head": (
        Transaction((AppendItems(ROOT, HALF.items),), session=other_session(head=UNKNOWN_KEY)),
        NotFound,
        NO_NODE,
    ),
    "a session with an unknown confirmed head": (
        Transaction((AppendItems(ROOT, HALF.items),), session=other_session(confirmed_head=UNKNOWN_KEY)),
        NotFound,
        NO_NODE,
    ),
    "a session with an unknown file head": (
        Transaction((AppendItems(ROOT, HALF.items),), session=other_session(file_head=UNKNOWN_KEY)),
        NotFound,
        NO_NODE,
    ),
    "a name that is not text": (
        Transaction((AppendItems(ROOT, HALF.items),), session=other_session(name="\ud800")),
        NotCanonical,
        r"^'\\ud800' cannot be used as a name$",
    ),
    "an id of a session that is not text": (
        Transaction((AppendItems(ROOT, HALF.items),), session=other_session(id="\ud800")),
        NotCanonical,
        NO_NAME,
    ),
    "a session whose link has no name": (
        Transaction((AppendItems(ROOT, HALF.items),), session=other_session(link_id="\ud800")),
        NotCanonical,
        NO_NAME,
    ),
    "a conversation without a name": (
        Transaction((AppendItems(ROOT, HALF.items),), conversation=Conversation("\ud800", HALF.head, NOW, ("a",))),
        NotCanonical,
        NO_NAME,
    ),
    "a conversation with an item id that is not text": (
        Transaction((AppendItems(ROOT, HALF.items),), conversation=Conversation("conv_1", HALF.head, NOW, ("\ud800",))),
        NotCanonical,
        NO_NAME,
    ),
    "a conversation with too few ids": (
        Transaction((AppendItems(ROOT, HALF.items),), conversation=Conversation("conv_1", HALF.head, NOW)),
        InputFault,
        "^conv_1 has 1 items, but 0 ids for them$",
    ),
    "a conversation with too many ids": (
        Transaction((AppendItems(ROOT, HALF.items),), conversation=Conversation("conv_1", HALF.head, NOW, ("a", "b"))),
        InputFault,
        "^conv_1 has 1 items, but 2 ids for them$",
    ),
    "a conversation with an unknown head": (
        Transaction((AppendItems(ROOT, HALF.items),), conversation=Conversation("conv_1", UNKNOWN_KEY, NOW)),
        NotFound,
        NO_NODE,
    ),
    "an unknown erased node": (
        Transaction(
            (AppendItems(ROOT, HALF.items),), session=other_session(head=HALF.head), erased_nodes=(UNKNOWN_KEY,)
        ),
        NotFound,
        NO_NODE,
    ),
}


@pytest.mark.parametrize(("change", "error", "message"), INVALID_TRANSACTIONS.values(), ids=INVALID_TRANSACTIONS)
async def test_a_transaction_that_fails_half_way_changes_nothing(
    store: Store, change: Transaction, error: type[ConvoError], message: str
) -> None:
    stored = await store_session(store, user_message("hi"))
    before = await read_state(store, stored.head)

    with pytest.raises(error, match=message):
        await store.commit(change)

    assert await read_state(store, stored.head) == before
    with pytest.raises(NotFound):
        await store.path(HALF.head)


async def read_state(store: Store, head: Key) -> object:
    return (
        await store.path(head),
        await store.sessions(),
        await store.find_handles(""),
        await store.link("resp_1"),
        await store.conversation("conv_1"),
        await search_hits(store, "half"),
    )


# -- concurrent commits ---------------------------------------------------------------------------


def new_response(number: int, tenant: str = "local", after: Key | None = None) -> Transaction:
    """Build the transaction of a response of its own, with a question of its own and an answer that all share."""
    path = Path(after or root_key(tenant)).append([user_message(f"question {number}"), assistant_message("yes")])
    response = link(f"resp_{number}", path.nodes[0].key, path.head, parameters={"n": number % 3})
    return Transaction((AppendItems(path.root, path.items),), (response,))


async def test_of_concurrent_commits_only_the_invalid_ones_fail(store: Store) -> None:
    changes = [new_response(number) for number in range(20)]
    changes[3] = new_response(3, after=UNKNOWN_KEY)
    changes[7] = Transaction(changes[7].appends, (replace(changes[7].links[0], input_head=UNKNOWN_KEY),))
    changes[11] = Transaction(session=session(head=ROOT), expected_session_head=UNKNOWN_KEY)
    results = await asyncio.gather(*map(store.commit, changes), return_exceptions=True)

    failed = {number: type(result) for number, result in enumerate(results) if result is not None}
    assert failed == {3: NotFound, 7: NotFound, 11: Conflict}
    for number, change in enumerate(changes):
        stored = await store.link(f"resp_{number}")
        assert stored == (None if number in failed else change.links[0])
        assert stored is None or await texts(store, stored.head) == [f"question {number}", "yes"]


@pytest.mark.parametrize("cancelled", [0, 1, 9])
async def test_a_cancelled_commit_does_not_affect_those_that_wait_with_it(store: Store, cancelled: int) -> None:
    commits = [asyncio.ensure_future(store.commit(new_response(number))) for number in range(10)]
    await asyncio.sleep(0)
    commits[cancelled].cancel()
    results = await asyncio.gather(*commits, return_exceptions=True)

    assert {number for number, result in enumerate(results) if result is not None} <= {cancelled}
    for number in set(range(10)) - {cancelled}:
        assert await store.link(f"resp_{number}") == new_response(number).links[0]
    await store.commit(new_response(cancelled))


async def test_concurrent_commits_of_tenants_stay_apart(store: Store) -> None:
    tenants = ("local", "guest")
    await asyncio.gather(
        *(store.for_tenant(tenant).commit(new_response(number, tenant)) for number in range(10) for tenant in tenants)
    )
    for tenant in tenants:
        for number in range(10):
            stored = await store.for_tenant(tenant).link(f"resp_{number}")
            assert stored == new_response(number, tenant).links[0]
            with pytest.raises(NotFound):
                await store.for_tenant("third").path(stored.head)


# -- garbage collection ---------------------------------------------------------------------------


async def test_an_append_that_nothing_refers_to_is_not_stored(store: Store) -> None:
    await store.commit(Transaction((AppendItems(ROOT, (user_message("nobody"),)),)))

    with pytest.raises(NotFound):
        await store.path(EMPTY.append([user_message("nobody")]).head)


async def test_nodes_that_no_head_reaches_are_collected_and_the_others_stay(store: Store) -> None:
    stored = await store_session(store, user_message("kept"), user_message("dropped"))
    earlier_head = EMPTY.append([user_message("kept")]).head
    await store.commit(
        Transaction(
            session=replace(stored, head=earlier_head, confirmed_head=earlier_head), expected_session_head=stored.head
        )
    )

    assert await texts(store, earlier_head) == ["kept"]
    with pytest.raises(NotFound):
        await store.path(stored.head)
    assert await search_hits(store, "dropped") == []


@pytest.mark.parametrize("field", ["confirmed_head", "file_head"])
async def test_the_confirmed_head_and_the_file_head_keep_their_paths(store: Store, field: str) -> None:
    stored = await store_session(store, user_message("kept"), user_message("also kept"))
    earlier_head = EMPTY.append([user_message("kept")]).head
    heads = {"confirmed_head": earlier_head, field: stored.head}
    await store.commit(Transaction(session=replace(stored, head=earlier_head, **heads)))  # type: ignore[arg-type]

    assert await texts(store, stored.head) == ["kept", "also kept"]


async def test_a_transaction_may_keep_nodes_that_it_releases_elsewhere(store: Store) -> None:
    """One transaction ends the reference of a link in progress to a node and stores a session at that node."""
    path = EMPTY.append([user_message("asked"), user_message("other")])
    await store.commit(
        Transaction(
            (AppendItems(ROOT, path.items),), (link("resp_1", path.nodes[0].key, path.head, status="in_progress"),)
        )
    )
    await store.commit(Transaction((), (link("resp_1", ROOT),), session(head=path.head)))

    assert await texts(store, path.head) == ["asked", "other"]


# -- erased items ---------------------------------------------------------------------------------


async def test_a_path_through_an_erased_item_names_it(store: Store) -> None:
    path = EMPTY.append([user_message("before"), user_message("secret"), user_message("after")])
    await store_session(store, *path.items)
    await store.commit(Transaction(erased_nodes=(path.nodes[1].key,)))

    assert await texts(store, path.nodes[0].key) == ["before"]
    with pytest.raises(ItemDeleted) as caught:
        await store.path(path.head)
    assert caught.value.key == path.nodes[1].key
    assert await search_hits(store, "secret") == []


async def test_an_item_erased_from_one_history_stays_in_another(store: Store) -> None:
    path, other_path = EMPTY.append([user_message("same")]), EMPTY.append([user_message("first"), user_message("same")])
    await store_session(store, *path.items)
    await store_session(store, *other_path.items, id="ses_2", name="two")
    await store.commit(Transaction(erased_nodes=(path.head,)))

    assert await texts(store, other_path.head) == ["first", "same"]
    assert [hit.owner for hit in await search_hits(store, "same")] == ["two"]


async def test_removing_items_from_a_conversation_collects_nodes_that_only_its_earlier_links_reach(
    store: Store,
) -> None:
    """These nodes follow an item that was removed earlier. Another history with the same item keeps it."""
    items = [user_message("first"), user_message("secret"), user_message("last")]
    path, other_path = EMPTY.append(items), EMPTY.append([user_message("mine"), items[1]])
    conversation = Conversation("conv_1", path.head, NOW, ("a", "b", "c"))
    response = replace(link("resp_1", path.head), conversation_id="conv_1")
    await store.commit(Transaction((AppendItems(ROOT, tuple(items)),), (response,), conversation=conversation))
    second_path, third_path = EMPTY.append(items[1:]), EMPTY.append(items[2:])
    second = replace(conversation, head=second_path.head, item_ids=("b", "c"))
    await store.commit(
        Transaction((AppendItems(ROOT, second_path.items),), conversation=second, erased_nodes=path.keys[:1])
    )
    await store_session(store, *other_path.items)
    third = replace(conversation, head=third_path.head, item_ids=("c",))
    await store.commit(
        Transaction((AppendItems(ROOT, third_path.items),), conversation=third, erased_nodes=second_path.keys[:1])
    )

    with pytest.raises(ItemDeleted) as caught:
        await store.items_after(path.head, path.keys[0])
    assert caught.value.key == path.keys[1]
    assert await texts(store, third_path.head) == ["last"]
    assert await texts(store, other_path.head) == ["mine", "secret"]


async def test_appending_an_erased_item_again_restores_it(store: Store) -> None:
    stored = await store_session(store, user_message("again"))
    await store.commit(Transaction(erased_nodes=(stored.head,)))
    await store.commit(Transaction((AppendItems(ROOT, (user_message("again"),)),)))

    assert await texts(store, stored.head) == ["again"]


# -- conversations --------------------------------------------------------------------------------


async def test_a_conversation_returns_its_own_ids_and_the_ids_of_items(store: Store) -> None:
    items: list[Item] = [
        user_message("hi"),
        {**assistant_message("yes"), "id": "msg_own"},
        {**user_message("ho"), "id": 7},
    ]
    path = EMPTY.append(items)
    conversation = Conversation("conv_1", path.head, NOW, ("msg_a", "msg_own", "msg_b"), {"topic": "x"})
    await store.commit(Transaction((AppendItems(ROOT, tuple(items)),), conversation=conversation))
    longer_path = path.append([user_message("more")])
    updated = replace(conversation, head=longer_path.head, item_ids=(*conversation.item_ids, "msg_c"), metadata={})
    await store.commit(
        Transaction(
            (AppendItems(path.head, (user_message("more"),)),),
            conversation=updated,
            expected_conversation_head=conversation.head,
        )
    )

    assert await store.conversation("conv_1") == updated


async def test_a_conversation_without_one_of_its_items_keeps_the_other_ids(store: Store) -> None:
    items = [user_message("one"), user_message("two"), user_message("three")]
    path, shorter_path = EMPTY.append(items), EMPTY.append([items[0], items[2]])
    conversation = Conversation("conv_1", path.head, NOW, ("a", "b", "c"))
    await store.commit(Transaction((AppendItems(ROOT, tuple(items)),), conversation=conversation))
    updated = replace(conversation, head=shorter_path.head, item_ids=("a", "c"))
    await store.commit(Transaction((AppendItems(shorter_path.nodes[0].key, (items[2],)),), conversation=updated))

    assert await store.conversation("conv_1") == updated
    with pytest.raises(NotFound):
        await store.path(path.head)


async def test_a_conversation_still_lists_an_erased_item(store: Store) -> None:
    items: list[Item] = [user_message("one"), {**assistant_message("two"), "id": "msg_own"}]
    path = EMPTY.append(items)
    conversation = Conversation("conv_1", path.head, NOW, ("a", "msg_own"))
    await store.commit(Transaction((AppendItems(ROOT, tuple(items)),), conversation=conversation))
    await store.commit(Transaction(erased_nodes=path.keys))

    assert await store.conversation("conv_1") == conversation
