"""Edits of a replay file by other programs, before, during and after a turn, and after a kill."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from convo.chat.conversation import (
    Chat,
    find_adjacent_links,
    find_last_turn_start,
    find_turn_end,
    get_items_up_to_turn,
    merge_file_edits,
)
from convo.chat.open import fork_session
from convo.chat.session_record import RunUpdate
from convo.errors import NotFound, RequestRefused, StoreFull, Unreadable
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import AgentCall, AgentRun, Link, Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import Store, Transaction
from convo.stores.memory import MemoryStore
from convo.strategies.strategy import ConversationState
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import EndpointFault, Killed
from tests.inspect.conversation_builder import build_chain
from tests.request_items import message_lines
from tests.stores.failing_store import FailingStore

ROOT = root_key("local")


def file_lines(harness: ChatHarness) -> list[str]:
    return message_lines(json.loads((harness.folder / "talk.json").read_text()))


def write_items(harness: ChatHarness, *items: Item) -> None:
    (harness.folder / "talk.json").write_text(json.dumps(items))


async def stored_state(harness: ChatHarness, name: str = "mine") -> tuple[list[str], list[str], bool]:
    """The history and the unconfirmed items in the store, and whether the file counts as written."""
    session = await harness.store.session(name)
    assert session
    path = await harness.store.path(session.head)
    unconfirmed = [node.item for node in path.after(session.confirmed_head)]
    return message_lines(path.items), message_lines(unconfirmed), session.file_head == session.head


@pytest.fixture
async def chat(harness: ChatHarness) -> Chat:
    """A replayed conversation of one turn."""
    chat = await harness.open(Strategy.REPLAY, name="mine")
    await send(chat, "one")
    return chat


async def test_a_written_file_is_recorded(harness: ChatHarness, chat: Chat) -> None:
    lines = ["user: one", "assistant: one"]
    assert file_lines(harness) == lines
    assert await stored_state(harness) == (lines, [], True)


async def test_edits_during_a_response_are_merged_with_it(harness: ChatHarness, chat: Chat) -> None:
    notices: list[str] = []
    chat.notify = notices.append
    async for event in chat.send([user_message("two")]):
        if event["type"] == "response.created":
            write_items(harness, user_message("uno"), assistant_message("eins"))

    lines = ["user: uno", "assistant: eins", "user: two", "assistant: two"]
    assert notices == [f"{harness.folder / 'talk.json'} changed during the response; both changes are kept"]
    assert file_lines(harness) == message_lines(chat.state.path.items) == lines
    assert await stored_state(harness) == (lines, [], True)


async def test_a_file_of_another_process_is_not_overwritten(harness: ChatHarness, chat: Chat) -> None:
    """The record moved, so the file belongs to the process that moved it."""
    other = await harness.open(None, "mine")
    async for event in chat.send([user_message("two")]):
        if event["type"] == "response.completed":
            session = await harness.store.session("mine")
            assert session
            moved = replace(session, head=other.session.head, confirmed_head=other.session.head)
            await harness.store.commit(Transaction(session=moved, expected_session_head=session.head))
    assert file_lines(harness) == ["user: one", "assistant: one"]


async def test_a_file_that_lost_its_items_is_an_empty_history(harness: ChatHarness, chat: Chat) -> None:
    (harness.folder / "talk.json").unlink()
    assert await send(chat, "two") == "two"
    assert file_lines(harness) == ["user: two", "assistant: two"]


async def test_a_file_with_a_number_that_is_not_json_is_refused_with_its_name(harness: ChatHarness, chat: Chat) -> None:
    path = harness.folder / "talk.json"
    path.write_text('[{"role": "user", "content": [{"type": "input_text", "text": NaN}]}]')
    with pytest.raises(Unreadable) as caught:
        chat.load_state()
    assert caught.value.message.startswith(f"{path}: an item has no exact JSON form: ")


async def test_a_file_as_it_was_written_last_is_not_an_edit(harness: ChatHarness, chat: Chat) -> None:
    """The process was killed after the commit of the second turn and before it wrote the file."""
    text = (harness.folder / "talk.json").read_text()
    before = chat.session
    await send(chat, "two")
    killed = replace(chat.session, file_head=before.file_head)
    await harness.store.commit(Transaction(session=killed, expected_session_head=killed.head))
    (harness.folder / "talk.json").write_text(text)

    reopened = await harness.open(None, "mine")
    assert len(reopened.load_state().path) == 4
    await send(reopened, "three")
    assert file_lines(harness)[-3:] == ["assistant: two", "user: three", "assistant: three"]


async def test_a_question_after_an_edit_survives_a_kill(harness: ChatHarness, chat: Chat) -> None:
    """The process is killed after the commit of the question; the edited file is older than that and must not win."""
    write_items(harness, user_message("uno"), assistant_message("eins"))
    events = chat.send([user_message("two")])
    async for event in events:
        if event["type"] == "response.created":
            break
    reopened = await harness.open(None, "mine")
    assert message_lines(reopened.load_state().path.items) == ["user: uno", "assistant: eins", "user: two"]
    await events.aclose()


@pytest.mark.parametrize("file_head", [None, "first"])
async def test_a_file_that_equals_the_history_counts_as_written(
    harness: ChatHarness, chat: Chat, file_head: str | None
) -> None:
    """The process was killed after it wrote the file and before it recorded that."""
    first_head = chat.session.head
    await send(chat, "two")
    killed = replace(chat.session, file_head=first_head if file_head else None)
    await harness.store.commit(Transaction(session=killed, expected_session_head=killed.head))

    reopened = await harness.open(None, "mine")
    reopened.load_state()
    assert reopened.session.file_head == reopened.session.head
    write_items(harness, user_message("uno"))
    assert message_lines(reopened.load_state().path.items) == ["user: uno"]
    assert reopened.state.unconfirmed_nodes == ()


async def test_an_edit_of_an_empty_file_is_read(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.REPLAY, name="mine")
    assert len(chat.load_state().path) == 0
    write_items(harness, user_message("uno"), assistant_message("eins"))
    state = chat.load_state()
    assert (len(state.path), state.unconfirmed_nodes) == (2, ())
    await send(chat, "two")
    assert file_lines(harness) == ["user: uno", "assistant: eins", "user: two", "assistant: two"]
    write_items(harness)
    assert (len(chat.load_state().path), chat.state.confirmed_head) == (0, ROOT)


async def test_a_replaced_history_is_written_once_the_edits_are_applied(harness: ChatHarness, chat: Chat) -> None:
    summary = user_message("summary")

    def replace_all(state: ConversationState) -> ConversationState:
        path = Path(ROOT).append([summary, *state.path.items[1:]])
        return replace(state, path=path, confirmed_head=path.head)

    def make_link(state: ConversationState) -> Link:
        return Link("resp_s", state.path.head, state.path.head, 1, "m", Strategy.REPLAY, "completed", 1.0)

    write_items(harness, user_message("uno"), assistant_message("eins"))
    await chat.replace_history(replace_all, make_link)

    lines = ["user: summary", "assistant: eins"]
    assert file_lines(harness) == message_lines(chat.state.path.items) == lines
    assert await stored_state(harness) == (lines, [], True)
    assert chat.record.last_link == make_link(chat.state)
    # the file is unchanged since: no edit is found, and a response is appended to the new history
    await send(chat, "two")
    assert file_lines(harness) == [*lines, "user: two", "assistant: two"]


async def test_an_edit_while_the_history_is_replaced_wins(harness: ChatHarness, chat: Chat) -> None:
    summary = Path(ROOT).append([user_message("summary")])

    def edit_file(state: ConversationState) -> Link:
        write_items(harness, user_message("uno"))
        return Link("resp_s", summary.head, summary.head, 1, "m", Strategy.REPLAY, "completed", 1.0)

    await chat.replace_history(lambda state: replace(state, path=summary, confirmed_head=summary.head), edit_file)
    assert file_lines(harness) == message_lines(chat.state.path.items) == ["user: uno"]


async def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_sent(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.REPLAY, str(harness.folder / "nope" / "talk.json"))
    with pytest.raises(Unreadable, match="is not a folder, so talk"):
        await send(chat, "one")
    assert (harness.bodies, await harness.store.sessions()) == ([], [])


class KilledStore:
    """The store of a process that is killed after it stored the link `link_id`."""

    def __init__(self, store: Any, link_id: str) -> None:
        self._store, self._link_id = store, link_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, transaction: Transaction) -> None:
        await self._store.commit(transaction)
        if self._link_id in [link.id for link in transaction.links]:
            raise Killed


async def test_a_file_that_was_written_but_not_recorded_is_not_an_edit_of_a_replaced_history(
    harness: ChatHarness, chat: Chat
) -> None:
    store: Any = FailingStore(
        harness.store, StoreFull("no room"), failing=True, which=lambda change: not (change.appends or change.links)
    )
    deps = harness.deps
    harness.deps = deps._replace(store=cast(Store, KilledStore(store, "resp_s")))
    chat = await harness.open(None, "mine")
    with pytest.raises(StoreFull):
        await send(chat, "two")
    assert len(file_lines(harness)) == 4
    assert not (await stored_state(harness))[2]
    store.failing = False
    summary = Path(ROOT).append([user_message("summary")])
    link = Link("resp_s", summary.head, summary.head, 1, "m", Strategy.REPLAY, "completed", 1.0)

    with pytest.raises(Killed):
        await chat.replace_history(
            lambda state: replace(state, path=summary, confirmed_head=summary.head), lambda state: link
        )

    harness.deps = deps
    assert len(file_lines(harness)) == 4
    assert message_lines((await harness.open(None, "mine")).load_state().path.items) == ["user: summary"]


async def test_a_fork_of_a_replay_file_is_saved_with_its_file(harness: ChatHarness, chat: Chat) -> None:
    fork = await fork_session(chat.session, chat.options, harness.deps)
    await fork.ensure_saved()
    assert json.loads((harness.folder / "talk-2.json").read_text()) == json.loads(
        (harness.folder / "talk.json").read_text()
    )
    assert (await stored_state(harness, "mine-2"))[2]
    saved = await harness.store.session("mine-2")
    await fork.ensure_saved()
    assert await harness.store.session("mine-2") == saved


async def test_an_existing_file_of_a_new_session_is_not_written(harness: ChatHarness) -> None:
    text = json.dumps([user_message("hi")], indent=3)
    (harness.folder / "talk.json").write_text(text)
    chat = await harness.open(Strategy.REPLAY)
    await chat.ensure_saved()
    assert (harness.folder / "talk.json").read_text() == text
    assert chat.session.name == "hi"
    assert (await stored_state(harness, "hi"))[:2] == (["user: hi"], [])


async def test_a_failed_turn_leaves_its_message_in_the_file(harness: ChatHarness, chat: Chat) -> None:
    harness.endpoint.faults = [EndpointFault(RequestRefused("no"))]
    with pytest.raises(RequestRefused):
        await send(chat, "two")
    assert file_lines(harness) == ["user: one", "assistant: one", "user: two"]
    assert await stored_state(harness) == (file_lines(harness), ["user: two"], True)


# -- functions -------------------------------------------------------------------------------------

A, B, C, D = user_message("a"), assistant_message("b"), user_message("c"), assistant_message("d")


@pytest.mark.parametrize(
    ("read", "now", "confirmed_count", "file_items", "merged", "unconfirmed_count"),
    [
        ([A, B], [A, B, C, D], 4, [A], [A, C, D], 0),
        ([A, B], [A, B, C, D], 2, [A], [A, C, D], 2),
        ([A, B], [A, B, C, D], 3, [], [C, D], 1),
        ([A, B], [A, B, C], 1, [B], [B, C], 1),
        ([A, B], [A, B], 0, [C], [C], 0),
        ([], [A], 1, [C, D], [C, D, A], 0),
    ],
)
def test_new_items_follow_the_edited_file(
    read: Sequence[Item],
    now: Sequence[Item],
    confirmed_count: int,
    file_items: Sequence[Item],
    merged: Sequence[Item],
    unconfirmed_count: int,
) -> None:
    path = Path(ROOT).append(now)
    state = ConversationState(Strategy.REPLAY, path, path.first(confirmed_count).head, "talk.json")
    result = merge_file_edits(state, Path(ROOT).append(read), file_items)
    assert result.path.items == tuple(merged)
    assert (len(result.unconfirmed_nodes), result.handle) == (unconfirmed_count, "talk.json")


def test_the_items_up_to_a_turn() -> None:
    view = build_chain(3).view("resp_3")
    items = view.path.items
    assert [len(get_items_up_to_turn(view, number)) for number in (None, 0, 1, 3, -1)] == [6, 0, 2, 6, 4]
    assert get_items_up_to_turn(view, 2) == items[:4]
    with pytest.raises(NotFound):
        get_items_up_to_turn(view, 4)
    assert find_turn_end([A, A, B, C], -1) == 3


def make_links(*ids: str) -> tuple[Path, list[Link]]:
    """A path of one turn for each id, and its links, each with the one before it as its parent."""
    path, links = Path(ROOT), list[Link]()
    for link_id in ids:
        input_path = path.append([user_message(link_id)])
        path = input_path.append([assistant_message(link_id)])
        parent_id = links[-1].id if links else None
        links.append(
            Link(link_id, input_path.head, path.head, 1, "m", Strategy.CHAIN, "completed", 1.0, parent_id=parent_id)
        )
    return path, links


async def test_the_links_around_a_position_are_on_its_branch() -> None:
    store, (path, links) = MemoryStore(), make_links("resp_1", "resp_2", "resp_3")
    await store.commit(Transaction(links=tuple(replace(link, head=ROOT, input_head=ROOT) for link in links)))

    class LinkStore:
        """A store with these links; the items are not needed."""

        async def link(self, link_id: str) -> Link | None:
            return next((link for link in links if link.id == link_id), None)

    async def find(depth: int, last_link: Link | None) -> list[str | None]:
        after, before = await find_adjacent_links(path.first(depth), last_link, LinkStore())  # type: ignore[arg-type]
        return [link.id if link else None for link in (after, before)]

    assert await find(6, links[2]) == [None, "resp_3"]
    assert await find(5, links[2]) == ["resp_3", "resp_2"]
    assert await find(2, links[2]) == ["resp_2", "resp_1"]
    assert await find(0, links[2]) == ["resp_1", None]
    assert await find(2, None) == [None, None]
    links[0] = replace(links[0], parent_id="resp_2", head=path.head)  # a cycle
    assert await find(0, links[1]) == ["resp_1", "resp_2"]
    links[1] = replace(links[1], parent_id="resp_gone")
    assert await find(0, links[2]) == ["resp_2", None]


@pytest.mark.parametrize(
    ("items", "confirmed_count", "start"),
    [([A, B, C, D], 4, 2), ([A, B, C], 2, 2), ([A, B], 2, 0), ([A, B, C, D, A], 4, 4), ([A, A, B], 3, 0)],
)
def test_the_last_turn_begins_with_its_message(items: Sequence[Item], confirmed_count: int, start: int) -> None:
    path = Path(ROOT).append(items)
    state = ConversationState(Strategy.SESSION, path, path.first(confirmed_count).head)
    assert find_last_turn_start(state, None) == start


async def test_a_conversation_without_a_message_is_saved_without_a_name(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION)
    await chat.ensure_saved()
    assert [(session.id, session.name) for session in await harness.store.sessions()] == [(chat.session.id, "")]


async def test_a_record_knows_the_run_that_was_stored_last(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    await send(chat, "one")
    assert chat.record.agent_run is None
    runs = [AgentRun(f"run_{number}", chat.session.id, 1, "done", {}, 1.0, 1.0) for number in (1, 2)]
    await chat.record.commit(chat.state, run_update=RunUpdate(runs[0]))
    await chat.record.commit(chat.state)
    assert chat.record.agent_run == runs[0]
    await chat.record.commit_run(RunUpdate(runs[1]))
    await chat.record.commit_run(RunUpdate(calls=(AgentCall("run_2", "1/c", 1.0),)))
    assert chat.record.agent_run == runs[1]
    assert {run.id for run in await harness.store.agent_runs(session_id=chat.session.id)} == {"run_1", "run_2"}
