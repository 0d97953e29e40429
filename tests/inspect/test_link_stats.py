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
    view = build_chain(3).view("resp_3")
    stats = compute_link_stats(view.links[2], view.path_index)
    assert (stats.sent_count, stats.input_count, stats.is_full_history) == (1, 5, False)
    assert stats.sent_tokens == estimate_tokens(user_message("question 3"))
    assert stats.usage == Usage(input_tokens=12, cached_tokens=4, output_tokens=9, reasoning_tokens=2)


def test_a_session_sends_the_complete_history() -> None:
    builder = ConversationBuilder(Strategy.SESSION)
    builder.turn("resp_1", "one", "two")
    path = builder.turn("resp_2", "three", "four", after="resp_1")
    view = builder.view("resp_2")
    stats = compute_link_stats(view.links[1], view.path_index)
    assert (stats.sent_count, stats.input_count, stats.is_full_history) == (3, 3, True)
    assert stats.sent_tokens == sum(map(estimate_tokens, path.items[:3]))


def test_the_first_request_of_a_chain_sends_the_complete_history() -> None:
    view = build_chain(1).view("resp_1")
    assert compute_link_stats(view.links[0], view.path_index).is_full_history


def test_the_previews_are_of_the_last_input_item_and_of_the_answer() -> None:
    view = build_chain(2).view("resp_2")
    stats = compute_link_stats(view.links[1], view.path_index)
    assert (stats.input_preview, stats.output_preview) == ("question 2", "answer 2")


def test_a_failed_link_shows_its_error_in_place_of_the_answer() -> None:
    builder = ConversationBuilder()
    builder.turn("try_1", "hi", None, error={"code": "rate_limit_exceeded", "message": "slow down"})
    view = builder.view("try_1")
    stats = compute_link_stats(view.links[0], view.path_index)
    assert (stats.input_preview, stats.output_preview, stats.usage) == ("hi", "slow down", None)


def test_an_answer_with_only_a_call_is_previewed_by_the_call() -> None:
    builder = build_chain(1)
    input_path = Path(ROOT).append([user_message("weather?")])
    head = input_path.append([{"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}])
    builder.paths["resp_1"] = head
    builder.turn("resp_1", "weather?", None, input_head=input_path.head, head=head.head, status="completed")
    view = builder.view(None, path_index=_path_index(head))
    assert compute_link_stats(builder.links[-1], view.path_index).output_preview == "[function_call] weather"


@pytest.mark.parametrize("strategy", list(Strategy))
def test_unknown_figures_are_none(strategy: Strategy) -> None:
    builder = ConversationBuilder(strategy)
    builder.turn("resp_1", "hi", "there")
    stats = compute_link_stats(builder.links[0], PathIndex(ROOT))
    assert (stats.sent_count, stats.input_count, stats.sent_tokens, stats.input_preview, stats.is_full_history) == (
        1,
        None,
        None,
        "",
        False,
    )


def _path_index(path: Path) -> PathIndex:
    places = PathIndex(ROOT)
    places.add(path)
    return places
