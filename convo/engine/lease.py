"""One writer a session: the second process is told who the first is, and offered a fork.

Two processes that went on with one session would each lose what the other said. The right is held
in the store and renewed while the chat is open; a holder that died gives it up by itself.
"""

import os
from shlex import quote

from convo.errors import Busy
from convo.history import Session, Strategy
from convo.processes import is_dead, spoken, this_process
from convo.stores.contract import Store
from convo.stores.leasing import Hold

TTL_S = 30.0


async def writing(store: Store, session: Session) -> Hold:
    """The right to write this session, and its replay file, to be released. raises: Busy  another process has it"""
    try:
        return await Hold.take(store, _what(session), this_process(), TTL_S)
    except Busy as busy:
        raise Busy(_title(session), spoken(busy.holder), hint=_instead(session)) from busy


async def writer(store: Store, session: Session) -> str:
    """Which process has that right, in words; "" where none does that may be alive."""
    holder = await store.holder(_what(session))
    return spoken(holder) if holder and not is_dead(holder) else ""


async def resuming(store: Store, state: str, name: str) -> Hold:
    """The right to go on with a document, by its content hash; to be released. raises: Busy  another process has it

    name:  the document's, for the words
    """
    try:
        return await Hold.take(store, f"state {state}", this_process(), TTL_S)
    except Busy as busy:
        raise Busy(name, spoken(busy.holder), hint="it goes on there; wait until it has ended") from busy


def _what(session: Session) -> str:
    """Two sessions that know the same file take turns at it, by whichever name they know it."""
    if session.strategy is Strategy.REPLAY and session.handle:
        return f"file {os.path.realpath(session.handle)}"
    return f"session {session.id}"


def _title(session: Session) -> str:
    if session.strategy is Strategy.REPLAY and session.handle:
        return session.handle
    return session.name or session.id


def _instead(session: Session) -> str:
    """A conversation has one head, at its endpoint, and cannot be forked."""
    if session.strategy is Strategy.CONVERSATION:
        return "leave that chat first"
    return f"convo chat --fork {quote(_title(session))}"
