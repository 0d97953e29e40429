"""Model requests at the limit of the context window: refused, truncated or sent unchanged."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from convo.errors import ConvoError, RequestRefused, WindowExceeded
from convo.history.items import Item, StreamEvent
from convo.models.base import ModelRequest
from convo.responses_api.truncation import check_fits_window, respond_within_window, truncate_model_request
from convo.usage.counting import TOKENIZER_ENCODING, count_tokens
from convo.usage.model_info import ModelWindow
from tests.endpoints.endpoint_calls import TOOL, user_item
from tests.endpoints.gated_model import GatedModel

ANSWER: Item = {"type": "message", "role": "assistant", "content": "Well."}
TURNS: list[Item] = [
    *(item for number in range(3) for item in (user_item(f"{number} " + "word " * 30), ANSWER)),
    user_item("3 " + "word " * 30),
]
"""Three turns of two items each, and a final user message."""

INSTRUCTIONS = "Be brief and kind."


def exact_window(context: int, output: int | None = None) -> ModelWindow:
    return ModelWindow(context, output, counted=TOKENIZER_ENCODING)


def request(items: list[Item] = TURNS, **parameters: Any) -> ModelRequest:
    return ModelRequest("m", tuple(items), INSTRUCTIONS, parameters)


def count_request_tokens(model_request: ModelRequest) -> int:
    return count_tokens(model_request.input, model_request.instructions, model_request.parameters.get("tools")).tokens


@pytest.mark.parametrize("parameters", [{}, {"tools": [TOOL]}], ids=["no tools", "tools"])
def test_a_request_is_refused_from_the_first_token_beyond_its_window(parameters: dict[str, Any]) -> None:
    full_request = request(**parameters)
    tokens = count_request_tokens(full_request)
    check_fits_window(full_request, "any", exact_window(tokens))
    check_fits_window(full_request, "any", None)
    with pytest.raises(WindowExceeded) as caught:
        check_fits_window(full_request, "any", exact_window(tokens - 1))
    assert caught.value.message == f"any accepts {tokens - 1} input tokens; this request has {tokens}"


def test_an_estimate_refuses_only_above_one_and_a_half_times_the_window() -> None:
    """The model's tokenizer may count fewer tokens."""
    full_request = request()
    smallest_window = int(count_request_tokens(full_request) / 1.5)
    check_fits_window(full_request, "any", ModelWindow(smallest_window))
    with pytest.raises(WindowExceeded) as caught:
        check_fits_window(full_request, "any", ModelWindow(smallest_window - 1))
    assert (caught.value.needed_tokens, caught.value.limit_tokens) == (smallest_window, smallest_window - 1)
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
    with_image = request([*TURNS, image])
    check_fits_window(with_image, "any", exact_window(int(count_request_tokens(with_image) / 1.5)))


@pytest.mark.parametrize(
    ("parameters", "output", "reserve"),
    [
        ({}, None, lambda context: context // 4),
        ({}, 10, lambda context: min(10, context // 4)),
        ({"max_output_tokens": 5}, 10, lambda context: min(5, context // 4)),
        ({"max_output_tokens": 10_000}, None, lambda context: context // 4),
        ({"tools": [TOOL]}, None, lambda context: context // 4),
    ],
    ids=[
        "a quarter",
        "the model's maximum",
        "the request's maximum",
        "a quarter at most",
        "a quarter beside the tools",
    ],
)
def test_the_oldest_turns_are_dropped_until_there_is_room_for_an_output(
    parameters: dict[str, Any], output: int | None, reserve: Any
) -> None:
    full_request = request(**parameters)
    last_turn = request(TURNS[-1:], **parameters)
    for context in range(count_request_tokens(last_turn) + 1, 2 * count_request_tokens(full_request)):
        limit = context - reserve(context)
        truncated = truncate_model_request(full_request, "any", exact_window(context, output))
        expected = next(
            (start for start in (0, 2, 4) if count_request_tokens(request(TURNS[start:], **parameters)) <= limit), 6
        )
        assert truncated.input == tuple(TURNS[expected:])
        assert (truncated.instructions, truncated.parameters) == (INSTRUCTIONS, parameters)
    with pytest.raises(WindowExceeded):
        truncate_model_request(full_request, "any", exact_window(count_request_tokens(last_turn) - 1, output))
    assert truncate_model_request(full_request, "any", None) is full_request


class RefusingModel(GatedModel):
    """A model that raises `error` for an input of more than `max_items` items."""

    def __init__(self, max_items: int, error: ConvoError) -> None:
        super().__init__()
        self.gate.set()
        self.max_items, self.error = max_items, error

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if len(request.input) > self.max_items:
            self.requests.append(request)
            raise self.error
        async with aclosing(super().respond(request)) as events:
            async for event in events:
                yield event


async def request_sizes(model: GatedModel, window: ModelWindow | None = None, *, auto: bool = True) -> list[int]:
    """Return the number of items of each recorded request."""
    async with aclosing(respond_within_window(model, request(), "any", window, auto=auto)) as events:
        last = [event async for event in events][-1]
    assert last["type"] == "response.completed"
    return [len(sent.input) for sent in model.requests]


TOO_LONG = RequestRefused("too long", code="context_length_exceeded")


async def test_a_model_that_finds_its_input_too_long_gets_three_quarters_of_it() -> None:
    assert await request_sizes(RefusingModel(5, TOO_LONG)) == [7, 5]
    assert await request_sizes(RefusingModel(2, TOO_LONG)) == [7, 5, 3, 1]
    assert await request_sizes(RefusingModel(7, TOO_LONG)) == [7]


async def test_a_model_that_reports_its_limit_gets_that_many_tokens() -> None:
    total = count_request_tokens(request())
    assert await request_sizes(RefusingModel(3, WindowExceeded("m", total, total // 2 + 10))) == [7, 3]
    assert await request_sizes(RefusingModel(1, WindowExceeded("m", 1000, 1))) == [7, 1]
    assert await request_sizes(RefusingModel(5, WindowExceeded("m", 10, 10))) == [7, 5]


async def test_an_error_of_another_kind_or_of_the_last_turn_is_raised() -> None:
    for model in (RefusingModel(5, RequestRefused("no")), RefusingModel(0, TOO_LONG)):
        with pytest.raises(RequestRefused) as caught:
            await request_sizes(model)
        assert caught.value is model.error
    disabled = RefusingModel(5, TOO_LONG)
    with pytest.raises(RequestRefused):
        await request_sizes(disabled, auto=False)
    assert len(disabled.requests) == 1


async def test_a_known_window_shortens_only_if_that_is_asked_for() -> None:
    tokens = count_request_tokens(request())
    assert await request_sizes(RefusingModel(7, TOO_LONG), exact_window(tokens), auto=False) == [7]
    assert await request_sizes(RefusingModel(7, TOO_LONG), exact_window(tokens)) == [5]
    with pytest.raises(WindowExceeded):
        await request_sizes(RefusingModel(7, TOO_LONG), exact_window(tokens - 1), auto=False)


async def test_a_model_without_events_ends_the_stream() -> None:
    class Silent(GatedModel):
        async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            no_events: tuple[StreamEvent, ...] = ()
            for event in no_events:
                yield event

    async with aclosing(respond_within_window(Silent(), request(), "any", None, auto=True)) as events:
        assert [event async for event in events] == []
