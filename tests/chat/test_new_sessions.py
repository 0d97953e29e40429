"""Sessions and forks before their first commit: whole records, and the errors of handles that cannot be continued."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from convo.chat.conversation import Chat
from convo.chat.open import (
    find_free_file,
    find_selected_session,
    fork_session,
    load_conversation_history,
    make_unforkable_error,
    open_chat,
)
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.endpoints.base import Endpoint
from convo.errors import NotFound, WrongOwner
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link, Session, Strategy
from convo.history.tree import Path as History
from convo.history.tree import root_key
from convo.stores.base import AppendItems, Transaction
from convo.strategies.selection import OwnerSelection
from tests.chat.conftest import ChatHarness, message_and_hint, send
from tests.chat.recording_endpoint import REMOTE_SCOPE, RemoteEndpoint
from tests.request_items import message_lines, state_fields

ROOT = root_key("local")
OPTIONS = RequestOptions("scripted/echo", "scripted/echo")


def remote_deps(harness: ChatHarness) -> ChatDeps:
    return harness.deps._replace(endpoint=cast(Endpoint, RemoteEndpoint(harness.endpoint)))


async def open_new(deps: ChatDeps, strategy: Strategy | None, handle: str | None = None, name: str = "") -> Chat:
    return await open_chat(OwnerSelection(strategy, handle), None, OPTIONS, deps, name=name)


# -- new sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "handle", "recorded"),
    [
        (None, None, None),
        (Strategy.SESSION, None, None),
        (Strategy.CHAIN, None, None),
        (Strategy.CONVERSATION, None, None),
        (Strategy.REPLAY, "talk.json", "talk.json"),
        (Strategy.REPLAY, None, "conversation-2.json"),
    ],
)
async def test_a_new_session_has_no_history(
    harness: ChatHarness,
    strategy: Strategy | None,
    handle: str | None,
    recorded: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(harness.folder)
    (harness.folder / "conversation.json").touch()
    chat = await open_new(harness.deps, strategy, handle, "mine")
    now = harness.clock.now()
    assert chat.session == Session(
        id="ses_1",
        name="mine",
        strategy=strategy or Strategy.SESSION,
        model="scripted/echo",
        head=ROOT,
        confirmed_head=ROOT,
        created_at=now,
        used_at=now,
        handle=recorded and str(harness.folder / recorded),
    )
    assert (len(chat.state.path), chat.record.last_link, chat.record.is_saved, chat.turn) == (0, None, False, None)


async def test_a_response_of_the_store_begins_a_session_with_its_history(harness: ChatHarness) -> None:
    source = await harness.open(Strategy.CHAIN, name="source")
    await send(source, "one")
    link = source.record.last_link
    assert link
    chat = await open_new(harness.deps, Strategy.CHAIN, link.id)
    session = chat.session
    assert (session.handle, session.link_id, session.head, session.confirmed_head) == (
        link.id,
        link.id,
        link.head,
        link.head,
    )
    assert (chat.record.last_link, message_lines(chat.state.path.items)) == (link, ["user: one", "assistant: one"])


async def test_a_response_of_another_server_is_read_from_it(harness: ChatHarness) -> None:
    store_of_server = harness.endpoint
    events = [event async for event in store_of_server.create({"model": harness.model, "input": "one"})]
    handle = events[-1]["response"]["id"]
    link = await harness.store.link(handle)
    assert link
    await harness.store.remove_link(handle)
    await harness.store.commit(Transaction(links=(replace(link, id=handle + "x", head=ROOT, input_head=ROOT),)))

    class RemoteServer(RemoteEndpoint):
        async def retrieve(self, response_id: str) -> object:
            return {"id": response_id, "output": [assistant_message("first")]}

        async def list_input_items(self, response_id: str, **page: object) -> object:
            assert page == {"after": None, "limit": 100, "order": "asc"}
            return type("Page", (), {"items": [user_message("one")], "has_more": False})

    deps = harness.deps._replace(endpoint=cast(Endpoint, RemoteServer(harness.endpoint)))
    chat = await open_new(deps, Strategy.CHAIN, handle)
    assert message_lines(chat.state.path.items) == ["user: one", "assistant: first"]
    assert (chat.session.handle, chat.session.link_id, chat.session.scope) == (handle, None, REMOTE_SCOPE)
    assert chat.state.unconfirmed_nodes == ()


async def test_a_conversation_is_read_from_its_owner(harness: ChatHarness) -> None:
    handle = (await harness.endpoint.create_conversation())["id"]
    texts = [f"message {number}" for number in range(120)]
    for start in range(0, 120, 20):
        await harness.endpoint.add_conversation_items(
            handle, [user_message(text) for text in texts[start : start + 20]]
        )
    for deps in (harness.deps, remote_deps(harness)):
        chat = await open_new(deps, Strategy.CONVERSATION, handle)
        assert message_lines(chat.state.path.items) == [f"user: {text}" for text in texts]
        assert (chat.session.handle, chat.session.scope) == (handle, deps.endpoint.scope)
        assert (chat.state.unconfirmed_nodes, chat.record.last_link) == ((), None)
        with pytest.raises(NotFound) as caught:
            await load_conversation_history("conv_unknown", deps)
        assert caught.value.message == "no conversation 'conv_unknown'"


async def test_the_error_of_a_response_that_cannot_be_continued_has_a_hint(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="my chat")
    await send(chat, "one")
    link = chat.record.last_link
    assert link
    unstored = replace(link, id="resp_9", is_stored=False)
    await harness.store.commit(
        Transaction(
            links=(
                unstored,
                replace(unstored, id="resp_8", session_id=None),
                replace(unstored, id="resp_7", scope=REMOTE_SCOPE),
            )
        )
    )
    errors = []
    for handle in ("resp_9", "resp_8", "resp_7"):
        with pytest.raises(WrongOwner) as caught:
            await open_new(harness.deps, Strategy.CHAIN, handle)
        errors.append(message_and_hint(caught))
    reason = "was sent with store=false, so its endpoint cannot continue it"
    assert errors == [
        (f"resp_9 {reason}", "convo chat --fork 'my chat'"),
        (f"resp_8 {reason}", "convo sessions"),
        ("resp_7 belongs to https://elsewhere.test/v1, not to embedded", "choose a model of that endpoint with -m"),
    ]


# -- the session that the options select -----------------------------------------------------------


async def test_the_error_of_a_session_of_another_owner_names_commands_that_continue_it(harness: ChatHarness) -> None:
    await send(await harness.open(Strategy.SESSION, name="my chat"), "one")
    with pytest.raises(WrongOwner) as caught:
        await find_selected_session(harness.store, OwnerSelection(Strategy.CHAIN, "my chat"))
    assert message_and_hint(caught) == (
        "'my chat' is owned by the local store (--session), not by the endpoint's Responses API",
        "convo chat --from 'my chat', or convo convert 'my chat' --to chain",
    )


async def test_an_id_or_a_file_without_a_record_selects_no_session(harness: ChatHarness) -> None:
    for selection in (
        OwnerSelection(Strategy.CHAIN, "resp_1"),
        OwnerSelection(Strategy.CONVERSATION, "conv_1"),
        OwnerSelection(Strategy.REPLAY, "notes"),
    ):
        assert await find_selected_session(harness.store, selection) is None


async def test_a_handle_that_is_not_a_session_is_not_continued(harness: ChatHarness) -> None:
    link = Link("xresp", ROOT, ROOT, 0, "m", Strategy.CHAIN, "completed", 1.0)
    await harness.store.commit(Transaction(links=(link,)))
    with pytest.raises(NotFound) as caught:
        await find_selected_session(harness.store, OwnerSelection(None, "xresp"))
    assert message_and_hint(caught) == ("no session 'xresp'", "convo sessions")


# -- forks -----------------------------------------------------------------------------------------


def test_the_hint_for_a_conversation_that_cannot_be_forked_is_to_convert_it() -> None:
    error = make_unforkable_error("my chat")
    assert (error.message, error.hint) == (
        "my chat cannot be forked: its endpoint stores it as one list",
        "convo convert 'my chat' --to session",
    )


@pytest.mark.parametrize(("handle", "shown"), [("conv_1", "conv_1"), (None, "mine")])
async def test_the_error_of_a_fork_names_the_conversation(harness: ChatHarness, handle: str | None, shown: str) -> None:
    session = Session("ses_1", "mine", Strategy.CONVERSATION, "m", ROOT, ROOT, 1.0, 1.0, handle=handle)
    with pytest.raises(WrongOwner, match=f"^{shown} cannot be forked"):
        await fork_session(session, OPTIONS, harness.deps)


async def test_a_fork_is_a_new_record_with_the_history_of_its_source(harness: ChatHarness, tmp_path: Path) -> None:
    chat = await harness.open(Strategy.REPLAY, name="mine")
    await send(chat, "one")
    harness.clock.advance(60)
    fork = await fork_session(chat.session, OPTIONS, harness.deps)
    assert fork.session == replace(
        chat.session,
        id="ses_2",
        name="mine-2",
        created_at=harness.clock.now(),
        file_head=None,
        handle=str(tmp_path / "talk-2.json"),
    )
    assert (fork.record.is_saved, fork.record.last_link, fork.state.path) == (
        False,
        chat.record.last_link,
        chat.state.path,
    )


CALL: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("items", "confirmed_count", "kept_count"),
    [
        ([user_message("one"), assistant_message("first"), user_message("two")], 0, 2),
        ([user_message("one"), assistant_message("first"), user_message("two")], 3, 3),
        ([user_message("one"), {**assistant_message("fir"), "status": "incomplete"}], 0, 0),
        ([user_message("one"), CALL], 1, 2),
    ],
)
async def test_a_fork_begins_after_the_last_complete_answer(
    harness: ChatHarness, items: list[Item], confirmed_count: int, kept_count: int
) -> None:
    path = History(ROOT).append(items)
    confirmed_head = path.first(confirmed_count).head
    session = Session("ses_0", "mine", Strategy.CHAIN, "m", path.head, confirmed_head, 1.0, 1.0)
    await harness.store.commit(
        Transaction((AppendItems(ROOT, tuple(items)),), session=session, expected_session_head=None)
    )
    fork = await fork_session(session, OPTIONS, harness.deps)
    assert len(fork.state.path) == kept_count
    assert fork.session.head == path.first(kept_count).head


async def test_a_fork_of_a_chain_continues_from_the_same_response(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mine")
    await send(chat, "one")
    fork = await fork_session(chat.session, OPTIONS, harness.deps)
    await send(fork, "two")
    assert state_fields(harness.bodies[-1]) == {"previous_response_id": chat.session.handle}


@pytest.mark.parametrize(
    ("path", "existing", "free"),
    [
        ("a-2.json", ["a-2.json", "a.json"], "a-3.json"),
        ("a-2.json", ["a-2.json"], "a-3.json"),
        ("a-3.json", ["a-3.json"], "a-2.json"),
        ("a-2.json", [], "a-2.json"),
        ("a", ["a"], "a-2"),
        ("a.b.json", ["a.b.json"], "a.b-2.json"),
        ("a-x.json", ["a-x.json"], "a-x-2.json"),
    ],
)
def test_the_first_free_number_of_a_file_is_used(tmp_path: Path, path: str, existing: list[str], free: str) -> None:
    for name in existing:
        (tmp_path / name).touch()
    assert find_free_file(str(tmp_path / path)) == str(tmp_path / free)
