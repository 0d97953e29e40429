"""Support for tests of `convo chat`: scripts of the model, receipts, stored conversations."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from convo.history.items import Item, item_text, item_type
from convo.history.records import Link, Session, Strategy
from convo.stores.factory import open_store
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo

ECHO = ("-m", "scripted/echo")
LONG = "and this goes on for quite a while, as people do when they explain; " * 5

RECEIPT = re.compile(
    r"^(?:(?P<status>incomplete|failed|cancelled)(?: \((?P<why>\w+)\))? · )?"
    r"(?:(?P<input>[\d,]+) input(?: \((?P<cached>[\d,]+) cached\))? · (?P<output>[\d,]+) output · )?"
    r"(?:(?P<cost><?\$[\d.]+) · )?"
    r"(?P<seconds>\d+\.\d) s(?: · (?P<id>resp_[0-9a-f]{12,32}))?(?: · (?P<owner>\w+ \S+))?$"
)


def scripted_flags(*replies: dict[str, Any], **options: Any) -> tuple[str, str]:
    """Write a new script of these replies; return the flags that select it as the model. `options`: chunk, delay_s."""
    folder = Path("scripts")
    folder.mkdir(exist_ok=True)
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({"replies": replies, **options}), encoding="utf-8")
    return "-m", f"scripted/{path.absolute()}"


def receipts(err: str) -> list[dict[str, str | None]]:
    """Return the parts of each receipt in stderr."""
    matches = (RECEIPT.match(line) for line in err.splitlines())
    return [match.groupdict() for match in matches if match]


def stored_sessions(home: Path) -> list[Session]:
    """Return the sessions in the store, most recently used first."""

    async def read() -> list[Session]:
        store = open_store(f"sqlite:{home / DATABASE}")
        try:
            return list(await store.sessions())
        finally:
            await store.aclose()

    return asyncio.run(read())


def stored_conversation(home: Path, name: str) -> tuple[list[Item], list[Link]]:
    """Return the items on the path to a session's head, and the links of the session."""

    async def read() -> tuple[list[Item], list[Link]]:
        store = open_store(f"sqlite:{home / DATABASE}")
        try:
            session = await store.session(name)
            assert session
            return list((await store.path(session.head)).items), list(await store.links(session.id))
        finally:
            await store.aclose()

    return asyncio.run(read())


def stored_messages(home: Path, name: str) -> list[str]:
    """Return the items of a session as text, such as "user: hi"; a partial answer ends with "…"."""
    items, _ = stored_conversation(home, name)
    return [
        f"{item.get('role', item_type(item))}: {item_text(item)}" + ("…" if is_partial(item) else "") for item in items
    ]


def is_partial(item: Item) -> bool:
    return item.get("status") == "incomplete"


def start_session(convo: Convo, strategy: Strategy) -> str:
    """Start a conversation with one turn; return its handle."""
    got = convo("chat", f"--{strategy}", "-n", "mine", "--json", "one")
    handle: str = got.json()["conversation_id"] or got.json()["response_id"]
    return handle
