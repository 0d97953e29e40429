"""One request, sent until the answer begins or it may not be sent again.

Everything before the first piece of an answer can be tried again, by the owner's rule; everything
after it has been shown to a person and cannot. So a call is opened until its first piece has come,
with the waiting left to tenacity, and only then handed on.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convo.clock import Clock
from convo.errors import ConvoError, EndpointFault, StreamBroken
from convo.history import Strategy
from convo.items import Event
from convo.items.partial import BEGINS
from convo.strategies import Resend, may_resend

if TYPE_CHECKING:
    from tenacity import RetryCallState

TRIES = 4

LONGEST_BEGINNING = 1_000
"""Events before the first piece of an answer; more say nothing that fewer would not."""

FIRST_WAIT_S, LONGEST_BACKOFF_S, JITTER_S = 1, 8, 0.25
"""Seconds before the next try: 1, 2, 4, with a little jitter, unless the endpoint names its own."""

LONGEST_WAIT_S = 60.0
"""Whoever is told to wait longer is told so, instead of being kept waiting or asking too early."""


@dataclass
class Opened:
    """A call whose answer has begun: the events that came so far, and the stream of the others."""

    events: list[Event]
    stream: AsyncGenerator[Event, None]


Open = Callable[[], Awaitable[AsyncGenerator[Event, None] | None]]
"""Builds and sends the request; None when the owner turns out to have answered it already."""


async def call(
    open_stream: Open, strategy: Strategy, clock: Clock, *, doubt: Callable[[], None], noted: Callable[[str], None]
) -> Opened | None:
    """Open a call, again where that is safe.

    doubt:  told before a resend that must read the owner's tail first
    noted:  told in words why a request goes out again
    raises: the last failure, when it may not or did not help to send again
    """
    try:
        return await _first_piece(open_stream)
    except ConvoError as failure:
        if not _may_go_out_again(strategy, failure):
            raise
        failed = failure
    return await _called_again(open_stream, failed, strategy, clock, doubt=doubt, noted=noted)


def _may_go_out_again(strategy: Strategy, failure: BaseException) -> bool:
    if not isinstance(failure, ConvoError) or (named_wait_s(failure) or 0.0) > LONGEST_WAIT_S:
        return False
    return may_resend(strategy, failure, answering=False).resend is not Resend.NO


async def _called_again(
    open_stream: Open,
    failed: ConvoError,
    strategy: Strategy,
    clock: Clock,
    *,
    doubt: Callable[[], None],
    noted: Callable[[str], None],
) -> Opened | None:
    """What `call` does once the first try has `failed`. Nearly every first one does not, and waits for no library."""
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

    first = [failed]

    async def attempt() -> Opened | None:
        if first:
            raise first.pop()
        return await _first_piece(open_stream)

    def before_wait(state: "RetryCallState") -> None:
        failure = state.outcome.exception() if state.outcome else None
        if isinstance(failure, ConvoError):
            verdict = may_resend(strategy, failure, answering=False)
            noted(f"{failure.message}; trying again: {verdict.evidence}")
            if verdict.resend is Resend.READ_FIRST:
                doubt()

    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda failure: _may_go_out_again(strategy, failure)),
        wait=_wait,
        stop=stop_after_attempt(TRIES),
        sleep=clock.sleep,
        before_sleep=before_wait,
        reraise=True,
    )
    return await retrying(attempt)


async def _first_piece(open_stream: Open) -> Opened | None:
    stream = await open_stream()
    if stream is None:
        return None
    events: list[Event] = []
    try:
        async for event in stream:
            events.append(event)
            if len(events) > LONGEST_BEGINNING:
                raise StreamBroken("the endpoint says again and again that it begins")
            if event.get("type") not in BEGINS:
                return Opened(events, stream)
    except BaseException:
        await stream.aclose()
        raise
    raise StreamBroken("the endpoint's stream ended before an answer began")


def _wait(state: "RetryCallState") -> float:
    from tenacity import wait_exponential_jitter

    named = named_wait_s(state.outcome.exception() if state.outcome else None)
    return wait_exponential_jitter(FIRST_WAIT_S, LONGEST_BACKOFF_S, jitter=JITTER_S)(state) if named is None else named


def named_wait_s(failure: BaseException | None) -> float | None:
    """How long the endpoint asks to be left alone, where it does."""
    return failure.retry_after_s if isinstance(failure, EndpointFault) else None
