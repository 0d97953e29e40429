"""The body of a recorded request is split into parts that later requests share, and joined again as it was."""

import json
from typing import Any

import pytest

from convo.history.canonical import item_hash
from convo.history.request_body import join_request_body, split_request_body, strip_body_secrets
from tests.recording.exchanges import CAPTURED_CLIENTS, captured_exchanges

LONG = "word " * 300


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": "m"},
        {"model": "m", "input": "Hi.", "messages": None},
        {"input": [], "tools": [], "stream": True},
        {"messages": ["a", 1, None, {"role": "user", "content": []}, [{}]], "model": "m"},
        {"model": "m", "system": LONG, "messages": [{"role": "user", "content": LONG}], "max_tokens": 2**70},
        {
            "tools": [{"type": "function", "description": LONG}] * 30,
            "input": [{"type": "x"}, {"role": "user"}],
            "a": 1.0,
        },
        {"input": [{"type": "convo.body_part", "value": {"type": "convo.request_body"}}], "convo.request_body": {}},
        {"messages": {"not": "a list", "text": LONG}, "input": LONG},
        {"system": [{"type": "text", "text": LONG}, {"text": "\ud83d \u0000"}], "messages": []},
    ],
)
def test_a_body_is_joined_as_it_was_with_the_order_of_its_members(body: dict[str, Any]) -> None:
    joined = join_request_body(split_request_body(body))
    assert json.dumps(joined) == json.dumps(body)


@pytest.mark.parametrize("client", CAPTURED_CLIENTS)
def test_the_bodies_of_real_clients_are_joined_as_they_were_and_share_their_parts(client: str) -> None:
    seen: set[str] = set()
    for number, (request, _) in enumerate(captured_exchanges(client)):
        parts = split_request_body(strip_body_secrets(json.loads(request.body)))
        assert json.dumps(join_request_body(parts)) == json.dumps(json.loads(request.body))
        hashes = set(map(item_hash, parts))
        assert number == 0 or seen & hashes
        seen |= hashes


@pytest.mark.parametrize(
    "items",
    [
        [],
        [{"type": "message"}],
        [{"type": "convo.request_body"}],
        [{"type": "convo.request_body", "members": [["input", 1]], "body": {}}],
        [{"type": "convo.request_body", "members": [["input", "x"]], "body": {}}],
        [{"type": "convo.request_body", "members": [1], "body": {}}],
        [{"type": "convo.body_part", "value": 1}, {"type": "convo.request_body", "members": [], "body": {}}],
    ],
)
def test_a_damaged_path_has_no_body(items: list[dict[str, Any]]) -> None:
    assert join_request_body(items) is None


def test_credentials_of_tools_are_removed_and_schemas_are_kept() -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "headers"}],
        "tools": [
            {"name": "login", "input_schema": schema},
            {"type": "function", "function": {"name": "login", "parameters": schema}},
            {"type": "mcp", "server_url": "https://u:p@mcp.example/secret?k=1", "authorization": "secret"},
        ],
        "mcp_servers": [{"url": "https://u:secret@mcp.example/secret", "authorization_token": "secret"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "login", "schema": schema}},
    }
    credentials = {"api_key": "secret", "extra_headers": {"Authorization": "Bearer secret"}}
    assert strip_body_secrets({**body, **credentials}) == {
        **body,
        "tools": [*body["tools"][:2], {"type": "mcp", "server_url": "https://mcp.example"}],
        "mcp_servers": [{"url": "https://mcp.example"}],
    }
