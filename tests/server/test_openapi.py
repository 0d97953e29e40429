"""The OpenAPI document describes the server's routes, fields and errors."""

import json
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from convo import __version__
from convo.errors import ConvoError
from convo.history.items import Json
from convo.models.request_fields import REQUEST_FIELDS, Schema
from convo.responses_api import validation
from convo.server.inspector import DOCUMENTED_ROUTES
from convo.server.routes import API_ROUTES, load_openapi_document
from convo.server.schemas import SCHEMAS
from tests.server.gateway import RunningGateway

ROUTES = (*API_ROUTES, *DOCUMENTED_ROUTES)
DOCUMENT: dict[str, Any] = json.loads(json.dumps(load_openapi_document()))


def fits(schema: Schema, value: Json) -> bool:
    root_schema = {**schema, "components": {"schemas": SCHEMAS}}
    return bool(OAS31Validator(root_schema).is_valid(value))


def is_accepted(name: str, value: Json, schema: Schema) -> bool:
    try:
        validation.validate_value(name, value, schema)
    except ConvoError:
        return False
    return True


def test_the_document_is_valid_openapi() -> None:
    validate(DOCUMENT)


def test_the_document_is_served_without_a_key(shared_gateway: RunningGateway) -> None:
    assert shared_gateway.http.get("/openapi.json").json() == DOCUMENT


def test_every_route_is_documented_with_both_kinds_of_refusal() -> None:
    described_routes = {
        (method.upper(), path)
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
        if not method.startswith("x-")
    }
    assert described_routes == {(route.method, route.path.replace("{model:path}", "{model}")) for route in ROUTES}
    for route in ROUTES:
        path = DOCUMENT["paths"][route.path.replace("{model:path}", "{model}")]
        assert {"200", "4XX", "5XX"} == set(path[route.method.lower()]["responses"])


def test_an_operation_id_is_unique() -> None:
    names = [
        operation["operationId"]
        for operations in DOCUMENT["paths"].values()
        for method, operation in operations.items()
        if not method.startswith("x-")
    ]
    assert len(set(names)) == len(names) == len(ROUTES)


def test_operation_ids_are_stable() -> None:
    """Generated clients depend on them."""
    operation_ids = {
        (method, path): (operation["operationId"], operation["tags"])
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        if not method.startswith("x-")
    }
    assert operation_ids == {
        (method, path): (name, [name.split("_")[0]])
        for method, path, name in (
            ("post", "/v1/responses", "responses_create"),
            ("post", "/v1/responses/compact", "responses_compact"),
            ("post", "/v1/responses/input_tokens", "responses_count"),
            ("get", "/v1/responses/{response_id}", "responses_retrieve"),
            ("delete", "/v1/responses/{response_id}", "responses_delete"),
            ("post", "/v1/responses/{response_id}/cancel", "responses_cancel"),
            ("get", "/v1/responses/{response_id}/input_items", "responses_input_items"),
            ("post", "/v1/conversations", "conversations_create"),
            ("get", "/v1/conversations/{conversation_id}", "conversations_retrieve"),
            ("post", "/v1/conversations/{conversation_id}", "conversations_update"),
            ("delete", "/v1/conversations/{conversation_id}", "conversations_delete"),
            ("post", "/v1/conversations/{conversation_id}/items", "conversations_add_items"),
            ("get", "/v1/conversations/{conversation_id}/items", "conversations_items"),
            ("get", "/v1/conversations/{conversation_id}/items/{item_id}", "conversations_item"),
            ("delete", "/v1/conversations/{conversation_id}/items/{item_id}", "conversations_delete_item"),
            ("post", "/v1/chat/completions", "passthrough_chat_completions"),
            ("post", "/v1/embeddings", "passthrough_embeddings"),
            ("post", "/v1/messages", "passthrough_messages"),
            ("post", "/v1/messages/count_tokens", "passthrough_count_tokens"),
            ("post", "/v1/files", "files_create"),
            ("get", "/v1/files", "files_list"),
            ("get", "/v1/files/{file_id}", "files_retrieve"),
            ("delete", "/v1/files/{file_id}", "files_delete"),
            ("get", "/v1/files/{file_id}/content", "files_content"),
            ("get", "/v1/models", "standing_models"),
            ("get", "/v1/models/{model}", "standing_model"),
            ("get", "/inspect/api/approvals", "approvals_retrieve"),
            ("post", "/inspect/api/approvals", "approvals_decide"),
            ("get", "/inspect/api/decisions", "approvals_decisions"),
            ("get", "/inspect/api/compare", "comparisons_retrieve"),
            ("get", "/inspect/api/list", "inspector_list"),
            ("get", "/inspect/api/requests", "inspector_requests"),
            ("get", "/inspect/api/requests/{id}", "inspector_request"),
            ("get", "/inspect/api/requests/{id}/code", "inspector_code"),
            ("get", "/inspect/api/charts", "inspector_charts"),
            ("get", "/inspect/api/changes", "inspector_changes"),
            ("get", "/inspect/api/conversations/{handle}", "inspector_conversation"),
            ("get", "/inspect/api/conversations/{handle}/export", "inspector_export"),
            ("get", "/inspect/api/conversations/{handle}/compaction", "inspector_compaction"),
            ("get", "/inspect/api/conversations/{handle}/runs", "inspector_runs"),
            ("post", "/inspect/api/markdown", "inspector_markdown"),
            ("get", "/healthz", "standing_healthz"),
            ("get", "/readyz", "standing_readyz"),
            ("get", "/openapi.json", "routes_document"),
            ("get", "/metrics", "standing_metrics"),
        )
    }


def test_every_schema_is_used() -> None:
    text = json.dumps(DOCUMENT)
    assert [name for name in SCHEMAS if f'"#/components/schemas/{name}"' not in text] == []


VALUES: tuple[Json, ...] = (
    *(True, False, 0, 1, -1, 2, 3, 20, 21, 0.5, -2.5, 10**30, "", "x", "auto", "low", "in_memory", "24h", "flex"),
    *([], {}, [1], ["x"], [{}], [None], ["reasoning.encrypted_content"]),
    *({"id": "x"}, {"id": 1}, {"type": "x"}, {"type": 1}, {"type": None}, [{"type": "x"}], [{"type": 1}]),
    *({"include_obfuscation": False}, {"include_obfuscation": True}, {"foo": 1}),
    *({"format": {"type": "text"}}, {"format": {}}, {"format": None}, {"verbosity": "x"}, {"verbosity": "low"}),
    *([{"type": "compaction"} | more] for more in ({}, {"compact_threshold": 1}, {"compact_threshold": 0})),
    *({f"k{at}": "v" for at in range(16)}, {f"k{at}": "v" for at in range(17)}, {"k" * 65: "v"}, {"k": "v" * 513}),
)  # fmt: skip
"""Values of every kind, each valid for few fields. Null means "not given"; the next test covers it."""


FUNCTION, CALL = {"type": "function", "name": "f"}, {"type": "function_call", "call_id": "c", "name": "f"}

CONTENTS: tuple[Json, ...] = ("x", [], 7, [{"type": "input_text", "text": "x"}], [{}])

TOOLS_AND_ITEMS: tuple[Json, ...] = (
    *(FUNCTION, {**FUNCTION, "type": "custom"}, {**FUNCTION, "name": 7}, {**FUNCTION, "parameters": None}),
    *({**FUNCTION, "strict": "x"}, {"type": "function"}, {"type": "web_search", "name": 7}, {"type": "shell"}),
    *({"type": "namespace", "name": "n", "tools": [tool]} for tool in (FUNCTION, {"type": "shell", "name": "f"})),
    *({"type": "tool_search", "execution": at} for at in ("client", "here")),
    *({**CALL, "arguments": "{}"}, CALL, {**CALL, "arguments": {}}, {"type": "reasoning", "summary": []}),
    *({"role": "user", "content": content} for content in CONTENTS),
    *({"role": "king", "content": "x"}, {"role": "user"}, {"id": "msg_1"}, {"id": "x", "type": None}),
    *({"type": "unheard_of"}, {"type": "additional_tools", "tools": [{"type": "function"}]}),
)


@pytest.mark.parametrize("name", sorted(set(REQUEST_FIELDS) - {"model"}))
def test_a_field_accepts_exactly_the_documented_values(name: str) -> None:
    """A validator of JSON Schema reads the document as convo reads its own table."""
    schema = SCHEMAS["CreateResponseBody"]["properties"][name]
    values = (*VALUES, *([[one] for one in TOOLS_AND_ITEMS] if name in ("input", "tools") else ()))
    accepted_values = [value for value in values if is_accepted(name, value, REQUEST_FIELDS[name].schema)]
    assert accepted_values == [value for value in values if fits(schema, value)]


@pytest.mark.parametrize("name", sorted(set(REQUEST_FIELDS) - {"model", "input"}))
def test_null_means_that_a_field_is_absent(name: str) -> None:
    body = {"model": "m", "input": "hi"}
    assert fits(SCHEMAS["CreateResponseBody"], {**body, name: None})
    assert validation.parse_response_request({**body, name: None}) == validation.parse_response_request(body)


def test_the_texts_of_the_document() -> None:
    assert DOCUMENT["info"] == {
        "title": "convo",
        "version": __version__,
        "description": """The Responses and Conversations API for any model.

A request with a field that is not in this document is refused. An object of another key is not found.

A client that disconnects cancels its response, unless the request has `background: true`. A request above a rate limit
gets 429 `rate_limit_exceeded`, and `Retry-After` gives the seconds to wait.

Chat completions, embeddings and messages are passed through to the provider of the model: the request and the response
are those of the provider's API. They are stored only if the server records them.""",
    }
    assert [DOCUMENT[name] for name in ("openapi", "servers", "security")] == [
        "3.1.0",
        [{"url": "/"}],
        [{"key": []}, {}, {"api_key": []}],
    ]
    assert DOCUMENT["components"]["securitySchemes"] == {
        "key": {"type": "http", "scheme": "bearer"},
        "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    error, message_error = (
        {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        for name in ("Error", "AnthropicError")
    )
    assert DOCUMENT["components"]["responses"] == {
        "Refused": {"description": "The request is refused; the error gives the reason.", "content": error},
        "Failed": {"description": "The request failed; the error gives the reason.", "content": error},
        "MessageRefused": {
            "description": "The request is refused; the error gives the reason.",
            "content": message_error,
        },
        "MessageFailed": {"description": "The request failed; the error gives the reason.", "content": message_error},
    }
    assert DOCUMENT["paths"]["/v1/responses"]["x-openresponses-websocket"] == {
        "description": "A GET that upgrades to a WebSocket opens a connection for consecutive turns. "
        "For each turn the client sends one `response.create`, and receives the events, one JSON object per message.",
        "clientMessage": {"$ref": "#/components/schemas/WebSocketCreate"},
        "errorMessage": {"$ref": "#/components/schemas/WebSocketError"},
        "steerMessage": {"$ref": "#/components/schemas/WebSocketSteer"},
        "steerEvent": {"$ref": "#/components/schemas/WebSocketSteerEvent"},
    }
    assert DOCUMENT["components"]["schemas"]["WebSocketCreate"]["description"] == (
        "A request body with a `type`; `stream_id` selects one of the chains of the connection."
    )
