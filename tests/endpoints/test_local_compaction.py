"""The bundled model compacts a short history and answers from the result, without a script."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import StreamEvent, item_text, item_type
from convo.models.base import Model, ModelRequest
from convo.models.local import LocalModel
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.memory import MemoryStore
from tests.endpoints.endpoint_calls import ask, error_fields, refusal, user_item

pytestmark = pytest.mark.needs("weights")

NAME = "smollm2-135m-instruct"
DIARY = " ".join(
    f"Day {day}: we walked {day + 3} miles along the river to the village of Elm, where it rained all afternoon, and "
    "we slept in the small hotel beside the old bridge."
    for day in range(1, 5)
)
CITY = (
    "Oslo is the capital of Norway. It lies at the end of a long fjord, between green hills, and about seven hundred "
    "thousand people live there."
)
HISTORY = [user_item("I live in Oslo."), {"role": "assistant", "content": f"{CITY} {CITY}"}]
"""A history with a summary of one sentence: the duration of the test grows with the generated tokens."""


class Greedy(LocalModel):
    """The bundled model with temperature 0: it generates the same tokens in each run."""

    def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        return super().respond(replace(request, parameters={**request.parameters, "temperature": 0}))


class Local:
    """Opens the bundled model for every name."""

    def __init__(self) -> None:
        self._model = Greedy(Path("/dev/null/models"), random_id)

    def __call__(self, name: str) -> tuple[Model, str]:
        return self._model, NAME

    async def tokens(self, items: Any) -> int:
        return await self._model.count(ModelRequest(NAME, items))

    async def aclose(self) -> None:
        await self._model.aclose()


@pytest.fixture
async def local() -> AsyncIterator[Local]:
    models = Local()
    yield models
    await models.aclose()


@pytest.fixture
def endpoint(local: Local) -> EmbeddedEndpoint:
    return EmbeddedEndpoint(MemoryStore(), local, SystemClock(), random_id)


@pytest.mark.full(every_commit=True)
async def test_the_bundled_model_compacts_a_history_and_answers_from_it(
    local: Local, endpoint: EmbeddedEndpoint
) -> None:
    before = await local.tokens(HISTORY)
    window = await endpoint.compact({"model": "local", "input": HISTORY})
    assert [item_type(item) for item in window["output"]] == ["message", "compaction"]
    assert window["usage"]["input_tokens"] > before
    assert window["usage"]["output_tokens"] > 0

    after = await endpoint.count_input_tokens({"model": "local", "input": window["output"]})
    assert after is not None
    assert after <= before  # a summary that is longer than the items it replaces is not used

    answer = await ask(endpoint, [*window["output"], user_item("Say hello.")], max_output_tokens=16)
    assert item_text(answer["output"][0])


async def test_a_history_beyond_the_context_window_is_answered_with_truncation(endpoint: EmbeddedEndpoint) -> None:
    """The model counts the tokens itself: the endpoint does not know its context window."""
    long = [user_item(DIARY * 40), {"role": "assistant", "content": "Thank you."}, user_item("Say hello.")]
    assert error_fields(await refusal(endpoint, long))[0] == "context_length_exceeded"
    answer = await ask(endpoint, long, truncation="auto", max_output_tokens=16)
    assert item_text(answer["output"][0])
    assert answer["usage"]["input_tokens"] < 100
