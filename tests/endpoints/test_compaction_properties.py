"""Properties of compaction that hold for every history."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some

from convo.errors import RequestRefused
from convo.history.canonical import digest
from convo.history.items import Item, item_type
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.memory import MemoryStore
from convo.usage.counting import count_tokens
from tests.compaction.history_strategies import TEXTS, has_complete_pairs, histories, instructions, message
from tests.endpoints.endpoint_calls import ask
from tests.endpoints.summarizing_model import TRIGGER, SummarizingModel

EXAMPLES = settings(max_examples=40)
STORE = MemoryStore()
LAST = message("user", "And now?")


def run(items: list[Item], summary: str, **body: Any) -> tuple[SummarizingModel, list[Item]]:
    """Send `items` and return the model and the output of the response."""
    model = SummarizingModel(summary)

    async def send_request() -> list[Item]:
        endpoint = EmbeddedEndpoint(STORE, model, SystemClock(), random_id)
        return list((await ask(endpoint, items, store=False, **body))["output"])

    return model, asyncio.run(send_request())


@EXAMPLES
@given(histories(), TEXTS, some.integers(1, 200))
def test_above_a_threshold_the_model_gets_a_valid_history_that_is_no_longer_than_before(
    items: list[Item], summary: str, threshold: int
) -> None:
    management = [{"type": "compaction", "compact_threshold": threshold}]
    model, output = run([*items, LAST], summary, context_management=management)
    model_input = model.requests[-1].input
    assert [item_type(item) for item in output].count("compaction") <= 1
    assert has_complete_pairs(model_input)
    assert sorted(map(digest, instructions(model_input))) == sorted(map(digest, instructions(items)))
    assert digest(model_input[-1]) == digest(LAST)
    assert count_tokens(model_input).tokens <= count_tokens([*items, LAST]).tokens


@EXAMPLES
@given(histories(), TEXTS)
def test_a_trigger_yields_exactly_one_compaction_that_can_be_continued(items: list[Item], summary: str) -> None:
    _, output = run([*items, TRIGGER], summary)
    assert [item_type(item) for item in output] == ["compaction"]
    model, _ = run([*output, LAST], summary)
    model_input = model.requests[-1].input
    assert has_complete_pairs(model_input)
    assert digest(model_input[-1]) == digest(LAST)
    assert count_tokens(model_input).tokens <= count_tokens([*items, LAST]).tokens


@EXAMPLES
@given(histories(), TEXTS)
def test_a_compacted_history_has_exactly_one_compaction_and_no_additional_content(
    items: list[Item], summary: str
) -> None:
    async def compact_and_continue() -> tuple[list[Item], SummarizingModel]:
        model = SummarizingModel(summary)
        endpoint = EmbeddedEndpoint(STORE, model, SystemClock(), random_id)
        window = await endpoint.compact({"model": "any", "input": [*items, LAST]})
        await ask(endpoint, [*window["output"], LAST], store=False)
        return list(window["output"]), model

    window, model = asyncio.run(compact_and_continue())
    assert [item_type(item) for item in window].count("compaction") == 1
    assert item_type(window[-1]) == "compaction"
    assert has_complete_pairs(model.requests[-1].input)
    assert count_tokens(model.requests[-1].input).tokens <= count_tokens([*items, LAST, LAST]).tokens


@EXAMPLES
@given(histories(), TEXTS, some.sampled_from(["other", "Local", "local ", ""]))
def test_no_tenant_decrypts_the_compaction_of_another(items: list[Item], summary: str, tenant: str) -> None:
    _, output = run([*items, TRIGGER], summary)

    async def send_compaction() -> str:
        endpoint = EmbeddedEndpoint(STORE.for_tenant(tenant), SummarizingModel(), SystemClock(), random_id)
        try:
            await ask(endpoint, [*output, LAST], store=False)
        except RequestRefused as error:
            return error.code
        return "opened"

    assert asyncio.run(send_compaction()) == "invalid_encrypted_content"
