"""The requests of a whole conversation under each strategy, as recorded.

First turn, follow-up, a failed turn and its retry, an interrupted turn and its follow-up, and a continuation in
another process, for all four strategies. Streamed and collected turns use the same loop; both are tested.
"""

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from convo.chat.conversation import Chat
from convo.errors import RequestRefused
from convo.history.items import assistant_message, item_text, user_message
from convo.history.records import Strategy
from convo.stores.base import Store, Transaction
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import EndpointFault, Killed
from tests.request_items import message_lines, state_fields

CLIENT_STRATEGIES = [Strategy.REPLAY, Strategy.SESSION]
REFUSED = RequestRefused("the model is not here", code="model_not_found", status=404)


def expected_state(chat: Chat) -> dict[str, object]:
    """The state fields of a follow-up request, by strategy."""
    match chat.session.strategy:
        case Strategy.CHAIN:
            return {"previous_response_id": chat.session.handle}
        case Strategy.CONVERSATION:
            return {"conversation": chat.session.handle}
        case _:
            return {"store": False}


def expected_input(strategy: Strategy, before: list[str], new: list[str]) -> list[str]:
    return [*before, *new] if strategy in CLIENT_STRATEGIES else new


async def stop_midway(chat: Chat, text: str) -> None:
    """Send a message and close the stream after its first delta, as Ctrl-C does."""
    async with aclosing(chat.send([user_message(text)])) as events:
        async for event in events:
            if event["type"].endswith(".delta"):
                return


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_failed_turn_keeps_its_input_and_a_retry_sends_the_same_request(
    harness: ChatHarness, strategy: Strategy
) -> None:
    chat = await harness.open(strategy)
    await send(chat, "one")
    harness.endpoint.faults = [EndpointFault(REFUSED)]
    with pytest.raises(RequestRefused):
        await send(chat, "two")

    events = [event async for event in chat.retry()]

    assert harness.bodies[2] == harness.bodies[1]
    assert events[-1]["type"] == "response.completed"
    assert not chat.state.unconfirmed_nodes


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("in_another_process", [False, True], ids=["here", "in another process"])
async def test_after_an_interruption_the_partial_answer_is_sent_as_text(
    harness: ChatHarness, strategy: Strategy, in_another_process: bool
) -> None:
    chat = await harness.open(strategy, name="mine")
    await send(chat, "one")
    await stop_midway(chat, "two and a good deal more than that")
    partial_item = chat.state.path.items[-1]
    partial = item_text(partial_item)

    await send(await harness.open(None, "mine") if in_another_process else chat, "three")

    assert partial_item["status"] == "incomplete"
    assert "two and a good deal more than that".startswith(partial)
    assert 0 < len(partial) < len("two and a good deal more than that")
    assert message_lines(harness.bodies[2]["input"]) == expected_input(
        strategy,
        ["user: one", "assistant: one"],
        ["user: two and a good deal more than that", f"assistant: {partial}", "user: three"],
    )
    assert all("id" not in item and "status" not in item for item in harness.bodies[2]["input"][-2:])


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_retry_after_an_interruption_sends_only_the_old_input(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await harness.open(strategy)
    await send(chat, "one")
    await stop_midway(chat, "two and a good deal more than that")

    [event async for event in chat.retry()]

    assert harness.bodies[2] == harness.bodies[1]


@pytest.mark.parametrize("strategy", Strategy)
async def test_undo_after_an_interruption_removes_input_and_partial_answer(
    harness: ChatHarness, strategy: Strategy
) -> None:
    chat = await harness.open(strategy)
    await send(chat, "one")
    await stop_midway(chat, "two and a good deal more than that")

    await chat.undo()
    await send(chat, "three")

    assert message_lines(harness.bodies[2]["input"]) == expected_input(
        strategy, ["user: one", "assistant: one"], ["user: three"]
    )


@pytest.mark.parametrize("strategy", [*CLIENT_STRATEGIES, Strategy.CHAIN])
async def test_undo_of_a_confirmed_turn_continues_from_the_previous_one(
    harness: ChatHarness, strategy: Strategy
) -> None:
    chat = await harness.open(strategy)
    await send(chat, "one")
    state_before = expected_state(chat)
    await send(chat, "two")

    await chat.undo()
    await send(chat, "three")

    assert message_lines(harness.bodies[2]["input"]) == expected_input(
        strategy, ["user: one", "assistant: one"], ["user: three"]
    )
    assert state_fields(harness.bodies[2]) == state_before


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_answer_that_a_killed_process_did_not_receive_is_read_by_the_next_one(
    harness: ChatHarness, strategy: Strategy
) -> None:
    chat = await harness.open(strategy, name="mine")
    await send(chat, "one")
    harness.endpoint.faults = [EndpointFault(Killed(), after=None)]
    with pytest.raises(Killed):
        await send(chat, "two")

    reopened = await harness.open(None, "mine")
    await send(reopened, "three")

    recovered = [] if strategy in CLIENT_STRATEGIES else ["two"]
    assert [item_text(item) for item in reopened.state.path.items] == [
        "one",
        "one",
        "two",
        *recovered,
        "three",
        "three",
    ]
    assert message_lines(harness.bodies[2]["input"]) == expected_input(
        strategy, ["user: one", "assistant: one", "user: two"], ["user: three"]
    )


async def test_a_replay_file_edited_between_turns_is_the_history_that_is_sent(
    harness: ChatHarness, tmp_path: Path
) -> None:
    chat = await harness.open(Strategy.REPLAY)
    await send(chat, "one")
    path = tmp_path / "talk.json"
    path.write_text(path.read_text().replace("one", "uno"))

    await send(chat, "two")

    assert message_lines(harness.bodies[1]["input"]) == ["user: uno", "assistant: uno", "user: two"]


async def test_a_replay_file_with_easy_input_messages_is_sent_unchanged(harness: ChatHarness, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(
        '[{"role": "user", "content": "knock"}, {"role": "assistant", "content": "who?"}]'
    )
    chat = await harness.open(Strategy.REPLAY)

    await send(chat, "me")

    assert harness.bodies[0]["input"] == [
        {"role": "user", "content": "knock"},
        {"role": "assistant", "content": "who?"},
        user_message("me"),
    ]
    assert chat.state.path.items[1] == {"role": "assistant", "content": "who?"}
    assert assistant_message("me")["role"] == chat.state.path.items[-1]["role"]


class KilledStore:
    """The store of a process that is killed after `commits` commits: at a commit, or without `reads` at a read."""

    def __init__(self, store: Store, commits: int, *, reads: bool) -> None:
        self.store, self.remaining_commits, self.reads = store, commits, reads

    def __getattr__(self, name: str) -> Any:
        if not (self.remaining_commits or self.reads) and name != "admin":  # `admin` reads the free space of the disk
            raise Killed
        return getattr(self.store, name)

    async def commit(self, transaction: Transaction) -> None:
        if not self.remaining_commits:
            raise Killed
        await self.store.commit(transaction)
        self.remaining_commits -= 1


async def test_a_message_survives_two_kills_around_the_write_of_the_file(harness: ChatHarness) -> None:
    await send(await harness.open(Strategy.REPLAY, name="mine"), "one")
    original_deps = harness.deps
    file_written = original_deps._replace(store=KilledStore(harness.store, 2, reads=True))
    nothing_sent = original_deps._replace(store=KilledStore(harness.store, 1, reads=False))
    for text, deps, faults in (("two", file_written, []), ("three", nothing_sent, [EndpointFault(Killed())])):
        harness.deps, harness.endpoint.faults = deps, faults
        with pytest.raises(Killed):
            await send(await harness.open(None, "mine"), text)
    harness.deps = original_deps

    await send(await harness.open(None, "mine"), "four")

    assert message_lines(harness.bodies[-1]["input"])[-3:] == ["assistant: two", "user: three", "user: four"]
