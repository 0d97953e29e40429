"""The input of each request for each owner, turn by turn."""

from dataclasses import replace

import pytest

from convo.errors import Conflict, StateIgnored
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.responses_api.history import select_new_items
from convo.responses_api.validation import parse_response_request
from convo.strategies.requests import apply_cancellation, build_request_body
from convo.strategies.strategy import ConversationState, RequestInput
from tests.call_count import CallCount
from tests.strategy_owners import CLIENT_OWNED

ENDPOINTS = [Strategy.CONVERSATION, Strategy.CHAIN]
HANDLES = {Strategy.CONVERSATION: "conv_1"}


def answer(text: str, number: int = 1) -> dict[str, Item]:
    return {**assistant_message(text), "id": f"msg_{number}", "status": "completed"}


def response(*output: Item, number: int = 1) -> dict[str, object]:
    return {"id": f"resp_{number}", "status": "completed", "output": list(output)}


def make_state(strategy: Strategy, *items: Item) -> ConversationState:
    empty = Path(root_key("local"))
    return ConversationState(strategy, empty.append(items), empty.root, HANDLES.get(strategy))


def add_items(state: ConversationState, *items: Item) -> ConversationState:
    return replace(state, path=state.path.append(items))


def next_input(state: ConversationState, *, encrypt_reasoning: bool = False) -> RequestInput:
    return state.owner.build_input(state, encrypt_reasoning=encrypt_reasoning)


def after_one_turn(strategy: Strategy) -> ConversationState:
    first = make_state(strategy, user_message("hi"))
    return first.owner.apply_response(first, first.owner.build_input(first), response(answer("hello")))


@pytest.mark.parametrize("strategy", Strategy)
def test_a_first_turn_sends_the_input_under_every_strategy(strategy: Strategy) -> None:
    assert next_input(make_state(strategy, user_message("hi"))).items == (user_message("hi"),)


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
def test_a_client_owner_sends_the_whole_path_without_ids_and_store_false(strategy: Strategy) -> None:
    now = add_items(after_one_turn(strategy), user_message("more"))
    sent = now.owner.build_input(now)

    assert [item.get("id") for item in sent.items] == [None, None, None]
    assert [item["content"][0]["text"] for item in sent.items] == ["hi", "hello", "more"]
    assert sent.state_fields == {"store": False}


@pytest.mark.parametrize(
    ("strategy", "state"),
    [(Strategy.CONVERSATION, {"conversation": "conv_1"}), (Strategy.CHAIN, {"previous_response_id": "resp_1"})],
)
def test_a_server_owner_gets_only_the_items_that_it_lacks(strategy: Strategy, state: dict[str, str]) -> None:
    sent = next_input(add_items(after_one_turn(strategy), user_message("more")))

    assert sent.items == (user_message("more"),)
    assert sent.state_fields == state


@pytest.mark.parametrize("strategy", Strategy)
def test_a_failed_turn_changes_nothing_so_that_a_retry_sends_the_same(strategy: Strategy) -> None:
    now = add_items(after_one_turn(strategy), user_message("more"))
    assert now.owner.build_input(now) == next_input(apply_cancellation(now, []))


@pytest.mark.parametrize("strategy", Strategy)
def test_after_an_interruption_the_partial_answer_is_sent_as_text_between_old_and_new_input(strategy: Strategy) -> None:
    partial = {**answer("half an ans", 2), "status": "in_progress"}
    cancelled = apply_cancellation(add_items(after_one_turn(strategy), user_message("more")), [partial])

    tail = next_input(add_items(cancelled, user_message("never mind"))).items[-3:]

    assert cancelled.path.items[-1] == {**partial, "status": "incomplete"}
    assert tail == (user_message("more"), assistant_message("half an ans"), user_message("never mind"))


@pytest.mark.parametrize("strategy", Strategy)
def test_a_partial_answer_without_text_is_not_stored(strategy: Strategy) -> None:
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c",
        "name": "f",
        "arguments": '{"a',
        "status": "in_progress",
    }
    now = add_items(after_one_turn(strategy), user_message("more"))
    assert apply_cancellation(now, [call]) == now


def test_a_chain_keeps_its_id_when_a_response_has_none() -> None:
    now = add_items(after_one_turn(Strategy.CHAIN), user_message("more"))
    assert (
        now.owner.apply_response(
            now, now.owner.build_input(now), {"status": "completed", "output": [answer("yes", 2)]}
        ).handle
        == "resp_1"
    )


def test_a_response_id_never_becomes_the_handle_of_a_conversation() -> None:
    assert after_one_turn(Strategy.CONVERSATION).handle == "conv_1"


@pytest.mark.parametrize("strategy", ENDPOINTS)
def test_a_path_without_the_confirmed_head_is_refused(strategy: Strategy) -> None:
    now = replace(after_one_turn(strategy), path=make_state(strategy, user_message("other")).path)
    with pytest.raises(Conflict):
        now.owner.build_input(now)


def test_confirmed_items_of_a_server_owner_are_stored_as_sent() -> None:
    cancelled = apply_cancellation(
        add_items(after_one_turn(Strategy.CHAIN), user_message("more")),
        [{**answer("half", 2), "status": "in_progress"}],
    )
    now = add_items(cancelled, user_message("go on"))

    confirmed = now.owner.apply_response(now, now.owner.build_input(now), response(answer("done", 3), number=2))

    assert confirmed.path.items[2:5] == (user_message("more"), assistant_message("half"), user_message("go on"))
    assert confirmed.confirmed_head == confirmed.path.head


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
def test_only_encrypted_reasoning_is_sent_again(strategy: Strategy) -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    encrypted = {**bare, "id": "rs_2", "encrypted_content": "gAAAA"}
    first = make_state(strategy, user_message("hi"))
    now = first.owner.apply_response(first, first.owner.build_input(first), response(bare, encrypted, answer("hello")))

    assert [item for item in now.owner.build_input(now).items if item.get("type") == "reasoning"] == [
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    ]
    assert now.path.items[1:3] == (bare, encrypted)


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
def test_encrypted_reasoning_is_requested_only_where_the_model_supports_it_and_nothing_is_stored(
    strategy: Strategy,
) -> None:
    now = make_state(strategy, user_message("hi"))
    assert now.owner.build_input(now, encrypt_reasoning=True).state_fields["include"] == ["reasoning.encrypted_content"]
    assert now.owner.build_input(now, store=True, encrypt_reasoning=True).state_fields == {"store": True}


def test_a_long_forked_history_is_sent_completely() -> None:
    """Cached results of one turn are reused in the next turn, but not for another history."""
    items = [user_message("hi"), {**assistant_message("yes"), "id": "msg_1", "status": "completed"}] * 200
    state = make_state(Strategy.SESSION, *items)
    for end in (1, 2, 399, 400, 3):
        assert len(next_input(replace(state, path=state.path.first(end))).items) == end
    forked = replace(state, path=state.path.first(200).append([user_message("other")]))

    assert forked.owner.build_input(forked).items == (
        *next_input(replace(state, path=state.path.first(200))).items,
        user_message("other"),
    )
    assert all("id" not in item for item in state.owner.build_input(state).items)


def test_includes_of_an_agent_do_not_replace_the_encrypted_reasoning() -> None:
    sent = next_input(make_state(Strategy.SESSION, user_message("hi")), encrypt_reasoning=True)
    body = build_request_body(sent, model="m", instructions=None, parameters={"include": ["file_search_call.results"]})
    assert body["include"] == ["reasoning.encrypted_content", "file_search_call.results"]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_request_counts_the_nodes_that_it_represents(strategy: Strategy) -> None:
    partial_call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{", "status": "incomplete"}
    now = add_items(after_one_turn(strategy), user_message("more"), partial_call)
    assert next_input(now).node_count == (4 if strategy in CLIENT_OWNED else 2)


def test_a_request_has_the_model_the_input_the_state_and_the_parameters() -> None:
    sent = RequestInput([user_message("hi")], 1, {"previous_response_id": "resp_1"})
    parameters = {"temperature": 0.5, "include": None}
    assert build_request_body(sent, model="m", instructions="Be brief.", parameters=parameters) == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [user_message("hi")],
        "previous_response_id": "resp_1",
        "temperature": 0.5,
        "include": None,
    }
    assert build_request_body(sent, model="m", instructions="", parameters={}) == {
        "model": "m",
        "input": [user_message("hi")],
        "previous_response_id": "resp_1",
    }


def test_a_field_is_included_once() -> None:
    sent = RequestInput([], 0, {"include": ["a", "b"]})
    body = build_request_body(sent, model="m", instructions=None, parameters={"include": ["c", "a"]})
    assert body["include"] == ["a", "b", "c"]
    assert build_request_body(sent, model="m", instructions=None, parameters={})["include"] == ["a", "b"]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_first_request_names_nothing_to_continue(strategy: Strategy) -> None:
    fields: dict[Strategy, dict[str, object]] = {
        Strategy.CONVERSATION: {"conversation": "conv_1"},
        Strategy.CHAIN: {},
        Strategy.SESSION: {"store": False},
        Strategy.REPLAY: {"store": False},
    }
    first = make_state(strategy, user_message("hi"))
    assert first.owner.build_input(first).state_fields == fields[strategy]
    assert first.owner.build_input(first, store=False, encrypt_reasoning=False).state_fields == fields[strategy]


@pytest.mark.parametrize("strategy", Strategy)
def test_only_a_chain_needs_the_id_of_a_response(strategy: Strategy) -> None:
    owner = make_state(strategy).owner
    owner.validate_response({"id": "resp_1"})
    if strategy is Strategy.CHAIN:
        with pytest.raises(StateIgnored, match="the response has no id, and a chain needs one to continue"):
            owner.validate_response({"id": ""})
    else:
        owner.validate_response({})


@pytest.mark.parametrize("strategy", Strategy)
def test_a_server_is_given_new_items_without_ids(strategy: Strategy) -> None:
    partial = {**answer("hal", 2), "status": "incomplete"}
    items: list[Item] = [answer("hello"), {"type": "reasoning", "id": "rs_1", "summary": []}, partial]
    unchanged = tuple(items)
    converted = ({**assistant_message("hello"), "status": "completed"}, assistant_message("hal"))
    assert make_state(strategy).owner.to_new_items(items) == (unchanged if strategy in CLIENT_OWNED else converted)


@pytest.mark.parametrize("status", [{}, {"status": "completed"}, {"status": "in_progress"}])
def test_output_of_a_cancelled_response_is_incomplete_whatever_its_status(status: dict[str, str]) -> None:
    now = make_state(Strategy.SESSION, user_message("hi"))
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", **status}
    cancelled = apply_cancellation(now, [call, {**assistant_message("hal"), **status}])
    assert cancelled.path.items[1:] == ({**assistant_message("hal"), "status": "incomplete"},)
    assert cancelled.confirmed_head == now.confirmed_head


@pytest.mark.parametrize("strategy", Strategy)
def test_only_a_chain_confirms_nothing_of_another_history(strategy: Strategy) -> None:
    assert make_state(strategy).owner.confirmed_at_start(3) == (0 if strategy is Strategy.CHAIN else 3)


@pytest.mark.parametrize("strategy", CLIENT_OWNED)
def test_a_turn_costs_only_its_new_items(strategy: Strategy) -> None:
    def count_calls(turns: int) -> int:
        state = make_state(strategy, *[user_message("hi"), assistant_message("hello")] * turns, user_message("go on"))
        send(state)
        apply_cancellation(state, [answer("do")])  # as a running turn stores a part of its answer
        state = add_items(state, assistant_message("done"), user_message("thanks"))
        with CallCount() as calls:
            assert len(send(state)) == len(state.path)
        return calls.total

    def send(state: ConversationState) -> Path:
        body = build_request_body(next_input(state), model="m", instructions=None, parameters={})
        return Path(root_key("local")).append(select_new_items(parse_response_request(body).items, (), {}))

    assert count_calls(1000) == count_calls(10)
