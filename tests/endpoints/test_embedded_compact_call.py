"""`POST /responses/compact` of the embedded endpoint: the compacted history that it returns."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from convo.errors import RequestRefused, StreamBroken
from convo.history.items import StreamEvent
from convo.installation import make_install_command
from convo.models.base import ModelRequest
from convo.responses_api.deps import EndpointOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from tests.endpoints.endpoint_calls import ask, error_fields, refusal, texts, user_item
from tests.endpoints.summarizing_model import (
    ANSWER,
    CALL,
    LONG,
    SUMMARY_TEXT,
    TRIGGER,
    SummarizingModel,
    create_chain,
    item_types,
)


@pytest.fixture
async def endpoint(store: Store, summarizer: SummarizingModel) -> AsyncIterator[EmbeddedEndpoint]:
    embedded = EmbeddedEndpoint(store, summarizer, SystemClock(), random_id)
    yield embedded
    await embedded.aclose()


async def compact(endpoint: EmbeddedEndpoint, **body: Any) -> dict[str, Any]:
    return dict(await endpoint.compact({"model": "any", **body}))


async def test_a_compacted_history_has_the_user_messages_and_one_compaction(endpoint: EmbeddedEndpoint) -> None:
    window = await compact(endpoint, input=[user_item("One. " + LONG), ANSWER, user_item("Two.")])
    assert item_types(window["output"]) == ["message", "message", "compaction"]
    assert texts(window["output"])[:2] == ["One. " + LONG, "Two."]
    assert window["object"] == "response.compaction"
    assert window["id"].startswith("resp_")
    assert all(item["id"] for item in window["output"])
    assert window["usage"]["total_tokens"] == 13


async def test_parameters_of_billing_and_identity_apply_to_the_summary_too(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    identity = {"prompt_cache_key": "k", "safety_identifier": "s", "service_tier": "flex", "user": "u"}
    management = [{"type": "compaction", "compact_threshold": 1000}]
    items = [user_item("One. " + LONG * 20), ANSWER, user_item("Two.")]
    await ask(endpoint, items, context_management=management, temperature=0.5, max_output_tokens=500, **identity)
    [summary] = summarizer.summaries
    assert summary.parameters == identity


async def test_the_compacted_history_is_the_next_input_and_repeats_nothing(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    window = await compact(endpoint, input=[user_item("One."), ANSWER])
    await ask(endpoint, [*window["output"], user_item("Two.")])
    assert summarizer.last_input() == ["One.", SUMMARY_TEXT, "Two."]


async def test_a_chain_is_compacted_by_its_last_response(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    summarizer.answer = LONG
    last = await create_chain(endpoint, "One.", "Two.")
    window = await compact(endpoint, previous_response_id=last)
    assert item_types(window["output"]) == ["message", "message", "compaction"]
    assert "User: One." in texts(summarizer.summaries[-1].input)[0]


async def test_the_id_of_a_compaction_is_no_previous_response(endpoint: EmbeddedEndpoint) -> None:
    window = await compact(endpoint, input=LONG)
    assert (
        error_fields(await refusal(endpoint, "More", previous_response_id=window["id"]))[0]
        == "previous_response_not_found"
    )


async def test_a_history_that_a_summary_would_not_shorten_is_kept(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    summarizer.summary = LONG
    window = await compact(endpoint, input=[user_item("Hi."), {"role": "assistant", "content": "Hello."}])
    await ask(endpoint, [*window["output"], user_item("Bye.")])
    assert summarizer.last_input() == ["Hi.", "Hello.", "Bye."]


async def test_a_user_message_that_fills_nearly_the_whole_history_is_summarized_too(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    window = await compact(endpoint, input=[user_item(LONG), {"role": "assistant", "content": "Well."}])
    assert item_types(window["output"]) == ["compaction"]
    await ask(endpoint, [*window["output"], user_item("Bye.")])
    assert summarizer.last_input() == [SUMMARY_TEXT, "Bye."]


async def test_an_empty_summary_removes_no_history(endpoint: EmbeddedEndpoint, summarizer: SummarizingModel) -> None:
    summarizer.summary = " "
    window = await compact(endpoint, input=[user_item(LONG), {"role": "assistant", "content": "Hello."}])
    await ask(endpoint, [*window["output"], user_item("Bye.")])
    assert summarizer.last_input() == [LONG, "Hello.", "Bye."]


async def test_a_compacted_history_is_compacted_again_with_its_summary(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    window = await compact(endpoint, input=[user_item("One."), ANSWER])
    second = await compact(endpoint, input=[*window["output"], ANSWER])
    assert item_types(second["output"]) == ["message", "compaction"]
    assert f"Earlier summary: {SUMMARY_TEXT}" in texts(summarizer.summaries[-1].input)[0]
    await ask(endpoint, [*second["output"], user_item("Two.")])
    assert summarizer.last_input() == ["One.", SUMMARY_TEXT, "Two."]


async def test_a_history_too_long_for_one_summary_is_summarized_in_two_steps(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    summarizer.window = 180
    items = [{"role": role, "content": f"{number} {LONG}"} for number in range(2) for role in ("user", "assistant")]
    window = await compact(endpoint, input=items)
    assert len(summarizer.summaries) == 3
    assert "Earlier summary" in texts(summarizer.summaries[-1].input)[0]
    assert window["usage"]["input_tokens"] == 20


async def test_a_provider_with_compaction_makes_the_compacted_history(store: Store) -> None:
    provider_items = [
        user_item("One.", id="msg_1"),
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"},
    ]
    model = SummarizingModel(provider_compaction=provider_items)
    window = await compact(EmbeddedEndpoint(store, model, SystemClock(), random_id), input="One.")
    assert window["output"][-1] == provider_items[-1]
    assert model.summaries == []
    assert window["usage"]["total_tokens"] == 0


async def test_if_the_provider_cannot_compact_this_model_a_summary_is_made(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    summarizer.refuses = True
    window = await compact(endpoint, input=[user_item("One."), ANSWER])
    assert item_types(window["output"]) == ["message", "compaction"]
    assert len(summarizer.summaries) == 1


async def test_a_provider_result_without_a_compaction_becomes_a_compaction(store: Store) -> None:
    """Clients rely on exactly one compaction item, so the endpoint wraps other output of a provider in one."""
    model = SummarizingModel(
        provider_compaction=[user_item("One."), {"type": "message", "role": "assistant", "content": "In short: words."}]
    )
    endpoint = EmbeddedEndpoint(store, model, SystemClock(), random_id)
    window = await compact(endpoint, input=[user_item("One."), ANSWER])
    assert item_types(window["output"]) == ["compaction"]
    await ask(endpoint, [*window["output"], user_item("Two.")])
    assert model.last_input() == ["One.", "In short: words.", "Two."]


async def test_a_history_with_a_call_without_output_is_not_compacted(endpoint: EmbeddedEndpoint) -> None:
    with pytest.raises(RequestRefused, match="No tool output found for function call call_1"):
        await compact(endpoint, input=[user_item("Look."), CALL])


async def test_a_field_of_another_request_is_refused_with_its_name(endpoint: EmbeddedEndpoint) -> None:
    with pytest.raises(RequestRefused, match="Unknown parameter: 'temperature'"):
        await compact(endpoint, input="One.", temperature=1)


async def test_a_stateless_server_compacts_too(store: Store, summarizer: SummarizingModel) -> None:
    endpoint = EmbeddedEndpoint(store, summarizer, SystemClock(), random_id, options=EndpointOptions(stateless=True))
    window = await compact(endpoint, input=[user_item("One."), ANSWER])
    await ask(endpoint, [*window["output"], user_item("Two.")])
    assert summarizer.last_input() == ["One.", SUMMARY_TEXT, "Two."]


async def test_the_summary_of_a_compaction_counts_as_input_tokens(endpoint: EmbeddedEndpoint) -> None:
    window = await compact(endpoint, input=[user_item("One."), ANSWER])
    tokens = await endpoint.count_input_tokens({"model": "any", "input": window["output"]})
    assert tokens == len(f"One. {SUMMARY_TEXT}".split())


@pytest.fixture
def without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["cryptography", *(name for name in sys.modules if name.startswith("cryptography."))]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without_cryptography")
async def test_without_the_serve_extra_no_summary_is_requested(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    with pytest.raises(
        RequestRefused, match=r"^Compaction needs the extra \[serve\], which is not installed$"
    ) as caught:
        await compact(endpoint, input=[user_item("One. " + LONG), ANSWER])
    assert (caught.value.hint, summarizer.summaries) == (make_install_command("serve"), [])


@pytest.mark.usefixtures("without_cryptography")
async def test_without_the_serve_extra_the_provider_makes_no_compaction_for_an_item_of_convo(store: Store) -> None:
    model = SummarizingModel(provider_compaction=[user_item("Short.")])
    endpoint = EmbeddedEndpoint(store, model, SystemClock(), random_id)
    error = await refusal(endpoint, [user_item("One. " + LONG), ANSWER, TRIGGER])
    await endpoint.aclose()
    assert (error.hint, model.compactions) == (make_install_command("serve"), [])


class BrokenSummaries(SummarizingModel):
    """A model whose summary requests end with `summary_events`."""

    summary_events: tuple[StreamEvent, ...] = ()

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        for event in self.summary_events:
            yield event


@pytest.mark.parametrize(
    ("summary_events", "message"),
    [
        ((), "the model's summary is incomplete"),
        (({"type": "response.output_text.delta", "delta": "They"},), "the model's summary is incomplete"),
        (({"type": "error", "response": {}},), "the model's summary is incomplete"),
        (
            ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "overloaded"}}},),
            "the model wrote no summary: overloaded",
        ),
        (({"type": "response.failed", "response": {"error": None}},), "the model wrote no summary: "),
    ],
)
async def test_a_summary_that_does_not_end_fails_the_compaction(
    store: Store, summary_events: tuple[StreamEvent, ...], message: str
) -> None:
    model = BrokenSummaries()
    model.summary_events = summary_events
    endpoint = EmbeddedEndpoint(store, model, SystemClock(), random_id)
    with pytest.raises(StreamBroken) as caught:
        await compact(endpoint, input=[user_item("One. " + LONG), ANSWER])
    await endpoint.aclose()
    assert str(caught.value).startswith(message)
    assert (caught.value.code, caught.value.status) == ("stream_broken", 502)
