"""Fit a model request into the context window.

`truncation=disabled` refuses a request that does not fit before the model is called; `auto` drops the
oldest whole turns from the request, never from the history. If the window is unknown or the
count is an estimate, the model's own error decides, and `auto` retries with less. Long inputs
are counted in a thread (30 to 60 ms per MB).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from convo.compaction.planning import keep_last_turn, truncate_to_fit
from convo.errors import ConvoError, WindowExceeded
from convo.history.items import Json, StreamEvent
from convo.models.base import Model, ModelRequest
from convo.usage.counting import count_item_tokens, count_tokens, max_token_count
from convo.usage.model_info import ModelWindow
from convo.usage.window import count_minimum_tokens

WindowLookup: TypeAlias = Callable[[str], ModelWindow | None]
"""Returns the context window of a model by provider/model, or its name without a provider; None if unknown."""

WINDOW_EXCEEDED_CODE = WindowExceeded.code

OUTPUT_RESERVE_DIVISOR = 4
"""Divisor of the window for the part reserved for the output, unless the request limits its output."""

COUNT_IN_THREAD_TOKENS = 64_000
"""Inputs that may have more tokens than this are counted in a thread."""

RETRY_FRACTION = 3 / 4
"""Fraction of the input for a retry if the model's error does not give the excess."""


def respond_within_window(
    model: Model, request: ModelRequest, model_name: str, window: ModelWindow | None, *, auto: bool
) -> AsyncGenerator[StreamEvent, None]:
    """Stream the model's events for as much of `request` as fits into its window.

    model_name:  the model's name in the client's request, for the error message

    Raises WindowExceeded, here or with the first event.
    """
    if window is None:
        return _respond(model, request, auto=auto)
    max_tokens = max_token_count(request.input, request.instructions, _request_tools(request))
    if max_tokens <= (_input_limit_tokens(request, window) if auto else window.context):
        return _respond(model, request, auto=auto)
    # A megabyte of text takes 30 to 60 ms to count, and all other requests would wait.
    if max_tokens > COUNT_IN_THREAD_TOKENS:
        return _respond_fitted_in_thread(model, request, model_name, window, auto=auto)
    return _respond(model, _fit_request(request, model_name, window, auto=auto), auto=auto)


async def _respond_fitted_in_thread(
    model: Model, request: ModelRequest, model_name: str, window: ModelWindow, *, auto: bool
) -> AsyncGenerator[StreamEvent, None]:
    fitted = await asyncio.to_thread(_fit_request, request, model_name, window, auto=auto)
    async with aclosing(_respond(model, fitted, auto=auto)) as events:
        async for event in events:
            yield event


def _fit_request(request: ModelRequest, model_name: str, window: ModelWindow | None, *, auto: bool) -> ModelRequest:
    """Return `request` as it is sent to the model. Raises WindowExceeded."""
    if auto:
        return truncate_model_request(request, model_name, window)
    check_fits_window(request, model_name, window)
    return request


def _respond(model: Model, request: ModelRequest, *, auto: bool) -> AsyncGenerator[StreamEvent, None]:
    return _respond_truncating(model, request) if auto else model.respond(request)


def check_fits_window(request: ModelRequest, model_name: str, window: ModelWindow | None) -> None:
    """Raise WindowExceeded if `request` certainly does not fit."""
    if (
        window is None
        or max_token_count(request.input, request.instructions, _request_tools(request)) <= window.context
    ):
        return
    needed_tokens = count_minimum_tokens(
        count_tokens(request.input, request.instructions, _request_tools(request)), window
    )
    if needed_tokens > window.context:
        raise WindowExceeded(model_name, needed_tokens, window.context)


def truncate_model_request(request: ModelRequest, model_name: str, window: ModelWindow | None) -> ModelRequest:
    """Drop the oldest turns of `request` if all of it would not leave room for an output.

    Raises WindowExceeded if not even the last turn fits.
    """
    if window is None:
        return request
    limit_tokens = _input_limit_tokens(request, window)
    if max_token_count(request.input, request.instructions, _request_tools(request)) <= limit_tokens:
        return request
    overhead_tokens = count_tokens((), request.instructions, _request_tools(request)).tokens
    kept_items = truncate_to_fit(request.input, count_item_tokens(request.input), limit_tokens - overhead_tokens)
    request = replace(request, input=keep_last_turn(request.input) if kept_items is None else kept_items)
    check_fits_window(request, model_name, window)
    return request


def is_window_exceeded(error: ConvoError) -> bool:
    """Whether the model rejected the input as too long for its window."""
    return error.code == WINDOW_EXCEEDED_CODE


def _input_limit_tokens(request: ModelRequest, window: ModelWindow) -> int:
    """Return the input tokens that leave room for an output."""
    output_tokens = request.parameters.get("max_output_tokens") or window.output or window.context
    return window.context - min(int(output_tokens), window.context // OUTPUT_RESERVE_DIVISOR)


async def _respond_truncating(model: Model, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    """Stream the model's events; retry with less input as long as the model rejects it as too long."""
    while True:
        async with aclosing(model.respond(request)) as events:
            try:
                # A refusal comes before the first event; after it nothing can be retried unnoticed.
                first = await anext(events, None)
            except ConvoError as error:
                request = _truncate_further(request, error)
                continue
            if first is None:
                return
            yield first
            async for event in events:
                yield event
            return


def _truncate_further(request: ModelRequest, error: ConvoError) -> ModelRequest:
    """Drop more turns of `request`. Raises `error` if it has another cause, or if no turn is left to drop."""
    if not is_window_exceeded(error):
        raise error
    sizes = count_item_tokens(request.input)
    fraction = error.limit_tokens / error.needed_tokens if isinstance(error, WindowExceeded) else RETRY_FRACTION
    # At least one token less, so that each retry drops something and the loop ends.
    kept_items = truncate_to_fit(request.input, sizes, min(int(sum(sizes) * fraction), sum(sizes) - 1))
    kept_items = keep_last_turn(request.input) if kept_items is None else kept_items
    if len(kept_items) == len(request.input):
        raise error
    return replace(request, input=kept_items)


def _request_tools(request: ModelRequest) -> Json:
    return request.parameters.get("tools")
