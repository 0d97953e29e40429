"""The schemas of the OpenAPI document accept valid values and reject all others."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from convo.history.records import Link, Strategy
from convo.history.tree import root_key
from convo.responses_api.response import build_compaction_resource, build_response
from convo.server import http
from convo.server.handlers import ApiRoute
from convo.server.routes import API_ROUTES, load_openapi_document
from convo.server.schemas import SCHEMAS
from convo.server.steering import build_steer_failed_event
from convo.usage.model_info import describe_capabilities

DOCUMENT: Any = load_openapi_document()
ROOT = root_key("local")
MESSAGE = {"type": "message", "id": "msg_1", "role": "user", "content": "a"}
USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
LINK = Link("resp_1", ROOT, ROOT, 1, "m", Strategy.CHAIN, "completed", 1.0, usage=USAGE, conversation_id="conv_1")
STEER = {"type": "response.steer", "previous_response_id": "resp_1", "input": "Shorter."}
ERROR = {"message": "No.", "type": "server_error", "param": None, "code": None}

MODEL = {
    "id": "m",
    "object": "model",
    "created": 1,
    "owned_by": "convo",
    "capabilities": {**describe_capabilities("mine/m", {}, {}), "endpoints": ["/v1/responses"], "state": "convo"},
}


def fits(name: str, value: Any) -> bool:
    schema = {**SCHEMAS[name], "components": {"schemas": SCHEMAS}}
    return bool(OAS31Validator(schema).is_valid(value))


VALID_VALUES: dict[str, list[dict[str, Any]]] = {
    "AddItemsBody": [{"items": [{"role": "user", "content": "a"}] * 20}],
    "AnthropicError": [{"type": "error", "error": {"type": "api_error", "message": "No."}}],
    "ChatCompletionBody": [{"model": "m"}],
    "CompactResource": [dict(build_compaction_resource("resp_1", 1.0, [MESSAGE], USAGE))],
    "CompactResponseBody": [{"model": "m"}],
    "Conversation": [{"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {"a": "b"}}],
    "CreateResponseBody": [{"model": "m"}],
    "Deleted": [
        {"id": "resp_1", "object": "response", "deleted": True},
        {"id": "conv_1", "object": "conversation.deleted", "deleted": True},
    ],
    "Document": [{"openapi": "3.1.0", "paths": {}}],
    "EmbeddingsBody": [{"model": "m"}],
    "Error": [{"error": ERROR}],
    "InputTokens": [{"object": "response.input_tokens", "input_tokens": 0}],
    "Item": [{"type": "message"}],
    "ItemList": [{"object": "list", "data": [MESSAGE], "first_id": "msg_1", "last_id": None, "has_more": False}],
    "MessagesBody": [{"model": "m"}],
    "Model": [MODEL],
    "ModelList": [{"object": "list", "data": [MODEL]}],
    "Part": [{"type": "input_text"}],
    "ResponseResource": [
        dict(build_response(LINK, [MESSAGE])),
        {
            **build_response(LINK, []),
            "status": "failed",
            "error": {"code": "server_error", "message": "no"},
            "incomplete_details": {"reason": "max_output_tokens"},
        },
    ],
    "Status": [{"status": "ok"}],
    "Tool": [{"type": "function", "name": "f"}, {"type": "x"}],
    "UpdateConversationBody": [{"metadata": {}}],
    "WebSocketCreate": [{"type": "response.create", "model": "m"}],
    "WebSocketError": [{"type": "error", "status": 400, "error": {**ERROR, "code": "x"}}],
    "WebSocketSteer": [{"type": "response.steer", "previous_response_id": "resp_1", "input": "Shorter."}],
    "WebSocketSteerEvent": [{"type": "response.steer.accepted", "sequence_number": 3, "steer": {}}],
}
"""Values of each schema; every member in them is required."""

OPEN_MEMBERS = {"metadata", "reasoning", "paths"}
"""Objects that accept any members."""


def mutations(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield `value` without each of its members, and with a wrong type for each, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            rest = {key: member for key, member in value.items() if key != name}
            if not OPEN_MEMBERS & set(path):
                yield (*path, name, "missing"), rest
                yield (*path, name, "wrong"), {**rest, name: [[]]}
            for inner_path, changed in mutations(inner, (*path, name)):
                yield inner_path, {**rest, name: changed}


@pytest.mark.parametrize("name", sorted(VALID_VALUES))
def test_a_value_fits_its_schema_and_no_value_fits_that_lacks_a_member_or_has_a_wrong_one(name: str) -> None:
    for value in VALID_VALUES[name]:
        assert fits(name, value)
        wrong = [
            path
            for path, changed in mutations(value)
            if fits(name, changed) and not set(path) & {"tools", "tool_choice"}
        ]
        assert wrong == []


INVALID_VALUES: list[tuple[str, dict[str, Any]]] = [
    ("AddItemsBody", {"items": [{"role": "user", "content": "a"}] * 21}),
    ("AddItemsBody", {"items": [], "x": 1}),
    ("AddItemsBody", {"items": [{"role": "king", "content": "a"}]}),
    ("AddItemsBody", {"items": [{"role": "user", "content": [{}]}]}),
    ("AddItemsBody", {"items": [{}]}),
    ("CreateConversationBody", {"items": [{"type": "x"}] * 21}),
    ("CreateConversationBody", {"metadata": {"a": 1}}),
    ("CreateConversationBody", {"name": "x"}),
    ("ChatCompletionBody", {"model": ""}),
    ("EmbeddingsBody", {"input": "a"}),
    ("MessagesBody", {"model": 1}),
    ("AnthropicError", {"error": ERROR}),
    ("CompactResponseBody", {"model": ""}),
    ("CompactResponseBody", {"model": "m", "tools": []}),
    ("CountTokensBody", {"model": ""}),
    ("CountTokensBody", {"temperature": 1}),
    ("CreateResponseBody", {"model": "m", "x": 1}),
    ("CreateResponseBody", {"model": "m", "input": [{"type": 7}]}),
    ("CreateResponseBody", {"model": "m", "input": 7}),
    ("CreateResponseBody", {"model": "m", "background_options": {"x": 1}}),
    ("CreateResponseBody", {"model": "m", "previous_response_id": ".."}),
    ("CreateResponseBody", {"model": "m", "previous_response_id": "a/b"}),
    ("CreateResponseBody", {"model": "m", "previous_response_id": "x" * 513}),
    ("CreateResponseBody", {"model": "m", "tools": [{}]}),
    ("InputTokens", {"object": "response.input_tokens", "input_tokens": -1}),
    ("Deleted", {"id": "a", "object": "conversation", "deleted": True}),
    ("Deleted", {"id": "a", "object": "response", "deleted": False}),
    ("UpdateConversationBody", {"metadata": {}, "x": 1}),
    ("WebSocketCreate", {"type": "response.create", "model": "m", "stream_id": "a b"}),
    ("WebSocketCreate", {"type": "response.create", "model": "m", "stream_id": "x" * 257}),
    ("WebSocketCreate", {"type": "response.create", "model": "m", "generate": 1}),
    ("WebSocketCreate", {"type": "response.create", "model": "", "input": "a"}),
    ("WebSocketCreate", {"type": "response.steer", "model": "m"}),
    ("WebSocketError", {"type": "error", "status": 400, "error": ERROR}),
    ("WebSocketSteer", {**STEER, "stream_id": "left"}),
    ("WebSocketSteer", {**STEER, "input": []}),
    ("WebSocketSteer", {**STEER, "input": [{"role": "assistant", "content": "x"}]}),
    ("WebSocketSteer", {**STEER, "input": [{"role": "user", "content": "x", "id": "msg_1"}]}),
    ("WebSocketSteerEvent", {"type": "response.steer.done", "sequence_number": 3, "steer": {}}),
    ("WebSocketError", {"type": "error", "status": 400, "error": {**ERROR, "code": "x"}, "stream_id": 7}),
    ("Item", {"type": "message", "id": 7}),
    ("ResponseResource", {**build_response(LINK, []), "status": "done"}),
]


@pytest.mark.parametrize(("name", "value"), INVALID_VALUES, ids=lambda value: str(value)[:60])
def test_a_value_beyond_its_limits_does_not_fit(name: str, value: dict[str, Any]) -> None:
    assert not fits(name, value)


ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("AddItemsBody", {"items": [{"type": "x"}, {"id": "msg_1"}, {"role": "developer", "content": [{"type": "x"}]}]}),
    *(("AddItemsBody", {"items": [{"role": role, "content": ""}]}) for role in ("user", "assistant", "system")),
    ("CreateConversationBody", {}),
    ("CreateConversationBody", {"items": [{"type": "x"}] * 20, "metadata": {"k" * 64: "v" * 512}}),
    ("CountTokensBody", {}),
    ("CountTokensBody", {"model": "m", "input": "a", "truncation": "auto", "parallel_tool_calls": True, "text": None}),
    ("CreateResponseBody", {"model": "m", "previous_response_id": "x" * 512, "conversation": {"id": "conv_1"}}),
    ("Item", {"type": "message", "id": None}),
    ("Item", {"type": "message", "id": "msg_1", "x": 1}),
    ("UpdateConversationBody", {"metadata": None}),
    ("WebSocketCreate", {"type": "response.create", "model": "m", "stream_id": "x" * 256, "generate": False}),
    ("WebSocketError", {"type": "error", "status": 400, "error": {**ERROR, "code": "x"}, "stream_id": "left"}),
    ("WebSocketSteer", {**STEER, "input": [{"type": "message", "role": "user", "content": [{"type": "input_text"}]}]}),
    ("WebSocketSteerEvent", dict(build_steer_failed_event("invalid_input", "No", "x", "resp_1"))),
]


@pytest.mark.parametrize(("name", "value"), ALLOWED, ids=lambda value: str(value)[:60])
def test_a_value_at_its_limits_fits(name: str, value: dict[str, Any]) -> None:
    assert fits(name, value)


# -- the document ---------------------------------------------------------------------------------


def operation(method: str, path: str) -> Any:
    return DOCUMENT["paths"][path][method.lower()]


def test_the_document_names_its_version_its_server_and_its_keys() -> None:
    assert (DOCUMENT["openapi"], DOCUMENT["info"]["title"], DOCUMENT["servers"]) == ("3.1.0", "convo", [{"url": "/"}])
    assert (DOCUMENT["security"], operation("GET", "/healthz")["security"]) == ([{"key": []}, {}, {"api_key": []}], [])
    assert {each["type"] for each in DOCUMENT["components"]["securitySchemes"].values()} == {"http", "apiKey"}
    public = {route.path for route in API_ROUTES if "security" in operation(route.method, _plain(route.path))}
    assert public == {"/healthz", "/readyz", "/openapi.json"}


def _plain(path: str) -> str:
    return path.replace("{model:path}", "{model}")


def test_the_page_gets_code_files_and_a_feed_in_their_own_media_types() -> None:
    media_types = {
        name: list(operation("GET", path)["responses"]["200"]["content"])
        for name, path in (
            ("code", "/inspect/api/requests/{id}/code"),
            ("export", "/inspect/api/conversations/{handle}/export"),
            ("changes", "/inspect/api/changes"),
        )
    }
    assert media_types == {
        "code": ["text/plain"],
        "export": ["application/json", "application/jsonl", "text/markdown", "text/html"],
        "changes": ["text/event-stream"],
    }


def test_a_stream_of_events_and_text_have_their_own_media_types() -> None:
    content = operation("POST", "/v1/responses")["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}
    assert content["text/event-stream"]["schema"]["type"] == "string"
    text = operation("GET", "/metrics")["responses"]["200"]["content"]
    assert text == {"text/plain": {"schema": {"type": "string"}}}


def test_errors_are_described_by_their_schema() -> None:
    for name in ("Refused", "Failed"):
        described = DOCUMENT["components"]["responses"][name]
        assert described["content"] == {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


@pytest.mark.parametrize("route", [route for route in API_ROUTES if route.operation_id], ids=lambda route: route.path)
def test_an_operation_has_the_parameters_of_its_path_and_query(route: ApiRoute) -> None:
    spec = operation(route.method, _plain(route.path))
    names = [part.strip("{}") for part in _plain(route.path).split("/") if part.startswith("{")]
    expected = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in names
    ]
    expected += [
        {"name": each.name, "in": "query", "description": each.description, "schema": each.schema}
        for each in route.query
    ]
    assert spec["parameters"] == expected


QUERIES: dict[tuple[str, str], set[str]] = {
    ("GET", "/v1/responses/{response_id}"): {"stream", "starting_after", "include", "include_obfuscation"},
    ("GET", "/v1/responses/{response_id}/input_items"): {"limit", "order", "after", "before", "include"},
    ("POST", "/v1/conversations/{conversation_id}/items"): {"include"},
    ("GET", "/v1/conversations/{conversation_id}/items"): {"limit", "order", "after", "before", "include"},
    ("GET", "/v1/conversations/{conversation_id}/items/{item_id}"): {"include"},
    ("POST", "/v1/messages"): {"beta"},
    ("POST", "/v1/messages/count_tokens"): {"beta"},
    ("GET", "/v1/files"): {"limit", "order", "after", "purpose"},
}


def test_only_these_operations_have_a_query() -> None:
    queries = {
        (route.method, route.path): {parameter.name for parameter in route.query} for route in API_ROUTES if route.query
    }
    assert queries == QUERIES


def test_the_websocket_is_described_beside_its_path() -> None:
    extension = DOCUMENT["paths"]["/v1/responses"]["x-openresponses-websocket"]
    assert extension["clientMessage"] == {"$ref": "#/components/schemas/WebSocketCreate"}
    assert extension["errorMessage"] == {"$ref": "#/components/schemas/WebSocketError"}


FIRST_WORDS = {
    *(
        "Accepted",
        "Additional",
        "Append",
        "Approve",
        "Cancel",
        "Compact",
        "Count",
        "Create",
        "Delete",
        "List",
        "Maximum",
    ),
    *("Aggregate", "Base", "Errors:", "Export", "Follow", "How", "Only", "Preview", "Render", "curl,"),
    *("Order", "Prometheus", "Replace", "Respond", "Retrieve", "Return", "Server-sent", "The", "This", "Whether", "A"),
}
"""Words that may begin a description."""


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name in ("description", "summary") and isinstance(inner, str):
                yield inner
            else:
                yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)


def test_every_description_is_a_sentence() -> None:
    for text in texts(DOCUMENT):
        assert text.split()[0] in FIRST_WORDS
        assert text.endswith(".")


def test_the_routes_that_call_a_model_before_they_respond_are_known() -> None:
    """A client that disconnects cancels the model call."""
    assert {route.path for route in API_ROUTES if route.calls_model} == {
        "/v1/responses/compact",
        "/v1/responses/input_tokens",
    }
    assert http.JSON_MEDIA_TYPE == "application/json"
