"""The figures and previews of one link."""

import pytest

from convo.history.items import user_message
from convo.history.records import Strategy
from convo.history.tree import Path
from convo.inspect.view import PathIndex, compute_link_stats
from convo.usage.cost import Usage
from convo.usage.counting import estimate_tokens
from tests.inspect.conversation_builder import ROOT, ConversationBuilder, build_chain


def test_a_chain_sends_only_new_items_and_the_model_gets_the_complete_history() -> None:
    known = build_chain(3).view("resp_3")
    was = compute_link_stats(known.links[2], known.path_index)
    assert (was.sent_count, was.input_count, was.is_full_history) == (1, 5, False)
    assert was.sent_tokens == estimate_tokens(user_message("question 3"))
    assert was.usage == Usage(input_tokens=12, cached_tokens=4, output_tokens=9, reasoning_tokens=2)


def test_a_session_sends_the_complete_history() -> None:
    talk = ConversationBuilder(Strategy.SESSION)
    talk.turn("resp_1", "one", "two")
    path = talk.turn("resp_2", "three", "four", after="resp_1")
    known = talk.view("resp_2")
    was = compute_link_stats(known.links[1], known.path_index)
    assert (was.sent_count, was.input_count, was.is_full_history) == (3, 3, True)
    assert was.sent_tokens == sum(map(estimate_tokens, path.items[:3]))


def test_the_first_request_of_a_chain_sends_the_complete_history() -> None:
    known = build_chain(1).view("resp_1")
    assert compute_link_stats(known.links[0], known.path_index).is_full_history


def test_the_previews_are_of_the_last_input_item_and_of_the_answer() -> None:
    known = build_chain(2).view("resp_2")
    was = compute_link_stats(known.links[1], known.path_index)
    assert (was.input_preview, was.output_preview) == ("question 2", "answer 2")


def test_a_failed_link_shows_its_error_in_place_of_the_answer() -> None:
    talk = ConversationBuilder()
    talk.turn("try_1", "hi", None, error={"code": "rate_limit_exceeded", "message": "slow down"})
    known = talk.view("try_1")
    was = compute_link_stats(known.links[0], known.path_index)
    assert (was.input_preview, was.output_preview, was.usage) == ("hi", "slow down", None)


def test_an_answer_with_only_a_call_is_previewed_by_the_call() -> None:
    talk = build_chain(1)
    saw = Path(ROOT).append([user_message("weather?")])
    head = saw.append([{"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}])
    talk.paths["resp_1"] = head
    talk.turn("resp_1", "weather?", None, input_head=saw.head, head=head.head, status="completed")
    known = talk.view(None, path_index=_places(head))
    assert compute_link_stats(talk.links[-1], known.path_index).output_preview == "[function_call] weather"


@pytest.mark.parametrize("strategy", list(Strategy))
def test_unknown_figures_are_none(strategy: Strategy) -> None:
    talk = ConversationBuilder(strategy)
    talk.turn("resp_1", "hi", "there")
    was = compute_link_stats(talk.links[0], PathIndex(ROOT))
    assert (was.sent_count, was.input_count, was.sent_tokens, was.input_preview, was.is_full_history) == (
        1,
        None,
        None,
        "",
        False,
    )


def _places(path: Path) -> PathIndex:
    places = PathIndex(ROOT)
    places.add(path)
    return places
