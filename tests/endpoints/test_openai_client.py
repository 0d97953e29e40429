"""The openai package as a client of convo's endpoint over HTTP."""

import subprocess
import sys
from collections.abc import Iterator
from os import environ
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.endpoints.endpoint_calls import MODEL, TOOL, user_item
from tests.loopback_server import KEY, LoopbackServer


@pytest.fixture
def client(loopback: LoopbackServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=loopback.url, api_key=KEY, max_retries=0, _strict_response_validation=True) as opened:
        yield opened


MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "After thinking.", "annotations": [], "logprobs": []}],
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
CALLS = [
    {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "name": "weather", "arguments": "{}",
     "status": "completed"}
    for at in (1, 2)
]  # fmt: skip

REPLIES: dict[str, dict[str, Any]] = {
    "words": {"text": "Hello there, how are you?"},
    "nothing": {"text": ""},
    "a refusal": {"refusal": "I will not."},
    "a call": {"call": {"name": "weather", "arguments": {"city": "Oslo"}}},
    "words and a call": {"text": "Let me look.", "call": {"name": "weather"}},
    "calls side by side": {"output": CALLS},
    "a thought": {"output": [THOUGHT, MESSAGE]},
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_the_accumulator_of_the_package_accepts_every_stream(
    loopback: LoopbackServer, client: OpenAI, reply: dict[str, Any]
) -> None:
    loopback.replies(reply, chunk=3)

    with client.responses.stream(model=MODEL, input="hi", tools=[TOOL]) as stream:  # type: ignore[list-item]
        numbers = [event.sequence_number for event in stream]
        gathered = stream.get_final_response()

    kept = client.responses.retrieve(gathered.id)
    assert numbers == list(range(len(numbers)))
    assert [item.to_dict() for item in kept.output] == unparsed([item.to_dict() for item in gathered.output])
    assert (kept.output_text, kept.usage, kept.status) == (gathered.output_text, gathered.usage, "completed")


def test_a_background_response_is_resumed_and_polled_by_the_package(loopback: LoopbackServer, client: OpenAI) -> None:
    """The package's accumulator accepts the whole stream and the resumed stream."""
    loopback.replies({"text": "Hello there, how are you?"}, chunk=3)
    with client.responses.stream(model=MODEL, input="hi", background=True) as stream:
        whole = list(stream)
        gathered = stream.get_final_response()

    with client.responses.stream(response_id=gathered.id) as again:
        assert [event.sequence_number for event in again] == [event.sequence_number for event in whole]
        assert again.get_final_response().output_text == "Hello there, how are you?"
    behind = client.responses.retrieve(gathered.id, stream=True, starting_after=4)
    assert [event.sequence_number for event in behind] == list(range(5, len(whole)))
    assert [event.type for event in whole[:3]] == ["response.created", "response.queued", "response.in_progress"]
    kept = client.responses.retrieve(gathered.id)
    assert (kept.status, kept.background, kept.output_text) == ("completed", True, gathered.output_text)
    assert client.responses.cancel(gathered.id) == kept


def unparsed(value: Any) -> Any:
    """Return `value` without the fields that the accumulator adds for its callers."""
    if isinstance(value, dict):
        return {key: unparsed(inner) for key, inner in value.items() if key not in ("parsed", "parsed_arguments")}
    return [unparsed(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("reply", "asked", "end"),
    [
        ({"text": "one two three"}, {"max_output_tokens": 1}, "response.incomplete"),
        ({"text": "one", "error": {"code": "overloaded", "message": "Busy"}}, {}, "response.failed"),
    ],
)
def test_a_status_other_than_completed_is_accepted_too(
    loopback: LoopbackServer, client: OpenAI, reply: dict[str, Any], asked: dict[str, Any], end: str
) -> None:
    loopback.replies(reply)
    with client.responses.stream(model=MODEL, input="hi", **asked) as stream:
        assert [event.type for event in stream][-1] == end


def test_without_stream_the_complete_response_is_returned_at_once(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="hello", metadata={"a": "b"}, temperature=0.25)
    assert (response.output_text, response.metadata, response.temperature) == ("hello", {"a": "b"}, 0.25)
    assert client.responses.retrieve(response.id) == response


def test_the_multi_turn_examples_of_the_documentation_work(client: OpenAI) -> None:
    """A history that the client sends itself, then a chain, as in OpenAI's guide."""
    history: list[Any] = [{"role": "user", "content": "tell me a joke"}]
    first = client.responses.create(model=MODEL, input=history, store=False)
    history += [{"role": el.role, "content": el.content} for el in first.output if el.type == "message"]
    history.append({"role": "user", "content": "tell me another"})
    again = client.responses.create(model=MODEL, input=history, store=False)
    assert again.output_text == "tell me another"

    kept = client.responses.create(model=MODEL, input="tell me a joke")
    chained = client.responses.create(
        model=MODEL, previous_response_id=kept.id, input=[{"role": "user", "content": "explain why this is funny."}]
    )
    assert chained.previous_response_id == kept.id


def test_every_method_of_responses_works(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input=[user_item(str(at)) for at in range(25)])  # type: ignore[misc]
    listed = list(client.responses.input_items.list(first.id, limit=10))
    assert len(listed) == 25
    assert client.responses.input_tokens.count(model=MODEL, input="a b").input_tokens == 2
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_every_method_of_conversations_works(client: OpenAI) -> None:
    items: Any = [{"type": "message", "role": "user", "content": str(at)} for at in range(3)]
    made = client.conversations.create(items=items, metadata={"a": "b"})
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"c": "d"}).metadata == {"c": "d"}
    added = client.conversations.items.create(made.id, items=items)
    assert (len(added.data), added.first_id, added.last_id) == (3, added.data[0].id, added.data[2].id)
    listed = list(client.conversations.items.list(made.id, limit=2, order="asc"))
    assert len(listed) == 6
    assert client.conversations.items.retrieve(str(listed[0].id), conversation_id=made.id) == listed[0]
    assert client.conversations.items.delete(str(listed[0].id), conversation_id=made.id).id == made.id
    assert len(list(client.conversations.items.list(made.id))) == 5
    said = client.responses.create(model=MODEL, input="hi", conversation=made.id)
    assert said.conversation
    assert said.conversation.id == made.id
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


def error(message: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


NO_PREVIOUS = error(
    "Previous response with id 'resp_x' not found.", "previous_response_id", "previous_response_not_found"
)
CALL = {"type": "function_call", "call_id": "call_X", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_X", "output": "1"}

REFUSED: list[tuple[dict[str, Any], int, dict[str, Any]]] = [
    ({"previous_response_id": "resp_x"}, 400, NO_PREVIOUS),
    ({"conversation": "conv_x"}, 404, error("Conversation with id 'conv_x' not found.", None, None)),
    ({"input": [CALL]}, 400, error("No tool output found for function call call_X.", "input", None)),
    (
        {"input": [OUTPUT]},
        400,
        error("No tool call found for function call output with call_id call_X.", "input", None),
    ),
    (
        {"previous_response_id": "resp_x", "conversation": "conv_x"},
        400,
        error(
            "Mutually exclusive parameters. Ensure you are only providing one of: "
            "'previous_response_id' or 'conversation'.",
            None,
            "mutually_exclusive_parameters",
        ),
    ),
    ({"extra_body": {"n": 2}}, 400, error("Unknown parameter: 'n'.", "n", "unknown_parameter")),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("asked", "status", "expected"), REFUSED)
def test_errors_equal_those_of_the_api(
    client: OpenAI, asked: dict[str, Any], status: int, expected: dict[str, Any], stream: bool
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.responses.create(**{"model": MODEL, "input": "hi", "stream": stream, **asked})
    assert caught.value.status_code == status
    assert caught.value.response.json() == expected


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/responses/resp_x", "Response with id 'resp_x' not found."),
        ("/responses/resp_x/input_items", "Response with id 'resp_x' not found."),
        ("/conversations/conv_x", "Conversation with id 'conv_x' not found."),
        ("/conversations/conv_x/items", "Conversation with id 'conv_x' not found."),
    ],
)
def test_an_unknown_id_is_a_404_with_the_error_object(client: OpenAI, path: str, words: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.get(path, cast_to=object)
    assert caught.value.response.json() == error(words, None, None)


def test_another_key_cannot_access_any_object(loopback: LoopbackServer, client: OpenAI) -> None:
    mine = client.responses.create(model=MODEL, input="secret")
    with OpenAI(base_url=loopback.url, api_key="test-other-key", max_retries=0) as other:
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(mine.id)
        with pytest.raises(openai.BadRequestError) as caught:
            other.responses.create(model=MODEL, input="a", previous_response_id=mine.id)
    assert caught.value.code == "previous_response_not_found"


PROGRAM = f"from openai import OpenAI; print(OpenAI().responses.create(model={MODEL!r}, input='hello').output_text)"


def test_another_process_connects_through_environment_variables(loopback: LoopbackServer) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environ, **loopback.environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stdout == "hello\n"
    assert len(loopback.bodies) == 1


LONG = " ".join(["word"] * 60)
HISTORY: Any = [user_item(LONG), {"role": "assistant", "content": LONG}]


def test_the_accumulator_accepts_a_compaction_before_an_answer(loopback: LoopbackServer, client: OpenAI) -> None:
    loopback.replies({"text": "They said words."}, {"text": "Go on."})
    management: Any = [{"type": "compaction", "compact_threshold": 50}]
    said: Any = [*HISTORY, user_item("More.")]
    with client.responses.stream(model=MODEL, input=said, context_management=management) as stream:
        numbers = [event.sequence_number for event in stream]
        gathered = stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert [item.type for item in gathered.output] == ["compaction", "message"]
    assert gathered.output_text == "Go on."


def test_the_accumulator_accepts_a_compaction_without_an_answer(loopback: LoopbackServer, client: OpenAI) -> None:
    loopback.replies({"text": "They said words."})
    said: Any = [*HISTORY, {"type": "compaction_trigger"}]
    with client.responses.stream(model=MODEL, input=said) as stream:
        kinds = [event.type for event in stream]
        gathered = stream.get_final_response()
    assert "response.compaction.compacting" in kinds
    assert [item.type for item in gathered.output] == ["compaction"]
