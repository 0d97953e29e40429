"""The document that describes this API, made from the table of routes.

A route says in words what it does and by name what it takes and gives; `schemas` says what those
are. Whatever is refused is one error object, so every operation has two answers more: 4XX and 5XX.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from convo import __version__
from convo.gateway.queries import Query
from convo.gateway.schemas import SCHEMAS, ref
from convo.items import Json

if TYPE_CHECKING:
    from convo.gateway.routes import Route

JSON = "application/json"
EVENTS = "text/event-stream"

ABOUT = """The Responses and Conversations API in front of any model.

Fields that this document does not name are refused. An id of another key is not found.

A client that disconnects cancels its response; with `background: true` it runs on. Past a limit of requests the
answer is 429 `rate_limit_exceeded`, and `Retry-After` gives the seconds to wait."""

STREAMED = (
    "Server-sent events: `event:` names the type, `data:` holds the event as JSON, numbered from 0 without a gap. "
    "The last one is `response.completed`, `response.incomplete` or `response.failed`; then comes `data: [DONE]`."
)

WEBSOCKET: Mapping[str, Json] = {
    "description": "A GET that upgrades to a WebSocket opens a connection over which turns follow one another. "
    "A client sends one `response.create` a turn; it gets the events of a stream, one JSON object a message.",
    "clientMessage": ref("WebSocketCreate"),
    "errorMessage": ref("WebSocketError"),
}

CONVERTER = re.compile(r"{(\w+)(?::\w+)?}")
"""A variable part of a path, as Starlette writes it: {id} or {model:path}."""


def document(routes: Sequence["Route"]) -> dict[str, Json]:
    """The whole of it, as OpenAPI 3.1."""
    paths: dict[str, dict[str, Json]] = {}
    for route in routes:
        paths.setdefault(CONVERTER.sub(r"{\1}", route.path), {})[route.method.lower()] = operation(route)
    paths["/v1/responses"]["x-openresponses-websocket"] = WEBSOCKET
    return {
        "openapi": "3.1.0",
        "info": {"title": "convo", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Refused": answer("What was asked is refused: the error says why.", ref("Error")),
                "Failed": answer("What was asked could not be done: the error says why.", ref("Error")),
            },
        },
    }


def operation(route: "Route") -> dict[str, Json]:
    return {
        "operationId": route.operation,
        "tags": [route.operation.partition("_")[0]],
        "summary": route.summary,
        "parameters": [*map(in_path, CONVERTER.findall(route.path)), *map(in_query, route.query)],
        **({"requestBody": body(route)} if route.takes else {}),
        "responses": {
            "200": gives(route),
            "4XX": {"$ref": "#/components/responses/Refused"},
            "5XX": {"$ref": "#/components/responses/Failed"},
        },
        **({"security": []} if route.open else {}),
    }


def in_path(name: str) -> dict[str, Json]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def in_query(query: Query) -> dict[str, Json]:
    return {"name": query.name, "in": "query", "description": query.words, "schema": query.schema}


def body(route: "Route") -> dict[str, Json]:
    return {"required": not route.optional, "content": {JSON: {"schema": ref(str(route.takes))}}}


def gives(route: "Route") -> dict[str, Json]:
    if route.gives == "Text":
        return {"description": route.summary, "content": {"text/plain": {"schema": {"type": "string"}}}}
    told = answer(route.summary, ref(route.gives))
    if route.events:
        told["content"][EVENTS] = {"schema": {"type": "string", "description": STREAMED}}
    return told


def answer(words: str, schema: Mapping[str, Json]) -> dict[str, Json]:
    return {"description": words, "content": {JSON: {"schema": schema}}}
