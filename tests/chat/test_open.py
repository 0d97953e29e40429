"""Opening a conversation by every kind of handle, and forking each kind of owner."""

from pathlib import Path

import pytest

from convo.chat.conversation import Chat
from convo.chat.open import find_free_file, find_selected_session, fork_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.errors import AmbiguousHandle, NotFound, WrongOwner
from convo.history.items import user_message
from convo.history.records import Scope, Strategy
from convo.stores.base import Store
from convo.strategies.selection import OwnerSelection
from tests.chat.conftest import Bench, say
from tests.chat.recorded import Recorded
from tests.wire import spoken, state

ASKING = RequestOptions("scripted/echo", "scripted/echo")


async def one_of_each(bench: Bench) -> dict[Strategy, Chat]:
    """A conversation of one turn for every owner."""
    chats = {strategy: await bench.open(strategy, name=f"by-{strategy}") for strategy in Strategy}
    for chat in chats.values():
        await say(chat, "one")
    return chats


@pytest.mark.parametrize("strategy", Strategy)
async def test_every_handle_of_a_session_goes_on_with_it(bench: Bench, strategy: Strategy) -> None:
    session = (await one_of_each(bench))[strategy].session
    named = [session.name, session.name[:-1], session.id, *([session.handle] if session.handle else [])]
    for handle in named:
        implied = strategy if handle == session.handle else None
        assert await find_selected_session(bench.store, OwnerSelection(implied, handle)) == session


async def test_the_session_used_last_is_gone_on_with_and_not_the_one_made_last(bench: Bench) -> None:
    chats = await one_of_each(bench)
    bench.clock.advance(60)
    await say(chats[Strategy.REPLAY], "two")
    assert (
        await find_selected_session(bench.store, OwnerSelection(None, use_last_session=True))
        == chats[Strategy.REPLAY].session
    )


async def test_without_a_handle_a_new_conversation_begins(bench: Bench) -> None:
    await one_of_each(bench)
    assert await find_selected_session(bench.store, OwnerSelection(None)) is None
    assert await find_selected_session(bench.store, OwnerSelection(Strategy.CHAIN)) is None


@pytest.mark.parametrize("handle", ["nope", "by-nobody", "@last"])
async def test_a_handle_that_names_nothing_is_not_found(store: Store, handle: str) -> None:
    with pytest.raises(NotFound):
        await find_selected_session(store, OwnerSelection(None, handle))


async def test_a_beginning_that_several_sessions_share_is_refused_with_their_names(bench: Bench) -> None:
    await one_of_each(bench)
    with pytest.raises(AmbiguousHandle) as caught:
        await find_selected_session(bench.store, OwnerSelection(None, "by-"))
    assert {words for _, words in caught.value.candidates} == {f"session  by-{strategy}" for strategy in Strategy}


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("named", Strategy)
async def test_a_record_is_opened_by_its_owners_flag_and_by_no_other(
    bench: Bench, strategy: Strategy, named: Strategy
) -> None:
    chats = await one_of_each(bench)
    bench.clock.advance(60)
    await say(chats[strategy], "two")
    if named is strategy:
        assert (
            await find_selected_session(bench.store, OwnerSelection(named, use_last_session=True))
            == chats[strategy].session
        )
        return
    with pytest.raises(WrongOwner, match=f"'by-{strategy}' is owned by .* \\(--{strategy}\\), not by "):
        await find_selected_session(bench.store, OwnerSelection(named, use_last_session=True))


async def test_a_chain_goes_on_from_an_older_response_as_a_session_of_its_own(bench: Bench) -> None:
    chat = await bench.open(Strategy.CHAIN, name="mine")
    await say(chat, "one")
    first = chat.session.handle
    await say(chat, "two")

    branch = await bench.open(Strategy.CHAIN, first)
    await say(branch, "other")

    assert branch.session.id != chat.session.id
    assert spoken(branch.state.path.items) == ["user: one", "assistant: one", "user: other", "assistant: other"]
    assert state(bench.bodies[-1]) == {"previous_response_id": first}
    assert await bench.store.session("mine") == chat.session


async def test_nothing_is_stored_before_something_is_said(bench: Bench) -> None:
    for strategy in Strategy:
        await bench.open(strategy, name=f"by-{strategy}")
    assert await bench.store.sessions() == []


class Elsewhere(Recorded):
    """The same endpoint under another address."""

    scope = Scope("https://elsewhere.test/v1")


async def test_a_response_of_another_endpoint_is_refused_and_both_are_named(bench: Bench) -> None:
    chat = await bench.open(Strategy.CHAIN)
    await say(chat, "one")
    edges = ChatDeps(bench.store, Elsewhere(bench.endpoint), bench.clock, bench.edges.new_id)
    with pytest.raises(WrongOwner, match=r"belongs to embedded, not to https://elsewhere\.test/v1"):
        await open_chat(OwnerSelection(Strategy.CHAIN, chat.session.handle), None, ASKING, edges)


# -- forks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Strategy.REPLAY, Strategy.SESSION, Strategy.CHAIN])
async def test_a_fork_goes_on_from_where_its_source_stands_and_leaves_it_alone(
    bench: Bench, strategy: Strategy
) -> None:
    chat = await bench.open(strategy, name="mine")
    await say(chat, "one")
    before = chat.session

    second = await fork_session(before, ASKING, bench.edges)
    await say(second, "two")

    whole = ["user: one", "assistant: one", "user: two"]
    assert spoken(bench.bodies[-1]["input"]) == (["user: two"] if strategy is Strategy.CHAIN else whole)
    assert state(bench.bodies[-1]) == (
        {"previous_response_id": before.handle} if strategy is Strategy.CHAIN else {"store": False}
    )
    assert await bench.store.session("mine") == before
    assert (second.session.name, second.session.strategy) == ("mine-2", strategy)
    assert spoken(second.state.path.items) == [*whole, "assistant: two"]


async def test_a_fork_begins_behind_what_was_confirmed(bench: Bench) -> None:
    chat = await bench.open(Strategy.SESSION, name="mine")
    await say(chat, "one")
    events = chat.send([user_message("two")])
    await anext(events)
    await events.aclose()
    second = await fork_session(chat.session, ASKING, bench.edges)
    assert spoken(chat.state.path.items)[2:] == ["user: two"]
    assert spoken(second.state.path.items) == ["user: one", "assistant: one"]


async def test_a_fork_of_a_file_goes_to_a_file_beside_it(bench: Bench, tmp_path: Path) -> None:
    chat = await bench.open(Strategy.REPLAY, name="mine")
    await say(chat, "one")
    before = (tmp_path / "talk.json").read_bytes()

    second = await fork_session(chat.session, ASKING, bench.edges)
    await say(second, "two")

    assert second.session.handle == str(tmp_path / "talk-2.json")
    assert (tmp_path / "talk.json").read_bytes() == before
    assert b"two" in (tmp_path / "talk-2.json").read_bytes()


async def test_a_conversation_is_not_forked(bench: Bench) -> None:
    chat = await bench.open(Strategy.CONVERSATION)
    await say(chat, "one")
    with pytest.raises(WrongOwner, match="cannot be forked: its endpoint stores it as one list"):
        await fork_session(chat.session, ASKING, bench.edges)


async def test_a_fork_has_the_name_that_it_is_given(bench: Bench) -> None:
    chat = await bench.open(Strategy.SESSION, name="mine")
    await say(chat, "one")
    assert (await fork_session(chat.session, ASKING, bench.edges, name="other")).session.name == "other"


@pytest.mark.parametrize(
    ("there", "free"),
    [([], "talk.json"), (["talk.json"], "talk-2.json"), (["talk.json", "talk-2.json"], "talk-3.json")],
)
def test_a_file_that_is_there_is_not_taken(tmp_path: Path, there: list[str], free: str) -> None:
    for name in there:
        (tmp_path / name).touch()
    assert find_free_file(str(tmp_path / "talk.json")) == str(tmp_path / free)
