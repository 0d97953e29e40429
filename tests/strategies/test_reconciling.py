"""What an owner took although nobody told us is taken up, and nothing is said twice."""

from dataclasses import replace

from convo.history import Path, Strategy, root
from convo.items import Item, assistant, user
from convo.strategies import Held, after_mark, reconcile

BEFORE = (user("hi"), {**assistant("hello"), "id": "msg_1"})
ANSWER = {**assistant("the whole answer"), "id": "msg_2", "status": "completed"}


def holding(*unacknowledged: Item) -> Held:
    path = Path(root("local")).grow(BEFORE)
    return Held(Strategy.CONVERSATION, path.grow(unacknowledged), path.head, "conv_1")


def lacking(held: Held) -> list[Item]:
    return [node.item for node in held.unacknowledged]


def test_an_owner_that_took_nothing_is_sent_everything() -> None:
    held = holding(user("more"))
    assert reconcile(held, []) == held


def test_an_owner_that_answered_is_sent_nothing_again() -> None:
    held = reconcile(holding(user("more")), [{**user("more"), "id": "msg_9"}, ANSWER])

    assert lacking(held) == []
    assert held.path.items[-1] == ANSWER


def test_a_whole_answer_takes_the_place_of_the_partial_that_was_seen() -> None:
    held = holding(user("more"), {**assistant("the whole"), "status": "incomplete"}, user("thanks"))
    held = reconcile(held, [user("more"), ANSWER])

    assert lacking(held) == [user("thanks")]
    assert assistant("the whole") not in [replace_id(item) for item in held.path.items]


def test_input_that_was_taken_without_an_answer_is_not_said_twice() -> None:
    assert lacking(reconcile(holding(user("more"), user("again")), [user("more")])) == [user("again")]


def test_items_of_another_writer_are_taken_up_before_what_is_lacking() -> None:
    held = reconcile(holding(user("more")), [user("somebody else"), {**assistant("yes?"), "id": "msg_7"}])

    assert lacking(held) == [user("more")]
    assert held.path.items[2] == user("somebody else")


def test_the_same_words_twice_are_two_items() -> None:
    assert lacking(reconcile(holding(user("more"), user("more")), [user("more")])) == [user("more")]


def test_the_tail_begins_after_the_item_that_carries_the_known_id() -> None:
    twin = {**assistant("hello"), "id": "msg_8"}
    newest_first = [twin, user("hi again"), BEFORE[1], BEFORE[0]]
    assert after_mark(holding(), newest_first) == [user("hi again"), twin]


def test_a_tail_that_does_not_reach_back_to_the_mark_is_not_a_tail() -> None:
    assert after_mark(holding(), [user("x")]) is None


def test_a_conversation_that_never_confirmed_anything_has_only_a_tail() -> None:
    fresh = replace(holding(), path=Path(root("local")).grow([user("a")]), mark=root("local"))
    assert after_mark(fresh, [assistant("b"), user("a")]) == [user("a"), assistant("b")]


def replace_id(item: Item) -> Item:
    return {key: value for key, value in item.items() if key not in ("id", "status")}
