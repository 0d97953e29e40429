"""Rewinding to any position between two turns, for every owner."""

from dataclasses import replace

import pytest

from convo.errors import InvalidUsage, WrongOwner
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link, Strategy
from convo.history.tree import Path, root_key
from convo.strategies.branching import rewind_to_depth
from convo.strategies.strategy import ConversationState
from tests.strategy_owners import CLIENT_OWNED

CALL: Item = {"type": "function_call", "call_id": "c", "name": "tea", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c", "output": "hot"}
PATH = Path(root_key("local")).append(
    [
        user_message("one"),
        assistant_message("first"),
        user_message("two"),
        CALL,
        OUTPUT,
        assistant_message("second"),
        user_message("three"),
        assistant_message("third"),
    ]
)


def make_state(strategy: Strategy) -> ConversationState:
    handle = {Strategy.CHAIN: "resp_4", Strategy.CONVERSATION: "conv_1"}.get(strategy)
    return ConversationState(strategy, PATH, PATH.head, handle)


def link(input_depth: int, sent: int, previous: str | None) -> Link:
    """Return the link whose input is the first `input_depth` items of the path."""
    return Link(
        id="resp_x",
        input_head=PATH.first(input_depth).head,
        head=PATH.first(input_depth + 1).head,
        sent_count=sent,
        model="m",
        strategy=Strategy.CHAIN,
        status="completed",
        created_at=0,
        previous_response_id=previous,
    )


@pytest.mark.parametrize("depth", [0, 2, 6])
@pytest.mark.parametrize("strategy", CLIENT_OWNED)
def test_a_client_owned_history_can_be_truncated_anywhere(strategy: Strategy, depth: int) -> None:
    rewound = rewind_to_depth(make_state(strategy), depth, None)
    assert (rewound.path, rewound.unconfirmed_nodes, rewound.handle) == (PATH.first(depth), (), None)


def test_a_chain_continues_from_the_response_that_ended_there() -> None:
    rewound = rewind_to_depth(make_state(Strategy.CHAIN), 6, link(7, 1, "resp_3"))
    assert (rewound.path, rewound.unconfirmed_nodes, rewound.handle) == (PATH.first(6), (), "resp_3")


def test_before_its_first_response_a_chain_starts_again_with_its_first_input() -> None:
    rewound = rewind_to_depth(make_state(Strategy.CHAIN), 2, link(3, 3, None))
    assert (len(rewound.unconfirmed_nodes), rewound.handle) == (2, None)
    assert rewind_to_depth(make_state(Strategy.CHAIN), 0, link(1, 1, None)).path == PATH.first(0)


@pytest.mark.parametrize("first_link", [None, link(7, 3, "resp_2")])
def test_a_chain_without_a_response_there_is_not_rewound(first_link: Link | None) -> None:
    with pytest.raises(InvalidUsage, match="no response of this chain ends there"):
        rewind_to_depth(make_state(Strategy.CHAIN), 2, first_link)


def test_confirmed_items_of_a_conversation_cannot_be_rewound() -> None:
    with pytest.raises(WrongOwner) as error:
        rewind_to_depth(make_state(Strategy.CONVERSATION), 2, None)
    assert error.value.hint.startswith("convo convert conv_1 --to session")


@pytest.mark.parametrize("strategy", Strategy)
def test_unconfirmed_items_are_dropped_under_every_strategy(strategy: Strategy) -> None:
    state = replace(make_state(strategy), path=PATH.append([user_message("four")]))
    assert rewind_to_depth(state, len(PATH), None) == make_state(strategy)


@pytest.mark.parametrize("strategy", Strategy)
def test_a_rewind_to_the_head_is_refused(strategy: Strategy) -> None:
    with pytest.raises(InvalidUsage, match="no turn follows"):
        rewind_to_depth(make_state(strategy), len(PATH), None)


def test_a_rewind_to_before_a_compaction_is_refused() -> None:
    path = Path(root_key("local")).append(
        [user_message("one"), {"type": "compaction", "encrypted_content": "x"}, user_message("two")]
    )
    with pytest.raises(InvalidUsage, match="compaction"):
        rewind_to_depth(ConversationState(Strategy.SESSION, path, path.head), 1, None)


@pytest.mark.parametrize(
    ("path", "depth", "message", "hint"),
    [
        (PATH, len(PATH), "no turn follows that turn", "/rewind N, with an earlier turn"),
        (
            Path(root_key("local")).append([user_message("one"), {"type": "compaction"}, user_message("two")]),
            1,
            "the history before a compaction is another branch",
            "convo inspect shows it",
        ),
    ],
)
def test_the_error_says_which_turn_can_be_rewound_to(path: Path, depth: int, message: str, hint: str) -> None:
    with pytest.raises(InvalidUsage) as error:
        rewind_to_depth(ConversationState(Strategy.SESSION, path, path.head), depth, None)
    assert (error.value.message, error.value.hint) == (message, hint)


def test_the_end_of_a_compaction_can_be_rewound_to() -> None:
    path = Path(root_key("local")).append([user_message("one"), {"type": "compaction"}, user_message("two")])
    assert rewind_to_depth(ConversationState(Strategy.SESSION, path, path.head), 2, None).path == path.first(2)


def test_a_confirmed_turn_names_the_way_to_undo_it() -> None:
    with pytest.raises(WrongOwner) as error:
        rewind_to_depth(make_state(Strategy.CONVERSATION), 2, None)
    assert error.value.message == "the endpoint stores these turns, so they cannot be undone here"
    assert error.value.hint == "convo convert conv_1 --to session, then undo them there"
    with pytest.raises(InvalidUsage) as chain:
        rewind_to_depth(make_state(Strategy.CHAIN), 2, None)
    assert chain.value.message == "no response of this chain ends there"
    assert chain.value.hint == "convo inspect shows the responses"


def test_the_confirmed_head_of_a_conversation_can_be_rewound_to() -> None:
    state = replace(make_state(Strategy.CONVERSATION), path=PATH.append([user_message("four"), user_message("five")]))
    rewound = rewind_to_depth(state, len(PATH) + 1, None)
    assert (len(rewound.path), rewound.confirmed_head) == (len(PATH) + 1, PATH.head)


def test_a_chain_restarts_before_its_first_item_only() -> None:
    for next_link in (None, link(1, 1, "resp_0")):
        rewound = rewind_to_depth(make_state(Strategy.CHAIN), 0, next_link)
        assert (rewound.path, rewound.handle, rewound.confirmed_head) == (PATH.first(0), None, PATH.root)
    with pytest.raises(InvalidUsage):
        rewind_to_depth(make_state(Strategy.CHAIN), 1, None)
