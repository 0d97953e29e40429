"""Check and parse requests, input items and metadata.

The fields and their values are those of `convo.models.request_fields`. Unknown fields and other values are refused by
name, with the API's message, code and param.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from convo.endpoints.base import parse_conversation_id
from convo.history.items import Item, Json, is_valid_id, item_type, user_message
from convo.history.tree import derive, where
from convo.models import request_fields
from convo.models.request_fields import MODEL_FIELDS, REQUEST_FIELDS, STRING_SCHEMA, Schema
from convo.responses_api import errors

_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}

_KIND_NAMES: Mapping[str, str] = {
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a decimal",
    "string": "a string",
    "array": "an array",
    "object": "an object",
    "null": "null",
}

FILE_URL_START = re.compile(r"(?:https?://|data:)", re.IGNORECASE)


def validate_value(name: str, value: Json, schema: Schema) -> None:
    """Check a value against a schema of `convo.models.request_fields`. Raises RequestRefused with the API's message.

    name:  its location, as `input[2].content`

    It reads the keywords of that module only. Of `anyOf` it reads the branch of the value's type, or else the last.
    """
    given_schema, kind = schema, _KINDS.get(type(value)) or _find_kind(value)
    if "type" not in schema:
        for branch in schema.get("anyOf", ()):
            schema = branch
            if branch.get("type") == kind:
                break
        reference = schema.get("$ref")
        if reference is not None:
            schema = request_fields.PART_SCHEMA if reference == request_fields.PART_REF else _select_tool_schema(value)
    expected = schema.get("type", "string")  # a constant is a string
    if kind != expected and not (kind == "integer" and expected == "number"):
        is_content = given_schema in (request_fields.INPUT_SCHEMA, request_fields.CONTENT_SCHEMA)
        expected_name = "one of an array of objects or string" if is_content else _KIND_NAMES[expected]
        raise errors.invalid_type_error(name, expected_name, _KIND_NAMES[kind])
    if expected == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is False:
            validate_known_fields(properties, value, prefix=f"{name}.")
        for key, member in properties.items():
            given = value.get(key)
            if given is None:
                if key in schema["required"]:
                    raise errors.missing_parameter_error(f"{name}.{key}")
            elif type(given) is not str or (member is not STRING_SCHEMA and member.get("const") != given):
                # Texts and types are most members of a long history: a call for each took a quarter of the time.
                validate_value(f"{name}.{key}", given, member)
        if "maxProperties" in schema:
            _validate_pairs(name, value, schema)
    elif expected == "array":
        if len(value) > schema.get("maxItems", len(value)):
            raise errors.too_long_error(name, "array", schema["maxItems"], len(value))
        if schema.get("items") is request_fields.ITEMS_SCHEMA["items"]:
            derive(value, _make_item_check, name)  # the items of a history were checked for an earlier request
        elif "items" in schema:
            for index, member in enumerate(value):
                validate_value(f"{name}[{index}]", member, schema["items"])
    elif expected == "string" and schema is not STRING_SCHEMA:
        choices = [schema["const"]] if "const" in schema else schema.get("enum")
        if choices is not None and value not in choices:
            raise errors.invalid_value_error(name, value, choices)
        if len(value) > schema.get("maxLength", len(value)):
            raise errors.too_long_error(name, "string", schema["maxLength"], len(value))
        if "pattern" in schema and not is_valid_id(value):
            raise errors.invalid_id_error(name, value)
        if "format" in schema and value and not FILE_URL_START.match(value):
            raise errors.invalid_file_url_error(name)
    elif kind in ("integer", "number"):
        number_name = "decimal" if expected == "number" else "integer"
        if "minimum" in schema and value < schema["minimum"]:
            raise errors.below_minimum_error(name, number_name, schema["minimum"], value)
        if "maximum" in schema and not value <= schema["maximum"]:  # NaN is out of every range
            raise errors.above_maximum_error(name, number_name, schema["maximum"], value)


def _make_item_check(name: str) -> Callable[[Sequence[Json]], Sequence[Json]]:
    """Return a step of `derive` that checks input items, and has no results."""
    indexes = count()

    def step(values: Sequence[Json]) -> Sequence[Json]:
        for value, index in zip(values, indexes, strict=False):
            _validate_item(f"{name}[{index}]", value)
        return ()

    return step


def _find_kind(value: Json) -> str:
    """Return the type of a value that Python code passed, like a StrEnum."""
    if isinstance(value, Mapping):
        return "object"
    return next((kind for type_, kind in _KINDS.items() if isinstance(value, type_)), "null")


def _validate_pairs(name: str, value: Mapping[str, Json], schema: Schema) -> None:
    if len(value) > schema["maxProperties"]:
        raise errors.too_many_properties_error(name, schema["maxProperties"], len(value))
    for key, text in value.items():
        validate_value(f"{name} key", key, {"type": "string", **schema["propertyNames"]})
        validate_value(f"{name}.{key}", text, schema["additionalProperties"])


def validate_known_fields(known_fields: Collection[str], fields: Collection[str], *, prefix: str = "") -> None:
    """Raise RequestRefused with the name of the first unknown field, after `prefix`."""
    unknown = sorted(set(fields) - set(known_fields))
    if unknown:
        raise errors.unknown_parameter_error(prefix + unknown[0])


def _select_tool_schema(value: Json) -> Schema:
    kind = value.get("type") if isinstance(value, Mapping) else None
    known = request_fields.TOOL_SCHEMAS.get(kind) if isinstance(kind, str) else None
    return known or request_fields.TYPED_SCHEMA


def _validate_item(name: str, item: Json) -> None:
    if not isinstance(item, Mapping):
        raise errors.invalid_type_error(name, "an object", _KIND_NAMES[_find_kind(item)])
    item = _with_reference_type(item)
    if not isinstance(item.get("type"), str | None):
        validate_value(f"{name}.type", item["type"], STRING_SCHEMA)
    kind = item_type(item)
    if kind == "unknown":
        raise errors.missing_parameter_error(f"{name}.type")
    schema = request_fields.MESSAGE_SCHEMA if kind == "message" else request_fields.ITEM_SCHEMAS.get(kind)
    if schema is not None:
        validate_value(name, item, schema)
    if kind == "function_call_output" and item.get("call_id") is None and not isinstance(item.get("name"), str):
        raise errors.missing_parameter_error(f"{name}.call_id")
    if item.get("id"):
        validate_value(f"{name}.id", item["id"], request_fields.ID_SCHEMA)


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
        validate_value(name, value, REQUEST_FIELDS[name].schema)
    previous_id, conversation_id = fields.get("previous_response_id"), parse_conversation_id(fields.get("conversation"))
    if previous_id and conversation_id:
        raise errors.mutually_exclusive_error()
    if not fields.get("input") and not (previous_id or conversation_id or fields.get("prompt")):
        raise errors.missing_input_error()
    items = _to_items(fields.get("input") or [])
    is_compaction = has_compaction_trigger(items)
    return ResponseRequest(
        model=fields.get("model", ""),
        items=items[:-1] if is_compaction else items,
        previous_response_id=previous_id,
        conversation_id=conversation_id,
        store=fields.get("store", True),
        parameters={name: value for name, value in fields.items() if REQUEST_FIELDS[name].owner != "endpoint"},
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
        validate_value("generate", generate, request_fields.BOOLEAN_SCHEMA)
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
    validate_known_fields(
        request_fields.COUNT_FIELDS, {name: value for name, value in body.items() if name != "personality"}
    )
    return _parse_request({name: value for name, value in body.items() if name != "personality"})


def parse_compact_body(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the body of the request whose history is to be compacted.

    Raises RequestRefused if it has a field of another request.
    """
    validate_known_fields(request_fields.COMPACT_FIELDS, body)
    return {**body, "store": False}


def parse_conversation_items(value: Json) -> Sequence[Item]:
    """Parse the items to add to a conversation. Raises RequestRefused."""
    validate_value("items", value, request_fields.ADDED_ITEMS_SCHEMA)
    items = _to_items(value)
    if derive(items, _TRIGGERS):
        raise errors.unsupported_parameter_error(
            "items", "a compaction is requested with a response and is not stored as an item"
        )
    return items


ITEM_REFERENCE = "item_reference"

COMPACTION_TRIGGER = "compaction_trigger"
"""Requests a compaction now; it is not part of the history, so it is never stored."""


def _to_items(value: Json) -> Sequence[Item]:
    """Return a valid input as items; a string is a user message."""
    return (user_message(value),) if isinstance(value, str) else derive(value, _make_item_step)


def _make_item_step() -> Callable[[Sequence[Json]], Iterator[Item]]:
    return lambda values: map(_with_reference_type, values)


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


def _with_reference_type(item: Item) -> Item:
    """Add the type to an item reference without one; other items are returned unchanged."""
    return {**item, "type": ITEM_REFERENCE} if set(item) == {"id"} or _is_untyped_reference(item) else item


def _is_untyped_reference(item: Item) -> bool:
    return set(item) == {"id", "type"} and item["type"] is None
