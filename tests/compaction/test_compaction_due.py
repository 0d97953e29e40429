"""When a chat compacts by itself."""

import pytest

from convo.compaction.planning import tokens_if_over_threshold
from convo.usage.counting import Usage


@pytest.mark.parametrize(
    ("at", "used", "window", "tokens"),
    [
        (0.8, Usage(input_tokens=700, output_tokens=99), 1000, None),
        (0.8, Usage(input_tokens=700, output_tokens=100), 1000, 800),
        (0.8, Usage(input_tokens=7000), None, None),
        (500, Usage(input_tokens=400, output_tokens=100), None, 500),
        (500, Usage(input_tokens=499), 1000, None),
        (0, Usage(input_tokens=10**9), 1000, None),
        (0.8, None, 1000, None),
    ],
)
def test_compaction_is_due_when_the_last_response_approached_the_limit(
    at: float, used: Usage | None, window: int | None, tokens: int | None
) -> None:
    assert tokens_if_over_threshold(at, used, window) == tokens
