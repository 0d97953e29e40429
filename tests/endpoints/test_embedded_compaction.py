"""The embedded endpoint makes a history smaller, and goes on from it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from convo.clock import SystemClock
from convo.compaction.summary import HEAD
from convo.endpoints.embedded import Embedded, Manner
from convo.errors import Refused
from convo.ids import random_id
from convo.items import Item, kind
from convo.stores.contract import Store
from tests.endpoints.reader import SUMMARY, Reader
from tests.endpoints.sides import ask, events, output_for, refusal, texts, told, user

LONG = " ".join(["word"] * 60)
ANSWER = {"role": "assistant", "content": LONG}
TRIGGER = {"type": "compaction_trigger"}
SUMMED = f"{HEAD}\n\n{SUMMARY}"
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}


def at(tokens: int) -> list[dict[str, Any]]:
    """The field that asks for a compaction from so many tokens on."""
    return [{"type": "compaction", "compact_threshold": tokens}]


def kinds(items: Any) -> list[str]:
    return [kind(item) for item in items]


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
async def endpoint(store: Store, reader: Reader) -> AsyncIterator[Embedded]:
    made = Embedded(store, reader, SystemClock(), random_id)
    yield made
    await made.aclose()


async def chained(endpoint: Embedded, *said: str) -> str:
    """The id of the last response of a chain in which this was said."""
    last = None
    for words in said:
        last = (await ask(endpoint, words, previous_response_id=last))["id"]
    return str(last)


async def compacted(endpoint: Embedded, **body: Any) -> dict[str, Any]:
    return dict(await endpoint.compact({"model": "any", **body}))


# -- POST /responses/compact ----------------------------------------------------------------------


async def test_a_compacted_window_is_the_users_words_and_one_compaction(endpoint: Embedded) -> None:
    window = await compacted(endpoint, input=[user("One. " + LONG), ANSWER, user("Two.")])
    assert kinds(window["output"]) == ["message", "message", "compaction"]
    assert texts(window["output"])[:2] == ["One. " + LONG, "Two."]
    assert window["object"] == "response.compaction"
    assert window["id"].startswith("resp_")
    assert all(item["id"] for item in window["output"])
    assert window["usage"]["total_tokens"] == 13


async def test_the_window_is_the_next_input_and_says_everything_once(endpoint: Embedded, reader: Reader) -> None:
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    await ask(endpoint, [*window["output"], user("Two.")])
    assert reader.shown() == ["One.", SUMMED, "Two."]


async def test_a_chain_is_compacted_by_its_last_response(endpoint: Embedded, reader: Reader) -> None:
    reader.answer = LONG
    last = await chained(endpoint, "One.", "Two.")
    window = await compacted(endpoint, previous_response_id=last)
    assert kinds(window["output"]) == ["message", "message", "compaction"]
    assert "User: One." in texts(reader.summaries[-1].input)[0]


async def test_a_window_is_nothing_that_a_chain_goes_on_from(endpoint: Embedded) -> None:
    window = await compacted(endpoint, input=LONG)
    assert told(await refusal(endpoint, "More", previous_response_id=window["id"]))[0] == "previous_response_not_found"


async def test_what_a_summary_would_not_make_smaller_stands_in_it_as_it_was(endpoint: Embedded, reader: Reader) -> None:
    reader.summary = LONG
    window = await compacted(endpoint, input=[user("Hi."), {"role": "assistant", "content": "Hello."}])
    await ask(endpoint, [*window["output"], user("Bye.")])
    assert reader.shown() == ["Hi.", "Hello.", "Bye."]


async def test_words_of_the_user_that_are_nearly_all_there_is_are_folded_too(
    endpoint: Embedded, reader: Reader
) -> None:
    window = await compacted(endpoint, input=[user(LONG), {"role": "assistant", "content": "Well."}])
    assert kinds(window["output"]) == ["compaction"]
    await ask(endpoint, [*window["output"], user("Bye.")])
    assert reader.shown() == [SUMMED, "Bye."]


async def test_a_summary_of_no_words_takes_no_history_away(endpoint: Embedded, reader: Reader) -> None:
    reader.summary = " "
    window = await compacted(endpoint, input=[user(LONG), {"role": "assistant", "content": "Hello."}])
    await ask(endpoint, [*window["output"], user("Bye.")])
    assert reader.shown() == [LONG, "Hello.", "Bye."]


async def test_a_window_is_compacted_again_with_its_summary(endpoint: Embedded, reader: Reader) -> None:
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    again = await compacted(endpoint, input=[*window["output"], ANSWER])
    assert kinds(again["output"]) == ["message", "compaction"]
    assert f"Earlier summary: {SUMMED}" in texts(reader.summaries[-1].input)[0]
    await ask(endpoint, [*again["output"], user("Two.")])
    assert reader.shown() == ["One.", SUMMED, "Two."]


async def test_a_history_too_long_for_one_summary_is_told_in_two(endpoint: Embedded, reader: Reader) -> None:
    reader.room = 180
    items = [{"role": role, "content": f"{at} {LONG}"} for at in range(2) for role in ("user", "assistant")]
    window = await compacted(endpoint, input=items)
    assert len(reader.summaries) == 3
    assert "Earlier summary" in texts(reader.summaries[-1].input)[0]
    assert window["usage"]["input_tokens"] == 20


async def test_a_provider_that_has_a_compaction_makes_the_window(store: Store) -> None:
    theirs = [user("One.", id="msg_1"), {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}]
    reader = Reader(theirs=theirs)
    window = await compacted(Embedded(store, reader, SystemClock(), random_id), input="One.")
    assert window["output"][-1] == theirs[-1]
    assert reader.summaries == []
    assert window["usage"]["total_tokens"] == 0


async def test_where_a_provider_compacts_other_models_only_a_summary_is_made(
    endpoint: Embedded, reader: Reader
) -> None:
    reader.refuses = True
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    assert kinds(window["output"]) == ["message", "compaction"]
    assert len(reader.summaries) == 1


async def test_a_providers_window_without_a_compaction_becomes_one(store: Store) -> None:
    """Whoever counts on exactly one such item gets it, whatever a server calls its own."""
    reader = Reader(theirs=[user("One."), {"type": "message", "role": "assistant", "content": "In short: words."}])
    endpoint = Embedded(store, reader, SystemClock(), random_id)
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    assert kinds(window["output"]) == ["compaction"]
    await ask(endpoint, [*window["output"], user("Two.")])
    assert reader.shown() == ["One.", "In short: words.", "Two."]


async def test_a_call_without_its_output_is_not_compacted(endpoint: Embedded) -> None:
    with pytest.raises(Refused, match="No tool output found for function call call_1"):
        await compacted(endpoint, input=[user("Look."), CALL])


async def test_a_field_of_another_request_is_refused_by_its_name(endpoint: Embedded) -> None:
    with pytest.raises(Refused, match="Unknown parameter: 'temperature'"):
        await compacted(endpoint, input="One.", temperature=1)


# -- inside a request -----------------------------------------------------------------------------


async def test_below_its_threshold_nothing_is_compacted(endpoint: Embedded, reader: Reader) -> None:
    last = await chained(endpoint, "One.")
    answer = await ask(endpoint, "Two.", previous_response_id=last, context_management=at(1000))
    assert kinds(answer["output"]) == ["message"]
    assert reader.summaries == []


async def test_past_its_threshold_the_compaction_comes_first_and_the_answer_behind_it(
    endpoint: Embedded, reader: Reader
) -> None:
    last = await chained(endpoint, "One. " + LONG, "Two. " + LONG)
    told_ = await events(endpoint, "Three.", previous_response_id=last, context_management=at(100))
    items = [event for event in told_ if event["type"].startswith("response.output_item")]
    assert [(event["type"], event["output_index"], kind(event["item"])) for event in items] == [
        ("response.output_item.added", 0, "compaction"),
        ("response.output_item.done", 0, "compaction"),
        ("response.output_item.added", 1, "message"),
        ("response.output_item.done", 1, "message"),
    ]
    assert [event["sequence_number"] for event in told_] == list(range(len(told_)))
    assert told_[-1]["response"]["output"] == [items[1]["item"], items[3]["item"]]
    assert told_[-1]["response"]["usage"]["total_tokens"] == 26
    assert reader.shown() == [SUMMED, "Three."]


async def test_a_chain_goes_on_from_its_compaction(endpoint: Embedded, reader: Reader) -> None:
    last = await chained(endpoint, "One. " + LONG, "Two. " + LONG)
    answer = await ask(endpoint, "Three.", previous_response_id=last, context_management=at(100))
    await ask(endpoint, "Four.", previous_response_id=answer["id"], context_management=at(100))
    assert reader.shown() == [SUMMED, "Three.", "shown 2", "Four."]
    assert len(reader.summaries) == 1


async def test_a_long_question_is_no_reason_to_fold_the_same_again(endpoint: Embedded, reader: Reader) -> None:
    last = await chained(endpoint, "One.", "Two. " + LONG)
    first = await ask(endpoint, LONG, previous_response_id=last, context_management=at(60))
    again = await ask(endpoint, LONG, previous_response_id=first["id"], context_management=at(60))
    assert [kinds(response["output"]) for response in (first, again)] == [["compaction", "message"]] * 2
    third = await ask(endpoint, [TRIGGER], previous_response_id=again["id"])
    asked = await ask(endpoint, LONG * 2, previous_response_id=third["id"], context_management=at(60))
    assert kinds(asked["output"]) == ["message"]


async def test_a_conversation_goes_on_from_its_compaction_and_keeps_everything(
    endpoint: Embedded, reader: Reader
) -> None:
    conversation = (await endpoint.create_conversation())["id"]
    for words in ("One. " + LONG, "Two. " + LONG):
        await ask(endpoint, words, conversation=conversation)
    await ask(endpoint, "Three.", conversation=conversation, context_management=at(100))
    await ask(endpoint, "Four.", conversation=conversation)
    assert reader.shown() == [SUMMED, "Three.", "shown 2", "Four."]
    kept = await endpoint.conversation_items(conversation, limit=100, order="asc")
    assert kinds(kept.items) == ["message"] * 5 + ["compaction"] + ["message"] * 3


async def test_a_client_that_sends_everything_again_is_read_from_the_compaction_on(
    endpoint: Embedded, reader: Reader
) -> None:
    history: list[Item] = [user("One. " + LONG), ANSWER, user("Two.")]
    answer = await ask(endpoint, history, store=False, context_management=at(50))
    await ask(endpoint, [*history, *answer["output"], user("Three.")], store=False)
    whole = reader.shown()
    await ask(endpoint, [*answer["output"], user("Three.")], store=False)
    assert reader.shown() == whole == [SUMMED, "Two.", "shown 2", "Three."]


async def test_an_agents_long_turn_is_cut_between_its_steps(endpoint: Embedded, reader: Reader) -> None:
    work: list[Item] = [user("Look around.")]
    for number in range(6):
        call = {**CALL, "call_id": f"call_{number}"}
        work += [call, output_for(call, f"{number} {LONG}")]
    answer = await ask(endpoint, work, context_management=at(200))
    assert kinds(answer["output"]) == ["compaction", "message"]
    shown = reader.asks[-1].input
    assert kinds(shown) == ["message", "message", "function_call", "function_call_output"]
    assert texts(shown)[:2] == ["Look around.", SUMMED]


async def test_instructions_in_the_history_are_never_folded(endpoint: Embedded, reader: Reader) -> None:
    history = [{"role": "developer", "content": "Be brief."}, user(LONG), ANSWER]
    await ask(endpoint, [*history, user("More.")], context_management=at(50))
    assert reader.shown() == ["Be brief.", SUMMED, "More."]


async def test_a_trigger_is_answered_by_one_compaction_and_nothing_else(endpoint: Embedded, reader: Reader) -> None:
    """Codex takes exactly one such item and fails over every other answer."""
    told_ = await events(endpoint, [user("One."), ANSWER, TRIGGER])
    assert [event["type"] for event in told_] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
        "response.completed",
    ]
    assert kinds(told_[-1]["response"]["output"]) == ["compaction"]
    assert reader.asks == []


async def test_a_chain_goes_on_from_a_trigger_with_the_users_words(endpoint: Embedded, reader: Reader) -> None:
    reader.answer = LONG
    last = await chained(endpoint, "One.")
    made = await ask(endpoint, [TRIGGER], previous_response_id=last)
    await ask(endpoint, "Two.", previous_response_id=made["id"])
    assert reader.shown() == ["One.", SUMMED, "Two."]
    listed = await endpoint.input_items(made["id"], order="asc")
    assert kinds(listed.items) == ["message", "message"]


async def test_messages_that_a_client_writes_anew_before_a_compaction_are_seen(
    endpoint: Embedded, reader: Reader
) -> None:
    """Codex puts its instructions and the words of the user before the item that it got."""
    rules = {"role": "developer", "content": "Be brief."}
    made = await ask(endpoint, [rules, user("One."), ANSWER, TRIGGER], store=False)
    fresh = {"role": "developer", "content": "Be brief, and kind."}
    await ask(endpoint, [fresh, user("One."), *made["output"], user("Two.")], store=False)
    assert reader.shown() == ["Be brief, and kind.", "Be brief.", "One.", SUMMED, "Two."]


async def test_a_trigger_stands_last_or_is_refused(endpoint: Embedded) -> None:
    wrong = await refusal(endpoint, [TRIGGER, user("One.")])
    assert wrong.message == "The 'compaction_trigger' item must be the final input item"
    assert told(wrong) == ("invalid_request_error", 400, "input")


async def test_a_conversation_keeps_no_trigger(endpoint: Embedded) -> None:
    with pytest.raises(Refused, match="not kept among items"):
        await endpoint.create_conversation([TRIGGER])


async def test_a_trigger_with_nothing_before_it_has_one_compaction_too(endpoint: Embedded, reader: Reader) -> None:
    answer = await ask(endpoint, [TRIGGER])
    assert kinds(answer["output"]) == ["compaction"]
    assert answer["usage"]["total_tokens"] == 0
    assert reader.summaries == []


async def test_a_providers_own_compaction_is_used_inside_a_request_too(store: Store) -> None:
    """What it sealed goes back to it in its place, inside the one item that the client sees."""
    theirs = {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}
    reader = Reader(theirs=[theirs])
    endpoint = Embedded(store, reader, SystemClock(), random_id)
    answer = await ask(endpoint, [user(LONG), ANSWER, user("Two.")], context_management=at(50))
    assert kinds(answer["output"]) == ["compaction", "message"]
    assert answer["output"][0]["encrypted_content"] != "theirs"
    await ask(endpoint, "Three.", previous_response_id=answer["id"])
    assert reader.asks[-1].input[0] == theirs
    assert reader.shown()[1:] == ["Two.", "shown 2", "Three."]
    assert texts(reader.compactions[-1].input) == [LONG, LONG]


async def test_a_summary_that_fails_leaves_nothing_behind(endpoint: Embedded, reader: Reader) -> None:
    reader.room = 5
    wrong = await refusal(endpoint, [user(LONG), TRIGGER])
    assert told(wrong)[0] == "context_length_exceeded"


async def test_an_answer_that_is_refused_after_a_compaction_leaves_nothing_behind(
    endpoint: Embedded, reader: Reader
) -> None:
    """Nothing was told before the model began, so nobody takes the item for an answer."""
    reader.room = 150
    conversation = (await endpoint.create_conversation([user("One."), ANSWER]))["id"]
    wrong = await refusal(endpoint, LONG * 3, conversation=conversation, context_management=at(50))
    assert told(wrong)[0] == "context_length_exceeded"
    assert len(reader.summaries) == 1
    assert kinds((await endpoint.conversation_items(conversation)).items) == ["message"] * 2


async def test_what_was_streamed_with_a_compaction_is_what_is_retrieved(endpoint: Embedded) -> None:
    answer = await ask(endpoint, [user(LONG), ANSWER, user("Two.")], context_management=at(50))
    assert await endpoint.retrieve(answer["id"]) == answer


async def test_a_connection_goes_on_from_a_compaction_that_nobody_stored(endpoint: Embedded, reader: Reader) -> None:
    connection = endpoint.connect()

    async def said(words: Any, **body: Any) -> dict[str, Any]:
        asked = {"model": "any", "input": words, "store": False, **body}
        return dict([event async for event in connection.create(asked)][-1]["response"])

    first = await said([user("One."), ANSWER, user("Two.")], context_management=at(50))
    await said("Three.", previous_response_id=first["id"])
    assert reader.shown() == ["One.", SUMMED, "Two.", "shown 3", "Three."]


async def test_a_server_that_keeps_nothing_compacts_all_the_same(store: Store, reader: Reader) -> None:
    endpoint = Embedded(store, reader, SystemClock(), random_id, manner=Manner(stateless=True))
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    await ask(endpoint, [*window["output"], user("Two.")])
    assert reader.shown() == ["One.", SUMMED, "Two."]


async def test_a_background_response_is_compacted_as_any_other(endpoint: Embedded) -> None:
    history = [user(LONG), ANSWER, user("Two.")]
    told_ = await events(endpoint, history, background=True, context_management=at(50))
    assert kinds(told_[-1]["response"]["output"]) == ["compaction", "message"]


async def test_tokens_are_counted_behind_a_compaction(endpoint: Embedded) -> None:
    window = await compacted(endpoint, input=[user("One."), ANSWER])
    counted = await endpoint.count({"model": "any", "input": window["output"]})
    assert counted == len(f"One. {SUMMED}".split())


# -- only whose it is -----------------------------------------------------------------------------


async def test_another_tenant_does_not_open_a_compaction(store: Store, endpoint: Embedded, reader: Reader) -> None:
    made = await ask(endpoint, [user(LONG), TRIGGER])
    foreign = Embedded(store.of("other"), reader, SystemClock(), random_id)
    wrong = await refusal(foreign, [*made["output"], user("What was it?")])
    assert told(wrong) == ("invalid_encrypted_content", 400, None)
    assert made["output"][0]["id"] in wrong.message
    assert LONG not in wrong.message


async def test_a_damaged_compaction_is_refused_by_its_id(endpoint: Embedded) -> None:
    (item,) = (await ask(endpoint, [user(LONG), TRIGGER]))["output"]
    damaged = {**item, "encrypted_content": item["encrypted_content"][:-8] + "AAAAAAA="}
    wrong = await refusal(endpoint, [damaged, user("Two.")])
    assert told(wrong)[0] == "invalid_encrypted_content"
    assert wrong.message.startswith(f"The encrypted content for item {item['id']} could not be verified")


async def test_no_summary_is_made_of_what_somebody_else_sealed(endpoint: Embedded) -> None:
    theirs = {"type": "compaction", "id": "cmp_9", "encrypted_content": "gAAAAAB"}
    wrong = await refusal(endpoint, [theirs, user(LONG), TRIGGER])
    assert told(wrong)[0] == "invalid_encrypted_content"


async def test_a_model_that_cannot_open_what_somebody_else_sealed_is_not_blamed_for_it(endpoint: Embedded) -> None:
    theirs = {"type": "compaction", "id": "cmp_9", "encrypted_content": "gAAAAAB"}
    wrong = await refusal(endpoint, [theirs, user("Two.")])
    assert told(wrong) == ("invalid_encrypted_content", 400, None)
    assert "cmp_9" in wrong.message
