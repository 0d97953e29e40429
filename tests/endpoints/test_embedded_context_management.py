"""Compaction within a request to the embedded endpoint: thresholds, triggers and continued histories."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.history.items import Item, item_type
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from tests.endpoints.endpoint_calls import ask, error_fields, events, output_for, refusal, texts, user_item
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


def compaction_threshold(tokens: int) -> list[dict[str, Any]]:
    """Return the `context_management` field with a compaction threshold of `tokens`."""
    return [{"type": "compaction", "compact_threshold": tokens}]


@pytest.fixture
async def endpoint(store: Store, summarizer: SummarizingModel) -> AsyncIterator[EmbeddedEndpoint]:
    embedded = EmbeddedEndpoint(store, summarizer, SystemClock(), random_id)
    yield embedded
    await embedded.aclose()


# -- inside a request -----------------------------------------------------------------------------


async def test_below_its_threshold_nothing_is_compacted(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    last = await create_chain(endpoint, "One.")
    answer = await ask(endpoint, "Two.", previous_response_id=last, context_management=compaction_threshold(1000))
    assert item_types(answer["output"]) == ["message"]
    assert summarizer.summaries == []


async def test_above_its_threshold_the_compaction_precedes_the_answer(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    last = await create_chain(endpoint, "One. " + LONG, "Two. " + LONG)
    received = await events(endpoint, "Three.", previous_response_id=last, context_management=compaction_threshold(100))
    item_events = [event for event in received if event["type"].startswith("response.output_item")]
    assert [(event["type"], event["output_index"], item_type(event["item"])) for event in item_events] == [
        ("response.output_item.added", 0, "compaction"),
        ("response.output_item.done", 0, "compaction"),
        ("response.output_item.added", 1, "message"),
        ("response.output_item.done", 1, "message"),
    ]
    assert [event["sequence_number"] for event in received] == list(range(len(received)))
    assert received[-1]["response"]["output"] == [item_events[1]["item"], item_events[3]["item"]]
    assert received[-1]["response"]["usage"]["total_tokens"] == 26
    assert summarizer.last_input() == [SUMMARY_TEXT, "Three."]


async def test_a_chain_continues_from_its_compaction(endpoint: EmbeddedEndpoint, summarizer: SummarizingModel) -> None:
    last = await create_chain(endpoint, "One. " + LONG, "Two. " + LONG)
    answer = await ask(endpoint, "Three.", previous_response_id=last, context_management=compaction_threshold(100))
    await ask(endpoint, "Four.", previous_response_id=answer["id"], context_management=compaction_threshold(100))
    assert summarizer.last_input() == [SUMMARY_TEXT, "Three.", "shown 2", "Four."]
    assert len(summarizer.summaries) == 1


async def test_a_long_user_message_does_not_compact_the_same_history_again(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    last = await create_chain(endpoint, "One.", "Two. " + LONG)
    first = await ask(endpoint, LONG, previous_response_id=last, context_management=compaction_threshold(60))
    second = await ask(endpoint, LONG, previous_response_id=first["id"], context_management=compaction_threshold(60))
    assert [item_types(response["output"]) for response in (first, second)] == [["compaction", "message"]] * 2
    third = await ask(endpoint, [TRIGGER], previous_response_id=second["id"])
    fourth = await ask(
        endpoint, LONG * 2, previous_response_id=third["id"], context_management=compaction_threshold(60)
    )
    assert item_types(fourth["output"]) == ["message"]


async def test_a_conversation_continues_from_its_compaction_and_keeps_every_item(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    conversation = (await endpoint.create_conversation())["id"]
    for text in ("One. " + LONG, "Two. " + LONG):
        await ask(endpoint, text, conversation=conversation)
    await ask(endpoint, "Three.", conversation=conversation, context_management=compaction_threshold(100))
    await ask(endpoint, "Four.", conversation=conversation)
    assert summarizer.last_input() == [SUMMARY_TEXT, "Three.", "shown 2", "Four."]
    listed = await endpoint.list_conversation_items(conversation, limit=100, order="asc")
    assert item_types(listed.items) == ["message"] * 5 + ["compaction"] + ["message"] * 3


async def test_a_resent_history_is_read_from_its_compaction_on(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    history: list[Item] = [user_item("One. " + LONG), ANSWER, user_item("Two.")]
    answer = await ask(endpoint, history, store=False, context_management=compaction_threshold(50))
    await ask(endpoint, [*history, *answer["output"], user_item("Three.")], store=False)
    full_input = summarizer.last_input()
    await ask(endpoint, [*answer["output"], user_item("Three.")], store=False)
    assert summarizer.last_input() == full_input == [SUMMARY_TEXT, "Two.", "shown 2", "Three."]


async def test_a_long_agent_turn_is_compacted_between_its_calls(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    items: list[Item] = [user_item("Look around.")]
    for number in range(6):
        call = {**CALL, "call_id": f"call_{number}"}
        items += [call, output_for(call, f"{number} {LONG}")]
    answer = await ask(endpoint, items, context_management=compaction_threshold(200))
    assert item_types(answer["output"]) == ["compaction", "message"]
    model_input = summarizer.requests[-1].input
    assert item_types(model_input) == ["message", "message", "function_call", "function_call_output"]
    assert texts(model_input)[:2] == ["Look around.", SUMMARY_TEXT]


async def test_developer_messages_in_the_history_are_never_summarized(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    history = [{"role": "developer", "content": "Be brief."}, user_item(LONG), ANSWER]
    await ask(endpoint, [*history, user_item("More.")], context_management=compaction_threshold(50))
    assert summarizer.last_input() == ["Be brief.", SUMMARY_TEXT, "More."]


async def test_a_trigger_is_answered_by_one_compaction_only(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    """Codex accepts exactly one compaction item and fails on any other output."""
    received = await events(endpoint, [user_item("One."), ANSWER, TRIGGER])
    assert [event["type"] for event in received] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
        "response.completed",
    ]
    assert item_types(received[-1]["response"]["output"]) == ["compaction"]
    assert summarizer.requests == []


async def test_a_chain_continues_from_a_trigger_with_the_user_messages(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    summarizer.answer = LONG
    last = await create_chain(endpoint, "One.")
    compaction = await ask(endpoint, [TRIGGER], previous_response_id=last)
    await ask(endpoint, "Two.", previous_response_id=compaction["id"])
    assert summarizer.last_input() == ["One.", SUMMARY_TEXT, "Two."]
    listed = await endpoint.list_input_items(compaction["id"], order="asc")
    assert item_types(listed.items) == ["message", "message"]


async def test_new_messages_before_a_compaction_reach_the_model(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    """Codex sends its instructions and the user messages before the compaction item."""
    instructions = {"role": "developer", "content": "Be brief."}
    compaction = await ask(endpoint, [instructions, user_item("One."), ANSWER, TRIGGER], store=False)
    new_instructions = {"role": "developer", "content": "Be brief, and kind."}
    await ask(endpoint, [new_instructions, user_item("One."), *compaction["output"], user_item("Two.")], store=False)
    assert summarizer.last_input() == ["Be brief, and kind.", "Be brief.", "One.", SUMMARY_TEXT, "Two."]


async def test_a_trigger_that_is_not_last_is_refused(endpoint: EmbeddedEndpoint) -> None:
    error = await refusal(endpoint, [TRIGGER, user_item("One.")])
    assert error.message == "The 'compaction_trigger' item must be the final input item"
    assert error_fields(error) == ("invalid_request_error", 400, "input")


async def test_a_conversation_stores_no_trigger(endpoint: EmbeddedEndpoint) -> None:
    with pytest.raises(RequestRefused, match="not stored as an item"):
        await endpoint.create_conversation([TRIGGER])


async def test_a_trigger_without_a_history_is_answered_by_one_compaction_too(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    answer = await ask(endpoint, [TRIGGER])
    assert item_types(answer["output"]) == ["compaction"]
    assert answer["usage"]["total_tokens"] == 0
    assert summarizer.summaries == []


async def test_the_compaction_of_a_provider_is_used_within_a_request_too(store: Store) -> None:
    """The client's one compaction item contains the provider's item, which is sent to the provider at its position."""
    provider_item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}
    model = SummarizingModel(provider_compaction=[provider_item])
    endpoint = EmbeddedEndpoint(store, model, SystemClock(), random_id)
    answer = await ask(
        endpoint, [user_item(LONG), ANSWER, user_item("Two.")], context_management=compaction_threshold(50)
    )
    assert item_types(answer["output"]) == ["compaction", "message"]
    assert answer["output"][0]["encrypted_content"] != "theirs"
    await ask(endpoint, "Three.", previous_response_id=answer["id"])
    assert model.requests[-1].input[0] == provider_item
    assert model.last_input()[1:] == ["Two.", "shown 2", "Three."]
    assert texts(model.compactions[-1].input) == [LONG, LONG]


async def test_a_failed_summary_stores_nothing(
    endpoint: EmbeddedEndpoint, store: Store, summarizer: SummarizingModel
) -> None:
    summarizer.window = 5
    error = await refusal(endpoint, [user_item(LONG), TRIGGER])
    assert error_fields(error)[0] == "context_length_exceeded"
    assert await store.find_handles("") == []
    assert list(await store.admin.tenant_stats()) == []

    summarizer.window = None
    answer = await ask(endpoint, [user_item(LONG), TRIGGER])
    assert [match.id for match in await store.find_handles("")] == [answer["id"]]


async def test_a_refused_request_after_a_compaction_stores_nothing(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    """No event is sent before the model call starts, so no client receives the compaction item as output."""
    summarizer.window = 150
    conversation = (await endpoint.create_conversation([user_item("One."), ANSWER]))["id"]
    error = await refusal(endpoint, LONG * 3, conversation=conversation, context_management=compaction_threshold(50))
    assert error_fields(error)[0] == "context_length_exceeded"
    assert len(summarizer.summaries) == 1
    assert item_types((await endpoint.list_conversation_items(conversation)).items) == ["message"] * 2


async def test_the_retrieved_response_equals_the_streamed_one_with_a_compaction(endpoint: EmbeddedEndpoint) -> None:
    answer = await ask(
        endpoint, [user_item(LONG), ANSWER, user_item("Two.")], context_management=compaction_threshold(50)
    )
    assert await endpoint.retrieve(answer["id"]) == answer


async def test_a_connection_continues_from_an_unstored_compaction(
    endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    connection = endpoint.connect()

    async def send(request_input: Any, **body: Any) -> dict[str, Any]:
        request = {"model": "any", "input": request_input, "store": False, **body}
        return dict([event async for event in connection.create(request)][-1]["response"])

    first = await send([user_item("One."), ANSWER, user_item("Two.")], context_management=compaction_threshold(50))
    await send("Three.", previous_response_id=first["id"])
    assert summarizer.last_input() == ["One.", SUMMARY_TEXT, "Two.", "shown 3", "Three."]


async def test_a_background_response_is_compacted_like_any_other(endpoint: EmbeddedEndpoint) -> None:
    history = [user_item(LONG), ANSWER, user_item("Two.")]
    received = await events(endpoint, history, background=True, context_management=compaction_threshold(50))
    assert item_types(received[-1]["response"]["output"]) == ["compaction", "message"]


# -- access to compaction items -------------------------------------------------------------------


async def test_another_tenant_cannot_decrypt_a_compaction(
    store: Store, endpoint: EmbeddedEndpoint, summarizer: SummarizingModel
) -> None:
    compaction = await ask(endpoint, [user_item(LONG), TRIGGER])
    foreign = EmbeddedEndpoint(store.for_tenant("other"), summarizer, SystemClock(), random_id)
    error = await refusal(foreign, [*compaction["output"], user_item("What was it?")])
    assert error_fields(error) == ("invalid_encrypted_content", 400, None)
    assert compaction["output"][0]["id"] in error.message
    assert LONG not in error.message


async def test_a_damaged_compaction_is_refused_with_its_id(endpoint: EmbeddedEndpoint) -> None:
    (item,) = (await ask(endpoint, [user_item(LONG), TRIGGER]))["output"]
    damaged = {**item, "encrypted_content": item["encrypted_content"][:-8] + "AAAAAAA="}
    error = await refusal(endpoint, [damaged, user_item("Two.")])
    assert error_fields(error)[0] == "invalid_encrypted_content"
    assert error.message.startswith(f"The encrypted content for item {item['id']} could not be verified")


async def test_a_compaction_of_another_issuer_cannot_be_summarized(endpoint: EmbeddedEndpoint) -> None:
    foreign_item = {"type": "compaction", "id": "cmp_9", "encrypted_content": "gAAAAAB"}
    error = await refusal(endpoint, [foreign_item, user_item(LONG), TRIGGER])
    assert error_fields(error)[0] == "invalid_encrypted_content"


async def test_a_compaction_of_another_issuer_is_refused_with_its_id(
    endpoint: EmbeddedEndpoint,
) -> None:
    foreign_item = {"type": "compaction", "id": "cmp_9", "encrypted_content": "gAAAAAB"}
    error = await refusal(endpoint, [foreign_item, user_item("Two.")])
    assert error_fields(error) == ("invalid_encrypted_content", 400, None)
    assert "cmp_9" in error.message
