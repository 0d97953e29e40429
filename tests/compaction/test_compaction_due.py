"""The threshold of automatic compaction."""

import pytest

from convo.compaction.planning import threshold_tokens, tokens_if_over_threshold
from convo.usage.cost import Usage


@pytest.mark.parametrize(
    ("at", "usage", "window", "tokens"),
    [
        (0.8, Usage(input_tokens=700, output_tokens=99), 1000, None),
        (0.8, Usage(input_tokens=700, output_tokens=100), 1000, 800),
        (0.8, Usage(input_tokens=7000), None, None),
        (500, Usage(input_tokens=400, output_tokens=100), None, 500),
        (500, Usage(input_tokens=499), 1000, None),
        (0, Usage(input_tokens=10**9), 1000, None),
        (0.8, None, 1000, None),
        (1, Usage(input_tokens=999), 1000, None),
        (1, Usage(input_tokens=1000), 1000, 1000),
        (2, Usage(input_tokens=1), 1000, None),
        (2, Usage(input_tokens=2), 1000, 2),
        (-1, Usage(input_tokens=10**9), 1000, None),
    ],
)
def test_compaction_is_due_when_the_last_response_approached_the_limit(
    at: float, usage: Usage | None, window: int | None, tokens: int | None
) -> None:
    assert tokens_if_over_threshold(at, usage, window) == tokens


@pytest.mark.parametrize(
    ("threshold", "window", "tokens"),
    [(0, 1000, None), (0.5, 1000, 500), (0.5, None, None), (1, 1000, 1000), (1.5, None, 1), (2000, 1000, 2000)],
)
def test_a_threshold_up_to_one_is_a_part_of_the_window(
    threshold: float, window: int | None, tokens: int | None
) -> None:
    assert threshold_tokens(threshold, window) == tokens
