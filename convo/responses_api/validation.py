"""Parse and validate requests, input items and metadata.

Every known field has a validator and belongs to one table: used by the endpoint, sent to the model, or only
echoed. Unknown fields are refused by name, with the API's message, code and param.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

from convo.config.request_settings import REASONING_EFFORTS
from convo.endpoints.base import INCLUDABLE, INPUT_TOKENS_FIELDS, parse_conversation_id
from convo.history.items import Item, Json, is_valid_id, item_type, user_message
from convo.history.tree import derive, where
from convo.responses_api import errors

Validator: TypeAlias = Callable[[str, Json], None]

TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)

MAX_METADATA_PAIRS, MAX_METADATA_KEY_LENGTH, MAX_METADATA_VALUE_LENGTH = 16, 64, 512


def describe_type(value: Json) -> str:
    return next((name for kind, name in TYPE_NAMES if isinstance(value, kind)), "null")


def accept_any(name: str, value: Json) -> None:
    """Accept any value."""


def validate_string(name: str, value: Json) -> None:
    if not isinstance(value, str):
        raise errors.invalid_type_error(name, "a string", describe_type(value))


def string_validator(max_length: int) -> Validator:
    def check(name: str, value: Json) -> None:
        validate_string(name, value)
        if len(value) > max_length:
            raise errors.too_long_error(name, "string", max_length, len(value))

    return check


def validate_id(name: str, value: Json) -> None:
    """Validate the id of a stored object."""
    validate_string(name, value)
    if not is_valid_id(value):
        raise errors.invalid_id_error(name, value)


def validate_boolean(name: str, value: Json) -> None:
    if not isinstance(value, bool):
        raise errors.invalid_type_error(name, "a boolean", describe_type(value))


def integer_validator(minimum: int, maximum: int | None = None) -> Validator:
    def check(name: str, value: Json) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise errors.invalid_type_error(name, "an integer", describe_type(value))
        _validate_range(name, "integer", value, minimum, maximum)

    return check


def validate_integer(name: str, value: Json) -> None:
    """Validate an integer of any size."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise errors.invalid_type_error(name, "an integer", describe_type(value))


def decimal_validator(minimum: float, maximum: float) -> Validator:
    def check(name: str, value: Json) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise errors.invalid_type_error(name, "a decimal", describe_type(value))
        _validate_range(name, "decimal", value, minimum, maximum)

    return check


def _validate_range(name: str, kind: str, value: float, minimum: float, maximum: float | None) -> None:
    if value < minimum:
        raise errors.below_minimum_error(name, kind, minimum, value)
    if maximum is not None and not value <= maximum:
        raise errors.above_maximum_error(name, kind, maximum, value)


def enum_validator(*supported: str) -> Validator:
    def check(name: str, value: Json) -> None:
        if not isinstance(value, str):
            raise errors.invalid_type_error(name, "a string", describe_type(value))
        if value not in supported:
            raise errors.invalid_value_error(name, value, supported)

    return check


def validate_array(name: str, value: Json) -> None:
    if not isinstance(value, list):
        raise errors.invalid_type_error(name, "an array", describe_type(value))


def validate_object(name: str, value: Json) -> None:
    if not isinstance(value, Mapping):
        raise errors.invalid_type_error(name, "an object", describe_type(value))


def object_validator(
    required: Mapping[str, Validator] | None = None, optional: Mapping[str, Validator] | None = None
) -> Validator:
    """Return a validator of objects with these fields; other fields are not checked."""

    def check(name: str, value: Json) -> None:
        validate_object(name, value)
        for key, validator in (required or {}).items():
            if value.get(key) is None:
                raise errors.missing_parameter_error(f"{name}.{key}")
            validator(f"{name}.{key}", value[key])
        for key, validator in (optional or {}).items():
            if value.get(key) is not None:
                validator(f"{name}.{key}", value[key])

    return check


def array_validator(item_validator: Validator) -> Validator:
    def check(name: str, value: Json) -> None:
        validate_array(name, value)
        for index, item in enumerate(value):
            item_validator(f"{name}[{index}]", item)

    return check


def validate_metadata(name: str, value: Json) -> None:
    """Validate an object of at most 16 pairs of strings."""
    validate_object(name, value)
    if len(value) > MAX_METADATA_PAIRS:
        raise errors.too_many_properties_error(name, MAX_METADATA_PAIRS, len(value))
    for key, text in value.items():
        string_validator(MAX_METADATA_KEY_LENGTH)(f"{name} key", key)
        string_validator(MAX_METADATA_VALUE_LENGTH)(f"{name}.{key}", text)


def validate_known_fields(known_fields: Collection[str], fields: Collection[str], *, prefix: str = "") -> None:
    """Raise RequestRefused with the name of the first unknown field, after `prefix`."""
    unknown = sorted(set(fields) - set(known_fields))
    if unknown:
        raise errors.unknown_parameter_error(prefix + unknown[0])


def _validate_tool_choice(name: str, value: Json) -> None:
    if not isinstance(value, str):
        object_validator(
            {"type": validate_string},
            {"name": validate_string, "mode": validate_string, "tools": array_validator(validate_object)},
        )(name, value)


def _validate_tool(name: str, value: Json) -> None:
    object_validator({"type": validate_string})(name, value)
    validator = _TOOL_VALIDATORS.get(value["type"])
    if validator is not None:
        validator(name, value)


_NAMED_TOOL_VALIDATOR = object_validator(
    {"name": validate_string},
    {
        "description": validate_string,
        "parameters": validate_object,
        "strict": validate_boolean,
        "format": object_validator({"type": validate_string}),
        "defer_loading": validate_boolean,
    },
)


def _validate_namespace_member(name: str, value: Json) -> None:
    object_validator({"type": enum_validator("function", "custom")})(name, value)
    _NAMED_TOOL_VALIDATOR(name, value)


_TOOL_VALIDATORS: Mapping[str, Validator] = {
    "function": _NAMED_TOOL_VALIDATOR,
    "custom": _NAMED_TOOL_VALIDATOR,
    "namespace": object_validator(
        {"name": validate_string, "tools": array_validator(_validate_namespace_member)},
        {"description": validate_string},
    ),
    "tool_search": object_validator(
        optional={
            "execution": enum_validator("server", "client"),
            "description": validate_string,
            "parameters": validate_object,
        }
    ),
    "shell": object_validator(optional={"environment": object_validator({"type": validate_string})}),
}
"""Validators of the tools that convo maps to functions; the server of a hosted tool validates it."""

TOOLS_VALIDATOR = array_validator(_validate_tool)


def _validate_conversation(name: str, value: Json) -> None:
    if isinstance(value, str):
        validate_id(name, value)
    else:
        object_validator({"id": validate_id})(name, value)


def _validate_stream_options(name: str, value: Json) -> None:
    validate_object(name, value)
    validate_known_fields(("include_obfuscation",), value, prefix=f"{name}.")
    if value.get("include_obfuscation") is not None:
        validate_boolean(f"{name}.include_obfuscation", value["include_obfuscation"])


MAX_CONTINUATION_ID_CHARS = 512


def _validate_background_options(name: str, value: Json) -> None:
    """Accept the options that ask for the earliest start: every background response starts at once, without a queue.

    `completion_window` may only be "soonest", as a later window would promise a lower price. `continuation_id` names
    related requests that a server with a queue prefers (see `BackgroundOptions` of openai 3.54.0); here none waits.
    """
    validate_object(name, value)
    validate_known_fields(("completion_window", "continuation_id"), value, prefix=f"{name}.")
    if "completion_window" in value:
        enum_validator("soonest")(f"{name}.completion_window", value["completion_window"])
    if value.get("continuation_id") is not None:
        string_validator(MAX_CONTINUATION_ID_CHARS)(f"{name}.continuation_id", value["continuation_id"])


REASONING_VALIDATOR = object_validator(
    optional={
        "effort": enum_validator(*REASONING_EFFORTS),
        "summary": enum_validator("auto", "concise", "detailed"),
        "generate_summary": enum_validator("auto", "concise", "detailed"),
    }
)


TEXT_VALIDATOR = object_validator(
    optional={
        "format": object_validator({"type": validate_string}),
        "verbosity": enum_validator("low", "medium", "high"),
    }
)


def _validate_stop(name: str, value: Json) -> None:
    if not isinstance(value, str):
        array_validator(validate_string)(name, value)


CONTEXT_MANAGEMENT_VALIDATOR = object_validator(
    {"type": enum_validator("compaction"), "compact_threshold": integer_validator(1)}
)

ENDPOINT_FIELDS: Mapping[str, Validator] = {
    "input": accept_any,
    "previous_response_id": validate_id,
    "conversation": _validate_conversation,
    "store": validate_boolean,
    "stream": validate_boolean,
    "stream_options": _validate_stream_options,
    "context_management": array_validator(CONTEXT_MANAGEMENT_VALIDATOR),
    "client_metadata": validate_object,
    "background_options": _validate_background_options,
}
"""Fields that the endpoint itself uses; it always streams. With `stream: false` the client gets no events.

`client_metadata`, which Codex sends, is accepted and not passed on.
"""

EXTRA_FIELDS: Mapping[str, Validator] = {
    "chat_template_kwargs": validate_object,
    "seed": validate_integer,
    "stop": _validate_stop,
    "top_k": integer_validator(0),
}
"""Fields of many servers that are not in the API: sent to a provider whose `extra_fields` name them."""

MODEL_FIELDS: Mapping[str, Validator] = {
    **EXTRA_FIELDS,
    "access_programs": validate_object,
    "frequency_penalty": decimal_validator(-2, 2),
    "image": validate_object,
    "include": array_validator(enum_validator(*INCLUDABLE)),
    "max_output_tokens": integer_validator(1),
    "max_tool_calls": integer_validator(1),
    "moderation": validate_object,
    "parallel_tool_calls": validate_boolean,
    "presence_penalty": decimal_validator(-2, 2),
    "prompt": object_validator({"id": validate_string}),
    "prompt_cache_key": validate_string,
    "prompt_cache_options": validate_object,
    "prompt_cache_retention": enum_validator("in_memory", "24h"),
    "reasoning": REASONING_VALIDATOR,
    "safety_identifier": validate_string,
    "service_tier": enum_validator("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
    "temperature": decimal_validator(0, 2),
    "text": TEXT_VALIDATOR,
    "tool_choice": _validate_tool_choice,
    "tools": TOOLS_VALIDATOR,
    "top_logprobs": integer_validator(0, 20),
    "top_p": decimal_validator(0, 1),
    "truncation": enum_validator("auto", "disabled"),
    "user": validate_string,
}

ECHOED_FIELDS: Mapping[str, Validator] = {
    "background": validate_boolean,
    "instructions": validate_string,
    "metadata": validate_metadata,
}
"""Fields of the response that are not model parameters; a model gets instructions separately."""

REQUEST_FIELDS: Mapping[str, Validator] = {
    "model": validate_string,
    **ENDPOINT_FIELDS,
    **MODEL_FIELDS,
    **ECHOED_FIELDS,
}

COUNT_FIELDS = INPUT_TOKENS_FIELDS - {"personality"}
"""The fields of a request to count tokens."""


@dataclass(frozen=True)
class ResponseRequest:
    """One validated request.

    model:                 "provider/model", as the client wrote it; "" only in a request to count tokens
    items:                 the input as items, in the client's form
    previous_response_id:  the response to continue
    conversation_id:       the conversation to continue
    parameters:            the fields for the model, with instructions and metadata; nulls left out
    compact_threshold:     tokens from which the history is compacted before the response
    is_compaction:         only a compaction is requested
    stream:                whether the client gets the events as they arrive
    include_obfuscation:   whether padding of events was requested; it is not supported
    generate:              whether the model is called; else the request only prepares a later one
    """

    model: str
    items: Sequence[Item]
    previous_response_id: str | None
    conversation_id: str | None
    store: bool
    parameters: Mapping[str, Json]
    compact_threshold: int | None
    is_compaction: bool
    stream: bool
    include_obfuscation: bool
    generate: bool = True

    @property
    def background(self) -> bool:
        return bool(self.parameters.get("background"))

    @property
    def instructions(self) -> str | None:
        """The instructions for this response alone: the endpoint does not apply them to later ones."""
        return self.parameters.get("instructions")

    @property
    def model_parameters(self) -> dict[str, Json]:
        return {name: value for name, value in self.parameters.items() if name in MODEL_FIELDS}


def parse_response_request(body: Mapping[str, Json]) -> ResponseRequest:
    """Parse a request. Raises RequestRefused with the parameter and the real API's message."""
    request = _parse_request(body)
    if not request.model:
        raise errors.missing_parameter_error("model")
    return request


def _parse_request(body: Mapping[str, Json]) -> ResponseRequest:
    """Parse a request that may lack a model: `model` is then empty."""
    validate_known_fields(REQUEST_FIELDS, body)
    fields = {name: value for name, value in body.items() if value is not None}
    for name, value in fields.items():
        REQUEST_FIELDS[name](name, value)
    previous_id, conversation_id = fields.get("previous_response_id"), parse_conversation_id(fields.get("conversation"))
    if previous_id and conversation_id:
        raise errors.mutually_exclusive_error()
    if not fields.get("input") and not (previous_id or conversation_id or fields.get("prompt")):
        raise errors.missing_input_error()
    items = parse_input_items("input", fields.get("input") or [])
    is_compaction = has_compaction_trigger(items)
    return ResponseRequest(
        model=fields.get("model", ""),
        items=items[:-1] if is_compaction else items,
        previous_response_id=previous_id,
        conversation_id=conversation_id,
        store=fields.get("store", True),
        parameters={name: value for name, value in fields.items() if name in MODEL_FIELDS or name in ECHOED_FIELDS},
        compact_threshold=min(
            (entry["compact_threshold"] for entry in fields.get("context_management") or ()), default=None
        ),
        is_compaction=is_compaction,
        stream=fields.get("stream", True),
        include_obfuscation=bool((fields.get("stream_options") or {}).get("include_obfuscation")),
    )


def parse_connection_request(body: Mapping[str, Json]) -> ResponseRequest:
    """Parse a request over a connection, which always streams.

    Raises the errors of `parse_response_request`.
    """
    for name in (name for name in HTTP_ONLY_FIELDS if body.get(name)):
        raise errors.unsupported_parameter_error(
            name, "it is not supported over a connection, which streams every response"
        )
    if body.get("stream") is False:
        raise errors.unsupported_parameter_error("stream", "a connection streams every response")
    generate = body.get("generate")
    if generate is not None:
        validate_boolean("generate", generate)
    request = parse_response_request(
        {name: value for name, value in body.items() if name not in ("generate", *HTTP_ONLY_FIELDS)}
    )
    prewarm = (request.parameters.get("prompt_cache_options") or {}).get("prewarm")
    return replace(request, generate=generate is not False and not prewarm)


HTTP_ONLY_FIELDS = ("background", "stream_options")


def parse_count_request(body: Mapping[str, Json]) -> ResponseRequest:
    """Parse a request to count tokens. Raises the errors of `parse_response_request`."""
    if body.get("personality") is not None:
        raise errors.unsupported_parameter_error("personality", "its tokens cannot be counted")
    validate_known_fields(COUNT_FIELDS, {name: value for name, value in body.items() if name != "personality"})
    return _parse_request({name: value for name, value in body.items() if name != "personality"})


def parse_compact_body(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the body of the request whose history is to be compacted.

    Raises RequestRefused if it has a field of another request.
    """
    validate_known_fields(COMPACT_FIELDS, body)
    return {**body, "store": False}


COMPACT_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "image", "service_tier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    }
)
"""The fields of a request to compact."""


def parse_conversation_items(value: Json) -> Sequence[Item]:
    """Parse the items to add to a conversation. Raises RequestRefused."""
    validate_array("items", value)
    if len(value) > MAX_ADDED_ITEMS:
        raise errors.too_long_error("items", "array", MAX_ADDED_ITEMS, len(value))
    items = parse_input_items("items", value)
    if derive(items, _TRIGGERS):
        raise errors.unsupported_parameter_error(
            "items", "a compaction is requested with a response and is not stored as an item"
        )
    return items


MAX_ADDED_ITEMS = 20
"""Maximum number of items added to a conversation in one request."""


ITEM_REFERENCE = "item_reference"

COMPACTION_TRIGGER = "compaction_trigger"
"""Requests a compaction now; it is not part of the history, so it is never stored."""

FILE_URL_START = re.compile(r"(?:https?://|data:)", re.IGNORECASE)


def validate_file_url(name: str, value: Json) -> None:
    """Check the URL of an image or file: any other start may mean a file of the model's server."""
    validate_string(name, value)
    if value and not FILE_URL_START.match(value):
        raise errors.invalid_file_url_error(name)


PART_VALIDATOR = object_validator(
    {"type": validate_string},
    {
        **dict.fromkeys(("text", "refusal", "file_data", "file_id", "filename"), validate_string),
        **dict.fromkeys(("image_url", "file_url"), validate_file_url),
    },
)


def _validate_text_or_parts(name: str, value: Json) -> None:
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        raise errors.invalid_type_error(name, "one of an array of objects or string", describe_type(value))
    array_validator(PART_VALIDATOR)(name, value)


MESSAGE_VALIDATOR = object_validator(
    required={"role": enum_validator("user", "assistant", "system", "developer")},
    optional={"id": validate_string},
)


def validate_function_output(name: str, value: Json) -> None:
    """Check a tool output. One that names its tool may have no `call_id`: it is context that the client adds."""
    validate_object(name, value)
    is_standalone = isinstance(value.get("name"), str) and value.get("call_id") is None
    fields: dict[str, Validator] = {"id": validate_string}
    object_validator({} if is_standalone else {"call_id": validate_string}, fields)(name, value)


ITEM_VALIDATORS: Mapping[str, Validator] = {
    "message": MESSAGE_VALIDATOR,
    "function_call": object_validator(
        {"call_id": validate_string, "name": validate_string, "arguments": validate_string},
        {"id": validate_string},
    ),
    "function_call_output": validate_function_output,
    "custom_tool_call": object_validator(
        {"call_id": validate_string, "name": validate_string, "input": validate_string},
        {"id": validate_string},
    ),
    "custom_tool_call_output": object_validator({"call_id": validate_string}, {"id": validate_string}),
    "reasoning": object_validator(
        optional={
            "id": validate_string,
            "summary": validate_array,
            "content": validate_array,
            "encrypted_content": validate_string,
        }
    ),
    "compaction": object_validator({"encrypted_content": validate_string}, {"id": validate_string}),
    "local_shell_call": object_validator({"call_id": validate_string, "action": validate_object}),
    "local_shell_call_output": object_validator({"output": validate_string}, {"call_id": validate_string}),
    "shell_call": object_validator({"call_id": validate_string, "action": validate_object}),
    "shell_call_output": object_validator({"call_id": validate_string, "output": validate_array}),
    "apply_patch_call": object_validator({"call_id": validate_string, "operation": validate_object}),
    "apply_patch_call_output": object_validator({"call_id": validate_string}, {"output": validate_string}),
    "tool_search_call": object_validator({"arguments": validate_object}, {"call_id": validate_string}),
    "tool_search_output": object_validator({"tools": TOOLS_VALIDATOR}, {"call_id": validate_string}),
    "additional_tools": object_validator({"tools": TOOLS_VALIDATOR}),
    "configuration_update": object_validator(
        optional={"reasoning": REASONING_VALIDATOR, "text": TEXT_VALIDATOR},
    ),
    "computer_call_output": object_validator(
        optional={"output": object_validator(optional={"image_url": validate_file_url})}
    ),
    ITEM_REFERENCE: object_validator({"id": validate_string}),
}

CONTENT_FIELDS: Mapping[str, str] = {
    "message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}
"""The field of an item type that holds text or a list of parts; required, may be empty."""


def parse_input_items(name: str, value: Json) -> Sequence[Item]:
    """Parse the input; a string is a user message.

    Raises RequestRefused with the location of the first error, as `input[2].content`.
    """
    if isinstance(value, str):
        return (user_message(value),)
    if not isinstance(value, list):
        raise errors.invalid_type_error(name, "one of an array of objects or string", describe_type(value))
    return derive(value, _make_item_step, name)


def _make_item_step(name: str) -> Callable[[Sequence[Json]], Iterator[Item]]:
    indexes = count()

    def step(values: Sequence[Json]) -> Iterator[Item]:
        for value, index in zip(values, indexes, strict=False):
            _validate_item(f"{name}[{index}]", value)
            yield _with_reference_type(value)

    return step


def referenced_id(item: Item) -> str | None:
    """Return the id that an item reference names; None for other items."""
    return str(item["id"]) if item.get("type") == ITEM_REFERENCE else None


REFERENCES = where(lambda item: referenced_id(item) is not None)
_TRIGGERS = where(lambda item: item.get("type") == COMPACTION_TRIGGER)


def has_compaction_trigger(items: Sequence[Item]) -> bool:
    """Whether a compaction is requested. Raises RequestRefused if an item follows the trigger."""
    triggers = derive(items, _TRIGGERS)
    if triggers and triggers[0] < len(items) - 1:
        raise errors.trigger_not_last_error()
    return bool(triggers)


def _validate_item(name: str, item: Json) -> None:
    validate_object(name, item)
    typed_item: Item = _with_reference_type(item)
    if typed_item.get("type") is not None:
        validate_string(f"{name}.type", typed_item["type"])
    if item_type(typed_item) == "unknown":
        raise errors.missing_parameter_error(f"{name}.type")
    ITEM_VALIDATORS.get(item_type(typed_item), validate_object)(name, typed_item)
    if typed_item.get("id"):
        validate_id(f"{name}.id", typed_item["id"])
    content_field = CONTENT_FIELDS.get(item_type(typed_item))
    if content_field is not None:
        if typed_item.get(content_field) is None:
            raise errors.missing_parameter_error(f"{name}.{content_field}")
        _validate_text_or_parts(f"{name}.{content_field}", typed_item[content_field])


def _with_reference_type(item: dict[str, Json]) -> dict[str, Json]:
    """Add the type to an item reference without one; other items are returned unchanged."""
    return {**item, "type": ITEM_REFERENCE} if set(item) == {"id"} or _is_untyped_reference(item) else item


def _is_untyped_reference(item: dict[str, Json]) -> bool:
    return set(item) == {"id", "type"} and item["type"] is None
