"""Views of conversations that the store, a file or another endpoint has: every field, and the notes."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

import pytest

from convo.chat.view_loader import (
    MAX_CHAIN_RESPONSES,
    fetch_remote_view,
    find_mirror_session,
    load_file_view,
    load_handle_view,
    load_response_view,
    make_call_key,
)
from convo.endpoints.base import Endpoint, ItemPage
from convo.errors import AmbiguousHandle, NotFound, RequestRefused
from convo.history.items import Item, item_text, user_message
from convo.history.records import EMBEDDED_SCOPE, Session, Strategy
from convo.history.tree import root_key
from convo.inspect.view import ConversationView
from convo.stores.base import Transaction
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import REMOTE_SCOPE, RemoteEndpoint

ROOT = root_key("local")


def view_fields(view: ConversationView) -> dict[str, Any]:
    """The fields of a view; its path and its index as texts, and its links as ids."""
    values = {field.name: getattr(view, field.name) for field in fields(view)}
    return {
        **values,
        "path": [item_text(item) for item in view.path.items],
        "confirmed_head": view.path.depth(view.confirmed_head),
        "links": [link.id for link in view.links],
        "path_index": [item_text(node.item) for _, node in view.path_index],
    }


DEFAULTS: Mapping[str, Any] = {
    "current_link_id": None,
    "session": None,
    "session_names": {},
    "has_all_forks": True,
    "has_all_links": True,
    "notes": (),
    "unreadable_head": None,
    "prices": {},
    "open_run": None,
    "agent": None,
    "run_timeline": None,
    "running_texts": {},
    "sent_body": None,
}


# -- another endpoint ------------------------------------------------------------------------------


async def fetch_view(harness: ChatHarness, handle: str) -> ConversationView:
    endpoint = cast(Endpoint, RemoteEndpoint(harness.endpoint))
    return await fetch_remote_view(endpoint, handle, root=ROOT, provider="far")


async def create_response(harness: ChatHarness, text: str, **state: str) -> str:
    """Send a message as another client of the endpoint; returns the id of the response."""
    events = [event async for event in harness.endpoint.create({"model": harness.model, "input": text, **state})]
    return str(events[-1]["response"]["id"])


async def test_the_view_of_a_remote_conversation_has_its_items_and_no_responses(harness: ChatHarness) -> None:
    handle = (await harness.endpoint.create_conversation())["id"]
    texts = [f"message {number}" for number in range(120)]
    for start in range(0, 120, 20):
        await harness.endpoint.add_conversation_items(handle, [user_message(t) for t in texts[start : start + 20]])

    view = await fetch_view(harness, handle)

    assert view_fields(view) == {
        **DEFAULTS,
        "handle": handle,
        "strategy": Strategy.CONVERSATION,
        "scope": REMOTE_SCOPE,
        "path": texts,
        "confirmed_head": 120,
        "links": [],
        "path_index": texts,
        "has_all_forks": False,
        "notes": ("the endpoint does not list the responses of a conversation",),
    }
    with pytest.raises(NotFound):
        await fetch_view(harness, "conv_unknown")


async def test_the_view_of_a_remote_chain_has_the_responses_that_lead_to_the_handle(harness: ChatHarness) -> None:
    first = await create_response(harness, "one")
    second = await create_response(harness, "two", previous_response_id=first)
    await create_response(harness, "other", previous_response_id=first)

    view = await fetch_view(harness, second)

    assert view_fields(view) == {
        **DEFAULTS,
        "handle": second,
        "strategy": Strategy.CHAIN,
        "scope": REMOTE_SCOPE,
        "path": ["one", "one", "two", "two"],
        "confirmed_head": 4,
        "links": [first, second],
        "path_index": ["one", "one", "two", "two"],
        "current_link_id": second,
        "has_all_forks": False,
    }
    assert [link.model for link in view.links] == [f"far/{harness.model}"] * 2


async def test_a_chain_is_read_up_to_a_response_that_no_longer_exists(harness: ChatHarness) -> None:
    ids = [await create_response(harness, "one")]
    for text in ("two", "three"):
        ids.append(await create_response(harness, text, previous_response_id=ids[-1]))
    await harness.endpoint.delete(ids[0])

    view = await fetch_view(harness, ids[2])

    assert [link.id for link in view.links] == ids[1:]
    assert view.notes == (
        f"{ids[0]} no longer exists; the tokens of earlier responses count for the response after it",
    )


class LongChain:
    """An endpoint whose responses 10, 9, 8, ... each name the one before; `error` is raised for number 0."""

    scope = REMOTE_SCOPE

    def __init__(self, error: RequestRefused | None = None, *, is_cycle: bool = False) -> None:
        self._error, self._is_cycle = error, is_cycle
        self.retrieved_count = 0

    async def retrieve(self, response_id: str) -> Mapping[str, Any]:
        self.retrieved_count += 1
        number = int(response_id.removeprefix("resp_"))
        if self._error and number == 0:
            raise self._error
        before = 10 if self._is_cycle and number == 9 else number - 1
        return {"id": response_id, "previous_response_id": f"resp_{before}", "model": "m", "output": []}

    async def list_input_items(self, response_id: str, **page: Any) -> ItemPage:
        return ItemPage([user_message("hi")], has_more=False)


async def fetch_long_chain(endpoint: LongChain, handle: str) -> ConversationView:
    return await fetch_remote_view(cast(Endpoint, endpoint), handle, root=ROOT, provider="far")


async def test_a_chain_is_read_up_to_ten_thousand_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_CHAIN_RESPONSES == 10_000
    monkeypatch.setattr("convo.chat.view_loader.MAX_CHAIN_RESPONSES", 1_000)
    endpoint = LongChain()
    view = await fetch_long_chain(endpoint, "resp_2000")
    assert len(view.links) == endpoint.retrieved_count == 1_000
    assert view.notes == ("the chain is longer than 1,000 responses; responses before resp_1000 are not read",)
    assert (view.links[0].id, view.links[-1].id) == ("resp_1001", "resp_2000")


async def test_a_chain_that_is_a_cycle_is_read_once() -> None:
    view = await fetch_long_chain(LongChain(is_cycle=True), "resp_10")
    assert ([link.id for link in view.links], view.notes) == (["resp_9", "resp_10"], ())


async def test_an_error_of_the_endpoint_is_not_reported_as_a_missing_response() -> None:
    with pytest.raises(RequestRefused, match=r"^not now$"):
        await fetch_long_chain(LongChain(RequestRefused("not now", status=405)), "resp_2")


# -- files -----------------------------------------------------------------------------------------

FILE_ITEMS: list[Item] = [user_message("hi"), {"role": "assistant", "content": "hello"}]


async def test_a_file_without_a_record_has_only_its_items(harness: ChatHarness) -> None:
    file_path = str(harness.folder / "notes.json")
    with pytest.raises(NotFound) as missing:
        await load_file_view(harness.store, file_path)
    assert (missing.value.kind, missing.value.handle, missing.value.hint) == ("file", file_path, "check the path")

    (harness.folder / "notes.json").write_text(json.dumps(FILE_ITEMS))
    view = await load_file_view(harness.store, file_path)

    assert view_fields(view) == {
        **DEFAULTS,
        "handle": file_path,
        "strategy": Strategy.REPLAY,
        "scope": None,
        "path": ["hi", "hello"],
        "confirmed_head": 2,
        "links": [],
        "path_index": ["hi", "hello"],
    }


async def test_a_file_with_a_record_has_its_responses(harness: ChatHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = await harness.open(Strategy.REPLAY, name="mine")
    await send(chat, "one")
    monkeypatch.chdir(harness.folder)

    view = await load_file_view(harness.store, "talk.json")

    link_ids = [link.id for link in await harness.store.links(chat.session.id)]
    assert view_fields(view) == {
        **DEFAULTS,
        "handle": "talk.json",
        "strategy": Strategy.REPLAY,
        "scope": EMBEDDED_SCOPE,
        "path": ["one", "one"],
        "confirmed_head": 2,
        "links": link_ids,
        "path_index": ["one", "one"],
        "current_link_id": link_ids[0],
        "session": chat.session,
        "session_names": {chat.session.id: "mine"},
    }


async def replay_view(harness: ChatHarness, text: str | None) -> ConversationView:
    """The view of a replayed conversation whose file was changed to `text`, or deleted if that is None."""
    file = harness.folder / "talk.json"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    return await load_handle_view(harness.store, "mine")


async def test_differences_of_a_replay_file_from_its_record_are_notes(harness: ChatHarness) -> None:
    await send(await harness.open(Strategy.REPLAY, name="mine"), "one")
    path = harness.folder / "talk.json"
    items = json.loads(path.read_text())

    same = await replay_view(harness, json.dumps(items, indent=2))
    assert (len(same.path), same.notes) == (2, ())
    edited = await replay_view(harness, json.dumps([user_message("uno"), *items[1:]]))
    assert (item_text(edited.path.items[0]), edited.confirmed_head) == ("uno", edited.path.head)
    assert edited.notes == ("the file and this record differ from item 1 on: it was edited",)
    shorter = await replay_view(harness, json.dumps(items[:1]))
    assert (len(shorter.path), shorter.notes) == (1, ("the file lacks 1 item that this record has: it was edited",))
    other_form = await replay_view(harness, json.dumps([{"role": "user", "content": "one"}, items[1]]))
    assert (other_form.path.items[0], other_form.notes) == ({"role": "user", "content": "one"}, ())
    broken = await replay_view(harness, "{}")
    assert len(broken.path) == 2
    assert broken.notes == (f"{path} is not a list of items; this is its recorded content",)
    deleted = await replay_view(harness, None)
    assert len(deleted.path) == 2
    assert deleted.notes == (f"{path} does not exist; this is its recorded content",)


async def test_a_file_as_it_was_last_written_is_older_than_its_record(harness: ChatHarness) -> None:
    """A process was killed between the commit of a response and the write of the file."""
    chat = await harness.open(Strategy.REPLAY, name="mine")
    await send(chat, "one")
    text = (harness.folder / "talk.json").read_text()
    before = chat.session
    await send(chat, "two")
    killed_session = replace(chat.session, file_head=before.file_head)
    await harness.store.commit(Transaction(session=killed_session, expected_session_head=chat.session.head))

    view = await replay_view(harness, text)

    assert (len(view.path), view.confirmed_head, view.notes) == (4, chat.session.head, ())


# -- conversations of the embedded endpoint --------------------------------------------------------


async def test_differences_of_a_conversation_from_its_record_are_notes(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await send(chat, "one")
    handle = chat.session.handle or ""
    assert (await load_handle_view(harness.store, "mine")).notes == ()

    await harness.endpoint.add_conversation_items(handle, [user_message("other client")])
    view = await load_handle_view(harness.store, "mine")
    assert (len(view.path), view.notes) == (2, ("the conversation has 1 item more than this record",))

    await harness.endpoint.delete_conversation(handle)
    view = await load_handle_view(harness.store, "mine")
    assert (len(view.path), view.notes) == (2, (f"{handle} no longer exists; this is the local copy",))


async def test_a_conversation_of_another_endpoint_is_not_compared(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await send(chat, "one")
    await harness.endpoint.add_conversation_items(chat.session.handle or "", [user_message("other client")])
    elsewhere = replace(chat.session, scope=REMOTE_SCOPE)
    await harness.store.commit(Transaction(session=elsewhere, expected_session_head=chat.session.head))
    view = await load_handle_view(harness.store, "mine")
    assert (view.notes, view.scope) == ((), REMOTE_SCOPE)


async def test_the_view_of_a_conversation_has_the_responses_of_all_clients(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CONVERSATION, name="mine")
    await send(chat, "one")
    harness.clock.advance(1)
    handle = chat.session.handle or ""
    other = await create_response(harness, "two", conversation=handle)
    own = (await harness.store.links(chat.session.id))[0].id

    expected = {
        **DEFAULTS,
        "handle": handle,
        "strategy": Strategy.CONVERSATION,
        "scope": EMBEDDED_SCOPE,
        "path": ["one", "one", "two", "two"],
        "confirmed_head": 4,
        "links": [own, other],
        "path_index": ["one", "one", "two", "two"],
        "current_link_id": other,
        "session_names": {chat.session.id: "mine"},
    }
    view = await load_handle_view(harness.store, handle)
    assert view_fields(view) == expected
    assert [link.parent_id for link in view.links] == [None, own]
    by_name = await load_handle_view(harness.store, "mine")
    assert view_fields(by_name) == {
        **expected,
        "handle": "mine",
        "path": ["one", "one"],
        "confirmed_head": 2,
        "session": chat.session,
        "current_link_id": own,
        "notes": ("the conversation has 2 items more than this record",),
    }
    assert [link.parent_id for link in by_name.links] == [None, own]


async def test_a_conversation_without_a_response_has_no_current_one(harness: ChatHarness) -> None:
    handle = (await harness.endpoint.create_conversation([user_message("hi")]))["id"]
    view = await load_handle_view(harness.store, handle)
    assert (view.current_link_id, view.links, [item_text(item) for item in view.path.items]) == (None, (), ["hi"])


# -- responses and mirrors -------------------------------------------------------------------------


async def test_the_view_of_a_response_ends_there_and_has_every_fork(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mine")
    for text in ("one", "two"):
        await send(chat, text)
        harness.clock.advance(1)
    first, second = await harness.store.links(chat.session.id)

    view = await load_response_view(harness.store, first.id)

    assert view_fields(view) == {
        **DEFAULTS,
        "handle": first.id,
        "strategy": Strategy.CHAIN,
        "scope": EMBEDDED_SCOPE,
        "path": ["one", "one"],
        "confirmed_head": 2,
        "links": [first.id, second.id],
        "path_index": ["one", "one", "two", "two"],
        "current_link_id": first.id,
        "session_names": {chat.session.id: "mine"},
    }


async def add_mirror(harness: ChatHarness, name: str, handle: str, **changes: Any) -> Session:
    """Store a session that mirrors a conversation of another endpoint."""
    harness.clock.advance(1)
    session = Session(
        f"ses_{name}", name, Strategy.CONVERSATION, "m", ROOT, ROOT, 1.0, harness.clock.now(), handle=handle
    )
    await harness.store.commit(Transaction(session=replace(session, **changes), expected_session_head=None))
    return session


async def test_a_handle_of_another_endpoint_finds_the_session_used_last(harness: ChatHarness) -> None:
    await add_mirror(harness, "first", "conv_far_1", scope=REMOTE_SCOPE)
    second = await add_mirror(harness, "second", "conv_far_1", scope=REMOTE_SCOPE)
    longer = await add_mirror(harness, "longer", "conv_far_12", scope=REMOTE_SCOPE)

    async def find(handle: str) -> str | None:
        session = await find_mirror_session(harness.store, handle)
        return session.id if session else None

    assert [await find(handle) for handle in ("conv_far_1", "conv_far_12", "conv_f_", "far", "first")] == [
        second.id,
        longer.id,
        None,
        None,
        None,
    ]
    with pytest.raises(AmbiguousHandle) as caught:
        await find("conv_far")
    assert caught.value.candidates == (
        ("conv_far_12", "conversation  longer"),
        ("conv_far_1", "conversation  second"),
        ("conv_far_1", "conversation  first"),
    )
    assert (await load_handle_view(harness.store, "conv_far_12")).handle == "conv_far_12"


def test_a_call_is_known_by_its_turn_and_its_id() -> None:
    assert make_call_key(3, "call_1") == "3/call_1"


async def test_a_first_turn_that_was_sent_again_is_another_root(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    await send(chat, "one")
    harness.clock.advance(1)
    async for _ in chat.retry():
        pass
    view = await load_handle_view(harness.store, "mine")
    assert [link.parent_id for link in view.links] == [None, None]
    assert view.current_link_id == view.links[1].id
