"""The properties of each owner of the state, and the positions of turns, answers and compactions on a path."""

from collections.abc import Sequence
from typing import Any

import pytest

from convo.errors import InvalidUsage
from convo.history.items import SUMMARY_HEADING, Item, assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.strategies.requests import build_request_body
from convo.strategies.strategy import (
    STRATEGIES,
    ConversationState,
    RequestInput,
    RetryAction,
    RetryDecision,
    compaction_depth,
    is_complete_answer,
    last_answer_depth,
    last_turn_start,
    last_user_depth,
    shorten_path,
    to_resendable_items,
)

ROOT = Path(root_key("local"))

CLIENT: dict[str, Any] = {
    "handle_prefix": "",
    "id_noun": "",
    "is_server_side": False,
    "uses_file": False,
    "uses_conversation": False,
    "uses_response": False,
    "unknown_outcome": RetryDecision(RetryAction.YES, "nothing was stored, so it is safe to retry"),
}

OWNERS: dict[Strategy, dict[str, Any]] = {
    Strategy.REPLAY: {
        **CLIENT,
        "description": "the application: a JSON file",
        "storage_description": "saved to a file",
        "handle_format": "a file",
        "uses_file": True,
    },
    Strategy.SESSION: {
        **CLIENT,
        "description": "the local store",
        "storage_description": "saved locally",
        "handle_format": "a session's name or id",
    },
    Strategy.CONVERSATION: {
        **CLIENT,
        "description": "the endpoint's Conversations API",
        "storage_description": "saved by the endpoint's Conversations API",
        "handle_format": "conv_...",
        "handle_prefix": "conv_",
        "id_noun": "conversation",
        "is_server_side": True,
        "uses_conversation": True,
        "unknown_outcome": RetryDecision(RetryAction.READ_FIRST, "the endpoint may have processed it"),
    },
    Strategy.CHAIN: {
        **CLIENT,
        "description": "the endpoint's Responses API",
        "storage_description": "saved by the endpoint's Responses API",
        "handle_format": "resp_...",
        "handle_prefix": "resp_",
        "id_noun": "response",
        "is_server_side": True,
        "uses_response": True,
        "unknown_outcome": RetryDecision(RetryAction.YES, "a second response would only be a fork"),
    },
}


@pytest.mark.parametrize("strategy", Strategy)
def test_each_owner_has_its_properties(strategy: Strategy) -> None:
    owner = STRATEGIES[strategy]
    assert {name: getattr(owner, name) for name in OWNERS[strategy]} == OWNERS[strategy]
    state = ConversationState(strategy, ROOT, ROOT.head)
    assert (state.owner, state.is_server_side, state.handle) == (owner, owner.is_server_side, None)


@pytest.mark.parametrize("strategy", Strategy)
def test_a_chain_confirms_nothing_of_another_history(strategy: Strategy) -> None:
    owner = STRATEGIES[strategy]
    path = ROOT.append([user_message("a"), assistant_message("b")])
    is_chain = strategy is Strategy.CHAIN
    assert owner.confirmed_at_start(3) == (0 if is_chain else 3)
    replaced = owner.replace_path(ConversationState(strategy, ROOT, ROOT.head, "h"), path, 1)
    assert replaced == ConversationState(
        strategy, path, ROOT.head if is_chain else path.first(1).head, None if is_chain else "h"
    )


# -- positions on a path ---------------------------------------------------------------------------

USER, ANSWER = user_message("a"), assistant_message("b")
PARTIAL: Item = {**ANSWER, "status": "incomplete"}
CALL: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c", "output": "1"}
SUMMARY = user_message(f"{SUMMARY_HEADING}\n\nThey counted.")
COMPACTION: Item = {"type": "compaction", "encrypted_content": "x"}


@pytest.mark.parametrize(
    ("item", "is_complete"),
    [
        (ANSWER, True),
        ({**ANSWER, "status": "completed"}, True),
        ({**ANSWER, "status": None}, True),
        (PARTIAL, False),
        ({**ANSWER, "status": "in_progress"}, False),
        (USER, False),
        ({"role": "system", "content": "x"}, False),
        (CALL, True),
        ({**CALL, "status": "incomplete"}, False),
        (OUTPUT, False),
        ({**OUTPUT, "status": "completed"}, False),
        ({"type": "reasoning", "summary": []}, True),
    ],
)
def test_a_complete_answer_is_complete_output_of_a_model(item: Item, is_complete: bool) -> None:
    assert is_complete_answer(item) is is_complete


@pytest.mark.parametrize(
    ("items", "answer", "compaction", "user", "turn_start"),
    [
        ([], 0, 0, 0, 0),
        ([USER], 0, 0, 1, 0),
        ([USER, ANSWER], 2, 0, 1, 0),
        ([USER, ANSWER, USER, USER, PARTIAL], 2, 0, 4, 2),
        ([USER, ANSWER, USER, CALL, OUTPUT], 4, 0, 3, 2),
        ([ANSWER], 1, 0, 0, 1),
        ([USER, COMPACTION, USER, ANSWER], 4, 2, 3, 2),
        ([SUMMARY, USER, USER], 0, 1, 3, 1),
        ([SUMMARY, PARTIAL], 0, 1, 1, 2),
        ([SUMMARY, COMPACTION, USER], 2, 2, 3, 2),
    ],
)
def test_the_last_answer_compaction_message_and_turn_of_a_path(
    items: Sequence[Item], answer: int, compaction: int, user: int, turn_start: int
) -> None:
    path = ROOT.append(items)
    state = ConversationState(Strategy.SESSION, path, path.root)
    assert (last_answer_depth(state), compaction_depth(path), last_user_depth(path), last_turn_start(path)) == (
        answer,
        compaction,
        user,
        turn_start,
    )
    assert last_answer_depth(ConversationState(Strategy.SESSION, path, path.head)) == 0


def test_an_answer_before_the_confirmed_head_does_not_count() -> None:
    path = ROOT.append([USER, ANSWER, USER, CALL])
    depths = [last_answer_depth(ConversationState(Strategy.CHAIN, path, path.first(end).head)) for end in range(5)]
    assert depths == [4, 4, 4, 4, 0]


def test_a_path_that_cannot_be_shortened_has_no_message() -> None:
    path = ROOT.append([USER, ANSWER])
    assert shorten_path(path, 1) == path.first(1)
    assert shorten_path(path, 0) == ROOT
    for whole, since in ((path, "yet"), (ROOT.append([SUMMARY]), "since the compaction")):
        with pytest.raises(InvalidUsage) as caught:
            shorten_path(whole, len(whole))
        assert (caught.value.message, caught.value.hint) == (
            f"the conversation has no message {since}",
            "type a message",
        )


def test_resendable_items_are_complete_in_pairs_and_without_ids() -> None:
    items: list[Item] = [
        {**PARTIAL, "id": "msg_1"},
        {**CALL, "id": "fc_1", "status": "incomplete"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {**OUTPUT, "id": "fco_1"},
    ]
    assert to_resendable_items(items) == (ANSWER,)


# -- the body of a request -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instructions", "state_fields", "parameters", "body"),
    [
        (None, {}, {}, {}),
        ("", {}, {}, {}),
        ("Hi.", {"store": False}, {"top_p": 1}, {"instructions": "Hi.", "store": False, "top_p": 1}),
        (None, {"store": False, "include": ["a"]}, {"include": ["b", "a"]}, {"store": False, "include": ["a", "b"]}),
        (None, {}, {"include": ["b"]}, {"include": ["b"]}),
        (None, {}, {"include": None}, {"include": None}),
        (None, {"store": False}, {"store": True}, {"store": True}),
    ],
)
def test_a_body_has_the_state_and_the_parameters(
    instructions: str | None, state_fields: dict[str, Any], parameters: dict[str, Any], body: dict[str, Any]
) -> None:
    request_input = RequestInput((USER,), 1, state_fields)
    made = build_request_body(request_input, model="m", instructions=instructions, parameters=parameters)
    assert made == {"model": "m", "input": [USER], **body}
