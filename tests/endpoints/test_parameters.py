"""Tables list every parameter of every method of the openai package, so no parameter is ignored silently."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from openai.resources.conversations.conversations import Conversations
from openai.resources.conversations.items import Items
from openai.resources.responses.input_items import InputItems
from openai.resources.responses.input_tokens import InputTokens
from openai.resources.responses.responses import Responses

from convo.endpoints.base import Endpoint
from convo.models.request_fields import COMPACT_FIELDS, COUNT_FIELDS, REQUEST_FIELDS

METHOD_ARGUMENTS = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}

PACKAGE_PARAMETERS = {"text_format", "parse_as", "verbosity"}
"""Parameters that the package converts to `text` before it sends the request."""

ALWAYS_INCLUDED = "items are always returned in full, with everything that `include` can name"
NOT_PADDED = "events are not padded; the query takes the parameter"

PATHS_AND_QUERIES: Mapping[Callable[..., Any], Mapping[str, str]] = {
    Responses.retrieve: {
        "response_id": "retrieve.response_id",
        "stream": "follow",
        "starting_after": "follow.after",
        "include": ALWAYS_INCLUDED,
        "include_obfuscation": NOT_PADDED,
    },
    Responses.cancel: {"response_id": "cancel.response_id"},
    Responses.delete: {"response_id": "delete.response_id"},
    InputItems.list: {
        "response_id": "list_input_items.response_id",
        "after": "list_input_items.after",
        "limit": "list_input_items.limit",
        "order": "list_input_items.order",
        "include": ALWAYS_INCLUDED,
    },
    Conversations.create: {"items": "create_conversation.items", "metadata": "create_conversation.metadata"},
    Conversations.retrieve: {"conversation_id": "retrieve_conversation.conversation_id"},
    Conversations.update: {
        "conversation_id": "update_conversation.conversation_id",
        "metadata": "update_conversation.metadata",
    },
    Conversations.delete: {"conversation_id": "delete_conversation.conversation_id"},
    Items.create: {
        "conversation_id": "add_conversation_items.conversation_id",
        "items": "add_conversation_items.items",
        "include": ALWAYS_INCLUDED,
    },
    Items.list: {
        "conversation_id": "list_conversation_items.conversation_id",
        "after": "list_conversation_items.after",
        "limit": "list_conversation_items.limit",
        "order": "list_conversation_items.order",
        "include": ALWAYS_INCLUDED,
    },
    Items.retrieve: {
        "conversation_id": "retrieve_conversation_item.conversation_id",
        "item_id": "retrieve_conversation_item.item_id",
        "include": ALWAYS_INCLUDED,
    },
    Items.delete: {
        "conversation_id": "delete_conversation_item.conversation_id",
        "item_id": "delete_conversation_item.item_id",
    },
}
"""For each parameter, the argument of the endpoint contract that accepts it, or the reason why none is needed."""

BODIES: Mapping[Callable[..., Any], set[str]] = {
    Responses.create: set(REQUEST_FIELDS),
    Responses.parse: set(REQUEST_FIELDS) | PACKAGE_PARAMETERS,
    Responses.stream: set(REQUEST_FIELDS) | PACKAGE_PARAMETERS | {"response_id", "starting_after"},
    Responses.compact: set(COMPACT_FIELDS),
    InputTokens.count: set(COUNT_FIELDS) | {"personality"},
}
"""The fields that a body may have; `test_embedded_requests` tests how each field is parsed."""


def parameters(method: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(method).parameters) - METHOD_ARGUMENTS


@pytest.mark.parametrize("method", PATHS_AND_QUERIES, ids=lambda method: method.__qualname__)
def test_every_path_and_query_parameter_is_in_the_table(method: Callable[..., Any]) -> None:
    assert parameters(method) == set(PATHS_AND_QUERIES[method])


@pytest.mark.parametrize("method", BODIES, ids=lambda method: method.__qualname__)
def test_every_body_field_is_read_or_refused_with_its_name(method: Callable[..., Any]) -> None:
    assert parameters(method) - BODIES[method] == set()


@pytest.mark.parametrize(
    "contract_parameter",
    sorted({where for rows in PATHS_AND_QUERIES.values() for where in rows.values() if " " not in where}),
)
def test_every_table_row_names_a_parameter_of_the_contract(contract_parameter: str) -> None:
    name, _, parameter = contract_parameter.partition(".")
    method = getattr(Endpoint, name)
    assert not parameter or parameter in inspect.signature(method).parameters


METHODS: set[Callable[..., Any]] = {
    *(Responses.connect, Responses.create, Responses.parse, Responses.stream, Responses.compact, Responses.retrieve),
    *(Responses.cancel, Responses.delete, InputItems.list, InputTokens.count),
    *(Conversations.create, Conversations.retrieve, Conversations.update, Conversations.delete),
    *(Items.create, Items.list, Items.retrieve, Items.delete),
}


def test_every_method_that_sends_a_request_has_a_table() -> None:
    """`connect` is in no table: it opens a connection and has no API parameters."""
    methods: set[Callable[..., Any]] = {
        method
        for resource in (Responses, InputItems, InputTokens, Conversations, Items)
        for name, method in inspect.getmembers(resource, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == METHODS
    assert {*PATHS_AND_QUERIES, *BODIES, Responses.connect} == METHODS
