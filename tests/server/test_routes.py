"""The route table is consistent, and agrees with the validation of bodies and queries."""

import pytest

from convo.errors import RequestRefused
from convo.models.request_fields import INCLUDABLE, REQUEST_FIELDS
from convo.responses_api.validation import validate_value
from convo.server import http
from convo.server.http import INCLUDE_PARAMETER, LIST_PARAMETERS, STREAM_PARAMETER
from convo.server.routes import API_ROUTES, group_by_path


def test_a_method_of_a_path_has_one_route() -> None:
    rows = [(route.method, route.path) for route in API_ROUTES]
    assert sorted(set(rows)) == sorted(rows)
    assert [path for path, _ in group_by_path()] == list(dict.fromkeys(path for _, path in rows))


def test_a_fixed_path_is_matched_before_a_variable_one() -> None:
    paths = [path for path, _ in group_by_path()]
    assert paths.index("/v1/responses/compact") < paths.index("/v1/responses/{response_id}")
    assert paths.index("/v1/models") < paths.index("/v1/models/{model:path}")


def test_include_accepts_the_same_values_in_a_body_and_in_a_query() -> None:
    for value in INCLUDABLE:
        validate_value("include", [value], REQUEST_FIELDS["include"].schema)
        assert http.parse_query(f"include={value}".encode(), [INCLUDE_PARAMETER]) == {"include": [value]}
    for parse in (
        lambda: validate_value("include", ["everything"], REQUEST_FIELDS["include"].schema),
        lambda: http.parse_query(b"include=everything", [INCLUDE_PARAMETER]),
    ):
        with pytest.raises(RequestRefused) as caught:
            parse()
        assert all(value in caught.value.message for value in INCLUDABLE)


VALID_QUERIES = [
    (b"", {}),
    (b"limit=5&order=asc", {"limit": 5, "order": "asc"}),
    (b"after=msg_1&before=msg%202", {"after": "msg_1", "before": "msg 2"}),
    (b"after=", {"after": ""}),
    (b"include=reasoning.encrypted_content", {"include": ["reasoning.encrypted_content"]}),
    (
        b"include[]=reasoning.encrypted_content&include%5B%5D=message.output_text.logprobs",
        {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
    ),
]


@pytest.mark.parametrize(("raw", "expected"), VALID_QUERIES)
def test_a_query_is_read_by_the_parameter_names_of_its_route(raw: bytes, expected: dict[str, object]) -> None:
    assert http.parse_query(raw, LIST_PARAMETERS) == expected


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"limit=1&limit=2", "limit"),
        (b"limit[]=1", "limit[]"),
        (b"limit=", "limit"),
        (b"limit=1.5", "limit"),
        (b"limit=%EF%BC%91", "limit"),
        (b"limit=99999999999999999999", "limit"),
        (b"include=everything", "include"),
        (b"x", "x"),
        (b"%ff=1", "\ufffd"),
    ],
)
def test_an_invalid_query_value_is_refused_by_name(raw: bytes, param: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        http.parse_query(raw, LIST_PARAMETERS)
    assert caught.value.param == param


def test_a_parameter_of_another_route_is_unknown() -> None:
    with pytest.raises(RequestRefused, match="Unknown parameter: 'limit'"):
        http.parse_query(b"limit=1", (STREAM_PARAMETER, INCLUDE_PARAMETER))


ROUTES = [
    (
        "POST /v1/responses",
        "responses_create",
        "Create a response.",
        "",
        "CreateResponseBody",
        "ResponseResource",
        "streams",
    ),
    (
        "POST /v1/responses/compact",
        "responses_compact",
        "Compact a history.",
        "",
        "CompactResponseBody",
        "CompactResource",
        "calls a model",
    ),
    (
        "POST /v1/responses/input_tokens",
        "responses_count",
        "Count the input tokens of a request.",
        "",
        "CountTokensBody",
        "InputTokens",
        "calls a model",
    ),
    (
        "GET /v1/responses/{response_id}",
        "responses_retrieve",
        "Retrieve a response, or follow its events.",
        "stream starting_after include include_obfuscation",
        None,
        "ResponseResource",
        "streams",
    ),
    (
        "DELETE /v1/responses/{response_id}",
        "responses_delete",
        "Delete a response; its children keep their history.",
        "",
        None,
        "Deleted",
        "",
    ),
    (
        "POST /v1/responses/{response_id}/cancel",
        "responses_cancel",
        "Cancel a background response.",
        "",
        "Empty",
        "ResponseResource",
        "optional body",
    ),
    (
        "GET /v1/responses/{response_id}/input_items",
        "responses_input_items",
        "List the whole context of a response.",
        "limit order after before include",
        None,
        "ItemList",
        "",
    ),
    (
        "POST /v1/conversations",
        "conversations_create",
        "Create a conversation.",
        "",
        "CreateConversationBody",
        "Conversation",
        "optional body",
    ),
    (
        "GET /v1/conversations/{conversation_id}",
        "conversations_retrieve",
        "Retrieve a conversation.",
        "",
        None,
        "Conversation",
        "",
    ),
    (
        "POST /v1/conversations/{conversation_id}",
        "conversations_update",
        "Replace a conversation's metadata.",
        "",
        "UpdateConversationBody",
        "Conversation",
        "",
    ),
    (
        "DELETE /v1/conversations/{conversation_id}",
        "conversations_delete",
        "Delete a conversation.",
        "",
        None,
        "Deleted",
        "",
    ),
    (
        "POST /v1/conversations/{conversation_id}/items",
        "conversations_add_items",
        "Append up to 20 items.",
        "include",
        "AddItemsBody",
        "ItemList",
        "",
    ),
    (
        "GET /v1/conversations/{conversation_id}/items",
        "conversations_items",
        "List items.",
        "limit order after before include",
        None,
        "ItemList",
        "",
    ),
    (
        "GET /v1/conversations/{conversation_id}/items/{item_id}",
        "conversations_item",
        "Retrieve an item.",
        "include",
        None,
        "Item",
        "",
    ),
    (
        "DELETE /v1/conversations/{conversation_id}/items/{item_id}",
        "conversations_delete_item",
        "Delete an item; returns the conversation.",
        "",
        None,
        "Conversation",
        "",
    ),
    (
        "POST /v1/chat/completions",
        "passthrough_chat_completions",
        "Create a chat completion at the provider of the model.",
        "",
        "ChatCompletionBody",
        "ProviderResponse",
        "streams",
    ),
    (
        "POST /v1/embeddings",
        "passthrough_embeddings",
        "Create embeddings at the provider of the model.",
        "",
        "EmbeddingsBody",
        "ProviderResponse",
        "",
    ),
    (
        "POST /v1/messages",
        "passthrough_messages",
        "Create a message at a provider that has Anthropic's API.",
        "beta",
        "MessagesBody",
        "ProviderResponse",
        "streams",
    ),
    (
        "POST /v1/messages/count_tokens",
        "passthrough_count_tokens",
        "Count the input tokens of a message at its provider.",
        "beta",
        "MessagesBody",
        "ProviderResponse",
        "",
    ),
    ("POST /v1/files", "files_create", "Create a file by uploading it.", "", "CreateFileForm", "File", ""),
    ("GET /v1/files", "files_list", "List the files.", "limit order after purpose", None, "FileList", ""),
    ("GET /v1/files/{file_id}", "files_retrieve", "Retrieve a file.", "", None, "File", ""),
    ("DELETE /v1/files/{file_id}", "files_delete", "Delete a file.", "", None, "Deleted", ""),
    ("GET /v1/files/{file_id}/content", "files_content", "Retrieve the content of a file.", "", None, "Bytes", ""),
    ("GET /v1/models", "standing_models", "List the models.", "", None, "ModelList", ""),
    ("GET /v1/models/{model:path}", "standing_model", "Retrieve a model.", "", None, "Model", ""),
    ("GET /healthz", "standing_healthz", "Whether the server runs.", "", None, "Status", "public"),
    ("GET /readyz", "standing_readyz", "Whether the server can handle requests.", "", None, "Status", "public"),
    ("GET /openapi.json", "routes_document", "This document.", "", None, "Document", "public"),
    (
        "GET /metrics",
        "standing_metrics",
        "Prometheus metrics of the key's tenant, or of the whole server for an admin key.",
        "",
        None,
        "Text",
        "",
    ),
]
"""Method and path, operation id, summary, query parameters, schemas of the request and of the response, properties."""


def test_the_routes_of_the_api() -> None:
    properties = {
        "can_stream": "streams",
        "is_public": "public",
        "is_body_optional": "optional body",
        "calls_model": "calls a model",
    }
    assert [
        (
            f"{route.method} {route.path}",
            route.operation_id,
            route.summary,
            " ".join(query.name for query in route.query),
            route.request_schema,
            route.response_schema,
            " ".join(text for name, text in properties.items() if getattr(route, name)),
        )
        for route in API_ROUTES
    ] == ROUTES


DESCRIPTIONS = {
    "stream": "Respond with server-sent events.",
    "starting_after": "Return the events after this sequence number.",
    "include": "Additional fields to return. All stored fields are always returned.",
    "include_obfuscation": "Accepted without effect: events have no padding.",
    "limit": "Maximum number of items on a page.",
    "order": "Order by age.",
    "after": "Return the items after the item with this id.",
    "purpose": "Return only the files with this purpose.",
    "before": "Return the items before the item with this id.",
    "beta": "A parameter of Anthropic's clients; it is passed on.",
}


def test_every_query_parameter_is_described() -> None:
    described = {query.name: query.description for route in API_ROUTES for query in route.query}
    assert described == DESCRIPTIONS
