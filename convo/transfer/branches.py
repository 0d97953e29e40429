"""The history as it was, under a handle of its own, before another one takes its place.

    session                a second session, NAME-before
    replay                 a copy of the file beside it
    chain, conversation    the resp_... or conv_... that its endpoint still has

It is made first: then there is no moment at which the old history has no handle. What was made for a
compaction that failed is taken back; what a killed one made is used by the next compaction of that history.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from convo.engine.chat import Chat
from convo.engine.naming import free_name
from convo.engine.opening import numbered
from convo.engine.replay_file import ReplayFile, as_text
from convo.errors import ConvoError
from convo.history import Strategy
from convo.stores.contract import Change

SUFFIX = "before"


@asynccontextmanager
async def branched(chat: Chat, link_id: str) -> AsyncIterator[str | None]:
    """The handle by which the history of `chat` goes on as it is now. raises: StoreFault, Conflict

    It is taken back where the block fails, unless the store says that its last link came all the same.
    """
    before = chat.session
    if before.strategy is Strategy.SESSION:
        name, undo = await _twin(chat)
    elif before.strategy is Strategy.REPLAY:
        name, undo = _copy(chat)
    else:
        yield before.handle
        return
    try:
        yield name
    except BaseException:
        if undo:
            await _unless_it_came(chat, link_id, undo)
        raise


Undo: TypeAlias = Callable[[], Awaitable[None]]


async def _unless_it_came(chat: Chat, link_id: str, undo: Undo) -> None:
    """Carry `undo` out; a store that cannot be asked now keeps what was made."""
    with suppress(ConvoError):
        now = await chat.edges.store.session(chat.session.id)
        if now is None or now.link != link_id:
            await undo()


async def _twin(chat: Chat) -> tuple[str, Undo | None]:
    """The name of a session that stands where this one does; one that was made before stays."""
    store, session = chat.edges.store, chat.session
    wish = f"{session.name}-{SUFFIX}"
    for one in await store.sessions():
        if one.head == session.head and one.name.startswith(wish):
            return one.name, None
    name = await free_name(store, wish)
    now = await store.session(session.id)
    behind = max(now.use - 1, 0) if now and now.use else 0  # `-c` continues the session, not this one
    twin = replace(session, id=chat.edges.new_id("ses"), name=name, created_at=chat.edges.clock.now(), use=behind)
    await store.commit(Change(session=twin, expect=None))

    async def undo() -> None:
        await store.remove_session(twin.id)

    return name, undo


def _copy(chat: Chat) -> tuple[str, Undo | None]:
    """A copy of the replay file beside it; one that was made before stays."""
    stem, suffix = os.path.splitext(chat.session.handle or "")
    content = as_text(chat.held.path.items)
    for place in numbered(f"{stem}-{SUFFIX}{suffix}"):
        if not os.path.lexists(place):
            break
        if _holds(Path(place), content):
            return place, None
    ReplayFile(place).write(chat.held.path.items)

    async def undo() -> None:
        with suppress(OSError):
            os.unlink(place)

    return place, undo


def _holds(file: Path, content: str) -> bool:
    """Whether a file holds just this; a file that cannot be read does not."""
    try:
        return file.stat().st_size == len(content) and file.read_bytes() == content.encode()
    except OSError:
        return False
