"""What `convo compact` does: make the window, ask where that is needed, put it in place, say so.

The right to write is taken only for the last step. So a chat that is open elsewhere may go on while
the window is made, and what is said there stands behind it.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from convo.cli.saying import note, say
from convo.cli.wiring import asking_of, chosen, endpoint_for, store_of
from convo.clock import SystemClock
from convo.compaction import Wish
from convo.config import Flags, Sources, read, resolve
from convo.engine.chat import Chat
from convo.engine.edges import Edges
from convo.engine.finding import absolute
from convo.engine.lease import writing
from convo.engine.opening import open_chat, recorded
from convo.errors import Busy, NotFound
from convo.history import Strategy
from convo.ids import random_id
from convo.items import Json
from convo.stores.contract import Store
from convo.stores.leasing import Hold
from convo.strategies import wanted
from convo.transfer.compacting import Compacted, Made, made, put
from convo.ui.compacted import preview, result
from convo.ui.medium import Medium, medium_of

PATIENCE_S, PAUSE_S = 30.0, 0.25
"""How long a finished window waits for whoever writes the conversation just now, and how often it asks."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of one `convo compact`."""

    handle: str
    wish: Wish
    model: str | None = None
    preview: bool = False
    yes: bool = False
    as_json: bool = False
    config: Path | None = None


async def compact_one(asked: Asked) -> None:
    """Carry out one compaction and print it. raises: as its parts do; then the history is as it was"""
    sources = read(asked.config, Flags(model=asked.model))
    async with store_of(resolve(sources)) as store, _chat(asked, sources, store) as chat:
        if not asked.preview:
            async with _right_to_write(chat, patience_s=0.0):
                pass  # a chat that is open in a terminal would not let go of it later either
        one = await made(chat, asked.wish, confirmed=asked.yes, preview=asked.preview)
        for words in one.notes:
            note(words)
        if asked.preview:
            say(
                json.dumps(_as_preview(chat, one)) if asked.as_json else preview(one, medium_of(sys.stdout, os.environ))
            )
            return
        async with _right_to_write(chat, patience_s=PATIENCE_S):
            done = await put(chat, one, confirmed=asked.yes)
    say(json.dumps(as_object(chat, done)) if asked.as_json else result(chat.session, done, _medium()))


@asynccontextmanager
async def _chat(asked: Asked, sources: Sources, store: Store) -> AsyncIterator[Chat]:
    """The conversation that the handle names, open for reading."""
    want = wanted([], asked.handle)
    session = await recorded(store, want)
    if want.strategy is Strategy.REPLAY and not session:
        _there(asked.handle)
    settings, choice = chosen(sources, session)
    async with endpoint_for(choice, settings, store) as endpoint:
        asking = asking_of(choice, instructions=session.instructions if session else None, parameters={})
        yield await open_chat(want, session, asking, Edges(store, endpoint, SystemClock(), random_id))


@asynccontextmanager
async def _right_to_write(chat: Chat, *, patience_s: float) -> AsyncIterator[None]:
    """The right to write, waited for while others write. raises: Busy"""
    hold = await _patiently(chat, patience_s)
    try:
        yield
    finally:
        await hold.release()


async def _patiently(chat: Chat, patience_s: float) -> Hold:
    store, clock = chat.edges.store, chat.edges.clock
    until = clock.ticks() + patience_s
    while True:
        try:
            return await writing(store, chat.session)
        except Busy as busy:
            if clock.ticks() >= until:
                raise Busy(busy.name, busy.holder, hint="/compact in that chat, or leave it first") from busy
            await clock.sleep(PAUSE_S)


def _as_preview(chat: Chat, one: Made) -> dict[str, Json]:
    return {"session": chat.session.name or None, **_figures(one), "window": list(one.window)}


def as_object(chat: Chat, done: Compacted) -> dict[str, Json]:
    """The object of `convo compact --json`; tokens by the endpoint's count, or ours where `estimated`."""
    session = chat.session
    return {
        "session": session.name,
        "strategy": str(session.strategy),
        "handle": session.handle,
        **_figures(done.made),
        "after_tokens": done.after.tokens,
        "items": len(chat.held.path),
        "later": done.later,
        "before": done.old,
    }


def _figures(one: Made) -> dict[str, Json]:
    return {
        "way": str(one.plan.way),
        "folded": len(one.plan.folded),
        "kept": len(one.plan.kept),
        "before_tokens": one.before.tokens,
        "after_tokens": one.after.tokens,
        "estimated": one.before.estimated or one.after.estimated,
        "usage": dict(one.usage) if one.usage is not None else None,
    }


def _there(file: str) -> None:
    """raises: NotFound"""
    if not os.path.lexists(absolute(file)):
        raise NotFound("file", file, hint="convo sessions")


def _medium() -> Medium:
    return medium_of(sys.stdout, os.environ)
