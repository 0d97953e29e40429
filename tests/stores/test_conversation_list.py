"""The list of conversations on every store: each once, filtered, sorted, searched and in pages."""

from dataclasses import replace
from typing import Any

import pytest

from convo.chat.conversation_list import (
    ConversationPage,
    ConversationQuery,
    ConversationSort,
    list_conversations,
)
from convo.config.sections import Price
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import RECORDED_SESSION_PREFIX, RECORDING_PARAMETER, AgentRun, Link, Session, Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from tests.stores.chat_transactions import NOW, link, session

ROOT = root_key("local")
PRICES = {"local/model": Price(input=2, output=0, cached=0)}
USAGE = {"input_tokens": 1_000_000, "output_tokens": 0}


async def add_session(store: Store, name: str, text: str, used_at: float, **record: object) -> Session:
    """Store a chat of one turn."""
    fields: dict[str, Any] = {"id": f"ses_{name}", "name": name, "used_at": used_at, "created_at": used_at, **record}
    status = fields.pop("status", "completed")
    parameters = fields.pop("parameters", {})
    path = Path(ROOT).append([user_message(text)])
    head = path if status == "failed" else path.append([assistant_message(f"answer to {name}")])
    new = session(**{"head": head.head, "confirmed_head": ROOT if status == "failed" else head.head, **fields})
    call = link(
        f"resp_{name}", path.head, head.head, session_id=new.id, status=status, created_at=used_at, model=new.model,
        parameters=parameters, usage=USAGE,
    )  # fmt: skip
    link_id = None if status == "failed" else call.id
    await store.commit(Transaction((AppendItems(ROOT, head.items),), (call,), session=replace(new, link_id=link_id)))
    return new


async def add_response(
    store: Store, name: str, created_at: float, parent: Link | None = None, **fields: object
) -> Link:
    """Store a response of another client."""
    before = Path(ROOT) if parent is None else await store.path(parent.head)
    items: list[Item] = [user_message(f"question {name}"), assistant_message(f"reply {name}")]
    path = before.append(items)
    call = link(
        f"resp_{name}", path.nodes[-2].key, path.head, parent_id=parent and parent.id, strategy=Strategy.CHAIN,
        created_at=created_at, model="openai/other", **fields,
    )  # fmt: skip
    await store.commit(Transaction((AppendItems(before.head, items),), (call,)))
    return call


def names(page: ConversationPage) -> list[str]:
    return [row.session.name for row in page.rows]


@pytest.fixture
async def filled(store: Store) -> Store:
    """A store with one conversation of each kind; the second response of the chain has two continuations."""
    await add_session(store, "old", "monads and trees", NOW)
    recorded = {"parameters": {RECORDING_PARAMETER: {"client": "codex", "version": "1.2", "protocol": "responses"}}}
    await add_session(store, "tap", "a recorded tree", NOW + 10, id=f"{RECORDED_SESSION_PREFIX}1", **recorded)
    first = await add_response(store, "1", NOW + 20)
    await add_response(store, "left", NOW + 21, first)
    await add_response(store, "right", NOW + 22, first)
    empty = Conversation("conv_1", ROOT, NOW + 30)
    await store.commit(Transaction(conversation=empty))
    await store.commit(Transaction(agent_run=AgentRun("run_1", "ses_old", 1, "paused", {}, NOW, NOW)))
    await add_session(store, "broken", "never answered", NOW + 900, status="failed")
    return store


async def test_each_conversation_is_listed_once_and_a_failed_start_is_last(filled: Store) -> None:
    page = await list_conversations(filled, ConversationQuery())
    assert [(row.session.id, row.kind, row.status, row.turn_count, row.fork_count) for row in page.rows] == [
        ("conv_1", "conversation", "done", 0, 0),
        ("resp_right", "chain", "done", 3, 1),
        (f"{RECORDED_SESSION_PREFIX}1", "recording", "done", 1, 0),
        ("ses_old", "session", "paused", 1, 0),
        ("ses_broken", "session", "failed", 0, 0),
    ]
    assert page.rows[1].first_words == "question 1"
    assert (page.rows[1].session.created_at, page.rows[1].session.used_at) == (NOW + 20, NOW + 22)
    assert (page.next_cursor, page.searched) == (None, "")


async def test_a_chat_whose_process_was_killed_during_an_answer_is_interrupted(store: Store) -> None:
    for name, is_continued in (("first", False), ("second", True)):
        killed = await add_session(store, name, "hello", NOW) if is_continued else session(id="ses_first", name=name)
        before = await store.path(killed.head)
        message = user_message("the last words")
        after = replace(killed, head=before.append([message]).head)
        await store.commit(Transaction((AppendItems(before.head, [message]),), session=after))
    page = await list_conversations(store, ConversationQuery(status="interrupted"))
    assert sorted(names(page)) == ["first", "second"]


async def test_the_list_is_filtered_and_searched(filled: Store) -> None:
    for query, expected in [
        (ConversationQuery(is_own=True), ["old", "broken"]),
        (ConversationQuery(since=NOW + 20, until=NOW + 30), ["resp_right"]),
        (ConversationQuery(model="other"), ["resp_right"]),
        (ConversationQuery(status="failed"), ["broken"]),
        (ConversationQuery(status="paused"), ["old"]),
        (ConversationQuery(client="codex"), ["tap"]),
        (ConversationQuery(client="codex 1.3"), []),
        (ConversationQuery("tree"), ["tap"]),
        (ConversationQuery("TAP"), ["tap"]),
        (ConversationQuery("question left"), ["resp_right"]),
        (ConversationQuery("monads", since=NOW + 1), []),
        (ConversationQuery("nothing"), []),
        (ConversationQuery("..."), []),
    ]:
        page = await list_conversations(filled, query)
        assert names(page) == expected
        assert page.searched.startswith("searched the names and messages of all" if query.words else "")


async def test_pages_by_cursor_have_every_row_of_the_list_once(filled: Store) -> None:
    sorts: list[ConversationSort] = ["used", "created", "name", "model", "turns", "status"]
    for sort in sorts:
        for is_descending in [True, False]:
            query = ConversationQuery(sort=sort, is_descending=is_descending, prices=PRICES)
            whole = await list_conversations(filled, query)
            pages = [await list_conversations(filled, query._replace(limit=2))]
            while pages[-1].next_cursor:
                pages.append(await list_conversations(filled, query._replace(limit=2, after=pages[-1].next_cursor)))
            assert [name for page in pages for name in names(page)] == names(whole)
            assert len(pages) == 3
            if sort == "turns":
                assert names(whole)[0 if is_descending else -1] == "resp_right"
            costs = {row.session.name: row.cost_usd for row in whole.rows}
            assert (costs["old"], costs["resp_right"], costs["conv_1"]) == (2.0, None, None)


async def test_more_chains_and_sessions_than_the_first_read_are_listed(store: Store) -> None:
    for number in range(120):
        await add_session(store, f"s{number:03}", "hi", NOW + number)
    page = await list_conversations(store, ConversationQuery(limit=None))
    assert names(page) == [f"s{number:03}" for number in reversed(range(120))]
    first = await list_conversations(store, ConversationQuery(limit=100))
    assert (len(first.rows), first.next_cursor is not None) == (100, True)


async def test_a_long_chain_is_one_row_whose_turns_are_all_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if only its newest responses are read for the page."""
    monkeypatch.setattr("convo.chat.conversation_list.LINKS_PER_ROW", 3)
    last = None
    for number in range(30):
        last = await add_response(store, str(number), NOW + number, last)
    for number in range(3):
        await store.commit(Transaction(links=(link(f"resp_x{number}", ROOT, created_at=NOW + 100 + number),)))
    await add_session(store, "older", "hi", NOW - 1)
    page = await list_conversations(store, ConversationQuery(limit=4))
    assert [(row.session.id, row.turn_count) for row in page.rows] == [
        ("resp_x2", 1), ("resp_x1", 1), ("resp_x0", 1), ("resp_29", 30),
    ]  # fmt: skip
    assert page.next_cursor is not None


async def test_a_chain_or_conversation_that_a_session_continues_is_listed_as_that_session(store: Store) -> None:
    first = await add_response(store, "1", NOW)
    path = await store.path(first.head)
    continued = session(id="ses_1", name="mine", handle="resp_1", head=path.head, confirmed_head=path.head)
    call = link("resp_2", path.head, parent_id="resp_1", session_id="ses_1", created_at=NOW + 1)
    await store.commit(Transaction(links=(call,), session=continued))
    await store.commit(Transaction(conversation=Conversation("conv_1", path.head, NOW, ("msg_1", "msg_2"))))
    await store.commit(Transaction(links=(link("resp_3", path.head, conversation_id="conv_1", created_at=NOW + 2),)))

    for query in (ConversationQuery(), ConversationQuery("question")):
        assert sorted(names(await list_conversations(store, query))) == ["conv_1", "mine"]
    taken = replace(session(id="ses_2", name="theirs", strategy=Strategy.CONVERSATION, handle="conv_1"), head=path.head)
    await store.commit(Transaction(session=taken))
    for query in (ConversationQuery(), ConversationQuery("question")):
        assert sorted(names(await list_conversations(store, query))) == ["mine", "theirs"]


async def test_the_newest_response_of_a_tree_is_its_handle_also_if_its_branch_began_first(store: Store) -> None:
    root = await add_response(store, "1", NOW)
    early = await add_response(store, "2", NOW + 1, root)
    await add_response(store, "3", NOW + 2, root)
    await add_response(store, "4", NOW + 3, early)
    (row,) = (await list_conversations(store, ConversationQuery())).rows
    assert (row.session.id, row.turn_count, row.fork_count) == ("resp_4", 4, 1)


async def test_a_search_says_when_it_stopped_before_the_last_match(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An item that no conversation reaches any more counts as a match: a search stays bounded."""
    monkeypatch.setattr("convo.chat.conversation_list.MAX_MATCHES", 2)
    await add_session(store, "one", "apple pie", NOW)
    path = Path(ROOT).append([user_message(f"apple {number}") for number in range(3)])
    await store.commit(Transaction((AppendItems(ROOT, path.items),), (link("resp_gone", path.head),)))

    assert "only the first 2 matches" in (await list_conversations(store, ConversationQuery("apple"))).searched
    assert "first" not in (await list_conversations(store, ConversationQuery("pie"))).searched
