"""Where the tokens of a request came from, as cells of a bar."""

from convo.inspect.view import ChartCell, InputTokenShare, compute_link_stats, input_token_share, max_input_tokens
from tests.inspect.built import Talk, chain


def drawn(cells: tuple[ChartCell, ...]) -> str:
    return "".join("sS"[cell.cached] if cell.sent else "oO"[cell.cached] for cell in cells)


def test_what_travelled_is_the_end_of_a_bar_and_what_was_cached_is_its_beginning() -> None:
    assert drawn(InputTokenShare(seen=100, sent=20, cached=50).cells(10, 100)) == "OOOOOoooss"
    assert drawn(InputTokenShare(seen=100, sent=100, cached=50).cells(10, 100)) == "SSSSSsssss"


def test_a_bar_is_as_long_as_its_request_was_beside_the_longest() -> None:
    assert len(InputTokenShare(seen=50, sent=1).cells(10, 100)) == 5
    assert drawn(InputTokenShare(seen=1, sent=1).cells(10, 1_000_000)) == "s"
    assert drawn(InputTokenShare(seen=1_000, sent=1).cells(10, 1_000)) == "ooooooooos"


def test_a_request_whose_usage_nobody_told_has_no_bar() -> None:
    talk = Talk()
    talk.turn("resp_1", "hi", "hello", usage=None)
    known = talk.known("resp_1")
    assert input_token_share(compute_link_stats(known.links[0], known.places)) == InputTokenShare()
    assert (InputTokenShare().cells(10, 100), max_input_tokens([InputTokenShare()])) == ((), 0)


def test_a_request_that_held_everything_sent_all_that_was_seen() -> None:
    known = chain(2).known("resp_2")
    first, second = (input_token_share(compute_link_stats(link, known.places)) for link in known.links)
    assert (first.seen, first.sent, first.cached) == (12, 12, 4)
    assert (second.seen, second.sent, second.cached) == (12, 7, 4)
