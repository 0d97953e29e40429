"""The failures after which the same request may be sent again, by owner."""

import pytest

from convo.errors import (
    NO_CONNECTION,
    ConvoError,
    KeyRefused,
    ModelFault,
    RequestRefused,
    StreamBroken,
    TryLater,
    Unreachable,
    Unreadable,
)
from convo.history.records import Strategy
from convo.strategies.requests import decide_retry, is_unsent_request
from convo.strategies.strategy import NOTHING_STORED, RetryAction, RetryDecision

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
    assert decide_retry(strategy, failure) == RetryDecision(RetryAction.YES, NOTHING_STORED)


@pytest.mark.parametrize("failure", [DOWN, CUT])
@pytest.mark.parametrize(
    ("strategy", "verdict", "reason"),
    [
        (Strategy.REPLAY, RetryAction.YES, NOTHING_STORED),
        (Strategy.SESSION, RetryAction.YES, NOTHING_STORED),
        (Strategy.CHAIN, RetryAction.YES, "a second response would only be a fork"),
        (Strategy.CONVERSATION, RetryAction.READ_FIRST, "the endpoint may have processed it"),
    ],
)
def test_after_an_ambiguous_failure_the_strategy_decides(
    strategy: Strategy, verdict: RetryAction, reason: str, failure: ConvoError
) -> None:
    assert decide_retry(strategy, failure) == RetryDecision(verdict, reason)


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", FINAL)
def test_a_final_failure_is_never_retried(strategy: Strategy, failure: ConvoError) -> None:
    no_connection = failure.code == NO_CONNECTION
    reason = "there is no connection" if no_connection else "the same request would be rejected again"
    assert decide_retry(strategy, failure) == RetryDecision(RetryAction.NO, reason)


@pytest.mark.parametrize(
    ("failure", "is_unsent"),
    [
        (Unreachable("no such host", code=NO_CONNECTION), True),
        (RequestRefused("no such model", code="model_not_found"), True),
        (KeyRefused("no key"), True),
        (ModelFault("no images"), True),
        (Unreadable("no such feature"), True),
        (CUT, False),
        (DOWN, False),
        (RequestRefused("no"), False),
        (StreamBroken("cut"), False),
    ],
)
def test_a_request_is_unsent_if_no_model_was_called(failure: ConvoError, is_unsent: bool) -> None:
    assert is_unsent_request(failure) is is_unsent
