"""What bodies and answers look like, as JSON Schema.

Requests are closed: a field that does not stand here is refused by its name. In every one of them
null means "not given". Answers are open, for what a model's server adds is passed on. Items and
tools are told by what this server reads of them; all else in them is the model's.
"""

from collections.abc import Mapping

from convo.endpoints.contract import INCLUDABLE
from convo.items import Json

Schema = Mapping[str, Json]

STRING: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
OBJECT: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def number(least: float, most: float) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most}


def whole(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}


def enum(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def array(items: Schema, most: int | None = None) -> Schema:
    return {"type": "array", "items": items, **({} if most is None else {"maxItems": most})}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def or_null(schema: Schema) -> Schema:
    return either(schema, {"type": "null"})


def constant(value: str | bool) -> Schema:
    return {"const": value}


def held(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object that has these fields, and may have others."""
    more = {name: or_null(schema) for name, schema in (optional or {}).items()}
    return {"type": "object", "required": list(required), "properties": {**required, **more}}


def closed(required: Mapping[str, Schema], optional: Mapping[str, Schema]) -> Schema:
    """An object that has no other fields than these."""
    return {**held(required, optional), "additionalProperties": False}


METADATA: Schema = {
    "type": "object",
    "maxProperties": 16,
    "propertyNames": {"maxLength": 64},
    "additionalProperties": {"type": "string", "maxLength": 512},
}

INPUT = either(STRING, array(ref("InputItem")))

ID: Schema = {"type": "string", "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9_.:=+~@$-]{1,512}$"}

CONVERSATION = either(ID, held({"id": ID}))

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SUMMARY = enum("auto", "concise", "detailed")

CREATE: Mapping[str, Schema] = {
    "input": INPUT,
    "previous_response_id": ID,
    "conversation": CONVERSATION,
    "store": BOOLEAN,
    "stream": BOOLEAN,
    "stream_options": closed({}, {"include_obfuscation": BOOLEAN}),
    "background": BOOLEAN,
    "background_options": closed({}, {"completion_window": constant("soonest")}),
    "chat_template_kwargs": OBJECT,
    "client_metadata": OBJECT,
    "context_management": array(held({"type": constant("compaction"), "compact_threshold": whole(1)})),
    "access_programs": OBJECT,
    "frequency_penalty": number(-2, 2),
    "image": OBJECT,
    "include": array(enum(*INCLUDABLE)),
    "instructions": STRING,
    "max_output_tokens": whole(1),
    "max_tool_calls": whole(1),
    "metadata": METADATA,
    "moderation": OBJECT,
    "parallel_tool_calls": BOOLEAN,
    "presence_penalty": number(-2, 2),
    "prompt": held({"id": STRING}),
    "prompt_cache_key": STRING,
    "prompt_cache_options": OBJECT,
    "prompt_cache_retention": enum("in_memory", "24h"),
    "reasoning": held({}, {"effort": enum(*EFFORTS), "summary": SUMMARY, "generate_summary": SUMMARY}),
    "safety_identifier": STRING,
    "seed": INTEGER,
    "service_tier": enum("auto", "default", "flex", "scale", "priority", "fast", "ultrafast"),
    "stop": either(STRING, array(STRING)),
    "temperature": number(0, 2),
    "text": held({}, {"format": held({"type": STRING}), "verbosity": enum("low", "medium", "high")}),
    "tool_choice": either(STRING, held({"type": STRING})),
    "tools": array(ref("Tool")),
    "top_k": whole(0),
    "top_logprobs": whole(0, 20),
    "top_p": number(0, 1),
    "truncation": enum("auto", "disabled"),
    "user": STRING,
}
"""The fields of a request beside `model`, which has to be there."""

COUNTED = (
    *("input", "instructions", "previous_response_id", "conversation", "tools", "tool_choice", "text"),
    *("reasoning", "parallel_tool_calls", "truncation"),
)

COMPACTED = (
    *("input", "instructions", "previous_response_id", "image", "service_tier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)


def request(*names: str, model: bool = True) -> Schema:
    """The body of a request with these fields; `model`: whether it has to name one."""
    fields = {name: CREATE[name] for name in names}
    return closed({"model": NAME}, fields) if model else closed({}, {"model": NAME, **fields})


def deleted(kind: str) -> Schema:
    return held({"id": STRING, "object": constant(kind), "deleted": constant(True)})


def listed(of: Schema) -> Schema:
    ids = {"first_id": or_null(STRING), "last_id": or_null(STRING), "has_more": BOOLEAN}
    return held({"object": constant("list"), "data": array(of), **ids})


USAGE = held(
    {
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "total_tokens": COUNT,
        "input_tokens_details": held({"cached_tokens": COUNT, "cache_write_tokens": COUNT}),
        "output_tokens_details": held({"reasoning_tokens": COUNT}),
    }
)

RESPONSE = held(
    {
        "id": STRING,
        "object": constant("response"),
        "created_at": INTEGER,
        "completed_at": or_null(INTEGER),
        "status": enum("queued", "in_progress", "completed", "incomplete", "failed", "cancelled"),
        "incomplete_details": or_null(held({"reason": STRING})),
        "model": STRING,
        "previous_response_id": or_null(STRING),
        "conversation": or_null(held({"id": STRING})),
        "instructions": or_null(STRING),
        "output": array(ref("Item")),
        "error": or_null(held({"code": STRING, "message": STRING})),
        "tools": array(OBJECT),
        "tool_choice": either(STRING, OBJECT),
        "truncation": STRING,
        "parallel_tool_calls": BOOLEAN,
        "text": held({"format": held({"type": STRING})}),
        "top_p": {"type": "number"},
        "presence_penalty": {"type": "number"},
        "frequency_penalty": {"type": "number"},
        "top_logprobs": INTEGER,
        "temperature": {"type": "number"},
        "reasoning": OBJECT,
        "usage": or_null(USAGE),
        "max_output_tokens": or_null(INTEGER),
        "max_tool_calls": or_null(INTEGER),
        "store": BOOLEAN,
        "background": BOOLEAN,
        "service_tier": STRING,
        "metadata": METADATA,
        "safety_identifier": or_null(STRING),
        "prompt_cache_key": or_null(STRING),
    }
)

ERROR = {"message": STRING, "type": STRING, "param": or_null(STRING), "code": or_null(STRING)}

SCHEMAS: Mapping[str, Schema] = {
    "AddItemsBody": closed({"items": array(ref("InputItem"), most=20)}, {}),
    "CompactResource": held(
        {
            "id": STRING,
            "object": constant("response.compaction"),
            "created_at": INTEGER,
            "output": array(ref("Item")),
            "usage": USAGE,
        }
    ),
    "CompactResponseBody": request(*COMPACTED),
    "Conversation": held(
        {"id": STRING, "object": constant("conversation"), "created_at": INTEGER, "metadata": METADATA}
    ),
    "CountTokensBody": request(*COUNTED, model=False),
    "CreateConversationBody": closed({}, {"items": array(ref("InputItem"), most=20), "metadata": METADATA}),
    "CreateResponseBody": request(*CREATE),
    "Deleted": either(deleted("response"), deleted("conversation.deleted")),
    "Document": held({"openapi": STRING, "paths": OBJECT}),
    "Empty": OBJECT,
    "Error": held({"error": held(ERROR)}),
    "InputItem": either(
        held({"role": enum("user", "assistant", "system", "developer"), "content": either(STRING, array(ref("Part")))}),
        held({"type": STRING}),
        held({"id": STRING}),
    ),
    "InputTokens": held({"object": constant("response.input_tokens"), "input_tokens": COUNT}),
    "Item": held({"type": STRING}, {"id": STRING}),
    "ItemList": listed(ref("Item")),
    "Model": held({"id": STRING, "object": constant("model"), "created": INTEGER, "owned_by": STRING}),
    "ModelList": held({"object": constant("list"), "data": array(ref("Model"))}),
    "Part": held({"type": STRING}),
    "ResponseResource": RESPONSE,
    "Status": held({"status": STRING}),
    "Tool": held({"type": STRING}),
    "UpdateConversationBody": closed({"metadata": or_null(METADATA)}, {}),
    "WebSocketCreate": {
        "description": "The body of a request beside a type; `stream_id` names a lane.",
        **closed(
            {"type": constant("response.create"), "model": NAME},
            {**CREATE, "generate": BOOLEAN, "stream_id": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,256}$"}},
        ),
    },
    "WebSocketError": held(
        {"type": constant("error"), "status": INTEGER, "error": held({**ERROR, "code": STRING})},
        {"stream_id": STRING},
    ),
}
"""Every schema that a route names, and what those are made of."""
