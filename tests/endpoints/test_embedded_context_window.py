"""The context window of the embedded endpoint: an input that does not fit is refused or truncated."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from convo.history.items import Item
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.usage.counting import TOKENIZER_ENCODING
from convo.usage.model_info import ModelWindow
from tests.endpoints.endpoint_calls import TOOL, ask, error_fields, output_for, refusal, texts, user_item
from tests.endpoints.summarizing_model import SummarizingModel

WINDOW_TOKENS = 100
LONG = " ".join(["word"] * 40)
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
WINDOWS = {
    "small": ModelWindow(WINDOW_TOKENS, counted=TOKENIZER_ENCODING),
    "foreign": ModelWindow(WINDOW_TOKENS),
}


def answer(text: str = LONG) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text}


HISTORY: list[Item] = [
    {"role": "system", "content": "Be kind."},
    *(item for turn in range(3) for item in (user_item(f"Question {turn}. {LONG}"), answer(f"Answer {turn}."))),
    user_item("Now?"),
]


@pytest.fixture
async def endpoint(store: Store, summarizer: SummarizingModel) -> AsyncIterator[EmbeddedEndpoint]:
    embedded = EmbeddedEndpoint(store, summarizer, SystemClock(), random_id, find_window=WINDOWS.get)
    yield embedded
    await embedded.aclose()


async def test_an_input_that_fits_is_sent_unchanged(endpoint: EmbeddedEndpoint, summarizer: SummarizingModel) -> None:
    await ask(endpoint, "Hello", model="small")
    assert summarizer.last_input() == ["Hello"]


@pytest.mark.parametrize("truncation", ["disabled", "auto"])
async def test_a_very_long_input_is_counted_in_a_thread(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel, truncation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the same as for a short input that does not fit."""
    calls: list[object] = []
    to_thread = asyncio.to_thread

    def recording_to_thread(function: Callable[..., object], *args: object, **kwargs: object) -> Awaitable[object]:
        calls.append(function)
        return to_thread(function, *args, **kwargs)

    monkeypatch.setattr(asyncio, "to_thread", recording_to_thread)

    error = await refusal(endpoint, "word " * 70_000, model="small", truncation=truncation)

    assert error.message == "small accepts 100 input tokens; this request has 70,005"
    assert (len(calls), summarizer.requests) == (1, [])


async def test_an_input_that_does_not_fit_is_refused_before_the_model_is_called(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    error = await refusal(endpoint, HISTORY, model="small")
    assert error_fields(error) == ("context_length_exceeded", 400, "input")
    assert error.message == "small accepts 100 input tokens; this request has 181"
    assert summarizer.requests == []


async def test_instructions_and_tools_count_towards_the_context_window(endpoint: EmbeddedEndpoint) -> None:
    assert (
        error_fields(await refusal(endpoint, "Hi", model="small", instructions=LONG * 3))[0]
        == "context_length_exceeded"
    )
    tools = [{**TOOL, "name": f"weather_{number}"} for number in range(8)]
    assert error_fields(await refusal(endpoint, "Hi", model="small", tools=tools))[0] == "context_length_exceeded"


async def test_auto_sends_the_last_complete_turns_and_all_instructions(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    await ask(endpoint, HISTORY, model="small", truncation="auto")
    assert summarizer.last_input() == ["Be kind.", f"Question 2. {LONG}", "Answer 2.", "Now?"]


async def test_auto_separates_no_call_from_its_output(endpoint: EmbeddedEndpoint, summarizer: SummarizingModel) -> None:
    history = [user_item(LONG), CALL, output_for(CALL, LONG), answer("Seen."), user_item("Now?")]
    await ask(endpoint, history, model="small", truncation="auto")
    assert summarizer.last_input() == ["Now?"]


async def test_a_truncated_item_stays_in_the_stored_history(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    first = await ask(endpoint, HISTORY, model="small", truncation="auto")
    await ask(endpoint, "And now?", previous_response_id=first["id"], model="unknown")
    assert len(summarizer.last_input()) == len(HISTORY) + 2
    listed = await endpoint.list_input_items(first["id"], limit=100, order="asc")
    assert texts(listed) == texts(HISTORY)


async def test_auto_shortens_the_input_for_a_model_that_refuses_its_length(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    """Only the model knows its context window."""
    summarizer.window = 60
    await ask(endpoint, HISTORY, model="unknown", truncation="auto")
    assert summarizer.last_input() == ["Be kind.", f"Question 2. {LONG}", "Answer 2.", "Now?"]


async def test_without_truncation_the_error_of_the_model_is_raised(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    summarizer.window = 60
    assert error_fields(await refusal(endpoint, HISTORY, model="unknown"))[0] == "context_length_exceeded"
    assert len(summarizer.requests) == 1


async def test_the_response_has_its_truncation_parameter(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    response = await ask(endpoint, "Hello", model="small", truncation="auto")
    assert response["truncation"] == "auto"
    assert "truncation" not in summarizer.requests[-1].parameters


async def test_a_history_is_compacted_before_its_length_is_checked(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    management = [{"type": "compaction", "compact_threshold": 80}]
    response = await ask(endpoint, HISTORY, model="small", context_management=management)
    assert response["output"][0]["type"] == "compaction"
    assert summarizer.last_input()[-1] == "Now?"
