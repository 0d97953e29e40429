"""/retry and /undo, under every owner, before and after a turn was confirmed."""

from dataclasses import replace

import pytest

from convo.errors import Usage, WrongOwner
from convo.history import Key, Link, Path, Strategy, root
from convo.items import Item, assistant, user
from convo.strategies import Held, retry, undo

START = Path(root("local"))
ONE = (user("one"), assistant("first"))
TWO = (user("two"), assistant("second"))
GOING_BACK = [Strategy.REPLAY, Strategy.SESSION, Strategy.CHAIN]


def confirmed(strategy: Strategy) -> tuple[Held, Link]:
    """Two confirmed turns, and the link of the second."""
    path = START.grow([*ONE, *TWO])
    held = Held(strategy, path, path.head, {"chain": "resp_2", "conversation": "conv_1"}.get(strategy))
    return held, link(path.first(3).head, path.head)


def link(saw: Key, head: Key) -> Link:
    return Link(
        id="resp_2",
        saw=saw,
        head=head,
        sent=1,
        model="m",
        strategy=Strategy.CHAIN,
        status="completed",
        created_at=0,
        previous_response_id="resp_1",
    )


def words(held: Held) -> list[str]:
    return [item["content"][0]["text"] for item in held.path.items]


@pytest.mark.parametrize("strategy", Strategy)
def test_undo_of_an_unacknowledged_turn_goes_back_to_the_mark(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    partial: Item = {**assistant("hal"), "status": "incomplete"}
    assert undo(replace(held, path=held.path.grow([user("three"), partial])), last) == held


@pytest.mark.parametrize("strategy", Strategy)
def test_retry_of_an_unacknowledged_turn_drops_the_partial_and_keeps_the_input(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    asked = replace(held, path=held.path.grow([user("three")]))
    stopped = replace(asked, path=asked.path.grow([{**assistant("hal"), "status": "incomplete"}]))
    assert retry(stopped, last) == asked


@pytest.mark.parametrize("strategy", GOING_BACK)
def test_undo_of_a_confirmed_turn_stands_before_its_input(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    back = undo(held, last)

    assert words(back) == ["one", "first"]
    assert back.unacknowledged == ()
    assert back.handle == ("resp_1" if strategy is Strategy.CHAIN else None)


@pytest.mark.parametrize("strategy", GOING_BACK)
def test_retry_of_a_confirmed_turn_asks_its_input_again(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    again = retry(held, last)

    assert words(again) == ["one", "first", "two"]
    assert [node.item for node in again.unacknowledged] == [user("two")]
    assert again.handle == ("resp_1" if strategy is Strategy.CHAIN else None)


@pytest.mark.parametrize("go_back", [retry, undo])
def test_a_confirmed_turn_of_a_conversation_cannot_be_taken_back_from_here(go_back: object) -> None:
    held, last = confirmed(Strategy.CONVERSATION)
    with pytest.raises(WrongOwner):
        go_back(held, last)  # type: ignore[operator]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("go_back", [retry, undo])
def test_there_is_nothing_to_go_back_to_before_anything_was_said(strategy: Strategy, go_back: object) -> None:
    with pytest.raises(Usage):
        go_back(Held(strategy, START, START.root), None)  # type: ignore[operator]
