"""Behaviours that need no run: owners, imported states, equal items, retries and compaction."""

import copy
import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from convo.agents.graph import Graph
from convo.compaction.planning import (
    CompactionMethod,
    CompactionMode,
    CompactionOptions,
    HistorySnapshot,
    plan_compaction,
)
from convo.errors import InvalidRunState, InvalidUsage, RequestRefused, StateFault, TryLater, WrongOwner
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.models.errors import ErrorContext
from convo.models.http import fault_from_response
from convo.runs.state import Stage
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import parse_run_state
from convo.strategies.branching import replace_history
from convo.strategies.requests import decide_retry, reconcile
from convo.strategies.selection import select_owner
from convo.strategies.strategy import ConversationState, RetryAction
from tests.runstate import snapshots
from tests.runstate.scenario_runs import scenario_graph
from tests.strategy_owners import SERVER_OWNED

EMPTY_PATH = Path(root_key("local"))


def scenario_agents(scenario: str) -> Graph:
    """The agents of a scenario in the snapshots with schema 1.21."""
    entry = next(entry for entry in snapshots.index() if (entry["schema"], entry["scenario"]) == ("1.21", scenario))
    return scenario_graph(snapshots.load_scenario(entry["file"]))


def import_state(scenario: str, document: Any, agent_graph: Graph | None = None, **options: Any) -> Any:
    return import_run_state(
        parse_run_state(json.dumps(document).encode()), agent_graph or scenario_agents(scenario), **options
    )


# -- owners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", SERVER_OWNED)
def test_when_a_session_and_server_side_state_are_requested_together_it_is_refused(other: Strategy) -> None:
    with pytest.raises(WrongOwner, match="a conversation has one owner"):
        select_owner([Strategy.SESSION, other], None)


def test_when_a_conversation_and_a_chain_are_requested_together_it_is_refused() -> None:
    with pytest.raises(WrongOwner, match="--chain and --conversation cannot be used together"):
        select_owner(SERVER_OWNED, None)
    with pytest.raises(WrongOwner, match="belongs to"):
        select_owner([Strategy.CHAIN], "conv_1")


def test_when_a_state_has_a_conversation_the_conversation_is_its_only_owner() -> None:
    document = snapshots.document("server_parallel_partial", "1.21")
    imported = import_state("server_parallel_partial", document)
    assert (imported.strategy, imported.handle) == (Strategy.CONVERSATION, document["conversation_id"])
    with pytest.raises(InvalidRunState, match="one owner"):
        import_state("server_parallel_partial", {**document, "previous_response_id": "resp_1"})


# -- imported states -------------------------------------------------------------------------------


def test_when_a_state_is_imported_a_chain_continues_from_the_last_response_with_an_id() -> None:
    document = snapshots.document("auto_previous_response_id", "1.21")
    last = document["model_responses"][-1]
    document["model_responses"].append({**last, "response_id": None})
    imported = import_state("auto_previous_response_id", document)
    assert (imported.strategy, imported.handle) == (Strategy.CHAIN, last["response_id"])


def test_when_approvals_are_among_the_items_of_a_state_they_are_never_sent() -> None:
    document = snapshots.document("single_approval", "1.21")
    assert "tool_approval_item" in json.dumps(document)
    imported = import_state("single_approval", document)
    assert [item.get("type", "message") for item in imported.items] == ["message", "function_call"]


def test_when_items_are_copies_the_same_items_count_as_sent() -> None:
    """Items are compared by value, not by identity."""
    items = (user_message("hi"), assistant_message("hello"), user_message("more"))
    path = EMPTY_PATH.append(copy.deepcopy(items[:2]))
    state = ConversationState(Strategy.CONVERSATION, EMPTY_PATH.append(items), path.head, "conv_1")
    assert state.owner.build_input(state).items == (items[2],)


def test_when_a_state_gets_new_context_values_its_decisions_and_counts_are_unchanged() -> None:
    document = snapshots.document("parallel_mixed_decided", "1.21")
    agent_graph = scenario_agents("parallel_mixed_decided")
    before = import_state("parallel_mixed_decided", document, agent_graph)
    after = import_state("parallel_mixed_decided", document, agent_graph, values={"user": "kim"})
    assert after.context_values == {"user": "kim"}
    assert [call.stage for call in after.run.calls] == [Stage.READY, Stage.DONE]
    assert replace(after, context_values=before.context_values) == before


@pytest.mark.parametrize("name", ["45_args_tampered_pending_only", "46_args_tampered_execution_only"])
def test_when_the_arguments_of_a_call_differ_from_the_approved_ones_the_state_is_refused(name: str) -> None:
    with pytest.raises(InvalidRunState, match="the approved call must be the call that runs"):
        parse_run_state(snapshots.malformed()[f"{name}.json"])


# -- confirmed items -------------------------------------------------------------------------------


def test_when_only_part_of_the_input_was_confirmed_the_rest_is_sent_and_otherwise_all_of_it_once() -> None:
    items = [user_message("a"), user_message("b"), user_message("c")]
    state = ConversationState(Strategy.CONVERSATION, EMPTY_PATH.append(items), EMPTY_PATH.root, "conv_1")
    assert [node.item for node in reconcile(state, items[:1]).unconfirmed_nodes] == items[1:]
    assert reconcile(state, []) == state
    assert state.owner.build_input(state).items == tuple(items)


def test_when_the_server_has_an_item_equal_to_an_unconfirmed_one_it_is_confirmed() -> None:
    state = ConversationState(
        Strategy.CONVERSATION,
        EMPTY_PATH.append([{"role": "user", "content": "a"}, user_message("b")]),
        EMPTY_PATH.root,
        "conv_1",
    )
    server_item = {**user_message("a"), "id": "msg_1", "status": "completed"}
    assert [node.item for node in reconcile(state, [server_item]).unconfirmed_nodes] == [user_message("b")]


# -- retries ---------------------------------------------------------------------------------------


def response_error(status: int, headers: dict[str, str] | None = None) -> Any:
    body = {"error": {"message": "Oops.", "type": "x", "param": None, "code": None}}
    return fault_from_response(httpx2.Response(status, headers=headers or {}, json=body), ErrorContext("openai"))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_when_a_status_is_temporary_the_request_is_retried_and_a_conversation_is_read_first(status: int) -> None:
    assert isinstance(response_error(status), TryLater)
    actions = {strategy: decide_retry(strategy, response_error(status)).action for strategy in Strategy}
    conversation_action = RetryAction.YES if status == 429 else RetryAction.READ_FIRST
    assert actions == {**dict.fromkeys(Strategy, RetryAction.YES), Strategy.CONVERSATION: conversation_action}


@pytest.mark.parametrize("status", [400, 404, 422])
def test_when_a_status_is_permanent_the_request_is_not_retried(status: int) -> None:
    assert decide_retry(Strategy.SESSION, response_error(status)).action is RetryAction.NO


def test_when_a_server_says_whether_and_when_to_retry_that_is_followed() -> None:
    permanent = response_error(503, {"x-should-retry": "false"})
    assert (type(permanent), permanent.status) == (RequestRefused, 503)
    temporary = response_error(400, {"x-should-retry": "true", "retry-after": "7"})
    assert (type(temporary), temporary.retry_after_s) == (TryLater, 7.0)
    assert isinstance(response_error(503, {"x-should-retry": "perhaps"}), TryLater)


# -- compaction ------------------------------------------------------------------------------------

HISTORY: tuple[Item, ...] = (
    user_message("one"),
    assistant_message("first"),
    user_message("two"),
    assistant_message("second"),
)


def test_when_a_turn_is_undone_its_response_is_not_compacted_by_its_id() -> None:
    path = EMPTY_PATH.append(HISTORY)
    snapshot = HistorySnapshot(Strategy.CHAIN, path.first(2), is_embedded=False, stored_responses={path.head: "resp_2"})
    assert plan_compaction(snapshot, CompactionOptions()).method is CompactionMethod.INPUT
    with pytest.raises(InvalidUsage, match="the endpoint stores no response at the end"):
        plan_compaction(snapshot, CompactionOptions(CompactionMode.PREVIOUS))


def test_when_the_last_response_was_not_stored_the_items_are_compacted_and_not_its_id() -> None:
    path = EMPTY_PATH.append(HISTORY)
    snapshot = HistorySnapshot(Strategy.CHAIN, path, is_embedded=False, stored_responses={path.first(2).head: "resp_1"})
    plan = plan_compaction(snapshot, CompactionOptions())
    assert (plan.method, plan.previous_response_id, len(plan.compacted_items)) == (CompactionMethod.INPUT, None, 4)


@pytest.mark.parametrize("mode", CompactionMode)
def test_when_a_call_or_an_mcp_approval_request_is_pending_nothing_is_compacted(mode: CompactionMode) -> None:
    request: Item = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "pay"}
    for pending_item in (request, {"type": "function_call", "call_id": "c1", "name": "pay"}):
        path = EMPTY_PATH.append([*HISTORY, pending_item])
        with pytest.raises(StateFault, match=r"pay has no output|pay needs approval"):
            plan_compaction(
                HistorySnapshot(Strategy.CHAIN, path, is_embedded=False, stored_responses={path.head: "resp_1"}),
                CompactionOptions(mode),
            )
    response: Item = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    path = EMPTY_PATH.append([*HISTORY, request, response])
    assert (
        plan_compaction(
            HistorySnapshot(Strategy.CHAIN, path, is_embedded=False, stored_responses={}), CompactionOptions()
        ).compacted_items
        == path.items
    )


@pytest.mark.parametrize("strategy", Strategy)
def test_when_a_compacted_window_replaces_a_history_no_id_of_its_messages_is_sent(strategy: Strategy) -> None:
    """An item id is only valid in the list of the server that created it."""
    path = EMPTY_PATH.append(HISTORY)
    compacted_items = [{**assistant_message("they counted"), "id": "msg_1", "status": "completed"}]
    state = replace_history(ConversationState(strategy, path, path.head, "h"), path, compacted_items)
    items = state.owner.build_input(state).items if strategy is not Strategy.CONVERSATION else state.path.items
    assert [item.get("id") for item in items] == [None]
