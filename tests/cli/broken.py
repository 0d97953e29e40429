"""Broken histories in the store that the command line opens, and in files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convo.history.records import EMBEDDED_SCOPE, Scope, Session, Strategy
from convo.history.tree import Path as History
from convo.history.tree import root_key
from convo.stores.base import AppendItems, Transaction
from tests.cli.held import MODEL, Story, Teller

HI = {"type": "message", "role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Bonn"}'}
CUT = {**CALL, "arguments": '{"city": "Bo'}
ORPHAN = {"type": "function_call_output", "call_id": "c0", "output": "sunny"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]}

BROKEN = [HI, CUT, ORPHAN, ANSWER]


def listed(place: Path, items: Sequence[Any] = BROKEN) -> str:
    """A file with these items, one a line; returns its path as it is typed."""
    place.write_text("[\n" + ",\n".join(map(json.dumps, items)) + "\n]\n")
    return f"./{place.name}"


def session(name: str, items: Sequence[Any] = BROKEN, *, scope: Scope = EMBEDDED_SCOPE) -> Story:
    """A session with these items and no links."""

    async def story(teller: Teller) -> None:
        path = History(root_key(teller.store.tenant)).append(items)
        now = teller.clock.now()
        record = Session(f"ses_{name}", name, Strategy.SESSION, MODEL, path.head, path.head, now, now, scope)
        await teller.store.commit(
            Transaction((AppendItems(path.root, path.items),), session=record, expected_session_head=None)
        )

    return story


def interrupted(folder: Path, **state: str) -> Story:
    """A response that ends in a call which nobody answered; `state` is what it goes on from, instead of resp_1."""
    script = folder / "calls.json"
    script.write_text(json.dumps({"replies": [{"call": {"name": "weather", "arguments": {"city": "Bonn"}}}]}))

    async def story(teller: Teller) -> None:
        await teller.another("hello")
        body = {"model": f"scripted/{script}", "input": "weather?", **(state or {"previous_response_id": "resp_1"})}
        async for _ in teller.endpoint.create(body):
            pass

    return story
