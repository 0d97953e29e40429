"""The HTTP routes of the loopback server, which call an endpoint."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convo.endpoints.base import Endpoint, ItemPage
from convo.errors import NotFound


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One received request; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    json: Any


Handler = Callable[[Endpoint, RecordedRequest, tuple[str, ...]], Awaitable[Any]]


async def dispatch(endpoint: Endpoint, request: RecordedRequest) -> Any:
    """Call the handler of the route. Raises NotFound if there is no such route."""
    for method, pattern, handler in ROUTES:
        match = re.fullmatch(pattern, request.path)
        if method == request.method and match:
            return await handler(endpoint, request, match.groups())
    raise NotFound("route", request.path)


def _paging(request: RecordedRequest) -> dict[str, Any]:
    parameters = dict(pair.split("=", 1) for pair in request.query.split("&") if pair)
    return {name: int(value) if name == "limit" else value for name, value in parameters.items()}


def _list_object(page: ItemPage) -> dict[str, Any]:
    ids = [item["id"] for item in page.items]
    return {
        "object": "list",
        "data": list(page.items),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": page.has_more,
    }


async def _retrieve(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return await endpoint.retrieve(*ids)


async def _delete(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    await endpoint.delete(*ids)
    return {"id": ids[0], "object": "response", "deleted": True}


async def _cancel(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return await endpoint.cancel(*ids)


async def _input_items(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return _list_object(await endpoint.list_input_items(*ids, **_paging(request)))


async def _compact(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return await endpoint.compact(request.json)


async def _count(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return {"object": "response.input_tokens", "input_tokens": await endpoint.count_input_tokens(request.json)}


async def _create_conversation(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    parameters = request.json or {}
    return await endpoint.create_conversation(parameters.get("items") or (), parameters.get("metadata"))


async def _conversation(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return await endpoint.retrieve_conversation(*ids)


async def _update(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return await endpoint.update_conversation(ids[0], request.json["metadata"])


async def _delete_conversation(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    await endpoint.delete_conversation(*ids)
    return {"id": ids[0], "object": "conversation.deleted", "deleted": True}


async def _add(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return _list_object(await endpoint.add_conversation_items(ids[0], request.json["items"]))


async def _items(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return _list_object(await endpoint.list_conversation_items(*ids, **_paging(request)))


async def _item(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return await endpoint.retrieve_conversation_item(*ids)


async def _remove(endpoint: Endpoint, request: RecordedRequest, ids: tuple[str, ...]) -> Any:
    return await endpoint.delete_conversation_item(*ids)


ID = "([^/]+)"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/v1/responses/input_tokens", _count),
    ("POST", "/v1/responses/compact", _compact),
    ("GET", f"/v1/responses/{ID}", _retrieve),
    ("DELETE", f"/v1/responses/{ID}", _delete),
    ("POST", f"/v1/responses/{ID}/cancel", _cancel),
    ("GET", f"/v1/responses/{ID}/input_items", _input_items),
    ("POST", "/v1/conversations", _create_conversation),
    ("GET", f"/v1/conversations/{ID}", _conversation),
    ("POST", f"/v1/conversations/{ID}", _update),
    ("DELETE", f"/v1/conversations/{ID}", _delete_conversation),
    ("POST", f"/v1/conversations/{ID}/items", _add),
    ("GET", f"/v1/conversations/{ID}/items", _items),
    ("GET", f"/v1/conversations/{ID}/items/{ID}", _item),
    ("DELETE", f"/v1/conversations/{ID}/items/{ID}", _remove),
)
