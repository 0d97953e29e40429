"""Reconciliation: items that the owner stored without a confirmation are kept, and nothing is sent twice."""

from dataclasses import replace

import pytest

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.strategies.requests import items_after_confirmed, reconcile
from convo.strategies.strategy import ConversationState

BEFORE = (user_message("hi"), {**assistant_message("hello"), "id": "msg_1"})
ANSWER = {**assistant_message("the whole answer"), "id": "msg_2", "status": "completed"}


def make_state(*unacknowledged: Item) -> ConversationState:
    path = Path(root_key("local")).append(BEFORE)
    return ConversationState(Strategy.CONVERSATION, path.append(unacknowledged), path.head, "conv_1")


def missing_items(state: ConversationState) -> list[Item]:
    return [node.item for node in state.unconfirmed_nodes]


def test_a_server_without_the_turn_is_sent_everything() -> None:
    state = make_state(user_message("more"))
    assert reconcile(state, []) == state


def test_a_server_that_answered_is_sent_nothing_again() -> None:
    state = reconcile(make_state(user_message("more")), [{**user_message("more"), "id": "msg_9"}, ANSWER])

    assert missing_items(state) == []
    assert state.path.items[-1] == ANSWER


def test_a_complete_answer_replaces_the_partial_answer() -> None:
    state = make_state(
        user_message("more"), {**assistant_message("the whole"), "status": "incomplete"}, user_message("thanks")
    )
    state = reconcile(state, [user_message("more"), ANSWER])

    assert missing_items(state) == [user_message("thanks")]
    assert assistant_message("the whole") not in [replace_id(item) for item in state.path.items]


def test_input_that_was_stored_without_an_answer_is_not_sent_twice() -> None:
    assert missing_items(
        reconcile(make_state(user_message("more"), user_message("again")), [user_message("more")])
    ) == [user_message("again")]


def test_items_of_another_writer_come_before_the_missing_items() -> None:
    state = reconcile(
        make_state(user_message("more")), [user_message("somebody else"), {**assistant_message("yes?"), "id": "msg_7"}]
    )

    assert missing_items(state) == [user_message("more")]
    assert state.path.items[2] == user_message("somebody else")


def test_two_equal_messages_are_two_items() -> None:
    assert missing_items(reconcile(make_state(user_message("more"), user_message("more")), [user_message("more")])) == [
        user_message("more")
    ]


def test_the_tail_starts_after_the_item_with_the_known_id() -> None:
    twin = {**assistant_message("hello"), "id": "msg_8"}
    newest_first = [twin, user_message("hi again"), BEFORE[1], BEFORE[0]]
    assert items_after_confirmed(make_state(), newest_first) == [user_message("hi again"), twin]


def test_a_tail_that_does_not_reach_the_confirmed_head_is_refused() -> None:
    assert items_after_confirmed(make_state(), [user_message("x")]) is None


def test_a_conversation_without_a_confirmed_head_has_only_a_tail() -> None:
    fresh = replace(
        make_state(), path=Path(root_key("local")).append([user_message("a")]), confirmed_head=root_key("local")
    )
    assert items_after_confirmed(fresh, [assistant_message("b"), user_message("a")]) == [
        user_message("a"),
        assistant_message("b"),
    ]


def replace_id(item: Item) -> Item:
    return {key: value for key, value in item.items() if key not in ("id", "status")}


def test_a_conversation_without_unconfirmed_items_gets_those_of_others() -> None:
    state = reconcile(make_state(), [user_message("somebody else"), ANSWER])
    assert (state.path.items[2:], missing_items(state)) == ((user_message("somebody else"), ANSWER), [])
    assert state.handle == "conv_1"


@pytest.mark.parametrize("earlier", [[], [user_message("somebody else")]])
def test_a_partial_response_stays_where_the_owner_has_no_answer(earlier: list[Item]) -> None:
    partial = {**assistant_message("hal"), "status": "incomplete"}
    state = reconcile(make_state(user_message("more"), partial), [*earlier, user_message("more")])
    assert missing_items(state) == [partial]
    result = reconcile(make_state(user_message("more"), partial), [*earlier, user_message("more"), ANSWER])
    assert missing_items(result) == []


def test_an_item_without_an_id_is_known_by_its_meaning() -> None:
    path = Path(root_key("local")).append([user_message("hi")])
    state = ConversationState(Strategy.CONVERSATION, path, path.head, "conv_1")
    newest_first = [ANSWER, {**user_message("hi"), "id": "msg_1"}]
    assert items_after_confirmed(state, newest_first) == [ANSWER]
    assert items_after_confirmed(make_state(), [ANSWER, {**BEFORE[1], "id": None}]) == [ANSWER]
