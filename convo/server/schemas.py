"""JSON Schemas of request bodies and responses, for the OpenAPI document.

Request schemas are closed: unknown fields are refused. In a request null means "not given".
Response schemas are open.
"""

from collections.abc import Collection, Mapping

from convo.history.records import LINK_STATUSES
from convo.models.request_fields import (
    ADDED_ITEMS_SCHEMA,
    BOOLEAN_SCHEMA,
    COMPACT_FIELDS,
    COUNT_FIELDS,
    IF_GIVEN,
    INTEGER_SCHEMA,
    ITEM_SCHEMAS,
    MESSAGE_SCHEMA,
    METADATA_SCHEMA,
    NAME_SCHEMA,
    OBJECT_SCHEMA,
    PART_SCHEMA,
    REFERENCE_SCHEMA,
    REPEATED_FIELDS,
    REQUEST_FIELDS,
    STRING_SCHEMA,
    TOOL_SCHEMAS,
    Schema,
    array_schema,
    enum_schema,
    object_schema,
)

COUNT_SCHEMA: Schema = {"type": "integer", "minimum": 0}


def schema_ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def integer_schema(minimum: int, maximum: int | None = None) -> Schema:
    return {"type": "integer", "minimum": minimum, **({} if maximum is None else {"maximum": maximum})}


def any_of_schema(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def nullable_schema(schema: Schema) -> Schema:
    return any_of_schema(schema, {"type": "null"})


def const_schema(value: str | bool) -> Schema:
    return {"const": value}


def closed_object_schema(required: Mapping[str, Schema], optional: Mapping[str, Schema]) -> Schema:
    """Build the schema of an object without other fields."""
    return {**object_schema(required, optional), "additionalProperties": False}


DIGEST_SCHEMA: Schema = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}


def request_body_schema(names: Collection[str], *required: str) -> Schema:
    """Build the schema of a request body with these fields."""
    fields = {name: field.schema for name, field in REQUEST_FIELDS.items() if name in names}
    return closed_object_schema({name: fields.pop(name) for name in required}, fields)


CREATE_SCHEMA = request_body_schema(REQUEST_FIELDS, "model")


def typed_schema(*others: Schema, known: Mapping[str, Schema]) -> Schema:
    """Build the schema of an object whose `type` selects a schema; of an unknown type only the type is checked."""
    unknown = object_schema({"type": {"type": "string", "not": {"enum": list(known)}}})
    return any_of_schema(*others, *known.values(), unknown)


def passed_body_schema() -> Schema:
    """Build the schema of a body that is passed through: its other fields are the provider's to validate."""
    description = "The body of the provider's own API; only the model's name is replaced by the provider's own."
    return {**object_schema({"model": NAME_SCHEMA}), "description": description}


def deletion_schema(kind: str) -> Schema:
    return object_schema({"id": STRING_SCHEMA, "object": const_schema(kind), "deleted": const_schema(True)})


def list_schema(item_schema: Schema) -> Schema:
    page_properties = {
        "first_id": nullable_schema(STRING_SCHEMA),
        "last_id": nullable_schema(STRING_SCHEMA),
        "has_more": BOOLEAN_SCHEMA,
    }
    return object_schema({"object": const_schema("list"), "data": array_schema(item_schema), **page_properties})


FILE_PURPOSE_SCHEMA = enum_schema("assistants", "batch", "fine-tune", "vision", "user_data", "evals")

FILE_SCHEMA = object_schema(
    {
        "id": STRING_SCHEMA,
        "object": const_schema("file"),
        "bytes": COUNT_SCHEMA,
        "created_at": INTEGER_SCHEMA,
        "filename": STRING_SCHEMA,
        "purpose": FILE_PURPOSE_SCHEMA,
        "status": const_schema("processed"),
    },
    {"expires_at": INTEGER_SCHEMA, "status_details": STRING_SCHEMA},
)

USAGE_SCHEMA = object_schema(
    {
        "input_tokens": COUNT_SCHEMA,
        "output_tokens": COUNT_SCHEMA,
        "total_tokens": COUNT_SCHEMA,
        "input_tokens_details": object_schema({"cached_tokens": COUNT_SCHEMA, "cache_write_tokens": COUNT_SCHEMA}),
        "output_tokens_details": object_schema({"reasoning_tokens": COUNT_SCHEMA}),
    }
)

REPEATED_SCHEMAS = {name: REQUEST_FIELDS[name].schema for name in REPEATED_FIELDS}

RESPONSE_SCHEMA = object_schema(
    {
        "id": STRING_SCHEMA,
        "object": const_schema("response"),
        "created_at": INTEGER_SCHEMA,
        "completed_at": nullable_schema(INTEGER_SCHEMA),
        "status": enum_schema(*LINK_STATUSES),
        "incomplete_details": nullable_schema(object_schema({"reason": STRING_SCHEMA})),
        "model": STRING_SCHEMA,
        "previous_response_id": nullable_schema(STRING_SCHEMA),
        "conversation": nullable_schema(object_schema({"id": STRING_SCHEMA})),
        "output": array_schema(schema_ref("Item")),
        "error": nullable_schema(object_schema({"code": STRING_SCHEMA, "message": STRING_SCHEMA})),
        "tools": array_schema(OBJECT_SCHEMA),
        "text": object_schema({"format": object_schema({"type": STRING_SCHEMA})}),
        "reasoning": OBJECT_SCHEMA,
        "usage": nullable_schema(USAGE_SCHEMA),
        "store": BOOLEAN_SCHEMA,
        "background": BOOLEAN_SCHEMA,
        "service_tier": STRING_SCHEMA,
        **{
            name: nullable_schema(schema) if REPEATED_FIELDS[name] is None else schema
            for name, schema in REPEATED_SCHEMAS.items()
            if REPEATED_FIELDS[name] is not IF_GIVEN
        },
    },
    {name: schema for name, schema in REPEATED_SCHEMAS.items() if REPEATED_FIELDS[name] is IF_GIVEN},
)

CAPABILITIES_SCHEMA: Schema = {
    **object_schema(
        {
            "context_window": nullable_schema(INTEGER_SCHEMA),
            "max_output_tokens": nullable_schema(INTEGER_SCHEMA),
            "input_modalities": nullable_schema(array_schema(enum_schema("text", "image", "file"))),
            "tools": nullable_schema(BOOLEAN_SCHEMA),
            "reasoning": nullable_schema(BOOLEAN_SCHEMA),
            "price": nullable_schema(
                {
                    **object_schema(
                        {
                            "input": {"type": "number"},
                            "cached_input": {"type": "number"},
                            "cache_write": nullable_schema({"type": "number"}),
                            "output": {"type": "number"},
                            "max_input_tokens": nullable_schema(INTEGER_SCHEMA),
                            "source": STRING_SCHEMA,
                        }
                    ),
                    "description": "The USD per million tokens, for calls of up to `max_input_tokens`.",
                }
            ),
            "endpoints": array_schema(STRING_SCHEMA),
            "state": enum_schema("convo", "none"),
        },
        {"steering": BOOLEAN_SCHEMA},
    ),
    "description": "The abilities of the model as far as they are known; null is unknown. The context window has input "
    "and output together, in tokens. `endpoints` are the paths that accept the model, `state` is the owner of stored "
    "responses. `steering` tells whether a response over a WebSocket accepts `response.steer`.",
}

ERROR_PROPERTIES = {
    "message": STRING_SCHEMA,
    "type": STRING_SCHEMA,
    "param": nullable_schema(STRING_SCHEMA),
    "code": nullable_schema(STRING_SCHEMA),
}

NAMED_SCHEMAS: Mapping[str, Schema] = {
    "AddItemsBody": closed_object_schema({"items": ADDED_ITEMS_SCHEMA}, {}),
    "AnthropicError": object_schema(
        {"type": const_schema("error"), "error": object_schema({"type": STRING_SCHEMA, "message": STRING_SCHEMA})},
        {"request_id": STRING_SCHEMA},
    ),
    "ChatCompletionBody": passed_body_schema(),
    "CompactResource": object_schema(
        {
            "id": STRING_SCHEMA,
            "object": const_schema("response.compaction"),
            "created_at": INTEGER_SCHEMA,
            "output": array_schema(schema_ref("Item")),
            "usage": USAGE_SCHEMA,
        }
    ),
    "CompactResponseBody": request_body_schema(COMPACT_FIELDS, "model"),
    "Conversation": object_schema(
        {
            "id": STRING_SCHEMA,
            "object": const_schema("conversation"),
            "created_at": INTEGER_SCHEMA,
            "metadata": METADATA_SCHEMA,
        }
    ),
    "CountTokensBody": request_body_schema(COUNT_FIELDS),
    "CreateConversationBody": closed_object_schema({}, {"items": ADDED_ITEMS_SCHEMA, "metadata": METADATA_SCHEMA}),
    "CreateResponseBody": CREATE_SCHEMA,
    "Deleted": any_of_schema(
        deletion_schema("response"), deletion_schema("conversation.deleted"), deletion_schema("file")
    ),
    "Document": object_schema({"openapi": STRING_SCHEMA, "paths": OBJECT_SCHEMA}),
    "CreateFileForm": closed_object_schema(
        {"file": {"type": "string", "format": "binary"}, "purpose": FILE_PURPOSE_SCHEMA},
        {
            "expires_after[anchor]": const_schema("created_at"),
            "expires_after[seconds]": integer_schema(3600, 2_592_000),
        },
    ),
    "EmbeddingsBody": passed_body_schema(),
    "Empty": OBJECT_SCHEMA,
    "Error": object_schema({"error": object_schema(ERROR_PROPERTIES)}),
    "File": FILE_SCHEMA,
    "FileList": list_schema(schema_ref("File")),
    "InputItem": typed_schema(MESSAGE_SCHEMA, REFERENCE_SCHEMA, known=ITEM_SCHEMAS),
    "InputTokens": object_schema({"object": const_schema("response.input_tokens"), "input_tokens": COUNT_SCHEMA}),
    "Item": object_schema({"type": STRING_SCHEMA}, {"id": STRING_SCHEMA}),
    "ItemList": list_schema(schema_ref("Item")),
    "MarkdownBody": closed_object_schema({}, {"texts": array_schema(STRING_SCHEMA, 20)}),
    "MessagesBody": passed_body_schema(),
    "Model": object_schema(
        {
            "id": STRING_SCHEMA,
            "object": const_schema("model"),
            "created": INTEGER_SCHEMA,
            "owned_by": STRING_SCHEMA,
            "capabilities": CAPABILITIES_SCHEMA,
        },
        {"shutdown_date": STRING_SCHEMA},
    ),
    "ModelList": object_schema({"object": const_schema("list"), "data": array_schema(schema_ref("Model"))}),
    "Approval": object_schema(
        {
            **dict.fromkeys(("run_id", "session", "call_id", "agent", "tool_name", "arguments"), STRING_SCHEMA),
            **dict.fromkeys(("arguments_digest", "call_digest"), DIGEST_SCHEMA),
            **dict.fromkeys(("outcome_unknown", "is_hosted", "can_decide"), BOOLEAN_SCHEMA),
        },
        {"hint": STRING_SCHEMA, "csrf_token": STRING_SCHEMA},
    ),
    "Decision": object_schema(
        {
            **dict.fromkeys(("run", "call_id", "agent", "tool_name", "arguments", "source"), STRING_SCHEMA),
            "arguments_digest": DIGEST_SCHEMA,
            "decision": enum_schema("approve", "reject"),
            **dict.fromkeys(("always", "arguments_truncated"), BOOLEAN_SCHEMA),
            "decided_at": {"type": "number"},
        },
        {"reason": STRING_SCHEMA, "decided_by": STRING_SCHEMA},
    ),
    "DecisionBody": closed_object_schema(
        {
            **dict.fromkeys(("run_id", "call_id", "csrf_token"), STRING_SCHEMA),
            "decision": enum_schema("approve", "reject"),
            "arguments_digest": DIGEST_SCHEMA,
        },
        {"call_digest": DIGEST_SCHEMA, "always": BOOLEAN_SCHEMA, "reason": {"type": "string", "maxLength": 10_000}},
    ),
    "DecisionList": object_schema({"decisions": array_schema(schema_ref("Decision"))}),
    "DecisionResult": object_schema(
        {"decisions": array_schema(schema_ref("Decision")), "pending": COUNT_SCHEMA, "resume": STRING_SCHEMA},
        {"open_in": STRING_SCHEMA},
    ),
    "PageData": {
        "type": "object",
        "description": "The data of the inspector page, which are private: another version may have other members.",
    },
    "Part": PART_SCHEMA,
    "ProviderResponse": {"type": "object", "description": "The provider's response, unchanged."},
    "ResponseResource": RESPONSE_SCHEMA,
    "Status": object_schema({"status": STRING_SCHEMA}),
    "Tool": typed_schema(known=TOOL_SCHEMAS),
    "UpdateConversationBody": closed_object_schema({"metadata": nullable_schema(METADATA_SCHEMA)}, {}),
    "WebSocketCreate": {
        **CREATE_SCHEMA,
        "description": "A request body with a `type`; `stream_id` selects one of the chains of the connection.",
        "required": ["type", "model"],
        "properties": {
            "type": const_schema("response.create"),
            **CREATE_SCHEMA["properties"],
            "generate": BOOLEAN_SCHEMA,
            "stream_id": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,256}$"},
        },
    },
    "WebSocketError": object_schema(
        {
            "type": const_schema("error"),
            "status": INTEGER_SCHEMA,
            "error": object_schema({**ERROR_PROPERTIES, "code": STRING_SCHEMA}),
        },
        {"stream_id": STRING_SCHEMA},
    ),
    "WebSocketSteer": {
        "description": "Additional input of the user for a response that runs on the connection. A new response with "
        "the same settings continues it.",
        **closed_object_schema(
            {
                "type": const_schema("response.steer"),
                "previous_response_id": NAME_SCHEMA,
                "input": any_of_schema(
                    NAME_SCHEMA,
                    {
                        **array_schema(
                            closed_object_schema(
                                {
                                    "role": const_schema("user"),
                                    "content": any_of_schema(STRING_SCHEMA, array_schema(schema_ref("Part"))),
                                },
                                {"type": const_schema("message")},
                            )
                        ),
                        "minItems": 1,
                    },
                ),
            },
            {},
        ),
    },
    "WebSocketSteerEvent": {
        "description": "The input is queued, waits for `required_input` of the client, or is returned with an error.",
        **object_schema(
            {
                "type": enum_schema("response.steer.accepted", "response.steer.pending", "response.steer.failed"),
                "sequence_number": COUNT_SCHEMA,
                "steer": object_schema({}, {"id": STRING_SCHEMA, "previous_response_id": STRING_SCHEMA}),
            },
            {
                "stream_id": STRING_SCHEMA,
                "reason": STRING_SCHEMA,
                "required_input": array_schema(schema_ref("Item")),
                "error": object_schema(dict.fromkeys(("type", "code", "message"), STRING_SCHEMA)),
            },
        ),
    },
}


def document_schema(schema: Schema) -> Schema:
    """Return a schema in the form of the document, which mentions null for each member that is not required."""
    documented = dict(schema)
    if "anyOf" in schema:
        documented["anyOf"] = [document_schema(branch) for branch in schema["anyOf"]]
    if "items" in schema:
        documented["items"] = document_schema(schema["items"])
    if "properties" in schema:
        documented["properties"] = {
            name: document_schema(member)
            if name in schema.get("required", ())
            else nullable_schema(document_schema(member))
            for name, member in schema["properties"].items()
        }
    return documented


SCHEMAS = {name: document_schema(schema) for name, schema in NAMED_SCHEMAS.items()}
"""Every schema that a route names, and the schemas that those use."""
