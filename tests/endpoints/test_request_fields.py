"""The fields of a request: limits, values, types and errors."""

from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.responses_api.validation import (
    ResponseRequest,
    parse_compact_body,
    parse_connection_request,
    parse_conversation_items,
    parse_count_request,
    parse_response_request,
    validate_value,
)
from tests.endpoints.endpoint_calls import TOOL, error_fields, user_item


def parse(**fields: Any) -> ResponseRequest:
    return parse_response_request({"model": "m", "input": "a", **fields})


def parse_error(**fields: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parse(**fields)
    return caught.value


NUMBERS: list[tuple[str, tuple[float, ...], tuple[tuple[float, str], ...]]] = [
    *(
        (field, (-2, 0.5, 2), ((-2.1, "decimal_below_min_value"), (2.1, "decimal_above_max_value")))
        for field in ("frequency_penalty", "presence_penalty")
    ),
    ("temperature", (0, 2), ((-0.1, "decimal_below_min_value"), (2.1, "decimal_above_max_value"))),
    ("top_p", (0, 1), ((-0.1, "decimal_below_min_value"), (1.1, "decimal_above_max_value"))),
    ("top_logprobs", (0, 20), ((-1, "integer_below_min_value"), (21, "integer_above_max_value"))),
    ("top_k", (0, 10**9), ((-1, "integer_below_min_value"),)),
    ("max_output_tokens", (1, 10**9), ((0, "integer_below_min_value"),)),
    ("max_tool_calls", (1, 10**9), ((0, "integer_below_min_value"),)),
]


@pytest.mark.parametrize(("field", "allowed", "invalid"), NUMBERS, ids=[row[0] for row in NUMBERS])
def test_a_number_is_accepted_up_to_its_limits_and_not_beyond(
    field: str, allowed: tuple[float, ...], invalid: tuple[tuple[float, str], ...]
) -> None:
    for value in allowed:
        assert parse(**{field: value}).model_parameters == {field: value}
    for value, code in invalid:
        assert error_fields(parse_error(**{field: value})) == (code, 400, field)


def test_a_compaction_threshold_is_one_token_or_more_and_the_smallest_counts() -> None:
    def thresholds(*tokens: Any) -> list[dict[str, Any]]:
        return [{"type": "compaction", "compact_threshold": count} for count in tokens]

    assert parse(context_management=thresholds(1)).compact_threshold == 1
    assert parse(context_management=thresholds(9, 4, 7)).compact_threshold == 4
    assert parse(context_management=[]).compact_threshold is None
    param = "context_management[1].compact_threshold"
    assert error_fields(parse_error(context_management=thresholds(5, 0))) == ("integer_below_min_value", 400, param)
    assert error_fields(parse_error(context_management=thresholds(5, "1"))) == ("invalid_type", 400, param)


@pytest.mark.parametrize("number", [0, -1, 10**30])
def test_a_seed_may_be_any_integer(number: int) -> None:
    assert parse(seed=number).model_parameters == {"seed": number}


VALUES: list[tuple[str, tuple[str, ...], str]] = [
    ("prompt_cache_retention", ("in_memory", "24h"), "'in_memory' and '24h'"),
    (
        "service_tier",
        ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
        "'auto', 'default', 'flex', 'scale', 'priority', 'fast', and 'ultrafast'",
    ),
    ("truncation", ("auto", "disabled"), "'auto' and 'disabled'"),
    ("text.verbosity", ("low", "medium", "high"), "'low', 'medium', and 'high'"),
    (
        "reasoning.effort",
        ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        "'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and 'max'",
    ),
    ("reasoning.summary", ("auto", "concise", "detailed"), "'auto', 'concise', and 'detailed'"),
    ("reasoning.generate_summary", ("auto", "concise", "detailed"), "'auto', 'concise', and 'detailed'"),
    ("background_options.completion_window", ("soonest",), "'soonest'"),
    ("input[0].role", ("user", "assistant", "system", "developer"), "'user', 'assistant', 'system', and 'developer'"),
]


@pytest.mark.parametrize(("param", "values", "listed"), VALUES, ids=[row[0] for row in VALUES])
def test_a_field_with_fixed_values_accepts_each_and_lists_them_for_any_other(
    param: str, values: tuple[str, ...], listed: str
) -> None:
    field, _, subfield = param.partition(".")

    def fields(value: Any) -> dict[str, Any]:
        if field == "input[0]":
            return {"input": [{"role": value, "content": "a"}]}
        return {field: {subfield: value} if subfield else value}

    for value in values:
        parse(**fields(value))
    error = parse_error(**fields("other"))
    assert error_fields(error) == ("invalid_value", 400, param)
    assert error.message == f"Invalid value: 'other'. Supported values are: {listed}"
    assert (
        parse_error(**fields(7)).message == f"Invalid type for '{param}': expected a string, but got an integer instead"
    )


WRONG_TYPES: list[tuple[dict[str, Any], str, str, str]] = [
    *(
        ({field: value}, field, "an object", got)
        for field, value, got in (
            ("access_programs", "x", "a string"),
            ("background_options", [], "an array"),
            ("chat_template_kwargs", 1, "an integer"),
            ("client_metadata", 0.5, "a decimal"),
            ("conversation", 7, "an integer"),
            ("image", True, "a boolean"),
            ("metadata", [], "an array"),
            ("moderation", "x", "a string"),
            ("prompt", "pmpt_1", "a string"),
            ("prompt_cache_options", "x", "a string"),
            ("reasoning", "low", "a string"),
            ("stream_options", False, "a boolean"),
            ("text", "x", "a string"),
            ("tool_choice", 7, "an integer"),
        )
    ),
    *(
        ({field: 1}, field, "a boolean", "an integer")
        for field in ("background", "parallel_tool_calls", "store", "stream")
    ),
    *(
        ({field: 7}, field, "a string", "an integer")
        for field in (
            *("instructions", "model", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"),
            *("prompt_cache_retention", "service_tier", "truncation"),
        )
    ),
    *(({field: {}}, field, "an array", "an object") for field in ("context_management", "include", "stop", "tools")),
    *(({field: "1"}, field, "a decimal", "a string") for field in ("frequency_penalty", "temperature", "top_p")),
    *(
        ({field: value}, field, "an integer", got)
        for field in ("max_output_tokens", "max_tool_calls", "seed", "top_k", "top_logprobs")
        for value, got in ((0.5, "a decimal"), (True, "a boolean"))
    ),
    ({"temperature": False}, "temperature", "a decimal", "a boolean"),
    ({"conversation": {"id": 7}}, "conversation.id", "a string", "an integer"),
    ({"include": [7]}, "include[0]", "a string", "an integer"),
    ({"metadata": {"a": None}}, "metadata.a", "a string", "null"),
    ({"prompt": {"id": 7}}, "prompt.id", "a string", "an integer"),
    ({"stop": ["a", 1]}, "stop[1]", "a string", "an integer"),
    (
        {"stream_options": {"include_obfuscation": "no"}},
        "stream_options.include_obfuscation",
        "a boolean",
        "a string",
    ),
    ({"text": {"format": "text"}}, "text.format", "an object", "a string"),
    ({"text": {"format": {"type": 7}}}, "text.format.type", "a string", "an integer"),
    ({"tool_choice": {"type": 7}}, "tool_choice.type", "a string", "an integer"),
    ({"tools": ["x"]}, "tools[0]", "an object", "a string"),
    ({"tools": [TOOL, {"type": 7}]}, "tools[1].type", "a string", "an integer"),
    *(
        ({"tools": [{"type": kind, "name": "f", field: 7}]}, f"tools[0].{field}", expected, "an integer")
        for kind in ("function", "custom")
        for field, expected in (
            ("name", "a string"),
            ("description", "a string"),
            ("parameters", "an object"),
            ("strict", "a boolean"),
        )
    ),
    ({"input": [None]}, "input[0]", "an object", "null"),
    ({"input": [{"type": 7, "role": "user", "content": "a"}]}, "input[0].type", "a string", "an integer"),
    (
        {"input": [{"role": "user", "content": 7}]},
        "input[0].content",
        "one of an array of objects or string",
        "an integer",
    ),
    ({"input": [{"role": "user", "content": ["a"]}]}, "input[0].content[0]", "an object", "a string"),
    ({"input": [{"role": "user", "content": [{"type": 7}]}]}, "input[0].content[0].type", "a string", "an integer"),
    (
        {"input": [{"type": "custom_tool_call_output", "call_id": "c", "output": 7}]},
        "input[0].output",
        "one of an array of objects or string",
        "an integer",
    ),
    ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary", "an array", "a string"),
    ({"input": [{"type": "reasoning", "content": {}}]}, "input[0].content", "an array", "an object"),
    ({"input": [{"type": "unheard_of", "id": 7}]}, "input[0].id", "a string", "an integer"),
]

ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "a"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
    {"type": "compaction", "encrypted_content": "x"},
    {"type": "item_reference", "id": "msg_1"},
]
"""One item of each type, with its required fields only."""


@pytest.mark.parametrize(("fields", "param", "expected", "got"), WRONG_TYPES, ids=[row[1] for row in WRONG_TYPES])
def test_a_value_of_another_type_is_refused_by_its_place(
    fields: dict[str, Any], param: str, expected: str, got: str
) -> None:
    error = parse_error(**fields)
    assert error_fields(error) == ("invalid_type", 400, param)
    assert error.message == f"Invalid type for '{param}': expected {expected}, but got {got} instead"


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["type"])
def test_an_item_needs_each_of_its_fields_as_text(item: dict[str, Any]) -> None:
    assert parse(input=[item]).items == (item,)
    for field in set(item) - {"type"}:
        param = f"input[0].{field}"
        error = parse_error(input=[{name: value for name, value in item.items() if name != field} | {"status": None}])
        assert error_fields(error) == ("missing_required_parameter", 400, param)
        assert error_fields(parse_error(input=[{**item, field: 7}])) == ("invalid_type", 400, param)


@pytest.mark.parametrize(
    "item", [*ITEMS[:-1], {"type": "reasoning", "summary": []}], ids=lambda item: str(item["type"])
)
def test_the_id_of_an_item_is_text_or_absent(item: dict[str, Any]) -> None:
    for absent in (None, ""):
        assert parse(input=[{**item, "id": absent}]).items == ({**item, "id": absent},)
    for invalid in (0, False, 7):
        assert error_fields(parse_error(input=[{**item, "id": invalid}])) == ("invalid_type", 400, "input[0].id")


@pytest.mark.parametrize("field", ["encrypted_content", "id"])
def test_the_texts_of_a_reasoning_item_are_optional(field: str) -> None:
    item = {"type": "reasoning", "summary": [], "content": [], "encrypted_content": "x", "id": "rs_1"}
    assert parse(input=[{**item, field: None}]).items == ({**item, field: None},)
    assert error_fields(parse_error(input=[{**item, field: 0}])) == ("invalid_type", 400, f"input[0].{field}")


@pytest.mark.parametrize(
    ("request_input", "item"),
    [
        ("a", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}),
        ([{"id": "msg_1"}], {"type": "item_reference", "id": "msg_1"}),
        ([{"id": "msg_1", "type": None}], {"type": "item_reference", "id": "msg_1"}),
        ([{"type": "item_reference", "id": "msg_1", "x": 1}], {"type": "item_reference", "id": "msg_1", "x": 1}),
        ([{"role": "user", "content": []}], {"role": "user", "content": []}),
    ],
    ids=str,
)
def test_text_and_a_bare_id_are_short_forms_of_items(request_input: Any, item: dict[str, Any]) -> None:
    assert parse(input=request_input).items == (item,)


def test_an_item_without_a_type_and_role_is_refused() -> None:
    for item in ({"id": "msg_1", "content": "a"}, {"id": "msg_1", "type": "", "x": 1}):
        assert error_fields(parse_error(input=[item])) == ("missing_required_parameter", 400, "input[0].type")


def test_a_tool_choice_and_a_stop_are_a_text_or_more() -> None:
    for field, values in (("tool_choice", ("auto", {"type": "function"})), ("stop", ("a", ["a", "b"], []))):
        for value in values:
            assert parse(**{field: value}).model_parameters == {field: value}
    assert error_fields(parse_error(tool_choice={})) == ("missing_required_parameter", 400, "tool_choice.type")


@pytest.mark.parametrize(("length", "is_cut"), [(64, False), (65, True)])
def test_a_long_invalid_id_is_cut_in_the_error(length: int, is_cut: bool) -> None:
    error = parse_error(previous_response_id="/" * length)
    assert error.message == (
        f"Invalid 'previous_response_id': '{'/' * 64}{'...' if is_cut else ''}'. "
        "Expected an id: letters, digits and _.:=+~@$-, at most 512 characters"
    )


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"k" * 64: "v" * 512} | {str(number): "" for number in range(15)}, None),
        (
            {str(number): "" for number in range(17)},
            "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, "
            "but got an object with 17 properties instead",
        ),
        (
            {"k" * 65: ""},
            "Invalid 'metadata key': string too long. Expected a string with maximum length 64, "
            "but got a string with length 65 instead",
        ),
        (
            {"k": "v" * 513},
            "Invalid 'metadata.k': string too long. Expected a string with maximum length 512, "
            "but got a string with length 513 instead",
        ),
    ],
)
def test_metadata_is_accepted_up_to_its_limits(metadata: dict[str, str], error: str | None) -> None:
    if error is None:
        assert parse(metadata=metadata).parameters == {"metadata": metadata}
    else:
        assert parse_error(metadata=metadata).message == error


def test_the_first_unknown_field_in_alphabetical_order_is_named() -> None:
    assert error_fields(parse_error(zeta=1, alpha=1)) == ("unknown_parameter", 400, "alpha")
    error = parse_error(background_options={"zeta": 1, "alpha": 1})
    assert (error.param, error.message) == ("background_options.alpha", "Unknown parameter: 'background_options.alpha'")


def test_a_request_is_parsed_into_the_options_of_the_endpoint() -> None:
    default = parse()
    assert (default.store, default.stream, default.generate, default.background) == (True, True, True, False)
    assert (default.is_compaction, default.compact_threshold, default.include_obfuscation) == (False, None, False)
    assert (default.previous_response_id, default.conversation_id, default.instructions) == (None, None, None)
    request = parse(
        store=True,
        stream=False,
        background=True,
        instructions="Be brief.",
        conversation={"id": "conv_1"},
        stream_options={"include_obfuscation": True},
    )
    assert (request.stream, request.background, request.instructions) == (False, True, "Be brief.")
    assert (request.conversation_id, request.include_obfuscation) == ("conv_1", True)
    assert parse(stream_options={"include_obfuscation": None}).include_obfuscation is False
    assert parse(stream_options={}).include_obfuscation is False
    assert parse(conversation="conv_2").conversation_id == "conv_2"
    assert parse(store=False).store is False


@pytest.mark.parametrize(
    "history", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"prompt": {"id": "pmpt_1"}}], ids=str
)
def test_a_request_with_a_history_needs_no_input(history: dict[str, Any]) -> None:
    empty: tuple[Any, ...] = (None, "", [])
    for absent in empty:
        assert parse(input=absent, **history).items == ()
    for absent in empty:
        assert error_fields(parse_error(input=absent)) == ("missing_required_parameter", 400, "input")


def test_two_histories_exclude_each_other() -> None:
    error = parse_error(previous_response_id="resp_1", conversation={"id": "conv_1"})
    assert error_fields(error) == ("mutually_exclusive_parameters", 400, None)


def test_a_background_response_may_be_unstored() -> None:
    assert parse(background=True, store=False).store is False
    assert parse(background=False, store=False).store is False
    assert parse(background=True, store=None).background is True


def test_a_compaction_trigger_is_no_item_and_must_be_the_last() -> None:
    trigger = {"type": "compaction_trigger"}
    request = parse(input=[user_item("a"), trigger])
    assert (request.items, request.is_compaction) == ((user_item("a"),), True)
    for items in ([trigger, user_item("a")], [trigger, trigger]):
        assert parse_error(input=items).message == "The 'compaction_trigger' item must be the final input item"


# -- requests of other routes ---------------------------------------------------------------------


def parse_over_connection(**fields: Any) -> ResponseRequest:
    return parse_connection_request({"model": "m", "input": "a", **fields})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"background": True}, "'background': it is not supported over a connection, which streams every response"),
        (
            {"stream_options": {"include_obfuscation": True}},
            "'stream_options': it is not supported over a connection, which streams every response",
        ),
        ({"stream": False}, "'stream': a connection streams every response"),
    ],
)
def test_a_connection_refuses_a_field_of_http_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_over_connection(**fields)
    assert caught.value.message == f"Unsupported parameter: {reason}"


def test_a_connection_calls_the_model_unless_the_request_only_prepares() -> None:
    assert parse_over_connection().generate is True
    for prepare_fields in ({"generate": False}, {"prompt_cache_options": {"prewarm": True}}):
        assert parse_over_connection(**prepare_fields).generate is False
    for call_fields in (
        {"generate": None},
        {"generate": True},
        {"prompt_cache_options": {"prewarm": False}},
        {"prompt_cache_options": None},
        {"background": False, "stream_options": None, "stream": None},
    ):
        assert parse_over_connection(**call_fields).generate is True
    with pytest.raises(RequestRefused) as caught:
        parse_over_connection(generate=0)
    assert error_fields(caught.value) == ("invalid_type", 400, "generate")


def test_a_request_to_count_needs_no_model_and_takes_a_personality_of_null() -> None:
    request = parse_count_request({"input": "a", "personality": None, "tools": [TOOL]})
    assert (request.model, request.parameters) == ("", {"tools": [TOOL]})
    with pytest.raises(RequestRefused) as caught:
        parse_count_request({"input": "a", "personality": "friendly"})
    assert caught.value.message == "Unsupported parameter: 'personality': its tokens cannot be counted"


@pytest.mark.parametrize(
    "field",
    [
        *("model", "input", "instructions", "previous_response_id", "conversation", "tools", "tool_choice", "text"),
        *("reasoning", "parallel_tool_calls", "truncation"),
    ],
)
def test_a_request_to_count_has_the_fields_that_tokens_depend_on(field: str) -> None:
    samples = {"parallel_tool_calls": True, "truncation": "auto", "tools": [], "text": {}, "reasoning": {}}
    parse_count_request({"input": "a", field: samples.get(field, "a")})


def test_a_request_to_compact_is_not_stored_and_has_the_fields_of_the_api() -> None:
    fields: dict[str, Any] = {
        "model": "m",
        "input": "a",
        "instructions": "Be brief.",
        "previous_response_id": None,
        "image": {},
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "prompt_cache_options": {},
        "prompt_cache_retention": "24h",
    }
    assert parse_compact_body(fields) == {**fields, "store": False}
    for field in ("store", "stream", "tools", "conversation", "metadata"):
        with pytest.raises(RequestRefused) as caught:
            parse_compact_body({**fields, field: None})
        assert error_fields(caught.value) == ("unknown_parameter", 400, field)


@pytest.mark.parametrize("count", [20, 21])
def test_a_conversation_takes_twenty_items_at_a_time(count: int) -> None:
    items = [user_item(str(number)) for number in range(count)]
    if count == 20:
        assert parse_conversation_items(items) == tuple(items)
    else:
        with pytest.raises(RequestRefused) as caught:
            parse_conversation_items(items)
        assert error_fields(caught.value) == ("array_above_max_length", 400, "items")


def test_a_conversation_stores_no_compaction_trigger() -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_conversation_items([user_item("a"), {"type": "compaction_trigger"}])
    assert error_fields(caught.value) == ("unsupported_parameter", 400, "items")
    assert caught.value.message == (
        "Unsupported parameter: 'items': a compaction is requested with a response and is not stored as an item"
    )
    with pytest.raises(RequestRefused) as role_error:
        parse_conversation_items([{"role": "king", "content": ""}])
    assert role_error.value.param == "items[0].role"


def test_a_limit_without_a_maximum_has_none() -> None:
    validate_value("starting_after", 10**18, {"type": "integer", "minimum": 0})
    with pytest.raises(RequestRefused) as caught:
        validate_value("starting_after", -1, {"type": "integer", "minimum": 0})
    assert caught.value.message == (
        "Invalid 'starting_after': integer below minimum value. Expected a value >= 0, but got -1 instead"
    )
