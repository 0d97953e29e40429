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
    with OpenAI(base_url=loopback.url, api_key=KEY, max_retries=0, _strict_response_validation=True) as openai_client:
        yield openai_client


MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "After thinking.", "annotations": [], "logprobs": []}],
}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
CALLS = [
    {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "weather", "arguments": "{}",
     "status": "completed"}
    for number in (1, 2)
]  # fmt: skip

REPLIES: dict[str, dict[str, Any]] = {
    "text": {"text": "Hello there, how are you?"},
    "empty text": {"text": ""},
    "a refusal": {"refusal": "I will not."},
    "a call": {"call": {"name": "weather", "arguments": {"city": "Oslo"}}},
    "text and a call": {"text": "Let me look.", "call": {"name": "weather"}},
    "parallel calls": {"output": CALLS},
    "reasoning": {"output": [REASONING, MESSAGE]},
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_the_accumulator_of_the_package_accepts_every_stream(
    loopback: LoopbackServer, client: OpenAI, reply: dict[str, Any]
) -> None:
    loopback.replies(reply, chunk=3)

    with client.responses.stream(model=MODEL, input="hi", tools=[TOOL]) as stream:  # type: ignore[list-item]
        numbers = [event.sequence_number for event in stream]
        accumulated = stream.get_final_response()

    stored = client.responses.retrieve(accumulated.id)
    assert numbers == list(range(len(numbers)))
    assert [item.to_dict() for item in stored.output] == without_parsed_fields(
        [item.to_dict() for item in accumulated.output]
    )
    assert (stored.output_text, stored.usage, stored.status) == (
        accumulated.output_text,
        accumulated.usage,
        "completed",
    )


def test_a_background_response_is_resumed_and_polled_by_the_package(loopback: LoopbackServer, client: OpenAI) -> None:
    """The package's accumulator accepts the whole stream and the resumed stream."""
    loopback.replies({"text": "Hello there, how are you?"}, chunk=3)
    with client.responses.stream(model=MODEL, input="hi", background=True) as stream:
        all_events = list(stream)
        accumulated = stream.get_final_response()

    with client.responses.stream(response_id=accumulated.id) as resumed:
        assert [event.sequence_number for event in resumed] == [event.sequence_number for event in all_events]
        assert resumed.get_final_response().output_text == "Hello there, how are you?"
    rest = client.responses.retrieve(accumulated.id, stream=True, starting_after=4)
    assert [event.sequence_number for event in rest] == list(range(5, len(all_events)))
    assert [event.type for event in all_events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    stored = client.responses.retrieve(accumulated.id)
    assert (stored.status, stored.background, stored.output_text) == ("completed", True, accumulated.output_text)
    assert client.responses.cancel(accumulated.id) == stored


def without_parsed_fields(value: Any) -> Any:
    """Return `value` without the fields that the accumulator adds for its callers."""
    if isinstance(value, dict):
        return {
            key: without_parsed_fields(inner)
            for key, inner in value.items()
            if key not in ("parsed", "parsed_arguments")
        }
    return [without_parsed_fields(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("reply", "parameters", "last_type"),
    [
        ({"text": "one two three"}, {"max_output_tokens": 1}, "response.incomplete"),
        ({"text": "one", "error": {"code": "overloaded", "message": "Busy"}}, {}, "response.failed"),
    ],
)
def test_a_status_other_than_completed_is_accepted_too(
    loopback: LoopbackServer, client: OpenAI, reply: dict[str, Any], parameters: dict[str, Any], last_type: str
) -> None:
    loopback.replies(reply)
    with client.responses.stream(model=MODEL, input="hi", **parameters) as stream:
        assert [event.type for event in stream][-1] == last_type


def test_the_multi_turn_examples_of_the_documentation_work(client: OpenAI) -> None:
    """A history that the client sends itself, then a chain, as in OpenAI's guide."""
    history: list[Any] = [{"role": "user", "content": "tell me a joke"}]
    first = client.responses.create(model=MODEL, input=history, store=False)
    history += [{"role": el.role, "content": el.content} for el in first.output if el.type == "message"]
    history.append({"role": "user", "content": "tell me another"})
    second = client.responses.create(model=MODEL, input=history, store=False)
    assert second.output_text == "tell me another"

    stored = client.responses.create(model=MODEL, input="tell me a joke")
    chained = client.responses.create(
        model=MODEL, previous_response_id=stored.id, input=[{"role": "user", "content": "explain why this is funny."}]
    )
    assert chained.previous_response_id == stored.id


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
@pytest.mark.parametrize(("parameters", "status", "expected"), REFUSED)
def test_errors_equal_those_of_the_api(
    client: OpenAI, parameters: dict[str, Any], status: int, expected: dict[str, Any], stream: bool
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.responses.create(**{"model": MODEL, "input": "hi", "stream": stream, **parameters})
    assert caught.value.status_code == status
    assert caught.value.response.json() == expected


def test_another_key_cannot_access_any_object(loopback: LoopbackServer, client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="secret")
    with OpenAI(base_url=loopback.url, api_key="test-other-key", max_retries=0) as other:
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(response.id)
        with pytest.raises(openai.BadRequestError) as caught:
            other.responses.create(model=MODEL, input="a", previous_response_id=response.id)
    assert caught.value.code == "previous_response_not_found"


PROGRAM = f"from openai import OpenAI; print(OpenAI().responses.create(model={MODEL!r}, input='hello').output_text)"


def test_another_process_connects_through_environment_variables(loopback: LoopbackServer) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environ, **loopback.environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert result.stdout == "hello\n"
    assert len(loopback.bodies) == 1


LONG = " ".join(["word"] * 60)
HISTORY: Any = [user_item(LONG), {"role": "assistant", "content": LONG}]


def test_the_accumulator_accepts_a_compaction_before_an_answer(loopback: LoopbackServer, client: OpenAI) -> None:
    loopback.replies({"text": "They said words."}, {"text": "Go on."})
    management: Any = [{"type": "compaction", "compact_threshold": 50}]
    request_input: Any = [*HISTORY, user_item("More.")]
    with client.responses.stream(model=MODEL, input=request_input, context_management=management) as stream:
        numbers = [event.sequence_number for event in stream]
        accumulated = stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert [item.type for item in accumulated.output] == ["compaction", "message"]
    assert accumulated.output_text == "Go on."


def test_the_accumulator_accepts_a_compaction_without_an_answer(loopback: LoopbackServer, client: OpenAI) -> None:
    loopback.replies({"text": "They said words."})
    request_input: Any = [*HISTORY, {"type": "compaction_trigger"}]
    with client.responses.stream(model=MODEL, input=request_input) as stream:
        event_types = [event.type for event in stream]
        accumulated = stream.get_final_response()
    assert "response.compaction.compacting" in event_types
    assert [item.type for item in accumulated.output] == ["compaction"]
