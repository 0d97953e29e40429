"""Handles and the sessions that they name: names, prefixes, @last and turn numbers; and the errors with their hints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convo.chat.lookup import (
    find_session_by_handle,
    get_other_clients_hint,
    load_last_used_session,
    load_link,
    load_named_session,
    load_session,
    load_session_of_run,
    load_unconfirmed_items,
    resolve_handle,
    split_turn_suffix,
    to_absolute_path,
)
from convo.chat.session_record import (
    acquire_session_lease,
    acquire_state_lease,
    check_session_name_free,
    describe_session_writer,
    load_last_link,
)
from convo.errors import AmbiguousHandle, Busy, Conflict, InvalidUsage, NotFound
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import AgentRun, Link, Session, Strategy
from convo.history.tree import Path as History
from convo.history.tree import root_key
from convo.runtime import describe_process, process_identity
from convo.stores.base import AppendItems, HandleMatch, Store, Transaction, load_conversation
from tests.chat.conftest import ChatHarness, message_and_hint, send

ROOT = root_key("local")


async def add_session(store: Store, name: str, *items: Item, used_at: float = 1.0, **fields: Any) -> Session:
    """Store the session ses_NAME with these unconfirmed items."""
    path = History(ROOT).append(items)
    session = Session(f"ses_{name.strip('@')}", name, Strategy.SESSION, "m", path.head, ROOT, 1.0, used_at)
    session = replace(session, **fields)
    appends = (AppendItems(ROOT, items),) if items else ()
    await store.commit(Transaction(appends, session=session, expected_session_head=None))
    return session


async def add_link(store: Store, link_id: str, **fields: Any) -> Link:
    link = Link(link_id, ROOT, ROOT, 0, "m", Strategy.CHAIN, "completed", 1.0, **fields)
    await store.commit(Transaction(links=(link,)))
    return link


# -- resolve_handle --------------------------------------------------------------------------------


async def test_a_name_wins_over_the_prefix_of_other_names(store: Store) -> None:
    for name in ("chat", "chat-2", "tea"):
        await add_session(store, name)
    matches = {handle: await resolve_handle(store, handle) for handle in ("chat", "chat-", "te", "ses_chat", "ses_t")}
    chat = HandleMatch("session", "ses_chat", "chat")
    tea = HandleMatch("session", "ses_tea", "tea")
    assert matches == {
        "chat": chat,
        "chat-": HandleMatch("session", "ses_chat-2", "chat-2"),
        "te": tea,
        "ses_chat": chat,
        "ses_t": tea,
    }


async def test_an_ambiguous_prefix_lists_what_it_matches(store: Store) -> None:
    await add_session(store, "chat-1", used_at=1.0)
    await add_session(store, "chat-2", used_at=2.0)
    with pytest.raises(AmbiguousHandle) as caught:
        await resolve_handle(store, "chat")
    assert caught.value.message == (
        "'chat' is ambiguous; it matches\n  ses_chat-2  session  chat-2\n  ses_chat-1  session  chat-1"
    )


async def test_an_id_wins_over_longer_ids(store: Store) -> None:
    await add_link(store, "resp_1")
    await add_link(store, "resp_12")
    assert (await resolve_handle(store, "resp_1")).id == "resp_1"
    with pytest.raises(AmbiguousHandle):
        await resolve_handle(store, "resp_")


@pytest.mark.parametrize(
    ("handle", "kind", "hint"),
    [
        ("nope", "session", "convo sessions"),
        ("resp_9", "response", "convo sessions"),
        ("conv_9", "conversation", "convo sessions"),
        *(
            (f"talk{suffix}", "session or file", "check the path")
            for suffix in (".json", ".jsonl", ".html", ".md", ".txt")
        ),
        ("dir/talk", "session", "convo sessions"),
        ("talk.py", "session", "convo sessions"),
    ],
)
async def test_an_unknown_handle_has_its_kind_and_a_hint(store: Store, handle: str, kind: str, hint: str) -> None:
    with pytest.raises(NotFound) as caught:
        await resolve_handle(store, handle)
    assert message_and_hint(caught) == (f"no {kind} {handle!r}", hint)


@pytest.mark.parametrize(
    ("handle", "message"),
    [
        ("monadss", "no session 'monadss'; did you mean 'monads'?"),
        ("monds", "no session 'monds'; did you mean 'monads'?"),
        ("MONADS", "no session 'MONADS'; did you mean 'monads'?"),
        ("monda@2", "no session 'monda@2'; did you mean 'monads'?"),
        ("scratch", "no session 'scratch'"),
        ("resp_monads", "no response 'resp_monads'"),
        ("monds" * 100, f"no session '{('monds' * 100)[:64]}…'"),
    ],
)
async def test_an_unknown_session_names_the_most_similar_one(store: Store, handle: str, message: str) -> None:
    for name in ("oslo", "@scratch", "monads"):
        await add_session(store, name)
    with pytest.raises(NotFound) as caught:
        await resolve_handle(store, handle)
    assert message_and_hint(caught) == (message, "convo sessions")


async def test_a_turn_number_is_refused_by_name_where_a_session_is_needed(store: Store) -> None:
    await add_session(store, "tea")
    with pytest.raises(NotFound) as caught:
        await resolve_handle(store, "tea@2")
    assert message_and_hint(caught) == (
        "no session 'tea@2': a turn of tea is not a session",
        "convo chat --fork tea@2 continues after that turn; omit @2 for the whole session",
    )


async def test_words_of_a_name_find_a_session_to_read_and_are_only_proposed_elsewhere(store: Store) -> None:
    rain = await add_session(store, "rain-in-zurich", used_at=1.0)
    await add_session(store, "rain-in-oslo", used_at=2.0)
    assert await load_session(store, "Rain zurich") == rain == await load_session(store, "zurich")
    with pytest.raises(AmbiguousHandle) as several:
        await load_session(store, "in rain")
    assert [handle for handle, _ in several.value.candidates] == ["rain-in-oslo", "rain-in-zurich"]
    for load in (load_named_session, resolve_handle):
        with pytest.raises(NotFound, match=r"no session 'zurich rain'; did you mean 'rain-in-zurich'\?"):
            await load(store, "zurich rain")
    with pytest.raises(NotFound, match="did you mean 'rain-in-zurich'"):
        await load_session(store, "zurihc")
    for unknown in ("zur", "snow zurich", "resp_zurich", "@zurich"):
        with pytest.raises(NotFound):
            await load_session(store, unknown)


async def test_an_empty_handle_and_a_malformed_id_are_refused(store: Store) -> None:
    with pytest.raises(InvalidUsage) as empty:
        await resolve_handle(store, "")
    assert message_and_hint(empty) == ("the handle is empty", "convo sessions")
    with pytest.raises(InvalidUsage, match="is not the id of a response"):
        await resolve_handle(store, "resp_/")


# -- the session used last -------------------------------------------------------------------------


async def test_the_session_of_a_running_command_is_not_the_last_one(store: Store) -> None:
    await add_session(store, "old", used_at=1.0)
    mine = await add_session(store, "mine", used_at=2.0)
    assert await load_last_used_session(store) == mine
    await add_session(store, "@scratch", used_at=3.0)
    await add_session(store, "@scratch2", used_at=4.0)
    assert await load_last_used_session(store) == mine
    assert await resolve_handle(store, "@last") == HandleMatch("session", "ses_mine", "mine")


async def test_a_store_with_responses_of_other_clients_says_how_to_list_them(store: Store) -> None:
    assert await get_other_clients_hint(store) == ""
    await add_session(store, "@scratch")
    await add_link(store, "resp_1")
    with pytest.raises(NotFound) as caught:
        await load_last_used_session(store)
    assert message_and_hint(caught) == (
        "no session '@last'",
        "convo inspect resp_ lists the newest responses of other clients",
    )


async def test_a_session_that_lost_an_item_has_no_unconfirmed_ones(store: Store) -> None:
    await add_session(store, "old", user_message("x"), assistant_message("y"), used_at=1.0)
    mine = await add_session(store, "mine", user_message("hi"), user_message("more"), used_at=2.0)
    first = History(ROOT).append([user_message("hi")])
    await store.commit(Transaction(erased_nodes=(first.head,)))
    assert await load_unconfirmed_items(store, mine) == ()


async def test_the_unconfirmed_items_are_those_after_the_confirmed_head(store: Store) -> None:
    path = History(ROOT).append([user_message("hi")])
    session = await add_session(store, "a", user_message("hi"), user_message("more"), confirmed_head=path.head)
    assert await load_unconfirmed_items(store, session) == (user_message("more"),)


# -- other lookups ---------------------------------------------------------------------------------


async def test_each_lookup_names_the_object_that_is_missing(store: Store) -> None:
    link, session = await add_link(store, "resp_1"), await add_session(store, "mine", handle="conv_1")
    assert (await load_link(store, "resp_1"), await load_session(store, "mine")) == (link, session)
    assert await load_last_link(store, replace(session, link_id="resp_1")) == link
    assert await load_last_link(store, session) is None
    run = AgentRun("run_1", session.id, 1, "done", {}, 1.0, 1.0)
    await store.commit(Transaction(agent_run=run))
    assert await load_session_of_run(store, "run_1") == session

    async def fails(call: Any) -> tuple[str, str]:
        with pytest.raises(NotFound) as caught:
            await call
        return message_and_hint(caught)

    sessions = "convo sessions"
    assert await fails(load_link(store, "resp_9")) == ("no response 'resp_9'", sessions)
    assert await fails(load_conversation(store, "conv_9")) == ("no conversation 'conv_9'", sessions)
    assert await fails(load_session(store, "resp_1")) == ("no session 'resp_1'", sessions)
    assert await fails(load_session_of_run(store, "run_9")) == ("no run 'run_9'", "convo approvals")
    assert await fails(load_last_link(store, replace(session, link_id="resp_9"))) == (
        "no response 'resp_9'",
        sessions,
    )


async def test_a_handle_finds_the_session_that_was_used_last(store: Store) -> None:
    for number in (1, 2, 3):
        await add_session(store, f"by-{number}", used_at=float(number), handle="conv_1" if number < 3 else "conv_3")
    found = await find_session_by_handle(store, "conv_1")
    assert found
    assert found.name == "by-2"
    assert await find_session_by_handle(store, "conv_") is None


def test_the_path_of_a_replay_file_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    assert [to_absolute_path(path) for path in ("~/a.json", "b/../a.json", "/x")] == [
        "/home/me/a.json",
        f"{tmp_path}/a.json",
        "/x",
    ]


async def test_a_turn_number_is_split_from_a_handle_unless_that_is_a_name(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file@2").touch()
    (tmp_path / "broken@2").symlink_to("nowhere")
    await add_session(store, "name@2")
    handles = ["chat@2", "chat@-1", "chat", "name@2", "file@2", "broken@2"]
    assert [await split_turn_suffix(store, handle) for handle in handles] == [
        ("chat", 2),
        ("chat", -1),
        ("chat", None),
        ("name@2", None),
        ("file@2", None),
        ("broken@2", None),
    ]


# -- names and leases ------------------------------------------------------------------------------


async def test_the_name_of_another_session_is_a_conflict(store: Store) -> None:
    await add_session(store, "mine")
    await check_session_name_free(store, "other")
    with pytest.raises(Conflict) as caught:
        await check_session_name_free(store, "mine")
    assert "another session has the name" in caught.value.message
    with pytest.raises(InvalidUsage) as invalid:
        await check_session_name_free(store, " mine")
    assert message_and_hint(invalid) == (
        "' mine' is not a name: it begins or ends with a space, or is not printable",
        "use words with dashes, such as monads-in-haskell",
    )


async def test_the_process_that_writes_a_session_is_described(store: Store) -> None:
    session = await add_session(store, "mine")
    assert await describe_session_writer(store, session) == ""
    lease = await acquire_session_lease(store, session)
    assert await describe_session_writer(store, session) == describe_process(process_identity())
    await lease.release()
    machine = process_identity().partition(":")[0]
    for holder, text in (("desk@1:42:17", "process 42 on desk"), (f"{machine}:4194305:1", "")):
        other = await store.acquire_lease("session ses_mine", holder, 3600)
        assert await describe_session_writer(store, session) == text
        await store.release_lease(other)


async def test_a_document_is_resumed_by_one_process(store: Store) -> None:
    lease = await acquire_state_lease(store, "hash", "a.json")
    await lease.release()
    await store.acquire_lease("state hash", "desk@1:42:17", 3600)
    with pytest.raises(Busy) as caught:
        await acquire_state_lease(store, "hash", "a.json")
    assert message_and_hint(caught) == (
        "'a.json' is open in another process (process 42 on desk)",
        "wait until that process ends",
    )


async def test_the_lease_of_an_unnamed_session_is_busy_with_its_id(store: Store) -> None:
    session = replace(await add_session(store, "mine"), name="")
    await store.acquire_lease("session ses_mine", "desk@1:42:17", 3600)
    with pytest.raises(Busy) as caught:
        await acquire_session_lease(store, session)
    assert message_and_hint(caught) == (
        "'ses_mine' is open in another process (process 42 on desk)",
        "convo chat --fork ses_mine",
    )


async def test_a_record_that_names_a_deleted_response_is_not_opened(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    await send(chat, "one")
    lost = replace(chat.session, link_id="resp_lost")
    await harness.store.commit(Transaction(session=lost, expected_session_head=lost.head))
    with pytest.raises(NotFound, match="no response 'resp_lost'"):
        await harness.open(None, "mine")
