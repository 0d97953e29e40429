"""Links, the stored records of model calls, on every store."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from convo.errors import NotFound
from convo.history.items import assistant_message, user_message
from convo.history.records import Link, Scope, Strategy
from convo.history.tree import Key, Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, USAGE, link, session

TOP = root_key("local")
PATH = Path(TOP).append([user_message("hi"), assistant_message("hello")])
ASKED, ANSWERED = PATH.keys
FULL = Link(
    id="resp_1",
    input_head=ASKED,
    head=ANSWERED,
    sent_count=1,
    model="groq/some-model",
    strategy=Strategy.CHAIN,
    status="failed",
    created_at=NOW + 0.125,
    parent_id="resp_0",
    session_id="ses_1",
    scope=Scope("https://api.example/v1", "org_1", "proj_1"),
    conversation_id="conv_1",
    previous_response_id="resp_0",
    duration_s=1.25,
    first_token_s=0.5,
    parameters={"instructions": "be kind \ud83d", "tools": [{"type": "function", "name": "look", "strict": None}]},
    usage=USAGE,
    error={"code": "server_error", "message": "it \u0000 broke \ud83d"},
    is_stored=False,
)


async def add(store: Store, *links: Link) -> None:
    await store.commit(Transaction((AppendItems(TOP, PATH.items),), links, session(head=PATH.head)))


def ids(links: Sequence[Link]) -> list[str]:
    return [link.id for link in links]


@pytest.mark.parametrize(
    "made",
    [
        FULL,
        link("resp_1", TOP),
        link("try_1", ASKED, status="in_progress"),
        replace(FULL, parent_id=None, previous_response_id="resp_elsewhere"),
        replace(FULL, previous_response_id=None),
        replace(FULL, usage={}, error={}, parameters={}),
        replace(FULL, usage={"a": [2**70, -1, 0, True, 1.0, None, "x"], "b": {"c": 0}}),
    ],
)
async def test_a_link_reads_back_as_it_was_written(store: Store, made: Link) -> None:
    await add(store, made)

    assert await store.link(made.id) == made


async def test_changing_a_link_that_was_read_does_not_change_the_store(store: Store) -> None:
    await add(store, FULL)
    read = await store.link("resp_1")
    assert read is not None
    read.parameters["tools"].clear()

    assert await store.link("resp_1") == FULL


async def test_a_link_in_progress_is_replaced(store: Store) -> None:
    await add(store, replace(FULL, status="in_progress", head=ASKED, usage=None, parameters={"old": 1}))
    await add(store, FULL)

    assert await store.link("resp_1") == FULL


async def test_the_nodes_of_a_discarded_link_in_progress_are_not_stored(store: Store) -> None:
    await store.commit(Transaction(links=(link("resp_1", TOP),)))
    late = replace(link("resp_1", TOP), status="in_progress", input_head=ANSWERED, head=ANSWERED)
    await store.commit(Transaction((AppendItems(TOP, PATH.items),), (late,)))
    with pytest.raises(NotFound):
        await store.path(ANSWERED)


async def test_a_final_link_only_gains_missing_fields(store: Store) -> None:
    """The embedded endpoint stores a response before the chat that requested it adds its fields."""
    kept = replace(FULL, session_id=None, parent_id=None, previous_response_id=None, first_token_s=None)
    await add(store, kept)
    await add(store, replace(FULL, status="completed", model="another/model", usage=None, error=None))
    claimed = replace(kept, session_id="ses_1", parent_id="resp_0", first_token_s=0.5)

    assert await store.link("resp_1") == claimed
    await add(store, replace(FULL, session_id="ses_2", parent_id="resp_x", first_token_s=9.0))
    assert await store.link("resp_1") == claimed


async def test_answers_to_one_input_come_oldest_first(store: Store) -> None:
    late, early = link("resp_2", ASKED, created_at=NOW + 2), link("resp_1", ASKED, ANSWERED, created_at=NOW + 1)
    await add(store, late, early, link("resp_3", ANSWERED))

    assert ids(await store.responses_to(ASKED)) == ["resp_1", "resp_2"]
    assert await store.responses_to(Key("00")) == await store.responses_to() == []


async def test_answers_to_many_inputs_come_oldest_first_and_once(store: Store) -> None:
    late, early = link("resp_2", ASKED, created_at=NOW + 2), link("resp_1", ANSWERED, created_at=NOW + 1)
    await add(store, late, early, link("resp_3", TOP))

    assert ids(await store.responses_to(ASKED, Key("00"), ANSWERED, ASKED)) == ["resp_1", "resp_2"]


async def test_links_of_a_session_come_oldest_first(store: Store) -> None:
    await add(store, *(link(f"resp_{n}", ASKED, session_id="ses_1", created_at=NOW - n) for n in range(3)))
    await add(store, link("resp_other", ASKED), link("resp_theirs", ASKED, session_id="ses_2"))

    assert ids(await store.links("ses_1")) == ["resp_2", "resp_1", "resp_0"]
    assert await store.links("ses_3") == []


async def test_a_family_contains_every_fork_and_nothing_else(store: Store) -> None:
    parents = {1: None, 2: 1, 3: 2, 4: 2, 5: 1, 6: None, 7: 6}
    await add(
        store,
        *(
            link(f"resp_{n}", ASKED, created_at=NOW + n, parent_id=parent and f"resp_{parent}")
            for n, parent in parents.items()
        ),
    )

    for member in (1, 3, 5):
        assert ids(await store.related_links(f"resp_{member}")) == ["resp_1", "resp_2", "resp_3", "resp_4", "resp_5"]
    assert ids(await store.related_links("resp_7")) == ["resp_6", "resp_7"]


async def test_a_family_includes_forks_across_an_unknown_response(store: Store) -> None:
    await add(store, *(link(f"resp_{n}", ASKED, created_at=NOW + n, parent_id="resp_elsewhere") for n in (1, 2)))

    assert ids(await store.related_links("resp_1")) == ["resp_1", "resp_2"]
    assert await store.link("resp_elsewhere") is None
    assert await store.related_links("resp_elsewhere") == []
    assert await store.find_handles("resp_else") == []


async def test_a_parent_may_come_after_its_child(store: Store) -> None:
    await add(store, link("resp_2", ASKED, parent_id="resp_1", created_at=NOW + 2))
    await add(store, link("resp_1", ASKED, created_at=NOW + 1))

    assert ids(await store.related_links("resp_2")) == ["resp_1", "resp_2"]


async def test_a_link_may_name_itself_as_its_parent(store: Store) -> None:
    own = replace(FULL, parent_id="resp_1")
    await add(store, own)

    assert await store.link("resp_1") == own
    assert await store.related_links("resp_1") == [own]


async def test_a_session_may_be_stored_while_the_only_link_that_named_it_drops_it(store: Store) -> None:
    """One transaction drops the last references to the session and to its parent link, and adds them again."""
    begun = replace(FULL, status="in_progress")
    await store.commit(Transaction((AppendItems(TOP, PATH.items),), (begun,)))
    freed = replace(begun, session_id=None, parent_id=None, previous_response_id=None)
    record = session(head=PATH.head, link_id="resp_0")
    await store.commit(Transaction(links=(begun, freed), session=record, expected_session_head=None))

    assert await store.session("ses_1") == record
    assert await store.link("resp_1") == freed
    assert await store.links("ses_1") == []


async def test_links_of_a_conversation_come_oldest_first_under_every_strategy(store: Store) -> None:
    through = replace(link("resp_0", ASKED), conversation_id="conv_1")
    late, early = replace(through, id="resp_2", created_at=NOW + 2), replace(through, id="resp_1", model="b/other")
    await add(store, late, early, link("resp_3", ASKED, conversation_id="conv_2"), link("resp_4", ASKED))

    assert await store.conversation_links("conv_1") == [early, late]
    assert await store.conversation_links("resp_1") == await store.conversation_links("\ud800") == []


async def test_links_outlive_their_conversation_and_are_removed_one_by_one(store: Store) -> None:
    calls = [link(f"resp_{n}", ASKED, conversation_id="conv_1", created_at=NOW + n) for n in range(2)]
    await add(store, *calls)
    await store.commit(Transaction(conversation=Conversation("conv_1", ASKED, NOW, ("a",))))
    await store.remove_conversation("conv_1")

    assert ids(await store.conversation_links("conv_1")) == ["resp_0", "resp_1"]
    await store.remove_link("resp_0")
    assert ids(await store.conversation_links("conv_1")) == ["resp_1"]
    await store.remove_link("resp_1")
    assert await store.conversation_links("conv_1") == []


async def test_a_conversation_with_an_id_that_no_database_accepts_has_its_links(store: Store) -> None:
    await add(store, replace(FULL, conversation_id="conv_\ud83d"))

    assert ids(await store.conversation_links("conv_\ud83d")) == ["resp_1"]


@pytest.mark.parametrize("name", ["", "nope", "\ud800", "x" * 10_000, "'; DROP TABLE links; --", "a\0b"])
async def test_an_unknown_name_is_not_found(store: Store, name: str) -> None:
    await add(store, FULL)

    assert await store.link(name) is None
    assert await store.session(name) is None
    assert await store.conversation(name) is None
    assert await store.related_links(name) == await store.links(name) == []
    if name:
        assert await store.find_handles(name) == []
