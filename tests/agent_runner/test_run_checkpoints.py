"""The position of a run in its conversation: its stored form, and the model's input in place of the conversation."""

from dataclasses import replace
from typing import Any

import pytest

from convo.agent_runner.config import RunConfig
from convo.agent_runner.persistence import (
    ModelView,
    RunCheckpoint,
    drop_partial_response,
    load_run_checkpoint,
    make_model_view,
    run_checkpoint_to_json,
)
from convo.agents.agent import Agent
from convo.errors import Conflict
from convo.history.items import assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Key, Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from convo.strategies.strategy import ConversationState
from tests.chat.agent_runs import open_runner, scripted_model, send_message, tool_calls
from tests.chat.conftest import ChatHarness
from tests.chat.tool_log import ToolLog

ITEMS = [user_message("one"), assistant_message("two"), user_message("three")]
PATH = Path(root_key("local")).append(ITEMS)
FIRST, SECOND, THIRD = PATH.keys
UNKNOWN = Key("unknown")
SHORT = Path(PATH.root).append([user_message("short")])

IN_MEMORY = pytest.mark.parametrize("store", ["memory"], indirect=True)


@pytest.mark.parametrize(
    ("checkpoint", "document"),
    [
        (RunCheckpoint(FIRST, SECOND), {"begun": FIRST, "turn": SECOND, "filtered": None, "view": None}),
        (
            RunCheckpoint(FIRST, SECOND, None, (THIRD, None)),
            {"begun": FIRST, "turn": SECOND, "filtered": [THIRD, None], "view": None},
        ),
        (
            RunCheckpoint(FIRST, FIRST, ModelView(SHORT, 1, SECOND), (THIRD, "Be brief.")),
            {
                "begun": FIRST,
                "turn": FIRST,
                "filtered": [THIRD, "Be brief."],
                "view": {"items": [user_message("short")], "upto": SECOND, "history": 1},
            },
        ),
        (
            RunCheckpoint(FIRST, SECOND, ModelView(SHORT, 1, THIRD, (SHORT.head, THIRD))),
            {
                "begun": FIRST,
                "turn": SECOND,
                "filtered": None,
                "view": {"head": SHORT.head, "upto": THIRD, "history": 1},
            },
        ),
    ],
)
@IN_MEMORY
async def test_a_checkpoint_is_loaded_as_it_was_stored(
    store: Store, checkpoint: RunCheckpoint, document: dict[str, Any]
) -> None:
    conversation = Conversation("conv_1", SHORT.head, 0.0, ("item_1",))
    await store.commit(Transaction((AppendItems(SHORT.root, SHORT.items),), conversation=conversation))
    assert run_checkpoint_to_json(checkpoint) == document
    assert await load_run_checkpoint(document, PATH, store) == checkpoint
    if checkpoint.view:  # without the node that it replaces, the view is of another conversation
        changed = await load_run_checkpoint(document, PATH.first(1), store)
        assert changed == replace(checkpoint, view=None)


@IN_MEMORY
async def test_a_run_without_a_checkpoint_begins_at_the_end_of_its_conversation(store: Store) -> None:
    assert await load_run_checkpoint(None, PATH, store) == RunCheckpoint(THIRD, THIRD)


def test_a_view_follows_its_conversation() -> None:
    view = make_model_view([user_message("short")], PATH.first(2))
    assert (view.path, view.initial_count, view.source_head, view.anchor) == (SHORT, 1, SECOND, None)
    extended = view.extend_to(PATH)
    assert extended.path.items == (user_message("short"), user_message("three"))
    assert (extended.initial_count, extended.source_head) == (1, THIRD)
    with pytest.raises(Conflict):
        extended.extend_to(PATH.first(2))


@pytest.mark.parametrize(
    ("request_head", "confirmed_head", "remaining"),
    [
        (SECOND, FIRST, 2),
        (SECOND, SECOND, 2),
        (SECOND, THIRD, 3),
        (Key("unknown"), FIRST, 3),
        (PATH.root, PATH.root, 0),
    ],
)
def test_a_partial_response_is_dropped_unless_it_was_confirmed(
    request_head: Key, confirmed_head: Key, remaining: int
) -> None:
    state = ConversationState(Strategy.SESSION, PATH, confirmed_head, None)
    assert len(drop_partial_response(state, RunCheckpoint(FIRST, request_head)).path) == remaining


@IN_MEMORY
async def test_a_stored_view_refers_to_the_items_of_the_last_request(harness: ChatHarness, tool_log: ToolLog) -> None:
    agent = Agent("desk", tools=(tool_log.tool("pay", needs_approval=True),))
    await send_message(await open_runner(harness, agent), "hello")
    harness.model = scripted_model(harness.folder, tool_calls("pay"))
    one = await open_runner(harness, agent, RunConfig(session_limit=1))
    await send_message(one, "well?")
    link = one.chat.record.last_link
    assert one.run_row
    assert link
    assert one.run_row.document["standing"]["view"] == {
        "head": link.head,
        "upto": one.chat.state.path.head,
        "history": 2,
    }
    assert one.run_row.document["standing"]["turn"] == one.chat.state.path.keys[-2]
    assert len((await harness.store.path(link.head)).items) == 3
