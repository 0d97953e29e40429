"""Every route, as data.

From this table come the server's own routing and the document that describes it. A row says in
words what it does, and by the names of the Open Responses schemas what it takes and gives.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter

from convo.gateway import conversations, openapi, responses, standing
from convo.gateway.asked import Answer, Asked, Handler
from convo.gateway.queries import INCLUDE, LISTING, OBFUSCATION, STARTING_AFTER, STREAM, Query
from convo.items import Json


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    path:       variable parts in braces, as Starlette reads them; `{model:path}` may hold slashes
    gives:      the schema of its answer
    takes:      the schema of its body; None: it has none
    optional:   whether the body may be left out
    events:     whether the answer may come as server-sent events
    open:       whether it needs no key and counts for no limit
    asks:       whether a model is asked before it answers: a client that disconnects cancels that
    operation:  its operationId; up to the first "_" it is its tag; only the routes of the page have none
    """

    method: str
    path: str
    handler: Handler
    summary: str
    gives: str
    takes: str | None = None
    optional: bool = False
    query: tuple[Query, ...] = ()
    events: bool = False
    open: bool = False
    asks: bool = False
    operation: str = ""


async def document(asked: Asked) -> Answer:
    """This table, as OpenAPI."""
    return described()


@cache
def described() -> Mapping[str, Json]:
    return openapi.document(ROUTES)


RESPONSE = "/v1/responses/{response_id}"
CONVERSATION = "/v1/conversations/{conversation_id}"
ITEM = f"{CONVERSATION}/items/{{item_id}}"

ROUTES = (
    Route(
        "POST", "/v1/responses", responses.create, "Ask for one response.", "ResponseResource",
        takes="CreateResponseBody", events=True, operation="responses_create",
    ),
    Route(
        "POST", "/v1/responses/compact", responses.compact, "Make a smaller window for a history.",
        "CompactResource", takes="CompactResponseBody", asks=True, operation="responses_compact",
    ),
    Route(
        "POST", "/v1/responses/input_tokens", responses.count, "Count the input tokens of a request.",
        "InputTokens", takes="CountTokensBody", asks=True, operation="responses_count",
    ),
    Route(
        "GET", RESPONSE, responses.retrieve, "Retrieve a response, or follow its events.", "ResponseResource",
        query=(STREAM, STARTING_AFTER, INCLUDE, OBFUSCATION), events=True, operation="responses_retrieve",
    ),
    Route(
        "DELETE", RESPONSE, responses.delete, "Delete a response; its children keep their history.", "Deleted",
        operation="responses_delete",
    ),
    Route(
        "POST", f"{RESPONSE}/cancel", responses.cancel, "Stop a background response.", "ResponseResource",
        takes="Empty", optional=True, operation="responses_cancel",
    ),
    Route(
        "GET", f"{RESPONSE}/input_items", responses.input_items, "List the whole context of a response.", "ItemList",
        query=LISTING, operation="responses_input_items",
    ),
    Route(
        "POST", "/v1/conversations", conversations.create, "Create a conversation.", "Conversation",
        takes="CreateConversationBody", optional=True, operation="conversations_create",
    ),
    Route(
        "GET", CONVERSATION, conversations.retrieve, "Retrieve a conversation.", "Conversation",
        operation="conversations_retrieve",
    ),
    Route(
        "POST", CONVERSATION, conversations.update, "Replace a conversation's metadata.", "Conversation",
        takes="UpdateConversationBody", operation="conversations_update",
    ),
    Route(
        "DELETE", CONVERSATION, conversations.delete, "Delete a conversation.", "Deleted",
        operation="conversations_delete",
    ),
    Route(
        "POST", f"{CONVERSATION}/items", conversations.add_items, "Append up to 20 items.", "ItemList",
        takes="AddItemsBody", query=(INCLUDE,), operation="conversations_add_items",
    ),
    Route(
        "GET", f"{CONVERSATION}/items", conversations.items, "List items.", "ItemList", query=LISTING,
        operation="conversations_items",
    ),
    Route(
        "GET", ITEM, conversations.item, "Retrieve an item.", "Item", query=(INCLUDE,),
        operation="conversations_item",
    ),
    Route(
        "DELETE", ITEM, conversations.delete_item, "Delete an item; gives the conversation.", "Conversation",
        operation="conversations_delete_item",
    ),
    Route(
        "GET", "/v1/models", standing.models, "List what can be asked for as a model.", "ModelList",
        operation="standing_models",
    ),
    Route("GET", "/v1/models/{model:path}", standing.model, "Retrieve a model.", "Model", operation="standing_model"),
    Route(
        "GET", "/healthz", standing.healthz, "Whether the server runs.", "Status", open=True,
        operation="standing_healthz",
    ),
    Route(
        "GET", "/readyz", standing.readyz, "Whether the server can answer.", "Status", open=True,
        operation="standing_readyz",
    ),
    Route("GET", "/openapi.json", document, "This document.", "Document", open=True, operation="routes_document"),
    Route(
        "GET", "/metrics", standing.metrics,
        "Prometheus metrics of your key's name; of the whole server with an admin's key.", "Text",
        operation="standing_metrics",
    ),
)  # fmt: skip
"""In the order in which paths are tried: fixed parts before variable ones."""


def by_path(routes: Sequence[Route] = ROUTES) -> Iterator[tuple[str, dict[str, Route]]]:
    """Each path with its routes by method."""
    for path, grouped in groupby(routes, key=attrgetter("path")):
        yield path, {route.method: route for route in grouped}
