"""Every field of a request: accepted, sent to the model, echoed or refused."""

import inspect
from typing import Any, get_args

import pytest
from openai.resources.responses import Responses
from openai.resources.responses.input_tokens import InputTokens
from openai.types.responses import ResponseIncludable
from openai.types.responses.response import Response as TypedResponse

from convo.errors import RequestRefused
from convo.models.request_fields import COUNT_FIELDS, INCLUDABLE, REQUEST_FIELDS
from convo.responses_api.validation import (
    parse_count_request,
    parse_response_request,
)
from tests.endpoints.endpoint_calls import error_fields, user_item
from tests.request_values import FIELD_VALUES

METHOD_ARGUMENTS = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
"""Arguments of the package's methods that are not fields of the request body."""


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5-mini", "input": "a", **fields}


def parse_error(**fields: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parse_response_request(body(**fields))
    return caught.value


def test_every_field_that_the_package_sends_is_known() -> None:
    fields = set(inspect.signature(Responses.create).parameters) - METHOD_ARGUMENTS
    assert fields - set(REQUEST_FIELDS) == set()


def test_every_field_of_the_package_that_counts_tokens_is_known() -> None:
    fields = set(inspect.signature(InputTokens.count).parameters) - METHOD_ARGUMENTS
    assert fields - COUNT_FIELDS <= {"personality"}


def test_include_accepts_every_value_of_the_package() -> None:
    assert set(get_args(ResponseIncludable)) <= set(INCLUDABLE)


@pytest.mark.parametrize("name", REQUEST_FIELDS)
def test_every_field_is_honoured_sent_to_the_model_or_echoed(name: str) -> None:
    value = FIELD_VALUES[name]
    request = parse_response_request(body(**{name: value}))

    owner = REQUEST_FIELDS[name].owner
    assert request.model_parameters == ({name: value} if owner == "model" else {})
    assert request.parameters == ({} if owner == "endpoint" else {name: value})
    assert owner != "response" or name in TypedResponse.model_fields


INVALID_FIELDS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"tempreature": 1}, "unknown_parameter", "tempreature", "Unknown parameter: 'tempreature'"),
    ({"stop": 1}, "invalid_type", "stop", "Invalid type for 'stop'"),
    ({"model": None}, "missing_required_parameter", "model", "Missing required parameter: 'model'"),
    (
        {"temperature": 10**400},
        "decimal_above_max_value",
        "temperature",
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 1.00000e+400 instead",
    ),
    (
        {"max_output_tokens": -(10**400)},
        "integer_below_min_value",
        "max_output_tokens",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 1, "
        "but got -1.00000e+400 instead",
    ),
    (
        {"top_p": -0.5},
        "decimal_below_min_value",
        "top_p",
        "Invalid 'top_p': decimal below minimum value. Expected a value >= 0, but got -0.5 instead",
    ),
    ({"include": ["x"]}, "invalid_value", "include[0]", "Invalid value: 'x'. Supported values are: "),
    ({"tools": [{"name": "f"}]}, "missing_required_parameter", "tools[0].type", "Missing required parameter: "),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].name", "Missing required parameter: "),
    ({"text": {"format": {}}}, "missing_required_parameter", "text.format.type", "Missing required parameter: "),
    (
        {"context_management": [{"type": "compaction"}]},
        "missing_required_parameter",
        "context_management[0].compact_threshold",
        "Missing required parameter: ",
    ),
    (
        {"context_management": [{"type": "clear_tool_uses", "compact_threshold": 1}]},
        "invalid_value",
        "context_management[0].type",
        "Invalid value: 'clear_tool_uses'.",
    ),
    ({"conversation": ""}, "invalid_value", "conversation", "Invalid 'conversation': ''. Expected an id"),
    ({"conversation": {"id": ""}}, "invalid_value", "conversation.id", "Invalid 'conversation.id': ''. Expected an id"),
    (
        {"input": [{"role": "user", "content": "x", "id": "msg_1\nforged"}]},
        "invalid_value",
        "input[0].id",
        "Invalid 'input[0].id': 'msg_1\\nforged'. Expected an id",
    ),
    ({"stream_options": {"other": 1}}, "unknown_parameter", "stream_options.other", "Unknown parameter: "),
    ({"conversation": {}}, "missing_required_parameter", "conversation.id", "Missing required parameter: "),
    ({"input": [{"type": ["message"], "role": "user", "content": "hi"}]}, "invalid_type", "input[0].type", "Invalid"),
    ({"input": [{}]}, "missing_required_parameter", "input[0].type", "Missing required parameter: 'input[0].type'"),
    *(
        (
            {"input": [{**owner, field: [{"type": "input_image", "image_url": {"url": "https://x"}}]}]},
            "invalid_type",
            f"input[0].{field}[0].image_url",
            f"Invalid type for 'input[0].{field}[0].image_url': expected a string, but got an object instead",
        )
        for owner, field in (
            ({"role": "user"}, "content"),
            ({"type": "function_call_output", "call_id": "c1"}, "output"),
        )
    ),
    (
        {"input": [user_item("a"), {"role": "user", "content": [{"text": "b"}]}]},
        "missing_required_parameter",
        "input[1].content[0].type",
        "Missing required parameter: 'input[1].content[0].type'",
    ),
    ({"input": None}, "missing_required_parameter", "input", 'One of "input" or "previous_response_id" or '),
]


@pytest.mark.parametrize(
    ("fields", "code", "param", "message"), INVALID_FIELDS, ids=[str(one[2]) for one in INVALID_FIELDS]
)
def test_an_invalid_value_is_refused_with_its_parameter(
    fields: dict[str, Any], code: str, param: str, message: str
) -> None:
    error = parse_error(**fields)
    assert error_fields(error) == (code, 400, param)
    assert error.message.startswith(message)
    assert not error.message.endswith(".")


def test_an_empty_output_and_empty_arguments_are_valid() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    output = {"type": "function_call_output", "call_id": "c", "output": ""}
    assert parse_response_request(body(input=[call, output])).items == (call, output)


def test_an_output_that_names_its_tool_needs_no_call() -> None:
    output = {"type": "function_call_output", "namespace": "agent", "name": "goal_objective", "output": "Find the bug."}
    assert parse_response_request(body(input=[output])).items == (output,)

    nameless = {"type": "function_call_output", "output": "Find the bug."}
    assert error_fields(parse_error(input=[nameless])) == ("missing_required_parameter", 400, "input[0].call_id")
    assert parse_error(input=[{**output, "call_id": 3}]).param == "input[0].call_id"


def test_a_request_to_count_tokens_has_no_generation_parameters() -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_count_request(body(temperature=1))
    assert error_fields(caught.value) == ("unknown_parameter", 400, "temperature")
    with pytest.raises(RequestRefused) as caught:
        parse_count_request(body(personality="friendly"))
    assert error_fields(caught.value) == ("unsupported_parameter", 400, "personality")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"completion_window": "8h"}, "background_options.completion_window"),
        ({"continuation_id": 7}, "background_options.continuation_id"),
        ({"continuation_id": "c" * 513}, "background_options.continuation_id"),
    ],
)
def test_an_unsupported_background_option_is_refused_with_its_name(options: dict[str, str], param: str) -> None:
    assert parse_error(background=True, background_options=options).param == param
