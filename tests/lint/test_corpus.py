"""Each broken history has its findings, and a strict server accepts it after the repair."""

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.history.items import Item, user_message
from convo.history.records import EMBEDDED_SCOPE, Strategy
from convo.history.tree import Path, root_key
from convo.lint.model import LintView
from convo.lint.repair import repair_for_file, repair_for_session
from convo.lint.rules import LINT_RULES, lint_history
from convo.responses_api.deps import EndpointOptions
from convo.stores.base import AppendItems, Conversation, Store, Transaction
from convo.stores.memory import MemoryStore
from convo.strategies.strategy import ConversationState
from tests.clock import FixedClock
from tests.embedded_endpoint import make_embedded_endpoint
from tests.lint.corpus import CORPUS

MODEL = "scripted/echo"


async def send_next_message(view: LintView) -> str:
    """Send one more message to a strict endpoint; return the type of the last event. Raises RequestRefused."""
    store = MemoryStore()
    items, state = await build_next_request(view, store)
    endpoint = make_embedded_endpoint(store, FixedClock(), options=EndpointOptions(strict=True))
    async with aclosing(endpoint.create({"model": MODEL, "input": [*items, user_message("go on")], **state})) as events:
        return str([event async for event in events][-1]["type"])


async def build_next_request(view: LintView, store: Store) -> tuple[tuple[Item, ...], dict[str, Any]]:
    """Return the items and state fields of the next request; commit the server-side part to `store`."""
    if view.strategy is Strategy.REPLAY:  # the client sends the whole history
        return view.items, {"store": False}
    path = Path(root_key(store.tenant)).append(view.items)
    confirmed_path = path.first(view.server_count)
    handle = None
    changes = (AppendItems(path.root, confirmed_path.items),)
    if view.strategy is Strategy.CHAIN:
        assert view.anchor
        link = replace(
            view.anchor,
            input_head=path.root,
            head=confirmed_path.head,
            scope=EMBEDDED_SCOPE,
            parent_id=None,
            session_id=None,
            is_stored=True,
        )
        handle = link.id
        await store.commit(Transaction(changes, (link,)))
    elif view.strategy is Strategy.CONVERSATION:
        handle, ids = "conv_1", tuple(f"item_{depth}" for depth in range(view.server_count))
        await store.commit(Transaction(changes, conversation=Conversation(handle, confirmed_path.head, 0, ids)))
    state = ConversationState(view.strategy, path, confirmed_path.head, handle)
    turn = state.owner.build_input(state)
    return tuple(turn.items), dict(turn.state_fields)


def test_a_broken_history_is_found_with_exactly_these_codes() -> None:
    for broken in CORPUS:
        assert tuple((one.code, one.issue.item_index) for one in lint_history(broken.view)) == broken.found, (
            broken.title
        )


async def test_the_corpus_marks_histories_that_a_strict_server_refuses() -> None:
    for broken in CORPUS:
        if broken.refused:
            with pytest.raises(RequestRefused):
                await send_next_message(broken.view)
        else:
            assert await send_next_message(broken.view) == "response.completed"


async def test_a_repaired_history_is_clean_and_a_strict_server_accepts_it() -> None:
    for broken in CORPUS:
        before = broken.view.items
        repaired = repair_for_session(broken.view)
        assert lint_history(repaired.view) == ()
        assert await send_next_message(repaired.view) == "response.completed"
        assert broken.view.items == before
        assert {one.code for one in repaired.changes} - {""} <= {code for code, _ in broken.found} | CAUSED_BY_REPAIR


async def test_a_history_repaired_into_a_file_can_be_sent_to_any_server() -> None:
    for broken in CORPUS:
        repaired = repair_for_file(broken.view)
        assert lint_history(repaired.view) == ()
        assert repaired.view.strategy is Strategy.REPLAY
        assert await send_next_message(repaired.view) == "response.completed"


def test_repairing_twice_gives_the_same() -> None:
    for broken in CORPUS:
        assert repair_for_session(broken.view) == repair_for_session(broken.view)
        assert repair_for_file(broken.view) == repair_for_file(broken.view)


def test_every_rule_is_in_the_corpus() -> None:
    assert {code for broken in CORPUS for code, _ in broken.found} == {rule.code for rule in LINT_RULES}


CAUSED_BY_REPAIR = {"call-without-output", "output-without-call"}
"""Codes that another repair may cause: it removes one item of a pair, and the other one is repaired too."""
