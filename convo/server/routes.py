"""The routes of the API, their handlers, and the OpenAPI document made from all routes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from urllib.parse import quote

from convo import __version__
from convo.endpoints.base import ItemPage
from convo.errors import ConvoError
from convo.history.items import Json
from convo.models.pass_through import PassThroughApi
from convo.server import errors
from convo.server.forms import FORM_MEDIA_TYPE, parse_expiry
from convo.server.handlers import ApiRoute, HandlerContext, HandlerResult, RawResponse
from convo.server.http import (
    BETA_PARAMETER,
    FILE_LIST_PARAMETERS,
    INCLUDE_PARAMETER,
    JSON_MEDIA_TYPE,
    LIST_PARAMETERS,
    OBFUSCATION_PARAMETER,
    STARTING_AFTER_PARAMETER,
    STREAM_PARAMETER,
    QueryParameter,
    to_page_arguments,
)
from convo.server.inspector import DOCUMENTED_ROUTES
from convo.server.metrics import PROMETHEUS_CONTENT_TYPE
from convo.server.schemas import SCHEMAS, schema_ref
from convo.server.sse import EventsResult

SSE_MEDIA_TYPE = "text/event-stream"

API_DESCRIPTION = """The Responses and Conversations API for any model.

A request with a field that is not in this document is refused. An object of another key is not found.

A client that disconnects cancels its response, unless the request has `background: true`. A request above a rate limit
gets 429 `rate_limit_exceeded`, and `Retry-After` gives the seconds to wait.

Chat completions, embeddings and messages are passed through to the provider of the model: the request and the response
are those of the provider's API. They are stored only if the server records them."""

SSE_DESCRIPTION = (
    "Server-sent events: `event:` names the type, `data:` is the event as JSON, numbered from 0 without gaps. "
    "The last one is `response.completed`, `response.incomplete` or `response.failed`, followed by `data: [DONE]`."
)

PASSED_SSE_DESCRIPTION = "The server-sent events of the provider. A stream that breaks ends with an error."

WEBSOCKET_EXTENSION: Mapping[str, Json] = {
    "description": "A GET that upgrades to a WebSocket opens a connection for consecutive turns. "
    "For each turn the client sends one `response.create`, and receives the events, one JSON object per message.",
    "clientMessage": schema_ref("WebSocketCreate"),
    "errorMessage": schema_ref("WebSocketError"),
    "steerMessage": schema_ref("WebSocketSteer"),
    "steerEvent": schema_ref("WebSocketSteerEvent"),
}

PATH_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
"""A variable part of a path in Starlette's form: {id} or {model:path}."""


def build_openapi_document(routes: Sequence[ApiRoute]) -> dict[str, Json]:
    """Build the OpenAPI 3.1 document of these routes."""
    paths: dict[str, dict[str, Json]] = {}
    for route in routes:
        paths.setdefault(PATH_PARAMETER.sub(r"{\1}", route.path), {})[route.method.lower()] = _build_operation(route)
    paths["/v1/responses"]["x-openresponses-websocket"] = WEBSOCKET_EXTENSION
    return {
        "openapi": "3.1.0",
        "info": {"title": "convo", "version": __version__, "description": API_DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"key": []}, {}, {"api_key": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "responses": {
                "Refused": _json_response_object(
                    "The request is refused; the error gives the reason.", schema_ref("Error")
                ),
                "Failed": _json_response_object("The request failed; the error gives the reason.", schema_ref("Error")),
                "MessageRefused": _json_response_object(
                    "The request is refused; the error gives the reason.", schema_ref("AnthropicError")
                ),
                "MessageFailed": _json_response_object(
                    "The request failed; the error gives the reason.", schema_ref("AnthropicError")
                ),
            },
        },
    }


def _build_operation(route: ApiRoute) -> dict[str, Json]:
    prefix = "Message" if route.upstream_api is not None and route.upstream_api.is_anthropic else ""
    return {
        "operationId": route.operation_id,
        "tags": [route.operation_id.partition("_")[0]],
        "summary": route.summary,
        **({"description": route.description} if route.description else {}),
        "parameters": [
            *map(_path_parameter_object, PATH_PARAMETER.findall(route.path)),
            *map(_query_parameter_object, route.query),
        ],
        **({"requestBody": _request_body_object(route)} if route.request_schema else {}),
        "responses": {
            "200": _success_response_object(route),
            "4XX": {"$ref": f"#/components/responses/{prefix}Refused"},
            "5XX": {"$ref": f"#/components/responses/{prefix}Failed"},
        },
        **({"security": []} if route.is_public else {}),
    }


def _path_parameter_object(name: str) -> dict[str, Json]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameter_object(query: QueryParameter) -> dict[str, Json]:
    required = {"required": True} if query.is_required else {}
    return {"name": query.name, "in": "query", "description": query.description, **required, "schema": query.schema}


def _request_body_object(route: ApiRoute) -> dict[str, Json]:
    return {
        "required": not route.is_body_optional,
        "content": {
            FORM_MEDIA_TYPE if route.is_form else JSON_MEDIA_TYPE: {"schema": schema_ref(str(route.request_schema))}
        },
    }


OTHER_CONTENTS: Mapping[str, Mapping[str, Mapping[str, Json]]] = {
    "Bytes": {"application/octet-stream": {"type": "string", "format": "binary"}},
    "Text": {"text/plain": {"type": "string"}},
    "ConversationFile": {
        JSON_MEDIA_TYPE: {"type": "array", "items": {"type": "object"}},
        "application/jsonl": {"type": "string"},
        "text/markdown": {"type": "string"},
        "text/html": {"type": "string"},
    },
    "ChangeEvents": {
        SSE_MEDIA_TYPE: {
            "type": "string",
            "description": "Server-sent events without an end: `inspector.changed` at the start, and after each change "
            "of the store or of the responses in progress.",
        }
    },
}
"""The media types of responses that are not one JSON object, with their schemas, by the name in a route."""


def _success_response_object(route: ApiRoute) -> dict[str, Json]:
    if route.response_schema in OTHER_CONTENTS:
        contents = OTHER_CONTENTS[route.response_schema].items()
        content = {media_type: {"schema": schema} for media_type, schema in contents}
        return {"description": route.summary, "content": content}
    response = _json_response_object(route.summary, schema_ref(route.response_schema))
    if route.can_stream:
        description = SSE_DESCRIPTION if route.upstream_api is None else PASSED_SSE_DESCRIPTION
        response["content"][SSE_MEDIA_TYPE] = {"schema": {"type": "string", "description": description}}
    return response


def _json_response_object(description: str, schema: Mapping[str, Json]) -> dict[str, Json]:
    return {"description": description, "content": {JSON_MEDIA_TYPE: {"schema": schema}}}


def to_list_resource(page: ItemPage) -> dict[str, Json]:
    """Build the API's list resource of a page."""
    ids = [item["id"] for item in page.items]
    return {
        "object": "list",
        "data": list(page.items),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": page.has_more,
    }


async def create_response(context: HandlerContext) -> HandlerResult:
    is_streamed = context.get_boolean("stream")
    body = {**context.body, "stream": is_streamed}
    assert context.live_request is not None
    events = context.record_events(context.live_request, body, context.endpoint.create(body))
    events = context.requests.follow(context.live_request, events)
    return EventsResult(events, is_streamed, is_first_event_final=body.get("background") is True)


async def retrieve_response(context: HandlerContext) -> HandlerResult:
    query = context.query
    if query.get("stream"):
        events = context.endpoint.follow(context.path_params["response_id"], after=query.get("starting_after"))
        return EventsResult(events, stream=True, may_be_empty=True)
    if "starting_after" in query:
        raise errors.parameter_requires_error("starting_after", "stream=true")
    return await context.endpoint.retrieve(context.path_params["response_id"])


async def delete_response(context: HandlerContext) -> HandlerResult:
    response_id = context.path_params["response_id"]
    await context.endpoint.delete(response_id)
    return {"id": response_id, "object": "response", "deleted": True}


async def cancel_response(context: HandlerContext) -> HandlerResult:
    return await context.endpoint.cancel(context.path_params["response_id"])


async def list_input_items(context: HandlerContext) -> HandlerResult:
    return to_list_resource(
        await context.endpoint.list_input_items(context.path_params["response_id"], **to_page_arguments(context.query))
    )


async def compact_response(context: HandlerContext) -> HandlerResult:
    return await context.endpoint.compact(context.body)


async def count_input_tokens(context: HandlerContext) -> HandlerResult:
    tokens = await context.endpoint.count_input_tokens(context.body)
    return {"object": "response.input_tokens", "input_tokens": tokens}


async def create_conversation(context: HandlerContext) -> HandlerResult:
    context.check_fields("items", "metadata")
    return await context.endpoint.create_conversation(context.get_array("items"), context.get_object("metadata"))


async def retrieve_conversation(context: HandlerContext) -> HandlerResult:
    return await context.endpoint.retrieve_conversation(context.path_params["conversation_id"])


async def update_conversation(context: HandlerContext) -> HandlerResult:
    context.check_fields("metadata")
    if "metadata" not in context.body:
        raise errors.missing_http_parameter_error("metadata")
    return await context.endpoint.update_conversation(
        context.path_params["conversation_id"], context.get_object("metadata")
    )


async def delete_conversation(context: HandlerContext) -> HandlerResult:
    conversation_id = context.path_params["conversation_id"]
    await context.endpoint.delete_conversation(conversation_id)
    return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}


async def add_conversation_items(context: HandlerContext) -> HandlerResult:
    context.check_fields("items")
    if context.body.get("items") is None:
        raise errors.missing_http_parameter_error("items")
    return to_list_resource(
        await context.endpoint.add_conversation_items(
            context.path_params["conversation_id"], context.get_array("items")
        )
    )


async def list_conversation_items(context: HandlerContext) -> HandlerResult:
    return to_list_resource(
        await context.endpoint.list_conversation_items(
            context.path_params["conversation_id"], **to_page_arguments(context.query)
        )
    )


async def retrieve_conversation_item(context: HandlerContext) -> HandlerResult:
    return dict(
        await context.endpoint.retrieve_conversation_item(
            context.path_params["conversation_id"], context.path_params["item_id"]
        )
    )


async def delete_conversation_item(context: HandlerContext) -> HandlerResult:
    return await context.endpoint.delete_conversation_item(
        context.path_params["conversation_id"], context.path_params["item_id"]
    )


async def create_file(context: HandlerContext) -> HandlerResult:
    form = context.form
    assert form is not None
    if form.file is None:
        raise errors.missing_http_parameter_error("file")
    if "purpose" not in form.fields:
        raise errors.missing_http_parameter_error("purpose")
    return await context.service.files_for(context.tenant).create(
        form.file_name, form.file, form.media_type, form.fields["purpose"], parse_expiry(form.fields)
    )


async def list_files(context: HandlerContext) -> HandlerResult:
    page = await context.service.files_for(context.tenant).list_files(**context.query)
    ids = [file["id"] for file in page.files]
    return {
        "object": "list",
        "data": list(page.files),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": page.has_more,
    }


async def retrieve_file(context: HandlerContext) -> HandlerResult:
    return await context.service.files_for(context.tenant).retrieve(context.path_params["file_id"])


async def retrieve_file_content(context: HandlerContext) -> HandlerResult:
    """Return the content as a download: a browser must not show it as a page of this server."""
    name, content = await context.service.files_for(context.tenant).read(context.path_params["file_id"])
    disposition = f"attachment; filename*=UTF-8''{quote(name, safe='', errors='replace')}".encode()
    headers = ((b"content-disposition", disposition), (b"x-content-type-options", b"nosniff"))
    return RawResponse(content, b"application/octet-stream", headers)


async def delete_file(context: HandlerContext) -> HandlerResult:
    file_id = context.path_params["file_id"]
    await context.service.files_for(context.tenant).delete(file_id)
    return {"id": file_id, "object": "file", "deleted": True}


async def list_model_resources(context: HandlerContext) -> HandlerResult:
    return {"object": "list", "data": list(await context.service.list_models())}


async def retrieve_model_resource(context: HandlerContext) -> HandlerResult:
    name = context.path_params["model"]
    for model in await context.service.list_models():
        if model["id"] == name:
            return model
    raise errors.unknown_model_error(name)


async def report_health(context: HandlerContext) -> HandlerResult:
    """Report that the process runs; nothing is checked."""
    return {"status": "ok"}


async def report_readiness(context: HandlerContext) -> HandlerResult:
    """Report that the server can handle requests. Raises TryLater if it cannot, for any reason."""
    if context.is_shutting_down:
        raise errors.server_shutting_down_error()
    try:
        await context.service.check_ready()
    except ConvoError as fault:
        raise errors.not_ready_error() from fault
    return {"status": "ready"}


async def report_metrics(context: HandlerContext) -> HandlerResult:
    """Return the server's metrics without keys or for an admin key, else those of the caller's tenant."""
    return RawResponse(await context.render_metrics(), PROMETHEUS_CONTENT_TYPE)


async def serve_openapi_document(context: HandlerContext) -> HandlerResult:
    """Serve the OpenAPI document of `API_ROUTES` and of the calls of the inspector page."""
    return load_openapi_document()


@cache
def load_openapi_document() -> Mapping[str, Json]:
    return build_openapi_document((*API_ROUTES, *DOCUMENTED_ROUTES))


RESPONSE_PATH = "/v1/responses/{response_id}"
CONVERSATION_PATH = "/v1/conversations/{conversation_id}"
FILE_PATH = "/v1/files/{file_id}"
ITEM_PATH = f"{CONVERSATION_PATH}/items/{{item_id}}"

API_ROUTES = (
    ApiRoute(
        "POST", "/v1/responses", create_response, "Create a response.", "ResponseResource",
        request_schema="CreateResponseBody", can_stream=True, operation_id="responses_create",
        model_api="responses",
    ),
    ApiRoute(
        "POST", "/v1/responses/compact", compact_response, "Compact a history.",
        "CompactResource", request_schema="CompactResponseBody", calls_model=True, operation_id="responses_compact",
        model_api="compact",
    ),
    ApiRoute(
        "POST", "/v1/responses/input_tokens", count_input_tokens, "Count the input tokens of a request.",
        "InputTokens", request_schema="CountTokensBody", calls_model=True, operation_id="responses_count",
    ),
    ApiRoute(
        "GET", RESPONSE_PATH, retrieve_response, "Retrieve a response, or follow its events.", "ResponseResource",
        query=(STREAM_PARAMETER, STARTING_AFTER_PARAMETER, INCLUDE_PARAMETER, OBFUSCATION_PARAMETER),
        can_stream=True, operation_id="responses_retrieve",
    ),
    ApiRoute(
        "DELETE", RESPONSE_PATH, delete_response, "Delete a response; its children keep their history.", "Deleted",
        operation_id="responses_delete",
    ),
    ApiRoute(
        "POST", f"{RESPONSE_PATH}/cancel", cancel_response, "Cancel a background response.", "ResponseResource",
        request_schema="Empty", is_body_optional=True, operation_id="responses_cancel",
    ),
    ApiRoute(
        "GET", f"{RESPONSE_PATH}/input_items", list_input_items, "List the whole context of a response.", "ItemList",
        query=LIST_PARAMETERS, operation_id="responses_input_items",
    ),
    ApiRoute(
        "POST", "/v1/conversations", create_conversation, "Create a conversation.", "Conversation",
        request_schema="CreateConversationBody", is_body_optional=True, operation_id="conversations_create",
    ),
    ApiRoute(
        "GET", CONVERSATION_PATH, retrieve_conversation, "Retrieve a conversation.", "Conversation",
        operation_id="conversations_retrieve",
    ),
    ApiRoute(
        "POST", CONVERSATION_PATH, update_conversation, "Replace a conversation's metadata.", "Conversation",
        request_schema="UpdateConversationBody", operation_id="conversations_update",
    ),
    ApiRoute(
        "DELETE", CONVERSATION_PATH, delete_conversation, "Delete a conversation.", "Deleted",
        operation_id="conversations_delete",
    ),
    ApiRoute(
        "POST", f"{CONVERSATION_PATH}/items", add_conversation_items, "Append up to 20 items.", "ItemList",
        request_schema="AddItemsBody", query=(INCLUDE_PARAMETER,), operation_id="conversations_add_items",
    ),
    ApiRoute(
        "GET", f"{CONVERSATION_PATH}/items", list_conversation_items, "List items.", "ItemList", query=LIST_PARAMETERS,
        operation_id="conversations_items",
    ),
    ApiRoute(
        "GET", ITEM_PATH, retrieve_conversation_item, "Retrieve an item.", "Item", query=(INCLUDE_PARAMETER,),
        operation_id="conversations_item",
    ),
    ApiRoute(
        "DELETE", ITEM_PATH, delete_conversation_item, "Delete an item; returns the conversation.", "Conversation",
        operation_id="conversations_delete_item",
    ),
    ApiRoute(
        "POST", "/v1/chat/completions", None, "Create a chat completion at the provider of the model.",
        "ProviderResponse", request_schema="ChatCompletionBody", can_stream=True,
        upstream_api=PassThroughApi.CHAT_COMPLETIONS, operation_id="passthrough_chat_completions",
        model_api="chat_completions",
    ),
    ApiRoute(
        "POST", "/v1/embeddings", None, "Create embeddings at the provider of the model.",
        "ProviderResponse", request_schema="EmbeddingsBody",
        upstream_api=PassThroughApi.EMBEDDINGS, operation_id="passthrough_embeddings",
        model_api="embeddings",
    ),
    ApiRoute(
        "POST", "/v1/messages", None, "Create a message at a provider that has Anthropic's API.",
        "ProviderResponse", request_schema="MessagesBody", query=(BETA_PARAMETER,), can_stream=True,
        upstream_api=PassThroughApi.MESSAGES, operation_id="passthrough_messages",
        model_api="messages",
    ),
    ApiRoute(
        "POST", "/v1/messages/count_tokens", None, "Count the input tokens of a message at its provider.",
        "ProviderResponse", request_schema="MessagesBody", query=(BETA_PARAMETER,),
        upstream_api=PassThroughApi.COUNT_MESSAGE_TOKENS, operation_id="passthrough_count_tokens",
    ),
    ApiRoute(
        "POST", "/v1/files", create_file, "Create a file by uploading it.", "File",
        request_schema="CreateFileForm", is_form=True, operation_id="files_create",
    ),
    ApiRoute(
        "GET", "/v1/files", list_files, "List the files.", "FileList", query=FILE_LIST_PARAMETERS,
        operation_id="files_list",
    ),
    ApiRoute("GET", FILE_PATH, retrieve_file, "Retrieve a file.", "File", operation_id="files_retrieve"),
    ApiRoute("DELETE", FILE_PATH, delete_file, "Delete a file.", "Deleted", operation_id="files_delete"),
    ApiRoute(
        "GET", f"{FILE_PATH}/content", retrieve_file_content, "Retrieve the content of a file.", "Bytes",
        operation_id="files_content",
    ),
    ApiRoute(
        "GET", "/v1/models", list_model_resources, "List the models.", "ModelList",
        operation_id="standing_models",
    ),
    ApiRoute(
        "GET", "/v1/models/{model:path}", retrieve_model_resource, "Retrieve a model.", "Model",
        operation_id="standing_model",
    ),
    ApiRoute(
        "GET", "/healthz", report_health, "Whether the server runs.", "Status", is_public=True,
        operation_id="standing_healthz",
    ),
    ApiRoute(
        "GET", "/readyz", report_readiness, "Whether the server can handle requests.", "Status", is_public=True,
        operation_id="standing_readyz",
    ),
    ApiRoute(
        "GET", "/openapi.json", serve_openapi_document, "This document.", "Document", is_public=True,
        operation_id="routes_document",
    ),
    ApiRoute(
        "GET", "/metrics", report_metrics,
        "Prometheus metrics of the key's tenant, or of the whole server for an admin key.", "Text",
        operation_id="standing_metrics",
    ),
)  # fmt: skip
"""In the order of matching: fixed parts before variable ones."""


def group_by_path(routes: Sequence[ApiRoute] = API_ROUTES) -> Iterator[tuple[str, dict[str, ApiRoute]]]:
    """Yield each path with its routes by method."""
    for path, path_routes in groupby(routes, key=attrgetter("path")):
        yield path, {route.method: route for route in path_routes}
