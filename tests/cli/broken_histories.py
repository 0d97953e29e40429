"""Broken histories for tests of the command line, in the store and in files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convo.history.records import EMBEDDED_SCOPE, Scope, Session, Strategy
from convo.history.tree import Path as History
from convo.history.tree import root_key
from convo.stores.base import AppendItems, Transaction
from tests.cli.stored_chats import MODEL, ChatScript, ChatWriter

HI = {"type": "message", "role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Bonn"}'}
CUT = {**CALL, "arguments": '{"city": "Bo'}
ORPHAN = {"type": "function_call_output", "call_id": "c0", "output": "sunny"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]}

BROKEN = [HI, CUT, ORPHAN, ANSWER]


def write_items(path: Path, items: Sequence[Any] = BROKEN) -> str:
    """Write a JSON file of these items, one per line; return its path relative to the current folder."""
    path.write_text("[\n" + ",\n".join(map(json.dumps, items)) + "\n]\n")
    return f"./{path.name}"


def broken_session(name: str, items: Sequence[Any] = BROKEN, *, scope: Scope = EMBEDDED_SCOPE) -> ChatScript:
    """Return a script that stores a session with these items and no links."""

    async def script(writer: ChatWriter) -> None:
        path = History(root_key(writer.store.tenant)).append(items)
        now = writer.clock.now()
        record = Session(f"ses_{name}", name, Strategy.SESSION, MODEL, path.head, path.head, now, now, scope)
        await writer.store.commit(
            Transaction((AppendItems(path.root, path.items),), session=record, expected_session_head=None)
        )

    return script


def unanswered_call(folder: Path, **state: str) -> ChatScript:
    """Return a script that stores a response with a function call without output.

    The response continues resp_1, or the response or conversation in `state`.
    """
    script_path = folder / "calls.json"
    script_path.write_text(json.dumps({"replies": [{"call": {"name": "weather", "arguments": {"city": "Bonn"}}}]}))

    async def script(writer: ChatWriter) -> None:
        await writer.other_client("hello")
        body = {
            "model": f"scripted/{script_path}",
            "input": "weather?",
            **(state or {"previous_response_id": "resp_1"}),
        }
        async for _ in writer.endpoint.create(body):
            pass

    return script
