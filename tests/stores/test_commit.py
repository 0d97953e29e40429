"""A transaction is stored completely or not at all, on every store."""

from dataclasses import replace

import pytest

from convo.errors import Conflict, ConvoError, InputFault, ItemDeleted, NotCanonical, NotFound
from convo.history.items import Item, assistant_message, item_text, user_message
from convo.history.records import Session
from convo.history.tree import Key, Path, root_key
from convo.stores.base import ANY_HEAD, AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, link, session

TOP = root_key("local")
EMPTY = Path(TOP)
NOWHERE = Key("0" * 64)


async def say(store: Store, *items: Item, **fields: object) -> Session:
    """Store a session with `items`. `fields` override the fields of its record."""
    path = EMPTY.append(items)
    record = replace(session(head=path.head, confirmed_head=path.head), **fields)  # type: ignore[arg-type]
    await store.commit(Transaction((AppendItems(TOP, items),), session=record))
    return record


async def texts(store: Store, head: Key) -> list[str]:
    return [item_text(item) for item in (await store.path(head)).items]


async def test_a_path_reads_back_with_its_keys_and_items(store: Store) -> None:
    path = EMPTY.append([user_message("hi"), assistant_message("hello"), user_message("more")])
    await say(store, *path.items)

    assert await store.path(path.head) == path


async def test_the_root_always_exists_and_is_empty(store: Store) -> None:
    assert await store.path(TOP) == EMPTY


@pytest.mark.parametrize("key", [NOWHERE, root_key("another"), Key(""), Key("not a key"), Key(TOP.upper())])
async def test_an_unknown_node_is_not_found(store: Store, key: Key) -> None:
    await say(store, user_message("hi"))

    with pytest.raises(NotFound):
        await store.path(key)


async def test_an_append_may_follow_an_earlier_one_of_the_same_transaction(store: Store) -> None:
    path = EMPTY.append([user_message("one"), user_message("two")])
    grow = (AppendItems(TOP, path.items[:1]), AppendItems(path.nodes[0].key, path.items[1:]))
    await store.commit(Transaction(grow, session=session(head=path.head)))

    assert await texts(store, path.head) == ["one", "two"]


async def test_histories_with_a_common_prefix_share_its_nodes(store: Store) -> None:
    base = EMPTY.append([user_message("same"), assistant_message("same")])
    left, right = base.append([user_message("left")]), base.append([user_message("right")])
    await say(store, *left.items)
    await say(store, *right.items, id="ses_2", name="two")

    assert (await store.path(left.head)).nodes[:2] == (await store.path(right.head)).nodes[:2] == base.nodes


async def test_a_record_reads_back_as_it_was_written(store: Store) -> None:
    written = await say(
        store, user_message("hi"), instructions="be kind \ud83d", handle="/tmp/\udcff.json", link_id="resp_unknown"
    )
    written = replace(written, file_head=written.head, used_at=NOW + 0.25, name="näme '\";--\n")
    await store.commit(Transaction(session=written, expected_session_head=written.head))

    assert await store.session(written.id) == await store.session(written.name) == written


async def test_sessions_are_listed_by_last_use(store: Store) -> None:
    for number, used in enumerate([NOW + 1, NOW + 3, NOW + 2]):
        await say(store, user_message("hi"), id=f"ses_{number}", name=f"s{number}", used_at=used)

    assert [one.name for one in await store.sessions()] == ["s2", "s1", "s0"]
    assert [one.name for one in await store.sessions(limit=1)] == ["s2"]


# -- heads ----------------------------------------------------------------------------------------


async def test_a_second_writer_from_the_same_head_gets_a_conflict_and_changes_nothing(store: Store) -> None:
    begun = await say(store, user_message("hi"))
    first, second = (EMPTY.append([user_message("hi"), user_message(words)]) for words in ("first", "second"))
    await store.commit(
        Transaction(
            (AppendItems(begun.head, first.items[1:]),),
            session=replace(begun, head=first.head),
            expected_session_head=begun.head,
        )
    )

    with pytest.raises(Conflict):
        await store.commit(
            Transaction(
                (AppendItems(begun.head, second.items[1:]),),
                session=replace(begun, head=second.head),
                expected_session_head=begun.head,
            )
        )

    now = await store.session("ses_1")
    assert now is not None
    assert await texts(store, now.head) == ["hi", "first"]
    with pytest.raises(NotFound):
        await store.path(second.head)


RELOAD = "reload the conversation, then retry"


@pytest.mark.parametrize(
    ("there", "expected", "message", "hint"),
    [
        (True, None, "session 'new' already exists", RELOAD),
        (False, TOP, "session 'new' no longer exists", "convo sessions"),
        (True, NOWHERE, "session 'new' changed since it was read", RELOAD),
    ],
)
async def test_a_session_with_an_unexpected_head_is_a_conflict(
    store: Store, there: bool, expected: Key | None, message: str, hint: str
) -> None:
    if there:
        await say(store, user_message("hi"))

    with pytest.raises(Conflict) as refused:
        await store.commit(Transaction(session=session(name="new"), expected_session_head=expected))

    assert (refused.value.message, refused.value.hint) == (message, hint)
    assert [one.name for one in await store.sessions()] == (["one"] if there else [])


async def test_a_transaction_without_an_expected_head_overwrites_the_session(store: Store) -> None:
    begun = await say(store, user_message("hi"))
    await store.commit(Transaction(session=replace(begun, name="other"), expected_session_head=ANY_HEAD))

    assert await store.session("one") is None
    assert await store.session("other") == replace(begun, name="other")


async def test_a_name_belongs_to_one_session(store: Store) -> None:
    await say(store, user_message("hi"))

    with pytest.raises(Conflict, match=r"^another session has the name 'one'$") as refused:
        await say(store, user_message("ho"), id="ses_2")
    assert refused.value.hint == "choose another name"

    assert await store.session("ses_2") is None


async def test_a_conversation_with_an_unexpected_head_is_a_conflict(store: Store) -> None:
    path = EMPTY.append([user_message("hi"), user_message("ho")])
    first = Conversation("conv_1", path.nodes[0].key, NOW, ("a",))
    await store.commit(
        Transaction((AppendItems(TOP, path.items[:1]),), conversation=first, expected_conversation_head=None)
    )
    grown = replace(first, head=path.head, item_ids=("a", "b"))

    for stale, message in ((None, "conv_1 already exists"), (TOP, "conv_1 changed since it was read")):
        with pytest.raises(Conflict, match=message):
            await store.commit(
                Transaction(
                    (AppendItems(first.head, path.items[1:]),), conversation=grown, expected_conversation_head=stale
                )
            )

    assert await store.conversation("conv_1") == first


# -- all or nothing -------------------------------------------------------------------------------

HALF = EMPTY.append([user_message("half")])


def other(**fields: object) -> Session:
    return replace(session(id="ses_2", name="two"), **fields)  # type: ignore[arg-type]


NO_JSON = "^an? (item|value) has no (exact )?JSON form: "
NO_NAME = " cannot be used as a name$"
NO_NODE = r"^no node '000000000000'$"

BROKEN = {
    "a growth behind nothing": (
        Transaction((AppendItems(TOP, HALF.items), AppendItems(NOWHERE, (user_message("x"),)))),
        NotFound,
        NO_NODE,
    ),
    "an item that is not JSON": (
        Transaction((AppendItems(TOP, (user_message("half"), {"n": float("nan")})),)),
        NotCanonical,
        NO_JSON,
    ),
    "an item that is no mapping of JSON": (
        Transaction((AppendItems(TOP, ({"type": {1, 2}},)),)),
        NotCanonical,
        NO_JSON,
    ),
    "a link that saw nothing": (
        Transaction((AppendItems(TOP, HALF.items),), (link("resp_1", NOWHERE),)),
        NotFound,
        NO_NODE,
    ),
    "a link with parameters that are not JSON": (
        Transaction((AppendItems(TOP, HALF.items),), (link("resp_1", HALF.head, parameters={"n": float("inf")}),)),
        NotCanonical,
        NO_JSON,
    ),
    "a link without a name": (
        Transaction((AppendItems(TOP, HALF.items),), (link("resp_\ud800", HALF.head),)),
        NotCanonical,
        NO_NAME,
    ),
    "a link to a parent without a name": (
        Transaction((AppendItems(TOP, HALF.items),), (link("resp_1", HALF.head, parent_id="\ud800"),)),
        NotCanonical,
        NO_NAME,
    ),
    "a link of a session without a name": (
        Transaction((AppendItems(TOP, HALF.items),), (link("resp_1", HALF.head, session_id="\ud800"),)),
        NotCanonical,
        NO_NAME,
    ),
    "a session without a head": (
        Transaction((AppendItems(TOP, HALF.items),), session=other(head=NOWHERE)),
        NotFound,
        NO_NODE,
    ),
    "a session without a mark": (
        Transaction((AppendItems(TOP, HALF.items),), session=other(confirmed_head=NOWHERE)),
        NotFound,
        NO_NODE,
    ),
    "a session without a written head": (
        Transaction((AppendItems(TOP, HALF.items),), session=other(file_head=NOWHERE)),
        NotFound,
        NO_NODE,
    ),
    "a name that is not text": (
        Transaction((AppendItems(TOP, HALF.items),), session=other(name="\ud800")),
        NotCanonical,
        r"^'\\ud800' cannot be used as a name$",
    ),
    "an id of a session that is not text": (
        Transaction((AppendItems(TOP, HALF.items),), session=other(id="\ud800")),
        NotCanonical,
        NO_NAME,
    ),
    "a session whose link has no name": (
        Transaction((AppendItems(TOP, HALF.items),), session=other(link_id="\ud800")),
        NotCanonical,
        NO_NAME,
    ),
    "a conversation without a name": (
        Transaction((AppendItems(TOP, HALF.items),), conversation=Conversation("\ud800", HALF.head, NOW, ("a",))),
        NotCanonical,
        NO_NAME,
    ),
    "a conversation that gives an id that is not text": (
        Transaction((AppendItems(TOP, HALF.items),), conversation=Conversation("conv_1", HALF.head, NOW, ("\ud800",))),
        NotCanonical,
        NO_NAME,
    ),
    "a conversation with too few ids": (
        Transaction((AppendItems(TOP, HALF.items),), conversation=Conversation("conv_1", HALF.head, NOW)),
        InputFault,
        "^conv_1 has 1 items, but 0 ids for them$",
    ),
    "a conversation with too many ids": (
        Transaction((AppendItems(TOP, HALF.items),), conversation=Conversation("conv_1", HALF.head, NOW, ("a", "b"))),
        InputFault,
        "^conv_1 has 1 items, but 2 ids for them$",
    ),
    "a conversation without a head": (
        Transaction((AppendItems(TOP, HALF.items),), conversation=Conversation("conv_1", NOWHERE, NOW)),
        NotFound,
        NO_NODE,
    ),
    "an erased place that is not there": (
        Transaction((AppendItems(TOP, HALF.items),), session=other(head=HALF.head), erased_nodes=(NOWHERE,)),
        NotFound,
        NO_NODE,
    ),
}


@pytest.mark.parametrize(("change", "error", "message"), BROKEN.values(), ids=BROKEN)
async def test_a_transaction_that_fails_half_way_changes_nothing(
    store: Store, change: Transaction, error: type[ConvoError], message: str
) -> None:
    begun = await say(store, user_message("hi"))
    before = await everything(store, begun.head)

    with pytest.raises(error, match=message):
        await store.commit(change)

    assert await everything(store, begun.head) == before
    with pytest.raises(NotFound):
        await store.path(HALF.head)


async def everything(store: Store, head: Key) -> object:
    return (
        await store.path(head),
        await store.sessions(),
        await store.find_handles(""),
        await store.link("resp_1"),
        await store.conversation("conv_1"),
        await store.search_items("half"),
    )


# -- garbage collection ---------------------------------------------------------------------------


async def test_an_append_that_nothing_refers_to_is_not_stored(store: Store) -> None:
    await store.commit(Transaction((AppendItems(TOP, (user_message("nobody"),)),)))

    with pytest.raises(NotFound):
        await store.path(EMPTY.append([user_message("nobody")]).head)


async def test_nodes_that_no_head_reaches_are_collected_and_the_others_stay(store: Store) -> None:
    begun = await say(store, user_message("kept"), user_message("dropped"))
    back = EMPTY.append([user_message("kept")]).head
    await store.commit(
        Transaction(session=replace(begun, head=back, confirmed_head=back), expected_session_head=begun.head)
    )

    assert await texts(store, back) == ["kept"]
    with pytest.raises(NotFound):
        await store.path(begun.head)
    assert await store.search_items("dropped") == []


@pytest.mark.parametrize("field", ["confirmed_head", "file_head"])
async def test_the_confirmed_head_and_the_file_head_keep_their_paths(store: Store, field: str) -> None:
    begun = await say(store, user_message("kept"), user_message("also kept"))
    back = EMPTY.append([user_message("kept")]).head
    stands = {"confirmed_head": back, field: begun.head}
    await store.commit(Transaction(session=replace(begun, head=back, **stands)))  # type: ignore[arg-type]

    assert await texts(store, begun.head) == ["kept", "also kept"]


async def test_a_transaction_may_keep_nodes_that_it_releases_elsewhere(store: Store) -> None:
    """One transaction ends the reference of a link in progress to a node and stores a session at that node."""
    path = EMPTY.append([user_message("asked"), user_message("other")])
    await store.commit(
        Transaction(
            (AppendItems(TOP, path.items),), (link("resp_1", path.nodes[0].key, path.head, status="in_progress"),)
        )
    )
    await store.commit(Transaction((), (link("resp_1", TOP),), session(head=path.head)))

    assert await texts(store, path.head) == ["asked", "other"]


# -- erased items ---------------------------------------------------------------------------------


async def test_a_path_through_an_erased_item_names_it(store: Store) -> None:
    path = EMPTY.append([user_message("before"), user_message("secret"), user_message("after")])
    await say(store, *path.items)
    await store.commit(Transaction(erased_nodes=(path.nodes[1].key,)))

    assert await texts(store, path.nodes[0].key) == ["before"]
    with pytest.raises(ItemDeleted) as told:
        await store.path(path.head)
    assert told.value.key == path.nodes[1].key
    assert await store.search_items("secret") == []


async def test_an_item_erased_from_one_history_stays_in_another(store: Store) -> None:
    here, there = EMPTY.append([user_message("same")]), EMPTY.append([user_message("first"), user_message("same")])
    await say(store, *here.items)
    await say(store, *there.items, id="ses_2", name="two")
    await store.commit(Transaction(erased_nodes=(here.head,)))

    assert await texts(store, there.head) == ["first", "same"]
    assert [hit.session.name for hit in await store.search_items("same")] == ["two"]


async def test_removing_items_from_a_conversation_collects_nodes_that_only_its_earlier_links_reach(
    store: Store,
) -> None:
    """These nodes follow an item that was removed earlier. Another history with the same item keeps it."""
    items = [user_message("first"), user_message("secret"), user_message("last")]
    path, elsewhere = EMPTY.append(items), EMPTY.append([user_message("mine"), items[1]])
    made = Conversation("conv_1", path.head, NOW, ("a", "b", "c"))
    through = replace(link("resp_1", path.head), conversation_id="conv_1")
    await store.commit(Transaction((AppendItems(TOP, tuple(items)),), (through,), conversation=made))
    cut, short = EMPTY.append(items[1:]), EMPTY.append(items[2:])
    fewer = replace(made, head=cut.head, item_ids=("b", "c"))
    await store.commit(Transaction((AppendItems(TOP, cut.items),), conversation=fewer, erased_nodes=path.keys[:1]))
    await say(store, *elsewhere.items)
    least = replace(made, head=short.head, item_ids=("c",))
    await store.commit(Transaction((AppendItems(TOP, short.items),), conversation=least, erased_nodes=cut.keys[:1]))

    with pytest.raises(ItemDeleted) as told:
        await store.items_after(path.head, path.keys[0])
    assert told.value.key == path.keys[1]
    assert await texts(store, short.head) == ["last"]
    assert await texts(store, elsewhere.head) == ["mine", "secret"]


async def test_appending_an_erased_item_again_restores_it(store: Store) -> None:
    begun = await say(store, user_message("again"))
    await store.commit(Transaction(erased_nodes=(begun.head,)))
    await store.commit(Transaction((AppendItems(TOP, (user_message("again"),)),)))

    assert await texts(store, begun.head) == ["again"]


# -- conversations --------------------------------------------------------------------------------


async def test_a_conversation_returns_its_own_ids_and_the_ids_of_items(store: Store) -> None:
    items: list[Item] = [
        user_message("hi"),
        {**assistant_message("yes"), "id": "msg_own"},
        {**user_message("ho"), "id": 7},
    ]
    path = EMPTY.append(items)
    made = Conversation("conv_1", path.head, NOW, ("msg_a", "msg_own", "msg_b"), {"topic": "x"})
    await store.commit(Transaction((AppendItems(TOP, tuple(items)),), conversation=made))
    grown = path.append([user_message("more")])
    after = replace(made, head=grown.head, item_ids=(*made.item_ids, "msg_c"), metadata={})
    await store.commit(
        Transaction(
            (AppendItems(path.head, (user_message("more"),)),), conversation=after, expected_conversation_head=made.head
        )
    )

    assert await store.conversation("conv_1") == after


async def test_a_conversation_without_one_of_its_items_keeps_the_other_ids(store: Store) -> None:
    items = [user_message("one"), user_message("two"), user_message("three")]
    path, cut = EMPTY.append(items), EMPTY.append([items[0], items[2]])
    made = Conversation("conv_1", path.head, NOW, ("a", "b", "c"))
    await store.commit(Transaction((AppendItems(TOP, tuple(items)),), conversation=made))
    after = replace(made, head=cut.head, item_ids=("a", "c"))
    await store.commit(Transaction((AppendItems(cut.nodes[0].key, (items[2],)),), conversation=after))

    assert await store.conversation("conv_1") == after
    with pytest.raises(NotFound):
        await store.path(path.head)


async def test_a_conversation_still_lists_an_erased_item(store: Store) -> None:
    items: list[Item] = [user_message("one"), {**assistant_message("two"), "id": "msg_own"}]
    path = EMPTY.append(items)
    made = Conversation("conv_1", path.head, NOW, ("a", "msg_own"))
    await store.commit(Transaction((AppendItems(TOP, tuple(items)),), conversation=made))
    await store.commit(Transaction(erased_nodes=path.keys))

    assert await store.conversation("conv_1") == made
