"""A new conversation with a history in it.

A conversation takes twenty items at a time. What it holds afterwards is read back, so that the record
is a copy of what the owner really has; what does not become whole is deleted again.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from convo.engine.edges import Edges
from convo.engine.opening import history_of_conversation
from convo.errors import ConvoError, StateFault
from convo.history import Path
from convo.items import Item

AT_ONCE = 20
"""Items that a conversation takes at a time."""


class Seeded(NamedTuple):
    """A conversation's id, and what it holds."""

    handle: str
    path: Path


async def seeded(items: Sequence[Item], edges: Edges, metadata: Mapping[str, str] | None = None) -> Seeded:
    """Make it. raises: what the endpoint answers; StateFault  it holds something else than it was given"""
    created = await edges.endpoint.create_conversation(items[:AT_ONCE], metadata or None)
    handle = str(created["id"])
    try:
        for at in range(AT_ONCE, len(items), AT_ONCE):
            await edges.endpoint.add_items(handle, items[at : at + AT_ONCE])
        path = await history_of_conversation(handle, edges)
        if len(path) != len(items):
            raise StateFault(f"{handle} holds {len(path)} items, and was given {len(items)}")
    except BaseException:
        await forget(handle, edges)
        raise
    return Seeded(handle, path)


async def forget(handle: str, edges: Edges) -> None:
    """Delete a conversation that nothing came of, as far as its endpoint lets it."""
    with suppress(ConvoError):
        await edges.endpoint.delete_conversation(handle)
