"""Store the requests of a conversation, as chats and recordings leave them: paths, links and a session."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link, Session, Strategy
from convo.history.tree import Path, root_key
from convo.inspect.view import ConversationView, PathIndex
from convo.stores.base import AppendItems, Transaction
from convo.stores.factory import open_store
from tests.cli.stored_chats import DATABASE

START_TIME = 1_790_000_000.0
SESSION_ID = "ses_1"

OPENAI, CLAUDE = "openai/gpt-5.6-sol", "anthropic/claude-opus-5-5"


def tool(name: str, description: str = "") -> dict[str, Any]:
    properties = {"date": {"type": "string", "description": description}}
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": properties}}


PARAMETERS: Mapping[str, Any] = {
    "instructions": "You are a careful assistant for travellers.",
    "tools": [tool("get_weather", "For example 2026-11-27."), tool("book"), tool("cancel")],
    "text": {"format": {"type": "json_schema", "name": "one", "schema": {"type": "object"}}, "verbosity": "low"},
    "reasoning": {"effort": "medium"},
    "prompt_cache_key": "one",
}

ITEMS: Sequence[Item] = (
    user_message("What is the weather in Oslo?"),
    {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"date": "today"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "Rain, 4 degrees."},
    assistant_message("It rains."),
    user_message("And in Bergen?"),
)


def usage(input_tokens: int, cached: int = 0, written: int = 0) -> dict[str, Any]:
    details = {"cached_tokens": cached, "cache_write_tokens": written}
    return {"input_tokens": input_tokens, "input_tokens_details": details, "output_tokens": 20}


class Request(NamedTuple):
    """One request: its input, its parameters, the other fields of its link, and its answer."""

    items: Sequence[Item] = ITEMS
    parameters: Mapping[str, Any] = PARAMETERS
    fields: Mapping[str, Any] = {}
    answer: str = "Fine."

    def next(self, *items: Item, **fields: Any) -> "Request":
        """Return the request that continues the answer with `items`."""
        return Request((*self.items, assistant_message(self.answer), *items), self.parameters, fields)


def make_links(requests: Sequence[Request], model: str) -> tuple[list[Link], list[Path]]:
    """Return the links resp_1, resp_2, ... a minute apart, each the child of the one before it, and their paths."""
    root, links, paths = root_key("local"), list[Link](), list[Path]()
    for number, request in enumerate(requests, 1):
        before = paths[-1] if paths and request.items[: len(paths[-1])] == tuple(paths[-1].items) else Path(root)
        input_path = before.append(request.items[len(before) :])
        paths.append(input_path.append([assistant_message(request.answer)]))
        link = Link(
            id=f"resp_{number}",
            input_head=input_path.head,
            head=paths[-1].head,
            sent_count=len(input_path),
            model=model,
            strategy=Strategy.SESSION,
            status="completed",
            created_at=START_TIME + 60 * number,
            parent_id=links[-1].id if links else None,
            session_id=SESSION_ID,
            duration_s=2.0,
            first_token_s=1.0,
            parameters=request.parameters,
            usage=usage(12_000, written=12_000) if number == 1 else usage(12_500, written=12_500),
        )
        links.append(replace(link, **request.fields))
    return links, paths


def make_view(requests: Sequence[Request], model: str) -> ConversationView:
    """Return the view of these requests at the last one."""
    links, paths = make_links(requests, model)
    index = PathIndex(paths[-1].root)
    for path in paths:
        index.add(path)
    last = paths[-1]
    return ConversationView(
        "trip", Strategy.SESSION, links[-1].scope, last, last.head, tuple(links), index, current_link_id=links[-1].id
    )


def make_transaction(requests: Sequence[Request], model: str) -> Transaction:
    """Return the write that stores these requests as the session "trip", which was used last."""
    links, paths = make_links(requests, model)
    head = paths[-1].head
    session = Session(
        SESSION_ID, "trip", Strategy.SESSION, model, head, head, START_TIME, START_TIME, link_id=links[-1].id
    )
    return Transaction(tuple(AppendItems(path.root, path.items) for path in paths), tuple(links), session)


def store_requests(home: FilePath, requests: Sequence[Request], model: str) -> None:
    """Store these requests in the store of `home`."""

    async def write() -> None:
        store = open_store(f"sqlite:{home / DATABASE}")
        await store.commit(make_transaction(requests, model))
        await store.aclose()

    asyncio.run(write())
