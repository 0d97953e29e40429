"""The embedded endpoint makes a history smaller on request: the window that `POST /responses/compact` gives."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.responses_api.deps import EndpointOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from tests.endpoints.reader import ANSWER, CALL, LONG, SUMMED, Reader, chained, kinds
from tests.endpoints.sides import ask, refusal, texts, told, user


@pytest.fixture
async def endpoint(store: Store, reader: Reader) -> AsyncIterator[EmbeddedEndpoint]:
    made = EmbeddedEndpoint(store, reader, SystemClock(), random_id)
    yield made
    await made.aclose()


async def compacted(endpoint: EmbeddedEndpoint, **body: Any) -> dict[str, Any]:
    return dict(await endpoint.compact({"model": "any", **body}))


async def test_a_compacted_window_is_the_users_words_and_one_compaction(endpoint: EmbeddedEndpoint) -> None:
    window = await compacted(endpoint, input=[user("One. " + LONG), ANSWER, user("Two.")])
    assert kinds(window["output"]) == ["message", "message", "compaction"]
    assert texts(window["output"])[:2] == ["One. " + LONG, "Two."]
    assert window["object"] == "response.compaction"
    assert window["id"].startswith("resp_")
    assert all(item["id"] for item in window["output"])
    assert window["usage"]["total_tokens"] == 13


async def test_the_window_is_the_next_input_and_says_everything_once(
    endpoint: EmbeddedEndpoint, reader: Reader
) -> None:
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    await ask(endpoint, [*window["output"], user("Two.")])
    assert reader.shown() == ["One.", SUMMED, "Two."]


async def test_a_chain_is_compacted_by_its_last_response(endpoint: EmbeddedEndpoint, reader: Reader) -> None:
    reader.answer = LONG
    last = await chained(endpoint, "One.", "Two.")
    window = await compacted(endpoint, previous_response_id=last)
    assert kinds(window["output"]) == ["message", "message", "compaction"]
    assert "User: One." in texts(reader.summaries[-1].input)[0]


async def test_a_window_is_nothing_that_a_chain_goes_on_from(endpoint: EmbeddedEndpoint) -> None:
    window = await compacted(endpoint, input=LONG)
    assert told(await refusal(endpoint, "More", previous_response_id=window["id"]))[0] == "previous_response_not_found"


async def test_what_a_summary_would_not_make_smaller_stands_in_it_as_it_was(
    endpoint: EmbeddedEndpoint, reader: Reader
) -> None:
    reader.summary = LONG
    window = await compacted(endpoint, input=[user("Hi."), {"role": "assistant", "content": "Hello."}])
    await ask(endpoint, [*window["output"], user("Bye.")])
    assert reader.shown() == ["Hi.", "Hello.", "Bye."]


async def test_words_of_the_user_that_are_nearly_all_there_is_are_folded_too(
    endpoint: EmbeddedEndpoint, reader: Reader
) -> None:
    window = await compacted(endpoint, input=[user(LONG), {"role": "assistant", "content": "Well."}])
    assert kinds(window["output"]) == ["compaction"]
    await ask(endpoint, [*window["output"], user("Bye.")])
    assert reader.shown() == [SUMMED, "Bye."]


async def test_a_summary_of_no_words_takes_no_history_away(endpoint: EmbeddedEndpoint, reader: Reader) -> None:
    reader.summary = " "
    window = await compacted(endpoint, input=[user(LONG), {"role": "assistant", "content": "Hello."}])
    await ask(endpoint, [*window["output"], user("Bye.")])
    assert reader.shown() == [LONG, "Hello.", "Bye."]


async def test_a_window_is_compacted_again_with_its_summary(endpoint: EmbeddedEndpoint, reader: Reader) -> None:
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    again = await compacted(endpoint, input=[*window["output"], ANSWER])
    assert kinds(again["output"]) == ["message", "compaction"]
    assert f"Earlier summary: {SUMMED}" in texts(reader.summaries[-1].input)[0]
    await ask(endpoint, [*again["output"], user("Two.")])
    assert reader.shown() == ["One.", SUMMED, "Two."]


async def test_a_history_too_long_for_one_summary_is_told_in_two(endpoint: EmbeddedEndpoint, reader: Reader) -> None:
    reader.room = 180
    items = [{"role": role, "content": f"{at} {LONG}"} for at in range(2) for role in ("user", "assistant")]
    window = await compacted(endpoint, input=items)
    assert len(reader.summaries) == 3
    assert "Earlier summary" in texts(reader.summaries[-1].input)[0]
    assert window["usage"]["input_tokens"] == 20


async def test_a_provider_that_has_a_compaction_makes_the_window(store: Store) -> None:
    theirs = [user("One.", id="msg_1"), {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}]
    reader = Reader(theirs=theirs)
    window = await compacted(EmbeddedEndpoint(store, reader, SystemClock(), random_id), input="One.")
    assert window["output"][-1] == theirs[-1]
    assert reader.summaries == []
    assert window["usage"]["total_tokens"] == 0


async def test_where_a_provider_compacts_other_models_only_a_summary_is_made(
    endpoint: EmbeddedEndpoint, reader: Reader
) -> None:
    reader.refuses = True
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    assert kinds(window["output"]) == ["message", "compaction"]
    assert len(reader.summaries) == 1


async def test_a_providers_window_without_a_compaction_becomes_one(store: Store) -> None:
    """Whoever counts on exactly one such item gets it, whatever a server calls its own."""
    reader = Reader(theirs=[user("One."), {"type": "message", "role": "assistant", "content": "In short: words."}])
    endpoint = EmbeddedEndpoint(store, reader, SystemClock(), random_id)
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    assert kinds(window["output"]) == ["compaction"]
    await ask(endpoint, [*window["output"], user("Two.")])
    assert reader.shown() == ["One.", "In short: words.", "Two."]


async def test_a_call_without_its_output_is_not_compacted(endpoint: EmbeddedEndpoint) -> None:
    with pytest.raises(RequestRefused, match="No tool output found for function call call_1"):
        await compacted(endpoint, input=[user("Look."), CALL])


async def test_a_field_of_another_request_is_refused_by_its_name(endpoint: EmbeddedEndpoint) -> None:
    with pytest.raises(RequestRefused, match="Unknown parameter: 'temperature'"):
        await compacted(endpoint, input="One.", temperature=1)


async def test_a_server_that_keeps_nothing_compacts_all_the_same(store: Store, reader: Reader) -> None:
    endpoint = EmbeddedEndpoint(store, reader, SystemClock(), random_id, options=EndpointOptions(stateless=True))
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    await ask(endpoint, [*window["output"], user("Two.")])
    assert reader.shown() == ["One.", SUMMED, "Two."]


async def test_tokens_are_counted_behind_a_compaction(endpoint: EmbeddedEndpoint) -> None:
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    counted = await endpoint.count_input_tokens({"model": "any", "input": window["output"]})
    assert counted == len(f"One. {SUMMED}".split())
