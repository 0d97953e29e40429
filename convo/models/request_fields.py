"""The fields of a request to create a response, as JSON Schemas.

`convo.responses_api.validation` checks requests with them, and `convo.server.schemas` makes `/openapi.json` from them.
A new field is one row of `REQUEST_FIELDS`. Null means "not given", for every field and every member of an object that
is not required. A schema has only the keywords that `validate_value` reads.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from convo.config.request_settings import REASONING_EFFORTS
from convo.history.items import MAX_ID_CHARS, Json

Schema = Mapping[str, Json]

STRING_SCHEMA: Schema = {"type": "string"}
NAME_SCHEMA: Schema = {"type": "string", "minLength": 1}
BOOLEAN_SCHEMA: Schema = {"type": "boolean"}
INTEGER_SCHEMA: Schema = {"type": "integer"}
POSITIVE_SCHEMA: Schema = {"type": "integer", "minimum": 1}
PENALTY_SCHEMA: Schema = {"type": "number", "minimum": -2, "maximum": 2}
ARRAY_SCHEMA: Schema = {"type": "array"}
OBJECT_SCHEMA: Schema = {"type": "object"}


def enum_schema(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def array_schema(items: Schema, maximum: int | None = None) -> Schema:
    return {"type": "array", "items": items, **({} if maximum is None else {"maxItems": maximum})}


def object_schema(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Build the schema of an object with these members, and possibly others."""
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


TYPED_SCHEMA = object_schema({"type": STRING_SCHEMA})

ID_SCHEMA: Schema = {
    "type": "string",
    "pattern": rf"^(?!\.{{1,2}}$)[A-Za-z0-9_.:=+~@$-]{{1,{MAX_ID_CHARS}}}$",
}
"""The ids that `is_valid_id` accepts."""

FILE_URL_SCHEMA: Schema = {"type": "string", "format": "file-url"}
"""A URL of https, http or data; any other may mean a file of the model's server."""

METADATA_SCHEMA: Schema = {
    "type": "object",
    "maxProperties": 16,
    "propertyNames": {"maxLength": 64},
    "additionalProperties": {"type": "string", "maxLength": 512},
}

INCLUDABLE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
"""The values of `include`. Items are always shown with all stored fields, so each value is honoured."""

_SUMMARY_SCHEMA = enum_schema("auto", "concise", "detailed")
_REASONING_SCHEMA = object_schema(
    {}, {"effort": enum_schema(*REASONING_EFFORTS), "summary": _SUMMARY_SCHEMA, "generate_summary": _SUMMARY_SCHEMA}
)
_TEXT_SCHEMA = object_schema({}, {"format": TYPED_SCHEMA, "verbosity": enum_schema("low", "medium", "high")})

PART_REF, ITEM_REF, TOOL_REF = (
    "#/components/schemas/Part",
    "#/components/schemas/InputItem",
    "#/components/schemas/Tool",
)

PART_SCHEMA = object_schema(
    {"type": STRING_SCHEMA},
    {
        **dict.fromkeys(("text", "refusal", "file_data", "file_id", "filename"), STRING_SCHEMA),
        **dict.fromkeys(("image_url", "file_url"), FILE_URL_SCHEMA),
    },
)
CONTENT_SCHEMA: Schema = {"anyOf": [STRING_SCHEMA, array_schema({"$ref": PART_REF})]}
ITEMS_SCHEMA = array_schema({"$ref": ITEM_REF})
INPUT_SCHEMA: Schema = {"anyOf": [STRING_SCHEMA, ITEMS_SCHEMA]}
ADDED_ITEMS_SCHEMA: Schema = {**ITEMS_SCHEMA, "maxItems": 20}
"""The items added to a conversation in one request."""

TOOLS_SCHEMA = array_schema({"$ref": TOOL_REF})

_NAMED_TOOL_FIELDS: Mapping[str, Schema] = {
    "description": STRING_SCHEMA,
    "parameters": OBJECT_SCHEMA,
    "strict": BOOLEAN_SCHEMA,
    "format": TYPED_SCHEMA,
    "defer_loading": BOOLEAN_SCHEMA,
}
_NAME, _ID, _CALL_ID = {"name": STRING_SCHEMA}, {"id": STRING_SCHEMA}, {"call_id": STRING_SCHEMA}

TOOL_SCHEMAS: Mapping[str, Schema] = {
    kind: object_schema({"type": {"const": kind}, **required}, optional)
    for kind, required, optional in (
        ("function", _NAME, _NAMED_TOOL_FIELDS),
        ("custom", _NAME, _NAMED_TOOL_FIELDS),
        (
            "namespace",
            {
                **_NAME,
                "tools": array_schema(
                    object_schema({"type": enum_schema("function", "custom"), **_NAME}, _NAMED_TOOL_FIELDS)
                ),
            },
            {"description": STRING_SCHEMA},
        ),
        (
            "tool_search",
            {},
            {"execution": enum_schema("server", "client"), "description": STRING_SCHEMA, "parameters": OBJECT_SCHEMA},
        ),
        ("shell", {}, {"environment": TYPED_SCHEMA}),
    )
}
"""The tools that convo maps to functions, by type; the server of a hosted tool validates it."""

MESSAGE_SCHEMA = object_schema(
    {"role": enum_schema("user", "assistant", "system", "developer"), "content": CONTENT_SCHEMA}, _ID
)
REFERENCE_SCHEMA = {**object_schema(_ID, {"type": {"type": "null"}}), "additionalProperties": False}
"""The short form of an item reference."""

ITEM_SCHEMAS: Mapping[str, Schema] = {
    kind: object_schema({"type": {"const": kind}, **required}, {**optional, **_ID})
    for kind, required, optional in (
        ("item_reference", _ID, {}),
        ("function_call", {**_CALL_ID, **_NAME, "arguments": STRING_SCHEMA}, {}),
        # An output that names its tool may have no `call_id`: it is context that the client adds.
        ("function_call_output", {"output": CONTENT_SCHEMA}, _CALL_ID),
        ("custom_tool_call", {**_CALL_ID, **_NAME, "input": STRING_SCHEMA}, {}),
        ("custom_tool_call_output", {**_CALL_ID, "output": CONTENT_SCHEMA}, {}),
        ("reasoning", {}, {"summary": ARRAY_SCHEMA, "content": ARRAY_SCHEMA, "encrypted_content": STRING_SCHEMA}),
        ("compaction", {"encrypted_content": STRING_SCHEMA}, {}),
        ("local_shell_call", {**_CALL_ID, "action": OBJECT_SCHEMA}, {}),
        ("local_shell_call_output", {"output": STRING_SCHEMA}, _CALL_ID),
        ("shell_call", {**_CALL_ID, "action": OBJECT_SCHEMA}, {}),
        ("shell_call_output", {**_CALL_ID, "output": ARRAY_SCHEMA}, {}),
        ("apply_patch_call", {**_CALL_ID, "operation": OBJECT_SCHEMA}, {}),
        ("apply_patch_call_output", _CALL_ID, {"output": STRING_SCHEMA}),
        ("tool_search_call", {"arguments": OBJECT_SCHEMA}, _CALL_ID),
        ("tool_search_output", {"tools": TOOLS_SCHEMA}, _CALL_ID),
        ("additional_tools", {"tools": TOOLS_SCHEMA}, {}),
        ("configuration_update", {}, {"reasoning": _REASONING_SCHEMA, "text": _TEXT_SCHEMA}),
        ("computer_call_output", {}, {"output": object_schema({}, {"image_url": FILE_URL_SCHEMA})}),
    )
}
"""The input items with a required `type`; the model's server validates those of other types."""


IF_GIVEN: Final = object()
NOT_REPEATED: Final = object()


class RequestField(NamedTuple):
    """A field of a request to create a response.

    schema:       its values
    owner:        "endpoint": read by the endpoint alone. "model": sent to the model, whose adapter translates it,
                  refuses it, or reports it as ignored. "response": repeated in the response, and not sent as it is
    default:      the value that a response shows if the request has none; IF_GIVEN: then it has no such field;
                  NOT_REPEATED: it has no such field, or in another form
    is_counted:   input tokens depend on it, so that a request to count them has it
    is_compacted: a request to compact a history has it
    """

    schema: Schema
    owner: Literal["endpoint", "response", "model"] = "model"
    default: Json = IF_GIVEN
    is_counted: bool = False
    is_compacted: bool = False


REQUEST_FIELDS: Mapping[str, RequestField] = {
    "model": RequestField(NAME_SCHEMA, "endpoint", is_counted=True, is_compacted=True),
    "input": RequestField(INPUT_SCHEMA, "endpoint", is_counted=True, is_compacted=True),
    "previous_response_id": RequestField(ID_SCHEMA, "endpoint", is_counted=True, is_compacted=True),
    "conversation": RequestField({"anyOf": [ID_SCHEMA, object_schema({"id": ID_SCHEMA})]}, "endpoint", is_counted=True),
    "store": RequestField(BOOLEAN_SCHEMA, "endpoint"),
    # The endpoint always streams; with `stream: false` the client gets no events.
    "stream": RequestField(BOOLEAN_SCHEMA, "endpoint"),
    "stream_options": RequestField(
        {**object_schema({}, {"include_obfuscation": BOOLEAN_SCHEMA}), "additionalProperties": False}, "endpoint"
    ),
    "background": RequestField(BOOLEAN_SCHEMA, "response", default=NOT_REPEATED),
    # Every background response starts at once, without a queue. A later window would promise a lower price, and
    # related requests, which `continuation_id` names, do not wait (see `BackgroundOptions` of openai 3.54.0).
    "background_options": RequestField(
        {
            **object_schema(
                {},
                {
                    "completion_window": {"const": "soonest"},
                    "continuation_id": {"type": "string", "maxLength": 512},
                },
            ),
            "additionalProperties": False,
        },
        "endpoint",
    ),
    # Codex sends it; it is accepted and not passed on.
    "client_metadata": RequestField(OBJECT_SCHEMA, "endpoint"),
    "context_management": RequestField(
        array_schema(object_schema({"type": {"const": "compaction"}, "compact_threshold": POSITIVE_SCHEMA})), "endpoint"
    ),
    "instructions": RequestField(STRING_SCHEMA, "response", default=None, is_counted=True, is_compacted=True),
    "access_programs": RequestField(OBJECT_SCHEMA),
    "image": RequestField(OBJECT_SCHEMA, is_compacted=True),
    "include": RequestField(array_schema(enum_schema(*INCLUDABLE)), default=NOT_REPEATED),
    "max_output_tokens": RequestField(POSITIVE_SCHEMA, default=None),
    "max_tool_calls": RequestField(POSITIVE_SCHEMA, default=None),
    "moderation": RequestField(OBJECT_SCHEMA),
    "parallel_tool_calls": RequestField(BOOLEAN_SCHEMA, default=True, is_counted=True),
    "presence_penalty": RequestField(PENALTY_SCHEMA, default=0.0),
    "frequency_penalty": RequestField(PENALTY_SCHEMA, default=0.0),
    "prompt": RequestField(object_schema({"id": STRING_SCHEMA})),
    "prompt_cache_key": RequestField(STRING_SCHEMA, default=None, is_compacted=True),
    "prompt_cache_options": RequestField(OBJECT_SCHEMA, is_compacted=True),
    "prompt_cache_retention": RequestField(enum_schema("in_memory", "24h"), is_compacted=True),
    "reasoning": RequestField(_REASONING_SCHEMA, default=NOT_REPEATED, is_counted=True),
    "safety_identifier": RequestField(STRING_SCHEMA, default=None),
    "service_tier": RequestField(
        enum_schema("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
        default=NOT_REPEATED,
        is_compacted=True,
    ),
    "temperature": RequestField({"type": "number", "minimum": 0, "maximum": 2}, default=1.0),
    "text": RequestField(_TEXT_SCHEMA, default=NOT_REPEATED, is_counted=True),
    "tool_choice": RequestField(
        {
            "anyOf": [
                STRING_SCHEMA,
                object_schema(
                    {"type": STRING_SCHEMA}, {**_NAME, "mode": STRING_SCHEMA, "tools": array_schema(OBJECT_SCHEMA)}
                ),
            ]
        },
        default="auto",
        is_counted=True,
    ),
    "tools": RequestField(TOOLS_SCHEMA, default=NOT_REPEATED, is_counted=True),
    "top_logprobs": RequestField({"type": "integer", "minimum": 0, "maximum": 20}, default=0),
    "top_p": RequestField({"type": "number", "minimum": 0, "maximum": 1}, default=1.0),
    "truncation": RequestField(enum_schema("auto", "disabled"), default="disabled", is_counted=True),
    "metadata": RequestField(METADATA_SCHEMA, "response", default={}),
    "user": RequestField(STRING_SCHEMA),
    # Not in the API: sent to a provider whose `extra_fields` name them.
    "chat_template_kwargs": RequestField(OBJECT_SCHEMA, default=NOT_REPEATED),
    "seed": RequestField(INTEGER_SCHEMA, default=NOT_REPEATED),
    "stop": RequestField({"anyOf": [STRING_SCHEMA, array_schema(STRING_SCHEMA)]}, default=NOT_REPEATED),
    "top_k": RequestField({"type": "integer", "minimum": 0}, default=NOT_REPEATED),
}

REPEATED_FIELDS: Mapping[str, Json] = {
    name: field.default
    for name, field in REQUEST_FIELDS.items()
    if field.owner != "endpoint" and field.default is not NOT_REPEATED
}
"""The fields that a response repeats, with their defaults."""

MODEL_FIELDS = frozenset({name for name, field in REQUEST_FIELDS.items() if field.owner == "model"})

COUNT_FIELDS = frozenset({name for name, field in REQUEST_FIELDS.items() if field.is_counted})
"""The fields that the input tokens of a request depend on."""

COMPACT_FIELDS = frozenset({name for name, field in REQUEST_FIELDS.items() if field.is_compacted})
