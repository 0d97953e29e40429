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
from tests.endpoints.endpoint_calls import error_fields
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


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_nan_and_infinity_are_out_of_every_range(number: float) -> None:
    assert parse_error(temperature=number).param == "temperature"


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
