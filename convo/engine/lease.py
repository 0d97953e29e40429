"""One writer a session: the second process is told who the first is, and offered a fork."""

from shlex import quote

from convo.errors import Busy
from convo.history import Session, Strategy
from convo.processes import spoken, this_process
from convo.stores.contract import Store
from convo.stores.leasing import Hold

TTL_S = 30.0


async def writing(store: Store, session: Session) -> Hold:
    """The right to write this session, to be released. raises: Busy  another process has it"""
    title = session.name or session.id
    try:
        return await Hold.take(store, f"session {session.id}", this_process(), TTL_S)
    except Busy as busy:
        raise Busy(title, spoken(busy.holder), hint=_instead(session)) from busy


def _instead(session: Session) -> str:
    """A conversation has one head, at its endpoint, and cannot be forked."""
    if session.strategy is Strategy.CONVERSATION:
        return "leave that chat first"
    return f"convo chat --fork {quote(session.name or session.id)}"
