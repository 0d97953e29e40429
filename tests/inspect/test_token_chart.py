"""The sources of a request's tokens as cells of a bar."""

from convo.inspect.view import ChartCell, InputTokenShare, compute_link_stats, input_token_share, max_input_tokens
from tests.inspect.conversation_builder import ConversationBuilder, build_chain


def chart_text(cells: tuple[ChartCell, ...]) -> str:
    return "".join("sS"[cell.is_cached] if cell.is_sent else "oO"[cell.is_cached] for cell in cells)


def test_sent_tokens_are_the_end_of_a_bar_and_cached_tokens_its_beginning() -> None:
    assert (
        chart_text(InputTokenShare(input_tokens=100, sent_tokens=20, cached_tokens=50).to_cells(10, 100))
        == "OOOOOoooss"
    )
    assert (
        chart_text(InputTokenShare(input_tokens=100, sent_tokens=100, cached_tokens=50).to_cells(10, 100))
        == "SSSSSsssss"
    )


def test_the_length_of_a_bar_is_relative_to_the_largest_request() -> None:
    assert len(InputTokenShare(input_tokens=50, sent_tokens=1).to_cells(10, 100)) == 5
    assert chart_text(InputTokenShare(input_tokens=1, sent_tokens=1).to_cells(10, 1_000_000)) == "s"
    assert chart_text(InputTokenShare(input_tokens=1_000, sent_tokens=1).to_cells(10, 1_000)) == "ooooooooos"


def test_a_request_without_usage_has_no_bar() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_1", "hi", "hello", usage=None)
    view = builder.view("resp_1")
    assert input_token_share(compute_link_stats(view.links[0], view.path_index)) == InputTokenShare()
    assert (InputTokenShare().to_cells(10, 100), max_input_tokens([InputTokenShare()])) == ((), 0)


def test_a_request_with_the_complete_history_sent_all_of_its_input() -> None:
    view = build_chain(2).view("resp_2")
    first, second = (input_token_share(compute_link_stats(link, view.path_index)) for link in view.links)
    assert (first.input_tokens, first.sent_tokens, first.cached_tokens) == (12, 12, 4)
    assert (second.input_tokens, second.sent_tokens, second.cached_tokens) == (12, 7, 4)
