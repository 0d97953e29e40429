"""JSON Schemas of request bodies and responses, for the OpenAPI document.

Request schemas are closed: unknown fields are refused. In a request null means "not given".
Response schemas are open.
"""

from collections.abc import Collection, Mapping

from convo.history.accumulator import STREAMED_TEXT_DIFFERS
from convo.history.records import LINK_STATUSES, Strategy
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
)

COUNT_SCHEMA: Schema = {"type": "integer", "minimum": 0}
NUMBER_SCHEMA: Schema = {"type": "number"}


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


def object_schema(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Build the schema of an object with these fields, and possibly others."""
    optional_properties = {name: nullable_schema(schema) for name, schema in (optional or {}).items()}
    return {"type": "object", "required": list(required), "properties": {**required, **optional_properties}}


def closed_object_schema(required: Mapping[str, Schema], optional: Mapping[str, Schema]) -> Schema:
    """Build the schema of an object without other fields."""
    return {**object_schema(required, optional), "additionalProperties": False}


DIGEST_SCHEMA: Schema = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}


def request_schema(schema: Schema) -> Schema:
    """Return a schema of `convo.models.request_fields` in the form of the document, which mentions null."""
    documented = dict(schema)
    if "anyOf" in schema:
        documented["anyOf"] = [request_schema(branch) for branch in schema["anyOf"]]
    if "items" in schema:
        documented["items"] = request_schema(schema["items"])
    if "properties" in schema:
        documented["properties"] = {
            name: request_schema(member)
            if name in schema.get("required", ())
            else nullable_schema(request_schema(member))
            for name, member in schema["properties"].items()
        }
    return documented


def request_body_schema(names: Collection[str], *required: str) -> Schema:
    """Build the schema of a request body with these fields."""
    return request_schema(
        {
            "type": "object",
            "required": list(required),
            "properties": {name: field.schema for name, field in REQUEST_FIELDS.items() if name in names},
            "additionalProperties": False,
        }
    )


CREATE_SCHEMA = request_body_schema(REQUEST_FIELDS, "model")


def typed_schema(*others: Schema, known: Mapping[str, Schema]) -> Schema:
    """Build the schema of an object whose `type` selects a schema; of an unknown type only the type is checked."""
    unknown = object_schema({"type": {"type": "string", "not": {"enum": list(known)}}})
    return any_of_schema(*map(request_schema, (*others, *known.values())), unknown)


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

REPEATED_SCHEMAS = {name: request_schema(REQUEST_FIELDS[name].schema) for name in REPEATED_FIELDS}

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

# -- the data of the inspector page ------------------------------------------------------------------


def nullable_properties(schema: Schema, *names: str) -> dict[str, Schema]:
    """Build the schemas of fields that are always present, and null if they are unknown."""
    return dict.fromkeys(names, nullable_schema(schema))


TOKEN_COUNTS = ("input_tokens", "cached_tokens", "output_tokens")
STRATEGY_SCHEMA = enum_schema(*map(str, Strategy))

PATH_KEYS_SCHEMA: Schema = {
    **any_of_schema(array_schema(STRING_SCHEMA), object_schema({"through": STRING_SCHEMA})),
    "description": "The keys of items in order; `through` is the last key of a long path, which `parents` has.",
}

CHART_FIGURES = {
    **dict.fromkeys(("requests", "errors", *TOKEN_COUNTS), COUNT_SCHEMA),
    **nullable_properties(NUMBER_SCHEMA, "cache_hit_rate"),
}

COST_FIGURES = {
    **dict.fromkeys(("requests", "unpriced"), COUNT_SCHEMA),
    **nullable_properties(NUMBER_SCHEMA, "cost_usd"),
}

COST_GROUPS_SCHEMA = object_schema(
    {
        "top": array_schema(object_schema({**nullable_properties(STRING_SCHEMA, "name"), **COST_FIGURES})),
        "other": nullable_schema(object_schema({"groups": COUNT_SCHEMA, **COST_FIGURES})),
    }
)

LISTED_CONVERSATION_FIELDS = {
    **dict.fromkeys(("id", "name", "first_words"), STRING_SCHEMA),
    "strategy": STRATEGY_SCHEMA,
    "used_at": NUMBER_SCHEMA,
}

USAGE_TOTALS_SCHEMA = object_schema(
    {
        **dict.fromkeys(
            ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "resent_tokens"),
            COUNT_SCHEMA,
        ),
        **COST_FIGURES,
        **nullable_properties(NUMBER_SCHEMA, "known_cost_usd"),
    }
)

INSPECTED_LINK_SCHEMA = object_schema(
    {
        "response_id": STRING_SCHEMA,
        "model": STRING_SCHEMA,
        "status": enum_schema(*LINK_STATUSES),
        "strategy": STRATEGY_SCHEMA,
        "created_at": NUMBER_SCHEMA,
        "sent": PATH_KEYS_SCHEMA,
        "saw": PATH_KEYS_SCHEMA,
        "output": array_schema(STRING_SCHEMA),
        **nullable_properties(
            STRING_SCHEMA, "previous_response_id", "conversation_id", "provider", "parent", "session", "client"
        ),
        **nullable_properties(OBJECT_SCHEMA, "usage", "error"),
        **nullable_properties(NUMBER_SCHEMA, "cost_usd", "seconds"),
        "children": nullable_schema(array_schema(STRING_SCHEMA)),
        "ignored": array_schema(STRING_SCHEMA),
        "reported": OBJECT_SCHEMA,
        **dict.fromkeys(("items_sent", "items_saw", "sent_tokens", "request", "depth"), COUNT_SCHEMA),
        **dict.fromkeys(("full", "begins"), BOOLEAN_SCHEMA),
        **dict.fromkeys(("said", "answered"), STRING_SCHEMA),
    },
    {
        "resent_tokens": COUNT_SCHEMA,
        "first_token_s": NUMBER_SCHEMA,
        "recording": OBJECT_SCHEMA,
        "limit": {},
        STREAMED_TEXT_DIFFERS: const_schema(True),
    },
)

CONVERSATION_TOTALS = dict.fromkeys(("total", "other_requests"), USAGE_TOTALS_SCHEMA)

INSPECTED_CONVERSATION_FIELDS = {
    **dict.fromkeys(("handle", "head", "version", "name", "owner"), STRING_SCHEMA),
    "strategy": STRATEGY_SCHEMA,
    **nullable_properties(STRING_SCHEMA, "endpoint", "model", "at"),
    "is_session": BOOLEAN_SCHEMA,
    "owners": OBJECT_SCHEMA,
    "items": OBJECT_SCHEMA,
    "parents": OBJECT_SCHEMA,
    "path": PATH_KEYS_SCHEMA,
    "items_at_head": COUNT_SCHEMA,
    **dict.fromkeys(("unacknowledged", "notes", "rows"), array_schema(STRING_SCHEMA)),
    "links": array_schema(INSPECTED_LINK_SCHEMA),
    "requests": array_schema(OBJECT_SCHEMA),
    "run": nullable_schema(
        object_schema(
            {
                "id": STRING_SCHEMA,
                "is_paused": BOOLEAN_SCHEMA,
                **nullable_properties(STRING_SCHEMA, "process"),
                "pending": array_schema(schema_ref("PendingCall")),
            }
        )
    ),
}

INSPECTOR_SCHEMAS: Mapping[str, Schema] = {
    "AgentRunList": object_schema(
        {
            "data": array_schema(
                object_schema(
                    {
                        **dict.fromkeys(("id", "status"), STRING_SCHEMA),
                        **dict.fromkeys(("created_at", "changed_at"), NUMBER_SCHEMA),
                        **nullable_properties(INTEGER_SCHEMA, "turn"),
                        **nullable_properties(STRING_SCHEMA, "agent", "failure"),
                        "agents": array_schema(
                            object_schema({"name": STRING_SCHEMA, "tools": array_schema(STRING_SCHEMA)})
                        ),
                        "open_guardrails": array_schema(nullable_schema(STRING_SCHEMA)),
                        "timeline": array_schema(
                            object_schema(
                                {
                                    "kind": STRING_SCHEMA,
                                    "started_at": NUMBER_SCHEMA,
                                    **nullable_properties(NUMBER_SCHEMA, "duration_s"),
                                    **nullable_properties(
                                        STRING_SCHEMA, "agent", "name", "side", "outcome", "reason", "target"
                                    ),
                                }
                            )
                        ),
                        "timeline_omitted": COUNT_SCHEMA,
                        "calls": array_schema(
                            object_schema(
                                {
                                    "call_id": STRING_SCHEMA,
                                    **nullable_properties(COUNT_SCHEMA, "turn"),
                                    **nullable_properties(STRING_SCHEMA, "name", "arguments", "output"),
                                    **nullable_properties(NUMBER_SCHEMA, "started_at"),
                                    "has_ended": BOOLEAN_SCHEMA,
                                }
                            ),
                            500,
                        ),
                    }
                ),
                20,
            )
        }
    ),
    "Charts": object_schema(
        {
            **nullable_properties(INTEGER_SCHEMA, "bucket_s"),
            "buckets": array_schema(
                object_schema(
                    {
                        "start": NUMBER_SCHEMA,
                        **CHART_FIGURES,
                        **nullable_properties(NUMBER_SCHEMA, "latency_p50_s", "latency_p95_s"),
                    }
                ),
                60,
            ),
            "total": object_schema({**CHART_FIGURES, **COST_FIGURES}),
            "models": COST_GROUPS_SCHEMA,
            "sessions": COST_GROUPS_SCHEMA,
            "damaged": COUNT_SCHEMA,
            "is_search_limited": BOOLEAN_SCHEMA,
        }
    ),
    "CompactionPreview": object_schema(
        {
            "method": STRING_SCHEMA,
            **dict.fromkeys(
                (
                    *("items_before", "items_replaced", "items_kept"),
                    *("tokens_before", "tokens_replaced", "tokens_after_without_summary"),
                ),
                COUNT_SCHEMA,
            ),
            "is_estimate": BOOLEAN_SCHEMA,
            "replaced": array_schema(
                object_schema({"type": STRING_SCHEMA, "tokens": COUNT_SCHEMA, "preview": STRING_SCHEMA}), 200
            ),
        }
    ),
    "InspectedConversation": any_of_schema(
        object_schema(
            {**INSPECTED_CONVERSATION_FIELDS, "running": array_schema(schema_ref("RunningResponse"))},
            CONVERSATION_TOTALS,
        ),
        {
            **object_schema({"version": STRING_SCHEMA, "running": array_schema(schema_ref("RunningResponse"))}),
            "maxProperties": 2,
            "description": "Only the responses in progress: the conversation has the version `seen`.",
        },
    ),
    "InspectedRequest": object_schema(
        {
            **INSPECTED_CONVERSATION_FIELDS,
            "continued": array_schema(STRING_SCHEMA, 20),
            "sent": nullable_schema(
                object_schema(
                    {
                        **dict.fromkeys(("protocol", "path"), STRING_SCHEMA),
                        **dict.fromkeys(("headers", "body"), OBJECT_SCHEMA),
                    }
                )
            ),
        },
        CONVERSATION_TOTALS,
    ),
    "MarkdownBody": closed_object_schema({}, {"texts": array_schema(STRING_SCHEMA, 20)}),
    "MarkdownNode": any_of_schema(
        STRING_SCHEMA,
        object_schema(
            {"tag": STRING_SCHEMA, "children": array_schema(schema_ref("MarkdownNode"))},
            {"href": STRING_SCHEMA, "start": INTEGER_SCHEMA},
        ),
    ),
    "MarkdownResult": object_schema(
        {
            "data": array_schema(
                object_schema(
                    {
                        "nodes": nullable_schema(array_schema(schema_ref("MarkdownNode"))),
                        "note": STRING_SCHEMA,
                    }
                ),
                20,
            )
        }
    ),
    "PendingCall": object_schema(
        {
            **dict.fromkeys(("call_id", "arguments"), STRING_SCHEMA),
            **nullable_properties(STRING_SCHEMA, "name"),
        }
    ),
    "RequestList": object_schema(
        {
            "data": array_schema(schema_ref("RequestRow"), 200),
            "running": array_schema(schema_ref("RequestRow")),
            **nullable_properties(STRING_SCHEMA, "next"),
            "paused": array_schema(
                object_schema(
                    {
                        **dict.fromkeys(("run_id", "session"), STRING_SCHEMA),
                        "pending": array_schema(schema_ref("PendingCall")),
                    }
                )
            ),
            **dict.fromkeys(("models", "sessions", "tools"), array_schema(STRING_SCHEMA)),
            **dict.fromkeys(("is_search_limited", "is_recording"), BOOLEAN_SCHEMA),
        },
        {"continued": array_schema(STRING_SCHEMA)},
    ),
    "RequestRow": object_schema(
        {
            **dict.fromkeys(("id", "title"), STRING_SCHEMA),
            "status": enum_schema(*LINK_STATUSES),
            **nullable_properties(STRING_SCHEMA, "parent", "model", "session", "client"),
            **nullable_properties(NUMBER_SCHEMA, "created_at", "latency_s", "cost_usd"),
            **nullable_properties(COUNT_SCHEMA, *TOKEN_COUNTS),
        },
        {"text": STRING_SCHEMA, "previous_response_id": STRING_SCHEMA},
    ),
    "RunningResponse": object_schema(
        {
            **dict.fromkeys(("response_id", "status", "text"), STRING_SCHEMA),
            **nullable_properties(STRING_SCHEMA, "previous_response_id", "model"),
        }
    ),
    "SessionList": object_schema(
        {
            "sessions": array_schema(
                object_schema(
                    {
                        **LISTED_CONVERSATION_FIELDS,
                        **dict.fromkeys(("endpoint", "head", "mark"), STRING_SCHEMA),
                        **nullable_properties(STRING_SCHEMA, "handle", "model", "response_id", "instructions"),
                        **dict.fromkeys(("items", "unacknowledged", "turns"), COUNT_SCHEMA),
                        "created_at": NUMBER_SCHEMA,
                    }
                )
            ),
            "others": array_schema(object_schema({**LISTED_CONVERSATION_FIELDS, "status": STRING_SCHEMA})),
            "more": BOOLEAN_SCHEMA,
            "running": array_schema(schema_ref("RunningResponse")),
        }
    ),
}
"""The schemas of the calls of the inspector page, except approvals and comparisons."""

SCHEMAS: Mapping[str, Schema] = {
    **INSPECTOR_SCHEMAS,
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
    "ComparedBranch": object_schema(
        {
            "handle": STRING_SCHEMA,
            "name": STRING_SCHEMA,
            **dict.fromkeys(("items", "requests", "own_requests"), COUNT_SCHEMA),
        },
        {
            "head": STRING_SCHEMA,
            "model": STRING_SCHEMA,
            "own_usage": object_schema(dict.fromkeys(("input_tokens", "cached_tokens", "output_tokens"), COUNT_SCHEMA)),
            "own_cost_usd": {"type": "number"},
            "own_known_cost_usd": {"type": "number"},
            "own_unpriced": COUNT_SCHEMA,
            "is_partial": BOOLEAN_SCHEMA,
        },
    ),
    "Comparison": object_schema(
        {
            "a": schema_ref("ComparedBranch"),
            "b": schema_ref("ComparedBranch"),
            "same": COUNT_SCHEMA,
            "rest": array_schema(
                object_schema(
                    {"mark": enum_schema("same", "changed", "only a", "only b")}, {"a": COUNT_SCHEMA, "b": COUNT_SCHEMA}
                ),
                200,
            ),
            "omitted": COUNT_SCHEMA,
            "items": object_schema({"a": OBJECT_SCHEMA, "b": OBJECT_SCHEMA}),
            "tokens": object_schema({**dict.fromkeys(("same", "a", "b"), COUNT_SCHEMA), "estimated": BOOLEAN_SCHEMA}),
        },
        {
            "first": object_schema(
                {"at": COUNT_SCHEMA}, {"path": STRING_SCHEMA, "a": OBJECT_SCHEMA, "b": OBJECT_SCHEMA}
            ),
            "request": object_schema(
                {
                    "requests": array_schema(STRING_SCHEMA, 2),
                    "a": STRING_SCHEMA,
                    "b": STRING_SCHEMA,
                    "bytes": array_schema(COUNT_SCHEMA, 2),
                    "prefix_tokens": COUNT_SCHEMA,
                    "estimated": BOOLEAN_SCHEMA,
                    "expected_cached_tokens": COUNT_SCHEMA,
                },
                {
                    "byte": COUNT_SCHEMA,
                    "path": STRING_SCHEMA,
                    "reported_cached_tokens": COUNT_SCHEMA,
                    "reported_input_tokens": COUNT_SCHEMA,
                    "missed_cost_usd": {"type": "number"},
                },
            ),
        },
    ),
    "Part": request_schema(PART_SCHEMA),
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
            "generate": nullable_schema(BOOLEAN_SCHEMA),
            "stream_id": nullable_schema({"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,256}$"}),
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
"""Every schema that a route names, and the schemas that those use."""
