"""Links, the stored records of model calls, on every store."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from convo.chat.view_loader import load_handle_view
from convo.errors import NotFound
from convo.history.items import assistant_message, user_message
from convo.history.records import Link, Scope, Strategy
from convo.history.tree import Key, Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, USAGE, link, search_hits, session

ROOT = root_key("local")
PATH = Path(ROOT).append([user_message("hi"), assistant_message("hello")])
INPUT_HEAD, HEAD = PATH.keys
FULL = Link(
    id="resp_1",
    input_head=INPUT_HEAD,
    head=HEAD,
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


async def store_links(store: Store, *links: Link) -> None:
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), links, session(head=PATH.head)))


def ids(links: Sequence[Link]) -> list[str]:
    return [link.id for link in links]


@pytest.mark.parametrize(
    "stored",
    [
        FULL,
        link("resp_1", ROOT),
        link("try_1", INPUT_HEAD, status="in_progress"),
        replace(FULL, parent_id=None, previous_response_id="resp_elsewhere"),
        replace(FULL, previous_response_id=None),
        replace(FULL, usage={}, error={}, parameters={}),
        replace(FULL, body_head=HEAD),
        replace(FULL, usage={"a": [2**70, -1, 0, True, 1.0, None, "x"], "b": {"c": 0}}),
    ],
)
async def test_a_link_reads_back_as_it_was_written(store: Store, stored: Link) -> None:
    await store_links(store, stored)

    assert await store.link(stored.id) == stored


async def test_changing_a_link_that_was_read_does_not_change_the_store(store: Store) -> None:
    await store_links(store, FULL)
    loaded = await store.link("resp_1")
    assert loaded is not None
    loaded.parameters["tools"].clear()

    assert await store.link("resp_1") == FULL


async def test_a_link_in_progress_is_replaced(store: Store) -> None:
    await store_links(store, replace(FULL, status="in_progress", head=INPUT_HEAD, usage=None, parameters={"old": 1}))
    await store_links(store, FULL)

    assert await store.link("resp_1") == FULL


async def test_the_nodes_of_a_discarded_link_in_progress_are_not_stored(store: Store) -> None:
    await store.commit(Transaction(links=(link("resp_1", ROOT),)))
    late = replace(link("resp_1", ROOT), status="in_progress", input_head=HEAD, head=HEAD)
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (late,)))
    with pytest.raises(NotFound):
        await store.path(HEAD)


async def test_a_final_link_only_gains_missing_fields(store: Store) -> None:
    """The embedded endpoint stores a response before the chat that requested it adds its fields."""
    stored = replace(FULL, session_id=None, parent_id=None, previous_response_id=None, first_token_s=None)
    await store_links(store, stored)
    await store_links(store, replace(FULL, status="completed", model="another/model", usage=None, error=None))
    completed = replace(stored, session_id="ses_1", parent_id="resp_0", first_token_s=0.5)

    assert await store.link("resp_1") == completed
    await store_links(store, replace(FULL, session_id="ses_2", parent_id="resp_x", first_token_s=9.0))
    assert await store.link("resp_1") == completed


async def test_answers_to_one_input_come_oldest_first(store: Store) -> None:
    late, early = link("resp_2", INPUT_HEAD, created_at=NOW + 2), link("resp_1", INPUT_HEAD, HEAD, created_at=NOW + 1)
    await store_links(store, late, early, link("resp_3", HEAD))

    assert ids(await store.responses_to(INPUT_HEAD)) == ["resp_1", "resp_2"]
    assert await store.responses_to(Key("00")) == await store.responses_to() == []


async def test_answers_to_many_inputs_come_oldest_first_and_once(store: Store) -> None:
    late, early = link("resp_2", INPUT_HEAD, created_at=NOW + 2), link("resp_1", HEAD, created_at=NOW + 1)
    await store_links(store, late, early, link("resp_3", ROOT))

    assert ids(await store.responses_to(INPUT_HEAD, Key("00"), HEAD, INPUT_HEAD)) == ["resp_1", "resp_2"]


async def test_links_of_a_session_come_oldest_first(store: Store) -> None:
    await store_links(store, *(link(f"resp_{n}", INPUT_HEAD, session_id="ses_1", created_at=NOW - n) for n in range(3)))
    await store_links(store, link("resp_other", INPUT_HEAD), link("resp_theirs", INPUT_HEAD, session_id="ses_2"))

    assert ids(await store.links("ses_1")) == ["resp_2", "resp_1", "resp_0"]
    assert await store.links("ses_3") == []


async def test_a_family_contains_every_fork_and_nothing_else(store: Store) -> None:
    parents = {1: None, 2: 1, 3: 2, 4: 2, 5: 1, 6: None, 7: 6}
    await store_links(
        store,
        *(
            link(f"resp_{n}", INPUT_HEAD, created_at=NOW + n, parent_id=parent and f"resp_{parent}")
            for n, parent in parents.items()
        ),
    )

    for member in (1, 3, 5):
        assert ids(await store.related_links(f"resp_{member}")) == ["resp_1", "resp_2", "resp_3", "resp_4", "resp_5"]
    assert ids(await store.related_links("resp_7")) == ["resp_6", "resp_7"]


async def test_a_family_includes_forks_across_an_unknown_response(store: Store) -> None:
    await store_links(
        store, *(link(f"resp_{n}", INPUT_HEAD, created_at=NOW + n, parent_id="resp_elsewhere") for n in (1, 2))
    )

    assert ids(await store.related_links("resp_1")) == ["resp_1", "resp_2"]
    assert await store.link("resp_elsewhere") is None
    assert await store.related_links("resp_elsewhere") == []
    assert await store.find_handles("resp_else") == []


async def test_a_parent_may_come_after_its_child(store: Store) -> None:
    await store_links(store, link("resp_2", INPUT_HEAD, parent_id="resp_1", created_at=NOW + 2))
    await store_links(store, link("resp_1", INPUT_HEAD, created_at=NOW + 1))

    assert ids(await store.related_links("resp_2")) == ["resp_1", "resp_2"]


async def test_a_link_may_name_itself_as_its_parent(store: Store) -> None:
    own = replace(FULL, parent_id="resp_1")
    await store_links(store, own)

    assert await store.link("resp_1") == own
    assert await store.related_links("resp_1") == [own]


async def test_a_session_may_be_stored_while_the_only_link_that_named_it_drops_it(store: Store) -> None:
    """One transaction drops the last references to the session and to its parent link, and adds them again."""
    started = replace(FULL, status="in_progress")
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (started,)))
    detached = replace(started, session_id=None, parent_id=None, previous_response_id=None)
    record = session(head=PATH.head, link_id="resp_0")
    await store.commit(Transaction(links=(started, detached), session=record, expected_session_head=None))

    assert await store.session("ses_1") == record
    assert await store.link("resp_1") == detached
    assert await store.links("ses_1") == []


async def test_links_of_a_conversation_come_oldest_first_under_every_strategy(store: Store) -> None:
    response = replace(link("resp_0", INPUT_HEAD), conversation_id="conv_1")
    late, early = replace(response, id="resp_2", created_at=NOW + 2), replace(response, id="resp_1", model="b/other")
    await store_links(
        store, late, early, link("resp_3", INPUT_HEAD, conversation_id="conv_2"), link("resp_4", INPUT_HEAD)
    )

    assert await store.conversation_links("conv_1") == [early, late]
    assert await store.conversation_links("resp_1") == await store.conversation_links("\ud800") == []


async def test_links_outlive_their_conversation_and_are_removed_one_by_one(store: Store) -> None:
    responses = [link(f"resp_{n}", INPUT_HEAD, conversation_id="conv_1", created_at=NOW + n) for n in range(2)]
    await store_links(store, *responses)
    await store.commit(Transaction(conversation=Conversation("conv_1", INPUT_HEAD, NOW, ("a",))))
    await store.remove_conversation("conv_1")

    assert ids(await store.conversation_links("conv_1")) == ["resp_0", "resp_1"]
    await store.remove_link("resp_0")
    assert ids(await store.conversation_links("conv_1")) == ["resp_1"]
    await store.remove_link("resp_1")
    assert await store.conversation_links("conv_1") == []


async def test_a_conversation_with_an_id_that_no_database_accepts_has_its_links(store: Store) -> None:
    await store_links(store, replace(FULL, conversation_id="conv_\ud83d"))

    assert ids(await store.conversation_links("conv_\ud83d")) == ["resp_1"]


async def test_an_unknown_name_is_not_found(store: Store) -> None:
    await store_links(store, FULL)
    for name in ["", "nope", "\ud800", "x" * 10_000, "'; DROP TABLE links; --", "a\0b"]:
        assert await store.link(name) is None
        assert await store.session(name) is None
        assert await store.conversation(name) is None
        assert await store.related_links(name) == await store.links(name) == []
        if name:
            assert await store.find_handles(name) == []


async def test_forks_beyond_the_limit_are_left_out_and_reported(store: Store) -> None:
    root = root_key("local")
    path = Path(root).append([user_message("question")])
    links = [link("resp_0", path.head), *(link(f"resp_{n}", path.head, parent_id="resp_0") for n in range(1, 10))]
    links.append(link("resp_last", path.head, parent_id="resp_9"))
    await store.commit(Transaction((AppendItems(root, path.items),), tuple(links)))
    limited = await load_handle_view(store, "resp_last", max_links=4)
    assert {"resp_last", "resp_9", "resp_0"} <= {one.id for one in limited.links}
    assert len(limited.links) == 5
    assert limited.notes == ("forks beyond the closest 4 requests are not shown",)
    own = await load_handle_view(store, "resp_last", max_links=1)
    assert {"resp_last"} <= {one.id for one in own.links} <= {"resp_last", "resp_9"}
    assert own.notes == ()
    whole = await load_handle_view(store, "resp_last", max_links=11)
    assert (len(whole.links), whole.notes) == (11, ())
    assert {one.id for one in await store.child_links("resp_0", limit=3)} <= {f"resp_{n}" for n in range(1, 10)}
    assert len(await store.child_links("resp_0", limit=3)) == 3
    assert await store.child_links("resp_unknown", limit=3) == []


async def test_of_a_branch_only_its_own_requests_and_items_are_read(store: Store) -> None:
    chain, links, appends = Path(ROOT), list[Link](), list[AppendItems]()
    for number in range(40):
        question = chain.append([user_message(f"question {number}")])
        answer = question.append([assistant_message(f"answer {number}")])
        for fork in range(3):
            other = chain.append([user_message(f"fork {fork}")])
            fork_link = link(f"resp_fork_{number}_{fork}", other.head, created_at=NOW + number)
            links.append(replace(fork_link, parent_id=f"resp_{number - 1:02}" if number else None))
            appends.append(AppendItems(chain.head, other.items[-1:]))
        parent_id = f"resp_{number - 1:02}" if number else None
        links.append(
            link(f"resp_{number:02}", question.head, answer.head, created_at=NOW + number, parent_id=parent_id)
        )
        chain = answer
    appends.append(AppendItems(ROOT, chain.items))
    record = session(name="long", head=chain.head, confirmed_head=chain.head, link_id="resp_39")
    await store.commit(Transaction(tuple(appends[-1:] + appends[:-1]), tuple(links), record))
    for handle in ("resp_39", "long"):
        for max_links in (None, 40, 2000):
            branch = await load_handle_view(store, handle, max_links=max_links, is_branch_only=True)
            assert ids(branch.links) == [f"resp_{number:02}" for number in range(40)]
            assert len(list(branch.path_index)) == len(branch.path) == 80
            assert (branch.has_all_forks, branch.notes, branch.current_link_id) == (False, (), "resp_39")
        part = await load_handle_view(store, handle, max_links=3, is_branch_only=True)
        assert ids(part.links) == ["resp_37", "resp_38", "resp_39"]
        assert part.notes == ("requests before the last 3 are not shown",)


async def test_the_requests_of_a_session_beyond_the_limit_are_not_read(store: Store) -> None:
    root = root_key("local")
    base = Path(root).append([user_message("question")])
    paths = [base.append([user_message(f"attempt {n}")]) for n in range(30)]
    links = [
        link(f"resp_{n}", path.head, session_id="ses_1", created_at=NOW + n, parent_id="resp_0" if n else None)
        for n, path in enumerate(paths)
    ]
    record = session(name="many", head=paths[9].head, confirmed_head=paths[9].head, link_id="resp_9")
    await store.commit(Transaction(tuple(AppendItems(root, path.items) for path in paths), tuple(links), record))
    assert ids(await store.links("ses_1", limit=3)) == ["resp_27", "resp_28", "resp_29"]
    assert len(await store.links("ses_1", limit=100)) == len(await store.links("ses_1")) == 30
    own = await load_handle_view(store, "many", max_links=1)
    assert {"resp_9"} <= {one.id for one in own.links}
    assert (len(own.links) <= 2, own.notes) == (True, ())
    limited = await load_handle_view(store, "many", max_links=4)
    assert {"resp_9", "resp_0"} <= {one.id for one in limited.links}
    assert len(limited.links) <= 5
    assert limited.notes == ("forks beyond the closest 4 requests are not shown",)
    whole = await load_handle_view(store, "many", max_links=30)
    assert (len(whole.links), whole.notes) == (30, ())


async def test_the_requests_of_a_conversation_beyond_the_limit_are_left_out_and_reported(store: Store) -> None:
    path, links = Path(ROOT), list[Link]()
    for number in range(6):
        question = path.append([user_message(f"question {number}")])
        path = question.append([assistant_message(f"answer {number}")])
        links.append(
            replace(
                link(f"resp_{number}", question.head, path.head),
                conversation_id="conv_1",
                strategy=Strategy.CONVERSATION,
                created_at=NOW + number,
            )
        )
    item_ids = tuple(f"msg_{number}" for number in range(12))
    conversation = Conversation("conv_1", path.head, NOW, item_ids)
    append = AppendItems(ROOT, path.items)
    await store.commit(Transaction((append,), tuple(links), conversation=conversation))
    limited = await load_handle_view(store, "conv_1", max_links=2)
    assert ids(limited.links) == ["resp_4", "resp_5"]
    assert (len(limited.path), limited.current_link_id) == (12, "resp_5")
    assert limited.notes == ("requests before the last 2 are not shown",)
    own = await load_handle_view(store, "conv_1", max_links=1)
    assert (ids(own.links), own.notes) == (["resp_5"], ())
    for max_links in (None, 6):
        whole = await load_handle_view(store, "conv_1", max_links=max_links)
        assert (ids(whole.links), whole.notes) == ([f"resp_{number}" for number in range(6)], ())
    record = session(
        name="mine", strategy=Strategy.CONVERSATION, head=path.head, confirmed_head=path.head,
        handle="conv_1", link_id="resp_5",
    )  # fmt: skip
    await store.commit(Transaction(session=record, expected_session_head=None))
    view = await load_handle_view(store, "mine", max_links=2)
    assert (len(view.links) <= 3, "resp_5" in ids(view.links)) == (True, True)
    assert view.notes == ("requests before the last 2 are not shown",)


async def test_a_transaction_that_requires_a_deleted_link_writes_nothing(store: Store) -> None:
    first, second = link("try_1", HEAD, session_id="ses_1", status="in_progress"), link("resp_2", HEAD)
    await store.commit(Transaction((AppendItems(ROOT, PATH.items),), (first, second)))
    final = replace(first, id="resp_1", status="completed")
    change = Transaction(links=(final,), removed_link_id="try_1", required_link_id="try_1")
    await store.commit(change)
    assert ids(await store.links("ses_1")) == ["resp_1"]
    for ended_run_id in (None, "try_1"):
        with pytest.raises(NotFound):  # the run is gone, too
            await store.commit(replace(change, links=(replace(final, id="resp_3"),), ended_run_id=ended_run_id))
    with pytest.raises(NotFound):
        await store.for_tenant("other").commit(Transaction(required_link_id="resp_2"))
    assert await store.link("resp_3") is None


async def test_a_request_in_progress_is_replaced_under_another_id_in_one_transaction(store: Store) -> None:
    running = link("try_1", INPUT_HEAD, session_id="ses_1", status="in_progress")
    await store.commit(
        Transaction((AppendItems(ROOT, PATH.items),), (running,), session(head=PATH.head), started_run_id="try_1")
    )
    await store.append_events("try_1", [{"type": "response.output_text.delta", "sequence_number": 0}])
    final = replace(running, id="resp_1", status="completed", head=HEAD)
    await store.commit(Transaction(links=(final,), removed_link_id="try_1"))

    assert await store.links("ses_1") == [final]
    assert await store.link("try_1") is None
    assert await store.events("try_1") == []

    with pytest.raises(NotFound):  # nothing of a transaction that fails is written
        await store.commit(
            Transaction(links=(replace(final, id="resp_2", head=Key("0" * 64)),), removed_link_id="resp_1")
        )
    assert await store.links("ses_1") == [final]

    await store.commit(Transaction(links=(replace(final, id="resp_2"),), removed_link_id="try_1"))  # is gone already
    assert ids(await store.links("ses_1")) == ["resp_1", "resp_2"]
    await store.commit(Transaction(removed_link_id="resp_1"))
    assert ids(await store.links("ses_1")) == ["resp_2"]
    assert (await store.path(HEAD)).items == PATH.items
    await store.remove_session("ses_1")
    with pytest.raises(NotFound):
        await store.path(INPUT_HEAD)


async def test_the_body_of_a_request_is_kept_with_its_link_and_deleted_with_it(store: Store) -> None:
    """Also when the request ends under another id, and when its session is removed or pruned."""
    parts = [
        {"type": "convo.body_part", "value": {"role": "user", "content": f"secretive {number}"}} for number in (1, 2)
    ]
    body = Path(ROOT).append(parts)
    running = link("try_1", INPUT_HEAD, session_id="ses_1", status="in_progress", body_head=body.head)
    await store.commit(
        Transaction((AppendItems(ROOT, PATH.items), AppendItems(ROOT, body.items)), (running,), session(head=PATH.head))
    )
    final = replace(running, id="resp_1", status="completed", head=HEAD)
    await store.commit(Transaction(links=(final,), removed_link_id="try_1"))
    assert await store.link("resp_1") == final
    assert (await store.path(body.head)).items == body.items
    assert await search_hits(store, "secretive") == []

    longer = body.append([{"type": "convo.body_part", "value": 3}])
    second = link("try_2", INPUT_HEAD, session_id="ses_1", status="in_progress", body_head=longer.head)
    await store.commit(Transaction((AppendItems(body.head, longer.items[2:]),), (second,)))
    await store.commit(Transaction(links=(replace(second, body_head=None),)))
    with pytest.raises(NotFound):
        await store.path(longer.head)
    assert (await store.path(body.head)).items == body.items

    await store.remove_session("ses_1")
    for key in body.keys:
        with pytest.raises(NotFound):
            await store.path(key)
