"""By owner: which failures may be followed by the same request."""

import pytest

from convo.errors import NO_CONNECTION, ConvoError, KeyRefused, RequestRefused, StreamBroken, TryLater, Unreachable
from convo.history.records import Strategy
from convo.strategies.requests import decide_retry
from convo.strategies.strategy import RetryAction

LOCKED = TryLater("locked", code="conversation_locked", status=400)
BUSY = TryLater("slow down", status=429)
DOWN = TryLater("server error", status=503)
CUT = Unreachable("connection reset")
FINAL: list[ConvoError] = [
    RequestRefused("no"),
    KeyRefused("no key"),
    StreamBroken("cut"),
    Unreachable("no such host", code=NO_CONNECTION),
]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", [LOCKED, BUSY])
def test_a_request_refused_before_processing_is_retried(strategy: Strategy, failure: ConvoError) -> None:
    assert decide_retry(strategy, failure, response_started=False).action is RetryAction.YES


@pytest.mark.parametrize("failure", [DOWN, CUT])
@pytest.mark.parametrize(
    ("strategy", "verdict"),
    [
        (Strategy.REPLAY, RetryAction.YES),
        (Strategy.SESSION, RetryAction.YES),
        (Strategy.CHAIN, RetryAction.YES),
        (Strategy.CONVERSATION, RetryAction.READ_FIRST),
    ],
)
def test_after_an_ambiguous_failure_the_strategy_decides(
    strategy: Strategy, verdict: RetryAction, failure: ConvoError
) -> None:
    assert decide_retry(strategy, failure, response_started=False).action is verdict


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", FINAL)
def test_a_final_failure_is_never_retried(strategy: Strategy, failure: ConvoError) -> None:
    assert decide_retry(strategy, failure, response_started=False).action is RetryAction.NO


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", [LOCKED, BUSY, DOWN, CUT])
def test_nothing_is_retried_once_the_answer_has_started(strategy: Strategy, failure: ConvoError) -> None:
    assert decide_retry(strategy, failure, response_started=True).action is RetryAction.NO
