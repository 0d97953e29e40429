"""Sentences that no run is needed for: what a state holds, which items are the same, when to compact."""

import copy
import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from convo.agents import Graph
from convo.compaction import Mode, Standing, Way, Wish, plan
from convo.errors import BadState, Refused, StateFault, TryLater, Usage, WrongOwner
from convo.history import Path, Strategy, root
from convo.items import Item, assistant, user
from convo.models.foreign import Asked, refused
from convo.run import Stage
from convo.runstate import read
from convo.runstate.taking import taken
from convo.strategies import Held, Resend, may_resend, reconcile, replaced, send, wanted
from tests.runstate import snapshots
from tests.runstate.stories import agents

START = Path(root("local"))
SERVERS = [Strategy.CHAIN, Strategy.CONVERSATION]


def graph_of(scenario: str) -> Graph:
    """The agents of the newest release's snapshot."""
    found = next(one for one in snapshots.index() if (one["schema"], one["scenario"]) == ("1.21", scenario))
    return agents(snapshots.story(found["file"]))


def taken_from(scenario: str, document: Any, among: Graph | None = None, **given: Any) -> Any:
    return taken(read(json.dumps(document).encode()), among or graph_of(scenario), **given)


# -- owners -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", SERVERS)
def test_when_a_session_is_asked_for_together_with_a_server_owner_it_is_refused(other: Strategy) -> None:
    with pytest.raises(WrongOwner, match="one owner a conversation"):
        wanted([Strategy.SESSION, other], None)


def test_when_a_conversation_and_a_chain_are_asked_for_together_it_is_refused() -> None:
    with pytest.raises(WrongOwner, match="--chain and --conversation exclude each other"):
        wanted(SERVERS, None)
    with pytest.raises(WrongOwner, match="belongs to"):
        wanted([Strategy.CHAIN], "conv_1")


def test_when_a_state_has_a_conversation_that_is_its_owner_and_no_session_is() -> None:
    document = snapshots.document("server_parallel_partial", "1.21")
    found = taken_from("server_parallel_partial", document)
    assert (found.strategy, found.handle) == (Strategy.CONVERSATION, document["conversation_id"])
    with pytest.raises(BadState, match="one owner"):
        taken_from("server_parallel_partial", {**document, "previous_response_id": "resp_1"})


# -- what a state holds ---------------------------------------------------------------------------------------


def test_when_a_state_is_taken_up_a_chain_goes_on_from_the_last_response_that_has_an_id() -> None:
    document = snapshots.document("auto_previous_response_id", "1.21")
    last = document["model_responses"][-1]
    document["model_responses"].append({**last, "response_id": None})
    found = taken_from("auto_previous_response_id", document)
    assert (found.strategy, found.handle) == (Strategy.CHAIN, last["response_id"])


def test_when_approvals_are_among_the_items_of_a_state_they_are_never_sent() -> None:
    document = snapshots.document("single_approval", "1.21")
    assert "tool_approval_item" in json.dumps(document)
    found = taken_from("single_approval", document)
    assert [item.get("type", "message") for item in found.items] == ["message", "function_call"]


def test_when_a_state_is_read_from_a_copy_the_same_is_known_as_sent() -> None:
    """Nothing depends on which object an item is."""
    items = (user("hi"), assistant("hello"), user("more"))
    path = START.grow(copy.deepcopy(items[:2]))
    held = Held(Strategy.CONVERSATION, START.grow(items), path.head, "conv_1")
    assert send(held).items == (items[2],)


def test_when_the_applications_values_are_given_anew_decisions_and_counts_of_a_state_stay() -> None:
    document = snapshots.document("parallel_mixed_decided", "1.21")
    among = graph_of("parallel_mixed_decided")
    before = taken_from("parallel_mixed_decided", document, among)
    after = taken_from("parallel_mixed_decided", document, among, values={"user": "kim"})
    assert after.values == {"user": "kim"}
    assert [call.stage for call in after.run.batch] == [Stage.READY, Stage.DONE]
    assert replace(after, values=before.values) == before


@pytest.mark.parametrize("name", ["45_args_tampered_pending_only", "46_args_tampered_execution_only"])
def test_when_arguments_to_run_differ_from_those_that_were_approved_the_state_is_refused(name: str) -> None:
    with pytest.raises(BadState, match="what is approved must be what runs"):
        read(snapshots.malformed()[f"{name}.json"])


# -- what an owner has ------------------------------------------------------------------------------------------


def test_when_only_part_of_the_input_was_taken_the_rest_is_sent_and_otherwise_all_of_it_once() -> None:
    said = [user("a"), user("b"), user("c")]
    held = Held(Strategy.CONVERSATION, START.grow(said), START.root, "conv_1")
    assert [node.item for node in reconcile(held, said[:1]).unacknowledged] == said[1:]
    assert reconcile(held, []) == held
    assert send(held).items == tuple(said)


def test_when_the_server_has_an_item_equal_to_one_that_waits_it_does_not_wait_any_more() -> None:
    held = Held(Strategy.CONVERSATION, START.grow([{"role": "user", "content": "a"}, user("b")]), START.root, "conv_1")
    there = {**user("a"), "id": "msg_1", "status": "completed"}
    assert [node.item for node in reconcile(held, [there]).unacknowledged] == [user("b")]


# -- asking again -------------------------------------------------------------------------------------------------


def answered(status: int, headers: dict[str, str] | None = None) -> Any:
    body = {"error": {"message": "Oops.", "type": "x", "param": None, "code": None}}
    return refused(httpx2.Response(status, headers=headers or {}, json=body), Asked("openai"))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_when_a_status_passes_the_same_is_asked_again_and_a_conversation_is_read_first(status: int) -> None:
    assert isinstance(answered(status), TryLater)
    verdicts = {one: may_resend(one, answered(status), answering=False).resend for one in Strategy}
    careful = Resend.YES if status == 429 else Resend.READ_FIRST
    assert verdicts == {**dict.fromkeys(Strategy, Resend.YES), Strategy.CONVERSATION: careful}


@pytest.mark.parametrize("status", [400, 404, 422])
def test_when_a_status_is_final_nothing_is_asked_again(status: int) -> None:
    assert may_resend(Strategy.SESSION, answered(status), answering=False).resend is Resend.NO


def test_when_a_server_says_whether_and_when_to_ask_again_that_counts() -> None:
    never = answered(503, {"x-should-retry": "false"})
    assert (type(never), never.status) == (Refused, 503)
    soon = answered(400, {"x-should-retry": "true", "retry-after": "7"})
    assert (type(soon), soon.retry_after_s) == (TryLater, 7.0)
    assert isinstance(answered(503, {"x-should-retry": "perhaps"}), TryLater)


# -- compaction ---------------------------------------------------------------------------------------------------

TALK: tuple[Item, ...] = (user("one"), assistant("first"), user("two"), assistant("second"))


def test_when_a_turn_is_taken_back_its_response_is_no_longer_what_is_compacted() -> None:
    path = START.grow(TALK)
    cut = Standing(Strategy.CHAIN, path.first(2), here=False, stored={path.head: "resp_2"})
    assert plan(cut, Wish()).way is Way.INPUT
    with pytest.raises(Usage, match="no endpoint can look this history up"):
        plan(cut, Wish(Mode.PREVIOUS))


def test_when_the_last_response_was_not_stored_the_items_are_compacted_and_not_its_id() -> None:
    path = START.grow(TALK)
    standing = Standing(Strategy.CHAIN, path, here=False, stored={path.first(2).head: "resp_1"})
    made = plan(standing, Wish())
    assert (made.way, made.previous, len(made.folded)) == (Way.INPUT, None, 4)


@pytest.mark.parametrize("mode", Mode)
def test_when_a_call_or_a_hosted_tools_request_waits_nothing_is_compacted(mode: Mode) -> None:
    request: Item = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "pay"}
    for waiting in (request, {"type": "function_call", "call_id": "c1", "name": "pay"}):
        path = START.grow([*TALK, waiting])
        with pytest.raises(StateFault, match="of pay waits for"):
            plan(Standing(Strategy.CHAIN, path, here=False, stored={path.head: "resp_1"}), Wish(mode))
    verdict: Item = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    path = START.grow([*TALK, request, verdict])
    assert plan(Standing(Strategy.CHAIN, path, here=False, stored={}), Wish()).folded == path.items


@pytest.mark.parametrize("strategy", Strategy)
def test_when_a_window_takes_the_place_of_a_history_no_id_of_its_messages_is_sent(strategy: Strategy) -> None:
    """With reasoning or without: an id means something in a server's own list alone."""
    path = START.grow(TALK)
    window = [{**assistant("they counted"), "id": "msg_1", "status": "completed"}]
    held = replaced(Held(strategy, path, path.head, "h"), path, window)
    sent = send(held).items if strategy is not Strategy.CONVERSATION else held.path.items
    assert [item.get("id") for item in sent] == [None]
