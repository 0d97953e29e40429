"""The body of a recorded request, as its client sent it, as a path in the item tree.

A client sends its whole history with each request. So the elements of the longest list come first in the path, and
requests that begin alike share their nodes; large members follow, then one item with everything else:

    {"messages": [m1, m2], "tools": [...], "model": "m"}   ->   m1, m2, the tools, {"type": "convo.request_body", ...}

The items of a Responses request are stored as they are, so they share the rows of the conversation's items. Every other
part is wrapped: a search does not find it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from convo.history.items import BODY_PART_TYPE, REQUEST_BODY_TYPE, Item, Json, is_item
from convo.history.records import CLIENT_TOOL_TYPES, strip_item_secrets
from convo.secrets import SECRET_FIELDS, strip_secret_fields


class SentBody(NamedTuple):
    """The body of a recorded request as its client sent it, without secrets.

    protocol:  "responses", "chat_completions" or "messages"
    path:      the path behind the base URL, with the query: "/chat/completions", "/v1/messages?beta=true"
    headers:   those that select a version of the API
    """

    protocol: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Json]


API_PATHS = {"responses": "/responses", "chat_completions": "/chat/completions", "messages": "/v1/messages"}
"""The path of each protocol behind its base URL."""

VERSION_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")
"""The headers that select a version of an API."""

HISTORY_MEMBERS = ("input", "messages")
"""The members of a body that have the history."""

DEFINITION_FIELDS = frozenset({"schema", "json_schema", "input_schema"})
"""Fields of a request with a JSON schema, whose properties may have any name."""

MAX_INLINE_CHARS = 500
"""Characters of a member's JSON above which it is a part of its own."""

MAX_SPLIT_COUNT = 8
"""Elements of a list that are parts of their own, except for the history: tools are many, and rarely change."""


def strip_body_secrets(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return `body` in a form that may be stored and shown: without the credentials of tools and servers."""
    return {name: _strip_member(name, value) for name, value in body.items() if name not in SECRET_FIELDS}


def _strip_member(name: str, value: Json) -> Json:
    if name == "input" and isinstance(value, list):
        return [strip_item_secrets((item,))[0] if isinstance(item, dict) else item for item in value]
    if name in HISTORY_MEMBERS:
        return value
    if name in ("tools", "functions") and isinstance(value, list):
        is_client_tool = [isinstance(tool, dict) and tool.get("type") in CLIENT_TOOL_TYPES for tool in value]
        return [
            tool if is_own else strip_secret_fields(tool, DEFINITION_FIELDS)
            for tool, is_own in zip(value, is_client_tool, strict=True)
        ]
    return strip_secret_fields({name: value}, DEFINITION_FIELDS)[name]


def split_request_body(body: Mapping[str, Json]) -> tuple[Item, ...]:
    """Split a body into the items of its path; `join_request_body` is the reverse. `body` has no secrets any more."""
    history = next((name for name in HISTORY_MEMBERS if isinstance(body.get(name), list)), None)
    names = [history] if history else []
    # 100 requests with a growing history of 218 KB so take only 18 % more rows than without their bodies.
    names += [name for name, value in body.items() if name != history and _is_large(value)]
    parts: list[Item] = []
    members: list[Json] = []
    for name in names:
        value = body[name]
        is_split = name == history or (isinstance(value, list) and len(value) <= MAX_SPLIT_COUNT)
        elements = value if is_split else [value]
        parts += [_wrap_part(element, is_input=name == "input" and is_split) for element in elements]
        members.append([name, len(elements) if is_split else None])
    inline = {name: None if name in names else value for name, value in body.items()}
    return (*parts, {"type": REQUEST_BODY_TYPE, "members": members, "body": inline})


def _is_large(value: Json) -> bool:
    return isinstance(value, str | list | dict) and len(json.dumps(value)) > MAX_INLINE_CHARS


def _wrap_part(element: Json, *, is_input: bool) -> Item:
    is_own = is_input and is_item(element) and element.get("type") not in (BODY_PART_TYPE, REQUEST_BODY_TYPE)
    return element if is_own else {"type": BODY_PART_TYPE, "value": element}


def join_request_body(items: Sequence[Item]) -> dict[str, Json] | None:
    """Return the body of a path, with its members in the order of the client; None if it is damaged."""
    if not items or items[-1].get("type") != REQUEST_BODY_TYPE:
        return None
    members, body = items[-1].get("members"), items[-1].get("body")
    if not isinstance(members, list) or not isinstance(body, dict):
        return None
    parts, joined = iter(items[:-1]), dict(body)
    try:
        for name, count in members:
            joined[name] = _next_part(parts) if count is None else [_next_part(parts) for _ in range(count)]
    except (TypeError, ValueError, StopIteration, RuntimeError):
        return None
    return joined if next(parts, None) is None else None


def _next_part(parts: Iterator[Item]) -> Json:
    part = next(parts)
    return part.get("value") if part.get("type") == BODY_PART_TYPE else part
